"""Rights and prompt of a workflow step: its role's rights, narrowed, and no persona."""

from dataclasses import replace

from chatops.domain.ids import SessionId, TurnId
from chatops.engine.workflow.state import RunningStep, WorkflowState
from chatops.policy.workflow import StepSpec, WorkflowSpec
from chatops.runtime.settings import SessionSettings, StepRights
from tests.wiring.conftest import Bench

STEP = StepSpec(name="build", system_prompt="Build it.", max_iterations=5)
FLOW = WorkflowSpec(name="flow", steps=(STEP, replace(STEP, name="check", model="demo", max_iterations=40)))
ROLES = {"coder": {"primary": "fake", "max_rounds": 24, "responder": "demo", "persona": "default"}}
MODELS = {"fake": {"type": "openai", "api_url": "http://127.0.0.1:9/v1", "model_name": "m"}}


def rights_at(step: StepSpec) -> StepRights:
    return StepRights(workflow=FLOW, step=step)


def test_rounds_are_the_fewest_of_role_and_step(bench: Bench) -> None:
    bench.write(roles=ROLES, models=MODELS)
    rights = bench.app().rights
    for step, rounds in zip(FLOW.steps, (5, 24), strict=True):
        assert rights.grant(SessionSettings("coder", step=rights_at(step))).max_rounds == rounds


def test_a_step_speaks_in_no_voice_and_answers_itself(bench: Bench) -> None:
    bench.write(roles=ROLES, models=MODELS)
    rights = bench.app().rights
    chat, step = (rights.grant(SessionSettings("coder", step=at)) for at in (None, rights_at(STEP)))
    assert chat.responder is not None and step.responder is None
    voices = [
        [layer.name for layer in rights.prompt_layers(SessionSettings("coder", step=at)) if layer.text]
        for at in (None, rights_at(STEP))
    ]
    assert "persona" in voices[0] and "persona" not in voices[1]
    assert "Build it." in step.prompt and "Build it." not in chat.prompt


def test_a_model_that_was_asked_for_is_for_the_steps_that_name_none() -> None:
    def model(step: int) -> str:
        phase = RunningStep(step=step, attempt=1, turn_id=TurnId("s.1"))
        run = WorkflowState(
            session_id=SessionId("s"), seq=0, spec=FLOW, query="q", role="coder", phase=phase, model="fake"
        )
        return SessionSettings(role="coder").at_step(run).model_pin

    assert [model(0), model(1)] == ["fake", "demo"]

"""Whole runs: both machines together, with models that misbehave, and tools whose effects are counted."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.events import TurnStatus
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import Message, Speaker, UserMessage
from chatops.domain.model import ModelReply
from chatops.domain.tools import Outcome, ToolCall, ToolResult
from chatops.engine.acceptance import MAX_WITHOUT_JSON
from chatops.engine.effects import CallModel
from chatops.engine.state import Finished, TurnState, new_turn
from chatops.engine.view import pending_calls
from chatops.engine.without_model import start_gate
from chatops.engine.workflow.effects import StartAttempt, StartGate
from chatops.engine.workflow.machine import advance_run, start_run, turn_end_input
from chatops.engine.workflow.state import RunFinished, RunResult, WorkflowState
from chatops.policy.workflow import StepSpec, Validation
from tests.engine.runs import TESTS, a_step, a_workflow
from tests.engine.steps import BY_COMPONENT, SHELL, STEP_TOOLS, calls, errors, result, says, step_grant, text, validate
from tests.engine.world import World, raw


@dataclass
class Flow:
    """Plays a run: a script of model replies over all turns, and a user who approves everything."""

    steps: Sequence[StepSpec]
    script: list[ModelReply]
    broken: set[str] = field(default_factory=set)
    """Components that do not validate."""
    gate_fails: int = 0
    """Number of failures of a gate's command before it succeeds."""
    ran: Counter[str] = field(default_factory=Counter)
    """Number of effects, by tool and arguments."""
    turns: dict[TurnId, TurnState] = field(default_factory=dict)

    def play(self) -> WorkflowState:
        """Until the run is over."""
        spec = a_workflow(*self.steps)
        step = start_run(session_id=SessionId("s"), spec=spec, query="a site for bees", role="coder")
        while step.effects:
            (asked,) = step.effects
            assert isinstance(asked, StartAttempt | StartGate)
            ended = turn_end_input(self._turn(asked))
            assert ended is not None
            step = advance_run(step.state, ended)
        return step.state

    def instructions(self) -> str:
        """Return the last message to the first turn's model."""
        turn = next(iter(self.turns.values()))
        said = [one.text for one in turn.messages if isinstance(one, UserMessage) and one.by is Speaker.MACHINE]
        return said[-1]

    def _turn(self, asked: StartAttempt | StartGate) -> TurnState:
        if isinstance(asked, StartGate):
            first = start_gate(new_turn(asked.turn_id, SessionId("s"), grant=step_grant((SHELL,))), asked.gate)
            world = World.after(first, self._tool)
        else:
            world = World.begin(
                step_grant(STEP_TOOLS, max_rounds=asked.step.max_iterations),
                asked.text,
                contract=asked.contract,
                history=self._history(asked.after),
                tool_says=self._tool,
                turn_id=asked.turn_id,
            )
        while not isinstance(world.state.phase, Finished):
            while world.flying:
                asks = isinstance(world.flying[0], CallModel)
                world.perform(0, model=self.script.pop(0) if asks else None)
            if pending_calls(world.state):
                world.decide(0, Approved())
        self.turns[asked.turn_id] = world.state
        return world.state

    def _history(self, after: TurnId | None) -> tuple[Message, ...]:
        return () if after is None else (*self.turns[after].history, *self.turns[after].messages)

    def _tool(self, call: ToolCall) -> ToolResult | None:
        self.ran[f"{call.name} {call.arguments}"] += 1
        if call.name == "configure":
            self.broken.discard(json.loads(call.arguments).get("mends", ""))
        if call.name.startswith("validate"):
            component = json.loads(call.arguments).get("component", "")
            return result(errors((component, "is broken")) if component in self.broken else {"valid": True})
        if call.name == "shell_exec" and self.gate_fails:
            self.gate_fails -= 1
            return result("1 failed: test_bees", Outcome.FAILED)
        return None


BUILD = a_step("build", validations=(BY_COMPONENT, Validation(tool="validate_full")), max_iterations=8)
SHIP = a_step("ship", gates=(TESTS,))


def finished(state: WorkflowState) -> RunFinished:
    assert isinstance(state.phase, RunFinished)
    return state.phase


def test_discovery_configuration_assembly_end_to_end() -> None:
    flow = Flow(
        steps=[a_step("discover", max_iterations=5), BUILD, SHIP],
        script=[
            calls(raw("info", '{"q":"hive"}')),
            says({"components": ["hive"]}),
            calls(raw("configure", '{"n":1}')),
            says({"component": "hive"}),
            calls(validate("hive"), raw("validate_full", '{"component":"hive"}')),
            calls(raw("configure", '{"mends":"hive"}')),
            says({"component": "hive"}),
            calls(validate("hive"), raw("validate_full", '{"component":"hive"}')),
            says({"component": "hive"}),
            calls(raw("deploy")),
            says("https://bees.example"),
        ],
        broken={"hive"},
    )
    end = finished(flow.play())
    assert (end.result, end.answer) == (RunResult.ANSWERED, "https://bees.example")
    assert not flow.script
    assert flow.ran["deploy {}"] == 1
    assert flow.ran['shell_exec {"command":"pytest -q"}'] == 1


def test_a_retried_attempt_does_not_deploy_again() -> None:
    flow = Flow(
        steps=[SHIP],
        script=[
            calls(raw("deploy", '{"to":"prod"}')),
            says(None, success=False, reasoning="I am not sure it worked"),
            calls(raw("deploy", '{"to":"prod"}')),
            says("it is out"),
        ],
        gate_fails=0,
    )
    assert finished(flow.play()).answer == "it is out"
    assert flow.ran['deploy {"to":"prod"}'] == 1


def test_a_gate_that_fails_sends_the_model_back_with_the_output_and_all_it_saw() -> None:
    flow = Flow(
        steps=[SHIP],
        script=[calls(raw("deploy")), says("v1"), calls(raw("configure", '{"n":2}')), says("v2")],
        gate_fails=1,
    )
    assert finished(flow.play()).answer == "v2"
    opening = flow.turns[TurnId("s.3")].messages[0]
    assert isinstance(opening, UserMessage)
    assert "1 failed: test_bees" in opening.text
    assert "deploy {}" in opening.text
    assert flow.turns[TurnId("s.3")].history == flow.turns[TurnId("s.1")].messages


def test_a_model_that_only_claims_success_is_never_believed() -> None:
    claims = [says({"component": "hive"})] * 40
    end = finished(Flow(steps=[BUILD], script=claims).play())
    assert end.result is RunResult.FAILED
    assert "validate was never called" in end.detail


@pytest.mark.parametrize(
    ("said", "calls", "how"),
    [
        ('{"success": true, "result": 5}', BUILD.max_iterations + 1, TurnStatus.LIMIT),
        ("Sure, here you go!", MAX_WITHOUT_JSON, TurnStatus.FAILED),
        ("", MAX_WITHOUT_JSON, TurnStatus.FAILED),
    ],
)
def test_a_model_that_says_nothing_useful_ends_the_run_within_its_budget(
    said: str, calls: int, how: TurnStatus
) -> None:
    flow = Flow(steps=[BUILD], script=[text(said)] * 100)
    assert finished(flow.play()).result is RunResult.FAILED
    assert len(flow.script) == 100 - 3 * calls
    assert [turn.phase.kind for turn in flow.turns.values()] == ["finished"] * 3
    assert {turn.phase.result for turn in flow.turns.values() if isinstance(turn.phase, Finished)} == {how}


def test_prose_is_told_the_form_and_the_schema_of_the_step() -> None:
    schema = '{"properties":{"name":{"type":"string"}},"required":["name"],"type":"object"}'
    flow = Flow(steps=[a_step("tell", output_schema=schema)], script=[text("Sure, here you go!")] * 100)
    flow.play()
    instructions = flow.instructions()
    assert '"success": true' in instructions
    assert instructions.endswith(schema)
    plain = Flow(steps=[a_step("tell")], script=[text("Sure, here you go!")] * 100)
    plain.play()
    assert "as the text of `result`" in plain.instructions()

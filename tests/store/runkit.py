"""Runs of workflows written by hand, so that a store is tested without their machine."""

from dataclasses import replace
from typing import Any

from chatops.domain.events import TurnStatus
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import Usage
from chatops.engine.contract import DoneCall, StepContract
from chatops.engine.workflow.effects import StartAttempt, WorkflowStep
from chatops.engine.workflow.inputs import Accept, CancelRun, ReviewStep
from chatops.engine.workflow.state import (
    AttemptRecord,
    AwaitingReview,
    CheckingGate,
    ReviewReason,
    RunFinished,
    RunningStep,
    RunPhase,
    RunResult,
    StepOutput,
    WorkflowState,
)
from chatops.policy.workflow import CommandGate, OnFail, PatternGate, StepSpec, Subject, Validation, WorkflowSpec
from tests.store.storekit import ANA

SESSION = SessionId("20261121-101512-k3f9")

SPEC = WorkflowSpec(
    name="release",
    description="Builds and publishes",
    source="workflows/release.yaml",
    steps=(
        StepSpec(
            name="configure",
            system_prompt="Write the configuration. \ud83d",
            role="coder",
            model="local",
            tools=("file_read", "file_edit"),
            validations=(
                Validation(tool="validate", subject=(Subject(argument="name", pointer="/name"),), depends_on=("a",)),
                Validation(tool="lint"),
            ),
            gates=(
                PatternGate(name="has a version", pattern="\\d", pointer="/version", negated=True),
                CommandGate(name="builds", command="make", timeout_s=5),
            ),
            output_schema='{"type":"object"}',
            max_iterations=5,
            max_attempts=2,
            temperature=0.5,
            max_output_tokens=10,
            on_fail=OnFail.ASK,
            may_skip=True,
            review=True,
            order=("file_read", "file_edit"),
            once=("file_edit",),
        ),
        StepSpec(name="publish", system_prompt="Publish it."),
    ),
)


def turn(number: int, session_id: SessionId = SESSION) -> TurnId:
    return TurnId(f"{session_id}.{number}")


def state(phase: RunPhase, session_id: SessionId = SESSION, **more: Any) -> WorkflowState:
    """A run of `SPEC` at its first step."""
    known: dict[str, Any] = {"seq": 0, "spec": SPEC, "query": "release it", "role": "coder", "turns": 1}
    return WorkflowState(session_id=session_id, phase=phase, **(known | more))


def begun(session_id: SessionId = SESSION) -> WorkflowStep:
    """The step that begins a run and asks for its first turn."""
    first = turn(1, session_id)
    return asks(state(RunningStep(step=0, attempt=1, turn_id=first), session_id))


def asks(running: WorkflowState, *, after: TurnId | None = None) -> WorkflowStep:
    """A step that asks for the turn its state names."""
    assert isinstance(running.phase, RunningStep)
    step = running.spec.step(running.phase.step)
    effect = StartAttempt(turn_id=running.phase.turn_id, step=step, text="Go on", contract=kept(), after=after)
    return WorkflowStep(state=running, effects=(effect,))


def kept() -> StepContract:
    """A contract."""
    return StepContract(validations=SPEC.steps[0].validations, once=("file_edit",))


def then(step: WorkflowStep, phase: RunPhase, **more: Any) -> WorkflowStep:
    """The step after `step`, without effects."""
    return WorkflowStep(state=replace(step.state, **({"seq": step.state.seq + 1, "phase": phase} | more)))


def running(number: int, *, step: int = 0, attempt: int = 1, session_id: SessionId = SESSION) -> RunningStep:
    return RunningStep(step=step, attempt=attempt, turn_id=turn(number, session_id))


def review(*, step: int = 0, attempt: int = 1) -> AwaitingReview:
    return AwaitingReview(step=step, attempt=attempt, reason=ReviewReason.REVIEW, answer="{}")


def over(result: RunResult = RunResult.ANSWERED) -> RunFinished:
    return RunFinished(result=result, answer="done")


def accepted(*, step: int = 0, attempt: int = 1) -> ReviewStep:
    return ReviewStep(step=step, attempt=attempt, review=Accept(), by=ANA)


CANCELLED = CancelRun(by=ANA)


def golden_runs() -> dict[str, WorkflowState]:
    """By name. Their written form is what the newest golden file holds."""
    record = AttemptRecord(
        step=0,
        attempt=1,
        turn_id=turn(1),
        status=TurnStatus.LIMIT,
        detail="too long",
        rounds=5,
        usage=Usage(input_tokens=10, output_tokens=2, reasoning_tokens=1, cost=0.5),
        gate="builds",
    )
    full = state(
        running(3, attempt=2),
        seq=7,
        model="local",
        outputs=(StepOutput(step=0, text='{"a":1}', failed=True, skipped=True, detail="no"),),
        attempts=(record, replace(record, usage=None)),
        done=(DoneCall(tool="file_edit", arguments="{}", content="done \ud83d"),),
        told="It lacked a version.",
        turns=3,
    )
    gate = CheckingGate(step=0, attempt=2, gate=1, turn_id=turn(4), answer='{"version":"1"}')
    return {
        "begun": begun().state,
        "running_step": full,
        "checking_gate": replace(full, phase=gate),
        **{
            f"awaiting_review_{reason.value}": replace(full, phase=replace(review(), reason=reason, detail="why"))
            for reason in ReviewReason
        },
        **{f"finished_{result.value}": replace(full, phase=over(result)) for result in RunResult},
    }

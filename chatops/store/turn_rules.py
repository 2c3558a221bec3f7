"""Facts that every store derives from turns and runs in the same way: pending calls, a run's mark."""

from collections.abc import Iterable, Sequence
from typing import assert_never

from chatops.domain.decisions import Approved, Decision, Edited, Recorded, Rejected
from chatops.domain.errors import AlreadyDecidedError
from chatops.domain.ids import CallId, TurnId
from chatops.engine.effects import RunTool, TurnStep
from chatops.engine.state import (
    AwaitingModel,
    CallState,
    CheckingAnswer,
    Finished,
    InRound,
    Settled,
    Stopping,
    TurnState,
)
from chatops.engine.workflow.effects import WorkflowStep
from chatops.engine.workflow.inputs import CancelRun, ReviewStep
from chatops.engine.workflow.machine import advance_run
from chatops.engine.workflow.state import CheckingGate, RunFinished, RunningStep, WorkflowState
from chatops.store.base import PendingCallRow, RunMark


def in_call_order(queued: Sequence[PendingCallRow]) -> list[PendingCallRow]:
    """Sort calls by turn, those of a turn as the model made them. The order of inspection says nothing."""
    turns = {one.turn_id: place for place, one in reversed(list(enumerate(queued)))}
    return sorted(queued, key=lambda one: (turns[one.turn_id], _numbers(one.pending.call.id)))


def _numbers(call_id: CallId) -> tuple[int, ...]:
    return tuple(int(part) for part in call_id.split(".")[1:] if part.isdecimal())


def overrules(decision: Recorded, posted: Decision) -> bool:
    """Return True if `decision` counts although `posted` came first: it denies what is approved and not started."""
    return isinstance(decision, Rejected) and isinstance(posted, Approved | Edited)


def open_calls(state: TurnState) -> frozenset[CallId]:
    """Return the calls of a turn that have no result yet: only they can still take a posted decision."""
    return frozenset(item.call.id for item in _calls(state) if not isinstance(item.status, Settled))


def _calls(state: TurnState) -> tuple[CallState, ...]:
    match state.phase:
        case InRound(calls=calls) | Stopping(calls=calls):
            return calls
        case AwaitingModel() | CheckingAnswer() | Finished():
            return ()
        case _:
            assert_never(state.phase)


def intents(step: TurnStep) -> tuple[RunTool, ...]:
    """Return the tool runs that a step starts. Each needs a journal row before it is performed."""
    return tuple(effect for effect in step.effects if isinstance(effect, RunTool))


def carries_nothing(step: TurnStep) -> bool:
    """Return True if `step` stores nothing but its state and has no effects."""
    return not (step.messages or step.results or step.decisions or step.rules or step.effects)


def mark_of(state: WorkflowState) -> RunMark:
    """Return the summary of a run that lists show."""
    phase = state.phase
    if isinstance(phase, RunFinished):
        return RunMark(workflow=state.spec.name, phase=phase.kind, step="", result=phase.result.value)
    return RunMark(workflow=state.spec.name, phase=phase.kind, step=state.spec.step(phase.step).name, result="")


def awaited_turn(state: WorkflowState) -> TurnId | None:
    """Return the turn that a run waits for, if any."""
    return state.phase.turn_id if isinstance(state.phase, RunningStep | CheckingGate) else None


def applies(review: ReviewStep | CancelRun, state: WorkflowState) -> bool:
    """Return True if a review or cancellation changes the run's state."""
    return advance_run(state, review).state is not state


def must_be_first(step: WorkflowStep, before: WorkflowState, posted: Iterable[ReviewStep | CancelRun]) -> None:
    """Raise AlreadyDecidedError if another input of the same kind was posted for the run first.

    `before` is the run before `step`. The process that posted the first one has reported that it counts.
    """
    for first in posted:
        if type(first) is type(step.word) and first != step.word and applies(first, before):
            raise AlreadyDecidedError(
                f"Run {before.session_id} was already reviewed or cancelled by {first.by}; the first one counts.",
                advice=f"To see its state: chatops workflow show {before.session_id}",
            )

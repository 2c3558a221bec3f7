"""Conversion of a finished turn into an input of the run."""

from chatops.domain.messages import ToolMessage
from chatops.domain.model import OTHER_MODEL_MAY_HELP, FailureKind
from chatops.domain.tools import Outcome
from chatops.engine.sequence import done_calls
from chatops.engine.state import Finished, TurnState
from chatops.engine.view import failure_of
from chatops.engine.workflow.inputs import TurnEndInput

NOT_OF_THE_STEP = OTHER_MODEL_MAY_HELP - {FailureKind.BROKEN_STREAM}
"""Failure kinds that concern the server and not the request."""


def turn_ended(state: TurnState) -> TurnEndInput | None:
    """Return the TurnEndInput for a turn of the run; None while the turn is not over."""
    phase = state.phase
    if not isinstance(phase, Finished):
        return None
    return TurnEndInput(
        turn_id=state.turn_id,
        status=phase.result,
        answer=phase.answer,
        detail=phase.detail,
        advice=phase.advice,
        rounds=state.counters.rounds,
        usage=state.usage,
        done=done_calls(state) if state.contract is not None else (),
        outcome=_outcome(state) if state.gate is not None else None,
        unanswered=kind if (kind := failure_of(state)) in NOT_OF_THE_STEP else None,
    )


def _outcome(state: TurnState) -> Outcome | None:
    results = [m.outcome for m in state.messages if isinstance(m, ToolMessage)]
    return results[-1] if results else None

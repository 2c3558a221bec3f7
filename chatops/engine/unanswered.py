"""Encoding of a model call without a reply in the `finish_reason` of its round."""

from chatops.domain.events import TurnStatus
from chatops.domain.model import OTHER_MODEL_MAY_HELP, FailureKind
from chatops.engine.state import Finished, TurnState

_ERROR = "error"

NOT_OF_THE_STEP = OTHER_MODEL_MAY_HELP - {FailureKind.BROKEN_STREAM}
"""Failure kinds that concern the server and not the request."""


def finish_reason(kind: FailureKind) -> str:
    """Return the finish reason of a round that got no reply."""
    return f"{_ERROR}:{kind.value}"


def said_by_server(finish_reason: str) -> str:
    """Return the finish reason of a round that got a reply, so that it never looks like a round without one."""
    return finish_reason if kind_of(finish_reason) is None else _ERROR


def failure_of(state: TurnState) -> FailureKind | None:
    """Return why the last model call of a failed turn gave no reply; None if it gave one or the reason is unknown."""
    phase = state.phase
    if not isinstance(phase, Finished) or phase.result not in (TurnStatus.FAILED, TurnStatus.LIMIT):
        return None
    return kind_of(state.rounds[-1].finish_reason) if state.rounds else None


def kind_of(finish_reason: str) -> FailureKind | None:
    """Return the failure kind in `finish_reason`; None for a round that got a reply."""
    head, _, kind = finish_reason.partition(":")
    return FailureKind(kind) if head == _ERROR and kind in set(FailureKind) else None

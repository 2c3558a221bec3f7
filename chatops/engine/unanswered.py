"""Why a turn ended without a reply of any model, as its last round keeps it."""

from chatops.domain.events import TurnStatus
from chatops.domain.model import OTHER_MODEL_MAY_HELP, FailureKind
from chatops.engine.state import Finished, TurnState

_ERROR = "error"

NOT_OF_THE_STEP = OTHER_MODEL_MAY_HELP - {FailureKind.BROKEN_STREAM}
"""Kinds that say something of a server, and nothing of what the model was asked."""


def finish_reason(kind: FailureKind) -> str:
    """How a round that got no reply says so."""
    return f"{_ERROR}:{kind.value}"


def said_by_server(finish_reason: str) -> str:
    """How a round that got a reply keeps what its server called the end: not as one that got none."""
    return finish_reason if kind_of(finish_reason) is None else _ERROR


def failure_of(state: TurnState) -> FailureKind | None:
    """Why the last model call of a turn that has failed gave no reply; None if it gave one, or this is not known."""
    phase = state.phase
    if not isinstance(phase, Finished) or phase.result not in (TurnStatus.FAILED, TurnStatus.LIMIT):
        return None
    return kind_of(state.rounds[-1].finish_reason) if state.rounds else None


def kind_of(finish_reason: str) -> FailureKind | None:
    """What `finish_reason` says of a round that got no reply; None for one that got one."""
    head, _, kind = finish_reason.partition(":")
    return FailureKind(kind) if head == _ERROR and kind in set(FailureKind) else None

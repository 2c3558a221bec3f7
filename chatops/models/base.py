"""The seam to a model: a request goes in, a stream of events comes out, the last of which ends it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from chatops.domain.model import ModelFailure, ModelReply, ModelRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPiece:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningPiece:
    """A piece of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """An attempt failed before its first token; the next one starts `delay_s` seconds after that.

    Told at once and then with each full second that is left.
    """

    reason: str
    attempt: int
    of: int
    delay_s: float
    left_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The server is silent or only sends keep-alive comments; `seconds` since the last data."""

    seconds: float
    alive: bool
    limit_s: float | None
    """So many seconds without data are the end; None: nothing was sent yet, other requests to the model come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something about the server the person should see once (another model answered, a field dropped)."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The complete reply; last event."""

    reply: ModelReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """There is no complete reply; last event."""

    failure: ModelFailure


ModelEvent = TextPiece | ReasoningPiece | Retrying | Waiting | Remark | Replied | Failed


class ModelClient(Protocol):
    """Talks to the models of a registry."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Ask `request.model`. Ends with exactly one Replied or Failed; raises only on cancellation.

        Cancelling the consuming task closes the connection.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...

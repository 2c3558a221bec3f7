"""The protocol of a model client: a request goes in, a stream of events comes out, and the last one ends it."""

from collections.abc import AsyncIterator
from typing import Protocol

from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import FailureKind, ModelFailure, ModelReply, ModelRequest


@frozen_dataclass
class TextChunk:
    """A piece of the answer."""

    text: str


@frozen_dataclass
class ReasoningChunk:
    """A piece of the model's reasoning."""

    text: str


@frozen_dataclass
class CallChunk:
    """A piece of a call, which is not shown before the call is complete."""

    characters: int
    tool: str = ""
    """The name of the tool as far as the model has written it; empty for a call in the text."""
    path: str = ""
    """The file that the call begins with, once its path is complete."""


@frozen_dataclass
class Retrying:
    """An attempt failed before its first token, and another one will start. Sent at once, and then once a second."""

    reason: str
    """Why the attempt failed."""
    attempt: int
    """Number of the next attempt, from 2, of `attempts`."""
    attempts: int
    delay_s: float
    """Seconds from the failure to the next attempt."""
    left_s: float
    """Seconds that are left of them."""


@frozen_dataclass
class Waiting:
    """The server is silent or only sends keep-alive comments."""

    seconds: float
    """Seconds since the last data."""
    alive: bool
    """True if something without content, such as a comment, has come since the last event."""
    limit_s: float | None
    """Seconds without data after which the request fails; None while it waits for other requests to the model."""
    loading: bool = False
    """True if the server had not loaded the model when it was asked."""


@frozen_dataclass
class ModelNotice:
    """Notice about the server, shown to the user once (another model answered, a field was dropped)."""

    text: str


@frozen_dataclass
class Replied:
    """The complete reply; the last event."""

    reply: ModelReply


@frozen_dataclass
class Failed:
    """There is no complete reply; the last event."""

    failure: ModelFailure

    @classmethod
    def configuration(cls, error: ConfigError) -> "Failed":
        """Return the event for a model that cannot be used as it is configured."""
        return cls(failure=ModelFailure(kind=FailureKind.CONFIGURATION, message=str(error), advice=error.advice))


class EngineError(Exception):
    """Raised if a program that runs a model (`models.cli`) gives no reply; `failure` says why."""

    def __init__(self, failure: ModelFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


ModelEvent = TextChunk | ReasoningChunk | CallChunk | Retrying | Waiting | ModelNotice | Replied | Failed


class ModelClient(Protocol):
    """Client for the models of a registry."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Ask `request.model`, and yield events until exactly one Replied or Failed, the last one.

        It raises nothing of its own. If the consuming task is cancelled, it closes the connection.
        """

    async def aclose(self) -> None:
        """Close all connections."""

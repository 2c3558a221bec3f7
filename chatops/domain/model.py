"""Model requests and replies, independent of any provider."""

from enum import StrEnum

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import Message, Usage
from chatops.domain.tools import RawCall, ToolSpec

CONTENT_FILTER = "content_filter"
"""The `finish_reason` of a reply that the provider's filter ended."""


class ToolChoice(StrEnum):
    """Permission for the model to call tools in its reply."""

    AUTO = "auto"
    NONE = "none"


ASSUMED_WINDOW = 32_768
"""Tokens. Beyond them, old tool results are left out for a model whose context window is unknown."""


@frozen_dataclass
class ModelTarget:
    """The properties of a registry model that a turn needs. Sizes in tokens."""

    name: str
    """Its key in the registry."""
    label: str = ""
    context_window: int | None = None
    """None if neither the registry nor the server states it."""
    max_output_tokens: int = 4_096
    endpoint: str = ""
    """Where requests go: host of the server, ``program NAME``, ``the demo``. Empty: not known."""
    engine: str = ""
    """Its type in the registry, such as ``openai``, for the decision log."""
    priced: bool = False
    """True if the price of its tokens is known."""
    sees_images: bool = True
    """False if images are only named to it, and not sent."""

    @property
    def effective_window(self) -> int:
        """The context window to keep requests within: if it is unknown, one that most models have."""
        return ASSUMED_WINDOW if self.context_window is None else self.context_window


@frozen_dataclass
class Sampling:
    """Parameters that a workflow step sets over the model's own; None keeps the model's own."""

    temperature: float | None = None
    max_output_tokens: int | None = None


@frozen_dataclass
class ModelRequest:
    """One model call: everything that the adapter needs except how to connect to the model."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice.AUTO
    sampling: Sampling = Sampling()


@frozen_dataclass
class ModelReply:
    """A complete reply.

    `finish_reason` is the provider's value. It does not decide on calls: a reply has calls if `calls` is not empty.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[RawCall, ...] = ()
    finish_reason: str = ""
    usage: Usage | None = None
    model_id: str = ""
    """The model that replied, according to the server."""


class FailureKind(StrEnum):
    """Reason for a missing or incomplete reply."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    RATE_LIMITED = "rate_limited"
    QUOTA = "quota"
    CONTEXT_TOO_LONG = "context_too_long"
    REFUSED = "refused"
    """The server does not accept the request as it is (400, 422, a redirect)."""
    SERVER_ERROR = "server_error"
    BROKEN_STREAM = "broken_stream"
    """Not an API stream, broken data, or cut off."""
    OUT_OF_TOKENS = "out_of_tokens"
    """The output limit was reached before there was an answer."""
    CONFIGURATION = "configuration"
    """Nothing was sent: no key, no such model in the registry."""
    INTERNAL = "internal"


OTHER_MODEL_MAY_HELP = frozenset(FailureKind) - {
    *(FailureKind.CONTEXT_TOO_LONG, FailureKind.REFUSED, FailureKind.OUT_OF_TOKENS, FailureKind.INTERNAL),
}
"""Kinds for which a backup model is worth trying: all but those that would affect it too."""


@frozen_dataclass
class ModelFailure:
    """A missing or incomplete reply: the reason in words for the user, and the next step."""

    kind: FailureKind
    message: str
    advice: str = ""
    partial_text: str = ""
    partial_reasoning: str = ""
    started: bool = False
    """True if a token had arrived, so that neither a retry nor another model may take over silently."""
    context_limit: int = 0
    """Context limit in tokens that the server reported; 0: none reported."""

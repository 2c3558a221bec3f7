"""What is asked of a model and what it answers, in no provider's spelling."""

from dataclasses import dataclass
from enum import StrEnum

from chatops.domain.messages import Message
from chatops.domain.tools import RawCall, ToolSpec
from chatops.domain.usage import Usage

CONTENT_FILTER = "content_filter"
"""The `finish_reason` of a reply that the provider's filter ended."""


class ToolChoice(StrEnum):
    """Whether the model may call tools in its reply."""

    AUTO = "auto"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTarget:
    """A model of the registry, as far as a turn has to know it. Sizes in tokens."""

    name: str
    """Its key in the registry."""
    label: str = ""
    context_window: int = 32_768
    max_output_tokens: int = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What a step of a workflow sets over the model's own parameters; None: as the model says."""

    temperature: float | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call: everything the adapter needs besides where the model lives."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice.AUTO
    sampling: Sampling = Sampling()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A complete reply. `finish_reason` is the provider's word; calls count by their presence."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[RawCall, ...] = ()
    finish_reason: str = ""
    usage: Usage | None = None
    model_id: str = ""
    """What the server says answered."""


class FailureKind(StrEnum):
    """Why there is no (complete) reply."""

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


OTHER_MODEL_MAY_HELP = frozenset(
    {
        FailureKind.UNREACHABLE,
        FailureKind.TIMEOUT,
        FailureKind.UNAUTHORIZED,
        FailureKind.NOT_FOUND,
        FailureKind.RATE_LIMITED,
        FailureKind.QUOTA,
        FailureKind.SERVER_ERROR,
        FailureKind.BROKEN_STREAM,
        FailureKind.CONFIGURATION,
    }
)
"""Kinds for which a backup model is worth trying; the others it would meet too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailure:
    """Why a reply did not come, in words for the person, with the next step."""

    kind: FailureKind
    message: str
    advice: str = ""
    partial_text: str = ""
    partial_reasoning: str = ""
    started: bool = False
    """A token had arrived, so neither retry nor another model may take over silently."""
    context_limit: int = 0
    """Tokens that the model takes, where the server has named its limit; 0: it has not."""

"""The state that a UI draws before it follows the events."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from chatops.domain.events import PendingCall, TurnStatus
from chatops.domain.ids import CallId, SessionId
from chatops.domain.messages import Message
from chatops.domain.rights import AccessLevel
from chatops.domain.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A session at one moment. `session_id` is empty until the first message is submitted."""

    session_id: SessionId
    title: str
    workspace: str
    role: str
    roles: tuple[str, ...]
    level: AccessLevel
    model: str
    model_label: str
    is_demo: bool
    persona: str
    """The persona that the user chose; empty: the role's."""
    messages: tuple[Message, ...]
    """All stored messages of the session, including those of the current turn and the results of its open round."""
    status: TurnStatus | None
    """Status of the last turn; None if there was none."""
    detail: str
    advice: str
    pending: tuple[PendingCall, ...]
    usage: Usage | None
    """Usage of all turns of the session."""
    context_used: int
    """Estimated tokens of the next request."""
    context_window: int
    queued: tuple[str, ...]
    """Messages to be sent after the current turn, oldest first."""
    notices: tuple[str, ...]
    queue_held: bool = False
    """True if the queue is held for the user: the last turn failed or was interrupted."""
    permitted: Mapping[CallId, str] = field(default_factory=dict)
    """Calls that may run but wait for earlier ones of their round, each with who or what allowed it."""
    concern: str = ""
    """Problem of the store that the user should see; empty if there is none."""
    registry: str = ""
    """Problem of the registry: its file is broken, or has changed and is not in force; else empty."""

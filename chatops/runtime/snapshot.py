"""What a face draws before it follows the events."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from chatops.domain.events import PendingCall, TurnStatus
from chatops.domain.ids import CallId, SessionId
from chatops.domain.messages import Message
from chatops.domain.rights import AccessLevel
from chatops.domain.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A conversation as it stands. `session_id` is empty until the first message is taken."""

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
    """The one that the person chose; empty: as the role says."""
    messages: tuple[Message, ...]
    """All that is stored of this conversation, this turn's messages and the results of its open round included."""
    status: TurnStatus | None
    """Of the last turn; None if there was none."""
    detail: str
    advice: str
    pending: tuple[PendingCall, ...]
    usage: Usage | None
    """Of all turns of this conversation."""
    context_used: int
    """Estimated tokens the next request holds."""
    context_window: int
    queued: tuple[str, ...]
    """Messages that are sent after the present turn, oldest first."""
    notices: tuple[str, ...]
    queue_held: bool = False
    """True if the queue waits for the user: the last turn failed or was interrupted."""
    permitted: Mapping[CallId, str] = field(default_factory=dict)
    """Calls that may run and wait for earlier ones of their round, each with who or what allowed it."""
    concern: str = ""
    """What is the matter with the store, for as long as the person should see it; empty if all is well."""
    registry: str = ""
    """What is the matter with the registry: its file is broken, or has changed and is not in force; else empty."""

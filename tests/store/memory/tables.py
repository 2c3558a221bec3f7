"""Tables in memory: frozen values, so that copies made before a transaction undo it if it fails."""

from dataclasses import dataclass, field
from threading import RLock

from chatops.domain.ids import CallId, MessageId, SessionId, TurnId
from chatops.domain.messages import Message
from chatops.engine.effects import TurnStep
from chatops.engine.inputs import DecideCall
from chatops.engine.workflow.inputs import CancelRun, ReviewStep
from chatops.engine.workflow.state import WorkflowState
from chatops.store.base import DecisionRow, JournalRow, LeaseRow, PendingCallRow, RuleRow, SessionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message with its place in the tree."""

    message: Message
    parent: MessageId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """The last step of a turn, and which store it came from."""

    step: TurnStep
    writer: object
    pruned: bool = False
    """True if only its result is left, because another turn followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as last committed, and which store it came from."""

    state: WorkflowState
    writer: object


@dataclass(slots=True, kw_only=True)
class Memory:
    """Tables that stores may share, as processes share a file."""

    sessions: dict[SessionId, SessionInfo] = field(default_factory=dict)
    activity: dict[SessionId, int] = field(default_factory=dict)
    turn_numbers: dict[SessionId, int] = field(default_factory=dict)
    messages: dict[MessageId, StoredMessage] = field(default_factory=dict)
    turns: dict[TurnId, StoredTurn] = field(default_factory=dict)
    runs: dict[SessionId, StoredRun] = field(default_factory=dict)
    words: list[tuple[SessionId, ReviewStep | CancelRun]] = field(default_factory=list)
    journal: dict[tuple[CallId, int], tuple[TurnId, JournalRow]] = field(default_factory=dict)
    pending: dict[CallId, PendingCallRow] = field(default_factory=dict)
    posted: dict[CallId, tuple[TurnId, DecideCall, float]] = field(default_factory=dict)
    decisions: list[DecisionRow] = field(default_factory=list)
    rules: dict[str, tuple[SessionId | None, RuleRow]] = field(default_factory=dict)
    rule_ids: list[str] = field(default_factory=list)
    texts: list[tuple[SessionId, str]] = field(default_factory=list)
    leases: dict[SessionId, LeaseRow] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    writes: dict[int, int] = field(default_factory=dict)
    lock: RLock = field(default_factory=RLock)

    def copy_from(self, other: "Memory") -> None:
        """Be what `other` was: how a transaction that failed is undone."""
        for name in _TABLES:
            setattr(self, name, getattr(other, name))

    def snapshot(self) -> "Memory":
        """The tables as they are now."""
        return Memory(**{name: getattr(self, name).copy() for name in _TABLES}, writes=self.writes, lock=self.lock)


_TABLES = (
    "sessions",
    "activity",
    "turn_numbers",
    "messages",
    "turns",
    "runs",
    "words",
    "journal",
    "pending",
    "posted",
    "decisions",
    "rules",
    "rule_ids",
    "texts",
    "leases",
    "settings",
)

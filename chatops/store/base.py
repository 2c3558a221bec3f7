"""Values of a session store, and what its parts have in common."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import parent_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from chatops.domain.decisions import Principal, Recorded, RememberedRule
    from chatops.domain.events import PendingCall
    from chatops.domain.ids import CallId, MessageId, SessionId, TurnId
    from chatops.domain.tools import AccessLevel, Outcome
    from chatops.store.connection import Connection

ALL = 1_000_000
"""A limit that no list reaches."""
IN_QUEUE = "queue:"
"""Beginning of `SessionInfo.workspace` of a session that workers drive, before the name of their workspace."""
CALLS = "calls"
"""Name for `Connection.listen`: a call of any session waits, waits no more, or was decided."""
SAVED = "Saving works again: this session is stored now."
"""Notice once `Store.save` has worked."""


@frozen_dataclass
class RunMark:
    """Progress of a session's workflow run, as a list shows it."""

    workflow: str
    phase: str
    """`kind` of the run's phase."""
    step: str
    """Name of the current step; empty when the run is over."""
    result: str
    """Value of RunResult when the run is over, else empty."""


@frozen_dataclass
class SessionInfo:
    """A session as a list shows it. Times are seconds since the epoch; the order never depends on them."""

    id: SessionId
    workspace: str
    title: str
    role: str
    model_pin: str
    """The model that the user pinned with /model, or empty."""
    persona: str
    head: MessageId | None
    forked_from: SessionId | None
    created_at: float
    updated_at: float
    messages: int
    """The user's messages and the model's replies with text."""
    active_turn: TurnId | None
    """The unfinished turn, if any."""
    last_turn: TurnId | None
    pending: int
    """Calls of the active turn that wait for a decision."""
    run: RunMark | None = None
    """None for a chat."""
    parent: SessionId | None = None
    """The session with the call that this one works for; None: it is the user's own."""

    @property
    def unfinished_run(self) -> RunMark | None:
        """The workflow run that the session is, unless it is over; None for a chat."""
        return self.run if self.run is not None and not self.run.result else None

    @property
    def queue(self) -> str:
        """The workspace of workers, which alone drive this session; empty: whoever opens it does."""
        return self.workspace.removeprefix(IN_QUEUE) if self.workspace.startswith(IN_QUEUE) else ""


@frozen_dataclass
class SearchHit:
    """A text of a session that contains what was searched for."""

    session: SessionInfo
    message_id: MessageId | None
    """None if it is the title."""
    text: str
    """The whole text."""


@frozen_dataclass
class DailyUsage:
    """The tokens and the cost of the replies of one model on one day."""

    day: str
    """In local time, such as ``2026-11-21``."""
    model: str
    tokens: int
    """Input and output."""
    cost: float | None
    """Of the replies with a known price; None if there is none."""
    unpriced: int
    """Number of replies without a known price."""


@frozen_dataclass
class JournalRow:
    """One attempt to run a call. `outcome` is None if it was started and nothing more is known."""

    call_id: CallId
    attempt: int
    tool: str
    arguments: str
    digest: str
    boot_id: str
    pid: int
    pid_started: str
    machine: str
    started_at: float
    outcome: Outcome | None
    result: str
    finished_at: float | None


@frozen_dataclass
class DecisionRow:
    """One entry of the decision log."""

    call_id: CallId
    session_id: SessionId
    tool: str
    digest: str
    decision: Recorded
    by: Principal
    decided_at: float
    role: str = ""
    """Role that the call was proposed under."""
    model: str = ""
    """Model that proposed the call."""


@frozen_dataclass
class AuditRow:
    """A row of the audit log, see `store.audit`."""

    session_id: str
    number: int
    body: str
    chain: str
    written_by: str = ""
    """Role of the team's database that wrote the row, as the database has recorded it; empty in a file."""


@frozen_dataclass
class PendingCallRow:
    """A pending call in the durable queue, with its session."""

    session_id: SessionId
    turn_id: TurnId
    pending: PendingCall
    requested_at: float
    decided: DecisionRow | None
    """The decision that was posted and not taken by the turn yet."""

    @property
    def session_to_continue(self) -> SessionId:
        """The session that the user continues after the decision: for a call of a child session, its caller's."""
        return parent_session(self.session_id) if self.pending.caller else self.session_id


@frozen_dataclass
class Decider:
    """What the store knows of who decides on a call."""

    level: AccessLevel | None
    """The highest level that the database lets its role have; None: it may nothing."""
    requester: str
    """The role for which the call's session asks; in a file its user, as ``uid 1000``."""
    groups: frozenset[str] | None
    """Those of the roles that the call's approvers name of which it is a member; None in a file."""


@frozen_dataclass
class RuleRow:
    """A remembered rule in force."""

    rule: RememberedRule
    made_at: float
    uses: int
    """Number of calls that started because the rule answered for them."""
    used_at: float | None


@frozen_dataclass
class Holder:
    """The process that owns a session."""

    host: str
    """Name of the host, for the user: two hosts may have one name, and one host may change its own."""
    pid: int
    boot_id: str
    """Boot id of the machine; after a slash the container, which has its own process ids."""
    pid_started: str
    machine: str = ""
    """Identity of the machine, the same after a restart; empty if it has none."""


@frozen_dataclass
class LeaseRow:
    """The lease of a session. Times are seconds since the epoch."""

    holder: Holder
    since: float
    expires_at: float
    """When the lease expires for other hosts, which cannot see if the holder is alive."""
    requested_by: Holder | None = None
    """The process that requests the session."""
    stop: bool = False
    """True if the user asks the holder to stop the turn."""
    token: str = ""
    """Random for each time that the lease was acquired; empty while it is only reserved for the holder."""


@frozen_dataclass
class JobRow:
    """A turn that continues in the background. The row counts while the turn is the last one of its session."""

    session: SessionInfo
    turn_id: TurnId
    options: str
    """The options of the command line as JSON; never keys or the environment."""
    uid: int
    """The user that it was started by."""
    host: str
    boot_id: str
    folder: str
    """Device and inode of the workspace when it was started, such as ``65024:131``."""
    level: int
    """Value of the SandboxLevel that commands had when it was started."""
    not_started: str = ""
    """Reason why the program that decided its call did not start it, as `wiring.jobs` writes it; empty if not known."""
    seen: bool = False
    """True if the user was told how it ended."""
    created_at: float = 0.0


class StorePart:
    """The methods of `Store` about one topic.

    Each is one transaction, durable when it returns. They raise StoreError and its subclasses only.
    """

    _rows: Connection
    _clock: Callable[[], float]
    """Returns seconds since the epoch."""
    _process: Callable[[], Holder]
    _alive: Callable[[Holder], bool]
    surface: str
    """The UI of this process as in `Principal.via`, for the audit log; empty: not known."""
    _writer: str
    """Names this store among all that have the same file open."""


class Late:
    """A module that is imported when it is first used.

    Reading a list of sessions takes a few milliseconds. The codec and the turn's values take a hundred times as long to
    import.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = import_module(self._name)
        return getattr(self._module, name)

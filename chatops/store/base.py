"""Interface of a session store. It is synchronous: the runtime calls it in a worker thread.

The tests behind `tests/store/conformance.py` specify each method. They assume nothing about SQLite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chatops.domain.decisions import Principal, Recorded, RememberedRule
    from chatops.domain.events import PendingCall
    from chatops.domain.ids import CallId, MessageId, SessionId, TurnId
    from chatops.domain.messages import Message
    from chatops.domain.tools import Outcome
    from chatops.domain.usage import Usage
    from chatops.engine.effects import ComposerDraft, TurnStep
    from chatops.engine.inputs import DecideCall
    from chatops.engine.state import TurnState
    from chatops.engine.workflow.effects import WorkflowStep
    from chatops.engine.workflow.inputs import CancelRun, ReviewStep
    from chatops.engine.workflow.state import WorkflowState

ALL = 1_000_000
"""A limit that no list reaches."""
SAVED = "Saving works again: this session is stored now."
"""Notice once `Store.save` has worked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMark:
    """Progress of a session's workflow run, as a list shows it."""

    workflow: str
    phase: str
    """`kind` of the run's phase."""
    step: str
    """Name of the current step; empty when the run is over."""
    result: str
    """Value of RunResult when the run is over, else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A text of a session that contains what was searched for."""

    session: SessionInfo
    message_id: MessageId | None
    """None if it is the title."""
    text: str
    """The whole text."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    started_at: float
    outcome: Outcome | None
    result: str
    finished_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCallRow:
    """A pending call in the durable queue, with its session."""

    session_id: SessionId
    turn_id: TurnId
    pending: PendingCall
    requested_at: float
    decided: DecisionRow | None
    """The decision that was posted and not taken by the turn yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """A remembered rule in force."""

    rule: RememberedRule
    made_at: float
    uses: int
    """Number of calls that started because the rule answered for them."""
    used_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that owns a session."""

    host: str
    pid: int
    boot_id: str
    """Boot id of the machine; after a slash the container, which has its own process ids."""
    pid_started: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """The lease of a session. Times are seconds since the epoch."""

    holder: Holder
    since: float
    expires_at: float
    """When the lease expires for other hosts, which cannot see if the holder is alive."""
    requested_by: Holder | None = None
    """The process that requests the session."""
    acknowledged: bool = False
    """True if the holder knows of the request and will hand over when it can."""


class Store(Protocol):
    """A session store. Each method is one transaction, durable when it returns.

    Raises StoreError and its subclasses only.
    """

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices for the user, one sentence each. More may come while the store is open."""

    @property
    def unsaved(self) -> str:
        """Reason that nothing stored here outlives this process; empty if it does.

        While it is set, calls are not approved: no decision without a record of it.
        """

    # sessions
    def create_session(
        self, *, workspace: str, role: str, persona: str, title: str = "", messages: Sequence[Message] = ()
    ) -> SessionInfo:
        """Create a session with a new id, and with these messages, whose ids must be new too."""

    def session(self, session_id: SessionId) -> SessionInfo:
        """Return a session by its id or a unique prefix of it. Raises NoSuchSessionError."""

    def sessions(self, *, workspace: str | None = None, limit: int = 200) -> list[SessionInfo]:
        """Return sessions by newest activity (by sequence), of one workspace or of all.

        Sessions without messages are left out: a process may have died between creating one and its first turn.
        """

    def search(self, text: str, *, workspace: str | None = None, limit: int = 200) -> list[SearchHit]:
        """Return where messages and titles contain `text`, whatever the case: newest first, titles last.

        A message of several sessions is a hit in each of them. May take a while: call it in a thread.
        """

    def update_session(
        self,
        session_id: SessionId,
        *,
        role: str | None = None,
        model_pin: str | None = None,
        persona: str | None = None,
        title: str | None = None,
    ) -> None:
        """Change the given settings."""

    def delete_session(self, session_id: SessionId) -> None:
        """Delete a session and all that only it has, in the backup too. Its decisions stay in the log.

        Raises SessionHeldError if it is open in another process.
        """

    def fork_session(
        self,
        session_id: SessionId,
        *,
        before: MessageId | None = None,
        workspace: str = "",
        begin: Callable[[SessionInfo], TurnStep] | None = None,
    ) -> SessionInfo:
        """Create a session that shares the history, or that before a message. Its rules are not copied.

        The copy belongs to `workspace`; empty: to the one of the original.

        `begin` makes the first step of a turn in it, which is stored with it.
        """

    def append_message(self, session_id: SessionId, message: Message) -> None:
        """Add a message outside of any turn (the divider of a role switch) and move the head."""

    def history(self, session_id: SessionId, *, last: int | None = None) -> tuple[Message, ...]:
        """Return the messages up to the head, oldest first. A damaged one becomes a NoticeMessage.

        `last` limits them to that many of the newest ones.
        """

    def next_turn_id(self, session_id: SessionId) -> TurnId:
        """Return the id for the next turn: ``<session>.<n>``, never used before."""

    # turns
    def commit(self, step: TurnStep) -> None:
        """Store a step in one transaction.

        That is its state, messages, intents, results, decisions, rules and pending calls, and the session's head. The
        first commit of a turn has seq 0. Committing the very same step again is recognised and has no effect.

        Raises ConflictError if `seq` does not follow the stored one, if another process holds the session's lease, or
        for a second intent of the same (call, attempt), which rules out a second run. Raises AlreadyDecidedError, and
        stores nothing, for a decision on a call that another decision was posted for first, unless it denies what that
        one approved.
        """

    def load_turn(self, turn_id: TurnId) -> TurnState:
        """Return the turn as last committed, with message bodies. Raises UnreadableError."""

    def unfinished_turns(self) -> list[TurnId]:
        """Return the unfinished turns of all sessions, also of those without messages."""

    def usage(self, session_id: SessionId, *, besides: TurnId | None = None) -> Usage | None:
        """Return the usage of all turns of a session except `besides`; None if no server reported any.

        A fork starts without usage. A turn that cannot be read counts as none.
        """

    # runs of workflows
    def commit_run(self, step: WorkflowStep) -> None:
        """Store a run's step: its state, without the posted inputs that no longer apply.

        The first one has seq 0 and makes the session a run. Until the run is over, only the turn that the run waits for
        may start in its session, even if it does not start at the head.

        Raises ConflictError as `commit` does. Raises AlreadyDecidedError for an input (`WorkflowStep.word`) if another
        one of its kind was posted for the run first.
        """

    def load_run(self, session_id: SessionId) -> WorkflowState:
        """Return the run as last committed.

        Raises NoSuchSessionError for a session that is not a run, and UnreadableError.
        """

    def runs(self, *, workspace: str | None = None, limit: int = 200) -> list[SessionInfo]:
        """Return the sessions that are runs, by newest activity."""

    def post_review(self, session_id: SessionId, review: ReviewStep | CancelRun) -> bool:
        """Post a review or a cancellation for the owner of the run.

        Returns False if it does not apply to the run as stored, or another one of its kind was first. Raises
        NoSuchSessionError.
        """

    def posted_reviews(self, session_id: SessionId) -> list[ReviewStep | CancelRun]:
        """Return the inputs posted for a run and not consumed by a commit yet, oldest first."""

    # the queue of pending calls, and decisions posted by other processes
    def pending_calls(self, *, session_id: SessionId | None = None) -> list[PendingCallRow]:
        """Return all pending calls, oldest turn first, those of a turn in call order."""

    def post_decision(self, decided: DecideCall) -> bool:
        """Post a decision for the turn. Returns False if another one was first or the call is not pending."""

    def posted_decisions(self, turn_id: TurnId) -> list[DecideCall]:
        """Return the decisions posted for a turn and not consumed by a commit yet.

        A commit consumes a decision if its step holds a DecisionRecord for the call or settles the call.
        """

    def data_version(self) -> int:
        """Return a number that changes when another connection has written: a cheap hint for polling."""

    # remembered rules, journal, log
    def rules(
        self, *, session_id: SessionId | None = None, uid: int | None = None, tool: str | None = None
    ) -> list[RuleRow]:
        """Return the remembered rules in force, for all roles, oldest first.

        With `session_id`, rules of scope *session* that belong to another session are left out; with `uid`, rules that
        another user made; with `tool`, rules about other tools.
        """

    def revoke_rule(self, rule_id: str) -> bool:
        """Revoke a rule. Returns False if no rule in force has this id."""

    def journal(self, turn_id: TurnId) -> list[JournalRow]:
        """Return all attempts of a turn, in order."""

    def decisions(self, *, session_id: SessionId | None = None, limit: int = 1000) -> list[DecisionRow]:
        """Return the decision log, oldest first."""

    # queued text, drafts
    def queue_message(self, session_id: SessionId, text: str, *, draft: ComposerDraft | None = None) -> None:
        """Queue a message that the user sent during a turn, and store the draft that it leaves."""

    def queued_messages(self, session_id: SessionId) -> tuple[str, ...]:
        """Return the queued messages, oldest first.

        The commit that starts a turn with the oldest one removes it (`TurnStep.takes_queued`), so that it is sent
        exactly once.
        """

    def remove_queued_message(self, session_id: SessionId, text: str, *, later: int) -> bool:
        """Remove the queued message `text` that has `later` newer ones. Returns False if it is not there any more."""

    def take_queued_message(self, session_id: SessionId, *, into: str) -> str | None:
        """Remove the newest queued message and return it, storing it as setting `into` in the same transaction.

        Returns None, and changes nothing, if the queue is empty. Raises NoSuchSessionError.
        """

    # session leases
    def acquire_lease(self, session_id: SessionId, holder: Holder, *, ttl_s: float = 30.0) -> None:
        """Take or renew the lease of a session.

        Raises SessionHeldError while a live process of this host holds it, or a process of another host whose lease has
        not expired.
        """

    def renew_lease(self, session_id: SessionId, holder: Holder, *, ttl_s: float = 30.0) -> None:
        """Renew the lease if this holder still has it.

        A lost lease is never taken again by this: another process may have owned the session, changed it and left.
        """

    def lease(self, session_id: SessionId) -> LeaseRow | None:
        """Return the lease of a session; None if no live process holds it. Raises NoSuchSessionError."""

    def request_lease(self, session_id: SessionId, asker: Holder) -> None:
        """Ask the holder to hand the session over. This replaces an earlier request, whose process can see that."""

    def withdraw_request(self, session_id: SessionId, asker: Holder) -> None:
        """Withdraw the request of `asker`. A later request of another process stays."""

    def acknowledge_request(self, session_id: SessionId, holder: Holder) -> None:
        """Confirm that the holder knows of the request. Has no effect if it holds nothing."""

    def seize_lease(self, session_id: SessionId, holder: Holder, *, of: Holder, ttl_s: float = 30.0) -> None:
        """Seize the lease from `of` even if it is alive.

        From now on, whatever that process commits in the session is a ConflictError, so it starts nothing more. Raises
        SessionHeldError if a third process has the lease by now.
        """

    def release_lease(self, session_id: SessionId, holder: Holder) -> None:
        """Release the lease. Has no effect if another process holds it."""

    # application settings: last role per workspace, chosen default model, remembered endpoint quirks
    def setting(self, key: str) -> str | None:
        """Return a stored setting, or None."""

    def set_setting(self, key: str, value: str) -> None:
        """Store a setting."""

    def problems(self) -> list[str]:
        """Return the problems of the store for doctor, if any."""

    def save(self) -> None:
        """Store what only this process has because the file could not be written. Then `unsaved` is empty.

        Has no effect in a store that is saved, or that lost its file. Raises StoreError if it is still not possible.
        """

    def close(self) -> None:
        """Close the store. Idempotent."""

"""What a store must do, for one machine now and for several later. Synchronous: the runtime calls it in a thread.

The suite behind `tests/store/conformance.py` says in tests what each method promises; it assumes nothing of SQLite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from chatops.domain.decisions import Decision, Principal, RememberedGrant
from chatops.domain.events import PendingCall
from chatops.domain.ids import CallId, MessageId, SessionId, TurnId
from chatops.domain.messages import Message
from chatops.domain.tools import Outcome
from chatops.domain.usage import Usage
from chatops.engine.effects import Step
from chatops.engine.inputs import CallDecided
from chatops.engine.state import TurnState
from chatops.engine.workflow.effects import WorkflowStep
from chatops.engine.workflow.inputs import Reviewed, RunCancelled
from chatops.engine.workflow.state import WorkflowState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMark:
    """That a session is a run of a workflow, and how far it is, as a list shows it."""

    workflow: str
    phase: str
    """The `kind` of the run's phase."""
    step: str
    """Name of the step it is at; empty when it is over."""
    result: str
    """The value of RunResult when it is over, else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A conversation as a list shows it. Times are seconds since the epoch; order never depends on them."""

    id: SessionId
    workspace: str
    title: str
    role: str
    model_pin: str
    """The model the person pinned with /model, or empty."""
    persona: str
    head: MessageId | None
    forked_from: SessionId | None
    created_at: float
    updated_at: float
    messages: int
    active_turn: TurnId | None
    """The turn that is not finished, if any."""
    last_turn: TurnId | None
    pending: int
    """Calls of the active turn that wait for a person."""
    run: RunMark | None = None
    """None: a chat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRow:
    """One attempt to run a call. `outcome` None: started, and nothing more is known."""

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
    decision: Decision
    by: Principal
    decided_at: float
    role: str = ""
    """Who asked for the call: the role it was proposed under."""
    model: str = ""
    """The model that proposed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedCall:
    """A pending call in the durable queue, with the session it belongs to."""

    session_id: SessionId
    turn_id: TurnId
    pending: PendingCall
    requested_at: float
    decided: DecisionRow | None
    """Posted by some door and not yet taken by the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that drives a session."""

    host: str
    pid: int
    boot_id: str
    """The machine's boot; behind a slash the container, where process ids are counted anew."""
    pid_started: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """That a process drives a session. Times are seconds since the epoch."""

    holder: Holder
    since: float
    expires_at: float
    """Until when other hosts, which cannot look whether it lives, have to believe it."""
    wanted_by: Holder | None = None
    """Who asks for the session."""
    heard: bool = False
    """The holder knows that it is asked, and hands over when it can."""


class Store(Protocol):
    """One transaction per method; what returned is durable. Raises StoreError and its kinds only."""

    @property
    def notices(self) -> tuple[str, ...]:
        """What the person has to know about it, one sentence each; more may come while it is open."""
        ...

    @property
    def unsaved(self) -> str:
        """Why nothing of what is stored here outlives this process; empty if it does. What asks for approval is not
        approved then: no decision without a record of it."""
        ...

    # sessions
    def create_session(self, *, workspace: str, role: str, persona: str, title: str = "") -> SessionInfo:
        """A new conversation with an id of its own."""
        ...

    def session(self, session_id: SessionId) -> SessionInfo:
        """Raises NoSuchSession; a unique prefix of an id is enough."""
        ...

    def sessions(self, *, workspace: str | None = None, limit: int = 200) -> list[SessionInfo]:
        """Newest activity first (by sequence), of one workspace or of all. A session in which nothing was ever said
        is none yet: a process may have died between making it and its first turn."""
        ...

    def update_session(
        self,
        session_id: SessionId,
        *,
        role: str | None = None,
        model_pin: str | None = None,
        persona: str | None = None,
        title: str | None = None,
    ) -> None:
        """Change what is given."""
        ...

    def delete_session(self, session_id: SessionId) -> None:
        """Remove a conversation with all that belongs to it alone; decisions stay in the log."""
        ...

    def fork_session(self, session_id: SessionId, *, at: MessageId | None = None) -> SessionInfo:
        """A new conversation that shares the history up to `at` (default: the head). Grants are not copied."""
        ...

    def append_message(self, session_id: SessionId, message: Message) -> None:
        """Add a message outside of any turn (a role switch's divider) and move the head."""
        ...

    def history(self, session_id: SessionId) -> tuple[Message, ...]:
        """All messages up to the head, oldest first; a damaged one becomes a NoticeMessage."""
        ...

    def next_turn_id(self, session_id: SessionId) -> TurnId:
        """The id for the next turn: ``<session>.<n>``, never used before."""
        ...

    # turns
    def commit(self, step: Step) -> None:
        """Store a step: state, messages, intents, results, decisions, grants, pending calls, head; in one
        transaction. The first commit of a turn has seq 0. Raises Conflict if `seq` does not follow the
        stored one; committing the very same step again is recognised and harmless. A second intent for
        the same (call, attempt) is a Conflict: this is what forbids a second run. So is every step while
        another process holds the session. Raises AlreadyDecided, and stores nothing, for a decision on what
        another one was posted for first.
        """
        ...

    def load_turn(self, turn_id: TurnId) -> TurnState:
        """The state as last committed, with message bodies. Raises Unreadable."""
        ...

    def usage(self, session_id: SessionId, *, besides: TurnId | None = None) -> Usage | None:
        """What all turns of a conversation have cost, but for `besides`; None if no server has said. A fork begins
        with nothing; a turn that cannot be read counts for nothing."""
        ...

    # runs of workflows
    def commit_run(self, step: WorkflowStep) -> None:
        """Store a run's step: its state, and that the words left for it which no longer apply are gone. The
        first one has seq 0 and makes a session a run. Raises Conflict as `commit` does, and AlreadyDecided for a
        word (`WorkflowStep.word`) if another one of its kind was left for the run first. From then on only the
        turn that the run waits for may begin in its session, also if it does not begin at the head, until the run
        is over.
        """
        ...

    def load_run(self, session_id: SessionId) -> WorkflowState:
        """The run as last committed. Raises NoSuchSession for a session that is no run, and Unreadable."""
        ...

    def runs(self, *, workspace: str | None = None, limit: int = 200) -> list[SessionInfo]:
        """The sessions that are runs, newest activity first."""
        ...

    def post_word(self, session_id: SessionId, word: Reviewed | RunCancelled) -> bool:
        """Leave a review or the end for whoever drives the run. False if it does not apply to the run as it is
        stored, or another word of its kind was first. Raises NoSuchSession."""
        ...

    def posted_words(self, session_id: SessionId) -> list[Reviewed | RunCancelled]:
        """Words left for a run and not yet consumed by a commit, oldest first."""
        ...

    # the queue of pending calls and its many doors
    def queue(self, *, session_id: SessionId | None = None) -> list[QueuedCall]:
        """All pending calls, oldest turn first, those of a turn in call order."""
        ...

    def post_decision(self, decided: CallDecided) -> bool:
        """Leave a decision for the turn to take. False if another one was first (or nothing is pending)."""
        ...

    def posted(self, turn_id: TurnId) -> list[CallDecided]:
        """Decisions left for a turn and not yet consumed by a commit (a commit whose step holds a
        DecisionRecord for the call, or that settles it, consumes them)."""
        ...

    def version(self) -> int:
        """A number that changes when another connection wrote: a cheap hint for polling."""
        ...

    # grants, journal, log
    def grants(self, session_id: SessionId) -> tuple[RememberedGrant, ...]:
        """Remembered grants of a session, all roles, revoked ones left out."""
        ...

    def revoke_grants(self, session_id: SessionId, grants: Sequence[RememberedGrant]) -> int:
        """Take grants back; returns how many."""
        ...

    def journal(self, turn_id: TurnId) -> list[JournalRow]:
        """All attempts of a turn, in order."""
        ...

    def decisions(self, *, session_id: SessionId | None = None, limit: int = 1000) -> list[DecisionRow]:
        """The decision log, oldest first."""
        ...

    # queued text, drafts
    def queue_text(self, session_id: SessionId, text: str) -> None:
        """Keep what the person typed while the turn could not take it."""
        ...

    def kept_texts(self, session_id: SessionId) -> tuple[str, ...]:
        """The kept texts, oldest first. The commit that begins a turn with the oldest one forgets it
        (`Step.takes_kept`), so that it is sent exactly once."""
        ...

    def take_queued_text(self, session_id: SessionId, *, into: str) -> str | None:
        """Remove the newest kept text and return it; the same transaction stores it as setting `into`. None, and no
        change, if nothing is kept. Raises NoSuchSession."""
        ...

    # who drives a session
    def hold(self, session_id: SessionId, holder: Holder, *, ttl_s: float = 30.0) -> None:
        """Take or renew the lease on a session. Raises SessionHeld while a live process of this host, or any
        process of another host whose lease has not run out, holds it."""
        ...

    def renew(self, session_id: SessionId, holder: Holder, *, ttl_s: float = 30.0) -> None:
        """Renew the lease if it still is this holder's. One that is not is never taken again by this: whoever had the
        session meanwhile may have gone on with it and left."""
        ...

    def held(self, session_id: SessionId) -> Hold | None:
        """Who drives a session; None if nobody who is still there does. Raises NoSuchSession."""
        ...

    def want(self, session_id: SessionId, asker: Holder) -> None:
        """Ask whoever holds the session to hand it over. Who asked before does so no more, and can see that."""
        ...

    def want_no_more(self, session_id: SessionId, asker: Holder) -> None:
        """Take back what `asker` has asked for; what another one has asked for since stays."""
        ...

    def heard(self, session_id: SessionId, holder: Holder) -> None:
        """The holder's word that it knows of the request; harmless if it holds nothing."""
        ...

    def take_over(self, session_id: SessionId, holder: Holder, *, of: Holder, ttl_s: float = 30.0) -> None:
        """Take the lease from `of` although it lives: whatever that process would store in the session from now
        on is a Conflict, so that it begins nothing further. Raises SessionHeld if by now another one has it."""
        ...

    def release(self, session_id: SessionId, holder: Holder) -> None:
        """Give the lease back; harmless if it is not ours."""
        ...

    # values of the app: last role per workspace, chosen default model, remembered endpoint quirks
    def setting(self, key: str) -> str | None:
        """A stored value."""
        ...

    def set_setting(self, key: str, value: str) -> None:
        """Store a value."""
        ...

    def check(self) -> list[str]:
        """What is wrong with the store, for doctor; empty if nothing."""
        ...

    def close(self) -> None:
        """Close; idempotent."""
        ...

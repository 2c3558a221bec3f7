"""A store in memory, for tests: the same promises as the one on disk, minus surviving the process.

Values are frozen, so they are kept as they are. Several stores may share one `Memory`, as several
processes share a file.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock

from chatops.domain.decisions import RememberedGrant
from chatops.domain.errors import Conflict, NoSuchSession, SessionHeld, StoreError, Unreadable
from chatops.domain.events import PendingCall
from chatops.domain.ids import CallId, MessageId, SessionId, TurnId
from chatops.domain.messages import Message
from chatops.domain.tools import Outcome
from chatops.engine.effects import AttemptResult, DecisionRecord, RunTool, Step
from chatops.engine.inputs import CallDecided
from chatops.engine.state import Finished, TurnState
from chatops.engine.view import pending_calls
from chatops.engine.workflow.effects import WorkflowStep
from chatops.engine.workflow.inputs import Reviewed, RunCancelled
from chatops.engine.workflow.state import RunFinished, WorkflowState
from chatops.store.base import DecisionRow, Hold, Holder, JournalRow, QueuedCall, SessionInfo
from chatops.store.derive import (
    ambiguous,
    applies,
    carries_nothing,
    in_call_order,
    intents,
    keeps_out,
    mark_of,
    may_take,
    new_session_id,
    open_calls,
    taken_over,
    title_from,
    turn_of,
)
from chatops.store.process import is_alive, this_process


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A message with its place in the tree."""

    message: Message
    parent: MessageId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    step: Step
    writer: object


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    state: WorkflowState
    writer: object


@dataclass(slots=True, kw_only=True)
class Memory:
    """What stores share: the tables."""

    sessions: dict[SessionId, SessionInfo] = field(default_factory=dict)
    activity: dict[SessionId, int] = field(default_factory=dict)
    turn_numbers: dict[SessionId, int] = field(default_factory=dict)
    messages: dict[MessageId, _Stored] = field(default_factory=dict)
    turns: dict[TurnId, _Turn] = field(default_factory=dict)
    runs: dict[SessionId, _Run] = field(default_factory=dict)
    words: list[tuple[SessionId, Reviewed | RunCancelled]] = field(default_factory=list)
    journal: dict[tuple[CallId, int], tuple[TurnId, JournalRow]] = field(default_factory=dict)
    pending: dict[CallId, QueuedCall] = field(default_factory=dict)
    posted: dict[CallId, tuple[TurnId, CallDecided, float]] = field(default_factory=dict)
    decisions: list[DecisionRow] = field(default_factory=list)
    grants: list[tuple[SessionId, RememberedGrant]] = field(default_factory=list)
    texts: list[tuple[SessionId, str]] = field(default_factory=list)
    leases: dict[SessionId, Hold] = field(default_factory=dict)
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
    "grants",
    "texts",
    "leases",
    "settings",
)


class MemoryStore:
    """Implements `Store` over a `Memory`."""

    def __init__(
        self,
        *,
        memory: Memory | None = None,
        clock: Callable[[], float] = time.time,
        process: Callable[[], Holder] = this_process,
        alive: Callable[[Holder], bool] = is_alive,
        new_id: Callable[[float], SessionId] = new_session_id,
    ) -> None:
        self._memory = Memory() if memory is None else memory
        self._clock = clock
        self._process = process
        self._alive = alive
        self._new_id = new_id
        self._closed = False

    @property
    def notices(self) -> tuple[str, ...]:
        """Nothing goes wrong with memory."""
        return ()

    @property
    def unsaved(self) -> str:
        """A test's process is all that there is, and this outlives its sessions."""
        return ""

    # sessions
    def create_session(self, *, workspace: str, role: str, persona: str, title: str = "") -> SessionInfo:
        """See `Store.create_session`."""
        with self._write() as memory:
            now = self._clock()
            session_id = self._free_id(now)
            memory.sessions[session_id] = SessionInfo(
                id=session_id,
                workspace=workspace,
                title=title,
                role=role,
                model_pin="",
                persona=persona,
                head=None,
                forked_from=None,
                created_at=now,
                updated_at=now,
                messages=0,
                active_turn=None,
                last_turn=None,
                pending=0,
            )
            self._touch(session_id)
            return memory.sessions[session_id]

    def session(self, session_id: SessionId) -> SessionInfo:
        """See `Store.session`."""
        with self._read() as memory:
            found = memory.sessions[self._full_id(session_id)]
            waiting = [row for row in memory.pending.values() if row.turn_id == found.active_turn]
            run = memory.runs.get(found.id)
            return replace(found, pending=len(waiting), run=None if run is None else mark_of(run.state))

    def sessions(self, *, workspace: str | None = None, limit: int = 200) -> list[SessionInfo]:
        """See `Store.sessions`."""
        with self._read() as memory:
            newest_first = sorted(memory.sessions, key=lambda session_id: -memory.activity[session_id])
            infos = (self.session(session_id) for session_id in newest_first if self._begun(session_id))
            return [info for info in infos if workspace is None or info.workspace == workspace][:limit]

    def _begun(self, session_id: SessionId) -> bool:
        return session_id in self._memory.runs or self._memory.sessions[session_id].head is not None

    def update_session(
        self,
        session_id: SessionId,
        *,
        role: str | None = None,
        model_pin: str | None = None,
        persona: str | None = None,
        title: str | None = None,
    ) -> None:
        """See `Store.update_session`."""
        with self._write() as memory:
            full = self._full_id(session_id)
            before = memory.sessions[full]
            memory.sessions[full] = replace(
                before,
                role=before.role if role is None else role,
                model_pin=before.model_pin if model_pin is None else model_pin,
                persona=before.persona if persona is None else persona,
                title=before.title if title is None else title,
            )

    def delete_session(self, session_id: SessionId) -> None:
        """See `Store.delete_session`."""
        with self._write() as memory:
            full = self._full_id(session_id)
            for turn_id in [id_ for id_, turn in memory.turns.items() if turn.step.state.session_id == full]:
                del memory.turns[turn_id]
                memory.journal = {key: row for key, row in memory.journal.items() if row[0] != turn_id}
                memory.pending = {key: row for key, row in memory.pending.items() if row.turn_id != turn_id}
                memory.posted = {key: row for key, row in memory.posted.items() if row[0] != turn_id}
            memory.grants = [row for row in memory.grants if row[0] != full]
            memory.texts = [row for row in memory.texts if row[0] != full]
            memory.runs.pop(full, None)
            memory.words = [row for row in memory.words if row[0] != full]
            memory.leases.pop(full, None)
            del memory.sessions[full], memory.activity[full]
            memory.turn_numbers.pop(full, None)
            kept = {id_ for info in memory.sessions.values() for id_ in self._path(info.head)}
            memory.messages = {id_: row for id_, row in memory.messages.items() if id_ in kept}

    def fork_session(self, session_id: SessionId, *, at: MessageId | None = None) -> SessionInfo:
        """See `Store.fork_session`."""
        with self._write() as memory:
            source = memory.sessions[self._full_id(session_id)]
            point = source.head if at is None else at
            if point is not None and point not in self._path(source.head):
                raise StoreError(f"There is no message {point!r} in session {source.id}.", advice="Fork at its own.")
            made = self.create_session(
                workspace=source.workspace, role=source.role, persona=source.persona, title=source.title
            )
            memory.sessions[made.id] = replace(
                made,
                model_pin=source.model_pin,
                head=point,
                forked_from=source.id,
                messages=len(self._path(point)),
            )
            return memory.sessions[made.id]

    def append_message(self, session_id: SessionId, message: Message) -> None:
        """See `Store.append_message`."""
        with self._write():
            full = self._full_id(session_id)
            self._must_not_be_taken(full)
            self._append(full, [message], now=self._clock())

    def history(self, session_id: SessionId) -> tuple[Message, ...]:
        """See `Store.history`."""
        with self._read() as memory:
            return self._chain(memory.sessions[self._full_id(session_id)].head)

    def next_turn_id(self, session_id: SessionId) -> TurnId:
        """See `Store.next_turn_id`."""
        with self._write() as memory:
            full = self._full_id(session_id)
            number = memory.turn_numbers.get(full, 0) + 1
            while TurnId(f"{full}.{number}") in memory.turns:
                number += 1
            memory.turn_numbers[full] = number
            return TurnId(f"{full}.{number}")

    # turns
    def commit(self, step: Step) -> None:
        """See `Store.commit`."""
        with self._write() as memory:
            state, now = step.state, self._clock()
            self._must_not_be_taken(state.session_id)
            session = memory.sessions.get(state.session_id)
            if session is None:
                raise NoSuchSession(f"There is no session {state.session_id}.", advice="It was deleted.")
            stored = memory.turns.get(state.turn_id)
            if stored is not None and self._repeats(step, stored):
                return
            _must_follow(state, stored, session)
            if stored is None:
                self._may_begin(state, session)
            self._append(state.session_id, step.messages, now=now)
            if any(message.id not in memory.messages for message in state.messages):
                raise StoreError(f"Turn {state.turn_id} names messages that were never stored.")
            memory.turns[state.turn_id] = _Turn(step=step, writer=self)
            for result in step.results:
                self._close_attempt(result, now=now)
            for run in intents(step):
                self._put_intent(run, state.turn_id, now=now)
            for grant in step.grants:
                if (state.session_id, grant) not in memory.grants:
                    memory.grants.append((state.session_id, grant))
            if step.takes_kept and (kept := [row for row in memory.texts if row[0] == state.session_id]):
                memory.texts.remove(kept[0])
            self._follow(step, now=now)
            memory.sessions[state.session_id] = replace(
                memory.sessions[state.session_id],
                active_turn=None if isinstance(state.phase, Finished) else state.turn_id,
                last_turn=state.turn_id,
                updated_at=now,
            )
            self._touch(state.session_id)

    def load_turn(self, turn_id: TurnId) -> TurnState:
        """See `Store.load_turn`."""
        with self._read() as memory:
            if turn_id not in memory.turns:
                raise Unreadable(f"There is no turn {turn_id}.")
            state = memory.turns[turn_id].step.state
            return replace(
                state,
                history=self._before(state),
                messages=tuple(memory.messages[message.id].message for message in state.messages),
            )

    # runs
    def commit_run(self, step: WorkflowStep) -> None:
        """See `Store.commit_run`."""
        with self._write() as memory:
            state = step.state
            self._must_not_be_taken(state.session_id)
            if state.session_id not in memory.sessions:
                raise NoSuchSession(f"There is no session {state.session_id}.")
            stored = memory.runs.get(state.session_id)
            if stored is not None and stored.state.seq == state.seq:
                if stored.state == state and (stored.writer is self or not step.effects):
                    return
                raise Conflict(f"Run {state.session_id} has another step {state.seq} already.")
            if state.seq != (0 if stored is None else stored.state.seq + 1):
                raise Conflict(f"Step {state.seq} of run {state.session_id} does not follow the stored one.")
            memory.runs[state.session_id] = _Run(state=state, writer=self)
            number = max(memory.turn_numbers.get(state.session_id, 0), state.turns)
            memory.turn_numbers[state.session_id] = number
            session = memory.sessions[state.session_id]
            memory.sessions[state.session_id] = replace(session, updated_at=self._clock())
            self._touch(state.session_id)
            memory.words = [row for row in memory.words if row[0] != state.session_id or applies(row[1], state)]

    def load_run(self, session_id: SessionId) -> WorkflowState:
        """See `Store.load_run`."""
        with self._read() as memory:
            full = self._full_id(session_id)
            if full not in memory.runs:
                raise NoSuchSession(f"Session {full} is no run of a workflow.", advice="`chatops workflow list`")
            return memory.runs[full].state

    def runs(self, *, workspace: str | None = None, limit: int = 200) -> list[SessionInfo]:
        """See `Store.runs`."""
        with self._read() as memory:
            every = self.sessions(workspace=workspace, limit=len(memory.sessions))
            return [info for info in every if info.run is not None][:limit]

    def post_word(self, session_id: SessionId, word: Reviewed | RunCancelled) -> bool:
        """See `Store.post_word`."""
        with self._write() as memory:
            full = self._full_id(session_id)
            earlier = [type(said) for owner, said in memory.words if owner == full]
            if not applies(word, self.load_run(full)) or type(word) in earlier:
                return False
            memory.words.append((full, word))
            return True

    def posted_words(self, session_id: SessionId) -> list[Reviewed | RunCancelled]:
        """See `Store.posted_words`."""
        with self._read() as memory:
            full = self._full_id(session_id)
            return [word for owner, word in memory.words if owner == full]

    # the queue
    def queue(self, *, session_id: SessionId | None = None) -> list[QueuedCall]:
        """See `Store.queue`."""
        with self._read() as memory:
            rows = memory.pending.values()
            return in_call_order(
                [
                    replace(row, decided=self._posted_row(row))
                    for row in rows
                    if session_id is None or row.session_id == session_id
                ]
            )

    def post_decision(self, decided: CallDecided) -> bool:
        """See `Store.post_decision`."""
        with self._write() as memory:
            waiting = memory.pending.get(decided.call_id)
            if waiting is None or waiting.pending.digest != decided.digest:
                return False
            first = memory.posted.get(decided.call_id)
            if first is not None and first[1].digest == decided.digest:
                return False
            memory.posted.pop(decided.call_id, None)
            memory.posted[decided.call_id] = (waiting.turn_id, decided, self._clock())
            return True

    def posted(self, turn_id: TurnId) -> list[CallDecided]:
        """See `Store.posted`."""
        with self._read() as memory:
            return [decided for owner, decided, _ in memory.posted.values() if owner == turn_id]

    def version(self) -> int:
        """See `Store.version`."""
        with self._read() as memory:
            return sum(count for writer, count in memory.writes.items() if writer != id(self))

    # grants, journal, log
    def grants(self, session_id: SessionId) -> tuple[RememberedGrant, ...]:
        """See `Store.grants`."""
        with self._read() as memory:
            full = self._full_id(session_id)
            return tuple(grant for owner, grant in memory.grants if owner == full)

    def revoke_grants(self, session_id: SessionId, grants: Sequence[RememberedGrant]) -> int:
        """See `Store.revoke_grants`."""
        with self._write() as memory:
            full = self._full_id(session_id)
            before = len(memory.grants)
            memory.grants = [row for row in memory.grants if row[0] != full or row[1] not in grants]
            return before - len(memory.grants)

    def journal(self, turn_id: TurnId) -> list[JournalRow]:
        """See `Store.journal`."""
        with self._read() as memory:
            return [row for owner, row in memory.journal.values() if owner == turn_id]

    def decisions(self, *, session_id: SessionId | None = None, limit: int = 1000) -> list[DecisionRow]:
        """See `Store.decisions`: the newest `limit` of them, oldest first."""
        with self._read() as memory:
            rows = [row for row in memory.decisions if session_id is None or row.session_id == session_id]
            return rows[max(0, len(rows) - limit) :]

    # queued text
    def queue_text(self, session_id: SessionId, text: str) -> None:
        """See `Store.queue_text`."""
        with self._write() as memory:
            memory.texts.append((self._full_id(session_id), text))

    def kept_texts(self, session_id: SessionId) -> tuple[str, ...]:
        """See `Store.kept_texts`."""
        with self._read() as memory:
            full = self._full_id(session_id)
            return tuple(text for owner, text in memory.texts if owner == full)

    # leases
    def hold(self, session_id: SessionId, holder: Holder, *, ttl_s: float = 30.0) -> None:
        """See `Store.hold`."""
        with self._write() as memory:
            full, now = self._full_id(session_id), self._clock()
            before = memory.leases.get(full)
            may_take(before, holder, session_id=full, now=now, alive=self._alive)
            if before is not None and before.holder == holder:
                memory.leases[full] = replace(before, expires_at=now + ttl_s)
            else:
                memory.leases[full] = Hold(holder=holder, since=now, expires_at=now + ttl_s)

    def held(self, session_id: SessionId) -> Hold | None:
        """See `Store.held`."""
        with self._read() as memory:
            hold = memory.leases.get(self._full_id(session_id))
            if hold is None:
                return None
            there = keeps_out(hold, host=self._process().host, now=self._clock(), alive=self._alive)
            return hold if there else None

    def want(self, session_id: SessionId, asker: Holder | None) -> None:
        """See `Store.want`."""
        with self._write() as memory:
            if session_id in memory.leases:
                memory.leases[session_id] = replace(memory.leases[session_id], wanted_by=asker, heard=False)

    def heard(self, session_id: SessionId, holder: Holder) -> None:
        """See `Store.heard`."""
        with self._write() as memory:
            hold = memory.leases.get(session_id)
            if hold is not None and hold.holder == holder:
                memory.leases[session_id] = replace(hold, heard=True)

    def take_over(self, session_id: SessionId, holder: Holder, *, of: Holder, ttl_s: float = 30.0) -> None:
        """See `Store.take_over`."""
        with self._write() as memory:
            full, now = self._full_id(session_id), self._clock()
            before = memory.leases.get(full)
            if before is not None and before.holder == holder:
                return
            if before is not None and before.holder != of:
                raise SessionHeld(f"Session {full} has gone on to another chatops (pid {before.holder.pid}).")
            memory.leases[full] = Hold(holder=holder, since=now, expires_at=now + ttl_s)

    def _must_not_be_taken(self, session_id: SessionId) -> None:
        hold = self._memory.leases.get(session_id)
        if hold is not None and hold.holder != self._process():
            raise Conflict(taken_over(session_id, hold.holder))

    def release(self, session_id: SessionId, holder: Holder) -> None:
        """See `Store.release`."""
        with self._write() as memory:
            lease = memory.leases.get(session_id)
            if lease is not None and lease.holder == holder:
                del memory.leases[session_id]

    # values of the app
    def setting(self, key: str) -> str | None:
        """See `Store.setting`."""
        with self._read() as memory:
            return memory.settings.get(key)

    def set_setting(self, key: str, value: str) -> None:
        """See `Store.set_setting`."""
        with self._write() as memory:
            memory.settings[key] = value

    def check(self) -> list[str]:
        """See `Store.check`."""
        with self._read():
            return []

    def close(self) -> None:
        """See `Store.close`."""
        self._closed = True

    # inside a transaction
    @contextmanager
    def _read(self) -> Iterator[Memory]:
        with self._memory.lock:
            if self._closed:
                raise StoreError("The session store has been closed.", advice="Start chatops again.")
            yield self._memory

    @contextmanager
    def _write(self) -> Iterator[Memory]:
        with self._read() as memory:
            before = memory.snapshot()
            try:
                yield memory
            except BaseException:
                memory.copy_from(before)
                raise
            memory.writes[id(self)] = memory.writes.get(id(self), 0) + 1

    def _touch(self, session_id: SessionId) -> None:
        activity = self._memory.activity
        activity[session_id] = max(activity.values(), default=0) + 1

    def _free_id(self, now: float) -> SessionId:
        for _ in range(100):
            if (session_id := self._new_id(now)) not in self._memory.sessions:
                return session_id
        raise StoreError("No free session id was found.", advice="Try again.")

    def _full_id(self, prefix: SessionId) -> SessionId:
        if prefix in self._memory.sessions:
            return prefix
        names = sorted(
            (name for name in self._memory.sessions if prefix and name.startswith(prefix)),
            key=lambda name: -self._memory.activity[name],
        )
        if not names:
            raise NoSuchSession(f"There is no session {prefix!r}.", advice="`chatops sessions list` shows them.")
        if len(names) > 1:
            raise ambiguous(prefix, list(names))
        return names[0]

    def _path(self, head: MessageId | None) -> list[MessageId]:
        path: list[MessageId] = []
        while head is not None:
            path.append(head)
            head = self._memory.messages[head].parent
        return path

    def _chain(self, head: MessageId | None) -> tuple[Message, ...]:
        return tuple(self._memory.messages[id_].message for id_ in reversed(self._path(head)))

    def _before(self, state: TurnState) -> tuple[Message, ...]:
        if state.parent_id is None or state.contract is None:
            return self._chain(state.parent_id)
        owners = (turn.step.state for turn in self._memory.turns.values())
        owner = next(one for one in owners if state.parent_id in {message.id for message in one.messages})
        before = self.load_turn(owner.turn_id)
        return (*before.history, *before.messages)

    def _may_begin(self, state: TurnState, session: SessionInfo) -> None:
        run = self._memory.runs.get(state.session_id)
        if run is not None and not isinstance(run.state.phase, RunFinished):
            if turn_of(run.state) != state.turn_id:
                raise Conflict(f"Session {state.session_id} is a run that does not wait for turn {state.turn_id}.")
        elif state.parent_id != session.head:
            raise Conflict(f"The conversation moved on before turn {state.turn_id} began.")

    def _append(self, session_id: SessionId, messages: Sequence[Message], *, now: float) -> None:
        memory = self._memory
        session = memory.sessions[session_id]
        head = session.head
        for message in messages:
            if message.id in memory.messages:
                raise StoreError(f"A message with the id {message.id} is stored already.")
            memory.messages[message.id] = _Stored(message=message, parent=head)
            head = message.id
        memory.sessions[session_id] = replace(
            session,
            head=head,
            title=session.title or title_from(messages),
            messages=session.messages + len(messages),
            updated_at=now,
        )
        self._touch(session_id)

    def _repeats(self, step: Step, stored: _Turn) -> bool:
        if stored.step.state.seq != step.state.seq:
            return False
        same_state = _without_bodies(stored.step.state) == _without_bodies(step.state)
        same_step = replace(stored.step, state=step.state, effects=intents(stored.step), events=()) == replace(
            step, effects=intents(step), events=()
        )
        if same_state and (carries_nothing(step) or (same_step and stored.writer is self)):
            return True
        raise Conflict(f"Turn {step.state.turn_id} has another step {step.state.seq} already.")

    def _put_intent(self, run: RunTool, turn_id: TurnId, *, now: float) -> None:
        key = (run.call.id, run.attempt)
        if key in self._memory.journal:
            raise Conflict(f"Attempt {run.attempt} of call {run.call.id} was started already.")
        process = self._process()
        self._memory.journal[key] = (
            turn_id,
            JournalRow(
                call_id=run.call.id,
                attempt=run.attempt,
                tool=run.call.name,
                arguments=run.facts.arguments,
                digest=run.digest,
                boot_id=process.boot_id,
                pid=process.pid,
                pid_started=process.pid_started,
                started_at=now,
                outcome=None,
                result="",
                finished_at=None,
            ),
        )

    def _close_attempt(self, closing: AttemptResult, *, now: float) -> None:
        key = (closing.call_id, closing.attempt)
        if key not in self._memory.journal:
            raise StoreError(f"Attempt {closing.attempt} of call {closing.call_id} was never started.")
        turn_id, row = self._memory.journal[key]
        if row.outcome in {None, Outcome.UNKNOWN}:
            closed = replace(row, outcome=closing.result.outcome, result=closing.result.content, finished_at=now)
            self._memory.journal[key] = (turn_id, closed)

    def _follow(self, step: Step, *, now: float) -> None:
        memory, state = self._memory, step.state
        for record in step.decisions:
            self._log(record, state.session_id, now=now)
        still_open = open_calls(state) - {record.call_id for record in step.decisions}
        memory.posted = {key: row for key, row in memory.posted.items() if row[0] != state.turn_id or key in still_open}
        waiting = {pending.call.id: pending for pending in pending_calls(state)}
        memory.pending = {
            key: row for key, row in memory.pending.items() if row.turn_id != state.turn_id or key in waiting
        }
        for pending in waiting.values():
            self._ask(pending, state, now=now)

    def _ask(self, pending: PendingCall, state: TurnState, *, now: float) -> None:
        before = self._memory.pending.get(pending.call.id)
        asked_anew = before is None or before.pending.digest != pending.digest
        self._memory.pending[pending.call.id] = QueuedCall(
            session_id=state.session_id,
            turn_id=state.turn_id,
            pending=pending,
            requested_at=now if before is None or asked_anew else before.requested_at,
            decided=None,
        )

    def _log(self, record: DecisionRecord, session_id: SessionId, *, now: float) -> None:
        asked = self._memory.pending.get(record.call_id)
        answered = self._memory.posted.get(record.call_id)
        taken = answered is not None and (answered[1].digest, answered[1].by) == (record.digest, record.by)
        self._memory.decisions.append(
            DecisionRow(
                call_id=record.call_id,
                session_id=session_id,
                tool=record.tool,
                digest=record.digest,
                decision=record.decision,
                by=record.by,
                decided_at=answered[2] if answered is not None and taken else now,
                role="" if asked is None else asked.pending.role,
                model="" if asked is None else asked.pending.model,
            )
        )

    def _posted_row(self, row: QueuedCall) -> DecisionRow | None:
        answer = self._memory.posted.get(row.pending.call.id)
        if answer is None or answer[1].digest != row.pending.digest:
            return None
        return DecisionRow(
            call_id=row.pending.call.id,
            session_id=row.session_id,
            tool=row.pending.call.name,
            digest=row.pending.digest,
            decision=answer[1].decision,
            by=answer[1].by,
            decided_at=answer[2],
            role=row.pending.role,
            model=row.pending.model,
        )


def _without_bodies(state: TurnState) -> tuple[TurnState, tuple[MessageId, ...]]:
    return replace(state, history=(), messages=()), tuple(message.id for message in state.messages)


def _must_follow(state: TurnState, stored: _Turn | None, session: SessionInfo) -> None:
    if stored is not None and stored.step.state.session_id != state.session_id:
        raise Conflict(f"Turn {state.turn_id} belongs to another session.")
    if state.seq != (0 if stored is None else stored.step.state.seq + 1):
        raise Conflict(f"Step {state.seq} of turn {state.turn_id} does not follow the stored one.")
    if session.active_turn not in {None, state.turn_id}:
        raise Conflict(f"Another turn of this session is not finished: {session.active_turn}.")

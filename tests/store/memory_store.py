"""A store in memory, for tests: the same promises as the one on disk, minus surviving the process.

Each method is one transaction; the topics are in `tests.store.memory`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from chatops.domain.errors import StoreError
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.domain.messages import Message
from chatops.domain.usage import Usage, total
from chatops.engine.effects import ComposerDraft, TurnStep
from chatops.engine.inputs import DecideCall
from chatops.engine.state import TurnState
from chatops.engine.workflow.effects import WorkflowStep
from chatops.engine.workflow.inputs import CancelRun, ReviewStep
from chatops.engine.workflow.state import WorkflowState
from chatops.store.base import (
    DecisionRow,
    Holder,
    JournalRow,
    LeaseRow,
    PendingCallRow,
    RuleRow,
    SearchHit,
    SessionInfo,
)
from chatops.store.process import is_alive, this_process
from chatops.store.rules import may_take, new_session_id
from tests.store.memory import decisions, leases, remembered, runs, sessions, turns
from tests.store.memory.tables import Memory as Memory


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
    def create_session(
        self, *, workspace: str, role: str, persona: str, title: str = "", messages: Sequence[Message] = ()
    ) -> SessionInfo:
        """See `Store.create_session`."""
        with self._write() as memory:
            now = self._clock()
            made = sessions.create(
                memory, self._free_id(now), workspace=workspace, role=role, persona=persona, title=title, now=now
            )
            if messages:
                sessions.append(memory, made.id, messages, now=now)
            return sessions.info(memory, made.id)

    def session(self, session_id: SessionId) -> SessionInfo:
        """See `Store.session`."""
        with self._read() as memory:
            return sessions.info(memory, sessions.full_id(memory, session_id))

    def sessions(self, *, workspace: str | None = None, limit: int = 200) -> list[SessionInfo]:
        """See `Store.sessions`."""
        with self._read() as memory:
            return sessions.listed(memory, workspace=workspace)[:limit]

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
            full = sessions.full_id(memory, session_id)
            sessions.update(memory, full, role=role, model_pin=model_pin, persona=persona, title=title)

    def delete_session(self, session_id: SessionId) -> None:
        """See `Store.delete_session`."""
        with self._write() as memory:
            full = sessions.full_id(memory, session_id)
            taken, me = memory.leases.get(full), self._process()
            may_take(taken, me, session_id=full, now=self._clock(), alive=self._alive)
            sessions.delete(memory, full)

    def search(self, text: str, *, workspace: str | None = None, limit: int = 200) -> list[SearchHit]:
        """See `Store.search`."""
        wanted = text.casefold()
        hits: list[SearchHit] = []
        titled: list[SearchHit] = []
        for info in self.sessions(workspace=workspace, limit=1_000_000):
            texts = [
                (one.id, getattr(one, "content" if one.kind == "tool" else "text", "")) for one in self.history(info.id)
            ]
            found = [
                SearchHit(session=info, message_id=id_, text=said) for id_, said in texts if wanted in said.casefold()
            ]
            hits += found
            if not found and wanted in info.title.casefold():
                titled.append(SearchHit(session=info, message_id=None, text=info.title))
        return [*hits, *titled][:limit]

    def fork_session(
        self,
        session_id: SessionId,
        *,
        before: MessageId | None = None,
        workspace: str = "",
        begin: Callable[[SessionInfo], TurnStep] | None = None,
    ) -> SessionInfo:
        """See `Store.fork_session`."""
        with self._write() as memory:
            full, now = sessions.full_id(memory, session_id), self._clock()
            made = sessions.fork(
                memory, full, before=before, workspace=workspace, now=now, new_id=lambda: self._free_id(now)
            )
            if begin is not None:
                turns.commit(memory, begin(made), now=now, writer=self, process=self._process())
            return made

    def append_message(self, session_id: SessionId, message: Message) -> None:
        """See `Store.append_message`."""
        with self._write() as memory:
            full = sessions.full_id(memory, session_id)
            leases.must_not_be_taken(memory, full, self._process())
            sessions.append(memory, full, [message], now=self._clock())

    def history(self, session_id: SessionId, *, last: int | None = None) -> tuple[Message, ...]:
        """See `Store.history`."""
        with self._read() as memory:
            found = sessions.chain(memory, memory.sessions[sessions.full_id(memory, session_id)].head)
        return found if last is None else found[-last:]

    def next_turn_id(self, session_id: SessionId) -> TurnId:
        """See `Store.next_turn_id`."""
        with self._write() as memory:
            return sessions.next_turn_id(memory, sessions.full_id(memory, session_id))

    # turns
    def commit(self, step: TurnStep) -> None:
        """See `Store.commit`."""
        with self._write() as memory:
            process = self._process()
            leases.must_not_be_taken(memory, step.state.session_id, process)
            turns.commit(memory, step, now=self._clock(), writer=self, process=process)

    def load_turn(self, turn_id: TurnId) -> TurnState:
        """See `Store.load_turn`."""
        with self._read() as memory:
            return turns.load(memory, turn_id)

    def unfinished_turns(self) -> list[TurnId]:
        """See `Store.unfinished_turns`."""
        with self._read() as memory:
            active = (session.active_turn for session in memory.sessions.values())
            return [turn for turn in active if turn is not None]

    def usage(self, session_id: SessionId, *, besides: TurnId | None = None) -> Usage | None:
        """See `Store.usage`."""
        with self._read() as memory:
            stored = (turn.step.state for turn in memory.turns.values())
            return total(*(one.usage for one in stored if one.session_id == session_id and one.turn_id != besides))

    # runs
    def commit_run(self, step: WorkflowStep) -> None:
        """See `Store.commit_run`."""
        with self._write() as memory:
            leases.must_not_be_taken(memory, step.state.session_id, self._process())
            runs.commit(memory, step, now=self._clock(), writer=self)

    def load_run(self, session_id: SessionId) -> WorkflowState:
        """See `Store.load_run`."""
        with self._read() as memory:
            return runs.load(memory, sessions.full_id(memory, session_id))

    def runs(self, *, workspace: str | None = None, limit: int = 200) -> list[SessionInfo]:
        """See `Store.runs`."""
        with self._read() as memory:
            return [info for info in sessions.listed(memory, workspace=workspace) if info.run is not None][:limit]

    def post_review(self, session_id: SessionId, review: ReviewStep | CancelRun) -> bool:
        """See `Store.post_review`."""
        with self._write() as memory:
            return runs.post(memory, sessions.full_id(memory, session_id), review)

    def posted_reviews(self, session_id: SessionId) -> list[ReviewStep | CancelRun]:
        """See `Store.posted_reviews`."""
        with self._read() as memory:
            full = sessions.full_id(memory, session_id)
            return [word for owner, word in memory.words if owner == full]

    # the queue
    def pending_calls(self, *, session_id: SessionId | None = None) -> list[PendingCallRow]:
        """See `Store.pending_calls`."""
        with self._read() as memory:
            return decisions.queue(memory, session_id=session_id)

    def post_decision(self, decided: DecideCall) -> bool:
        """See `Store.post_decision`."""
        with self._write() as memory:
            return decisions.post(memory, decided, now=self._clock())

    def posted_decisions(self, turn_id: TurnId) -> list[DecideCall]:
        """See `Store.posted_decisions`."""
        with self._read() as memory:
            return [decided for owner, decided, _ in memory.posted.values() if owner == turn_id]

    def data_version(self) -> int:
        """See `Store.data_version`."""
        with self._read() as memory:
            return sum(count for writer, count in memory.writes.items() if writer != id(self))

    # remembered rules, journal, log
    def rules(
        self, *, session_id: SessionId | None = None, uid: int | None = None, tool: str | None = None
    ) -> list[RuleRow]:
        """See `Store.rules`."""
        with self._read() as memory:
            full = None if session_id is None else sessions.full_id(memory, session_id)
            return remembered.in_force(memory, session_id=full, uid=uid, tool=tool)

    def revoke_rule(self, rule_id: str) -> bool:
        """See `Store.revoke_rule`."""
        with self._write() as memory:
            return memory.rules.pop(rule_id, None) is not None

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
    def queue_message(self, session_id: SessionId, text: str, *, draft: ComposerDraft | None = None) -> None:
        """See `Store.queue_message`."""
        with self._write() as memory:
            memory.texts.append((sessions.full_id(memory, session_id), text))
            if draft is not None:
                memory.settings[draft.setting] = draft.text

    def queued_messages(self, session_id: SessionId) -> tuple[str, ...]:
        """See `Store.queued_messages`."""
        with self._read() as memory:
            full = sessions.full_id(memory, session_id)
            return tuple(text for owner, text in memory.texts if owner == full)

    def take_queued_message(self, session_id: SessionId, *, into: str) -> str | None:
        """See `Store.take_queued_message`."""
        with self._write() as memory:
            full = sessions.full_id(memory, session_id)
            kept = [at for at, (owner, _) in enumerate(memory.texts) if owner == full]
            if not kept:
                return None
            _, taken = memory.texts.pop(kept[-1])
            memory.settings[into] = taken
            return taken

    def remove_queued_message(self, session_id: SessionId, text: str, *, later: int) -> bool:
        """See `Store.remove_queued_message`."""
        with self._write() as memory:
            full = sessions.full_id(memory, session_id)
            kept = [at for at, (owner, _) in enumerate(memory.texts) if owner == full]
            if later >= len(kept) or memory.texts[kept[-1 - later]][1] != text:
                return False
            memory.texts.pop(kept[-1 - later])
            return True

    # leases
    def acquire_lease(self, session_id: SessionId, holder: Holder, *, ttl_s: float = 30.0) -> None:
        """See `Store.acquire_lease`."""
        with self._write() as memory:
            full = sessions.full_id(memory, session_id)
            leases.acquire(memory, full, holder, ttl_s=ttl_s, now=self._clock(), alive=self._alive)

    def renew_lease(self, session_id: SessionId, holder: Holder, *, ttl_s: float = 30.0) -> None:
        """See `Store.renew_lease`."""
        with self._write() as memory:
            leases.renew(memory, session_id, holder, ttl_s=ttl_s, now=self._clock())

    def lease(self, session_id: SessionId) -> LeaseRow | None:
        """See `Store.lease`."""
        with self._read() as memory:
            full = sessions.full_id(memory, session_id)
            return leases.current(memory, full, me=self._process(), now=self._clock(), alive=self._alive)

    def request_lease(self, session_id: SessionId, asker: Holder) -> None:
        """See `Store.request_lease`."""
        with self._write() as memory:
            leases.request(memory, session_id, asker)

    def withdraw_request(self, session_id: SessionId, asker: Holder) -> None:
        """See `Store.withdraw_request`."""
        with self._write() as memory:
            leases.withdraw_request(memory, session_id, asker)

    def acknowledge_request(self, session_id: SessionId, holder: Holder) -> None:
        """See `Store.acknowledge_request`."""
        with self._write() as memory:
            leases.acknowledge(memory, session_id, holder)

    def seize_lease(self, session_id: SessionId, holder: Holder, *, of: Holder, ttl_s: float = 30.0) -> None:
        """See `Store.seize_lease`."""
        with self._write() as memory:
            full = sessions.full_id(memory, session_id)
            leases.seize(memory, full, holder, of=of, ttl_s=ttl_s, now=self._clock())

    def release_lease(self, session_id: SessionId, holder: Holder) -> None:
        """See `Store.release_lease`."""
        with self._write() as memory:
            leases.release(memory, session_id, holder)

    # values of the app
    def setting(self, key: str) -> str | None:
        """See `Store.setting`."""
        with self._read() as memory:
            return memory.settings.get(key)

    def set_setting(self, key: str, value: str) -> None:
        """See `Store.set_setting`."""
        with self._write() as memory:
            memory.settings[key] = value

    def save(self) -> None:
        """See `Store.save`: everything is saved."""

    def problems(self) -> list[str]:
        """See `Store.problems`."""
        with self._read():
            return []

    def close(self) -> None:
        """See `Store.close`."""
        self._closed = True

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

    def _free_id(self, now: float) -> SessionId:
        for _ in range(100):
            if (session_id := self._new_id(now)) not in self._memory.sessions:
                return session_id
        raise StoreError("No free session id was found.", advice="Try again.")

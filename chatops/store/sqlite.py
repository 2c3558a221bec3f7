"""The store of one machine: a SQLite file. Each method is one transaction; the SQL is in the sibling modules."""

from __future__ import annotations

import secrets
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chatops.domain.errors import StoreError
from chatops.store import leases, sessions
from chatops.store.connection import Connection, integer, text
from chatops.store.process import is_alive, this_process
from chatops.store.rules import may_take, new_session_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chatops.domain.ids import MessageId, SessionId, TurnId
    from chatops.domain.messages import Message
    from chatops.domain.usage import Usage
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


class _Late:
    """A sibling module, imported when it is first used.

    Reading a list of sessions takes a few milliseconds. The codec and the turn's values, which only these modules need,
    take a hundred times as long to import.
    """

    def __init__(self, name: str) -> None:
        self._name = f"chatops.store.{name}"

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


if TYPE_CHECKING:
    from chatops.store import backup, decisions, files, health, messages, remembered, runs, search, turns
else:
    backup, decisions, files, health = map(_Late, ("backup", "decisions", "files", "health"))
    messages, remembered, runs = map(_Late, ("messages", "remembered", "runs"))
    search, turns = map(_Late, ("search", "turns"))


class SqliteStore:
    """Implements `Store`, which documents the methods. It may be used from several threads, which take turns.

    `notices` holds messages for the user about its file (damaged, deleted, replaced).
    """

    def __init__(
        self,
        file: Path | Connection,
        *,
        clock: Callable[[], float] = time.time,
        process: Callable[[], Holder] = this_process,
        alive: Callable[[Holder], bool] = is_alive,
        new_id: Callable[[float], SessionId] = new_session_id,
    ) -> None:
        """Open or create `file`, or use a connection that is open already.

        `clock` returns seconds since the epoch. Raises StoreError, UnreadableError.
        """
        self._rows = _opened(file) if isinstance(file, Path) else file
        self._clock = clock
        self._process = process
        self._alive = alive
        self._new_id = new_id
        self._writer = secrets.token_hex(8)

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._rows.path

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(self._rows.notices)

    @property
    def unsaved(self) -> str:
        return self._rows.unsaved

    # sessions
    def create_session(
        self, *, workspace: str, role: str, persona: str, title: str = "", messages: Sequence[Message] = ()
    ) -> SessionInfo:
        now = self._clock()
        with self._rows.write():
            made = sessions.create(
                self._rows, self._free_id(now), workspace=workspace, role=role, persona=persona, title=title, now=now
            )
            if not messages:
                return made
            sessions.append_messages(self._rows, made.id, messages, now=now)
            return sessions.info(self._rows, made.id)

    def session(self, session_id: SessionId) -> SessionInfo:
        with self._rows.read():
            return sessions.info(self._rows, sessions.full_id(self._rows, session_id))

    def sessions(self, *, workspace: str | None = None, limit: int = 200) -> list[SessionInfo]:
        with self._rows.read():
            return sessions.listed(self._rows, workspace=workspace, limit=limit)

    def search(self, text: str, *, workspace: str | None = None, limit: int = 200) -> list[SearchHit]:
        return search.search(self._rows, text, workspace=workspace, most=limit)

    def update_session(
        self,
        session_id: SessionId,
        *,
        role: str | None = None,
        model_pin: str | None = None,
        persona: str | None = None,
        title: str | None = None,
    ) -> None:
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            sessions.update(self._rows, full, role=role, model_pin=model_pin, persona=persona, title=title)

    def delete_session(self, session_id: SessionId) -> None:
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            taken, me = leases.stored(self._rows, full), self._process()
            may_take(taken, me, session_id=full, now=self._clock(), alive=self._alive)
            sessions.delete(self._rows, full)
        if not self.unsaved:
            backup.delete_from_backup(self.path, full)
            files.SessionFiles(self.path).forget(full)

    def fork_session(
        self,
        session_id: SessionId,
        *,
        before: MessageId | None = None,
        workspace: str = "",
        begin: Callable[[SessionInfo], TurnStep] | None = None,
    ) -> SessionInfo:
        now = self._clock()
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            copy = sessions.fork(
                self._rows, full, before=before, workspace=workspace, now=now, new_id=lambda: self._free_id(now)
            )
            if begin is not None:
                turns.commit(self._rows, begin(copy), now=now, writer=self._writer, process=self._process())
        if not self.unsaved:
            files.SessionFiles(self.path).share(full, copy.id)
        return copy

    def append_message(self, session_id: SessionId, message: Message) -> None:
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            leases.must_not_be_taken(self._rows, full, self._process())
            sessions.append_messages(self._rows, full, [message], now=self._clock())

    def history(self, session_id: SessionId, *, last: int | None = None) -> tuple[Message, ...]:
        with self._rows.read():
            full = sessions.full_id(self._rows, session_id)
            return messages.chain(self._rows, sessions.info(self._rows, full).head, last=last)

    def next_turn_id(self, session_id: SessionId) -> TurnId:
        with self._rows.write():
            return sessions.next_turn_id(self._rows, sessions.full_id(self._rows, session_id))

    # turns
    def commit(self, step: TurnStep) -> None:
        with self._rows.write():
            process = self._process()
            leases.must_not_be_taken(self._rows, step.state.session_id, process)
            turns.commit(self._rows, step, now=self._clock(), writer=self._writer, process=process)

    def load_turn(self, turn_id: TurnId) -> TurnState:
        with self._rows.read():
            return turns.load(self._rows, turn_id)

    def unfinished_turns(self) -> list[TurnId]:
        with self._rows.read():
            return turns.unfinished(self._rows)

    def usage(self, session_id: SessionId, *, besides: TurnId | None = None) -> Usage | None:
        with self._rows.read():
            return turns.usage(self._rows, session_id, besides=besides)

    # runs
    def commit_run(self, step: WorkflowStep) -> None:
        with self._rows.write():
            leases.must_not_be_taken(self._rows, step.state.session_id, self._process())
            runs.commit(self._rows, step, now=self._clock(), writer=self._writer)

    def load_run(self, session_id: SessionId) -> WorkflowState:
        with self._rows.read():
            return runs.load(self._rows, sessions.full_id(self._rows, session_id))

    def runs(self, *, workspace: str | None = None, limit: int = 200) -> list[SessionInfo]:
        with self._rows.read():
            return sessions.listed(self._rows, workspace=workspace, limit=limit, runs_only=True)

    def post_review(self, session_id: SessionId, review: ReviewStep | CancelRun) -> bool:
        with self._rows.write():
            return runs.post(self._rows, sessions.full_id(self._rows, session_id), review)

    def posted_reviews(self, session_id: SessionId) -> list[ReviewStep | CancelRun]:
        with self._rows.read():
            return runs.posted(self._rows, sessions.full_id(self._rows, session_id))

    # the queue
    def pending_calls(self, *, session_id: SessionId | None = None) -> list[PendingCallRow]:
        with self._rows.read():
            # Mostly there is none, and then nothing has to be imported to say so.
            if self._rows.one("SELECT 1 FROM pending LIMIT 1") is None:
                return []
            return decisions.pending(self._rows, session_id=session_id)

    def post_decision(self, decided: DecideCall) -> bool:
        with self._rows.write():
            return decisions.post(self._rows, decided, now=self._clock())

    def posted_decisions(self, turn_id: TurnId) -> list[DecideCall]:
        with self._rows.read():
            return decisions.posted(self._rows, turn_id)

    def data_version(self) -> int:
        row = self._rows.pragma("data_version")
        return 0 if row is None else integer(row[0])

    # remembered rules, journal, log
    def rules(
        self, *, session_id: SessionId | None = None, uid: int | None = None, tool: str | None = None
    ) -> list[RuleRow]:
        with self._rows.read():
            full = None if session_id is None else sessions.full_id(self._rows, session_id)
            return remembered.in_force(self._rows, session_id=full, uid=uid, tool=tool)

    def revoke_rule(self, rule_id: str) -> bool:
        with self._rows.write():
            return remembered.revoke(self._rows, rule_id, now=self._clock())

    def journal(self, turn_id: TurnId) -> list[JournalRow]:
        with self._rows.read():
            return turns.journal(self._rows, turn_id)

    def decisions(self, *, session_id: SessionId | None = None, limit: int = 1000) -> list[DecisionRow]:
        with self._rows.read():
            return decisions.decisions(self._rows, session_id=session_id, limit=limit)

    # queued text
    def queue_message(self, session_id: SessionId, text: str, *, draft: ComposerDraft | None = None) -> None:
        with self._rows.write():
            sessions.queue_message(self._rows, sessions.full_id(self._rows, session_id), text)
            if draft is not None:
                self._rows.upsert("settings", "key", key=draft.setting, value=draft.text)

    def queued_messages(self, session_id: SessionId) -> tuple[str, ...]:
        with self._rows.read():
            return sessions.queued_messages(self._rows, sessions.full_id(self._rows, session_id))

    def remove_queued_message(self, session_id: SessionId, text: str, *, later: int) -> bool:
        with self._rows.write():
            return sessions.remove_queued(self._rows, sessions.full_id(self._rows, session_id), text, later=later)

    def take_queued_message(self, session_id: SessionId, *, into: str) -> str | None:
        with self._rows.write():
            taken = sessions.take_newest_queued(self._rows, sessions.full_id(self._rows, session_id))
            if taken is not None:
                self._rows.upsert("settings", "key", key=into, value=taken)
            return taken

    # leases
    def acquire_lease(self, session_id: SessionId, holder: Holder, *, ttl_s: float = 30.0) -> None:
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            leases.acquire(self._rows, full, holder, ttl_s=ttl_s, now=self._clock(), alive=self._alive)

    def renew_lease(self, session_id: SessionId, holder: Holder, *, ttl_s: float = 30.0) -> None:
        with self._rows.write():
            leases.renew(self._rows, session_id, holder, ttl_s=ttl_s, now=self._clock())

    def lease(self, session_id: SessionId) -> LeaseRow | None:
        with self._rows.read():
            full = sessions.full_id(self._rows, session_id)
            return leases.current(self._rows, full, me=self._process(), now=self._clock(), alive=self._alive)

    def request_lease(self, session_id: SessionId, asker: Holder) -> None:
        with self._rows.write():
            leases.request(self._rows, session_id, asker)

    def withdraw_request(self, session_id: SessionId, asker: Holder) -> None:
        with self._rows.write():
            leases.withdraw_request(self._rows, session_id, asker)

    def acknowledge_request(self, session_id: SessionId, holder: Holder) -> None:
        with self._rows.write():
            leases.acknowledge(self._rows, session_id, holder)

    def seize_lease(self, session_id: SessionId, holder: Holder, *, of: Holder, ttl_s: float = 30.0) -> None:
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            leases.seize(self._rows, full, holder, of=of, ttl_s=ttl_s, now=self._clock())

    def release_lease(self, session_id: SessionId, holder: Holder) -> None:
        with self._rows.write():
            leases.release(self._rows, session_id, holder)

    # application settings
    def setting(self, key: str) -> str | None:
        with self._rows.read():
            row = self._rows.one("SELECT value FROM settings WHERE key = ?", key)
        return None if row is None else text(row[0])

    def set_setting(self, key: str, value: str) -> None:
        with self._rows.write():
            self._rows.upsert("settings", "key", key=key, value=value)

    def problems(self) -> list[str]:
        return health.problems(self._rows)

    def save(self) -> None:
        from chatops.store.late_file import LateFile

        if isinstance(self._rows, LateFile):

            def take(lease: LeaseRow | None, session_id: SessionId) -> None:
                may_take(lease, self._process(), session_id=session_id, now=self._clock(), alive=self._alive)

            for copy, source in self._rows.save(may_take=take):
                files.SessionFiles(self.path).share(source, copy)

    def close(self) -> None:
        self._rows.close()

    def _free_id(self, now: float) -> SessionId:
        for _ in range(100):
            session_id = self._new_id(now)
            if not sessions.exists(self._rows, session_id):
                return session_id
        raise StoreError("No free session id was found.", advice="Try again.")


def _opened(path: Path) -> Connection:
    from chatops.store.file import StoreFile

    return StoreFile(path)

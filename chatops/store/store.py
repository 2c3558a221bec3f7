"""The session store. It is synchronous: the runtime calls it in a worker thread.

Each topic has a module with its methods: `turns`, `decisions`, `leases`. What only SQLite understands is in
`Connection`, which `Postgres` replaces. The tests behind `tests/store/conformance.py` specify each method.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.domain.errors import NoSuchSessionError, StoreError, UnreadableError
from chatops.domain.ids import TurnId
from chatops.store import leases, messages, sessions, turns
from chatops.store.audit import AuditLog
from chatops.store.base import Decider, Late
from chatops.store.connection import Connection, integer, text, text_or
from chatops.store.decisions import DecisionQueue, RememberedRules
from chatops.store.jobs import Jobs
from chatops.store.leases import Leases, must_be_free
from chatops.store.process_identity import is_alive, this_process
from chatops.store.queue import Queue
from chatops.store.runs import Runs
from chatops.store.sessions import new_session_id, turn_number
from chatops.store.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chatops.domain.ids import MessageId, SessionId
    from chatops.domain.messages import Message
    from chatops.domain.tools import AccessLevel
    from chatops.engine.effects import ComposerDraft, TurnStep
    from chatops.policy import delegation
    from chatops.policy.delegation import ChildBinding
    from chatops.store import backup, codec, health, search
    from chatops.store.base import DailyUsage, Holder, LeaseRow, SearchHit, SessionInfo
    from chatops.store.health import Finding
    from chatops.store.session_files import SessionFiles
else:
    codec, delegation = Late("chatops.store.codec"), Late("chatops.policy.delegation")
    backup, health, search = (Late(f"chatops.store.{name}") for name in ("backup", "health", "search"))


_LAST_SEARCHED = 200
"""Number of the last used sessions among which `last_session` looks for one that this role may drive."""
_WIDENING_CHANGE = re.compile(r"network on|git writable|[a-z]+ \+.*")
"""A change of a session's sandbox that gives commands more."""


class Store(Turns, Runs, DecisionQueue, RememberedRules, Leases, Jobs, Queue, AuditLog):
    """A session store. It may be used from several threads, which take turns.

    Each method is one transaction, durable when it returns. Raises StoreError and its subclasses only.
    """

    def __init__(
        self,
        file: Path | Connection,
        *,
        clock: Callable[[], float] | None = None,
        process: Callable[[], Holder] = this_process,
        alive: Callable[[Holder], bool] = is_alive,
        new_id: Callable[[float], SessionId] | None = None,
    ) -> None:
        """Open or create `file`, or use a connection that is open already.

        `clock` returns seconds since the epoch; None: the clock of the database. Raises StoreError, UnreadableError.
        """
        if isinstance(file, Path):
            from chatops.store.store_file import StoreFile

            file = StoreFile(file)
        self._rows = file
        self._clock = clock or self._rows.now
        self._process = process
        self._alive = alive
        self._new_id = new_id or partial(new_session_id, letters=self._rows.ID_LETTERS)
        self._writer = secrets.token_hex(8)
        self.surface = ""

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._rows.path

    @cached_property
    def files(self) -> SessionFiles:
        """The files of sessions."""
        return self._rows.files()

    @property
    def owner(self) -> int | None:
        """The uid of the only user who can write here; None if there may be others. -1: it cannot be told."""
        return self._rows.owner()

    @property
    def role(self) -> str:
        """The role of the database as which this process decides; empty in a file."""
        return self._rows.role

    def level_of(self, role: str) -> AccessLevel | None:
        """Return the highest level that the database lets a role have; None if it may nothing."""
        with self._rows.query():
            return self._rows.level_of(role)

    def decider(self, session_id: SessionId, member: str, approvers: Sequence[str]) -> Decider:
        """Return what is known of a role of the database that decides on a call whose approvers are given."""
        groups = [approver[1:] for approver in approvers if approver.startswith("@")]
        with self._rows.read():
            root = sessions.info(self._rows, session_id).parent or session_id
            return Decider(
                level=self._rows.level_of(member),
                requester=self._rows.requester(root),
                groups=self._rows.groups_of(member, groups),
            )

    def foreign(self, session_id: SessionId) -> str:
        """Return the role of the database that a session belongs to, if this process may not drive it; else empty."""
        with self._rows.query():
            return self._rows.foreign(session_id)

    def must_be_own(self, session_id: SessionId) -> None:
        """Raise SessionHeldError if this process may not change the session, as it belongs to another role."""
        with self._rows.read():
            self._rows.must_be_own(session_id)

    def describe(self) -> Sequence[Finding]:
        """Return where the database is, how it answers, and how its queue is. Raises StoreError."""
        return [*health.describe(self._rows), *health.describe_queue(self, now=self._clock())]

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices for the user, one sentence each: the file was damaged, deleted, replaced. More may come."""
        return tuple(self._rows.notices)

    @property
    def unsaved(self) -> str:
        """Reason that nothing stored here outlives this process; empty if it does.

        While it is set, calls are not approved: no decision without a record of it.
        """
        return self._rows.unsaved

    def create_session(
        self, *, workspace: str, role: str, persona: str, title: str = "", messages: Sequence[Message] = ()
    ) -> SessionInfo:
        """Create a session with a new id, and with these messages, whose ids must be new too."""
        now = self._clock()
        with self._rows.write():
            made = sessions.create(
                self._rows, self._free_id(now), workspace=workspace, role=role, persona=persona, title=title, now=now
            )
            if not messages:
                return made
            sessions.append_messages(self._rows, made.id, messages, now=now)
            return sessions.info(self._rows, made.id)

    def create_child(self, session_id: SessionId, *, workspace: str, role: str, binding: ChildBinding) -> SessionInfo:
        """Create the session of a delegated call, and store `binding`, which limits what the session may do.

        A session that exists keeps the layers that limit it, and gets those of `binding` too.
        """
        known = self.child_binding(session_id).layers
        with self._rows.write():
            if sessions.exists(self._rows, session_id):
                further = (layer for layer in binding.layers if layer not in known)
                binding = replace(binding, layers=(*known, *further))
            else:
                now = self._clock()
                sessions.create(self._rows, session_id, workspace=workspace, role=role, persona="", title="", now=now)
            self._rows.put_setting(f"{sessions.CHILD}{session_id}", codec.encode_child(binding))
            return sessions.info(self._rows, session_id)

    def child_binding(self, session_id: SessionId) -> ChildBinding:
        """Return what binds a child session. One that cannot be read permits nothing."""
        try:
            return codec.decode_child(self.setting(f"{sessions.CHILD}{session_id}"))
        except UnreadableError:
            return delegation.UNREADABLE_BINDING

    def session(self, session_id: SessionId) -> SessionInfo:
        """Return a session by its id or a unique prefix of it. Raises NoSuchSessionError."""
        with suppress(NoSuchSessionError), self._rows.query():
            return sessions.info(self._rows, session_id)
        with self._rows.read():
            return sessions.info(self._rows, sessions.full_id(self._rows, session_id))

    def sessions(self, *, workspace: str | None = None, limit: int = 200, children: bool = False) -> list[SessionInfo]:
        """Return sessions by newest activity (by sequence), of one workspace or of all, without child sessions.

        Sessions without messages are left out: a process may have died between creating one and its first turn.
        """
        with self._rows.read():
            return sessions.list_infos(self._rows, workspace=workspace, limit=limit, children=children)

    def last_session(self, workspace: str) -> SessionInfo | None:
        """Return the session of a workspace that was used last, of those that this role may drive."""
        with self._rows.read():
            found = sessions.list_infos(self._rows, workspace=workspace, limit=_LAST_SEARCHED)
            return next((info for info in found if not self._rows.foreign(info.id)), None)

    def search(self, text: str, *, workspace: str | None = None, limit: int = 200) -> list[SearchHit]:
        """Return where messages and titles contain `text`, whatever the case: newest first, titles last.

        A message of several sessions is a hit in each of them. May take a while: call it in a thread.
        """
        return search.search(self._rows, text, workspace=workspace, most=limit)

    def daily_usage(self, *, workspace: str, since: float) -> list[DailyUsage]:
        """Return the usage of each day and model in the sessions of a workspace, the last day and most tokens first.

        Only replies stored after `since` count, and of those only what a server reported.
        """
        with self._rows.read():
            return messages.daily_usage(self._rows, workspace=workspace, since=since)

    def update_session(
        self,
        session_id: SessionId,
        *,
        role: str | None = None,
        model_pin: str | None = None,
        persona: str | None = None,
        title: str | None = None,
    ) -> None:
        """Change the given settings. This does not count as activity."""
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            self._rows.must_be_own(full)
            self._rows.run(
                "UPDATE sessions SET role = coalesce(?, role), model_pin = coalesce(?, model_pin), "
                "persona = coalesce(?, persona), title = coalesce(?, title) WHERE id = ?",
                role,
                model_pin,
                persona,
                title,
                full,
            )

    def delete_session(self, session_id: SessionId) -> None:
        """Delete a session and all that only it has, in the backup too, with its child sessions.

        Its decisions stay in the log.

        Raises SessionHeldError if it is open in another process.
        """
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            family = [full, *sessions.children(self._rows, full)]
            for deleted in family:
                self._rows.must_be_own(deleted)
                self._must_be_free(leases.stored(self._rows, deleted), deleted)
                sessions.delete(self._rows, deleted)
        for deleted in family if not self.unsaved else ():
            if self._rows.HAS_BACKUP:
                backup.delete_from_backup(self._rows.path, deleted)
            self.files.forget(deleted)

    def fork_session(
        self,
        session_id: SessionId,
        *,
        before: MessageId | None = None,
        workspace: str = "",
        begin: Callable[[SessionInfo], TurnStep] | None = None,
    ) -> SessionInfo:
        """Create a session that shares the history, or with `before` the history before that message.

        What the user has revoked for the session is revoked in the copy. What the user has added is not in the copy,
        and neither are remembered rules.

        The copy belongs to `workspace`; empty: to the workspace of the original.

        `begin` makes the first step of a turn in the copy, which is stored in the same transaction.
        """
        now = self._clock()
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            copy = sessions.fork(
                self._rows, full, before=before, workspace=workspace, now=now, new_id=lambda: self._free_id(now)
            )
            self._copy_restrictions(full, copy.id)
            if begin is not None:
                step, via = begin(copy), self.surface
                turns.commit(self._rows, step, now=now, writer=self._writer, process=self._process(), via=via)
        if not self.unsaved:
            self.files.share(full, copy.id)
        return copy

    def _copy_restrictions(self, session_id: SessionId, copy: SessionId) -> None:
        """Store for a copy what was revoked for a session, and for its caller's session if it is a child."""
        sources = (sessions.info(self._rows, session_id).parent, session_id)
        for key in ("revoked", "sandbox"):
            found = [self._rows.one("SELECT value FROM settings WHERE key = ?", f"{key}:{of}") for of in sources]
            # Each setting has one change a line. The same one may be in both.
            values = [text(row[0]) for row in found if row]
            lines = dict.fromkeys(line for value in values for line in value.split("\n"))
            kept = "\n".join(line for line in lines if line and not _WIDENING_CHANGE.fullmatch(line))
            if kept:
                self._rows.upsert("settings", "key", key=f"{key}:{copy}", value=kept)

    def append_message(self, session_id: SessionId, message: Message, lease: str = "") -> None:
        """Add a message outside of any turn (the divider of a role switch) and move the head.

        `lease` is the token of the session's lease. Raises ConflictError if the session has another one.
        """
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            leases.must_not_be_taken(self._rows, full, lease)
            sessions.append_messages(self._rows, full, [message], now=self._clock())

    def history(self, session_id: SessionId, *, last: int | None = None) -> tuple[Message, ...]:
        """Return the messages up to the head, oldest first. A damaged one becomes a NoticeMessage.

        `last` limits them to that many of the newest ones.
        """
        with self._rows.read():
            full = sessions.full_id(self._rows, session_id)
            return messages.chain(self._rows, sessions.info(self._rows, full).head, last=last)

    def next_turn_id(self, session_id: SessionId) -> TurnId:
        """Return the id for the next turn: ``<session>.<n>``, never used before, not even by one never committed."""
        rows = self._rows
        with rows.write():
            full = sessions.full_id(rows, session_id)
            counter, last = rows.one("SELECT turn_counter, last_turn FROM sessions WHERE id = ?", full) or (0, None)
            number = max(integer(counter), turn_number(text_or(last, ""))) + 1
            while rows.one("SELECT 1 FROM turns WHERE turn_id = ?", f"{full}.{number}") is not None:
                number += 1
            rows.run("UPDATE sessions SET turn_counter = ? WHERE id = ?", number, full)
        return TurnId(f"{full}.{number}")

    def queue_message(self, session_id: SessionId, text: str, *, draft: ComposerDraft | None = None) -> None:
        """Queue a message that the user sent during a turn, and store the draft that it leaves."""
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            self._rows.must_be_own(full)
            self._rows.insert("queued_texts", session_id=full, text=text)
            if draft is not None:
                self._rows.put_setting(draft.setting, draft.text)

    def queued_messages(self, session_id: SessionId) -> tuple[str, ...]:
        """Return the queued messages, oldest first.

        The commit that starts a turn with the oldest one removes it (`TurnStep.takes_queued`), so that it is sent
        exactly once.
        """
        with self._rows.read():
            full = sessions.full_id(self._rows, session_id)
            found = self._rows.all("SELECT text FROM queued_texts WHERE session_id = ? ORDER BY seq", full)
        return tuple(text(queued) for (queued,) in found)

    def take_queued_message(
        self, session_id: SessionId, *, later: int = 0, only: str | None = None, into: str = ""
    ) -> str | None:
        """Remove and return a queued message: the newest one, or the one with `later` newer ones.

        In the same transaction, its text is stored as the setting `into`, if that is given.

        Returns None, and changes nothing, if there is no such message, or if it is not the text `only`. Raises
        NoSuchSessionError.
        """
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            sql = "SELECT seq, text FROM queued_texts WHERE session_id = ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
            number, found = self._rows.one(sql, full, later) or (None, None)
            if found is None or only not in (None, found):
                return None
            self._rows.run("DELETE FROM queued_texts WHERE seq = ?", number)
            if into:
                self._rows.put_setting(into, text(found))
            return text(found)

    def setting(self, key: str) -> str | None:
        """Return a setting of the application, or None: last role of a workspace, default model, drafts."""
        with self._rows.query():
            row = self._rows.one("SELECT value FROM settings WHERE key = ?", self._rows.setting_key(key))
        return None if row is None else text(row[0])

    def set_setting(self, key: str, value: str) -> None:
        """Store a setting."""
        with self._rows.write():
            self._rows.put_setting(key, value)

    def data_version(self) -> int:
        """Return a number that changes when another connection has written: a cheap hint for polling."""
        return self._rows.changes()

    def listen(self, wake: Callable[[], object], *names: str) -> Callable[[], object]:
        """Call `wake` in a thread when another process may have changed a name, see `Connection.listen`."""
        return self._rows.listen(wake, *names)

    def save(self) -> None:
        """Store what only this process has because the file could not be written. Then `unsaved` is empty.

        Has no effect in a store that is saved, or that lost its file. Raises StoreError if it is still not possible.
        """
        from chatops.store.late_file import LateFile

        if isinstance(self._rows, LateFile):
            for copy, source in self._rows.save(must_be_free=self._must_be_free):
                self.files.share(source, copy)

    def close(self) -> None:
        """Close the store. Idempotent."""
        self._rows.close()

    def _must_be_free(self, lease: LeaseRow | None, session_id: SessionId) -> None:
        must_be_free(lease, self._process(), session_id=session_id, now=self._clock(), alive=self._alive)

    def _free_id(self, now: float) -> SessionId:
        for _ in range(100):
            session_id = self._new_id(now)
            if not sessions.exists(self._rows, session_id):
                return session_id
        raise StoreError("No free session id was found.", advice="Try again.")

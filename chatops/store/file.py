"""The store's file while it is in use: repaired if damaged, written again if deleted.

If another file was put at its path, the open sessions continue in memory. Each of these is reported. No row is ever
written to a file that has lost its name.

A store in memory moves into its file as soon as that can be written.

Theory of operation

The store starts as a copy of the file's sessions, or empty if the file cannot be read. No turn of the file can be
resumed in it, see `recovery.copy_sessions`. What the copy was like, and the numbers of its last rows, are kept beside
it (`_KEEP_COPY`), and tell what was changed and added here since.

`save` opens the file like any process that starts, attaches both to it, and moves in one transaction of the file what
was added. The lock of the connection is held from the moment at which it is read to the exchange of the two databases,
so that nothing is written here in between. A process that is killed has moved all of it or nothing.

Nothing that another process stored is overwritten. A session that was opened or changed here must be in the file as it
was copied, without an unfinished turn or run, queued messages, or another living owner. Rows are inserted and never
replaced: a name that was taken meanwhile, or a message whose parent is missing, undoes all of it. Then everything stays
in memory, because the sessions here would continue from a state that is not the stored one. A setting that was changed
in the file stays as it is there.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.config.failpoints import reach
from chatops.domain.errors import NotSavedError, SessionHeldError, StoreError, UnreadableError
from chatops.domain.ids import SessionId
from chatops.store import leases
from chatops.store.base import SAVED
from chatops.store.connection import Connection, connect, prepare, text
from chatops.store.opening import (
    OPEN_HERE,
    OpenedFile,
    disown,
    inode_of,
    is_sound,
    locked,
    must_have_room,
    open_file,
    stands_for,
    uri,
)
from chatops.store.recovery import free_name, new_file, repair
from chatops.store.sqlite_errors import is_damage, refused_by_the_system, translate_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chatops.store.base import LeaseRow

log = logging.getLogger(__name__)


REPLACED = "the session store was replaced"
"""Value of `Store.unsaved` while the open sessions continue in memory."""


class StoreFile(Connection):
    """The open file of a user's store."""

    def __init__(self, path: Path, *, memory: Connection | None = None) -> None:
        """Open the file, or create it. With `memory`, these rows stand for a file that is not opened yet.

        What can be read of a damaged file is copied into a new one. The damaged file is quarantined, and `notices` says
        so.

        Raises StoreError, and UnreadableError for a file that must not be touched.
        """
        with translate_errors(path):
            opened = _open_or_repair(path) if memory is None else OpenedFile(raw=memory._raw)
        super().__init__(opened.raw, path=path, unsaved="" if memory is None else memory.unsaved)
        self._opened = opened
        OPEN_HERE[opened.file] += 1
        self.notices += opened.notices

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            if not self._closed:
                OPEN_HERE[self._opened.file] -= 1
            super().close()

    def _switch_to(self, opened: OpenedFile) -> None:
        self._raw.close()
        OPEN_HERE[self._opened.file] -= 1
        self._raw, self._opened = opened.raw, opened
        OPEN_HERE[opened.file] += 1
        self.notices += opened.notices

    def _continue_with(self, other: StoreFile) -> None:
        """Use the file that `other` has open, and which is only used here from now on."""
        self._switch_to(replace(other._opened, notices=tuple(other.notices)))
        OPEN_HERE[other._opened.file] -= 1
        self.unsaved = ""

    def changes(self) -> int:
        """Return the number of `Connection.changes` for the file at the path."""
        with self._lock, translate_errors(self.path):
            if not self._closed and not self._is_in_place():
                self._recover()
            return super().changes()

    def _begin(self, begin: str) -> None:
        """Begin a transaction on the file at the path: rows written to any other file would be lost."""
        super()._begin(begin)
        # Checked only now that this process holds the lock: a process that replaces the file waits for the lock before
        # it reads the old one.
        if self._is_in_place():
            return
        self._raw.execute("ROLLBACK")
        self._recover()
        super()._begin(begin)

    def _failed(self, error: sqlite3.Error) -> None:
        """Repair a file that turned out to be damaged, then raise NotSavedError: the request may be repeated."""
        if self.unsaved or not is_damage(error):
            return
        log.warning("damage was found in %s: %s", self.path, error)
        try:
            notices = repair(self.path)
            self._switch_to(open_file(self.path))
        except (StoreError, sqlite3.Error) as failure:
            log.warning("it could not be repaired: %s", failure)
            return
        self.notices += notices
        text = " ".join(notices) or f"The session store {self.path} was damaged; another chatops has repaired it."
        raise NotSavedError(text, advice="Try again.", reason="session store damaged") from error

    def _is_in_place(self) -> bool:
        """Return True if the file, its log and the log's index still have their names.

        A process that opens the file without its log sees an old state. A process that creates another index is not
        kept from writing at the same time.
        """
        return bool(self.unsaved) or all(inode_of(path) == known for path, known in self._opened.inodes)

    def _recover(self) -> None:
        """Handle a file or log that was deleted or replaced. Raises NotSavedError if nothing can be written."""
        try:
            with locked(self.path.parent, alone=True):
                if self._is_in_place():
                    return
                notice = self._recover_name()
        except OSError as error:
            raise refused_by_the_system(error, path=self.path) from error
        if not self.unsaved:
            self._switch_to(open_file(self.path))
        log.warning("%s", notice)
        self.notices.append(notice)

    def _recover_name(self) -> str:
        """Handle a file whose name, or that of its log, is gone or belongs to another file. Return the notice."""
        if self._is_successor_in_place():
            return "Another chatops has repaired the session store or written it again. It is used from now on."
        lost = [path for path, known in self._opened.inodes if inode_of(path) != known]
        if not any(map(Path.exists, lost)):
            self._copy_to(self.path)
            what = "The session store" if self.path in lost else f"{self.path}-wal or -shm"
            return (
                f"{what} was deleted while chatops ran; it was written again from what was still open: {self.path}. "
                "To delete sessions: chatops sessions delete SESSION"
            )
        kept = free_name(self.path, "old")
        self._copy_to(kept)
        self._continue_in_memory(kept)
        return (
            "The session store was replaced while chatops ran. What is open here continues in memory and is not saved; "
            f"start chatops again to use the new store. What was in the old one: chatops sessions list --store {kept}"
        )

    def _is_successor_in_place(self) -> bool:
        """Return True if another process has put a repaired or newly written store at the path of this one."""
        identity = self._opened.identity
        if identity is None or inode_of(self.path) in (None, self._opened.file):
            return False
        try:
            if not is_sound(self.path):
                return False
            with closing(connect(uri(self.path, mode="ro"))) as other:
                return stands_for(other, identity)
        except UnreadableError:
            # A store of a newer version, or of another program. It stays where it is.
            return False

    def _copy_to(self, path: Path) -> None:
        """Write all rows to a new file at `path`, and remove the log: it would be read into whichever file is there."""
        # Wait for a writer that began before the file went away. Every later one finds it gone.
        with suppress(sqlite3.Error):
            self._raw.execute("BEGIN IMMEDIATE")
            self._raw.execute("ROLLBACK")
        with new_file(path, stands_for=self._opened.identity) as (raw, put_in_place):
            self._raw.backup(raw)
            for beside, known in self._opened.inodes[1:]:
                if inode_of(beside) == known:
                    beside.unlink()
            put_in_place()

    def _continue_in_memory(self, kept: Path) -> None:
        with closing(connect(kept)) as raw:
            disown(raw)
        memory = connect(":memory:")
        self._raw.backup(memory)
        self._raw.close()
        self._raw = prepare(memory)
        self.unsaved = REPLACED


def _open_or_repair(path: Path) -> OpenedFile:
    try:
        return open_file(path)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        log.warning("%s is damaged: %s", path, error)
    notices = repair(path)
    opened = open_file(path)
    return replace(opened, notices=(*notices, *opened.notices))


_TABLES = {
    "messages": "seq",
    "turns": "",
    "turn_grants": "seq",
    "journal": "seq",
    "pending": "seq",
    "posted": "seq",
    "decisions": "seq",
    "audit": "seq",
    "rules": "id",
    "queued_texts": "seq",
    "runs": "",
    "posted_reviews": "seq",
}
"""Tables to which rows are added, parents first, each with its row number; without one, all of its rows are new."""
_USER_COLUMNS = ("title", "role", "model_pin", "persona")
"""Properties of a session that users change without a turn."""
_KEEP_COPY = (
    "ATTACH ':memory:' AS copied",
    "CREATE TABLE copied.sessions AS SELECT * FROM main.sessions",
    "CREATE TABLE copied.settings AS SELECT * FROM main.settings",
    "CREATE TABLE copied.last AS SELECT name, seq FROM main.sqlite_sequence",
)
"""The copy when it was made: its sessions, its settings, and the last row number of each table that has one."""
_USED_SESSIONS = """SELECT m.id, f.active_turn IS NOT NULL
        OR EXISTS (SELECT 1 FROM runs r WHERE r.session_id = f.id AND r.result = '')
        OR EXISTS (SELECT 1 FROM queued_texts q WHERE q.session_id = f.id),
        f.id IS NULL OR f.head IS NOT c.head OR f.activity <> c.activity OR EXISTS (
            SELECT 1 FROM (SELECT 'revoked:' || m.id AS key UNION SELECT 'sandbox:' || m.id)
            LEFT JOIN settings t USING (key) LEFT JOIN copied.settings o USING (key) WHERE t.value IS NOT o.value)
    FROM memory.sessions m JOIN copied.sessions c USING (id) LEFT JOIN sessions f USING (id)
    WHERE m.activity <> c.activity OR m.id IN (SELECT session_id FROM memory.leases
        UNION SELECT session_id FROM memory.queued_texts UNION SELECT session_id FROM memory.runs)"""
"""The copied sessions that were used in memory: if they have unfinished work in the file, if they differ there.

Tools that were revoked and changes of the sandbox count too: neither process knows those of the other.
"""


class LateFile(StoreFile):
    """The store of a file that could not be written when it was opened."""

    def __init__(self, memory: Connection, *, notice: str) -> None:
        """Use `memory`, a copy of the sessions of the file at its path, or an empty store.

        `notice` tells the user that nothing is saved.
        """
        super().__init__(memory.path, memory=memory)
        self.notices.append(notice)
        self._moved = False
        for statement in _KEEP_COPY:
            self._raw.execute(statement)

    def save(self, *, may_take: Callable[[LeaseRow | None, SessionId], None]) -> Sequence[tuple[SessionId, SessionId]]:
        """Move everything into the file and use it from now on. Returns the new copies of sessions, with their sources.

        `may_take` raises SessionHeldError unless this process may own the session with that lease. Has no effect if
        everything was moved already. Raises StoreError if it cannot be moved: then nothing is.
        """
        if self._moved:
            return ()
        try:
            return self._move(may_take)
        except NotSavedError as error:
            self.unsaved = error.reason
            raise

    def _move(self, may_take: Callable[[LeaseRow | None, SessionId], None]) -> Sequence[tuple[SessionId, SessionId]]:
        must_have_room(self.path)
        file = StoreFile(self.path)
        try:
            with self._lock, translate_errors(self.path):
                self._must_be_open()
                for name, content in (("memory", "main"), ("copied", "copied")):
                    file._raw.execute(f"ATTACH ':memory:' AS {name}")
                    file._raw.deserialize(self._raw.serialize(name=content), name=name)
                with file.write():
                    if file.unsaved:
                        raise NotSavedError("Not saved: the session store was replaced.", reason=file.unsaved)
                    _check_unchanged(file, may_take)
                    copies = _move_sessions(file)
                    _add_rows(file)
                    reach("in_late_save")
                for name in ("memory", "copied"):
                    file._raw.execute(f"DETACH {name}")
                self._continue_with(file)
                self._moved = True
                # Sessions that are opened later show the notices too.
                self.notices[0] = SAVED
                return copies
        except BaseException as error:
            file.close()
            if isinstance(error, StoreError) and isinstance(error.__cause__, sqlite3.IntegrityError):
                raise _not_moved("what it continues was changed by another chatops") from error
            raise


def _check_unchanged(file: Connection, may_take: Callable[[LeaseRow | None, SessionId], None]) -> None:
    """Raise NotSavedError if a session that was used here differs in the file, or has an owner there."""
    for id_, unfinished, differs in file.all(_USED_SESSIONS):
        session_id = SessionId(text(id_))
        if unfinished:
            raise _not_moved(f"session {session_id} has a pending call or other unfinished work in the store")
        if differs:
            raise _not_moved(f"session {session_id} was changed or deleted by another chatops")
        try:
            may_take(leases.stored(file, session_id), session_id)
        except SessionHeldError as error:
            raise NotSavedError(
                f"Not saved: {error}",
                advice="Close it there, or keep what was said here with /export.",
                reason=f"session {session_id} is open in another chatops",
                says_so=True,
            ) from error


def _move_sessions(file: Connection) -> list[tuple[SessionId, SessionId]]:
    """Insert new sessions, and update the others, in the order of their last use. Returns the new copies."""
    names = _columns(file, "sessions", without="seq")
    new = "FROM memory.sessions WHERE id NOT IN (SELECT id FROM copied.sessions)"
    file.run(f"INSERT INTO sessions ({names}) SELECT {names} {new}")
    both = "FROM memory.sessions m JOIN copied.sessions c USING (id) WHERE sessions.id = m.id"
    for name in _USER_COLUMNS:
        file.run(f"UPDATE sessions SET {name} = m.{name} {both} AND m.{name} IS NOT c.{name}")
    file.run(
        "UPDATE sessions SET head = m.head, active_turn = m.active_turn, turn_counter = m.turn_counter, "
        "message_count = m.message_count, updated_at = m.updated_at, "
        # The copy was made without it.
        f"last_turn = coalesce(m.last_turn, sessions.last_turn) {both} AND m.activity <> c.activity"
    )
    used = (
        "SELECT m.id FROM memory.sessions m LEFT JOIN copied.sessions c USING (id) WHERE m.activity IS NOT c.activity"
    )
    for (id_,) in file.all(f"{used} ORDER BY m.activity"):
        file.run("UPDATE sessions SET activity = (SELECT max(activity) + 1 FROM sessions) WHERE id = ?", id_)
    copies = file.all(f"SELECT id, forked_from {new} AND forked_from IS NOT NULL ORDER BY activity")
    return [(SessionId(text(copy)), SessionId(text(source))) for copy, source in copies]


def _add_rows(file: Connection) -> None:
    for table, key in _TABLES.items():
        names = _columns(file, table, without=key)
        last = f"coalesce((SELECT seq FROM copied.last WHERE name = '{table}'), 0)"
        added = f"WHERE {key} > {last} ORDER BY {key}" if key else ""
        file.run(f"INSERT INTO {table} ({names}) SELECT {names} FROM memory.{table} {added}")
    file.run("INSERT OR REPLACE INTO leases SELECT * FROM memory.leases")
    # A setting that was changed in the file stays as it is there.
    file.run(
        "INSERT OR REPLACE INTO settings SELECT key, m.value FROM memory.settings m "
        "LEFT JOIN copied.settings c USING (key) LEFT JOIN settings f USING (key) "
        "WHERE m.value IS NOT c.value AND f.value IS c.value"
    )


def _columns(file: Connection, table: str, *, without: str) -> str:
    names = file.all("SELECT name FROM pragma_table_info(?) WHERE name <> ?", table, without)
    return ", ".join(text(name) for (name,) in names)


def _not_moved(why: str) -> NotSavedError:
    return NotSavedError(
        f"Not saved: {why}.",
        advice="Keep what was said here with /export, then start chatops again.",
        reason=why,
        says_so=True,
    )

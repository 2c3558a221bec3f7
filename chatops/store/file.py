"""The store's file while it is in use: repaired if damaged, written again if deleted.

If another file was put at its path, the open sessions continue in memory. Each of these is reported. No row is ever
written to a file that has lost its name.

A store in memory moves into its file as soon as that can be written.

Theory of operation

The store starts as a copy of the file's sessions, or empty if the file cannot be read. No turn of the file can be
resumed in it, see `recovery.sessions_of`. The numbers of the last copied rows tell what was added here since.

`save` opens the file like any process that starts, and adds these rows in one transaction of the file. The lock of the
connection is held from the first row that is read to the exchange of the two databases, so that nothing is written here
in between. A process that is killed has moved all of it or nothing.

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.config.failpoints import reach
from chatops.domain.errors import NotSavedError, SessionHeldError, StoreError, UnreadableError
from chatops.domain.ids import SessionId
from chatops.store import leases
from chatops.store.base import SAVED
from chatops.store.connection import (
    Connection,
    SqlRow,
    Value,
    connect,
    integer,
    is_damage,
    prepared,
    refused_by_the_system,
    text,
    translated,
)
from chatops.store.opening import (
    OPEN_HERE,
    OpenedFile,
    disown,
    inode_of,
    locked,
    must_have_room,
    open_file,
    sound,
    stands_for,
    uri,
)
from chatops.store.recovery import free_name, new_file, repair

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
        with translated(path):
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

    def pragma(self, name: str) -> SqlRow | None:
        """Return the value of a pragma of the file at the path, outside of any transaction."""
        with self._lock, translated(self.path):
            if not self._closed and not self._is_in_place():
                self._recover()
            return super().pragma(name)

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
        if self._stands_there():
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

    def _stands_there(self) -> bool:
        """Return True if another process has put a repaired or newly written store at the path of this one."""
        identity = self._opened.identity
        if identity is None or inode_of(self.path) in (None, self._opened.file):
            return False
        try:
            if not sound(self.path):
                return False
            with closing(connect(uri(self.path, mode="ro"))) as other:
                return stands_for(other, identity)
        except UnreadableError:
            # A store of a newer version, or of another program. It stays where it is.
            return False

    def _copy_to(self, path: Path) -> None:
        """Write all rows to a new file at `path`, and remove the log: it would be read into whichever file is there."""
        # A writer that began before the file went away has finished then, and every later one finds it gone.
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
        self._raw = prepared(memory)
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
    "rules": "id",
    "queued_texts": "seq",
    "runs": "",
    "posted_reviews": "seq",
}
"""Tables to which rows are added, parents first, each with its row number; without one, all of its rows are new."""
_SETTINGS = ("title", "role", "model_pin", "persona")
"""Properties of a session that users change without a turn."""
_PROGRESS = ("head", "active_turn", "turn_counter", "message_count", "updated_at")
_USED = "SELECT session_id FROM leases UNION SELECT session_id FROM queued_texts UNION SELECT session_id FROM runs"
_STORED = """SELECT head, activity, active_turn IS NOT NULL
    OR EXISTS (SELECT 1 FROM runs r WHERE r.session_id = s.id AND r.result = '')
    OR EXISTS (SELECT 1 FROM queued_texts q WHERE q.session_id = s.id)
    FROM sessions s WHERE id = ?"""

Row = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copied:
    """The copy when it was made."""

    sessions: Mapping[Value, Row]
    settings: Mapping[Value, Value]
    last: Mapping[str, int]
    """The last row number of each table that has one."""


class LateFile(StoreFile):
    """The store of a file that could not be written when it was opened."""

    def __init__(self, memory: Connection, *, notice: str) -> None:
        """Use `memory`, a copy of the sessions of the file at its path, or an empty store.

        `notice` tells the user that nothing is saved.
        """
        super().__init__(memory.path, memory=memory)
        self.notices.append(notice)
        self._copied: _Copied | None = _Copied(
            sessions={row["id"]: row for row in _named(memory, "SELECT * FROM sessions")},
            settings=_settings(memory),
            last={table: _last(memory, table, key) for table, key in _TABLES.items() if key},
        )

    def save(self, *, may_take: Callable[[LeaseRow | None, SessionId], None]) -> Sequence[tuple[SessionId, SessionId]]:
        """Move everything into the file and use it from now on. Returns the new copies of sessions, with their sources.

        `may_take` raises SessionHeldError unless this process may own the session with that lease. Has no effect if
        everything was moved already. Raises StoreError if it cannot be moved: then nothing is.
        """
        if self._copied is None:
            return ()
        try:
            return self._move(self._copied, may_take)
        except NotSavedError as error:
            self.unsaved = error.reason
            raise

    def _move(
        self, copied: _Copied, may_take: Callable[[LeaseRow | None, SessionId], None]
    ) -> Sequence[tuple[SessionId, SessionId]]:
        must_have_room(self.path)
        file = StoreFile(self.path)
        try:
            with self._lock:
                self._must_be_open()
                with file.write():
                    if file.unsaved:
                        raise NotSavedError("Not saved: the session store was replaced.", reason=file.unsaved)
                    _check_used(self, file, copied, may_take)
                    copies = _move_sessions(self, file, copied)
                    _add_rows(self, file, copied)
                    reach("in_late_save")
                self._continue_with(file)
                self._copied = None
                # Sessions that are opened later show the notices too.
                self.notices[0] = SAVED
                return copies
        except BaseException as error:
            file.close()
            if isinstance(error, StoreError) and isinstance(error.__cause__, sqlite3.IntegrityError):
                raise _kept_back("what it continues was changed by another chatops") from error
            raise


def _check_used(
    memory: Connection, file: Connection, copied: _Copied, may_take: Callable[[LeaseRow | None, SessionId], None]
) -> None:
    """Raise NotSavedError if a session that was used here is not in the file as it was copied, or has an owner there.

    Tools that were revoked and changes of the sandbox count too: neither process knows those of the other.
    """
    used = {row[0] for row in memory.all(_USED)}
    settings = _settings(file)
    for row in _named(memory, "SELECT * FROM sessions"):
        before = copied.sessions.get(row["id"])
        if before is None or (row["activity"] == before["activity"] and row["id"] not in used):
            continue
        session_id = SessionId(text(row["id"]))
        stored = file.one(_STORED, session_id)
        if stored is not None and stored[2]:
            raise _kept_back(f"session {session_id} has a pending call or other unfinished work in the store")
        rights = (f"revoked:{session_id}", f"sandbox:{session_id}")
        if (
            stored is None
            or stored[:2] != (before["head"], before["activity"])
            or any(settings.get(name) != copied.settings.get(name) for name in rights)
        ):
            raise _kept_back(f"session {session_id} was changed or deleted by another chatops")
        try:
            may_take(leases.stored(file, session_id), session_id)
        except SessionHeldError as error:
            raise NotSavedError(
                f"Not saved: {error}",
                advice="Close it there, or keep what was said here with /export.",
                reason=f"session {session_id} is open in another chatops",
                says_so=True,
            ) from error


def _move_sessions(memory: Connection, file: Connection, copied: _Copied) -> list[tuple[SessionId, SessionId]]:
    """Insert new sessions, in the order of their last use, and update the others. Returns the new copies."""
    copies: list[tuple[SessionId, SessionId]] = []
    for row in _named(memory, "SELECT * FROM sessions ORDER BY activity"):
        before = copied.sessions.get(row["id"])
        (activity,) = file.all("SELECT coalesce(max(activity), 0) + 1 FROM sessions")[0]
        if before is None:
            if row["forked_from"] is not None:
                copies.append((SessionId(text(row["id"])), SessionId(text(row["forked_from"]))))
            file.insert("sessions", **_without(row, "seq") | {"activity": activity})
            continue
        changes = {name: row[name] for name in _SETTINGS if row[name] != before[name]}
        if row["activity"] != before["activity"]:
            changes |= {name: row[name] for name in _PROGRESS} | {"activity": activity}
            # The copy was made without it.
            changes |= {} if row["last_turn"] is None else {"last_turn": row["last_turn"]}
        if changes:
            sets = ", ".join(f"{name} = ?" for name in changes)
            file.run(f"UPDATE sessions SET {sets} WHERE id = ?", *changes.values(), row["id"])
    return copies


def _add_rows(memory: Connection, file: Connection, copied: _Copied) -> None:
    for table, key in _TABLES.items():
        added = f" WHERE {key} > {copied.last[table]} ORDER BY {key}" if key else ""
        for row in _named(memory, f"SELECT * FROM {table}{added}"):
            file.insert(table, **_without(row, key))
    for row in _named(memory, "SELECT * FROM leases"):
        file.upsert("leases", "session_id", **row)
    stored = _settings(file)
    for name, value in _settings(memory).items():
        before = copied.settings.get(name)
        if value != before and stored.get(name) == before:
            file.upsert("settings", "key", key=name, value=value)


def _named(rows: Connection, sql: str) -> list[Row]:
    """Return the rows of a query with the names of their columns."""
    cursor = rows.run(sql)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _settings(rows: Connection) -> dict[Value, Value]:
    return {row[0]: row[1] for row in rows.all("SELECT key, value FROM settings")}


def _last(rows: Connection, table: str, key: str) -> int:
    return integer(rows.all(f"SELECT coalesce(max({key}), 0) FROM {table}")[0][0])


def _without(row: Row, name: str) -> Row:
    return {column: value for column, value in row.items() if column != name}


def _kept_back(why: str) -> NotSavedError:
    return NotSavedError(
        f"Not saved: {why}.",
        advice="Keep what was said here with /export, then start chatops again.",
        reason=why,
        says_so=True,
    )

"""The store of a file that could not be written when it was opened: in memory, until it moves into the file.

Theory of operation

The store starts as a copy of the file's sessions, or empty if the file cannot be read. No turn of the file can be
resumed in it, see `recovery.copy_without_turns`. The copy as it was made, with the numbers of its last rows, is kept
too (`_REMEMBER_COPY`), and tells what was changed and added here since.

`save` opens the file like any process that starts, and attaches the rows in memory and the copy as it was made. In one
transaction of the file, it moves what was added. The lock of the connection is held from the reading of these rows to
the exchange of the two databases, so that nothing is written here in between. A process that is killed has moved all of
it or nothing.

Nothing that another process stored is overwritten. A session that was opened or changed here must be in the file as it
was copied, without an unfinished turn or run, queued messages, or another living owner. Rows are inserted and never
replaced: a name that was taken meanwhile, or a message whose parent is missing, undoes all of it. Then everything stays
in memory, because the sessions here would continue from a state that is not the stored one. A setting that was changed
in the file stays as it is there.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from chatops.config.failpoints import reach
from chatops.domain.errors import NotSavedError, SessionHeldError, StoreError
from chatops.domain.ids import SessionId
from chatops.store import leases
from chatops.store.base import SAVED
from chatops.store.connection import Connection, text
from chatops.store.opening import must_have_room
from chatops.store.sqlite_errors import translate_errors
from chatops.store.store_file import StoreFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chatops.store.base import LeaseRow

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
_REMEMBER_COPY = (
    "ATTACH ':memory:' AS copied",
    "CREATE TABLE copied.sessions AS SELECT * FROM main.sessions",
    "CREATE TABLE copied.settings AS SELECT * FROM main.settings",
    "CREATE TABLE copied.last AS SELECT name, seq FROM main.sqlite_sequence",
)
"""The copy when it was made: its sessions, its settings, and the last row number of each table that has one."""
_USED_SESSIONS = """SELECT m.id,
        f.active_turn IS NOT NULL
            OR EXISTS (SELECT 1 FROM runs r WHERE r.session_id = f.id AND r.result = '')
            OR EXISTS (SELECT 1 FROM queued_texts q WHERE q.session_id = f.id) AS unfinished,
        f.id IS NULL OR f.head IS NOT c.head OR f.activity <> c.activity OR EXISTS (
            SELECT 1 FROM (SELECT 'revoked:' || m.id AS key UNION SELECT 'sandbox:' || m.id)
            LEFT JOIN settings t USING (key) LEFT JOIN copied.settings o USING (key) WHERE t.value IS NOT o.value
        ) AS differs
    FROM memory.sessions m JOIN copied.sessions c USING (id) LEFT JOIN sessions f USING (id)
    WHERE m.activity <> c.activity OR m.id IN (SELECT session_id FROM memory.leases
        UNION SELECT session_id FROM memory.queued_texts UNION SELECT session_id FROM memory.runs)"""
"""Query: the copied sessions that were used in memory. `unfinished`: there is unfinished work in the file. `differs`:
the session in the file is not the copied one any more.

Tools that were revoked and changes of the sandbox count too: neither process knows those of the other.

In all queries here, `m` is a row in memory, `c` the same row in the copy as it was made, and `f` in the file.
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
        for statement in _REMEMBER_COPY:
            self._raw.execute(statement)

    def save(
        self, *, must_be_free: Callable[[LeaseRow | None, SessionId], None]
    ) -> Sequence[tuple[SessionId, SessionId]]:
        """Move everything into the file and use it from now on. Returns the new copies of sessions, with their sources.

        `must_be_free` raises SessionHeldError unless this process may own the session with that lease. Has no effect if
        everything was moved already. Raises StoreError if it cannot be moved: then nothing is.
        """
        if self._moved:
            return ()
        try:
            return self._move(must_be_free)
        except NotSavedError as error:
            self.unsaved = error.reason
            raise

    def _move(
        self, must_be_free: Callable[[LeaseRow | None, SessionId], None]
    ) -> Sequence[tuple[SessionId, SessionId]]:
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
                    _must_be_unchanged(file, must_be_free)
                    copies = _move_sessions(file)
                    _add_rows(file)
                    reach("in_late_save")
                for name in ("memory", "copied"):
                    file._raw.execute(f"DETACH {name}")
                self._continue_with(file)
                self._moved = True
                # In place of the first notice, as sessions that are opened later show the notices too.
                self.notices[0] = SAVED
                return copies
        except BaseException as error:
            file.close()
            if isinstance(error, StoreError) and isinstance(error.__cause__, sqlite3.IntegrityError):
                raise _not_saved_error("what it continues was changed by another chatops") from error
            raise


def _must_be_unchanged(file: Connection, must_be_free: Callable[[LeaseRow | None, SessionId], None]) -> None:
    """Raise NotSavedError if a session that was used here differs in the file, or has an owner there."""
    for id_, unfinished, differs in file.all(_USED_SESSIONS):
        session_id = SessionId(text(id_))
        if unfinished:
            raise _not_saved_error(f"session {session_id} has a pending call or other unfinished work in the store")
        if differs:
            raise _not_saved_error(f"session {session_id} was changed or deleted by another chatops")
        try:
            must_be_free(leases.stored(file, session_id), session_id)
        except SessionHeldError as error:
            raise NotSavedError(
                f"Not saved: {error}",
                advice="Close it there, or keep what was said here with /export.",
                reason=f"session {session_id} is open in another chatops",
                says_so=True,
            ) from error


def _move_sessions(file: Connection) -> list[tuple[SessionId, SessionId]]:
    """Insert new sessions, and update the others, in the order of their last use. Returns the new copies."""
    names = _list_columns(file, "sessions", without="seq")
    new = "FROM memory.sessions WHERE id NOT IN (SELECT id FROM copied.sessions)"
    file.run(f"INSERT INTO sessions ({names}) SELECT {names} {new}")
    both = "FROM memory.sessions m JOIN copied.sessions c USING (id) WHERE sessions.id = m.id"
    for name in _USER_COLUMNS:
        file.run(f"UPDATE sessions SET {name} = m.{name} {both} AND m.{name} IS NOT c.{name}")
    file.run(
        "UPDATE sessions SET head = m.head, active_turn = m.active_turn, turn_counter = m.turn_counter, "
        "message_count = m.message_count, updated_at = m.updated_at, "
        # The copy was made without last turns.
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
    """Insert the rows that were added in memory to tables other than `sessions`, and the settings changed there."""
    for table, key in _TABLES.items():
        names = _list_columns(file, table, without=key)
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


def _list_columns(file: Connection, table: str, *, without: str) -> str:
    names = file.all("SELECT name FROM pragma_table_info(?) WHERE name <> ?", table, without)
    return ", ".join(text(name) for (name,) in names)


def _not_saved_error(why: str) -> NotSavedError:
    return NotSavedError(
        f"Not saved: {why}.",
        advice="Keep what was said here with /export, then start chatops again.",
        reason=why,
        says_so=True,
    )

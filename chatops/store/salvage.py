"""Copying what can still be read of a damaged database into another one.

Each table is read from both ends up to a damaged place. Messages, sessions, decisions and settings that cannot be read
are taken from the backup, if there is one. Turns and pending calls never are: they may have been finished since. A turn
whose stored state is lost is over, so that none of its calls can run. A message whose parent is lost follows the one
before it in its session.

Rows are read through SQL only. Reading them off raw pages, and trying row numbers one by one between two damaged
places, was tried: it recovered little more, and took a second reader of the file format.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import closing, suppress
from enum import Enum, auto
from typing import TYPE_CHECKING

from chatops.domain.errors import StoreError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import plural
from chatops.store.connection import bind, connect, prepare, transaction
from chatops.store.identity import COPIED, IDENTITY_KEY
from chatops.store.opening import must_be_ours, uri

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
_COLUMNS = "SELECT name, pk FROM pragma_table_info(?)"
HISTORY_TABLES = ("messages", "sessions", "turns", "turn_grants", "decisions", "audit", "settings")
"""Tables of messages and decisions. Without leases, journal and rules no turn can be resumed from them."""
_FROM_BACKUP = {
    "messages": "TRUE",
    "sessions": "TRUE",
    "decisions": "TRUE",
    "audit": "TRUE",
    "settings": f"key <> '{IDENTITY_KEY}' AND substr(key, 1, {len(COPIED)}) <> '{COPIED}' AND key NOT LIKE 'sandbox:%'",
}
"""Tables that are completed from the backup, with the rows that may be taken.

A session's sandbox is not taken: it may have been narrowed since.
"""


@frozen_dataclass
class Salvage:
    """Counts of what was copied, and of what could not be."""

    sessions: int
    messages: int
    turns: int = 0
    """Unfinished turns that cannot be resumed."""
    restored: int = 0
    """Messages that only the backup had."""
    whole: bool = True
    """True if every table could be read to its end."""

    @property
    def text(self) -> str:
        """The salvage as one sentence for the user."""
        if not self.sessions and not self.messages:
            return "There was nothing in it." if self.whole else "Nothing of it could be read."
        parts = [f"{plural(self.sessions, 'session')} with {plural(self.messages, 'message')} could be read"]
        if self.restored:
            parts.append(f"{plural(self.restored, 'message')} come from the backup")
        if self.turns:
            parts.append(
                f"{plural(self.turns, 'unfinished turn')} could not be restored: pending calls there do not run"
            )
        elif not self.whole:
            parts.append("some rows could not")
        return "; ".join(parts) + "."


def copy_readable(
    source: sqlite3.Connection, target: sqlite3.Connection, *, backup: Path, tables: Sequence[str] = ()
) -> Salvage:
    """Copy what can be read of `source` into `target`, an empty store of the current version, in one transaction.

    `backup` is the backup of `source`, which need not exist. Only `tables` are copied; empty: all of them. Both
    connections come from `connection.prepare`. Raises sqlite3.Error only if `target` fails.
    """
    broken = _skip_broken_schema(source)
    every = [str(name) for (name,) in target.execute(_TABLES)]
    with transaction(target, unchecked=True):
        read = {name: _copy_table(source, target, name, broken=broken) for name in tables or every}
        turns = _end_lost_turns(target)
        messages = _read_number(target, "SELECT count(*) FROM messages")
        sessions = [str(id_) for (id_,) in target.execute("SELECT id FROM sessions")]
        if lost := [name for name in _FROM_BACKUP if not read.get(name, True)]:
            _copy_from_backup(backup, target, lost)
        restored = _read_number(target, "SELECT count(*) FROM messages") - messages
        if not read["sessions"]:
            _restore_sessions(target, known=sessions)
        _join_messages(target)
        return Salvage(
            sessions=_read_number(target, "SELECT count(*) FROM sessions WHERE head IS NOT NULL"),
            messages=messages + restored,
            turns=turns,
            restored=restored,
            whole=all(read.values()),
        )


def _skip_broken_schema(source: sqlite3.Connection) -> bool:
    """Let SQLite leave out the tables and indexes whose definition it cannot read. Returns True if there are any.

    One such definition would otherwise keep it from reading any table.
    """
    try:
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        with suppress(sqlite3.Error):
            source.execute("PRAGMA writable_schema = ON")
        return True
    return False


def _copy_table(
    source: sqlite3.Connection, target: sqlite3.Connection, name: str, *, where: str = "TRUE", broken: bool = False
) -> bool:
    """Copy the rows `where` a condition holds, from both ends of a table, each up to a damaged place.

    Return True if all of them could be read. A table that the source lacks counts as empty, unless the schema of the
    source is `broken`. Rows that the target has already stay as they are there.
    """
    in_target = {str(column): bool(is_key) for column, is_key in target.execute(_COLUMNS, (name,))}
    key = next(column for column, is_key in in_target.items() if is_key)
    try:
        in_source = {str(column) for column, _ in source.execute(_COLUMNS, (name,))}
    except sqlite3.Error:
        return False
    if key not in in_source:
        return not (in_source or broken)
    columns = [key, *(column for column in in_target if column in in_source - {key})]
    select = f"SELECT {', '.join(columns)} FROM {name} WHERE {where}"
    insert = f"INSERT OR IGNORE INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    forth = _copy_rows(source, target, key, select=select, insert=insert, upwards=True)
    if forth is _End.DAMAGED:
        _copy_rows(source, target, key, select=select, insert=insert, upwards=False)
    return forth is _End.WHOLE


class _End(Enum):
    """Reason why the copying of rows in one direction ended."""

    WHOLE = auto()
    LACKING = auto()
    """A row was refused: a column that must not be NULL is missing."""
    DAMAGED = auto()
    """At a damaged place."""


def _copy_rows(
    source: sqlite3.Connection, target: sqlite3.Connection, key: str, *, select: str, insert: str, upwards: bool
) -> _End:
    sign, order = (">", "ASC") if upwards else ("<", "DESC")
    after, last, end = "", tuple[object, ...](), _End.WHOLE
    while True:
        try:
            # One row at a time: in a larger batch, a damaged row would take the rows before it along.
            row = source.execute(f"{select}{after} ORDER BY {key} {order} LIMIT 1", last).fetchone()
        except sqlite3.Error:
            return _End.DAMAGED
        if row is None:
            return end
        if not target.execute(insert, tuple(map(bind, row))).rowcount:
            end = _End.LACKING
        # `+` compares a second time without the index: that of a damaged page may lead back to an earlier row.
        after, last = f" AND {key} {sign} ?1 AND +{key} {sign} ?1", (bind(row[0]),)


def _copy_from_backup(backup: Path, target: sqlite3.Connection, tables: Sequence[str]) -> None:
    """Add the rows of these tables that only the backup has."""
    if not backup.exists():
        return
    try:
        with closing(prepare(connect(uri(backup, mode="ro")))) as older:
            must_be_ours(older, backup)
            for name in tables:
                _copy_table(older, target, name, where=_FROM_BACKUP[name])
    except (sqlite3.Error, StoreError) as error:
        log.warning("the backup cannot be used: %s", error)


def _end_lost_turns(target: sqlite3.Connection) -> int:
    """Delete what refers to a turn or session that was not copied, and return how many turns were lost."""
    lost = "active_turn IS NOT NULL AND active_turn NOT IN (SELECT turn_id FROM turns)"
    turns = _read_number(target, f"SELECT count(*) FROM sessions WHERE {lost}")
    target.execute(f"UPDATE sessions SET active_turn = NULL WHERE {lost}")
    target.execute("UPDATE sessions SET last_turn = NULL WHERE last_turn NOT IN (SELECT turn_id FROM turns)")
    for table in ("turns", "turn_grants", "rules", "queued_texts", "leases", "runs", "jobs"):
        target.execute(f"DELETE FROM {table} WHERE session_id NOT IN (SELECT id FROM sessions)")
    for table in ("journal", "pending", "posted"):
        target.execute(f"DELETE FROM {table} WHERE turn_id NOT IN (SELECT turn_id FROM turns)")
    target.execute("DELETE FROM posted_reviews WHERE session_id NOT IN (SELECT session_id FROM runs)")
    return turns


def _restore_sessions(target: sqlite3.Connection, *, known: Sequence[str]) -> None:
    """Let sessions that are not `known` end with their last message, without a turn; create one for lone messages.

    A new turn gets a number above those of their messages: another one with its id would have the same messages.
    """
    target.execute(
        "INSERT INTO sessions (id, workspace, title, role, persona, message_count, activity, created_at, updated_at) "
        "SELECT session_id, '', '(recovered)', '', '', count(*), max(seq), min(created_at), max(created_at) "
        "FROM messages WHERE session_id NOT IN (SELECT id FROM sessions) GROUP BY session_id"
    )
    target.execute(
        "UPDATE sessions SET active_turn = NULL, last_turn = NULL, "
        "head = coalesce((SELECT id FROM messages WHERE session_id = sessions.id ORDER BY seq DESC LIMIT 1), head), "
        "turn_counter = max(turn_counter, (SELECT coalesce(max(CAST(substr(turn_id, length(session_id) + 2) "
        "AS INTEGER)), 0) FROM messages WHERE session_id = sessions.id)) "
        "WHERE id NOT IN (SELECT value FROM json_each(?))",
        (json.dumps(known),),
    )


def _join_messages(target: sqlite3.Connection) -> None:
    """Let a message whose parent is lost follow the one before it in its session."""
    last = "SELECT id FROM messages m WHERE m.session_id = {} ORDER BY m.seq DESC LIMIT 1"
    target.execute(
        f"UPDATE messages SET parent_id = ({last.format('messages.session_id AND m.seq < messages.seq')}) "
        "WHERE parent_id NOT IN (SELECT id FROM messages)"
    )
    target.execute(
        f"UPDATE sessions SET head = ({last.format('sessions.id')}) WHERE head NOT IN (SELECT id FROM messages)"
    )


def _read_number(target: sqlite3.Connection, sql: str) -> int:
    return int(target.execute(sql).fetchone()[0])

"""Copying open sessions from one store into another that is in use."""

import sqlite3

from chatops.store.connection import Value, bound
from chatops.store.place import COPIED
from chatops.store.transaction import transaction

_OPEN = (
    ("sessions", "id = ?1"),
    ("turns", "session_id = ?1"),
    ("journal", "turn_id IN (SELECT turn_id FROM turns WHERE session_id = ?1)"),
    ("pending", "session_id = ?1"),
    ("decisions", "session_id = ?1"),
    ("posted", "turn_id IN (SELECT turn_id FROM turns WHERE session_id = ?1)"),
    ("grants", "session_id = ?1"),
    ("queued_texts", "session_id = ?1"),
    ("leases", "session_id = ?1"),
    ("runs", "session_id = ?1"),
    ("words", "session_id = ?1"),
    ("settings", f"key IN (SELECT '{COPIED}' || turn_id FROM turns WHERE session_id = ?1)"),
)
"""Rows of one session, besides its messages. Turns come before the tables that are found through them."""
_STEPS = "SELECT turn_id, seq, fingerprint FROM turns"
_HOLDERS = "SELECT host, pid, boot_id, pid_started FROM leases WHERE session_id = ?"
_MESSAGES_OF = """id IN (
    WITH RECURSIVE chain(id, parent_id) AS (
        SELECT m.id, m.parent_id FROM messages m JOIN sessions s ON s.head = m.id WHERE s.id = ?1
        UNION SELECT m.id, m.parent_id FROM chain c JOIN messages m ON m.id = c.parent_id
    ) SELECT id FROM chain
)"""


def carry_open(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy the open sessions of `source` (those with a lease) into `target`, a store in use, in one transaction.

    A session that `target` has already is kept as it is there, unless that is an earlier state of the same session, as
    in a copy that was made then and put back. Otherwise work done since would be asked about, and done, once more.

    Both stores have the current version. Raises sqlite3.Error.
    """
    driven = [row[0] for row in source.execute("SELECT session_id FROM leases").fetchall()]
    with transaction(target, unchecked=True):
        for session_id in driven:
            if not _goes_further(source, target, session_id):
                continue
            for table, chosen in reversed(_OPEN):
                target.execute(f"DELETE FROM {table} WHERE {chosen}", (session_id,))
            for table, chosen in (("messages", _MESSAGES_OF), *_OPEN):
                _copy_chosen(source, target, table, chosen, session_id)


def _goes_further(source: sqlite3.Connection, target: sqlite3.Connection, session_id: Value) -> bool:
    """Return True if `target` has nothing of a session that `source` lacks."""
    there = target.execute("SELECT head FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if there is None:
        return True
    said = {row[0] for row in source.execute(f"SELECT id FROM messages WHERE {_MESSAGES_OF}", (session_id,))}
    return (
        (there[0] is None or there[0] in said)
        and _each(target, _HOLDERS, session_id) <= _each(source, _HOLDERS, session_id)
        and all(
            _reached(source, row, session_id) for row in target.execute(f"{_STEPS} WHERE session_id = ?", (session_id,))
        )
    )


def _reached(source: sqlite3.Connection, step: tuple[Value, ...], session_id: Value) -> bool:
    """Return True if a turn reached this step, or a later one, in `source`."""
    turn_id, seq, fingerprint = step
    here = source.execute(f"{_STEPS} WHERE turn_id = ? AND session_id = ?", (turn_id, session_id)).fetchone()
    return here is not None and (here[1] > seq or here[1:] == (seq, fingerprint))


def _each(rows: sqlite3.Connection, query: str, session_id: Value) -> set[tuple[Value, ...]]:
    return set(rows.execute(query, (session_id,)).fetchall())


def _copy_chosen(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str, chosen: str, session_id: Value
) -> None:
    """Copy rows in order. They get the next free numbers in `target`."""
    info = target.execute(f"PRAGMA table_info({table})").fetchall()
    names = [str(column[1]) for column in info]
    numbered = next(str(column[1]) for column in info if column[5]) == "seq"
    columns = [name for name in names if not (numbered and name == "seq")]
    marks = ", ".join("?" * len(columns))
    order = " ORDER BY seq" if numbered else ""
    select = f"SELECT {', '.join(columns)} FROM {table} WHERE {chosen}{order}"
    for row in source.execute(select, (session_id,)).fetchall():
        target.execute(f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})", tuple(map(bound, row)))

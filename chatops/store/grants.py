"""Remembered grants, application settings, and queued messages."""

import logging

from chatops.domain.decisions import RememberedGrant
from chatops.domain.errors import UnreadableError
from chatops.domain.ids import CallId, SessionId
from chatops.store.codec import decode_pattern, encode_pattern
from chatops.store.connection import Connection, Value, text

log = logging.getLogger(__name__)

_SAME = "session_id = ? AND role = ? AND tool = ? AND pattern = ? AND source_call = ? AND revoked_at IS NULL"


def add(rows: Connection, session_id: SessionId, grant: RememberedGrant, *, now: float) -> None:
    """Remember a grant. The very same one is stored once."""
    if rows.one(f"SELECT 1 FROM grants WHERE {_SAME}", *_key(session_id, grant)) is None:
        rows.run(
            "INSERT INTO grants (session_id, role, tool, pattern, source_call, granted_at) VALUES (?, ?, ?, ?, ?, ?)",
            *_key(session_id, grant),
            now,
        )


def revoke(rows: Connection, session_id: SessionId, grant: RememberedGrant, *, now: float) -> int:
    """Revoke a grant and return how many rows that were. The row stays for the audit."""
    return rows.run(f"UPDATE grants SET revoked_at = ? WHERE {_SAME}", now, *_key(session_id, grant)).rowcount


def remembered(rows: Connection, session_id: SessionId) -> tuple[RememberedGrant, ...]:
    """Return the grants in force, for all roles, in the order they were given. A damaged one grants nothing."""
    found = rows.all(
        "SELECT role, tool, pattern, source_call FROM grants WHERE session_id = ? AND revoked_at IS NULL ORDER BY seq",
        session_id,
    )
    kept: list[RememberedGrant] = []
    for role, tool, pattern, source in found:
        try:
            kept.append(
                RememberedGrant(
                    role=text(role), tool=text(tool), pattern=decode_pattern(pattern), source_call=CallId(text(source))
                )
            )
        except UnreadableError as error:
            log.warning("a remembered grant is left out: %s", error)
    return tuple(kept)


def setting(rows: Connection, key: str) -> str | None:
    """Return a stored setting, or None."""
    row = rows.one("SELECT value FROM settings WHERE key = ?", key)
    return None if row is None else text(row[0])


def set_setting(rows: Connection, key: str, value: str) -> None:
    """Store a setting, replacing the one before."""
    rows.run(
        "INSERT INTO settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key,
        value,
    )


def queue_message(rows: Connection, session_id: SessionId, message: str) -> None:
    """Queue a message at the end of the session's queue."""
    rows.run("INSERT INTO queued_texts (session_id, text) VALUES (?, ?)", session_id, message)


def queued_messages(rows: Connection, session_id: SessionId) -> tuple[str, ...]:
    """Return the queued messages of a session, oldest first."""
    found = rows.all("SELECT text FROM queued_texts WHERE session_id = ? ORDER BY seq", session_id)
    return tuple(text(row[0]) for row in found)


def remove_oldest_queued(rows: Connection, session_id: SessionId) -> None:
    """Remove the oldest queued message."""
    rows.run(
        "DELETE FROM queued_texts WHERE seq = (SELECT min(seq) FROM queued_texts WHERE session_id = ?)", session_id
    )


def take_newest_queued(rows: Connection, session_id: SessionId) -> str | None:
    """Remove the newest queued message and return it."""
    newest = rows.one("SELECT seq, text FROM queued_texts WHERE session_id = ? ORDER BY seq DESC LIMIT 1", session_id)
    if newest is None:
        return None
    rows.run("DELETE FROM queued_texts WHERE seq = ?", newest[0])
    return text(newest[1])


def _key(session_id: SessionId, grant: RememberedGrant) -> tuple[Value, ...]:
    return (session_id, grant.role, grant.tool, encode_pattern(grant.pattern), grant.source_call)

"""Remembered grants: approvals of a user for the rest of a session, in one role."""

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
    grants: list[RememberedGrant] = []
    for role, tool, pattern, source in found:
        try:
            grants.append(
                RememberedGrant(
                    role=text(role), tool=text(tool), pattern=decode_pattern(pattern), source_call=CallId(text(source))
                )
            )
        except UnreadableError as error:
            log.warning("a remembered grant is left out: %s", error)
    return tuple(grants)


def _key(session_id: SessionId, grant: RememberedGrant) -> tuple[Value, ...]:
    return (session_id, grant.role, grant.tool, encode_pattern(grant.pattern), grant.source_call)

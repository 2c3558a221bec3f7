"""Who drives a session: one process at a time, which another may ask for it, and may take it from.

What a process stores is checked against the lease in the same transaction: from the moment that a session is taken
from it nothing of it is stored any more, and so nothing further is begun by it.
"""

import json
from collections.abc import Callable

from chatops.domain.errors import Conflict, SessionHeld
from chatops.domain.ids import SessionId
from chatops.store import sessions
from chatops.store.base import Hold, Holder
from chatops.store.columns import integer, real, text
from chatops.store.connection import Connection
from chatops.store.derive import keeps_out, may_take, taken_over

_COLUMNS = "host, pid, boot_id, pid_started, expires_at, since, wanted_by, heard"


def stored(rows: Connection, session_id: SessionId) -> Hold | None:
    """The lease as it is stored, whether or not its process still lives."""
    row = rows.one(f"SELECT {_COLUMNS} FROM leases WHERE session_id = ?", session_id)
    if row is None:
        return None
    return Hold(
        holder=Holder(host=text(row[0]), pid=integer(row[1]), boot_id=text(row[2]), pid_started=text(row[3])),
        expires_at=real(row[4]),
        since=real(row[5]),
        wanted_by=_holder(text(row[6])),
        heard=bool(row[7]),
    )


def held(
    rows: Connection, session_id: SessionId, *, me: Holder, now: float, alive: Callable[[Holder], bool]
) -> Hold | None:
    """The lease of a process that is still there. Raises NoSuchSession."""
    sessions.info(rows, session_id)
    hold = stored(rows, session_id)
    return hold if hold is not None and keeps_out(hold, me=me, now=now, alive=alive) else None


def hold(
    rows: Connection,
    session_id: SessionId,
    holder: Holder,
    *,
    ttl_s: float,
    now: float,
    alive: Callable[[Holder], bool],
) -> None:
    """Take or renew the lease. Raises SessionHeld and NoSuchSession."""
    sessions.info(rows, session_id)
    before = stored(rows, session_id)
    may_take(before, holder, session_id=session_id, now=now, alive=alive)
    if before is not None and before.holder == holder:
        rows.run("UPDATE leases SET expires_at = ? WHERE session_id = ?", now + ttl_s, session_id)
    else:
        _put(rows, session_id, holder, expires_at=now + ttl_s, now=now)


def renew(rows: Connection, session_id: SessionId, holder: Holder, *, ttl_s: float, now: float) -> None:
    """Renew the lease if it still is this holder's."""
    before = stored(rows, session_id)
    if before is not None and before.holder == holder:
        rows.run("UPDATE leases SET expires_at = ? WHERE session_id = ?", now + ttl_s, session_id)


def take(
    rows: Connection,
    session_id: SessionId,
    holder: Holder,
    *,
    of: Holder,
    ttl_s: float,
    now: float,
) -> None:
    """Take the lease from `of`, whether or not it lives. Raises SessionHeld if another one has it by now."""
    sessions.info(rows, session_id)
    before = stored(rows, session_id)
    if before is not None and before.holder == holder:
        return
    if before is not None and before.holder != of:
        raise SessionHeld(
            f"Session {session_id} has gone on to another chatops meanwhile (pid {before.holder.pid}).",
            advice="Look again who has it now.",
        )
    _put(rows, session_id, holder, expires_at=now + ttl_s, now=now)


def release(rows: Connection, session_id: SessionId, holder: Holder) -> None:
    """Give the lease back if it is this holder's."""
    rows.run(
        "DELETE FROM leases WHERE session_id = ? AND host = ? AND pid = ? AND boot_id = ? AND pid_started = ?",
        session_id,
        holder.host,
        holder.pid,
        holder.boot_id,
        holder.pid_started,
    )


def want(rows: Connection, session_id: SessionId, asker: Holder) -> None:
    """Ask whoever holds the session to hand it over; who asked before does so no more."""
    rows.run("UPDATE leases SET wanted_by = ?, heard = 0 WHERE session_id = ?", _text(asker), session_id)


def want_no_more(rows: Connection, session_id: SessionId, asker: Holder) -> None:
    """Take back what `asker` has asked for; what another one has asked for since stays."""
    sql = "UPDATE leases SET wanted_by = '', heard = 0 WHERE session_id = ? AND wanted_by = ?"
    rows.run(sql, session_id, _text(asker))


def heard(rows: Connection, session_id: SessionId, holder: Holder) -> None:
    """Say to whoever asks that this holder knows, and hands over when it can."""
    before = stored(rows, session_id)
    if before is not None and before.holder == holder:
        rows.run("UPDATE leases SET heard = 1 WHERE session_id = ?", session_id)


def must_not_be_taken(rows: Connection, session_id: SessionId, me: Holder) -> None:
    """Raise Conflict if another process has the session: what this one would store is void."""
    lease = stored(rows, session_id)
    if lease is not None and lease.holder != me:
        raise Conflict(taken_over(session_id, lease.holder), advice="Open it again to see where it stands.")


def _put(rows: Connection, session_id: SessionId, holder: Holder, *, expires_at: float, now: float) -> None:
    rows.run(
        f"INSERT OR REPLACE INTO leases (session_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, '', 0)",
        session_id,
        holder.host,
        holder.pid,
        holder.boot_id,
        holder.pid_started,
        expires_at,
        now,
    )


def _text(holder: Holder) -> str:
    return json.dumps([holder.host, holder.pid, holder.boot_id, holder.pid_started])


def _holder(stored: str) -> Holder | None:
    """What `_text` wrote; anything else asks for nothing."""
    try:
        host, pid, boot_id, started = json.loads(stored)
        return Holder(host=str(host), pid=int(pid), boot_id=str(boot_id), pid_started=str(started))
    except (ValueError, TypeError):
        return None

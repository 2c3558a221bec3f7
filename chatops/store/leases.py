"""Session leases: one owner at a time; others may request or seize the lease.

Theory of operation

A session is owned by the process that its row in `leases` names. Ownership is needed to change the session: to take
messages, call the model, run tools. Reading needs none, and neither does posting a decision.

Transitions

- No row, or a row whose process is gone: `acquire` makes the caller the owner. `rules.keeps_out` says when a process
  counts as gone: on the same host when it is dead, on another host or in another container when the lease has expired.
- Owned: `renew` moves the expiry. It never takes a lost lease again, because another process may have owned the session
  in between, and the caller's state may be outdated.
- Requested: `request` writes the requester into the row and clears the owner's answer (`acknowledged`). The last
  requester replaces the one before, which can see that. `withdraw_request` withdraws the caller's own request only.
- Answered: the owner has seen the request and will hand over (`acknowledged`).
- Handed over or seized: `seize` replaces the owner, by itself (it makes the requester the holder) or by the requester.
  The caller says from whom it takes the lease. If a third process has it by then, SessionHeldError is raised.
- Released: `release` deletes the row if it names the caller.

Every commit checks the lease in its own transaction (`must_not_be_taken`). From the moment at which a session is
seized, the old owner can store nothing more. Since the runner performs only what is stored, it starts nothing more
either. A missing row does not block a commit: then the order of the steps decides, see `turns`. Before a tool starts,
the runtime asks again, and there a missing row counts as lost, see `runtime.ownership`.

The rules that need no SQL are in `rules`, so that every store has the same ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from chatops.domain.errors import ConflictError, SessionHeldError
from chatops.store import sessions
from chatops.store.base import Holder, LeaseRow
from chatops.store.connection import Connection, integer, real, text
from chatops.store.rules import keeps_out, may_take, taken_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from chatops.domain.ids import SessionId

_COLUMNS = "host, pid, boot_id, pid_started, expires_at, since, requested_by, acknowledged"


def stored(rows: Connection, session_id: SessionId) -> LeaseRow | None:
    """Return the lease as stored, whether or not its process still lives."""
    row = rows.one(f"SELECT {_COLUMNS} FROM leases WHERE session_id = ?", session_id)
    if row is None:
        return None
    return LeaseRow(
        holder=Holder(host=text(row[0]), pid=integer(row[1]), boot_id=text(row[2]), pid_started=text(row[3])),
        expires_at=real(row[4]),
        since=real(row[5]),
        requested_by=_holder(text(row[6])),
        acknowledged=bool(row[7]),
    )


def current(
    rows: Connection, session_id: SessionId, *, me: Holder, now: float, alive: Callable[[Holder], bool]
) -> LeaseRow | None:
    """Return the lease if its process still counts as alive, else None. Raises NoSuchSessionError."""
    sessions.info(rows, session_id)
    lease = stored(rows, session_id)
    return lease if lease is not None and keeps_out(lease, me=me, now=now, alive=alive) else None


def acquire(
    rows: Connection,
    session_id: SessionId,
    holder: Holder,
    *,
    ttl_s: float,
    now: float,
    alive: Callable[[Holder], bool],
) -> None:
    """Take or renew the lease. Raises SessionHeldError and NoSuchSessionError."""
    sessions.info(rows, session_id)
    before = stored(rows, session_id)
    may_take(before, holder, session_id=session_id, now=now, alive=alive)
    if before is not None and before.holder == holder:
        rows.run("UPDATE leases SET expires_at = ? WHERE session_id = ?", now + ttl_s, session_id)
    else:
        _put(rows, session_id, holder, expires_at=now + ttl_s, now=now)


def renew(rows: Connection, session_id: SessionId, holder: Holder, *, ttl_s: float, now: float) -> None:
    """Renew the lease if this holder still has it."""
    before = stored(rows, session_id)
    if before is not None and before.holder == holder:
        rows.run("UPDATE leases SET expires_at = ? WHERE session_id = ?", now + ttl_s, session_id)


def seize(
    rows: Connection,
    session_id: SessionId,
    holder: Holder,
    *,
    of: Holder,
    ttl_s: float,
    now: float,
) -> None:
    """Take the lease from `of`, whether or not it lives. Raises SessionHeldError if a third process has it by now."""
    sessions.info(rows, session_id)
    before = stored(rows, session_id)
    if before is not None and before.holder == holder:
        return
    if before is not None and before.holder != of:
        raise SessionHeldError(
            f"Session {session_id} was taken over by another chatops in the meantime (pid {before.holder.pid}).",
            advice="Check again which process has it.",
        )
    _put(rows, session_id, holder, expires_at=now + ttl_s, now=now)


def release(rows: Connection, session_id: SessionId, holder: Holder) -> None:
    """Release the lease if this holder has it."""
    rows.run(
        "DELETE FROM leases WHERE session_id = ? AND host = ? AND pid = ? AND boot_id = ? AND pid_started = ?",
        session_id,
        holder.host,
        holder.pid,
        holder.boot_id,
        holder.pid_started,
    )


def request(rows: Connection, session_id: SessionId, asker: Holder) -> None:
    """Ask the holder to hand the session over. This replaces an earlier request."""
    rows.run("UPDATE leases SET requested_by = ?, acknowledged = 0 WHERE session_id = ?", _text(asker), session_id)


def withdraw_request(rows: Connection, session_id: SessionId, asker: Holder) -> None:
    """Withdraw the request of `asker`. A later request of another process stays."""
    sql = "UPDATE leases SET requested_by = '', acknowledged = 0 WHERE session_id = ? AND requested_by = ?"
    rows.run(sql, session_id, _text(asker))


def acknowledge(rows: Connection, session_id: SessionId, holder: Holder) -> None:
    """Confirm to the requester that the holder knows, and hands over when it can."""
    before = stored(rows, session_id)
    if before is not None and before.holder == holder:
        rows.run("UPDATE leases SET acknowledged = 1 WHERE session_id = ?", session_id)


def must_not_be_taken(rows: Connection, session_id: SessionId, me: Holder) -> None:
    """Raise ConflictError if another process holds the lease: what this one would store is void."""
    lease = stored(rows, session_id)
    if lease is not None and lease.holder != me:
        raise ConflictError(taken_over(session_id, lease.holder), advice="Open it again to see its current state.")


def _put(rows: Connection, session_id: SessionId, holder: Holder, *, expires_at: float, now: float) -> None:
    rows.upsert(
        "leases",
        "session_id",
        session_id=session_id,
        host=holder.host,
        pid=holder.pid,
        boot_id=holder.boot_id,
        pid_started=holder.pid_started,
        expires_at=expires_at,
        since=now,
        requested_by="",
        acknowledged=0,
    )


def _text(holder: Holder) -> str:
    return json.dumps([holder.host, holder.pid, holder.boot_id, holder.pid_started])


def _holder(stored: str) -> Holder | None:
    """Decode what `_text` wrote; anything else counts as no request."""
    try:
        host, pid, boot_id, started = json.loads(stored)
        return Holder(host=str(host), pid=int(pid), boot_id=str(boot_id), pid_started=str(started))
    except (ValueError, TypeError):
        return None

"""Session leases in memory: one owner at a time; others may request or seize the lease."""

from collections.abc import Callable
from dataclasses import replace

from chatops.domain.errors import ConflictError, SessionHeldError
from chatops.domain.ids import SessionId
from chatops.store.base import Holder, LeaseRow
from chatops.store.rules import keeps_out, may_take, taken_over
from tests.store.memory.tables import Memory


def acquire(
    memory: Memory,
    session_id: SessionId,
    holder: Holder,
    *,
    ttl_s: float,
    now: float,
    alive: Callable[[Holder], bool],
) -> None:
    """Take or renew the lease. Raises SessionHeldError."""
    before = memory.leases.get(session_id)
    may_take(before, holder, session_id=session_id, now=now, alive=alive)
    if before is not None and before.holder == holder:
        memory.leases[session_id] = replace(before, expires_at=now + ttl_s)
    else:
        memory.leases[session_id] = LeaseRow(holder=holder, since=now, expires_at=now + ttl_s)


def renew(memory: Memory, session_id: SessionId, holder: Holder, *, ttl_s: float, now: float) -> None:
    """Renew the lease if it still is this holder's."""
    before = memory.leases.get(session_id)
    if before is not None and before.holder == holder:
        memory.leases[session_id] = replace(before, expires_at=now + ttl_s)


def current(
    memory: Memory, session_id: SessionId, *, me: Holder, now: float, alive: Callable[[Holder], bool]
) -> LeaseRow | None:
    """The lease of a process that is still there."""
    found = memory.leases.get(session_id)
    return found if found is not None and keeps_out(found, me=me, now=now, alive=alive) else None


def request(memory: Memory, session_id: SessionId, asker: Holder) -> None:
    """Request the session from its holder; this replaces an earlier request."""
    if session_id in memory.leases:
        memory.leases[session_id] = replace(memory.leases[session_id], requested_by=asker, acknowledged=False)


def withdraw_request(memory: Memory, session_id: SessionId, asker: Holder) -> None:
    """Take back what `asker` has asked for; what another one has asked for since stays."""
    found = memory.leases.get(session_id)
    if found is not None and found.requested_by == asker:
        memory.leases[session_id] = replace(found, requested_by=None, acknowledged=False)


def acknowledge(memory: Memory, session_id: SessionId, holder: Holder) -> None:
    """Record that the holder knows of the request."""
    found = memory.leases.get(session_id)
    if found is not None and found.holder == holder:
        memory.leases[session_id] = replace(found, acknowledged=True)


def seize(memory: Memory, session_id: SessionId, holder: Holder, *, of: Holder, ttl_s: float, now: float) -> None:
    """Take the lease from `of`, whether or not it lives. Raises SessionHeldError if another one has it by now."""
    before = memory.leases.get(session_id)
    if before is not None and before.holder == holder:
        return
    if before is not None and before.holder != of:
        raise SessionHeldError(f"Session {session_id} was taken over by another chatops (pid {before.holder.pid}).")
    memory.leases[session_id] = LeaseRow(holder=holder, since=now, expires_at=now + ttl_s)


def release(memory: Memory, session_id: SessionId, holder: Holder) -> None:
    """Give the lease back if it is this holder's."""
    found = memory.leases.get(session_id)
    if found is not None and found.holder == holder:
        del memory.leases[session_id]


def must_not_be_taken(memory: Memory, session_id: SessionId, me: Holder) -> None:
    """Raise ConflictError if another process has the session: what this one would store is void."""
    found = memory.leases.get(session_id)
    if found is not None and found.holder != me:
        raise ConflictError(taken_over(session_id, found.holder))

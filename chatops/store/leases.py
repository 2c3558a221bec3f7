"""Session leases: one owner at a time; others may request or seize the lease.

Theory of operation

A session is owned by the process that its row in `leases` names. Ownership is needed to change the session: to take
messages, call the model, run tools. Reading needs none, and neither does posting a decision.

Transitions

- No row, or a row whose process is gone: `acquire_lease` makes the caller the owner, with a new random
  token. `keeps_out` says when a process counts as gone: on the same machine when it is dead, on another one or
  in another container when the lease has expired.
- Reserved: the row names a process that has not acquired the lease yet, and has no token. `reserve_lease` makes such a
  row, and so does `seize_lease`. Only that process may acquire it.
- Owned: `renew_lease` moves the expiry. It never takes a lost lease again, because another process may have owned the
  session in between, and the caller's state may be outdated.
- Requested: `request_lease` writes the requester into the row. The last requester replaces the one before, which can
  see that. `withdraw_request` withdraws the caller's own request only.
- Asked to stop: `ask_to_stop` marks the row. The owner stops the turn as if the user had stopped it there, and takes
  the mark away.
- Handed over or seized: `seize_lease` replaces the owner, by itself (it reserves the lease for the requester) or by the
  requester. The caller says from whom it takes the lease. If a third process has it by then, SessionHeldError is
  raised.
- Released: `release_lease` deletes the row if it still has the caller's token, or is reserved for the caller.

Every commit compares the token in its own transaction (`must_not_be_taken`), and so do renewal and the start of a
tool. A session that went from this process to another one and back has a new token, so what the first owner still has
in hand is void, although the row names its process again. From the moment at which a session is seized, the old owner
can store nothing more. Since the runner performs only what is stored, it starts nothing more either. A missing row does
not block a commit: then the order of the steps decides, see `turns`. Before a tool starts, the runtime asks again, and
there a missing row counts as lost, see `runtime.lease`.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
from typing import TYPE_CHECKING

from chatops.domain.errors import ConflictError, SessionHeldError, UnreadableError
from chatops.store import sessions
from chatops.store.base import Holder, LeaseRow, StorePart
from chatops.store.connection import Connection, SqlRow, integer, real, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from chatops.domain.ids import SessionId

log = logging.getLogger(__name__)

_A_DAY_S = 86_400.0
"""Seconds beyond which an expiry is the mistake of a clock: leases last half a minute."""
_UNKNOWN = Holder(host="an unknown host", pid=0, boot_id="", pid_started="")
HOLDER = "host, pid, boot_id, pid_started, machine"
"""Columns of `leases` that say which process holds one."""
_COLUMNS = f"{HOLDER}, expires_at, since, requested_by, stop, token"


def keeps_out(lease: LeaseRow, *, me: Holder, now: float, alive: Callable[[Holder], bool]) -> bool:
    """Return True if the lease of a session still counts, as seen by `me`.

    On the same machine the lease counts exactly while its process lives. Another one, or another container of this one,
    cannot be checked, so its lease counts until it expires. A lease that expires in more than a day comes from a clock
    that was wrong, and does not count.
    """
    if _is_visible(lease.holder, me):
        return lease.holder == me or alive(lease.holder)
    return 0 < lease.expires_at - now <= _A_DAY_S


def _is_visible(other: Holder, me: Holder) -> bool:
    """Return True if `me` can tell whether `other` lives. A restart of the machine has ended its containers too."""
    boot, _, container = other.boot_id.partition("/")
    my_boot, _, my_container = me.boot_id.partition("/")
    return other.machine == me.machine and (boot != my_boot or container == my_container)


def must_be_free(
    lease: LeaseRow | None, holder: Holder, *, session_id: SessionId, now: float, alive: Callable[[Holder], bool]
) -> None:
    """Raise SessionHeldError unless `holder` may own the session now."""
    if lease is None or lease.holder == holder or not keeps_out(lease, me=holder, now=now, alive=alive):
        return
    other = lease.holder
    who = f"host {other.host}, pid {other.pid}, since {since(lease, now=now)}"
    if other.machine == holder.machine:
        raise SessionHeldError(
            f"Session {session_id} is open in another chatops on this machine ({who}).",
            advice=f"Continue there, or close that chatops (pid {other.pid}) and try again; `chatops -r {session_id}` "
            "follows it and can take it over, `chatops approvals list` works meanwhile.",
        )
    left = int(lease.expires_at - now) + 1
    raise SessionHeldError(
        f"Session {session_id} is open on another machine ({who}).",
        advice=f"Continue there, or close it there. If {other.host} is gone, try again in {left} s.",
    )


def since(lease: LeaseRow, *, now: float) -> str:
    """Return the local time at which a session was opened, with the date unless it is today."""
    then, today = time.localtime(lease.since), time.localtime(now)
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)


def stored(rows: Connection, session_id: SessionId) -> LeaseRow | None:
    """Return the lease as stored, whether or not its process still lives."""
    row = rows.one(f"SELECT {_COLUMNS} FROM leases WHERE session_id = ?", session_id)
    if row is None:
        return None
    *holder, expires_at, opened_at, requested_by, stop, token = row
    return LeaseRow(
        holder=holder_in(tuple(holder)),
        expires_at=real(expires_at),
        since=real(opened_at),
        requested_by=_decode_holder(text(requested_by)),
        stop=bool(stop),
        token=text(token),
    )


def holder_in(row: SqlRow) -> Holder:
    """Return the process in the columns `HOLDER`."""
    host, pid, boot, started, machine = row
    return Holder(
        host=text(host), pid=integer(pid), boot_id=text(boot), pid_started=text(started), machine=text(machine)
    )


def new_token() -> str:
    """Return a token for one acquisition of a lease."""
    return secrets.token_hex(16)


def must_not_be_taken(rows: Connection, session_id: SessionId, token: str) -> None:
    """Raise ConflictError if there is a lease other than that of `token`: what its owner would store is void."""
    lease = stored(rows, session_id)
    if lease is None:
        return
    is_own = bool(token) and lease.token == token
    if not is_own:
        by = lease.holder
        raise ConflictError(
            f"Session {session_id} was taken over by another chatops (host {by.host}, pid {by.pid}).",
            advice="Open it again to see its current state.",
        )


class Leases(StorePart):
    """The methods of `Store` about leases."""

    def acquire_lease(self, session_id: SessionId, holder: Holder, *, token: str = "", ttl_s: float = 30.0) -> str:
        """Take the lease of a session, which may be reserved for `holder`. Return the token of this acquisition.

        That is `token`, which a caller that may be cancelled meanwhile makes with `new_token`.

        Raises SessionHeldError while a live process of this machine holds it, also `holder` itself, or a process of
        another machine whose lease has not expired.
        """
        with self._rows.write():
            full, now, token = sessions.full_id(self._rows, session_id), self._clock(), token or new_token()
            self._rows.must_be_own(full, to_drive=True)
            before = stored(self._rows, full)
            if before is None or before.holder != holder:
                must_be_free(before, holder, session_id=full, now=now, alive=self._alive)
                _put_lease(self._rows, full, holder, expires_at=now + ttl_s, now=now, token=token)
            elif before.token:
                raise SessionHeldError(
                    f"Session {full} is open in this chatops already.", advice="Continue where it is open."
                )
            else:
                sql = "UPDATE leases SET token = ?, expires_at = ? WHERE session_id = ?"
                self._rows.run(sql, token, now + ttl_s, full)
        return token

    def reserve_lease(self, session_id: SessionId, holder: Holder, *, ttl_s: float = 30.0) -> None:
        """Reserve the lease of a session for `holder`, which is to acquire it. Raises as `acquire_lease` does."""
        with self._rows.write():
            full, now = sessions.full_id(self._rows, session_id), self._clock()
            self._rows.must_be_own(full, to_drive=True)
            before = stored(self._rows, full)
            must_be_free(before, holder, session_id=full, now=now, alive=self._alive)
            if before is None or before.holder != holder:
                _put_lease(self._rows, full, holder, expires_at=now + ttl_s, now=now)

    def renew_lease(self, session_id: SessionId, token: str, *, ttl_s: float = 30.0) -> None:
        """Renew the lease if it still has this token."""
        sql = "UPDATE leases SET expires_at = ? WHERE session_id = ? AND token = ?"
        with self._rows.write():
            self._rows.run(sql, self._clock() + ttl_s, session_id, token)

    def lease(self, session_id: SessionId) -> LeaseRow | None:
        """Return the lease of a session; None if no live process holds it. Raises NoSuchSessionError.

        A damaged row is a lease of a process that nobody knows, so that lists of sessions can be shown.
        """
        with self._rows.read():
            full = sessions.full_id(self._rows, session_id)
            try:
                lease = stored(self._rows, full)
            except UnreadableError as error:
                log.warning("the lease of session %s: %s", full, error)
                return LeaseRow(holder=_UNKNOWN, since=0.0, expires_at=math.inf)
        return self._if_live(lease, now=self._clock())

    def _if_live(self, lease: LeaseRow | None, *, now: float) -> LeaseRow | None:
        """Return the lease if it counts for this process."""
        keeps = lease is not None and keeps_out(lease, me=self._process(), now=now, alive=self._alive)
        return lease if keeps else None

    def request_lease(self, session_id: SessionId, asker: Holder) -> None:
        """Ask the holder to hand the session over, in place of an earlier request."""
        sql = "UPDATE leases SET requested_by = ? WHERE session_id = ?"
        with self._rows.write():
            self._rows.must_be_own(session_id, to_drive=True)
            self._rows.run(sql, _encode_holder(asker), session_id)

    def withdraw_request(self, session_id: SessionId, asker: Holder) -> None:
        """Withdraw the request of `asker`. A later request of another process stays."""
        sql = "UPDATE leases SET requested_by = '' WHERE session_id = ? AND requested_by = ?"
        with self._rows.write():
            self._rows.run(sql, session_id, _encode_holder(asker))

    def mark_followed(self, session_id: SessionId, by: Holder | None) -> None:
        """Store which process shows the session to a user without owning it; None: none does any more."""
        with self._rows.write():
            self._rows.put_setting(f"followed:{session_id}", "" if by is None else _encode_holder(by))

    def is_followed(self, session_id: SessionId) -> bool:
        """Return True if a living process of this machine shows the session without owning it."""
        with self._rows.read():
            key = self._rows.setting_key(f"followed:{session_id}")
            row = self._rows.one("SELECT value FROM settings WHERE key = ?", key)
        return row is not None and self._lives_here(_decode_holder(text(row[0])))

    def announce_page(self, address: str, by: Holder) -> None:
        """Store the address of the web page (`chatops.serve`) that the process `by` serves."""
        with self._rows.write():
            self._rows.put_setting("desk", json.dumps([address, _encode_holder(by)]))

    def page_address(self) -> str:
        """Return the address of the page if a living process of this machine serves it, else an empty text."""
        with self._rows.read():
            row = self._rows.one("SELECT value FROM settings WHERE key = ?", self._rows.setting_key("desk"))
        try:
            address, holder = json.loads(text(row[0])) if row is not None else ("", "")
        except (ValueError, TypeError):
            return ""  # A damaged setting names no page.
        return str(address) if self._lives_here(_decode_holder(holder)) else ""

    def _lives_here(self, holder: Holder | None) -> bool:
        return holder is not None and holder.machine == self._process().machine and self._alive(holder)

    def ask_to_stop(self, session_id: SessionId, *, stop: bool = True) -> None:
        """Ask the holder to stop the turn, or take that back. Has no effect if no process holds the lease."""
        with self._rows.write():
            self._rows.must_be_own(session_id)
            self._rows.run("UPDATE leases SET stop = ? WHERE session_id = ?", int(stop), session_id)

    def seize_lease(self, session_id: SessionId, holder: Holder, *, of: Holder, ttl_s: float = 30.0) -> None:
        """Reserve the lease for `holder` although `of` has it, even if that is alive.

        From now on, whatever that process commits in the session is a ConflictError, so it starts nothing more. Raises
        SessionHeldError if a third process has the lease by now.
        """
        with self._rows.write():
            full, now = sessions.full_id(self._rows, session_id), self._clock()
            self._rows.must_be_own(full, to_drive=True)
            before = stored(self._rows, full)
            if before is not None and before.holder == holder:
                return
            if before is not None and before.holder != of:
                raise SessionHeldError(
                    f"Session {full} was taken over by another chatops in the meantime (pid {before.holder.pid}).",
                    advice="Check again which process has it.",
                )
            _put_lease(self._rows, full, holder, expires_at=now + ttl_s, now=now)

    def release_lease(self, session_id: SessionId, holder: Holder, token: str = "") -> None:
        """Release the lease of that token; with none, the one that is reserved for `holder`."""
        with self._rows.write():
            lease = stored(self._rows, session_id)
            if lease is not None and (lease.holder, lease.token) == (holder, token):
                self._rows.run("DELETE FROM leases WHERE session_id = ?", session_id)


def _put_lease(
    rows: Connection, session_id: SessionId, holder: Holder, *, expires_at: float, now: float, token: str = ""
) -> None:
    rows.upsert(
        "leases",
        "session_id",
        session_id=session_id,
        host=holder.host,
        pid=holder.pid,
        boot_id=holder.boot_id,
        pid_started=holder.pid_started,
        machine=holder.machine,
        expires_at=expires_at,
        since=now,
        requested_by="",
        stop=0,
        token=token,
    )


def _encode_holder(holder: Holder) -> str:
    return json.dumps([holder.host, holder.pid, holder.boot_id, holder.pid_started, holder.machine])


def _decode_holder(encoded: str) -> Holder | None:
    """Decode what `_encode_holder` wrote; None for anything else."""
    try:
        host, pid, boot_id, started, machine = json.loads(encoded)
        return Holder(
            host=str(host), pid=int(pid), boot_id=str(boot_id), pid_started=str(started), machine=str(machine)
        )
    except (ValueError, TypeError):
        return None

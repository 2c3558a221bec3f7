"""Facts that every store derives in the same way: ids, and who may take a lease."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from chatops.domain.errors import AlreadyDecidedError, SessionHeldError, StoreError
from chatops.domain.ids import CallId, SessionId, TurnId

if TYPE_CHECKING:
    from collections.abc import Callable

    from chatops.domain.decisions import Principal
    from chatops.store.base import Holder, LeaseRow

TITLE_LENGTH = 60
AT_MOST_NAMED = 5
"""Maximum number of matching sessions that an error names."""
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_A_DAY = 86_400.0


def turn_after(session_id: SessionId, last: TurnId | None) -> TurnId:
    """Return the id after the session's last turn, for when the store is not asked for it."""
    return TurnId(f"{session_id}.{turn_number(last or '') + 1}")


def turn_number(turn_id: str) -> int:
    """Return the number of a turn within its session; 0 if there is none."""
    number = turn_id.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else 0


def new_session_id(now: float) -> SessionId:
    """Return an id such as ``20261121-101512-k3f9``: the time (UTC), and a random part for uniqueness."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return SessionId(f"{stamp}-{''.join(secrets.choice(_ALPHABET) for _ in range(4))}")


def ambiguous(prefix: str, names: list[str]) -> StoreError:
    """Return the error for a prefix of several ids."""
    shown = ", ".join(names[:AT_MOST_NAMED]) + (", …" if len(names) > AT_MOST_NAMED else "")
    return StoreError(f"{prefix!r} is the beginning of several sessions: {shown}.", advice="Give more of the id.")


def keeps_out(lease: LeaseRow, *, me: Holder, now: float, alive: Callable[[Holder], bool]) -> bool:
    """Return True if the lease of a session still counts, as seen by `me`.

    On the same host the lease counts exactly while its process lives. Another host, or another container of this one,
    cannot be checked, so its lease counts until it expires. A lease that expires in more than a day comes from a clock
    that was wrong, and does not count.
    """
    if _can_be_seen(lease.holder, me):
        return lease.holder == me or alive(lease.holder)
    return 0 < lease.expires_at - now <= _A_DAY


def _can_be_seen(other: Holder, me: Holder) -> bool:
    boot, _, container = other.boot_id.partition("/")
    my_boot, _, my_container = me.boot_id.partition("/")
    return other.host == me.host and (boot != my_boot or container == my_container)


def may_take(
    lease: LeaseRow | None, holder: Holder, *, session_id: SessionId, now: float, alive: Callable[[Holder], bool]
) -> None:
    """Raise SessionHeldError unless `holder` may own the session now."""
    if lease is None or lease.holder == holder or not keeps_out(lease, me=holder, now=now, alive=alive):
        return
    other = lease.holder
    who = f"host {other.host}, pid {other.pid}, since {since(lease, now=now)}"
    if other.host == holder.host:
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


def already_decided(call_id: CallId, *, by: Principal) -> AlreadyDecidedError:
    """Return the error for a user whose decision came second."""
    return AlreadyDecidedError(
        f"Call {call_id} was already decided by {by}; the first decision counts.",
        advice="`chatops approvals list` shows what is still pending.",
    )


def taken_over(session_id: SessionId, by: Holder) -> str:
    """Return the message for the process that lost the session."""
    return f"Session {session_id} was taken over by another chatops (host {by.host}, pid {by.pid})."

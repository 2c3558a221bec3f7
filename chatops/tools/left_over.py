"""What is left of a command whose app has died: found by the mark in its environment, and stopped.

In the sandbox and under the supervisor a command dies with the app. What got rid of both, or was cut loose when the
supervisor was killed too, still carries the mark of its call. Processes are held by descriptors (pidfd_open) and then
looked at once more, so that a number that has come to mean another process is never signalled.
"""

import logging
import os
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass

from chatops.domain.ids import CallId
from chatops.tools.marked import MARK
from chatops.tools.supervisor import descendants

log = logging.getLogger(__name__)

_MOST_OF_AN_ENVIRONMENT = 65_536
_KILL_S = 3.0
_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """How many processes of an attempt were still there and are gone now, and the ids of those that would not go."""

    count: int = 0
    running: tuple[int, ...] = ()


def named(call_id: CallId, attempt: int) -> str:
    """How the environment of an attempt's processes names it, so that a later process of ours can tell them again."""
    return f"{call_id}/{attempt}"


def can_look() -> bool:
    """Whether processes, and what they belong to, can be seen and held on to here (Linux)."""
    return hasattr(os, "pidfd_open") and os.path.isdir("/proc/self")


def left_over(call_id: CallId, attempt: int) -> int:
    """How many processes of an attempt there are."""
    return len(_tree(_entry(call_id, attempt)))


def stop_left_over(call_id: CallId, attempt: int) -> Stopped:
    """Stop every process of an attempt, and all below it. Blocks until they are gone, for 3 s at most.

    Only for an attempt whose app is dead; the caller has looked.
    """
    wanted = _entry(call_id, attempt)
    deadline = time.monotonic() + _KILL_S
    stopped: set[int] = set()
    while left := _tree(wanted):
        if time.monotonic() > deadline:
            log.warning("processes of call %s cannot be stopped: %s", call_id, sorted(left))
            return Stopped(count=len(stopped - left), running=tuple(sorted(left)))
        stopped |= _kill(left, wanted)
        time.sleep(_PAUSE_S)
    return Stopped(count=len(stopped))


def _entry(call_id: CallId, attempt: int) -> bytes:
    return f"{MARK}={named(call_id, attempt)}/".encode("utf-8", "surrogateescape")


def _kill(pids: set[int], wanted: bytes) -> set[int]:
    """Stop first, so that none can start another meanwhile, then kill; those that were signalled."""
    with ExitStack() as held:
        descriptors: dict[int, int] = {}
        for pid in pids:
            try:
                descriptors[pid] = os.pidfd_open(pid)
            except OSError:
                continue
            held.callback(os.close, descriptors[pid])
        sure = _tree(wanted) & descriptors.keys()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in sure:
                try:
                    signal.pidfd_send_signal(descriptors[pid], number)
                except OSError:
                    log.debug("process %s is gone, or somebody else's", pid)
    return sure


def _tree(wanted: bytes) -> set[int]:
    """Living processes whose environment names the attempt, and all below them; never this one."""
    try:
        marked = {int(name) for name in os.listdir("/proc") if name.isdigit() and _is_marked(name, wanted)}
    except OSError:
        return set()
    return marked.union(*(descendants(pid) for pid in marked)) - {os.getpid()}


def _is_marked(pid: str, wanted: bytes) -> bool:
    """A process that has ended and was not waited for has no environment any more."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as handle:
            return any(entry.startswith(wanted) for entry in handle.read(_MOST_OF_AN_ENVIRONMENT).split(b"\0"))
    except OSError:
        return False

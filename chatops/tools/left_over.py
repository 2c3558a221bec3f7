"""What is left of a command, found by the mark in its environment and stopped: after its end, or the death of its app.

In the sandbox and under the supervisor a command dies with the app. What got rid of both, or was cut loose when the
supervisor was killed too, still carries the mark of its call. Processes are held by descriptors (pidfd_open) and then
looked at once more, so that a number that has come to mean another process is never signalled.
"""

import logging
import os
import signal
import time
from dataclasses import dataclass

from chatops.domain.ids import CallId
from chatops.tools.marked import marked
from chatops.tools.supervisor import descendants, signal_all

log = logging.getLogger(__name__)

_KILL_S = 3.0
_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """How many processes were still there and are gone now, and the ids of those that would not go."""

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
    return len(_tree(_mark(call_id, attempt)))


def stop_left_over(call_id: CallId, attempt: int) -> Stopped:
    """Stop every process of an attempt, and all below it. Blocks until they are gone, for 3 s at most.

    Only for an attempt whose app is dead; the caller has looked.
    """
    stopped = stop_marked(_mark(call_id, attempt), seconds=_KILL_S)
    if stopped.running:
        log.warning("processes of call %s cannot be stopped: %s", call_id, stopped.running)
    return stopped


def stop_marked(mark: str, *, seconds: float) -> Stopped:
    """Stop every process whose mark begins so, and all below it. Blocks until they are gone, for `seconds` at most."""
    deadline = time.monotonic() + seconds
    stopped: set[int] = set()
    while left := _tree(mark):
        if time.monotonic() > deadline:
            return Stopped(count=len(stopped - left), running=tuple(sorted(left)))
        stopped |= _kill(mark)
        time.sleep(_PAUSE_S)
    return Stopped(count=len(stopped))


def _mark(call_id: CallId, attempt: int) -> str:
    """How the marks of its processes begin."""
    return f"{named(call_id, attempt)}/"


def _kill(mark: str) -> set[int]:
    """Stop first, so that none can start another meanwhile, then kill; those that were signalled."""
    return set().union(*(signal_all(lambda: _tree(mark), number) for number in (signal.SIGSTOP, signal.SIGKILL)))


def _tree(mark: str) -> set[int]:
    """Processes whose environment names the attempt, and all below them; never this one."""
    found = marked(mark)
    return found.union(*(descendants(pid) for pid in found)) - {os.getpid()}

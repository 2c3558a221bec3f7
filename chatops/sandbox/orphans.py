"""Find and stop processes that a command left behind, by a mark in their environment.

In the sandbox and under the supervisor, a command dies with the app. A process that escaped both, or that lost its
supervisor to a kill, still carries the mark of its call. Each process is held by a descriptor (pidfd_open) and then
checked once more, so that a reused process id is never signalled.
"""

import logging
import os
import signal
import time
from dataclasses import dataclass

from chatops.domain.ids import CallId
from chatops.sandbox.supervisor import descendants, signal_all

log = logging.getLogger(__name__)

CALL_VARIABLE = "CHATOPS_CALL"
"""Environment variable that names the call of a command, so that its remaining processes can be found."""

_MOST_OF_AN_ENVIRONMENT = 65_536
_KILL_S = 3.0
_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedProcesses:
    """Number of processes that were stopped, and the ids of those that could not be stopped."""

    count: int = 0
    running: tuple[int, ...] = ()


def attempt_name(call_id: CallId, attempt: int) -> str:
    """Return the name of an attempt for the environment of its processes, so that they can be found later."""
    return f"{call_id}/{attempt}"


def can_find_orphans() -> bool:
    """Return True if processes and their environment can be inspected and held here (Linux)."""
    return hasattr(os, "pidfd_open") and os.path.isdir("/proc/self")


def count_orphans(call_id: CallId, attempt: int) -> int:
    """Return how many processes of an attempt are running."""
    return len(_tree(_mark(call_id, attempt)))


def stop_orphans(call_id: CallId, attempt: int) -> StoppedProcesses:
    """Stop all processes of an attempt and their descendants. Blocks until they are gone, for 3 s at most.

    Only for an attempt whose app is dead; the caller has to check that.
    """
    stopped = stop_marked(_mark(call_id, attempt), seconds=_KILL_S)
    if stopped.running:
        log.warning("processes of call %s cannot be stopped: %s", call_id, stopped.running)
    return stopped


def stop_marked(mark: str, *, seconds: float) -> StoppedProcesses:
    """Stop all processes whose mark starts with `mark`, and their descendants.

    Blocks until they are gone, for `seconds` at most.
    """
    deadline = time.monotonic() + seconds
    stopped: set[int] = set()
    # Once the process with the mark is dead, nothing names its descendants, which may take longer to die.
    while left := _tree(mark) | set(filter(_runs, stopped)):
        if time.monotonic() > deadline:
            return StoppedProcesses(count=len(stopped - left), running=tuple(sorted(left)))
        stopped |= _kill(mark)
        time.sleep(_PAUSE_S)
    return StoppedProcesses(count=len(stopped))


def _mark(call_id: CallId, attempt: int) -> str:
    """Return the prefix of the marks of an attempt's processes."""
    return f"{attempt_name(call_id, attempt)}/"


def _kill(mark: str) -> set[int]:
    """Stop all, so that none can fork meanwhile, then kill them; return those that were signalled."""
    return set().union(*(signal_all(lambda: _tree(mark), number) for number in (signal.SIGSTOP, signal.SIGKILL)))


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:
            return handle.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def _tree(mark: str) -> set[int]:
    """Return the processes whose environment names the attempt, and their descendants; never this one."""
    found = _with_mark(mark)
    return found.union(*(descendants(pid) for pid in found)) - {os.getpid()}


def _with_mark(prefix: str) -> set[int]:
    """Return the processes whose mark starts with `prefix`, without this one.

    A zombie has no environment any more, so it is not among them.
    """
    wanted = f"{CALL_VARIABLE}={prefix}".encode("utf-8", "surrogateescape")
    try:
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
    except OSError:
        return set()
    return {pid for pid in pids if _is_marked(pid, wanted)}


def _is_marked(pid: int, wanted: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as handle:
            return any(entry.startswith(wanted) for entry in handle.read(_MOST_OF_AN_ENVIRONMENT).split(b"\0"))
    except OSError:
        return False

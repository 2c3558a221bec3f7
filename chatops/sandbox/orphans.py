"""Find and stop the processes that a command left behind, by a mark in their environment.

In the sandbox and under the supervisor, a command dies with the app. A process that escaped both, or that lost its
supervisor to a kill, still carries the mark of its call. Each process is held by a descriptor (pidfd_open) and then
checked once more, so that a reused process id is never signalled.
"""

import logging
import os
import signal
import time

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId
from chatops.sandbox.supervisor import descendants, signal_all

log = logging.getLogger(__name__)

CALL_VARIABLE = "CHATOPS_CALL"
"""Environment variable of a command's processes. Its value, their mark, is ``CALL_ID/ATTEMPT/RANDOM``."""

_MAX_ENVIRONMENT_BYTES = 65_536
"""Bytes of a process's environment that are searched for its mark. A mark behind them is not found."""
_KILL_S = 3.0
"""Seconds after which `stop_orphans` gives up. A session with a process that cannot be killed opens so much later."""
_KILL_RETRY_S = 0.005
"""Seconds between two attempts to kill: time for a killed process to end."""


@frozen_dataclass
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
    return len(_processes_of(_mark_prefix(call_id, attempt)))


def stop_orphans(call_id: CallId, attempt: int) -> StoppedProcesses:
    """Stop all processes of an attempt and their descendants. Blocks until they are gone, for 3 s at most.

    Only for an attempt whose app is dead; the caller has to check that.
    """
    stopped = stop_marked(_mark_prefix(call_id, attempt), seconds=_KILL_S)
    if stopped.running:
        log.warning("processes of call %s cannot be stopped: %s", call_id, stopped.running)
    return stopped


def stop_marked(prefix: str, *, seconds: float) -> StoppedProcesses:
    """Stop all processes whose mark starts with `prefix`, and their descendants.

    Blocks until they are gone, for `seconds` at most.
    """
    deadline = time.monotonic() + seconds
    signalled: set[int] = set()
    # Once the process with the mark is dead, nothing names its descendants, which may take longer to die.
    while running := _processes_of(prefix) | set(filter(_is_running, signalled)):
        if time.monotonic() > deadline:
            return StoppedProcesses(count=len(signalled - running), running=tuple(sorted(running)))
        # First stop all, so that none can fork meanwhile, then kill them.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            signalled |= signal_all(lambda: _processes_of(prefix), number)
        time.sleep(_KILL_RETRY_S)
    return StoppedProcesses(count=len(signalled))


def _mark_prefix(call_id: CallId, attempt: int) -> str:
    return f"{attempt_name(call_id, attempt)}/"


def _is_running(pid: int) -> bool:
    """Return True unless the process has ended; a zombie (Z) or a dead one (X) has."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:
            return handle.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def _processes_of(prefix: str) -> set[int]:
    """Return the processes whose mark starts with `prefix`, and their descendants; never this one."""
    marked = _marked_processes(prefix)
    return marked.union(*(descendants(pid) for pid in marked)) - {os.getpid()}


def _marked_processes(prefix: str) -> set[int]:
    """Return the processes whose mark starts with `prefix`, without this one.

    A zombie has no environment any more, so it is not among them.
    """
    entry_prefix = f"{CALL_VARIABLE}={prefix}".encode("utf-8", "surrogateescape")
    try:
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
    except OSError:
        return set()
    return {pid for pid in pids if _is_marked(pid, entry_prefix)}


def _is_marked(pid: int, entry_prefix: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as handle:
            return any(entry.startswith(entry_prefix) for entry in handle.read(_MAX_ENVIRONMENT_BYTES).split(b"\0"))
    except OSError:
        return False

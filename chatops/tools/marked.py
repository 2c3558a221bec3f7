"""Processes of one call, found by what their environment says; signals to what may be gone already."""

import os
import signal
from collections.abc import Sequence

MARK = "CHATOPS_CALL"
"""Names the call in a command's environment, to find what is left of it."""

_MOST_OF_AN_ENVIRONMENT = 65_536


def send(pid: int, number: int) -> None:
    """Signal a process, if it is still there."""
    try:
        os.kill(pid, number)
    except OSError:
        pass


def send_group(pid: int, number: int) -> None:
    """Signal all of a process group, if it is still there."""
    try:
        os.killpg(pid, number)
    except OSError:
        pass


def kill_marked(mark: str) -> None:
    """Kill every process whose environment names this call, until none is left."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(20):
        found = [pid for pid in _processes() if wanted in _environment(pid)]
        if not found:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                send(pid, number)


def _processes() -> Sequence[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    except OSError:
        return []


def _environment(pid: int) -> Sequence[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as handle:
            return handle.read(_MOST_OF_AN_ENVIRONMENT).split(b"\0")
    except OSError:
        return []

"""Processes of one call, found by what their environment says; signals to what may be gone already."""

import os

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


def marked(begin: str) -> set[int]:
    """Processes whose mark begins so, without this one. One that has ended and was not waited for has none."""
    wanted = f"{MARK}={begin}".encode("utf-8", "surrogateescape")
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

"""Find processes of a call by a variable in their environment, and signal processes that may be gone."""

import os

MARK = "CHATOPS_CALL"
"""Environment variable that names the call of a command, so that its remaining processes can be found."""

_MOST_OF_AN_ENVIRONMENT = 65_536


def send(pid: int, number: int) -> None:
    """Send a signal to a process if it still exists."""
    try:
        os.kill(pid, number)
    except OSError:
        pass


def send_group(pid: int, number: int) -> None:
    """Send a signal to a process group if it still exists."""
    try:
        os.killpg(pid, number)
    except OSError:
        pass


def marked(begin: str) -> set[int]:
    """Return the processes whose mark starts with `begin`, without this one.

    A zombie has no environment any more, so it is not among them.
    """
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

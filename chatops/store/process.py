"""Identity of a process, and a check if another one still lives: by host, boot, pid and start time.

Pids are reused, so all four are compared. Without ``/proc`` the boot and the start time are empty and count as unknown.
"""

from __future__ import annotations

import os
from pathlib import Path

from chatops.store.base import Holder

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
_FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode of the machine's own pid namespace (PROC_PID_INIT_INO in Linux). A container has another one."""
_STATE, _START_TIME = 0, 19
"""Positions in ``/proc/<pid>/stat`` after the command's closing parenthesis, see proc(5)."""


_known: dict[int, Holder] = {}


def this_process() -> Holder:
    """Return the identity of this process for journal and lease. It never changes while the process runs."""
    pid = os.getpid()
    if pid not in _known:
        import socket  # only a process that runs something needs its host

        _known[pid] = Holder(host=socket.gethostname(), pid=pid, boot_id=_boot_id(), pid_started=_stat(pid)[1])
    return _known[pid]


def is_alive(holder: Holder) -> bool:
    """Return True if exactly this process of this host still runs. If that cannot be told, it counts as alive."""
    boot = _boot_id()
    if holder.pid <= 0 or (boot and holder.boot_id and boot != holder.boot_id):
        return False
    try:
        os.kill(holder.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    state, started = _stat(holder.pid)
    if state in {"Z", "X"}:
        return False
    return not (started and holder.pid_started and started != holder.pid_started)


def _boot_id() -> str:
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
    try:
        namespace = _NAMESPACE.stat().st_ino
    except OSError:
        return boot
    return boot if namespace == _FIRST_NAMESPACE else f"{boot}/{namespace}"


def _stat(pid: int) -> tuple[str, str]:
    """Return state letter and start time in clock ticks since the boot; both empty if they cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return (fields[_STATE], fields[_START_TIME]) if len(fields) > _START_TIME else ("", "")

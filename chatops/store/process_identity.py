"""Identity of processes, by which leases and the journal name them.

A process is known by machine, boot, pid and start time, so that another one can tell if it still lives. Pids are
reused, so all four are compared. Without ``/proc`` the boot and the start time are empty and count as unknown. A
machine is known by its machine id, see machine-id(5), because two hosts may have one name.
"""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import replace
from pathlib import Path

from chatops.store.base import Holder

_MACHINE_ID = Path("/etc/machine-id")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
_FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode of the machine's own pid namespace (PROC_PID_INIT_INO in Linux). A container has another one."""
_STATE, _START_TIME = 0, 19
"""Positions in ``/proc/<pid>/stat`` after the command's closing parenthesis, see proc(5)."""
_own_holders: dict[int, Holder] = {}
"""Cache of `this_process` by pid: a forked process must not get the identity of its parent."""


def this_process() -> Holder:
    """Return the identity of this process for journal and lease. It never changes while the process runs."""
    pid = os.getpid()
    if pid not in _own_holders:
        host, boot = socket.gethostname(), _read_boot_id()
        machine = _read_machine_id(host, contained="/" in boot)
        _own_holders[pid] = Holder(host=host, pid=pid, boot_id=boot, pid_started=_read_stat(pid)[1], machine=machine)
    return _own_holders[pid]


def holder_of(pid: int) -> Holder:
    """Return the identity of another process of this host."""
    return replace(this_process(), pid=pid, pid_started=_read_stat(pid)[1])


def is_alive(holder: Holder) -> bool:
    """Return True if exactly this process of this host still runs. If that cannot be told, it counts as alive."""
    boot = _read_boot_id()
    if holder.pid <= 0 or (boot and holder.boot_id and boot != holder.boot_id):
        return False
    try:
        os.kill(holder.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # It lives, and belongs to another user.
    state, started = _read_stat(holder.pid)
    if state in {"Z", "X"}:
        return False
    return not (started and holder.pid_started and started != holder.pid_started)


def _read_machine_id(host: str, *, contained: bool) -> str:
    """Return an id made from the machine's own, which machine-id(5) asks not to be stored as it is.

    Copies of a container often share one, so there, and where there is none, the name of the host has to do.
    """
    try:
        own = "" if contained else _MACHINE_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        own = ""
    return hashlib.sha256(f"chatops\0{own or host}".encode()).hexdigest()[:32]


def _read_boot_id() -> str:
    """Return the boot id, with the container after a slash if the process is in one; empty without ``/proc``."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
    try:
        namespace = _NAMESPACE.stat().st_ino
    except OSError:
        return boot
    return boot if namespace == _FIRST_NAMESPACE else f"{boot}/{namespace}"


def _read_stat(pid: int) -> tuple[str, str]:
    """Return state letter and start time in clock ticks since the boot; both empty if they cannot be read."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", ""
    _, _, after_command = stat.rpartition(")")
    fields = after_command.split()
    return (fields[_STATE], fields[_START_TIME]) if len(fields) > _START_TIME else ("", "")

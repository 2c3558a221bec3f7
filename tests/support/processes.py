"""Facts about running processes (Linux, /proc): descent, and whether they are alive."""

import contextlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """One process, told from a later one with the same number by its start."""

    pid: int
    started: int
    """Kernel ticks since boot."""


@dataclass(frozen=True, slots=True)
class _Stat:
    process: Process
    parent: int
    session: int


def alive(process: Process) -> bool:
    """Return True if exactly that process still runs. A zombie does not."""
    stat = _stat(process.pid)
    return stat is not None and stat.process == process


def running(pid: int) -> bool:
    """Return True if a process with that id runs now. A zombie does not."""
    return _stat(pid) is not None


def family(root: int, *, mark: str, argument: str = "") -> set[Process]:
    """The process `root`, its session, whoever carries `mark` in its environment, and all descendants of these.

    So is, with its descendants, whoever has the text `argument` in its command line.
    """
    everyone = {int(entry.name): stat for entry in _entries() if (stat := _stat(int(entry.name)))}
    children: dict[int, list[int]] = defaultdict(list)
    for pid, stat in everyone.items():
        children[stat.parent].append(pid)
    found: set[int] = set()
    waiting = [
        pid
        for pid, stat in everyone.items()
        if pid == root
        or stat.session == root
        or mark.encode() in _words(pid, "environ")
        or (argument and any(argument.encode() in word for word in _words(pid, "cmdline")))
    ]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children[pid]
    return {everyone[pid].process for pid in found}


def _entries() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _words(pid: int, file: str) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    return []


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name, in parentheses, may hold anything, blanks and parentheses too.
    state, parent, _, session, *rest = text.rpartition(")")[2].split()
    if state in "ZX":
        return None
    return _Stat(process=Process(pid=pid, started=int(rest[15])), parent=int(parent), session=int(session))

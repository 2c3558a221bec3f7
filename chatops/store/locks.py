"""Detection of a process that blocks writes to a store, from the kernel's list of locks.

No file is opened: closing one again would drop the locks that SQLite holds on it for this process.

Where SQLite puts its locks: https://www.sqlite.org/walformat.html#locks, https://www.sqlite.org/src/file/src/os.h
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

LOCKS = Path("/proc/locks")

_PATIENCE_S = 0.5
"""Seconds after which a program that only saves something has long released its lock."""
_LOOKS = 10
_LOG_WRITER = range(120, 121)
"""Byte of the shared memory that the writer to the log locks."""
_FILE_WRITER = range(0x40000000, 0x40000002)
"""Bytes of the file itself that a writer without a log locks."""


def stuck_writer(path: Path) -> int | None:
    """Return the other process that has blocked all writes to the store at `path` for long enough to be sure.

    None if there is none, or the system does not tell. Raises nothing.
    """
    known = _writers(path)
    until = time.monotonic() + _PATIENCE_S
    while known and time.monotonic() < until:
        time.sleep(_PATIENCE_S / _LOOKS)
        known &= _writers(path)
    return min(known, default=None)


def _writers(path: Path) -> frozenset[int]:
    return frozenset(
        [*_holders(path, _FILE_WRITER), *_holders(Path(f"{path}-shm"), _LOG_WRITER)],
    ) - {os.getpid()}


def _holders(file: Path, bytes_: range) -> Iterator[int]:
    """Yield the processes that hold a write lock on one of these bytes."""
    try:
        status = file.stat()
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        # "1: POSIX  ADVISORY  WRITE 15682 fe:00:3203181 120 120"; a waiting one has an arrow after its number.
        match line.split():
            case [_, "POSIX" | "OFDLCK", _, "WRITE", pid, where, first, last] if where == place:
                end = float("inf") if last == "EOF" else int(last)
                if int(first) < bytes_.stop and end >= bytes_.start and int(pid) > 0:
                    yield int(pid)

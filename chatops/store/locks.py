"""Who is writing to a store just now, as the kernel lists locks. No file is opened: to close one again would give up
the locks that SQLite holds on it for this process.

Where SQLite puts its locks: https://www.sqlite.org/walformat.html#locks, https://www.sqlite.org/src/file/src/os.h
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

LOCKS = Path("/proc/locks")

_PATIENCE_S = 0.5
"""A program that only saves something has long let go by then."""
_LOOKS = 10
_LOG_WRITER = range(120, 121)
"""Byte of the shared memory that the one who writes to the log holds."""
_FILE_WRITER = range(0x40000000, 0x40000002)
"""Bytes of the file itself that who writes without a log holds."""


def stuck_writer(path: Path) -> int | None:
    """The process other than this one that has kept everybody else from writing to the store at `path` for as long as
    it takes to be sure; None if nobody has, or the system does not tell. Raises nothing."""
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
    """Processes that hold a lock for writing on one of these bytes."""
    try:
        status = file.stat()
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        # "1: POSIX  ADVISORY  WRITE 15682 fe:00:3203181 120 120"; one that waits has an arrow after its number.
        match line.split():
            case [_, "POSIX" | "OFDLCK", _, "WRITE", pid, where, first, last] if where == place:
                end = float("inf") if last == "EOF" else int(last)
                if int(first) < bytes_.stop and end >= bytes_.start and int(pid) > 0:
                    yield int(pid)

"""Filesystem checks of a store's file: owner, size, disk, and the files beside it. The file is not opened."""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from chatops.store.backup import LARGEST
from chatops.store.opening import backup_of

LITTLE_SPACE = 100_000_000
"""Bytes of free space below which a finding is reported. Below a tenth of it, the finding is BROKEN."""
LARGE_LOG = 64_000_000
"""Bytes of write-ahead log beyond which something must be blocking its checkpoint."""

_TRIED = 4096
"""Bytes to write as a test: fewer may fit where nothing else does."""


class Gravity(Enum):
    """Severity of a finding."""

    FINE = auto()
    DOUBTFUL = auto()
    BROKEN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A result of one check: a sentence, and what to do."""

    gravity: Gravity
    text: str
    advice: str = ""


def doubtful(text: str, advice: str = "") -> Finding:
    """Return a finding that the user should look into."""
    return Finding(gravity=Gravity.DOUBTFUL, text=text, advice=advice)


def surroundings(path: Path) -> list[Finding]:
    """Return all findings about an existing file, without opening it. Raises OSError."""
    return [*rights(path), *_lock(path), *_space(path), *_log(path), *_moved_aside(path), *_backup(path)]


def hindrance(folder: Path) -> tuple[str, str] | None:
    """Return why nothing can be written in `folder`, or it cannot be created, and what to do; None if it can.

    This is tested by writing, and nothing of the test stays: file permissions say nothing about a full disk, or a place
    that takes no files. Raises nothing.
    """
    there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    try:
        if there == folder:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                file.write(bytes(_TRIED))
        else:
            Path(tempfile.mkdtemp(dir=there)).rmdir()
    except OSError as error:
        why = error.strerror or str(error)
        if there != folder:
            return f"cannot be reached or made: {why}", "Set CHATOPS_HOME to a folder that can be."
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"cannot be written: {why}", "Free some space."
        return f"cannot be written: {why}", "Make it writable for you, or set CHATOPS_HOME to a folder that is."
    return None


def rights(path: Path) -> list[Finding]:
    """Return findings about who else may read or write the file. Raises OSError."""
    files = (file for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")) if file.exists())
    found = [
        doubtful(f"Others may read {file}.", f"Run: chmod 600 {file}") for file in files if file.stat().st_mode & 0o077
    ]
    folder = path.parent.stat()
    if folder.st_mode & 0o022 and not folder.st_mode & 0o1000:
        found.append(doubtful(f"Others may write to {path.parent}.", f"Run: chmod 700 {path.parent}"))
    if path.stat().st_uid != os.getuid():
        found.append(doubtful(f"{path} belongs to another user (uid {path.stat().st_uid}).", "Correct its owner."))
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        told = f"{path} cannot be written: nothing is saved."
        advice = "Make file and folder writable, or set CHATOPS_HOME to a folder that is."
        found.append(Finding(gravity=Gravity.BROKEN, text=told, advice=advice))
    return found


def _lock(path: Path) -> list[Finding]:
    pid = stuck_writer(path)
    if pid is None:
        return []
    text = f"Process {pid} has locked {path}, and meanwhile nobody else can save anything."
    return [doubtful(text, f"If it stays so, close that program; ps -p {pid} shows which one it is.")]


def _space(path: Path) -> list[Finding]:
    free = shutil.disk_usage(path.parent).free
    if free >= LITTLE_SPACE:
        return [Finding(gravity=Gravity.FINE, text=f"{size(free)} free on its disk")]
    bad = Gravity.BROKEN if free < LITTLE_SPACE / 10 else Gravity.DOUBTFUL
    return [
        Finding(gravity=bad, text=f"Only {size(free)} free on the disk of {path.parent}.", advice="Free some space.")
    ]


def _log(path: Path) -> list[Finding]:
    log = Path(f"{path}-wal")
    bytes_ = log.stat().st_size if log.exists() else 0
    if not bytes_:
        return []
    if bytes_ > LARGE_LOG:
        text = (
            f"The write-ahead log {log} has grown to {size(bytes_)}: some program has been reading the store for long."
        )
        return [doubtful(text, "Close other programs that have the store open.")]
    text = (
        f"{size(bytes_)} are still in the write-ahead log, of a chatops that runs or was killed; nothing is lost by it"
    )
    return [Finding(gravity=Gravity.FINE, text=text)]


def _moved_aside(path: Path) -> list[Finding]:
    names = sorted(
        file
        for file in path.parent.iterdir()
        if file.name.startswith((f"{path.name}.bad-", f"{path.name}.old-")) and not file.name.endswith(("-wal", "-shm"))
    )
    return [
        doubtful(
            f"{file} ({size(file.stat().st_size)}) was moved aside or kept when the store was damaged or replaced.",
            f"What is left of it: chatops sessions list --store {file}; delete it when it is not needed any more.",
        )
        for file in names
    ]


def _backup(path: Path) -> list[Finding]:
    if path.stat().st_size > LARGEST:
        text = f"There is no backup: {path} is larger than {size(LARGEST)}."
        return [doubtful(text, "Copy it while no chatops runs, or delete sessions: chatops sessions delete SESSION")]
    backup = backup_of(path)
    if not backup.exists():
        return []
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(backup.stat().st_mtime))
    return [Finding(gravity=Gravity.FINE, text=f"backup of {when} in {backup}")]


def size(bytes_: int) -> str:
    """Return a size in a readable unit: ``1.4 MB``."""
    value = float(bytes_)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


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

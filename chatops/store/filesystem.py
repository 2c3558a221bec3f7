"""Filesystem checks of a store's file: owner, size, disk, and the files beside it.

No file of the store is opened: closing one again would drop the locks that SQLite holds on it for this process.
"""

import errno
import os
import shutil
import tempfile
import time
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


class Severity(Enum):
    """Severity of a finding."""

    OK = auto()
    WARN = auto()
    FAIL = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A result of one check: a sentence, and what to do."""

    severity: Severity
    text: str
    advice: str = ""


def warning(text: str, advice: str = "") -> Finding:
    """Return a finding that the user should look into."""
    return Finding(severity=Severity.WARN, text=text, advice=advice)


def filesystem_findings(path: Path) -> list[Finding]:
    """Return all findings about an existing file, without opening it. Raises OSError."""
    return [*rights(path), *_space(path), *_log(path), *_quarantined(path), *_backup(path)]


def write_obstacle(folder: Path) -> tuple[str, str] | None:
    """Return why nothing can be written in `folder`, or it cannot be created, and what to do; None if it can.

    This is tested by writing, because permissions say nothing about a full disk. Nothing of the test stays. Raises
    nothing.
    """
    there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
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
        warning(f"Others may read {file}.", f"Run: chmod 600 {file}") for file in files if file.stat().st_mode & 0o077
    ]
    folder = path.parent.stat()
    if folder.st_mode & 0o022 and not folder.st_mode & 0o1000:
        found.append(warning(f"Others may write to {path.parent}.", f"Run: chmod 700 {path.parent}"))
    if path.stat().st_uid != os.getuid():
        found.append(warning(f"{path} belongs to another user (uid {path.stat().st_uid}).", "Correct its owner."))
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        text = f"{path} cannot be written: nothing is saved."
        advice = "Make file and folder writable, or set CHATOPS_HOME to a folder that is."
        found.append(Finding(severity=Severity.FAIL, text=text, advice=advice))
    return found


def _space(path: Path) -> list[Finding]:
    free = shutil.disk_usage(path.parent).free
    if free >= LITTLE_SPACE:
        return [Finding(severity=Severity.OK, text=f"{size(free)} free on its disk")]
    bad = Severity.FAIL if free < LITTLE_SPACE / 10 else Severity.WARN
    return [
        Finding(severity=bad, text=f"Only {size(free)} free on the disk of {path.parent}.", advice="Free some space.")
    ]


def _log(path: Path) -> list[Finding]:
    log = Path(f"{path}-wal")
    bytes_ = log.stat().st_size if log.exists() else 0
    if not bytes_:
        return []
    if bytes_ > LARGE_LOG:
        text = f"The write-ahead log {log} has grown to {size(bytes_)}: a program has long kept the store open."
        return [warning(text, "Close other programs that have the store open.")]
    text = (
        f"{size(bytes_)} are still in the write-ahead log, of a chatops that runs or was killed; nothing is lost by it"
    )
    return [Finding(severity=Severity.OK, text=text)]


def _quarantined(path: Path) -> list[Finding]:
    names = sorted(
        file
        for file in path.parent.iterdir()
        if file.name.startswith((f"{path.name}.bad-", f"{path.name}.old-")) and not file.name.endswith(("-wal", "-shm"))
    )
    return [
        warning(
            f"{file} ({size(file.stat().st_size)}) was kept when the store was damaged or replaced.",
            f"To read it: chatops sessions list --store {file}. Delete it when you do not need it any more.",
        )
        for file in names
    ]


def _backup(path: Path) -> list[Finding]:
    if path.stat().st_size > LARGEST:
        text = f"There is no backup: {path} is larger than {size(LARGEST)}."
        return [warning(text, "Copy it while no chatops runs, or delete sessions: chatops sessions delete SESSION")]
    backup = backup_of(path)
    if not backup.exists():
        return []
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(backup.stat().st_mtime))
    return [Finding(severity=Severity.OK, text=f"backup of {when} in {backup}")]


def size(bytes_: int) -> str:
    """Return a size in a readable unit: ``1.4 MB``."""
    value = float(bytes_)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"

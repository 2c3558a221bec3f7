"""Quarantine and repair: a damaged store is kept under another name, and a sound one takes its name.

The new file is complete before it gets the name, so every process that opens the store finds the one or the other. All
of this happens under the folder's lock, see `opening.locked`. A kill at any point loses nothing:

- The damaged file keeps its name until the new one takes it, so for a while it has two names.
- Its write-ahead log is moved before that, because SQLite would read it into the new file.
- A file with two names and no log beside the first is a move that was not finished. The next process that opens it
  moves the log back.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.store.connection import connect, prepared
from chatops.store.errors import refused_by_the_system
from chatops.store.identity import FileIdentity, adopt_identity, file_identity
from chatops.store.opening import backup_of, locked, make_folders, sound, uri
from chatops.store.salvage import copy_readable, intact_header
from chatops.store.schema import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOGS = ("-wal", "-journal")
_BESIDE = (*_LOGS, "-shm")


@contextmanager
def quarantined(path: Path, other: Path) -> Iterator[None]:
    """Keep the file and its log under the name `other` while another file is put at `path`.

    The caller holds the folder's lock, see `opening.locked`. If the block fails, the move is undone. Raises OSError.
    """
    try:
        os.link(path, other)
    except OSError:
        # This file system has no hard links. If the process is killed now, the file is found under the other name.
        os.rename(path, other)
    try:
        for suffix in _BESIDE:
            _move(path, other, suffix)
        yield
    except BaseException:
        _move_back(path, other)
        raise
    Path(f"{other}-shm").unlink(missing_ok=True)
    wal = Path(f"{other}-wal")
    if wal.exists() and not wal.stat().st_size:
        wal.unlink()


def undo_quarantine(path: Path) -> None:
    """Undo a move that a killed process left unfinished, so that the file at `path` has its log again.

    The caller holds the folder's lock, see `opening.locked`. Raises OSError.
    """
    for other in _other_names(path):
        _move_back(path, other)


def is_half_quarantined(path: Path) -> bool:
    """Return True if `undo_quarantine` has something to undo."""
    return bool(_other_names(path))


def free_name(path: Path, kind: str) -> Path:
    """Return ``chatops.db.bad-1``, or the first such name that is not taken."""
    names = (path.with_name(f"{path.name}.{kind}-{number}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def _other_names(path: Path) -> list[Path]:
    try:
        if path.stat().st_nlink < 2:
            return []
        return [
            one
            for one in path.parent.iterdir()
            if one.name.startswith(f"{path.name}.bad-") and one.samefile(path) and not one.is_symlink()
        ]
    except OSError:
        return []


def _move_back(path: Path, other: Path) -> None:
    if not path.exists():
        os.rename(other, path)
    elif not other.samefile(path):
        # The new file has the name already.
        return
    for suffix in _LOGS:
        beside = Path(f"{path}{suffix}")
        if Path(f"{other}{suffix}").exists() and beside.exists() and beside.stat().st_size:
            # Another program has opened the file since. What it wrote must not be lost.
            return
    for suffix in _BESIDE:
        _move(other, path, suffix)
    other.unlink(missing_ok=True)


def _move(path: Path, other: Path, suffix: str) -> None:
    beside = Path(f"{path}{suffix}")
    if beside.exists():
        beside.replace(f"{other}{suffix}")


log = logging.getLogger(__name__)

_UNFINISHED = re.compile(r"\..+\.new-(\d+)(-journal|-wal|-shm)?")


def repair(path: Path, *, vfs: str = "") -> list[str]:
    """Rename a damaged file to ``….bad-N`` and replace it by a new one with what can be read; return the notices.

    Does nothing, and returns none, if another process was first. Raises NotSavedError and sqlite3.Error if it fails;
    then the damaged file is unchanged.
    """
    with locked(path.parent, alone=True):
        if sound(path, vfs=vfs):
            return []
        bad = free_name(path, "bad")
        identity = file_identity(path)
        with new_file(path) as (raw, put_in_place), _writes_blocked(path, vfs=vfs):
            migrate(raw)
            with intact_header(path) as readable:
                where = uri(readable, mode="ro", vfs=vfs if readable == path else "")
                with closing(connect(where)) as source:
                    salvage = copy_readable(prepared(source), raw, backup=backup_of(path))
            with quarantined(path, bad):
                put_in_place(identity)
    notice = f"The session store was damaged; it was moved to {bad}, and a new one was made. {salvage.text}"
    log.warning("%s", notice)
    return [notice]


@contextmanager
def new_file(path: Path) -> Iterator[tuple[sqlite3.Connection, Callable[[FileIdentity | None], None]]]:
    """Yield an empty database to fill, and a function that moves it to `path` afterwards.

    The function takes the identity of the replaced file, so that the new one does not count as a copy. If
    it is not called, the new file is deleted.

    Raises NotSavedError if the file cannot be created.
    """
    making = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        make_folders(path.parent)
        _remove_unfinished(path.parent)
        os.close(os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise refused_by_the_system(error, path=path) from error
    raw = connect(making)

    def put_in_place(stands_for: FileIdentity | None) -> None:
        adopt_identity(raw, making, of=stands_for)
        raw.close()
        os.replace(making, path)
        flush(path.parent)

    try:
        raw.execute("PRAGMA synchronous = FULL")
        yield prepared(raw), put_in_place
    except OSError as error:
        raise refused_by_the_system(error, path=path) from error
    finally:
        raw.close()
        for suffix in ("", "-journal", "-wal", "-shm"):
            Path(f"{making}{suffix}").unlink(missing_ok=True)


@contextmanager
def _writes_blocked(path: Path, *, vfs: str) -> Iterator[None]:
    """Block commits to the damaged file by other processes meanwhile, as far as it can still be locked."""
    raw = connect(uri(path, mode="rw", vfs=vfs))
    try:
        with suppress(sqlite3.DatabaseError):
            raw.execute("BEGIN IMMEDIATE")
        yield
    finally:
        # Its name belongs to another file by now, so nothing is written back into it.
        raw.close()


def _remove_unfinished(folder: Path) -> None:
    """Delete unfinished files of processes that were killed, because they hold copies of the user's messages."""
    for one in folder.iterdir():
        made = _UNFINISHED.fullmatch(one.name)
        if made and not _is_running(int(made[1])):
            one.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return pid != os.getpid()


def flush(folder: Path) -> None:
    """Make a rename durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

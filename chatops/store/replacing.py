"""Putting a new store file in the place of another one, as a repair and a backup do.

A repair quarantines the damaged file under another name, and a new one takes its name. The new file is complete before
that, so every process that opens the store finds the one or the other. All of it happens under the folder's lock, see
`opening.locked`. The damaged file gets its second name first and loses its own when the new file takes it, so a kill at
any point loses nothing. Its write-ahead log is moved in between, because SQLite would read it into the new file.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import sqlite3
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.store.base import Holder
from chatops.store.connection import connect, prepare
from chatops.store.identity import FileIdentity, adopt_identity, file_identity
from chatops.store.opening import backup_of, is_sound, locked, make_folders, uri
from chatops.store.process_identity import is_alive
from chatops.store.salvage import copy_readable
from chatops.store.schema import migrate
from chatops.store.sqlite_errors import refused_by_the_system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

_SUFFIXES = ("-wal", "-journal", "-shm")
_UNFINISHED = re.compile(rf"(\..+\.new-(\d+)(?:-[0-9a-f]+)?)(?:{'|'.join(_SUFFIXES)})?")
_BEING_MADE: set[str] = set()
"""Names of the files that threads of this process are filling now."""


def repair(path: Path) -> list[str]:
    """Rename a damaged file to ``….bad-N`` and replace it by a new one with what can be read; return the notices.

    Does nothing, and returns none, if another process was first. Raises NotSavedError and sqlite3.Error if it fails;
    then the damaged file is unchanged.
    """
    with locked(path.parent, alone=True):
        if is_sound(path):
            return []
        bad = free_name(path, "bad")
        with new_file(path, stands_for=file_identity(path), old=bad) as (raw, put_in_place), _block_writes(path):
            migrate(raw)
            with closing(connect(uri(path, mode="ro"))) as source:
                salvage = copy_readable(prepare(source), raw, backup=backup_of(path))
            put_in_place()
    notice = f"The session store was damaged; it was moved to {bad}, and a new one was made. {salvage.text}"
    log.warning("%s", notice)
    return [notice]


def free_name(path: Path, kind: str) -> Path:
    """Return ``chatops.db.bad-1``, or the first such name that is not taken."""
    names = (path.with_name(f"{path.name}.{kind}-{number}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


@contextmanager
def new_file(
    path: Path, *, stands_for: FileIdentity | None = None, old: Path | None = None
) -> Iterator[tuple[sqlite3.Connection, Callable[[], None]]]:
    """Yield an empty database to fill, and a function that moves it to `path` afterwards.

    If the function is not called, the new file is deleted. `stands_for` is the identity of the file that it replaces,
    so that it does not count as a copy; with `old`, that file is kept under this name.

    Raises NotSavedError if the file cannot be created.
    """
    making = path.with_name(f".{path.name}.new-{os.getpid()}-{secrets.token_hex(4)}")
    _BEING_MADE.add(making.name)
    try:
        make_folders(path.parent)
        _remove_unfinished(path.parent)
        os.close(os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        _BEING_MADE.discard(making.name)
        raise refused_by_the_system(error, path=path) from error
    raw = connect(making)

    def put_in_place() -> None:
        adopt_identity(raw, making, of=stands_for)
        raw.close()
        _flush(making)
        if old is not None:
            _move_aside(path, old)
        os.replace(making, path)
        _flush(path.parent)

    try:
        raw.execute("PRAGMA synchronous = FULL")
        yield prepare(raw), put_in_place
    except OSError as error:
        raise refused_by_the_system(error, path=path) from error
    finally:
        raw.close()
        for suffix in ("", *_SUFFIXES):
            Path(f"{making}{suffix}").unlink(missing_ok=True)
        _BEING_MADE.discard(making.name)


def _move_aside(path: Path, other: Path) -> None:
    """Give the file and its log the name `other`; its own name stays until another file takes it."""
    try:
        os.link(path, other)
    except OSError:
        # This file system has no hard links. If the process is killed now, the file is found under the other name.
        os.rename(path, other)
    for suffix in _SUFFIXES:
        beside = Path(f"{path}{suffix}")
        if suffix != "-shm" and beside.exists() and beside.stat().st_size:
            beside.replace(f"{other}{suffix}")
        beside.unlink(missing_ok=True)


@contextmanager
def _block_writes(path: Path) -> Iterator[None]:
    """Block commits to the damaged file by other processes meanwhile, as far as it can still be locked."""
    raw = connect(uri(path, mode="rw"))
    try:
        with suppress(sqlite3.DatabaseError):
            raw.execute("BEGIN IMMEDIATE")
        yield
    finally:
        # Its name belongs to another file by now, so nothing is written back into it.
        raw.close()


def _remove_unfinished(folder: Path) -> None:
    """Delete unfinished files of processes that were killed, because they hold copies of the user's messages."""
    for file in folder.iterdir():
        if made := _UNFINISHED.fullmatch(file.name):
            # One of this process id that nothing here fills was left by an earlier process.
            pid = int(made[2])
            is_over = pid == os.getpid() or not is_alive(Holder(host="", pid=pid, boot_id="", pid_started=""))
            if is_over and made[1] not in _BEING_MADE:
                file.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Make a file durable, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

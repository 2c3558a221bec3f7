"""Quarantine and repair: a damaged store is kept under another name, and a sound one takes its name.

The new file is complete before it gets the name, so every process that opens the store finds the one or the other. All
of this happens under the folder's lock, see `opening.locked`. The damaged file gets its second name first and loses its
own when the new file takes it, so a kill at any point loses nothing. Its write-ahead log is moved in between, because
SQLite would read it into the new file.

A backup copy of the store is made while no turn runs, at most once a day. The copy is ``chatops.db.backup`` beside the
store. SQLite reads one moment of the store, so other processes can write meanwhile. The copy gets its name once it is
complete and sound, so a kill leaves the one before. It is never made at exit, where the user would wait for it.

A repair takes from it what cannot be read any more, see `reading`. A session that is deleted is deleted there too. Put
in place of the store, it counts as a copy: approved calls ask again, see `identity`.
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

from chatops.domain.errors import StoreError
from chatops.store import sessions
from chatops.store.base import Holder
from chatops.store.connection import Connection, connect, prepared, refused_by_the_system, translated
from chatops.store.identity import FileIdentity, adopt_identity, file_identity
from chatops.store.leases import is_alive
from chatops.store.opening import backup_of, faults_of, locked, make_folders, refuse_other_version, sound, uri
from chatops.store.reading import copy_readable
from chatops.store.schema import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chatops.domain.ids import SessionId

log = logging.getLogger(__name__)

LARGEST = 200_000_000
"""Bytes of a store above which no backup is made."""
EVERY_S = 86_400.0
"""Seconds from one backup to the next."""
_STEPS = 10_000
"""Instructions of SQLite, some milliseconds, between two checks if the copy should go on."""


def is_due(path: Path, *, now: float) -> bool:
    """Return True if the store at `path` should be backed up, `now` in seconds since the epoch."""
    try:
        if path.stat().st_size > LARGEST:
            return False
        return not 0 <= now - backup_of(path).stat().st_mtime < EVERY_S
    except FileNotFoundError:
        return path.exists()
    except OSError:
        return False


def make_backup(path: Path, *, idle: Callable[[], bool]) -> bool:
    """Copy the store at `path`, and return True if that was done.

    It is given up as soon as `idle` returns False, which is called again and again. A damaged store does not replace
    the backup of a sound one. Raises StoreError.
    """
    refuse_other_version(path)
    with (
        translated(path),
        closing(connect(uri(path, mode="rw"))) as source,
        new_file(backup_of(path)) as (target, put_in_place),
    ):
        source.set_progress_handler(lambda: not idle(), _STEPS)
        (_, _, file) = target.execute("PRAGMA database_list").fetchone()
        try:
            source.execute("VACUUM INTO ?", (file,))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            log.info("no backup for now: a turn runs")
            return False
        source.set_progress_handler(None, 0)
        if faults := faults_of(target):
            log.warning("no backup of a damaged store: %s", faults[0])
            return False
        with locked(path.parent, alone=True):
            if _ids(target) - _ids(source):
                log.info("no backup for now: a session was deleted meanwhile")
                return False
            put_in_place()
    return True


def delete_from_backup(path: Path, session_id: SessionId) -> None:
    """Delete a session in the backup of the store at `path`. A backup that cannot be changed is removed."""
    backup = backup_of(path)
    with locked(path.parent, alone=True):
        if not backup.exists():
            return
        try:
            with closing(prepared(connect(backup))) as raw:
                raw.execute("PRAGMA secure_delete = ON")
                rows = Connection(raw, path=backup)
                with rows.write():
                    if sessions.exists(rows, session_id):
                        sessions.delete(rows, session_id)
        except (StoreError, sqlite3.Error) as error:
            log.warning("the backup is removed: %s", error)
            backup.unlink(missing_ok=True)


def _ids(raw: sqlite3.Connection) -> set[object]:
    return {row[0] for row in raw.execute("SELECT id FROM sessions")}


_BESIDE = ("-wal", "-journal", "-shm")
_UNFINISHED = re.compile(rf"\..+\.new-(\d+)({'|'.join(_BESIDE)})?")


def repair(path: Path) -> list[str]:
    """Rename a damaged file to ``….bad-N`` and replace it by a new one with what can be read; return the notices.

    Does nothing, and returns none, if another process was first. Raises NotSavedError and sqlite3.Error if it fails;
    then the damaged file is unchanged.
    """
    with locked(path.parent, alone=True):
        if sound(path):
            return []
        bad = free_name(path, "bad")
        with (
            new_file(path, stands_for=file_identity(path), old=bad) as (raw, put_in_place),
            _writes_blocked(path),
        ):
            migrate(raw)
            with closing(connect(uri(path, mode="ro"))) as source:
                salvage = copy_readable(prepared(source), raw, backup=backup_of(path))
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
    making = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        make_folders(path.parent)
        _remove_unfinished(path.parent)
        os.close(os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise refused_by_the_system(error, path=path) from error
    raw = connect(making)

    def put_in_place() -> None:
        adopt_identity(raw, making, of=stands_for)
        raw.close()
        _flush(making)
        if old is not None:
            _keep_as(path, old)
        os.replace(making, path)
        _flush(path.parent)

    try:
        raw.execute("PRAGMA synchronous = FULL")
        yield prepared(raw), put_in_place
    except OSError as error:
        raise refused_by_the_system(error, path=path) from error
    finally:
        raw.close()
        for suffix in ("", *_BESIDE):
            Path(f"{making}{suffix}").unlink(missing_ok=True)


def _keep_as(path: Path, other: Path) -> None:
    """Give the file and its log the name `other`; its own name stays until another file takes it."""
    try:
        os.link(path, other)
    except OSError:
        # This file system has no hard links. If the process is killed now, the file is found under the other name.
        os.rename(path, other)
    for suffix in _BESIDE:
        beside = Path(f"{path}{suffix}")
        if suffix != "-shm" and beside.exists() and beside.stat().st_size:
            beside.replace(f"{other}{suffix}")
        beside.unlink(missing_ok=True)


@contextmanager
def _writes_blocked(path: Path) -> Iterator[None]:
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
            pid = int(made[1])
            if pid == os.getpid() or not is_alive(Holder(host="", pid=pid, boot_id="", pid_started="")):
                file.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Make a file durable, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

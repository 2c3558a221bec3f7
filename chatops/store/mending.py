"""Repair: replace a damaged store by a sound file, and keep the damaged one beside it under another name.

The new file is complete before it gets the name, so every process that opens the store finds the one or the other. All
of this happens under the folder's lock, see `opening.locked`.
"""

import logging
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from chatops.store.aside import aside, free_name
from chatops.store.connection import BUSY_TIMEOUT_MS, prepared
from chatops.store.faults import refused_by_the_system
from chatops.store.opening import backup_of, locked, make_folders, sound, uri
from chatops.store.place import Place, place_of, take_the_place
from chatops.store.salvage import carry_over
from chatops.store.schema import migrate

log = logging.getLogger(__name__)

_UNFINISHED = re.compile(r"\..+\.new-(\d+)(-journal|-wal|-shm)?")


def mend(path: Path, *, vfs: str = "") -> list[str]:
    """Rename a damaged file to ``….bad-N`` and replace it by a new one with what can be read; return the notices.

    Does nothing, and returns none, if another process was first. Raises NotSavedError and sqlite3.Error if it fails;
    then the damaged file is unchanged.
    """
    with locked(path.parent, alone=True):
        if sound(path, vfs=vfs):
            return []
        bad = free_name(path, "bad")
        place = place_of(path)
        with new_file(path) as (raw, put_in_place), _kept_from_writing(path, vfs=vfs):
            migrate(raw)
            with closing(sqlite3.connect(uri(path, mode="ro", vfs=vfs), uri=True, isolation_level=None)) as source:
                salvage = carry_over(prepared(source), raw, backup=backup_of(path))
            with aside(path, bad):
                put_in_place(place)
    said = f"The session store was damaged; it was moved to {bad}, and a new one was made. {salvage.text}"
    log.warning("%s", said)
    return [said]


@contextmanager
def new_file(path: Path) -> Iterator[tuple[sqlite3.Connection, Callable[[Place | None], None]]]:
    """Yield an empty database to be filled, and a function that puts it at `path` once it is.

    That function is given the identity of the file that the new one stands for, so that it does not count as a copy. If
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
    raw = sqlite3.connect(making, isolation_level=None, check_same_thread=False)

    def put_in_place(stands_for: Place | None) -> None:
        take_the_place(raw, making, of=stands_for)
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
def _kept_from_writing(path: Path, *, vfs: str) -> Iterator[None]:
    """Block commits to the damaged file by other processes meanwhile, as far as it can still be locked."""
    raw = sqlite3.connect(uri(path, mode="rw", vfs=vfs), uri=True, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None)
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

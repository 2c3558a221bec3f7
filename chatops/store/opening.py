"""Creating, protecting and opening the store's file, and refusing files that must not be touched.

The file is 0600 (SQLite gives ``-wal`` and ``-shm`` the same mode), folders made for it are 0700. A process that opens
the file holds a shared lock on its folder meanwhile, and one that replaces it an exclusive lock.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import sqlite3
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.config.folder_identity import inode_of
from chatops.domain.errors import NotSavedError, UnreadableError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.store.connection import BUSY_TIMEOUT_MS, connect, prepare
from chatops.store.identity import OPEN_HERE, FileIdentity, Inode, file_identity, recognise_copy
from chatops.store.schema import (
    APPLICATION_ID,
    HEADER_LENGTH,
    UNRELEASED_ID,
    application_id,
    migrate,
    must_be_known,
    schema_faults,
    user_version,
)
from chatops.store.sqlite_errors import Damage, is_busy, is_damage, refused_by_the_system

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

CHECKED_BYTES = 64 * 1024 * 1024
"""Bytes up to which a file is checked for damage whenever it is opened, which takes 60 ms at most.

Damage in a larger file is found when it is read, or by `chatops doctor`.
"""

NEEDED_BYTES = 256 * 1024
"""Bytes that must be free to start a session: what a turn or two take, with their log."""


@frozen_dataclass
class OpenedFile:
    """A store's file, open and sound as far as it was checked."""

    raw: sqlite3.Connection
    inodes: tuple[tuple[Path, Inode], ...] = ()
    """The file, its write-ahead log, and the log's shared memory (``-shm``) on which processes lock each other out."""
    identity: FileIdentity | None = None
    notices: tuple[str, ...] = ()

    @property
    def file(self) -> Inode | None:
        """The file without its log; None for a store in memory."""
        return self.inodes[0][1] if self.inodes else None


def open_file(path: Path) -> OpenedFile:
    """Open the file, or create it.

    Raises UnreadableError for a file of a newer version or of another program, which is not touched. Raises
    NotSavedError if nothing can be written, and sqlite3.Error (see `sqlite_errors.is_damage`) for all else.
    """
    refuse_other_version(path)
    with locked(path.parent):
        _make_writable(path)
        identity = file_identity(path)
        raw, notices = _open_checked(path, identity)
        names = (path, Path(f"{path}-wal"), Path(f"{path}-shm"))
        found = ((name, inode_of(name)) for name in names)
        inodes = tuple((name, inode) for name, inode in found if inode is not None)
        return OpenedFile(raw=raw, inodes=inodes, identity=identity, notices=notices)


def _open_checked(path: Path, identity: FileIdentity | None) -> tuple[sqlite3.Connection, tuple[str, ...]]:
    with closing(connect(uri(path, mode="ro"))) as raw:
        check(raw, path, pages=path.stat().st_size <= CHECKED_BYTES)
    # Only now: the file of another program stays as it is.
    _close_to_others(path)
    raw = connect(uri(path, mode="rwc"))
    try:
        raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        notices = _choose_journal(raw, path)
        raw.execute("PRAGMA synchronous = FULL")
        # Deleted content is overwritten, in free pages too.
        raw.execute("PRAGMA secure_delete = ON")
        migrate(raw)
        recognise_copy(raw, identity)
        return prepare(raw), notices
    except BaseException:
        raw.close()
        raise


_ONE_ROW = re.compile(r"(NULL|NUMERIC|TEXT|non-\w+) value in |CHECK constraint failed")
"""Complaints about a value of another type than its column: that row is shown as damaged, the file is sound."""


def faults_of(raw: sqlite3.Connection, *, how: str = "quick_check") -> list[str]:
    """Return the first complaints about the pages of a database. Only ``integrity_check`` finds damage in an index."""
    found = [str(row[0]) for row in raw.execute(f"PRAGMA {how}(20)")]
    return [complaint for complaint in found if complaint != "ok" and not is_of_one_row(complaint)]


def is_of_one_row(complaint: str) -> bool:
    """Return True if a complaint of SQLite is about a value and not about the file."""
    return _ONE_ROW.match(complaint) is not None


def check(raw: sqlite3.Connection, path: Path, *, pages: bool = True) -> None:
    """Check the program, version and tables of an open file, and with `pages` all of its pages too.

    Raises UnreadableError for a file of a newer version or of another program, and sqlite3.Error for one that is
    damaged.
    """
    must_be_ours(raw, path)
    if faults := schema_faults(raw) or (faults_of(raw) if pages else []):
        raise Damage("; ".join(faults))


def must_be_ours(raw: sqlite3.Connection, path: Path) -> None:
    """Raise UnreadableError for a database of a newer version or of another program.

    Raises sqlite3.Error if it cannot be read.
    """
    version = int(raw.execute("PRAGMA user_version").fetchone()[0])
    # Count the tables first: another process may be creating the file, and the application id comes with its first
    # table.
    tables = int(raw.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    owner = int(raw.execute("PRAGMA application_id").fetchone()[0])
    _refuse_unreleased(path, owner)
    if tables and owner != APPLICATION_ID:
        raise UnreadableError(
            f"{path} is a database of another program; it was not opened.",
            advice="Move it away, or set CHATOPS_HOME to another folder.",
        )
    _refuse_newer(path, version)


def is_sound(path: Path) -> bool:
    """Return True if there is an intact store at `path`, after checking all of it.

    Raises UnreadableError as `check` does, and sqlite3.Error for errors other than damage.
    """
    try:
        with closing(connect(uri(path, mode="ro"))) as raw:
            check(raw, path, pages=False)
            return path.stat().st_size > 0 and not faults_of(raw, how="integrity_check")
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        return False


def refuse_other_version(path: Path) -> None:
    """Raise UnreadableError for a store of a newer version, or of before the first release.

    Reads only the first bytes of the file, because opening it, even for reading, would leave files beside it. Raises
    NotSavedError for a pipe, socket or device, which opening could wait for without end.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise NotSavedError(
            f"The session store {path} is a pipe, socket or device, not a file.",
            advice="Move it away, or set CHATOPS_HOME to another folder.",
            reason=f"{path.name} is not a file",
        )
    # A file that is open in this process is not read: closing it here would drop the locks that SQLite holds on it.
    if OPEN_HERE[inode_of(path)] > 0:
        return
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_LENGTH)
    except OSError:
        return
    owner = application_id(header)
    _refuse_unreleased(path, owner)
    if owner == APPLICATION_ID:
        _refuse_newer(path, user_version(header))


def _refuse_unreleased(path: Path, owner: int) -> None:
    if owner == UNRELEASED_ID:
        raise UnreadableError(
            f"The session store {path} was made by a chatops from before 0.1.0, which this one cannot read; it was not "
            "opened.",
            advice="Move it away to start a new one, or set CHATOPS_HOME to another folder.",
        )


def _refuse_newer(path: Path, version: int) -> None:
    advice = "Update chatops, or set CHATOPS_HOME to another folder."
    must_be_known(version, what=f"The session store {path} was", then="it was not opened", advice=advice)


def _make_writable(path: Path) -> None:
    """Create file and folders with no rights for others, whatever the umask; an existing file must be writable."""
    try:
        make_folders(path.parent)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        elif not path.is_file():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        elif not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise refused_by_the_system(error, path=path) from error


def _close_to_others(path: Path) -> None:
    """Take all rights of others to the file and its log, which may have been made under another umask."""
    try:
        for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            if name.exists() and name.stat().st_mode & 0o177:
                name.chmod(0o600)
    except OSError as error:
        raise refused_by_the_system(error, path=path) from error


def must_have_room(path: Path) -> None:
    """Raise NotSavedError if the disk is too full to store a turn, although the file can be opened.

    Writes to a file without a name, because free space says nothing about a quota.
    """
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(NEEDED_BYTES))
            file.flush()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise refused_by_the_system(error, path=path) from error


def make_folders(folder: Path) -> None:
    """Create a folder and its missing parents, closed to others. Raises OSError."""
    for missing in reversed([above for above in (folder, *folder.parents) if not above.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def locked(folder: Path, *, alone: bool = False) -> Iterator[None]:
    """Lock the folder of a store's file: shared to open it, exclusively (`alone`) to replace it.

    If a folder cannot be locked, as on some network drives, nothing is locked.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise refused_by_the_system(error, path=folder) from error
        # The folder does not exist yet, or may not be read.
        yield
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        except OSError as error:
            log.info("%s cannot be locked: %s", folder, error)
        yield
    finally:
        os.close(handle)


def backup_of(path: Path) -> Path:
    """Return the name of a store's backup."""
    return path.with_name(f"{path.name}.backup")


def uri(path: Path, *, mode: str) -> str:
    """Return the URI of a database file for SQLite. `mode` is ``ro``, ``rw`` or ``rwc``."""
    return f"{path.absolute().as_uri()}?mode={mode}"


def _choose_journal(raw: sqlite3.Connection, path: Path) -> tuple[str, ...]:
    """Choose WAL, or DELETE where processes share no memory. Returns the notices."""
    if _switch_to_wal(raw, path):
        return ()
    raw.execute("PRAGMA journal_mode = DELETE").fetchone()
    return (f"{path} is on a drive without write-ahead logging: saving is slower, and nothing is lost.",)


def _switch_to_wal(raw: sqlite3.Connection, path: Path) -> bool:
    """Switch to the write-ahead log. Returns False if that does not work."""
    give_up_at = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while raw.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            mode = raw.execute("PRAGMA journal_mode = WAL").fetchone()
            raw.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return bool(mode == ("wal",))
        except sqlite3.OperationalError as error:
            # Two processes that start at once meet here, and SQLite does not wait for this lock.
            if not is_busy(error):
                log.warning("write-ahead log refused for %s: %s", path, error)
                return False
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)
    return True

"""Errors of SQLite as sentences for the user, each with the next step.

SQLite gives one code to several causes: a full disk, no more descriptors and a drive without locks are found out here.
"""

import errno
import fcntl
import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from chatops.domain.errors import NotSavedError, StoreError, UnreadableError

DISK_FULL = "disk full"
READ_ONLY = "home is read-only"
NEEDED_DESCRIPTORS = 8
"""Open files that a store needs besides those of the rest of the program: database, log, shared memory, folder."""

_LOCKED = (
    "locked by another program",
    "Not saved: another program keeps {path} locked.",
    "End the program that holds it (a backup, a database browser, or a chatops that hangs), then try again.",
    True,
)
_PASSING: dict[int, tuple[str, str, str, bool]] = {
    sqlite3.SQLITE_FULL: (
        DISK_FULL,
        "Disk full: this is not saved to {path}.",
        "Free some space; what was saved before is safe, and calls that need approval wait until saving works.",
        False,
    ),
    sqlite3.SQLITE_READONLY: (
        READ_ONLY,
        "Not saving: {path} cannot be written.",
        "Make the file and its folder writable, or set CHATOPS_HOME to a folder that is.",
        True,
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "the file cannot be opened",
        "Not saving: {path} cannot be opened.",
        "Make its folder writable, or set CHATOPS_HOME to a folder that is.",
        True,
    ),
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_IOERR: (
        "the disk fails",
        "The disk could not read or write {path}.",
        "Check the disk and its free space; run `chatops doctor` for details.",
        False,
    ),
}
"""Errors that may pass, raised as NotSavedError: reason, message, advice, and whether the message says it is not
saved."""

_LASTING: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_NOMEM: ("There is not enough memory to use {path}.", "Close other programs, then try again."),
    sqlite3.SQLITE_TOOBIG: ("A text is too large to be saved in {path}.", "Shorten it, then try again."),
}


class Damage(sqlite3.DatabaseError):
    """Damage that a check of the pages found in a file that SQLite could open."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def is_damage(error: sqlite3.Error) -> bool:
    """Return True if the file itself is broken, so that retrying is no use."""
    return _primary_code(error) in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}


def is_busy(error: sqlite3.Error) -> bool:
    """Return True if another process is in the way, so that waiting helps."""
    return _primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def store_error(error: sqlite3.Error, *, path: Path) -> StoreError:
    """Return `error` as a StoreError: UnreadableError for a damaged file, NotSavedError for errors that may pass."""
    code = sqlite3.SQLITE_FULL if _is_disk_full(error, path) else _primary_code(error)
    if is_damage(error):
        return UnreadableError(
            f"The session store {path} is damaged ({error}).",
            advice="Run `chatops doctor`; export what can be read, then move the file away and start again.",
        )
    if code == sqlite3.SQLITE_CANTOPEN and _lacks_descriptors():
        return refused_by_the_system(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), path=path)
    if code == sqlite3.SQLITE_CANTOPEN and _lacks_inodes(path):
        return refused_by_the_system(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), path=path)
    if is_busy(error) and _grants_no_locks(path):
        return NotSavedError(
            f"Not saved: the drive of {path} grants no locks.",
            advice="Check the network drive's lock service, or set CHATOPS_HOME to a folder on this machine.",
            reason="the drive grants no locks",
            says_so=True,
        )
    if code in _PASSING:
        reason, message, advice, says_so = _PASSING[code]
        return NotSavedError(message.format(path=path), advice=advice, reason=reason, says_so=says_so)
    if code in _LASTING:
        message, advice = _LASTING[code]
        return StoreError(message.format(path=path), advice=advice)
    return StoreError(f"The session store {path} failed: {error}.", advice="Run `chatops doctor` to look at the store.")


def _lacks_descriptors() -> bool:
    """Return True if this process can hardly open more files. SQLite does not report that as the reason."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        return limit - len(os.listdir("/proc/self/fd")) < NEEDED_DESCRIPTORS
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)


def _is_disk_full(error: sqlite3.Error, path: Path) -> bool:
    """Return True if a failed read or write is due to a full disk. SQLite does not always tell the two apart."""
    try:
        return _primary_code(error) == sqlite3.SQLITE_IOERR and os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False


def _lacks_inodes(path: Path) -> bool:
    """Return True if the disk can hold no more files, whatever space is free. Some file systems keep no such count."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_files > 0 and disk.f_favail == 0


def _grants_no_locks(path: Path) -> bool:
    """Return True if the drive refuses any lock, which SQLite reports like a lock that another program holds.

    Tested on a separate file: closing the database file here would drop SQLite's locks on it.
    """
    try:
        with TemporaryFile(dir=path.parent) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
    return False


def refused_by_the_system(error: OSError, *, path: Path) -> NotSavedError:
    """Return why a folder or file of the store cannot be created or opened for writing."""
    match error.errno:
        case errno.EROFS | errno.EACCES | errno.EPERM:
            reason = READ_ONLY
            text = f"{reason} ({path} cannot be written: {error.strerror})"
            advice = "Make it writable, or set CHATOPS_HOME to a folder that is."
        case errno.ENOSPC if _lacks_inodes(path):
            reason = "no room for another file"
            text = f"{reason} ({path}): the disk has no inodes left"
            advice = "Delete files that are not needed, however small; free space alone does not help."
        case errno.ENOSPC | errno.EDQUOT:
            reason = DISK_FULL
            text = f"{reason} ({path} cannot be written)"
            advice = "Free some space."
        case errno.EMFILE | errno.ENFILE:
            reason = "too many open files"
            text = f"{reason} ({path} cannot be opened)"
            advice = "Allow more of them: ulimit -n 1024"
        case _:
            reason = f"{path.name} cannot be opened"
            text = f"{path} cannot be opened for writing ({error.strerror or error})"
            advice = "Correct its folder, or set CHATOPS_HOME to a folder of your own."
    return NotSavedError(f"Not saving: {text}.", advice=advice, reason=reason, says_so=True)


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error, path=path) from error


def _primary_code(error: sqlite3.Error) -> int:
    """Return the primary result code; 0 for errors that Python's module raises itself."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF

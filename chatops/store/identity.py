"""Identity of a store's file: a copy is recognised when it is opened, and what was approved in it is void.

The identity of the file is kept in the file itself.

A file that is copied, or restored from a backup, gets another inode. If it happens to get the number of a deleted one,
it has another generation: a random number that the file system draws with each inode. A renamed file keeps both. In a
copy, no earlier approval lets anything run, because the approved work may have been done where the copy comes from, and
no remembered rule answers.

A file that chatops itself makes to replace a damaged or deleted one is no copy: it names the one that it stands for.
Processes that still have that one open look for the name, and use the new file from then on.

Not every file system tells the generation, and an unknown one counts as equal. Not recognised are a file that was
overwritten in place (``cp`` onto it), or restored with the whole disk. A file system that gives files new numbers
(``vfat``, some network drives) makes a store look like a copy, and approved calls ask again.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chatops.config.folder_identity import inode_of
from chatops.domain.decisions import Approved, Edited
from chatops.domain.errors import UnreadableError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.store.connection import Value, transaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from chatops.domain.ids import TurnId

COPIED = "copied:"
"""Prefix of the settings that name turns of a copied store, see `copied_key`."""

REPLACES = "replaces:"
"""Prefix of the settings that name the files which a store stands for, see `stands_for`."""

IDENTITY_KEY = "place"
"""Setting that holds the identity of the file."""
_FS_IOC_GETVERSION = 0x80087601
"""Request for an inode's generation, see ioctl_iflags(2). Other systems refuse it."""

Inode = tuple[int, int]
"""Device and inode of a file, independent of its name."""

OPEN_HERE: Counter[Inode | None] = Counter()
"""The number of stores of this process that have each file open. Only SQLite may open such a file in this process: any
other code drops SQLite's locks on the file when it closes it."""


@frozen_dataclass
class FileIdentity:
    """Identity of a file, independent of its name."""

    inode: int
    generation: int
    """0 if the file system does not tell."""

    def __str__(self) -> str:
        """Return the form in which it is stored."""
        return f"{self.inode}:{self.generation}"

    def may_be(self, stored: str) -> bool:
        """Return True if nothing known differs from a stored identity. One that cannot be read is another file's."""
        inode, _, generation = stored.partition(":")
        return inode == str(self.inode) and (not self.generation or generation in ("0", str(self.generation)))


_NO_FILE = FileIdentity(inode=-1, generation=0)
"""Identity that no file has: a store with it counts as a copy wherever it is opened."""


def copied_key(turn_id: TurnId) -> str:
    """Return the setting that is not empty if the turn was already stored when this store was copied."""
    return f"{COPIED}{turn_id}"


def file_identity(path: Path) -> FileIdentity | None:
    """Return the identity of the file with this name; None if it cannot be known."""
    try:
        return FileIdentity(
            inode=path.stat().st_ino, generation=0 if OPEN_HERE[inode_of(path)] > 0 else _read_generation(path)
        )
    except OSError:
        return None


def recognise_copy(raw: sqlite3.Connection, here: FileIdentity | None) -> None:
    """Compare the stored identity of an open store with that of its file.

    If they differ, the store is a copy. Its unfinished turns are marked as copied, and posted decisions and reviews
    that would let something run are deleted. `raw` is in autocommit mode. Raises sqlite3.Error if that cannot be
    stored.
    """
    if here is None or _read_identity(raw) == str(here):
        return
    is_copy = False
    try:
        with transaction(raw):
            stored = _read_identity(raw)
            is_copy = stored is not None and not here.may_be(stored)
            if is_copy:
                void_approvals(raw.execute)
            # An identity that differs and is of no copy lacks a generation: it is stored once that is known.
            if is_copy or stored is None or here.generation:
                _store_identity(raw, here)
    except sqlite3.Error:
        # The identity can be stored another time (the disk may be full only for now). The marks of a copy cannot wait.
        if is_copy:
            raise


def adopt_identity(raw: sqlite3.Connection, file: Path, *, of: FileIdentity | None) -> None:
    """Make a new file, open as `raw` and filled from the one identified by `of`, stand for that one.

    It then does not count as a copy, unless the old one did already, or its stored identity was lost through damage.
    Processes that still have the old one open find out with `stands_for`.
    """
    if of is not None:
        raw.execute("INSERT OR REPLACE INTO settings (key, value) VALUES (?, '')", (f"{REPLACES}{of}",))
    stored, here = _read_identity(raw), file_identity(file)
    if stored is None:
        _store_identity(raw, _NO_FILE)
    elif here is not None and of is not None and of.may_be(stored):
        _store_identity(raw, here)


def stands_for(raw: sqlite3.Connection, file: FileIdentity) -> bool:
    """Return True if the store `raw` was made from `file` by `adopt_identity`, also by way of further files."""
    keys = raw.execute("SELECT key FROM settings WHERE substr(key, 1, ?) = ?", (len(REPLACES), REPLACES))
    return any(file.may_be(str(key).removeprefix(REPLACES)) for (key,) in keys)


def disown(raw: sqlite3.Connection) -> None:
    """Make a store count as a copy wherever it is opened next."""
    _store_identity(raw, _NO_FILE)


def void_approvals(execute: Callable[..., Any]) -> None:
    """Mark the unfinished turns, revoke all rules, and delete approvals and reviews that were not taken yet.

    `execute` takes a statement and its values.
    """
    execute("UPDATE rules SET revoked_at = ? WHERE revoked_at IS NULL", (time.time(),))
    execute(f"DELETE FROM settings WHERE substr(key, 1, {len(COPIED)}) = ?", (COPIED,))
    execute(
        "INSERT INTO settings (key, value) SELECT ? || active_turn, '1' FROM sessions WHERE active_turn IS NOT NULL "
        "GROUP BY active_turn",
        (COPIED,),
    )
    for table, column, lets in (("posted", "decision", lets_run), ("posted_reviews", "body", lets_continue)):
        for seq, posted in execute(f"SELECT seq, {column} FROM {table}").fetchall():
            if lets(posted):
                execute(f"DELETE FROM {table} WHERE seq = ?", (seq,))


def lets_run(decision: Value) -> bool:
    """Return True if a decision lets something run. One that cannot be read is void."""
    from chatops.store.codec import decode_decision

    try:
        return isinstance(decode_decision(decision), Approved | Edited)
    except UnreadableError:
        return False


def lets_continue(body: Value) -> bool:
    """Return True if an input lets a workflow run continue. One that cannot be read is void."""
    from chatops.engine.workflow.inputs import ReviewStep, StopRun
    from chatops.store.codec import decode_review

    try:
        posted = decode_review(body)
    except UnreadableError:
        return False
    return isinstance(posted, ReviewStep) and not isinstance(posted.review, StopRun)


def _read_identity(raw: sqlite3.Connection) -> str | None:
    row = raw.execute("SELECT value FROM settings WHERE key = ?", (IDENTITY_KEY,)).fetchone()
    return None if row is None else str(row[0])


def _store_identity(raw: sqlite3.Connection, here: FileIdentity) -> None:
    raw.execute("INSERT OR REPLACE INTO settings (key, value) VALUES (?, ?)", (IDENTITY_KEY, str(here)))


def _read_generation(path: Path) -> int:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int.from_bytes(fcntl.ioctl(handle, _FS_IOC_GETVERSION, bytes(8))[:4], sys.byteorder)
    except OSError:
        return 0
    finally:
        os.close(handle)

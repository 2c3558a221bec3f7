"""The store's file while it is in use: repaired if damaged, written again if deleted.

If another file was put at its path, the open sessions continue in memory. The user is told of each of these, see
`notices`. No row is ever written to a file that has lost its name.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from chatops.config.folder_identity import inode_of
from chatops.domain.errors import NotSavedError, StoreError, UnreadableError
from chatops.store.connection import Connection, connect, prepare
from chatops.store.identity import OPEN_HERE, disown, stands_for
from chatops.store.opening import OpenedFile, is_sound, locked, open_file, uri
from chatops.store.replacing import free_name, new_file, repair
from chatops.store.sqlite_errors import is_damage, refused_by_the_system, translate_errors

log = logging.getLogger(__name__)


REPLACED = "the session store was replaced"
"""Value of `Store.unsaved` while the open sessions continue in memory."""


class StoreFile(Connection):
    """The open file of a user's store."""

    def __init__(self, path: Path, *, memory: Connection | None = None) -> None:
        """Open the file, or create it. With `memory`, use its rows: the file is not opened yet.

        What can be read of a damaged file is copied into a new one. The damaged file is quarantined, and `notices` says
        so.

        Raises StoreError, and UnreadableError for a file that must not be touched.
        """
        with translate_errors(path):
            opened = _open_or_repair(path) if memory is None else OpenedFile(raw=memory._raw)
        super().__init__(opened.raw, path=path, unsaved="" if memory is None else memory.unsaved)
        self._opened = opened
        OPEN_HERE[opened.file] += 1
        self.notices += opened.notices

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            if not self._closed:
                OPEN_HERE[self._opened.file] -= 1
            super().close()

    def _switch_to(self, opened: OpenedFile) -> None:
        self._raw.close()
        OPEN_HERE[self._opened.file] -= 1
        self._raw, self._opened = opened.raw, opened
        OPEN_HERE[opened.file] += 1
        self.notices += opened.notices

    def _continue_with(self, other: StoreFile) -> None:
        """Use the file that `other` has open, and which is only used here from now on."""
        self._switch_to(replace(other._opened, notices=tuple(other.notices)))
        # Counted twice now, for `other` too. That one is not closed: its connection is in use here.
        OPEN_HERE[other._opened.file] -= 1
        self.unsaved = ""

    def changes(self) -> int:
        """Return the number of `Connection.changes` for the file at the path."""
        with self._lock, translate_errors(self.path):
            if not self._closed and not self._is_in_place():
                self._recover()
            return super().changes()

    def _begin(self, begin: str) -> None:
        """Begin a transaction on the file at the path: rows written to any other file would be lost."""
        super()._begin(begin)
        # Checked only now that this process holds the lock: a process that replaces the file waits for the lock before
        # it reads the old one.
        if self._is_in_place():
            return
        self._raw.execute("ROLLBACK")
        self._recover()
        super()._begin(begin)

    def _handle_failure(self, error: sqlite3.Error) -> None:
        """Repair a file that turned out to be damaged, then raise NotSavedError: the request may be repeated."""
        if self.unsaved or not is_damage(error):
            return
        log.warning("damage was found in %s: %s", self.path, error)
        try:
            notices = repair(self.path)
            self._switch_to(open_file(self.path))
        except (StoreError, sqlite3.Error) as failure:
            log.warning("it could not be repaired: %s", failure)
            return
        self.notices += notices
        message = " ".join(notices) or f"The session store {self.path} was damaged; another chatops has repaired it."
        raise NotSavedError(message, advice="Try again.", reason="session store damaged") from error

    def _is_in_place(self) -> bool:
        """Return True if the file, its log and the log's index still have their names, and for rows in memory.

        A process that opens the file without its log sees an old state. A process that creates another index is not
        kept from writing at the same time.
        """
        return bool(self.unsaved) or all(inode_of(path) == known for path, known in self._opened.inodes)

    def _recover(self) -> None:
        """Handle a file or log that was deleted or replaced. Raises NotSavedError if nothing can be written."""
        try:
            with locked(self.path.parent, alone=True):
                if self._is_in_place():
                    return
                notice = self._recover_name()
        except OSError as error:
            raise refused_by_the_system(error, path=self.path) from error
        if not self.unsaved:  # Set by `_recover_name` if the rows continue in memory: then there is no file to open.
            self._switch_to(open_file(self.path))
        log.warning("%s", notice)
        self.notices.append(notice)

    def _recover_name(self) -> str:
        """Handle a file whose name, or that of its log, is gone or belongs to another file. Return the notice."""
        if self._is_successor_in_place():
            return "Another chatops has repaired the session store or written it again. It is used from now on."
        lost = [path for path, known in self._opened.inodes if inode_of(path) != known]
        if not any(map(Path.exists, lost)):
            self._copy_to(self.path)
            what = "The session store" if self.path in lost else f"{self.path}-wal or -shm"
            return (
                f"{what} was deleted while chatops ran; it was written again from what was still open: {self.path}. "
                "To delete sessions: chatops sessions delete SESSION"
            )
        kept = free_name(self.path, "old")
        self._copy_to(kept)
        self._continue_in_memory(kept)
        return (
            "The session store was replaced while chatops ran. What is open here continues in memory and is not saved; "
            f"start chatops again to use the new store. What was in the old one: chatops sessions list --store {kept}"
        )

    def _is_successor_in_place(self) -> bool:
        """Return True if another process has put a store that stands for this one at its path."""
        identity = self._opened.identity
        if identity is None or inode_of(self.path) in (None, self._opened.file):
            return False
        try:
            if not is_sound(self.path):
                return False
            with closing(connect(uri(self.path, mode="ro"))) as other:
                return stands_for(other, identity)
        except UnreadableError:
            # A store of a newer version, or of another program. It stays where it is.
            return False

    def _copy_to(self, path: Path) -> None:
        """Write all rows to a new file at `path`, and remove the log: it would be read into whichever file is there."""
        # Wait for a writer that began before the file went away. Every later one finds it gone.
        with suppress(sqlite3.Error):
            self._raw.execute("BEGIN IMMEDIATE")
            self._raw.execute("ROLLBACK")
        with new_file(path, stands_for=self._opened.identity) as (raw, put_in_place):
            self._raw.backup(raw)
            for beside, known in self._opened.inodes[1:]:
                if inode_of(beside) == known:
                    beside.unlink()
            put_in_place()

    def _continue_in_memory(self, kept: Path) -> None:
        with closing(connect(kept)) as raw:
            disown(raw)  # What is approved in it may be done here.
        memory = connect(":memory:")
        self._raw.backup(memory)
        self._raw.close()
        self._raw = prepare(memory)
        self.unsaved = REPLACED


def _open_or_repair(path: Path) -> OpenedFile:
    try:
        return open_file(path)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        log.warning("%s is damaged: %s", path, error)
    notices = repair(path)
    opened = open_file(path)
    return replace(opened, notices=(*notices, *opened.notices))

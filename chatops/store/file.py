"""The store's file while it is in use: repaired if damaged, written again if deleted.

If another store was put at its path, the open sessions continue in memory. Each of these is reported. No row is ever
written to a file that has lost its name.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing, nullcontext, suppress
from pathlib import Path

from chatops.domain.errors import NotSavedError, StoreError, UnreadableError
from chatops.store.connection import Connection, SqlRow, connect, prepared
from chatops.store.errors import is_damage, refused_by_the_system, translated
from chatops.store.identity import OPEN_HERE, FileIdentity, Inode, disown, inode_of, stands_for
from chatops.store.opening import OpenedFile, locked, open_file, sound, uri
from chatops.store.quarantine import (
    flush,
    free_name,
    is_half_quarantined,
    new_file,
    quarantined,
    repair,
    undo_quarantine,
)

log = logging.getLogger(__name__)


REPLACED = "the session store was replaced"
"""Value of `Store.unsaved` while the open sessions continue in memory."""


class StoreFile(Connection):
    """The open file of a user's store."""

    def __init__(self, path: Path, *, vfs: str = "", memory: Connection | None = None) -> None:
        """Open the file, or create it. With `memory`, these rows stand for a file that is not opened yet.

        What can be read of a damaged file is copied into a new one. The damaged file is quarantined, and `notices` says
        so.

        Raises StoreError, and UnreadableError for a file that must not be touched.
        """
        self._vfs = vfs
        notices: list[str] = []
        if memory is None:
            with translated(path):
                opened = self._open(path, notices)
        else:
            opened = OpenedFile(raw=memory._raw)
        super().__init__(opened.raw, path=path, unsaved="" if memory is None else memory.unsaved)
        # Made once, because each transaction looks at them.
        self._log_path, self._index_path = Path(f"{path}-wal"), Path(f"{path}-shm")
        self._file: Inode | None = opened.file
        self._log_file: Inode | None = opened.log
        self._index_file: Inode | None = opened.index
        self._identity: FileIdentity | None = opened.identity
        self._kept: Path | None = None
        """The copy of a file that has lost its name, until it is known what has the name."""
        OPEN_HERE[opened.file] += 1
        self.notices += [*notices, *opened.notices]

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            if not self._closed:
                OPEN_HERE[self._file] -= 1
            super().close()

    def _switch_to(self, opened: OpenedFile) -> None:
        before = self._raw
        OPEN_HERE[self._file] -= 1
        self._raw, self._file, self._identity = opened.raw, opened.file, opened.identity
        self._log_file, self._index_file = opened.log, opened.index
        OPEN_HERE[self._file] += 1
        self.notices += opened.notices
        before.close()

    def _continue_with(self, other: StoreFile) -> None:
        """Use the file that `other` has open, and which is only used here from now on."""
        self._switch_to(
            OpenedFile(
                raw=other._raw,
                file=other._file,
                log=other._log_file,
                index=other._index_file,
                identity=other._identity,
                notices=tuple(other.notices),
            )
        )
        OPEN_HERE[other._file] -= 1
        self.unsaved = ""

    def _open(self, path: Path, notices: list[str]) -> OpenedFile:
        if is_half_quarantined(path):
            with locked(path.parent, alone=True):
                undo_quarantine(path)
        try:
            return open_file(path, vfs=self._vfs)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            log.warning("%s is damaged: %s", path, error)
            notices += repair(path, vfs=self._vfs)
        return open_file(path, vfs=self._vfs)

    def pragma(self, name: str) -> SqlRow | None:
        """Return the value of a pragma of the file at the path, outside of any transaction."""
        with self._lock, translated(self.path):
            if not self._closed and not self._is_in_place():
                self._recover()
            return super().pragma(name)

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

    def _failed(self, error: sqlite3.Error) -> None:
        """Repair a file that turned out to be damaged, then raise NotSavedError: the request may be repeated."""
        if self.unsaved or not is_damage(error):
            return
        log.warning("damage was found in %s: %s", self.path, error)
        try:
            notices = repair(self.path, vfs=self._vfs)
            self._switch_to(open_file(self.path, vfs=self._vfs))
        except (StoreError, sqlite3.Error) as failure:
            log.warning("it could not be repaired: %s", failure)
            return
        self.notices += notices
        text = " ".join(notices) or f"The session store {self.path} was damaged; another chatops has repaired it."
        raise NotSavedError(text, advice="Try again.", reason="session store damaged") from error

    def _recover(self) -> None:
        """Handle a file or log that was deleted or replaced. Raises NotSavedError if nothing can be written."""
        notices: list[str] = []
        try:
            with locked(self.path.parent, alone=True):
                undo_quarantine(self.path)
                if self._is_in_place():
                    return
                if self._is_ours(self.path):
                    notices.append(self._write_again(self._copy_to_old_name(), f"{self.path}-wal or -shm was deleted"))
                else:
                    notices.append(self._recover_name())
        except OSError as error:
            raise refused_by_the_system(error, path=self.path) from error
        if not self.unsaved:
            self._switch_to(self._open(self.path, notices))
        log.warning("%s", " ".join(notices))
        self.notices += notices

    def _is_in_place(self) -> bool:
        """Return True if the file, its log and the log's index still have their names.

        A process that opens the file without its log sees an old state. A process that creates another index is not
        kept from writing at the same time.
        """
        beside = ((self._log_path, self._log_file), (self._index_path, self._index_file))
        return bool(self.unsaved) or (
            self._is_ours(self.path) and all(known is None or inode_of(path) == known for path, known in beside)
        )

    def _is_ours(self, path: Path) -> bool:
        return inode_of(path) == self._file

    def _recover_name(self) -> str:
        """Handle a file whose name is gone or belongs to another file, and return the notice."""
        kept = self._copy_to_old_name()
        try:
            if not self.path.exists() or not sound(self.path, vfs=self._vfs):
                return self._write_again(kept, "The session store was deleted")
            with closing(connect(uri(self.path, mode="ro", vfs=self._vfs))) as other:
                if self._identity is not None and stands_for(other, self._identity):
                    kept.unlink()
                    self._kept = None
                    return "Another chatops has repaired the session store or written it again. It is used from now on."
        except UnreadableError:
            # A store of a newer version, or of another program. It stays where it is.
            pass
        return self._continue_in_memory(kept)

    def _copy_to_old_name(self) -> Path:
        """Write all rows to a new file beside the path, and return its name."""
        # A writer that began before the file went away has finished then, and every later one finds it gone.
        with suppress(sqlite3.Error):
            self._raw.execute("BEGIN IMMEDIATE")
            self._raw.execute("ROLLBACK")
        kept = self._kept = self._kept or free_name(self.path, "old")
        with new_file(kept) as (raw, put_in_place):
            self._raw.backup(raw)
            put_in_place(self._identity)
        if not self._is_ours(self.path):
            # The log of this file would be read into whichever file has the name.
            for suffix, known in (("-wal", self._log_file), ("-shm", self._index_file)):
                beside = Path(f"{self.path}{suffix}")
                if known is not None and inode_of(beside) == known:
                    beside.unlink(missing_ok=True)
        return kept

    def _write_again(self, kept: Path, what: str) -> str:
        in_the_way = self.path.exists() and self.path.stat().st_size > 0
        with quarantined(self.path, free_name(self.path, "bad")) if in_the_way else nullcontext():
            os.replace(kept, self.path)
        flush(self.path.parent)
        self._kept = None
        return (
            f"{what} while chatops ran; it was written again from what was still open: {self.path}. "
            "To delete sessions: chatops sessions delete SESSION"
        )

    def _continue_in_memory(self, kept: Path) -> str:
        """Continue with a copy in memory, since the path belongs to another store. `kept` has the rows so far."""
        with closing(connect(kept)) as raw:
            disown(raw)
        memory = connect(":memory:")
        self._raw.backup(memory)
        self._raw.close()
        self._raw = prepared(memory)
        self.unsaved = REPLACED
        return (
            "The session store was replaced while chatops ran. What is open here continues in memory and is not saved; "
            f"start chatops again to use the new store. What was in the old one: chatops sessions list --store {kept}"
        )

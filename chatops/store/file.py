"""The store's file while it is in use: repaired if damaged, restored if deleted, replaced by a new file at its path.

Each of these is reported. No row is ever written to a file that has lost its name.
"""

import logging
import sqlite3
from contextlib import nullcontext
from pathlib import Path

from chatops.domain.errors import NotSavedError, StoreError
from chatops.store.aside import aside, free_name, is_half_aside, put_back
from chatops.store.connection import Connection, Row
from chatops.store.faults import is_damage, refused_by_the_system, translated
from chatops.store.mending import carried, mend, new_file
from chatops.store.moving import carry_open
from chatops.store.opening import OPEN_HERE, Identity, Opened, identity, locked, open_file, sound
from chatops.store.place import Place

log = logging.getLogger(__name__)


class StoreFile(Connection):
    """The open file of a user's store."""

    def __init__(self, path: Path, *, vfs: str = "") -> None:
        """Open the file, or create it.

        What can be read of a damaged file is copied into a new one. The damaged file is quarantined, and `notices` says
        so.

        Raises StoreError, and UnreadableError for a file that must not be touched.
        """
        self._vfs = vfs
        said: list[str] = []
        with translated(path):
            opened = self._open(path, said)
        super().__init__(opened.raw, path=path)
        self._file: Identity | None = opened.file
        self._log_file: Identity | None = opened.log
        self._index_file: Identity | None = opened.index
        self._place: Place | None = opened.place
        OPEN_HERE[opened.file] += 1
        self.notices += [*said, *opened.notices]

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            if not self._closed:
                OPEN_HERE[self._file] -= 1
            super().close()

    def _go_over_to(self, opened: Opened) -> None:
        before = self._raw
        OPEN_HERE[self._file] -= 1
        self._raw, self._file, self._place = opened.raw, opened.file, opened.place
        self._log_file, self._index_file = opened.log, opened.index
        OPEN_HERE[self._file] += 1
        self.notices += opened.notices
        before.close()

    def _open(self, path: Path, said: list[str]) -> Opened:
        if is_half_aside(path):
            with locked(path.parent, alone=True):
                put_back(path)
        try:
            return open_file(path, vfs=self._vfs)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            log.warning("%s is damaged: %s", path, error)
            said += mend(path, vfs=self._vfs)
        return open_file(path, vfs=self._vfs)

    def pragma(self, name: str) -> Row | None:
        """Return the value of a pragma of the file at the path, outside of any transaction."""
        with self._lock, translated(self.path):
            if not self._closed and not self._is_in_its_place():
                self._take_up_what_is_there()
            return super().pragma(name)

    def _begin(self, begin: str) -> None:
        """Begin a transaction on the file at the path: rows written to any other file would be lost."""
        self._raw.execute(begin)
        # Checked only now that this process holds the lock: a process that replaces the file waits for the lock before
        # it reads the old one.
        if self._is_in_its_place():
            return
        self._raw.execute("ROLLBACK")
        self._take_up_what_is_there()
        self._raw.execute(begin)

    def _failed(self, error: sqlite3.Error) -> None:
        """Repair a file that turned out to be damaged.

        Raises NotSavedError in that case: the request may be repeated.
        """
        if not is_damage(error):
            return
        log.warning("damage was met in %s: %s", self.path, error)
        try:
            said = mend(self.path, vfs=self._vfs)
            self._go_over_to(open_file(self.path, vfs=self._vfs))
        except (StoreError, sqlite3.Error) as hindered:
            log.warning("it could not be mended: %s", hindered)
            return
        self.notices += said
        told = " ".join(said) or f"The session store {self.path} was damaged; another chatops has mended it."
        raise NotSavedError(told, advice="Try again.", reason="session store damaged") from error

    def _take_up_what_is_there(self) -> None:
        """Handle a deleted or replaced file or log: restore it from what is still open, or use the new file."""
        replaced = False
        try:
            with locked(self.path.parent, alone=True):
                put_back(self.path)
                if self._is_in_its_place():
                    return
                if self._is_ours(self.path):
                    said = self._write_again(f"What belongs to the session store ({self.path}-wal or -shm) was deleted")
                else:
                    other_name = next(filter(self._is_ours, _files(self.path.parent)), None)
                    self._drop_log(other_name)
                    replaced = self.path.exists() and sound(self.path, vfs=self._vfs)
                    said = self._leave(other_name) if replaced else self._write_again("The session store was deleted")
        except OSError as error:
            raise refused_by_the_system(error, path=self.path) from error
        opened = open_file(self.path, vfs=self._vfs)
        if replaced:
            carry_open(self._raw, opened.raw)
        self._go_over_to(opened)
        log.warning("%s", said)
        self.notices.append(said)

    def _is_in_its_place(self) -> bool:
        """Return True if the file, its log and the log's index still have their names.

        A process that opens the file without its log sees an old state. A process that creates another index is not
        kept from writing at the same time.
        """
        beside = (("-wal", self._log_file), ("-shm", self._index_file))
        return self._is_ours(self.path) and all(
            known is None or identity(Path(f"{self.path}{suffix}")) == known for suffix, known in beside
        )

    def _is_ours(self, path: Path) -> bool:
        return identity(path) == self._file

    def _write_again(self, what: str) -> str:
        in_the_way = self.path.exists() and self.path.stat().st_size > 0
        with new_file(self.path) as (raw, put_in_place):
            salvage = carried(self._raw, raw)
            with aside(self.path, free_name(self.path, "bad")) if in_the_way else nullcontext():
                put_in_place(self._place)
        return (
            f"{what} while chatops ran; it was written again from what was still open: "
            f"{self.path}. {salvage.text} To delete conversations: chatops sessions delete SESSION"
        )

    def _leave(self, other_name: Path | None) -> str:
        """Switch to the file that replaced this one. The rows of the old one are kept in a file beside it."""
        old = other_name
        if old is None:
            old = free_name(self.path, "old")
            with new_file(old) as (raw, put_in_place):
                carried(self._raw, raw)
                put_in_place(None)
        return (
            "The session store was replaced while chatops ran; the one that is there now is used, and what was open "
            f"went over into it. What else was in the old one: chatops sessions list --store {old}"
        )

    def _drop_log(self, other_name: Path | None) -> None:
        """Remove this file's write-ahead log, which would be read into the new file. It follows a renamed file."""
        name = Path(f"{self.path}-wal")
        if self._log_file is None or identity(name) != self._log_file:
            return
        if other_name is None:
            name.unlink()
        else:
            name.rename(f"{other_name}-wal")
        Path(f"{self.path}-shm").unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []

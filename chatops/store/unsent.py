"""Messages sent before the store is open: a file of this process holds them until the store does.

The process keeps the file locked for as long as it lives. A file that is not locked was left by a process that was
killed, and the next chatops in the same workspace recovers it. Each change appends a line, and the last complete line
counts, so that a kill in the middle of a write loses nothing.
"""

import fcntl
import json
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from chatops.config.paths import Paths, private_dir
from chatops.domain.errors import ChatopsError

log = logging.getLogger(__name__)

_ENDING = ".unsent"
_MAX_BYTES = 64 * 1024 * 1024
"""Bytes of a file that are read: another program could have made it as long as it likes."""


class Unsent:
    """The messages of this process that are in no store yet."""

    def __init__(self, paths: Paths, workspace: Path) -> None:
        self._folder = _unsent_folder(paths)
        self._workspace = str(workspace)
        self._file: tuple[int, Path] | None = None
        """Descriptor and path of the file; None while there are no messages."""

    def keep(self, texts: Sequence[str]) -> bool:
        """Store `texts` in place of the ones before, and return True if they are on the disk."""
        try:
            if texts or self._file is not None:
                self._write(texts)
        except (OSError, ChatopsError) as error:
            log.warning("unsent messages were not stored: %s", error)
            return False
        return True

    def _write(self, texts: Sequence[str]) -> None:
        handle, path = self._file = self._file or self._create_file()
        if not texts:
            self._file = None
            path.unlink(missing_ok=True)
            os.close(handle)
            return
        line = json.dumps({"workspace": self._workspace, "texts": list(texts)})
        # Start on a new line, even after a write that the disk had no room for.
        data = f"\n{line}\n".encode("ascii")
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)

    def _create_file(self) -> tuple[int, Path]:
        private_dir(self._folder)
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=_ENDING)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            Path(name).unlink(missing_ok=True)
            os.close(handle)
            raise
        return handle, Path(name)


def recover(paths: Paths, workspace: Path, *, store: Callable[[str], None]) -> int:
    """Pass the messages that killed processes left in `workspace` to `store`, and return their number.

    `store` raises if it cannot store them. The files are removed afterwards.
    """
    count = 0
    for path in sorted(_unsent_folder(paths).glob(f"*{_ENDING}")):
        with suppress(OSError), _open_locked(path) as handle:
            texts = _last_texts(handle, str(workspace))
            if texts is None:
                continue
            if texts:
                store("\n\n".join(texts))
            count += len(texts)
            path.unlink()
    return count


def _unsent_folder(paths: Paths) -> Path:
    return paths.data / "unsent"


@contextmanager
def _open_locked(path: Path) -> Iterator[int]:
    """Yield the open file. Raises OSError while another process has it locked."""
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(f"{path} is not a file of this user")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle
    finally:
        os.close(handle)


def _last_texts(handle: int, workspace: str) -> tuple[str, ...] | None:
    """Return the texts of the last complete line, none if there is no such line; None if it is of another workspace."""
    with os.fdopen(os.dup(handle), "rb") as file:
        *lines, _ = file.read(_MAX_BYTES).split(b"\n")
    for line in reversed(lines):
        try:
            stored = json.loads(line)
            texts = tuple(text for text in stored["texts"] if isinstance(text, str))
            return texts if stored["workspace"] == workspace else None
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    return ()

"""Look at and change single paths below a folder by descriptors, following no link on the way."""

import ctypes
import hashlib
import os
import stat
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from chatops.contained.changes import ABSENT, Kind, State
from chatops.contained.folder import FILE, FOLDER, TurnFolder, pour
from chatops.domain.errors import ToolFailedError

_LIBC = ctypes.CDLL(None, use_errno=True)
_NOREPLACE, _EXCHANGE = 1, 2
_MISSING = (FileNotFoundError, NotADirectoryError)


class WorkspaceReplacedError(ToolFailedError):
    """The workspace folder is another one than the copy was made of."""


class Below:
    """The workspace, opened once; raises WorkspaceReplacedError if it is not the folder of `identity`."""

    def __init__(self, workspace: Path, identity: tuple[int, int]) -> None:
        try:
            self.top = os.open(workspace, FOLDER)
        except OSError as error:
            raise WorkspaceReplacedError(f"The workspace cannot be opened: {error.strerror}.") from error
        info = os.fstat(self.top)
        if (info.st_dev, info.st_ino) != identity:
            os.close(self.top)
            raise WorkspaceReplacedError("The workspace is another folder than the one that was copied.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.top)

    def parent(self, path: str) -> int:
        """Open the folder of `path`. Raises OSError if it is missing, or if a link is on the way."""
        return _opened(self.top, path.split("/")[:-1])

    def state(self, path: str) -> State:
        """Return the present state of `path`."""
        return observe(self.top, path)

    def keep(self, path: str, folder: TurnFolder) -> State | None:
        """Keep the present content of a file. None if there is no file."""
        try:
            descriptor = self._open(path)
        except OSError:
            return None
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                return None
            sha, size = folder.keep_blob(descriptor)
            return State(kind=Kind.FILE, mode=info.st_mode & 0o777, sha=sha, size=size)
        finally:
            os.close(descriptor)

    def read(self, path: str, *, most: int) -> tuple[State, bytes | None]:
        """Return the present state of `path`, and its content if it is a file of at most `most` bytes."""
        state = self.state(path)
        if state.kind is not Kind.FILE or state.size > most:
            return state, None
        try:
            with os.fdopen(self._open(path), "rb") as file:
                data = file.read(most + 1)
        except OSError:
            return state, None
        return replace(state, sha=hashlib.sha256(data).hexdigest(), size=len(data)), data

    def _open(self, path: str) -> int:
        parent = self.parent(path)
        try:
            return os.open(path.rsplit("/", 1)[-1], FILE, dir_fd=parent)
        finally:
            os.close(parent)


def observe(top: int, path: str, *, content: bool = True) -> State:
    """Return the state of a path below the open folder `top`. Behind a link there is nothing.

    Without `content` the SHA-256 of a file is left out.
    """
    parts = path.split("/")
    try:
        parent = _opened(top, parts[:-1])
    except OSError:
        return ABSENT
    try:
        return state_of(parent, parts[-1], content=content)
    finally:
        os.close(parent)


def state_of(parent: int, name: str, *, content: bool = True) -> State:
    """Return the state of an entry of the open folder `parent`."""
    try:
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            return State(kind=Kind.LINK, target=os.readlink(name, dir_fd=parent))
        if stat.S_ISDIR(info.st_mode):
            return State(kind=Kind.FOLDER, mode=info.st_mode & 0o777)
        if not stat.S_ISREG(info.st_mode):
            return State(kind=Kind.OTHER)
        if not content:
            return State(kind=Kind.FILE, mode=info.st_mode & 0o777, size=info.st_size)
        descriptor = os.open(name, FILE, dir_fd=parent)
    except _MISSING:
        return ABSENT
    except OSError:
        return State(kind=Kind.OTHER)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return State(kind=Kind.OTHER)
        sha, size = pour(descriptor, None)
        return State(kind=Kind.FILE, mode=info.st_mode & 0o777, sha=sha, size=size)
    finally:
        os.close(descriptor)


def same(one: State, other: State) -> bool:
    """Return True if two states are the same. Modes of folders do not count."""
    if one.kind is Kind.FOLDER:
        return other.kind is Kind.FOLDER
    return one == other


def exchange(parent: int, one: str, other: str) -> None:
    """Swap two entries of a folder atomically. Follows no link.

    Raises OSError, with EINVAL where the file system cannot do that.
    """
    _renameat2(parent, one, other, _EXCHANGE)


def move(parent: int, source: str, target: str) -> None:
    """Rename an entry of a folder. Raises FileExistsError if the target exists."""
    _renameat2(parent, source, target, _NOREPLACE)


def _renameat2(parent: int, source: str, target: str, flags: int) -> None:
    if _LIBC.renameat2(parent, os.fsencode(source), parent, os.fsencode(target), flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def _opened(top: int, parts: list[str]) -> int:
    descriptor = os.dup(top)
    try:
        for part in parts:
            below = os.open(part, FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    except OSError:
        os.close(descriptor)
        raise
    return descriptor

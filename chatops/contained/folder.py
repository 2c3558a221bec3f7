"""The folder of one contained turn in the data folder: copy, blobs, manifest, change list, journal of the application.

Files are replaced atomically and synced, so that a killed process leaves the old one or the new one. Everything below a
copy was written by commands and is hostile: it is walked by descriptors that follow no link.

`OpenWorkspace` looks at single paths of a workspace in the same way.
"""

import ctypes
import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Self

from chatops.config.entries import Value, decode_value, encode_value
from chatops.config.paths import FOLDER_FLAGS, complete_file, opened
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass

FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE_BYTES = 1 << 20
"""Bytes of a file that are read at a time."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")
_LIBC = ctypes.CDLL(None, use_errno=True)


class Kind(StrEnum):
    """Kind of a path's content."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    FOLDER = "folder"
    OTHER = "other"


@frozen_dataclass
class State:
    """Content of one path: for a file its mode, SHA-256 and size in bytes, for a link its target."""

    kind: Kind = Kind.ABSENT
    mode: int = 0
    sha: str = ""
    size: int = 0
    target: str = ""


ABSENT = State()


@frozen_dataclass(kw_only=False)
class TurnFolder:
    """Folder of one contained turn: ``contained/<id>`` in the data folder."""

    path: Path

    @property
    def copy(self) -> Path:
        """The copy of the workspace."""
        return self.path / "copy"

    @property
    def exists(self) -> bool:
        """True if the copy was made completely."""
        return (self.path / "manifest.json").is_file()

    @property
    def is_undo_list(self) -> bool:
        """True if it holds a list for ``/undo``: the changes of other turns, for which no copy was made."""
        return not self.exists

    def read(self, name: str, form: type[Value]) -> Value | None:
        """Return the value in a file of the folder; None if there is none that can be read."""
        try:
            return decode_value(form, (self.path / f"{name}.json").read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, name: str, value: object) -> None:
        """Replace a file of the folder durably."""
        write_durably(self.path / f"{name}.json", encode_value(value))

    def keep_blob(self, source: int) -> "Content":
        """Copy the open file `source` into the blobs."""
        blobs = self.path / "blobs"
        blobs.mkdir(mode=0o700, exist_ok=True)
        temporary = blobs / f".{secrets.token_hex(8)}"
        with opened(temporary, NEW_FILE_FLAGS) as descriptor:
            content = copy_and_digest(source, descriptor)
            os.fsync(descriptor)
        os.rename(temporary, blobs / content.sha)
        return content

    def blob(self, digest: str) -> bytes:
        """Return the content with that SHA-256. Raises ToolFailedError if it is missing or was changed."""
        try:
            data = (self.path / "blobs" / digest).read_bytes()
        except OSError as error:
            raise ToolFailedError("The frozen content of a change is missing; nothing can be applied.") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise ToolFailedError("The frozen content of a change is damaged; nothing can be applied.")
        return data


def turn_folder(data: Path, name: str) -> TurnFolder:
    """Return the folder of the contained turn `name`. Raises ToolFailedError for a name that is none."""
    if not _NAME.fullmatch(name):
        raise ToolFailedError("There is no such contained turn.")
    return TurnFolder(data / "contained" / name)


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file so that after a crash it holds the old content or the new one."""
    with complete_file(path.parent, f".{path.name}.", data) as temporary:
        temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Sync the entries of a folder to disk."""
    with opened(path) as descriptor:
        os.fsync(descriptor)


def sync_file_system(path: Path) -> None:
    """Sync the file system that holds `path`."""
    with opened(path) as descriptor:
        _LIBC.syncfs(descriptor)


class Content(NamedTuple):
    """Identity of the content of a file: its SHA-256, and its size in bytes."""

    sha: str
    size: int


def copy_and_digest(source: int, target: int | None) -> Content:
    """Copy an open file from its start; without a `target` only read it."""
    digest, size = hashlib.sha256(), 0
    os.lseek(source, 0, os.SEEK_SET)
    while piece := os.read(source, _PIECE_BYTES):
        digest.update(piece)
        size += len(piece)
        rest = memoryview(piece)
        while target is not None and rest:
            rest = rest[os.write(target, rest) :]
    return Content(digest.hexdigest(), size)


@contextmanager
def workspace_lock(data: Path, workspace: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a workspace, so that two applications to it never run at once.

    Raises BlockingIOError if it is held elsewhere and `wait` is False.
    """
    folder = data / "contained"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
    with opened(folder / f".lock-{name}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def remove_tree(path: Path) -> None:
    """Remove a folder and all below it, however deep it is and whatever its modes are. Follows no link.

    A subfolder's folders are moved up to the top before it is removed, so that two open descriptors suffice.
    """
    if not path.is_dir() or path.is_symlink():
        return
    os.chmod(path, 0o700)
    with opened(path) as top:
        while names := os.listdir(top):
            for name in names:
                if not _unlink_unless_folder(top, name):
                    _remove_subfolder(top, name)
    os.rmdir(path)


def _unlink_unless_folder(folder: int, name: str) -> bool:
    """Remove a file or link and return True; return False for a folder, which stays."""
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(info.st_mode):
        return False
    os.unlink(name, dir_fd=folder)
    return True


def _remove_subfolder(top: int, name: str) -> None:
    """Remove a folder of `top`. The folders in it become folders of `top`, under names of their own."""
    os.chmod(name, 0o700, dir_fd=top)
    with opened(name, at=top) as subfolder:
        for child in os.listdir(subfolder):
            if not _unlink_unless_folder(subfolder, child):
                # A folder can only be moved by someone who may write to it.
                os.chmod(child, 0o700, dir_fd=subfolder)
                os.rename(child, f".removed-{secrets.token_hex(8)}", src_dir_fd=subfolder, dst_dir_fd=top)
    os.rmdir(name, dir_fd=top)


_NOREPLACE, _EXCHANGE = 1, 2
"""Flags of renameat2(2)."""


class WorkspaceReplacedError(ToolFailedError):
    """The workspace folder is another one than the copy was made of."""


class OpenWorkspace:
    """The workspace, opened once."""

    def __init__(self, workspace: Path, identity: tuple[int, int]) -> None:
        """Open it. Raises WorkspaceReplacedError if it is not the folder with this device and inode."""
        try:
            self.top = os.open(workspace, FOLDER_FLAGS)
        except OSError as error:
            raise WorkspaceReplacedError(f"The workspace cannot be opened: {error.strerror}.") from error
        info = os.fstat(self.top)
        if (info.st_dev, info.st_ino) != identity:
            os.close(self.top)
            raise WorkspaceReplacedError("The workspace is another folder than the one that was copied.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.top)

    def parent(self, path: str) -> AbstractContextManager[tuple[int, str]]:
        """Open the folder of `path`, and name the entry. Raises OSError if it is missing, or behind a link."""
        return opened_parent(self.top, path)

    def state(self, path: str) -> State:
        """Return the present state of `path`."""
        return state_below(self.top, path)

    def keep(self, path: str, folder: TurnFolder) -> None:
        """Keep the present content of a file among the blobs of `folder`, if there is one."""
        with ExitStack() as stack:
            # An error on the way to the file means that there is none. One of keeping it is raised.
            try:
                descriptor = stack.enter_context(self._opened_file(path))
            except OSError:
                return
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                folder.keep_blob(descriptor)

    def read(self, path: str, *, max_bytes: int) -> tuple[State, bytes | None]:
        """Return the present state of `path`, and its content if it is a file of at most `max_bytes`."""
        state = self.state(path)
        if state.kind is not Kind.FILE or state.size > max_bytes:
            return state, None
        try:
            with self._opened_file(path) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(max_bytes + 1)
        except OSError:
            return state, None
        return replace(state, sha=hashlib.sha256(data).hexdigest(), size=len(data)), data

    @contextmanager
    def _opened_file(self, path: str) -> Iterator[int]:
        with self.parent(path) as (parent, name), opened(name, FILE_FLAGS, at=parent) as descriptor:
            yield descriptor


def state_below(top: int, path: str, *, content: bool = True) -> State:
    """Return the state of a path below the open folder `top`. Behind a link there is nothing.

    Without `content` the SHA-256 of a file is left out.
    """
    try:
        with opened_parent(top, path) as (parent, name):
            return entry_state(parent, name, content=content)
    except OSError:
        return ABSENT


def entry_state(parent: int, name: str, *, content: bool = True) -> State:
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
        with opened(name, FILE_FLAGS, at=parent) as descriptor:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                return State(kind=Kind.OTHER)
            sha, size = copy_and_digest(descriptor, None)
            return State(kind=Kind.FILE, mode=info.st_mode & 0o777, sha=sha, size=size)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError:
        return State(kind=Kind.OTHER)


def is_same_state(one: State, other: State) -> bool:
    """Return True if two states are the same. Modes of folders do not count."""
    return one == other or one.kind is other.kind is Kind.FOLDER


def exchange(parent: int, one: str, other: str) -> None:
    """Swap two entries of a folder atomically. Follows no link. Raises OSError, also where that is not supported."""
    _renameat2(parent, one, other, _EXCHANGE)


def rename_to_new(parent: int, source: str, target: str) -> None:
    """Rename an entry of a folder to a new name. Raises FileExistsError if the target exists."""
    _renameat2(parent, source, target, _NOREPLACE)


def _renameat2(parent: int, source: str, target: str, flags: int) -> None:
    if _LIBC.renameat2(parent, os.fsencode(source), parent, os.fsencode(target), flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


@contextmanager
def opened_parent(top: int, path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of a path below the open folder `top`, without following a link, and name the path's entry.

    Raises OSError.
    """
    *parts, name = path.split("/")
    descriptor = os.dup(top)
    try:
        for part in parts:
            below = os.open(part, FOLDER_FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor, name
    finally:
        os.close(descriptor)

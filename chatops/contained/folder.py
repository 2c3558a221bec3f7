"""The folder of one contained turn in the data folder: copy, blobs, manifest, change list, journal of the application.

Files are replaced atomically and synced, so that a killed process leaves the old one or the new one. Everything below a
copy was written by commands and is hostile: it is walked by descriptors that follow no link.

`Below` looks at and changes single paths below a folder by descriptors, following no link on the way.

`keep` stores what a file tool is about to replace, so that ``/undo`` can put it back. The earlier content is stored
durably as one file of the data folder, named by the call and its attempt: a line of JSON, then the content. A write
whose content cannot be kept does not take place. If the process dies in between, the record says what would have been
written, and comparing the file tells that it was not.
"""

import ctypes
import fcntl
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Self

from chatops.config.entries import Value, decode_value, spelled
from chatops.config.failpoints import reach
from chatops.config.paths import complete_file, folder_identity
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.toolkit.base import ToolContext

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PIECE = 1 << 20
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
        write_durably(self.path / f"{name}.json", spelled(value))

    def keep_blob(self, source: int) -> tuple[str, int]:
        """Copy the open file `source` into the blobs. Returns its SHA-256 and its size in bytes."""
        blobs = self.path / "blobs"
        blobs.mkdir(mode=0o700, exist_ok=True)
        temporary = blobs / f".{secrets.token_hex(8)}"
        with opened(temporary, NEW) as descriptor:
            digest, size = pour(source, descriptor)
            os.fsync(descriptor)
        os.rename(temporary, blobs / digest)
        return digest, size

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


@contextmanager
def opened(path: str | Path, flags: int = FOLDER, *, at: int | None = None, mode: int = 0o600) -> Iterator[int]:
    """Open a file or folder, by default a folder, relative to the open folder `at`. Raises OSError."""
    descriptor = os.open(path, flags, mode, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Sync the entries of a folder to disk."""
    with opened(path) as descriptor:
        os.fsync(descriptor)


def sync_file_system(path: Path) -> None:
    """Sync the file system that holds `path`."""
    with opened(path) as descriptor:
        _LIBC.syncfs(descriptor)


def pour(source: int, target: int | None) -> tuple[str, int]:
    """Copy an open file from its start, or only read it. Returns the SHA-256 and the size in bytes."""
    digest, size = hashlib.sha256(), 0
    os.lseek(source, 0, os.SEEK_SET)
    while piece := os.read(source, PIECE):
        digest.update(piece)
        size += len(piece)
        rest = memoryview(piece)
        while target is not None and rest:
            rest = rest[os.write(target, rest) :]
    return digest.hexdigest(), size


@contextmanager
def locked(data: Path, workspace: Path, *, wait: bool = True) -> Iterator[None]:
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
        number = 0
        while names := os.listdir(top):
            for name in names:
                if not _unlink(top, name):
                    number = _empty(top, name, number)
    os.rmdir(path)


def _unlink(folder: int, name: str) -> bool:
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(info.st_mode):
        return False
    os.unlink(name, dir_fd=folder)
    return True


def _empty(top: int, name: str, number: int) -> int:
    os.chmod(name, 0o700, dir_fd=top)
    with opened(name, at=top) as below:
        for child in os.listdir(below):
            if not _unlink(below, child):
                # A folder can only be moved by someone who may write to it.
                os.chmod(child, 0o700, dir_fd=below)
                while True:
                    number += 1
                    with suppress(FileExistsError):
                        os.mkdir(f".removed-{number}", dir_fd=top)
                        break
                os.rename(child, f".removed-{number}", src_dir_fd=below, dst_dir_fd=top)
    os.rmdir(name, dir_fd=top)
    return number


_NOREPLACE, _EXCHANGE = 1, 2


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

    def __exit__(self, *error: object) -> None:
        os.close(self.top)

    def parent(self, path: str) -> AbstractContextManager[tuple[int, str]]:
        """Open the folder of `path`, and name the entry. Raises OSError if it is missing, or behind a link."""
        return parent_of(self.top, path)

    def state(self, path: str) -> State:
        """Return the present state of `path`."""
        return observe(self.top, path)

    def keep(self, path: str, folder: TurnFolder) -> None:
        """Keep the present content of a file, if there is one."""
        with ExitStack() as stack:
            try:
                descriptor = stack.enter_context(self._file(path))
            except OSError:
                return
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                folder.keep_blob(descriptor)

    def read(self, path: str, *, most: int) -> tuple[State, bytes | None]:
        """Return the present state of `path`, and its content if it is a file of at most `most` bytes."""
        state = self.state(path)
        if state.kind is not Kind.FILE or state.size > most:
            return state, None
        try:
            with self._file(path) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(most + 1)
        except OSError:
            return state, None
        return replace(state, sha=hashlib.sha256(data).hexdigest(), size=len(data)), data

    @contextmanager
    def _file(self, path: str) -> Iterator[int]:
        with self.parent(path) as (parent, name), opened(name, FILE, at=parent) as descriptor:
            yield descriptor


def observe(top: int, path: str, *, content: bool = True) -> State:
    """Return the state of a path below the open folder `top`. Behind a link there is nothing.

    Without `content` the SHA-256 of a file is left out.
    """
    try:
        with parent_of(top, path) as (parent, name):
            return state_of(parent, name, content=content)
    except OSError:
        return ABSENT


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
        with opened(name, FILE, at=parent) as descriptor:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                return State(kind=Kind.OTHER)
            sha, size = pour(descriptor, None)
            return State(kind=Kind.FILE, mode=info.st_mode & 0o777, sha=sha, size=size)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError:
        return State(kind=Kind.OTHER)


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


@contextmanager
def parent_of(top: int, path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of a path below the open folder `top`, without following a link, and name the path's entry.

    Raises OSError.
    """
    *parts, name = path.split("/")
    descriptor = os.dup(top)
    try:
        for part in parts:
            below = os.open(part, FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor, name
    finally:
        os.close(descriptor)


KEPT_S = 30 * 86_400
"""Seconds for which earlier content is kept."""
KEPT_BYTES = 512 << 20
"""Maximum number of bytes of earlier content that are kept; the oldest goes first."""


@frozen_dataclass
class PathChange:
    """One change of a path, in order of `at_ns`."""

    path: str
    base: State
    new: State
    at_ns: int
    made: tuple[str, ...]
    read: Callable[[], bytes]
    here: bool
    """True if it was made in the folder that is the workspace now."""

    def content(self) -> bytes | None:
        """Return the content of the file before the change; None if it is gone or damaged."""
        with suppress(OSError, ToolFailedError):
            data = self.read()
            return data if hashlib.sha256(data).hexdigest() == self.base.sha else None
        return None


@frozen_dataclass
class _KeptHeader:
    """The first line of a kept file: what a call was about to replace, and by what."""

    path: str
    base: State
    new: State
    made: tuple[str, ...]
    workspace: str
    folder: str
    """Identity of the workspace's folder."""
    at_ns: int


def keep(
    path: Path,
    before: bytes | None,
    after: bytes,
    *,
    mode: int,
    folder: int,
    made: Sequence[str],
    context: ToolContext,
) -> None:
    """Store what a call is about to replace: the file `path` in the open `folder`, which will get `mode`.

    Raises ToolFailedError if that fails: then nothing may be written.
    """
    if context.kept is None:
        return
    name = f"{context.call_id}.{context.attempt}"
    if "/" in name:  # It comes from the store, which may be a copy of someone else's.
        raise ToolFailedError(f"Nothing was written: the call has an id that is a path ({name!r}).")
    try:
        base = State()
        if before is not None:
            info = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            base = _state_of_content(before, info.st_mode & 0o777)
        header = _KeptHeader(
            path=path.relative_to(context.workspace).as_posix(),
            base=base,
            new=_state_of_content(after, mode),
            made=tuple(made),
            workspace=str(context.workspace),
            folder=folder_identity(context.workspace),
            at_ns=time.time_ns(),
        )
        context.kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = spelled(header) + b"\n" + (before or b"")
        write_durably(context.kept / name, data)
    except OSError as error:
        why = f"what it replaces could not be kept for /undo ({error.strerror})"
        raise ToolFailedError(f"Nothing was written: {why}.") from error
    reach("kept")


def _state_of_content(content: bytes, mode: int) -> State:
    return State(kind=Kind.FILE, mode=mode, sha=hashlib.sha256(content).hexdigest(), size=len(content))


def kept_calls(folder: Path) -> frozenset[str]:
    """Return the ids of the calls with kept copies."""
    with suppress(OSError):
        return frozenset(name.rpartition(".")[0] for name in os.listdir(folder))
    return frozenset()


def kept(folder: Path, prefixes: Sequence[str], *, workspace: Path) -> list[PathChange]:
    """Return the writes whose names start with one of `prefixes`, oldest first. What cannot be read is left out."""
    found, here = list[PathChange](), (folder_identity(workspace), str(workspace))
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(tuple(prefixes)):
                with suppress(OSError, ValueError):
                    found.append(_read_kept(folder / name, here))
    return sorted(found, key=lambda change: change.at_ns)


def _read_kept(record: Path, here: tuple[str, str]) -> PathChange:
    with record.open("rb") as file:
        header = decode_value(_KeptHeader, file.readline())
    if not {"", ".", ".."}.isdisjoint(header.path.split("/")):
        raise ValueError("not a path in the workspace")
    return PathChange(
        path=header.path,
        base=header.base,
        new=header.new,
        made=header.made,
        at_ns=header.at_ns,
        read=lambda: record.read_bytes().partition(b"\n")[2],
        here=(header.folder, header.workspace) == here,
    )


def sweep_kept(folder: Path) -> None:
    """Remove what is older than `KEPT_S`, and the oldest beyond `KEPT_BYTES`."""
    files: list[tuple[float, int, Path]] = []
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                info = path.stat()
                files.append((info.st_mtime, info.st_size, path))
    for path in outdated(files):
        path.unlink(missing_ok=True)


def outdated(found: Iterable[tuple[float, int, Path]]) -> Iterator[Path]:
    """Yield the paths that are no longer kept, given times, sizes in bytes and paths: the oldest go first."""
    room, oldest = KEPT_BYTES, time.time() - KEPT_S
    for at, size, path in sorted(found, reverse=True):
        room -= size
        if room < 0 or at < oldest:
            yield path

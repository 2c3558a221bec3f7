"""Keep the content that file tools replace, so that ``/undo`` can put it back.

The earlier content is stored durably as one file of the data folder, named by the call and its attempt: a line of JSON,
then the content. A write whose content cannot be kept does not take place. If the process dies in between, the record
says what would have been written, and comparing the file tells that it was not.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from chatops.config.entries import decode_value, encode_value
from chatops.config.failpoints import reach
from chatops.config.folder_identity import folder_identity
from chatops.contained.folder import Kind, State, write_durably
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.toolkit.base import ToolContext

KEPT_S = 30 * 86_400
"""Seconds for which earlier content is kept."""
KEPT_BYTES = 512 << 20
"""Maximum number of bytes of earlier content that are kept; the oldest goes first."""


@frozen_dataclass
class PathChange:
    """One change of a path in the workspace."""

    path: str
    base: State
    """Before the change."""
    new: State
    """After it."""
    at_ns: int
    """Time of the change; it puts the changes of a path in order."""
    made: tuple[str, ...]
    """Folders that were made for it."""
    read: Callable[[], bytes]
    """Returns the content before the change, see `content`."""
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
    """See `PathChange`."""
    workspace: str
    folder: str
    """Identity of the workspace's folder."""
    at_ns: int


def keep_replaced(
    path: Path, before: bytes | None, after: bytes, *, mode: int, folder: int, made: Sequence[str], context: ToolContext
) -> None:
    """Store what a call is about to replace: the file `path` in the open `folder`. `mode` is that of the new file.

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
            base = _file_state(before, mode=info.st_mode & 0o777)
        header = _KeptHeader(
            path=path.relative_to(context.workspace).as_posix(),
            base=base,
            new=_file_state(after, mode=mode),
            made=tuple(made),
            workspace=str(context.workspace),
            folder=folder_identity(context.workspace),
            at_ns=time.time_ns(),
        )
        context.kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = encode_value(header) + b"\n" + (before or b"")
        write_durably(context.kept / name, data)
    except OSError as error:
        why = f"what it replaces could not be kept for /undo ({error.strerror})"
        raise ToolFailedError(f"Nothing was written: {why}.") from error
    reach("kept")


def _file_state(content: bytes, *, mode: int) -> State:
    return State(kind=Kind.FILE, mode=mode, sha=hashlib.sha256(content).hexdigest(), size=len(content))


def kept_calls(folder: Path) -> frozenset[str]:
    """Return the ids of the calls with kept copies."""
    with suppress(OSError):
        return frozenset(name.rpartition(".")[0] for name in os.listdir(folder))
    return frozenset()


def kept_changes(folder: Path, prefixes: Sequence[str], *, workspace: Path) -> list[PathChange]:
    """Return the writes whose names start with one of `prefixes`, oldest first. What cannot be read is left out."""
    changes, current = list[PathChange](), (folder_identity(workspace), str(workspace))
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(tuple(prefixes)):
                with suppress(OSError, ValueError):
                    changes.append(_read_change(folder / name, current))
    return sorted(changes, key=lambda change: change.at_ns)


def _read_change(record: Path, current: tuple[str, str]) -> PathChange:
    """Return the change in a kept file. `current`: identity and path of the workspace. Raises OSError, ValueError."""
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
        here=(header.folder, header.workspace) == current,
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


def outdated(files: Iterable[tuple[float, int, Path]]) -> Iterator[Path]:
    """Yield the paths that are no longer kept, given times (s), sizes in bytes and paths: the oldest go first."""
    room, oldest = KEPT_BYTES, time.time() - KEPT_S
    for changed_at, size, path in sorted(files, reverse=True):
        room -= size
        if room < 0 or changed_at < oldest:
            yield path

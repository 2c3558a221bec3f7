"""Copies of files that file tools replace, kept so that ``/undo`` can put it back.

Before a write takes effect, the earlier content of its file is stored durably as one file of the data folder, named by
the call and its attempt: a line of JSON, then the content. A write whose content cannot be kept does not take place. If
the process dies in between, the record says what would have been written, and comparing the file tells that it was not.
"""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from chatops.config.failpoints import reach
from chatops.config.paths import folder_identity
from chatops.contained.changes import Kind, State, state_from
from chatops.contained.folder import write_durably
from chatops.domain.errors import ToolFailedError
from chatops.toolkit.base import ToolContext

KEPT_S = 30 * 86_400
"""Seconds for which earlier content is kept."""
KEPT_BYTES = 512 << 20
"""Maximum number of bytes of earlier content that are kept; the oldest goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One write by a file tool: the path in the workspace, its state before and after, and when the write began."""

    path: str
    base: State
    new: State
    made: tuple[str, ...]
    """Folders that were missing, from the top down."""
    workspace: str
    folder: str
    """The workspace's `folder_identity`."""
    at_ns: int
    record: Path

    def content(self) -> bytes:
        """Return the earlier content; empty if there was no file. Raises OSError."""
        return self.record.read_bytes().partition(b"\n")[2]


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
    try:
        base = State()
        if before is not None:
            info = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            base = _state(before, info.st_mode & 0o777)
        known = {
            "path": path.relative_to(context.workspace).as_posix(),
            "base": asdict(base),
            "new": asdict(_state(after, mode)),
            "made": list(made),
            "workspace": str(context.workspace),
            "folder": folder_identity(context.workspace),
            "at_ns": time.time_ns(),
        }
        context.kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = json.dumps(known).encode("ascii") + b"\n" + (before or b"")
        write_durably(context.kept / f"{context.call_id}.{context.attempt}", data)
    except OSError as error:
        why = f"what it replaces could not be kept for /undo ({error.strerror})"
        raise ToolFailedError(f"Nothing was written: {why}.") from error
    reach("kept")


def _state(content: bytes, mode: int) -> State:
    return State(kind=Kind.FILE, mode=mode, sha=hashlib.sha256(content).hexdigest(), size=len(content))


def kept_calls(folder: Path) -> frozenset[str]:
    """Return the ids of the calls with kept copies."""
    with suppress(OSError):
        return frozenset(name.rpartition(".")[0] for name in os.listdir(folder))
    return frozenset()


def kept(folder: Path, prefixes: Sequence[str]) -> list[Kept]:
    """Return the writes whose names start with one of `prefixes`, oldest first. What cannot be read is left out."""
    found = []
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(tuple(prefixes)):
                with suppress(OSError, ValueError, KeyError, TypeError):
                    found.append(_read(folder / name))
    return sorted(found, key=lambda one: one.at_ns)


def _read(path: Path) -> Kept:
    with path.open("rb") as file:
        known = json.loads(file.readline())
    if not {"", ".", ".."}.isdisjoint(str(known["path"]).split("/")):
        raise ValueError("not a path in the workspace")
    return Kept(
        path=str(known["path"]),
        base=state_from(known["base"]),
        new=state_from(known["new"]),
        made=tuple(map(str, known["made"])),
        workspace=str(known["workspace"]),
        folder=str(known["folder"]),
        at_ns=int(known["at_ns"]),
        record=path,
    )


def sweep(folder: Path) -> None:
    """Remove what is older than `KEPT_S`, and the oldest beyond `KEPT_BYTES`."""
    files: list[tuple[float, int, Path]] = []
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                info = path.stat()
                files.append((info.st_mtime, info.st_size, path))
    room, oldest = KEPT_BYTES, time.time() - KEPT_S
    for at, size, path in sorted(files, reverse=True):
        room -= size
        if room < 0 or at < oldest:
            path.unlink(missing_ok=True)

"""The files of a workspace that may have an effect on chatops once the user trusts them.

Theory of operation

A workspace is often a clone of a stranger's repository, so everything here is hostile until the user has trusted it.
`read_workspace` reads each file once and keeps its bytes. Those bytes are what is shown, digested and used later.
Nothing is read a second time by its name, so a file that is swapped afterwards has no effect.

Every folder is opened relative to the open folder above it, and no symbolic link is followed. So nothing outside the
workspace is read, except notes in the folders above it up to the root of its repository. Pipes and devices are not
opened. Number and size of the files are limited, so that a hostile workspace cannot keep the start busy.

What is looked for:

- ``AGENTS.md``, else ``CLAUDE.md``, in the workspace and in the folders above it, nearest first
- the chatops workflows in ``workflows/``, unless that is the user's own folder of workflows
- the skills in ``.chatops/skills/``
- ``model_registry.json`` (unless it is the registry in use), ``.chatops/tools/`` and ``.mcp.json``, which this version
  lists and does not use
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from chatops.config.folder_identity import folder_identity, inode_of
from chatops.config.paths import FOLDER_FLAGS, opened
from chatops.domain.frozen_dataclass import frozen_dataclass

NOTES = ("AGENTS.md", "CLAUDE.md")
"""Names of notes. In each folder the first one that can be used counts."""
REGISTRY = "model_registry.json"
WORKFLOWS = "workflows"
WORKFLOW_ENDINGS = (".json", ".yaml", ".yml")
MAX_BYTES = 1_000_000
"""Maximum size of one file."""
MAX_TOTAL_BYTES = 8_000_000
"""Maximum size of all files together."""
MAX_FILES = 200
"""Maximum number of files that are read in one folder and below it."""
MAX_ENTRIES = 5_000
"""Maximum number of names in folders that are read in all."""
_MAX_DEPTH = 5
"""Maximum depth of folders that are read below each other."""
_MAX_LEVELS = 40
"""Maximum number of folders above the workspace that are searched for the root of its repository."""

# Without O_NONBLOCK opening a pipe would block.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class ReadFault(StrEnum):
    """Why a file is never read."""

    LINK = "it is a symbolic link"
    NOT_PLAIN = "it is not a plain file"
    TOO_LARGE = "it is too large"


class ItemKind(StrEnum):
    """Purpose of a file."""

    NOTES = "notes"
    REGISTRY = "registry"
    WORKFLOW = "workflow"
    SKILL = "skill"
    TOOL = "tool"
    SERVERS = "MCP servers"
    OWN_TOOL = "your tool"
    """A file of the config folder, not of a workspace."""
    SERVER_START = "start of an MCP server"
    """The command of a server, see `mcp.process`; no file."""

    @property
    def is_used(self) -> bool:
        """True if this version uses such files once they are trusted."""
        return self not in (ItemKind.REGISTRY, ItemKind.TOOL, ItemKind.SERVERS)

    @property
    def effect(self) -> str:
        """Effect of trusting such a file, in words."""
        match self:
            case ItemKind.NOTES:
                return "becomes part of the prompt, as data"
            case ItemKind.REGISTRY:
                return "not used; only your own registry and the site's count"
            case ItemKind.WORKFLOW:
                return "can be run, under your rights"
            case ItemKind.SKILL:
                return "can be read by the model; its name and description become part of the prompt"
            case ItemKind.OWN_TOOL:
                return "is loaded at once and runs as you, in chatops itself and outside any sandbox"
            case ItemKind.SERVER_START:
                return "runs as you whenever a role needs its tools"
            case _:
                return "not used yet; will be asked about by itself"


@frozen_dataclass
class Item:
    """One file, as it was read."""

    kind: ItemKind
    path: str
    """Relative to the workspace; begins with ``../`` for notes above it. Hostile text."""
    size: int = 0
    digest: str = ""
    """SHA-256 of the content; empty if there is a problem."""
    data: bytes = field(default=b"", repr=False)
    """The content, for kinds that are used."""
    problem: str = ""
    """Why the file cannot be used; empty if it can."""

    @property
    def key(self) -> tuple[str, str]:
        """Kind and path, which name the item among those of its workspace."""
        return self.kind.value, self.path


@frozen_dataclass
class WorkspaceFiles:
    """Everything that a workspace brings."""

    folder: str
    """Identity of the folder, see `config.folder_identity`; empty if it is gone or may not be read."""
    path: str
    items: tuple[Item, ...] = ()
    left_out: tuple[str, ...] = ()
    """Folders with more files than are read."""


def read_workspace(workspace: Path, *, own: Sequence[Path] = ()) -> WorkspaceFiles:
    """Read what `workspace`, a resolved path, brings, but for files and folders that are the user's `own`.

    Never raises.
    """
    try:
        with opened(workspace) as folder:
            inode = os.fstat(folder).st_ino
            # Files are bound to their digests too, so this is enough where nothing tells when a folder was created.
            identity = folder_identity(workspace) or f"{inode}:0:{workspace}"
            if not identity.startswith(f"{inode}:"):
                raise OSError("replaced meanwhile")
            reader = _WorkspaceReader(own={inode_of(path) for path in own})
            items = [*reader.read_notes(folder), *reader.read_others(folder)]
    except OSError:
        # The folder is gone or may not be read. Opening the workspace reports that.
        return WorkspaceFiles(folder="", path=str(workspace))
    return WorkspaceFiles(folder=identity, path=str(workspace), items=tuple(items), left_out=tuple(reader.left_out))


def read_skills(folder: Path) -> list[Item]:
    """Read the user's own skills in `folder`, which is called ``skills``, as those of a workspace. Never raises."""
    reader = _WorkspaceReader(own=set())
    try:
        with opened(folder.parent.resolve()) as parent:
            return list(reader.read_folder(parent, folder.name, ItemKind.SKILL, depth=_MAX_DEPTH))
    except OSError:
        return []


def is_workflow_name(name: str) -> bool:
    """Return True if a file of this name may hold a workflow."""
    return name.endswith(WORKFLOW_ENDINGS) and not name.startswith(".")


class _WorkspaceReader:
    """Reads files within the limits of one reading."""

    def __init__(self, *, own: set[tuple[int, int] | None]) -> None:
        self._own = own
        self._bytes_left = MAX_TOTAL_BYTES
        self._entries_left = MAX_ENTRIES
        self.left_out: list[str] = []

    def read_notes(self, workspace: int) -> Iterator[Item]:
        """Yield notes, nearest first. A file that cannot be used does not hide the other name in its folder."""
        with _open_levels(workspace) as levels:
            for number, folder in enumerate(levels):
                for name in NOTES:
                    item = self._read_item(folder, name, ItemKind.NOTES, prefix="../" * number)
                    if item is not None:
                        yield item
                        if not item.problem:
                            break

    def read_others(self, workspace: int) -> Iterator[Item]:
        """Yield everything else that is in the workspace itself."""
        if registry := self._read_item(workspace, REGISTRY, ItemKind.REGISTRY):
            yield registry
        yield from self.read_folder(workspace, WORKFLOWS, ItemKind.WORKFLOW, depth=1, is_wanted=is_workflow_name)
        with suppress(OSError), opened(".chatops", at=workspace) as folder:
            for name, kind in (("skills", ItemKind.SKILL), ("tools", ItemKind.TOOL)):
                yield from self.read_folder(folder, name, kind, prefix=".chatops/", depth=_MAX_DEPTH)
        if servers := self._read_item(workspace, ".mcp.json", ItemKind.SERVERS):
            yield servers

    def read_folder(
        self,
        parent: int,
        name: str,
        kind: ItemKind,
        *,
        depth: int,
        prefix: str = "",
        is_wanted: Callable[[str], bool] = lambda name: True,
    ) -> Iterator[Item]:
        """Yield the files in a folder and, down to `depth` folders, below it."""
        path = f"{prefix}{name}"
        try:
            if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                yield Item(kind=kind, path=path, problem=ReadFault.LINK)
                return
            with opened(name, at=parent) as folder:
                status = os.fstat(folder)
                if (status.st_dev, status.st_ino) in self._own:
                    return
                items = self._read_entries(folder, path, kind, depth=depth, is_wanted=is_wanted)
                for count, item in enumerate(items, 1):
                    if count > MAX_FILES:
                        self.left_out.append(f"{path}/ has more than {MAX_FILES} files")
                        return
                    yield item
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            yield Item(kind=kind, path=path, problem=f"it cannot be read ({error.strerror})")

    def _read_entries(
        self, folder: int, path: str, kind: ItemKind, *, depth: int, is_wanted: Callable[[str], bool]
    ) -> Iterator[Item]:
        prefix = f"{path}/"
        for name, is_folder in self._list_entries(folder, path):
            if is_folder and depth > 1:
                yield from self.read_folder(folder, name, kind, prefix=prefix, depth=depth - 1, is_wanted=is_wanted)
            elif not is_folder and is_wanted(name) and (item := self._read_item(folder, name, kind, prefix=prefix)):
                yield item

    def _list_entries(self, folder: int, path: str) -> list[tuple[str, bool]]:
        """Return the names in a folder, sorted, each with whether it is a folder."""
        names: list[tuple[str, bool]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if self._entries_left == 0:
                    self.left_out.append(f"{path}/ is not read whole: there are more than {MAX_ENTRIES:,} entries")
                    break
                self._entries_left -= 1
                names.append((entry.name, entry.is_dir(follow_symlinks=False)))
        return sorted(names)

    def _read_item(self, folder: int, name: str, kind: ItemKind, *, prefix: str = "") -> Item | None:
        """Read one file; None if there is none, or none of this kind."""
        path = f"{prefix}{name}"
        try:
            data = self._read_bytes(folder, name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            why = error.strerror or "unknown error"
            return Item(kind=kind, path=path, problem=f"it cannot be read ({why})")
        except _NotReadError as error:
            if kind is ItemKind.WORKFLOW and error.fault is ReadFault.NOT_PLAIN:
                return None
            return Item(kind=kind, path=path, problem=str(error))
        if data is None:
            return None
        if kind is ItemKind.WORKFLOW and not (b"steps" in data and b"system_prompt" in data):
            # Other programs keep other workflows in such a folder.
            return None
        problem = _text_fault(data) if kind is ItemKind.NOTES else ""
        return Item(
            kind=kind,
            path=path,
            size=len(data),
            digest="" if problem else hashlib.sha256(data).hexdigest(),
            data=data if kind.is_used and not problem else b"",
            problem=problem,
        )

    def _read_bytes(self, folder: int, name: str) -> bytes | None:
        """Return the content of a plain file; None if it is one of the user's own. Raises OSError, _NotReadError."""
        _check_status(os.stat(name, dir_fd=folder, follow_symlinks=False))
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            _check_status(status)
            if (status.st_dev, status.st_ino) in self._own:
                return None
            data = file.read(min(MAX_BYTES, self._bytes_left) + 1)
        if len(data) > MAX_BYTES:
            raise _NotReadError(ReadFault.TOO_LARGE, f"it is larger than {MAX_BYTES:,} bytes")
        if len(data) > self._bytes_left:
            raise _NotReadError(
                ReadFault.TOO_LARGE, f"it and the files before it are larger than {MAX_TOTAL_BYTES:,} bytes"
            )
        self._bytes_left -= len(data)
        return data


class _NotReadError(Exception):
    """The file is one that is never read."""

    def __init__(self, fault: ReadFault, text: str = "") -> None:
        super().__init__(text or fault.value)
        self.fault = fault


def _check_status(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _NotReadError(ReadFault.LINK)
    if not stat.S_ISREG(status.st_mode):
        raise _NotReadError(ReadFault.NOT_PLAIN)
    if status.st_size > MAX_BYTES:
        raise _NotReadError(ReadFault.TOO_LARGE, f"it is larger than {MAX_BYTES:,} bytes")


def _text_fault(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    return "it is not text" if "\0" in text else ""


@contextmanager
def _open_levels(workspace: int) -> Iterator[list[int]]:
    """Open the workspace's folder and those above it up to the root of its repository; yield them nearest first.

    Without a repository it is the workspace alone. ``.git`` may be a file, as in a worktree or a submodule. A folder
    that others could have written into ends the search: their ``.git`` and their notes would count otherwise.
    """
    levels = [os.dup(workspace)]
    at_root = False
    try:
        while len(levels) <= _MAX_LEVELS:
            if at_root := _has_repository(levels[-1]):
                break
            try:
                above = os.open("..", FOLDER_FLAGS, dir_fd=levels[-1])
            except OSError:
                break
            levels.append(above)
            if os.path.sameopenfile(above, levels[-2]) or not _only_owner_writes(os.fstat(above)):
                break
        yield levels if at_root else levels[:1]
    finally:
        for descriptor in levels:
            os.close(descriptor)


def _has_repository(folder: int) -> bool:
    try:
        mode = os.stat(".git", dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def _only_owner_writes(status: os.stat_result) -> bool:
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & stat.S_IWOTH

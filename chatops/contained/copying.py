"""Make the copy of a workspace that a contained turn works in, and the manifest that its changes are found by.

The workspace is walked by descriptors that follow no link. Left out of the copy are ``.git`` (shown read-only from the
original), whatever may hold secrets, protected paths, caches (a prepared ``.pyc`` would run instead of its source),
sockets, pipes and devices. Large folders that git ignores, such as ``node_modules``, are shown read-only from the
original instead of being copied.
"""

import errno
import fcntl
import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path

from chatops.config.failpoints import reach
from chatops.config.paths import FOLDER_FLAGS, opened
from chatops.contained.folder import (
    FILE_FLAGS,
    NEW_FILE_FLAGS,
    Content,
    Kind,
    State,
    TurnFolder,
    copy_and_digest,
    remove_tree,
    sync_file_system,
    sync_folder,
)
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.names import fold, is_secret, may_hold_secrets
from chatops.git.ignore import GitIgnore
from chatops.sandbox.mount_points import MOUNTED, is_mount_point
from chatops.toolkit.confine import SETTINGS_FOLDER, home_folders
from chatops.toolkit.counting import Counter, count_work
from chatops.toolkit.output import visible

MAX_FILES = 20_000
MAX_BYTES = 1 << 30
"""Maximum numbers of files and bytes that are copied in all: the first call of a turn waits for the copy."""
GIT_CONFIGS = ("config", "config.worktree")
"""Files of the repository that commands see without what could start a program or hold a password."""
GIT_EMPTY = ("hooks", "modules", "worktrees")
"""Folders of the repository that commands see empty: programs, and further repositories with their configurations."""
MAX_DEPTH = 100
"""Deepest nesting of folders that is copied or compared."""
_MAX_SCANNED = 1_000_000
"""Maximum number of entries that are listed, also of folders that are not copied."""
_HEAVY_NAMES = frozenset({"node_modules", ".venv", "venv", "target"})
_HEAVY_FILES, _HEAVY_BYTES = 2_000, 100 << 20
"""A folder with more files or bytes is shown from the original, if its name is one of these or git ignores it."""
CACHES = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
_FICLONE = 0x40049409
"""Request of ioctl(2) by which a file shares the blocks of another one."""
_MAX_TRIES = 3
"""Attempts to copy a file that changes meanwhile."""
_RESERVE_BYTES = 64 << 20
"""Free disk that a copy leaves besides the room for its changes."""


@frozen_dataclass
class Copied:
    """A path of the copy: its state in the original, and how an unchanged copy of it is recognised."""

    state: State
    unchanged: tuple[int, int] = (0, 0)
    """Inode and change time (ns) of the copy of a file. A command cannot set the change time back."""


@dataclass(slots=True, kw_only=True)
class Manifest:
    """The copied entries, by path relative to the workspace."""

    workspace: str
    identity: tuple[int, int]
    copied: dict[str, Copied] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)
    """Folders that are shown read-only from the original."""
    hidden: list[str] = field(default_factory=list)
    """Paths that were left out because they may hold secrets or are protected."""
    left: dict[str, str] = field(default_factory=dict)
    """Further paths that were left out, with the reason."""


def hidden_by_name(parts: tuple[str, ...]) -> bool:
    """Return True if a path of these parts may hold secrets or settings, so that no copy contains it."""
    folded = tuple(fold(part) for part in parts)
    return is_secret(folded) or may_hold_secrets(folded) or SETTINGS_FOLDER in folded


def is_git_name(name: str) -> bool:
    """Return True if a file system may take `name` for ``.git``."""
    return fold(name) in (".git", "git~1")


def is_cache(name: str) -> bool:
    """Return True for a cache folder or a compiled file."""
    return name in CACHES or name.endswith((".pyc", ".pyo"))


def make_copy(folder: TurnFolder, workspace: Path, *, protected: tuple[Path, ...] = ()) -> Manifest:
    """Copy `workspace` into `folder`, durably: a copy that was killed half-way is never taken for a whole one.

    Raises ToolFailedError if the workspace cannot be copied, with the reason.
    """
    if workspace == Path("/") or workspace in home_folders():
        raise ToolFailedError(f"A contained turn needs a project folder, and the workspace is {workspace}.")
    part = TurnFolder(folder.path.with_name(f"{folder.path.name}.part"))
    remove_tree(part.path)
    part.copy.mkdir(parents=True, mode=0o700)
    with opened(workspace) as source, opened(part.copy) as target:
        info = os.fstat(source)
        manifest = Manifest(workspace=str(workspace), identity=(info.st_dev, info.st_ino))
        with count_work("copying the workspace", unit="file") as counter:
            rules = GitIgnore(workspace)
            planner = _Planner(workspace=workspace, protected=frozenset(protected), rules=rules, manifest=manifest)
            plan = planner.plan(source, ())
            _check_room(part.path, sum(entry.info.st_size for entry in plan), len(plan))
            counter.expect(len(plan))
            try:
                _Copier(manifest=manifest).copy_all(source, target, plan, counter)
            except OSError as error:
                raise ToolFailedError(f"The workspace could not be copied: {error.strerror}.") from error
    if ".git" in manifest.shared:
        # Places to mount on. No command has run in the copy yet, so nothing can be a link.
        for name in GIT_CONFIGS:
            (part.copy / ".git" / name).touch()
        for name in GIT_EMPTY:
            (part.copy / ".git" / name).mkdir()
    part.write("manifest", manifest)
    sync_file_system(part.path)
    reach("contained")
    os.rename(part.path, folder.path)
    sync_folder(folder.path.parent)
    reach("contained")
    return manifest


@frozen_dataclass(kw_only=False)
class _PlannedPath:
    parts: tuple[str, ...]
    info: os.stat_result
    target: str = ""
    """Of a link."""

    @property
    def path(self) -> str:
        return "/".join(self.parts)


@dataclass(slots=True, kw_only=True)
class _Planner:
    """Decides what is copied, and notes in the manifest what is not."""

    workspace: Path
    protected: frozenset[Path]
    rules: GitIgnore
    manifest: Manifest
    seen: int = 0
    """Entries that were listed so far."""

    def plan(self, folder: int, parts: tuple[str, ...], *, limited: bool = True) -> list[_PlannedPath]:
        """Return the paths below an open folder to copy, each folder before what is in it.

        Raises ToolFailedError if it is too large. Not `limited` below a folder that may be shared: if that is large, it
        is not copied, whatever is in it.
        """
        planned: list[_PlannedPath] = []
        size = 0
        for name in sorted(os.listdir(folder)):
            self.seen += 1
            if self.seen > _MAX_SCANNED:
                raise ToolFailedError(f"The workspace holds more than {_MAX_SCANNED:,} files; it cannot be copied.")
            of_entry = self._plan_entry(folder, (*parts, name), limited=limited)
            planned.extend(of_entry)
            size += sum(entry.info.st_size for entry in of_entry)
            # At once, and not when all is counted: a folder of a million files takes long to list.
            if limited and (len(planned) > MAX_FILES or size > MAX_BYTES):
                where = f"{visible('/'.join(parts), limit=200)} in the workspace" if parts else "The workspace"
                raise ToolFailedError(
                    f"{where} is too large for a contained turn: at most {MAX_FILES:,} files and "
                    f"{MAX_BYTES >> 20:,} MiB are copied."
                )
        return planned

    def _plan_entry(self, folder: int, parts: tuple[str, ...], *, limited: bool) -> list[_PlannedPath]:
        name, path = parts[-1], "/".join(parts)
        # The sandbox of a command that runs now has an empty mount point for each folder that it hides.
        mounted = path in MOUNTED and is_mount_point(Path(name), dir_fd=folder)
        if mounted or is_cache(name) or (is_git_name(name) and path != ".git"):
            return []
        if path == ".git":
            return self._plan_repository(folder, parts)
        if hidden_by_name(parts) or self.workspace / path in self.protected:
            self.manifest.hidden.append(path)
            return []
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(info.st_mode):
                return [_PlannedPath(parts, info, os.readlink(name, dir_fd=folder))]
            if stat.S_ISREG(info.st_mode):
                return [_PlannedPath(parts, info)]
            if not stat.S_ISDIR(info.st_mode):
                self.manifest.left[path] = "a pipe, socket or device"
                return []
            if len(parts) > MAX_DEPTH:
                self.manifest.left[path] = f"nested more than {MAX_DEPTH} folders deep"
                return []
            below = os.open(name, FOLDER_FLAGS, dir_fd=folder)
        except OSError as error:
            self.manifest.left[path] = f"cannot be read: {error.strerror}"
            return []
        try:
            return self._plan_folder(below, parts, info, limited=limited)
        finally:
            os.close(below)

    def _plan_folder(
        self, folder: int, parts: tuple[str, ...], info: os.stat_result, *, limited: bool
    ) -> list[_PlannedPath]:
        """Return an open folder and what is in it; alone if it is large and can be shown from the original."""
        path = "/".join(parts)
        may_be_shared = parts[-1] in _HEAVY_NAMES or self.rules.ignores(f"{path}/")
        inside = self.plan(folder, parts, limited=limited and not may_be_shared)
        heavy = len(inside) > _HEAVY_FILES or sum(entry.info.st_size for entry in inside) > _HEAVY_BYTES
        if heavy and may_be_shared:
            self._forget_below(path)
            self.manifest.shared.append(path)
            return [_PlannedPath(parts, info)]
        return [_PlannedPath(parts, info), *inside]

    def _plan_repository(self, folder: int, parts: tuple[str, ...]) -> list[_PlannedPath]:
        """Return the place where the repository is shown. `make_copy` adds those inside it."""
        info = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(info.st_mode):
            return []
        self.manifest.shared.append(parts[-1])
        return [_PlannedPath(parts, info)]

    def _forget_below(self, path: str) -> None:
        """Forget what was noted below a folder that is shared. What is hidden stays so, in a shared folder too."""
        below, manifest = f"{path}/", self.manifest
        manifest.shared = [shared for shared in manifest.shared if not shared.startswith(below)]
        manifest.left = {left: why for left, why in manifest.left.items() if not left.startswith(below)}


def _check_room(place: Path, size: int, files: int) -> None:
    """Raise ToolFailedError unless the disk has room for the copy and for a change of all of it."""
    free = shutil.disk_usage(place).free
    if free < 2 * size + _RESERVE_BYTES:
        raise ToolFailedError(
            f"A contained turn needs {2 * size >> 20:,} MiB of free disk for {files:,} files; {free >> 20:,} MiB are."
        )


@dataclass(slots=True, kw_only=True)
class _Copier:
    """Copies planned paths by descriptors."""

    manifest: Manifest
    can_share_blocks: bool = True

    def copy_all(self, source: int, target: int, plan: list[_PlannedPath], counter: Counter) -> None:
        """Copy the paths of `plan`, which names each folder before what is in it, and count them."""
        # The open folders from the top down to `open_parts`, each in the workspace and in the copy.
        open_folders, open_parts = [(source, target)], tuple[str, ...]()
        try:
            for entry in plan:
                *parent, name = entry.parts
                while open_parts != tuple(parent):
                    for descriptor in open_folders.pop():
                        os.close(descriptor)
                    open_parts = open_parts[:-1]
                src, dst = open_folders[-1]
                if stat.S_ISDIR(entry.info.st_mode):
                    os.mkdir(name, 0o700, dir_fd=dst)
                    state = State(kind=Kind.FOLDER, mode=entry.info.st_mode & 0o777)
                    self.manifest.copied[entry.path] = Copied(state=state)
                    if entry.path not in self.manifest.shared:
                        source_folder = os.open(name, FOLDER_FLAGS, dir_fd=src)
                        open_folders.append((source_folder, os.open(name, FOLDER_FLAGS, dir_fd=dst)))
                        open_parts = entry.parts
                elif stat.S_ISLNK(entry.info.st_mode):
                    os.symlink(entry.target, name, dir_fd=dst)
                    self.manifest.copied[entry.path] = Copied(state=State(kind=Kind.LINK, target=entry.target))
                else:
                    self._copy_file(src, dst, name, entry.path)
                counter.add()
        finally:
            for pair in open_folders[1:]:
                for descriptor in pair:
                    os.close(descriptor)

    def _copy_file(self, source: int, target: int, name: str, path: str) -> None:
        for _ in range(_MAX_TRIES):
            try:
                original = os.open(name, FILE_FLAGS, dir_fd=source)
            except OSError as error:
                self.manifest.left[path] = f"cannot be read: {error.strerror}"
                return
            try:
                before = os.fstat(original)
                if not stat.S_ISREG(before.st_mode):
                    break  # It was a file when the copy was planned.
                with opened(name, NEW_FILE_FLAGS, at=target) as copy:
                    sha, size = self._copy_content(original, copy)
                    os.fchmod(copy, before.st_mode & 0o777)
                    os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))
                    copy_info = os.fstat(copy)
                after = os.fstat(original)
            finally:
                os.close(original)
            if (before.st_size, before.st_mtime_ns, before.st_ctime_ns) == (size, after.st_mtime_ns, after.st_ctime_ns):
                state = State(kind=Kind.FILE, mode=before.st_mode & 0o777, sha=sha, size=size)
                self.manifest.copied[path] = Copied(state=state, unchanged=(copy_info.st_ino, copy_info.st_ctime_ns))
                return
            os.unlink(name, dir_fd=target)
        self.manifest.left[path] = "changed while it was copied"

    def _copy_content(self, source: int, target: int) -> Content:
        if self.can_share_blocks:
            try:
                fcntl.ioctl(target, _FICLONE, source)
                return copy_and_digest(source, None)
            except OSError as error:
                # With another error, the next file may share its blocks again.
                self.can_share_blocks = error.errno not in (errno.EOPNOTSUPP, errno.EXDEV, errno.ENOTTY, errno.EINVAL)
        return copy_and_digest(source, target)


def read_manifest(folder: TurnFolder) -> Manifest:
    """Return the manifest of a copy. Raises ToolFailedError if there is none."""
    manifest = folder.read("manifest", Manifest)
    if manifest is None:
        raise ToolFailedError("The copy of this contained turn is gone.")
    return manifest

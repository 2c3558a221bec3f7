"""Access of a sandboxed command to the workspace's repository: protect, commit or writable.

Theory of operation

A command that can write all of ``.git`` can make the user's next git command run a program: by a hook, by
``config``, or by a ``commondir`` file that leads to another ``config``. So by default ``.git`` is read-only, also
where there is none yet.

Git changes files by writing ``X.lock`` beside ``X`` and renaming it, so `commit` cannot simply make single files
writable. Instead the command gets a *stage*, a private folder, at the place of ``.git``:

- ``objects``, ``refs`` and ``logs`` are the real ones, writable; ``objects/info`` is read-only, as it can name other
  object stores
- every other entry of the real ``.git``, such as ``config``, ``hooks``, ``info``, ``modules``, is mounted read-only
- the files of `_STAGED` (``index``, ``HEAD`` …) are copied into the stage

After the command `finish` puts the changed files of `_STAGED` into the real ``.git``, by git's own locks. Anything
else that the command made in the stage (``commondir``, new hooks, a rebase plan with ``exec`` lines) is dropped with
it. A file that somebody else has changed in the meantime is left alone, and the result says so.

``objects``, ``refs`` and ``logs`` could lead the user's next git command to a file outside: by a symlink, or by a
symbolic reference with ``..`` in it. `finish` removes these. If one is there before the command, or one of the three
is not a folder, the command gets no access: what a killed run left is refused by the next one.

A linked worktree has a file ``.git`` that names its folder in the main repository. The file can be written by a
model, so it counts only if that folder names this workspace in turn. A submodule's file does not count: its
repository is not shown.
"""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from chatops.config.paths import opened, temporary_folder
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import GitAccess
from chatops.git.index import SUBMODULE
from chatops.git.repository import WorkTree, tracked_entries
from chatops.sandbox.covers import SandboxSetupError
from chatops.sandbox.mount_points import is_mount_point
from chatops.toolkit.output import list_names, visible

_STAGED = (
    *("HEAD", "index", "packed-refs", "COMMIT_EDITMSG", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "MERGE_MSG"),
    *("MERGE_MODE", "SQUASH_MSG", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD"),
)
"""Files of ``.git`` that a commit, merge or fetch changes. None of them can start a program."""
_WRITTEN_FOLDERS = ("objects", "refs", "logs")
"""Folders of ``.git`` that a command with access `commit` writes directly."""
_NAME = rb"refs(?:/(?!\.)(?:(?!\.\.|@\{|\.lock(?:/|\n?\Z))[^\x00-\x20\x7f~^:?*\[\\/])+)+(?<!\.)"
"""A valid name of a reference, see ``git check-ref-format``."""
_REFERENCE = re.compile(rb"ref: %s\n?" % _NAME)
"""A symbolic reference. Git follows those of invalid names too, also out of ``.git``."""
_HEX = rb"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_ID = re.compile(rb"%s\n?" % _HEX)
_PACKED = re.compile(rb"# pack-refs with:[ -~]*\n|%s %s\n|\^%s\n" % (_HEX, _NAME, _HEX))
"""A line of ``packed-refs``. Most git commands end at a line that is not one of these."""
_OFFSET_TABLE = b"IEOT"
"""Begins the table of an index by which git may find other entries than are read here."""
_MAX_REFERENCE_BYTES = 4_096
"""Bytes of a reference that are read; a longer one is not valid."""
_MAX_NAMED = 5
"""Maximum number of paths that a message names."""
_MAX_COPIED_BYTES = 512_000_000
"""Size of a file that is copied. With a larger index, no command may commit."""
_PLACE_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open a folder as a place only, which needs no right to read it."""


@frozen_dataclass
class Repository:
    """The repository of a workspace. `folder` holds the index, `common` the rest. They differ for a worktree only."""

    folder: Path
    common: Path

    @property
    def is_linked_worktree(self) -> bool:
        """True for a linked worktree, whose repository lies elsewhere."""
        return self.folder != self.common

    @property
    def written_folders(self) -> tuple[Path, ...]:
        """Those of `_WRITTEN_FOLDERS` that there are."""
        folders = dict.fromkeys((self.folder, self.common))
        return tuple(folder / name for folder in folders for name in _WRITTEN_FOLDERS if os.path.lexists(folder / name))

    def find_leading_elsewhere(self) -> str:
        """Return the names of what leads elsewhere in `written_folders`, or cannot be examined; empty if nothing."""
        return self._names_leading_elsewhere(remove=False)

    def remove_leading_elsewhere(self) -> str:
        """Remove what leads elsewhere in `written_folders`, and return the names as `find_leading_elsewhere`."""
        return self._names_leading_elsewhere(remove=True)

    def _names_leading_elsewhere(self, *, remove: bool) -> str:
        paths = [path for place in self.written_folders for path in _paths_leading_elsewhere(place, remove=remove)]
        return list_names([visible(self.display_name(path)) for path in paths], most=_MAX_NAMED)

    def display_name(self, path: Path) -> str:
        """Return the name of a path of the repository for a message."""
        return f".git/{path.relative_to(self.common)}"


def own_repository(workspace: Path) -> Repository | None:
    """Return the repository at the top of `workspace`; None if there is none, or if it is not certain to be its own."""
    store = workspace / ".git"
    try:
        mode = os.lstat(store).st_mode
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        return None if is_mount_point(store) else Repository(folder=store, common=store)
    return _linked_worktree(store) if stat.S_ISREG(mode) else None


def _linked_worktree(store: Path) -> Repository | None:
    """Return the repository that a ``.git`` file names, if its folder there names this file in turn."""
    # The folder is COMMON/worktrees/NAME. Its `commondir` leads to COMMON, and its `gitdir` back to the file.
    named = _read_pointer(store).removeprefix("gitdir: ")
    folder = Path(os.path.realpath(store.parent / named)) if named else store.parent
    common = folder.parent.parent
    named_back = _read_pointer(folder / "gitdir")
    if folder.parent.name != "worktrees" or not named_back or folder.is_relative_to(store.parent):
        return None
    shared = _read_pointer(folder / "commondir")
    if not shared or os.path.realpath(folder / shared) != str(common):
        return None
    if os.path.realpath(folder / named_back) != os.path.realpath(store) or not (common / "objects").is_dir():
        return None
    return Repository(folder=folder, common=common)


def _read_pointer(file: Path) -> str:
    """Return the path that a file of git holds; empty if there is none."""
    return (_read_beginning(file) or b"").decode("utf-8", "replace").strip()


@dataclass(slots=True, kw_only=True)
class Stage:
    """A private folder at the place of ``.git``, see the module."""

    repository: Repository
    folder: Path
    before: dict[str, "_FileVersion"] = field(default_factory=dict)
    """Versions of the real files when they were copied."""
    copied: dict[str, "_FileVersion"] = field(default_factory=dict)
    """Versions of the copies."""

    def finish(self) -> tuple[str, ...]:
        """Remove links, and take changed files over into the real repository.

        Return what was removed and what was not taken over, as clauses.
        """
        removed = self.repository.remove_leading_elsewhere()
        notes = [f"removed from the repository, as it leads elsewhere: {removed}"] if removed else []
        left, refused = [], []
        for name in _STAGED:
            now = _file_version(self.folder / name)
            if now == self.copied.get(name):
                continue
            if self._may_mislead(name):
                refused.append(f".git/{name}")
            elif not self._take_over(name, removed=now is None):
                left.append(f".git/{name}")
        if refused:
            names = list_names(refused, most=_MAX_NAMED)
            notes.append(f"not valid or with a new submodule, so not taken over: {names}")
        if left:
            names = list_names(left, most=_MAX_NAMED)
            notes.append(f"changed or locked outside meanwhile, so left as they are: {names}")
        return tuple(notes)

    def _may_mislead(self, name: str) -> bool:
        """Return True if a file of the stage may lead the user's next git command elsewhere."""
        if name == "index":
            return self._index_adds_folders()
        if name == "packed-refs":
            return self._packed_refs_are_invalid()
        data = _read_beginning(self.folder / name)
        if name == "HEAD":
            if data is None:
                return True
            names_branch = data.startswith(b"ref: refs/heads/") and _REFERENCE.fullmatch(data) is not None
            return not names_branch and _ID.fullmatch(data) is None
        # The others of this name hold ids, but git would follow a symbolic reference too.
        holds_ids = name.endswith("_HEAD") or name == "AUTO_MERGE"
        return holds_ids and data is not None and data.startswith(b"ref:")

    def _packed_refs_are_invalid(self) -> bool:
        if _file_version(self.folder / "packed-refs") is None:
            return False
        try:
            lines = _read_file(self.folder / "packed-refs").splitlines(keepends=True)
        except OSError:
            return True
        return any(_PACKED.fullmatch(line) is None for line in lines)

    def _take_over(self, name: str, *, removed: bool) -> bool:
        """Put a file of the stage into the real repository. Return False if it was changed or locked there."""
        real = self.repository.folder / name
        lock = real.with_name(f"{name}.lock")
        try:
            descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError:
            return False
        renamed = False
        try:
            with open(descriptor, "wb") as file:
                data = b"" if removed else _read_file(self.folder / name)
                if _file_version(real) != self.before.get(name):
                    return False
                file.write(data)
            if removed:
                os.unlink(real)
                return True
            if (now := _file_version(self.folder / name)) is not None:
                os.utime(lock, ns=(now.mtime_ns, now.mtime_ns))
            os.rename(lock, real)
            # From here on a file of the lock's name belongs to another git.
            renamed = True
            return True
        except OSError:
            return False
        finally:
            if not renamed:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(lock)

    def _index_adds_folders(self) -> bool:
        """Return True if the index of the stage names a folder, such as a submodule, that the real one does not.

        Git follows the settings of submodules. A new offset table counts too, because it may lead to such entries.
        """
        staged, real = self.folder / "index", self.repository.folder / "index"
        if _file_version(staged) is None:
            return False
        try:
            new, old = (_folders_of(index.parent, self.repository) for index in (staged, real))
            had_table = _file_version(real) is not None and _OFFSET_TABLE in _read_file(real)
            has_new_table = _OFFSET_TABLE in _read_file(staged) and not had_table
        except (OSError, ValueError, IndexError):
            return True
        return bool(new - old) or has_new_table


def _folders_of(place: Path, repository: Repository) -> frozenset[str]:
    """Return the folders that an index names. Raises OSError, ValueError or IndexError."""
    entries = tracked_entries(WorkTree(tree=place, git_dir=place, common_dir=repository.common))
    return frozenset(entry.path for entry in entries if entry.mode in (SUBMODULE, stat.S_IFDIR))


@contextlib.contextmanager
def stage_for(repository: Repository | None, access: GitAccess) -> Iterator[Stage | None]:
    """Make a stage for a command with access `commit` and remove it at the end; None if it needs none.

    Raises OSError if the files cannot be copied, SandboxSetupError if the repository leads elsewhere.
    """
    if repository is None or access != "commit":
        yield None
        return
    _prepare_repository(repository)
    with temporary_folder() as folder:
        stage = Stage(repository=repository, folder=folder)
        for name in _STAGED:
            before = _file_version(repository.folder / name)
            if before is not None:
                (folder / name).write_bytes(_read_file(repository.folder / name))
                # Git takes a file for unchanged if its size and time are those in an index that is younger than it.
                os.utime(folder / name, ns=(before.mtime_ns, before.mtime_ns))
                stage.before[name] = before
                copied = _file_version(folder / name)
                if copied is not None:
                    stage.copied[name] = copied
        yield stage


def _prepare_repository(repository: Repository) -> None:
    """Make the folders that git has not made yet: what is not there cannot be mounted.

    Raises OSError, and SandboxSetupError if something in the repository leads elsewhere.
    """
    for place in repository.written_folders:
        if not stat.S_ISDIR(os.lstat(place).st_mode):
            raise SandboxSetupError(
                f"{repository.display_name(place)} is a link, or no folder, so no command may commit"
            )
    for folder in dict.fromkeys((repository.folder, repository.common)):
        (folder / "logs").mkdir(exist_ok=True)
    with opened(repository.common / "objects", _PLACE_FLAGS) as objects, contextlib.suppress(FileExistsError):
        os.mkdir("info", dir_fd=objects)
    if found := repository.find_leading_elsewhere():
        raise SandboxSetupError(f"no command may commit while the repository leads elsewhere by {found}")


def _paths_leading_elsewhere(place: Path, *, remove: bool) -> list[Path]:
    """Return the symlinks, and the symbolic references of no valid name, below a folder of the repository.

    No link is followed. A folder that cannot be examined counts too. With `remove` they are removed.
    """
    paths: list[Path] = []
    to_search = ["."]
    try:
        with opened(place, _PLACE_FLAGS) as root:
            start = os.readlink(f"/proc/self/fd/{root}")
            while to_search:
                below = to_search.pop()
                try:
                    with opened(below, _PLACE_FLAGS, at=root) as folder:
                        # Somebody may have replaced a folder on the way by a link meanwhile.
                        if os.readlink(f"/proc/self/fd/{folder}") != os.path.normpath(os.path.join(start, below)):
                            raise OSError
                        names, leading = _list_folder(folder, references=place.name == "refs", remove=remove)
                        to_search += [os.path.join(below, name) for name in names]
                        paths += [place / below / name for name in leading]
                except OSError:
                    paths.append(place / below)
    except OSError:
        paths.append(place)
    return sorted(paths)


def _list_folder(folder: int, *, references: bool, remove: bool) -> tuple[list[str], list[str]]:
    """Return the names of the subfolders of an open folder, and of what leads elsewhere. Raises OSError."""
    if remove and not os.access(f"/proc/self/fd/{folder}", os.R_OK | os.W_OK | os.X_OK):
        os.chmod(f"/proc/self/fd/{folder}", 0o755)
    folders, leading = [], []
    with os.scandir(f"/proc/self/fd/{folder}") as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_symlink() or (references and _leads_elsewhere(entry.name, folder)):
                leading.append(entry.name)
    if remove:
        for name in leading:
            os.unlink(name, dir_fd=folder)
    return folders, leading


def _leads_elsewhere(name: str, folder: int) -> bool:
    """Return True if a loose reference is symbolic and not valid, or cannot be read."""
    data = _read_beginning(name, folder)
    return data is None or (data.startswith(b"ref:") and _REFERENCE.fullmatch(data) is None)


def _read_beginning(path: Path | str, folder: int | None = None) -> bytes | None:
    """Return the content of a reference, cut if it is longer than one; empty without a file, None if it is unreadable.

    `path` is looked up in the open `folder`, if one is given.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with open(descriptor, "rb") as file:
            return file.read(_MAX_REFERENCE_BYTES)
    except FileNotFoundError:
        return b""
    except OSError:
        return None


def git_mounts(repository: Repository, access: GitAccess, stage: Stage | None) -> list[str]:
    """Return the arguments of bwrap that give a command this access."""
    folder, common = repository.folder, repository.common
    if stage is None:
        if access == "writable" and not repository.is_linked_worktree:
            return []  # It is writable with the workspace, in which it lies.
        return ["--bind" if access == "writable" else "--ro-bind", str(common), str(common)]
    args = ["--ro-bind", str(common), str(common)] if repository.is_linked_worktree else []
    args += ["--bind", str(stage.folder), str(folder)]
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            args += ["--bind" if entry.name in _WRITTEN_FOLDERS else "--ro-bind", entry.path, entry.path]
        elif entry.is_file(follow_symlinks=False) and entry.name not in _STAGED:
            args += ["--ro-bind", entry.path, entry.path]
    if repository.is_linked_worktree:
        for name in _WRITTEN_FOLDERS:
            if stat.S_ISDIR(os.lstat(common / name).st_mode):
                args += ["--bind", str(common / name), str(common / name)]
    info = common / "objects" / "info"
    return [*args, "--ro-bind", str(info), str(info)]


class _FileVersion(NamedTuple):
    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def _file_version(path: Path) -> _FileVersion | None:
    """Return what identifies the content of a regular file; None for anything else."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(info.st_mode):
        return None
    return _FileVersion(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _read_file(path: Path) -> bytes:
    """Return the content of a regular file, reached without a link. Raises OSError."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        data = file.read(_MAX_COPIED_BYTES + 1)
    if len(data) > _MAX_COPIED_BYTES:
        raise OSError(errno.EFBIG, f"{path.name} is too large to be copied")
    return data

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
- the files of `_STATE` (``index``, ``HEAD`` …) are copied into the stage

After the command `finish` puts the changed files of `_STATE` into the real ``.git``, by git's own locks. Anything
else that the command made in the stage (``commondir``, new hooks, a todo list with ``exec`` lines) is dropped with
it. A file that somebody else has changed in the meantime is left alone, and the result says so.

A linked worktree has a file ``.git`` that names its folder in the main repository. The file can be written by a
model, so it counts only if that folder names this workspace in turn. A submodule's file does not count: its
repository is not shown.
"""

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chatops.domain.sandbox import GitAccess
from chatops.tools.mount_point import is_mount_point

_STATE = (
    "HEAD",
    "index",
    "packed-refs",
    "COMMIT_EDITMSG",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "SQUASH_MSG",
    "AUTO_MERGE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
)
"""Files of ``.git`` that a commit, merge or fetch changes. None of them can start a program."""
_SHARED = ("objects", "refs", "logs")
_HEAD = re.compile(rb"ref: refs/[^\x00-\x20~^:?*\[\\]+\n?|[0-9a-f]{40}(?:[0-9a-f]{24})?\n?")
_MOST = 512_000_000
"""Bytes of a file that is copied."""
_LONGEST_POINTER = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The repository of a workspace. `folder` holds the index, `common` the rest. They differ for a worktree only."""

    folder: Path
    common: Path

    @property
    def outside(self) -> bool:
        """True for a linked worktree, whose repository lies elsewhere."""
        return self.folder != self.common


def find_repository(workspace: Path) -> Repository | None:
    """Return the repository at the top of `workspace`; None if there is none, or if it is not certain to be its own."""
    store = workspace / ".git"
    try:
        mode = os.lstat(store).st_mode
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        if is_mount_point(store):
            return None
        return Repository(folder=store, common=store)
    if not stat.S_ISREG(mode):
        return None
    return _worktree(store)


def _worktree(store: Path) -> Repository | None:
    """Return the repository that a ``.git`` file names, if its folder there names this file in turn."""
    named = _pointer(store).removeprefix("gitdir: ")
    folder = Path(os.path.realpath(store.parent / named)) if named else store.parent
    common = folder.parent.parent
    back = _pointer(folder / "gitdir")
    if folder.parent.name != "worktrees" or not back or folder.is_relative_to(store.parent):
        return None
    shared = _pointer(folder / "commondir")
    if not shared or os.path.realpath(folder / shared) != str(common):
        return None
    if os.path.realpath(folder / back) != os.path.realpath(store) or not (common / "objects").is_dir():
        return None
    return Repository(folder=folder, common=common)


def _pointer(file: Path) -> str:
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            return opened.read(_LONGEST_POINTER).decode("utf-8", "replace").strip()
    except OSError:
        return ""


@dataclass(slots=True, kw_only=True)
class Stage:
    """A private folder at the place of ``.git``, see the module."""

    repository: Repository
    folder: Path
    before: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """State of the real files when they were copied."""
    copied: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """State of the copies."""

    def finish(self) -> tuple[str, ...]:
        """Take changed files over into the real repository. Return the names of those that could not be."""
        left = []
        for name in _STATE:
            now = _state(self.folder / name)
            if now == self.copied.get(name):
                continue
            if not self._taken_over(name, removed=now is None):
                left.append(name)
        return tuple(left)

    def _taken_over(self, name: str, *, removed: bool) -> bool:
        real = self.repository.folder / name
        lock = real.with_name(f"{name}.lock")
        try:
            descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError:
            return False
        renamed = False
        try:
            with open(descriptor, "wb") as file:
                data = b"" if removed else _read(self.folder / name)
                if _state(real) != self.before.get(name) or (name == "HEAD" and _HEAD.fullmatch(data) is None):
                    return False
                file.write(data)
            if removed:
                os.unlink(real)
                return True
            if (now := _state(self.folder / name)) is not None:
                os.utime(lock, ns=(now[3], now[3]))
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


@contextlib.contextmanager
def staged(repository: Repository | None, access: GitAccess) -> Iterator[Stage | None]:
    """Make a stage for a command with access `commit` and remove it at the end; None if it needs none.

    Raises OSError if the files cannot be copied.
    """
    if repository is None or access != "commit":
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="chatops-git-"))
    try:
        stage = Stage(repository=repository, folder=folder)
        for name in _STATE:
            before = _state(repository.folder / name)
            if before is not None:
                _write(folder / name, _read(repository.folder / name), before)
                stage.before[name] = before
                copied = _state(folder / name)
                if copied is not None:
                    stage.copied[name] = copied
        yield stage
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def git_mounts(repository: Repository, access: GitAccess, stage: Stage | None) -> list[str]:
    """Return the arguments of bwrap that give a command this access."""
    folder, common = repository.folder, repository.common
    if stage is None:
        bind = "--bind" if access == "writable" else "--ro-bind"
        return [bind, str(common), str(common)] if repository.outside or access != "writable" else []
    args = ["--ro-bind", str(common), str(common)] if repository.outside else []
    args += ["--bind", str(stage.folder), str(folder)]
    # Where git has not made them yet: what is not there cannot be mounted.
    for place in (folder / "logs", common / "logs", common / "objects" / "info"):
        place.mkdir(exist_ok=True)
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            args += ["--bind" if entry.name in _SHARED else "--ro-bind", entry.path, entry.path]
        elif entry.is_file(follow_symlinks=False) and entry.name not in _STATE:
            args += ["--ro-bind", entry.path, entry.path]
    if repository.outside:
        for name in _SHARED:
            if stat.S_ISDIR(os.lstat(common / name).st_mode):
                args += ["--bind", str(common / name), str(common / name)]
    info = common / "objects" / "info"
    return [*args, "--ro-bind", str(info), str(info)]


def _state(path: Path) -> tuple[int, ...] | None:
    """Return what identifies the content of a regular file; None for anything else."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(info.st_mode):
        return None
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _write(path: Path, data: bytes, before: tuple[int, ...]) -> None:
    """Write a copy with the modification time of the original.

    Git takes a file for unchanged if its size and time are those in an index that is younger than the file.
    """
    path.write_bytes(data)
    os.utime(path, ns=(before[3], before[3]))


def _read(path: Path) -> bytes:
    """Return the content of a regular file, reached without a link. Raises OSError."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise OSError(f"{path} is too large")
    return data

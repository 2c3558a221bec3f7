"""Mount points for folders that the workspace lacks.

An empty ``.chatops`` or ``.git`` is mounted in the sandbox, so that a command cannot create that folder. This needs
a folder to mount on. `mount_point` makes one that is recognised by its mode (01555), and holds a shared lock (flock)
on it while a command runs. `remove_mount_point` removes it only with an exclusive lock, so the last process does, or
the next one after a kill.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from chatops.toolkit.confine import SETTINGS_FOLDER

BARE_HEAD = "HEAD"
"""Without a ``.git``, git takes a folder with ``HEAD``, ``objects`` and ``refs`` for a repository (a bare one)."""
MOUNTED = (SETTINGS_FOLDER, BARE_HEAD, ".git")
"""Names of the folders."""
_MOUNT_POINT = stat.S_ISVTX | 0o555
"""File mode that marks a mount point made by this module; users' own folders do not have it."""
_TRIES = 3


@contextmanager
def mount_points(workspace: Path, *, protects_git: bool = True) -> Iterator[None]:
    """Hold a `mount_point` for each of `MOUNTED` that a command must not create in this workspace."""
    with ExitStack() as stack:
        for name in MOUNTED if protects_git else (SETTINGS_FOLDER,):
            if name != BARE_HEAD or can_become_bare(workspace):
                stack.enter_context(mount_point(workspace / name))
        yield


@contextmanager
def mount_point(folder: Path) -> Iterator[None]:
    """Hold an empty folder for `sandboxed_command` to mount on if there is none at this path.

    bwrap would create a folder too, but one that looks like the user's own. This one is recognised by its mode and is
    locked while a process needs it. A folder that a killed process left is removed by the next user of the workspace.
    """
    held = next((one for _ in range(_TRIES) if (one := _hold(folder)) is not None), None)
    try:
        yield
    finally:
        if held is not None:
            os.close(held)
        remove_mount_point(folder)


def _hold(folder: Path) -> int | None:
    """Create and lock the mount point; return its descriptor, or None if the folder is not ours."""
    try:
        os.mkdir(folder)
        os.chmod(folder, _MOUNT_POINT)
    except OSError:
        pass
    if not is_mount_point(folder):
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def remove_mount_point(folder: Path) -> None:
    """Remove the folder of `mount_point` if no process needs it; leave anything else."""
    if not is_mount_point(folder):
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rmdir(folder)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def can_become_bare(folder: Path) -> bool:
    """Return True if `folder` has no ``.git`` of its own."""
    return is_mount_point(folder / ".git") or not os.path.lexists(folder / ".git")


def is_mount_point(folder: Path, *, dir_fd: int | None = None) -> bool:
    """Return True if `folder` was made by `mount_point`. `dir_fd` is the open folder that it is relative to."""
    try:
        status = os.stat(folder, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == _MOUNT_POINT

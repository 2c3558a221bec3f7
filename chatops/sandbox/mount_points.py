"""Give a workspace something to mount on where a command must not create anything.

An empty ``.chatops``, ``.git`` or ``HEAD`` is mounted in the sandbox, so that a command cannot make one. `mount_point`
makes the folder or file below it, which is recognised by its mode (01555 or 01444), and holds a shared lock (flock) on
it while a command runs. `remove_mount_point` removes it only with an exclusive lock, so the last process does, or the
next one after a kill.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from chatops.toolkit.confine import SETTINGS_FOLDER

BARE_HEAD = "HEAD"
"""Without a ``.git``, git takes a folder with a valid ``HEAD``, ``objects`` and ``refs`` for a repository (a bare one).

Its mount point is an empty file, which is not valid: shell patterns such as ``*`` match the name, and ``cat *`` fails
at a folder. Below another repository it is a folder all the same: git shows files that it does not know, but no empty
folders, and ``git add`` would take the file."""
MOUNTED = (SETTINGS_FOLDER, BARE_HEAD, ".git")
"""Names that may be mount points."""
_FOLDER_MODE, _FILE_MODE = stat.S_ISVTX | 0o555, stat.S_ISVTX | 0o444
"""File modes that mark a mount point made by this module; users' own folders and files do not have them."""
_MAX_TRIES = 3
"""Attempts to lock a mount point, which another process may remove in between."""


@contextmanager
def mount_points(workspace: Path, *, protects_git: bool = True) -> Iterator[None]:
    """Hold a `mount_point` for each of `MOUNTED` that a command must not create in this workspace."""
    with ExitStack() as stack:
        for name in MOUNTED if protects_git else (SETTINGS_FOLDER,):
            if name != BARE_HEAD or can_become_bare(workspace):
                stack.enter_context(mount_point(workspace / name))
        yield


@contextmanager
def mount_point(place: Path) -> Iterator[None]:
    """Hold an empty folder, or file for `BARE_HEAD`, for `sandboxed_command` to mount on if there is none here.

    bwrap would create one too, but one that looks like the user's own. This one is recognised by its mode and is locked
    while a process needs it. One that a killed process left is removed by the next user of the workspace.
    """
    tries = (_hold_mount_point(place) for _ in range(_MAX_TRIES))
    lock = next((descriptor for descriptor in tries if descriptor is not None), None)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)
        remove_mount_point(place)


def _hold_mount_point(place: Path) -> int | None:
    """Create and lock the mount point; return its descriptor, or None if what is there is not ours."""
    # It fails where something is there already, such as the mount point of another process.
    with suppress(OSError):
        if place.name == BARE_HEAD and not any(os.path.lexists(above / ".git") for above in place.parents[1:]):
            created = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.fchmod(created, _FILE_MODE)
            os.close(created)
        else:
            os.mkdir(place)
            os.chmod(place, _FOLDER_MODE)
    descriptor = _open_mount_point(place)
    if descriptor is None:
        return None
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        # Before the lock was there, another process may have removed the mount point.
        if os.path.samestat(os.fstat(descriptor), os.lstat(place)):
            return descriptor
    os.close(descriptor)
    return None


def remove_mount_point(place: Path) -> None:
    """Remove what `mount_point` made if no process needs it; leave anything else."""
    descriptor = _open_mount_point(place)
    if descriptor is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (os.rmdir if stat.S_ISDIR(os.fstat(descriptor).st_mode) else os.unlink)(place)
    except OSError:
        pass  # Another process holds it, or it is not empty.
    finally:
        os.close(descriptor)


def _open_mount_point(place: Path) -> int | None:
    """Open a mount point; None if there is none."""
    if is_mount_point(place):
        with suppress(OSError):
            return os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    return None


def can_become_bare(folder: Path) -> bool:
    """Return True if `folder` has no ``.git`` of its own."""
    return is_mount_point(folder / ".git") or not os.path.lexists(folder / ".git")


def is_mount_point(place: Path, *, dir_fd: int | None = None) -> bool:
    """Return True if `place` was made by `mount_point`. `dir_fd` is the open folder that it is relative to."""
    try:
        status = os.stat(place, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    if status.st_mode == stat.S_IFREG | _FILE_MODE:
        return place.name == BARE_HEAD and not status.st_size
    return status.st_mode == stat.S_IFDIR | _FOLDER_MODE

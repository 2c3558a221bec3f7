"""The identity of a folder, by which a rule made in it does not answer in another one that takes its place.

A path is not enough: the folder may be moved away and another one put there, by ``git clone``, a mount or a symlink. An
inode is not enough either, because file systems give the number of a deleted folder to the next one. So the identity is
the resolved path, the inode, and the time at which the folder was created. The device is left out: its number may
differ after a restart. A folder whose content was replaced, and which is itself still the same, is not recognised.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from pathlib import Path

# Of statx(2): the folder that means the current one, the bit of stx_mask for the time of creation, and struct statx,
# which is the same on all architectures: its size, stx_mask at its beginning, and stx_btime, so many bytes after that.
_AT_FDCWD = -100
_STATX_BTIME = 0x800
_STATX_SIZE = 256
_MASK_FIELD = struct.Struct("=I")
_TIME_FIELD = struct.Struct("=qI")
_TIME_OFFSET = 80


def folder_identity(folder: Path) -> str:
    """Return the identity of `folder`; empty if it cannot be told from a folder that replaces it."""
    try:
        resolved = os.path.realpath(folder, strict=True)
        status = os.stat(resolved)
        created_ns = _creation_time_ns(resolved, status) if stat.S_ISDIR(status.st_mode) else 0
    except OSError:
        return ""
    return f"{status.st_ino}:{created_ns}:{resolved}" if created_ns else ""


def inode_of(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file or folder; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def path_of(identity: str) -> str:
    """Return the path in what `folder_identity` returned."""
    *_, path = identity.split(":", 2)
    return path


def _creation_time_ns(path: str, status: os.stat_result) -> int:
    """Return when a file was created, in nanoseconds since the epoch; 0 if the file system does not tell."""
    if sys.platform != "linux":
        return int(getattr(status, "st_birthtime", 0) * 1_000_000_000)
    import ctypes

    try:
        # Python itself does not offer it before 3.15.
        statx = ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return 0
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer) != 0:
        return 0
    (mask,) = _MASK_FIELD.unpack_from(buffer, 0)
    seconds, nanoseconds = _TIME_FIELD.unpack_from(buffer, _TIME_OFFSET)
    return int(seconds) * 1_000_000_000 + int(nanoseconds) if mask & _STATX_BTIME else 0

"""Identity of a folder, so that a rule made in it does not answer in another one that takes its place.

A path is not enough: the folder may be moved away and another one put there, by ``git clone``, a mount or a symlink.
An inode is not enough either, because file systems give the number of a deleted folder to the next one. So the identity
is the resolved path, the inode, and the time at which the folder was created. The device is left out: its number may
differ after a restart.

Not recognised is a folder whose content was replaced and which is itself still the same.
"""

from __future__ import annotations

import os
import struct
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_AT_FDCWD = -100
_STATX_BTIME = 0x800
_STATX_SIZE = 256
_MASK = struct.Struct("=I")
_BTIME = struct.Struct("=qI")
_BTIME_AT = 80
"""Offsets in struct statx, see statx(2). It is the same on all architectures."""


def folder_identity(folder: Path) -> str:
    """Return the identity of `folder`; empty if it cannot be told from a folder that replaces it."""
    try:
        resolved = os.path.realpath(folder, strict=True)
        found = os.stat(resolved)
        born = _born(resolved, found)
    except OSError:
        return ""
    return f"{found.st_ino}:{born}:{resolved}" if born else ""


def path_of(identity: str) -> str:
    """Return the path in what `folder_identity` returned."""
    return identity.split(":", 2)[-1]


def _born(path: str, found: os.stat_result) -> int:
    """Return when a file was created, in nanoseconds since the epoch; 0 if the file system does not tell."""
    if sys.platform != "linux":
        return int(getattr(found, "st_birthtime", 0) * 1_000_000_000)
    import ctypes

    statx = _statx()
    if statx is None:
        return 0
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer) != 0:
        return 0
    (mask,) = _MASK.unpack_from(buffer, 0)
    seconds, nanoseconds = _BTIME.unpack_from(buffer, _BTIME_AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds) if mask & _STATX_BTIME else 0


@cache
def _statx() -> Callable[..., int] | None:
    """Return statx(2) of the C library; None if it has none. Python itself does not offer it before 3.15."""
    import ctypes

    try:
        return ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return None

"""Quarantine: rename a store's file so that a sound one can take its place. A kill in between loses nothing.

The file keeps its name until the new one takes it. Its write-ahead log must be gone by then, because SQLite would read
it into the new file. A file that has two names and no log beside the first is a move that was not finished. The next
process that opens it moves the log back.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

_LOGS = ("-wal", "-journal")
_BESIDE = (*_LOGS, "-shm")


@contextmanager
def aside(path: Path, other: Path) -> Iterator[None]:
    """Keep the file and its log under the name `other` while another file is put at `path`.

    The caller holds the folder's lock, see `opening.locked`. If the block fails, the move is undone. Raises OSError.
    """
    try:
        os.link(path, other)
    except OSError:
        # This file system has no hard links. If the process is killed now, the file is found under the other name.
        os.rename(path, other)
    try:
        for suffix in _BESIDE:
            _move(path, other, suffix)
        yield
    except BaseException:
        _move_back(path, other)
        raise
    Path(f"{other}-shm").unlink(missing_ok=True)
    log = Path(f"{other}-wal")
    if log.exists() and not log.stat().st_size:
        log.unlink()


def put_back(path: Path) -> None:
    """Undo a move that a killed process left unfinished, so that the file at `path` has its log again.

    The caller holds the folder's lock, see `opening.locked`. Raises OSError.
    """
    for other in _other_names(path):
        _move_back(path, other)


def is_half_aside(path: Path) -> bool:
    """Return True if `put_back` has something to undo."""
    return bool(_other_names(path))


def free_name(path: Path, kind: str) -> Path:
    """Return ``chatops.db.bad-1``, or the first such name that is not taken."""
    names = (path.with_name(f"{path.name}.{kind}-{number}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def _other_names(path: Path) -> list[Path]:
    try:
        if path.stat().st_nlink < 2:
            return []
        return [
            one
            for one in path.parent.iterdir()
            if one.name.startswith(f"{path.name}.bad-") and one.samefile(path) and not one.is_symlink()
        ]
    except OSError:
        return []


def _move_back(path: Path, other: Path) -> None:
    if not path.exists():
        os.rename(other, path)
    elif not other.samefile(path):
        # The new file has the name already.
        return
    for suffix in _LOGS:
        beside = Path(f"{path}{suffix}")
        if Path(f"{other}{suffix}").exists() and beside.exists() and beside.stat().st_size:
            # Another program has opened the file since. What it wrote must not be lost.
            return
    for suffix in _BESIDE:
        _move(other, path, suffix)
    other.unlink(missing_ok=True)


def _move(path: Path, other: Path, suffix: str) -> None:
    beside = Path(f"{path}{suffix}")
    if beside.exists():
        beside.replace(f"{other}{suffix}")

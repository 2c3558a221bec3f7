"""Giving a store's file another name, so that a sound one can take its place; who is killed meanwhile loses nothing.

The file keeps its name until another one takes it, but its write-ahead log must be gone by then: it would be read into
the new file. A file that has two names and no log beside the first is one whose move was not finished: the next to open
it moves the log back.
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
    """Have the file and what lies beside it under the name `other`, while another file is given the name `path`.

    The folder is locked meanwhile, see `opening.locked`. If that fails it is as it was. Raises OSError.
    """
    try:
        os.link(path, other)
    except OSError:
        # No links on this file system: if this process is killed now, the file is to be found under the other name.
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
    """Finish what a process was killed in: if the file at `path` was being moved aside, it is where it was again.

    The folder is locked meanwhile, see `opening.locked`. Raises OSError.
    """
    for other in _other_names(path):
        _move_back(path, other)


def is_half_aside(path: Path) -> bool:
    """Whether `put_back` has something to do."""
    return bool(_other_names(path))


def free_name(path: Path, kind: str) -> Path:
    """``chatops.db.bad-1`` or the first number that is not taken."""
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
        # The other file has its name already.
        return
    for suffix in _LOGS:
        beside = Path(f"{path}{suffix}")
        if Path(f"{other}{suffix}").exists() and beside.exists() and beside.stat().st_size:
            # Some other program has opened the file since; what it wrote is not to be lost for this.
            return
    for suffix in _BESIDE:
        _move(other, path, suffix)
    other.unlink(missing_ok=True)


def _move(path: Path, other: Path, suffix: str) -> None:
    beside = Path(f"{path}{suffix}")
    if beside.exists():
        beside.replace(f"{other}{suffix}")

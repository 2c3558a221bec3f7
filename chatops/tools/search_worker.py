"""Search a folder for a regular expression: a separate script, so that a slow expression can be killed.

Runs as ``python -I -S search_worker.py JOB``. JOB is a JSON object:

- ``path``: entries for the import path, because a start without site packages is twice as fast
- ``root``: the workspace; ``below``: folder to search, relative to it; ``file``: name of a single file in it, or empty
- ``pattern``; ``literal``: the pattern is plain text
- ``protected``: absolute paths that are skipped
- ``matches``, ``bytes``: limits

Symlinks are never followed. Files that hold or may hold secrets are skipped, and files that git ignores. Prints
``path:line: text`` for each match, then one line that starts with a record separator and holds a JSON object about what
was left out.
"""

import json
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing it at run time would delay each search.
    from typing import Any

SEPARATOR = "\x1e"
_PIECE_BYTES = 65_536
"""Bytes of a line that are searched at a time."""
_MAX_SHOWN = 300
"""Maximum number of characters of a line that are printed, around the match."""
_SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".hypothesis"})


class _Budget:
    """Number of matches and bytes that are left for the search."""

    def __init__(self, *, matches: int, size: int) -> None:
        self.matches = matches
        self.size = size

    @property
    def is_left(self) -> bool:
        return self.matches > 0 and self.size > 0


def _walk_files(top: int, job: "dict[str, Any]", skipped: dict[str, int]) -> Iterator[tuple[str, int, str]]:
    """Yield the path of each file to search, the open folder it is in, and its name. Count the others in `skipped`."""
    # From the import path of the job.
    from chatops.domain.names import is_secret, may_hold_secrets
    from chatops.git.ignore import GitIgnore

    root, below = job["root"], os.path.normpath(job["below"])
    protected = set(job["protected"])
    ignored = GitIgnore(root, start=below)
    for folder, folders, names, descriptor in os.fwalk(".", follow_symlinks=False, dir_fd=top):
        here = os.path.normpath(os.path.join(below, folder))
        kept = []
        for name in sorted(folders):
            path = os.path.normpath(os.path.join(here, name))
            if is_secret((name.casefold(),)) or os.path.join(root, path) in protected:
                skipped["protected"] += 1
            elif ignored.ignores(f"{path}/"):
                skipped["ignored"] += 1
            elif name not in _SKIPPED_FOLDERS:
                kept.append(name)
        folders[:] = kept
        for name in sorted(names):
            path = os.path.normpath(os.path.join(here, name))
            parts = path.casefold().split("/")
            if is_secret(parts[-1:]) or os.path.join(root, path) in protected or may_hold_secrets(parts):
                skipped["protected"] += 1
            elif ignored.ignores(path):
                skipped["ignored"] += 1
            else:
                yield path, descriptor, name


def _open_file(folder: int, name: str, skipped: dict[str, int]) -> int | None:
    """Return a descriptor of a regular file with one name; None for anything else. Count several names in `skipped`."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        return None
    if info.st_nlink > 1:
        skipped["linked"] += 1
        os.close(descriptor)
        return None
    return descriptor


def _open_folder(job: "dict[str, Any]") -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(job["root"], flags)
    for part in job["below"].split("/"):
        if part not in ("", "."):
            descriptor = os.open(part, flags, dir_fd=descriptor)
    return descriptor


def _search_file(path: str, descriptor: int, pattern: "re.Pattern[str]", budget: _Budget) -> None:
    with os.fdopen(descriptor, "rb") as handle:
        number = 0
        at_start = True
        while budget.is_left and (piece := handle.readline(_PIECE_BYTES)):
            budget.size -= len(piece)
            if number == 0 and b"\0" in piece[:8192]:
                return
            number += at_start
            at_start = piece.endswith(b"\n")
            text = piece.decode("utf-8", "replace").rstrip("\r\n")
            if match := pattern.search(text):
                budget.matches -= 1
                first = max(0, match.start() - _MAX_SHOWN // 2) if len(text) > _MAX_SHOWN else 0
                print(f"{path}:{number}: {text[first : first + _MAX_SHOWN]}", flush=True)


def main() -> None:
    """Search as the job says."""
    warnings.simplefilter("ignore")
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    job = json.loads(sys.argv[1])
    sys.path += job["path"]
    pattern = re.compile(re.escape(job["pattern"]) if job["literal"] else job["pattern"])
    budget = _Budget(matches=job["matches"], size=job["bytes"])
    skipped = {"protected": 0, "linked": 0, "ignored": 0}
    single = job["file"]
    top = _open_folder(job)
    if single:
        descriptor = _open_file(top, single, skipped)
        if descriptor is not None:
            _search_file(os.path.normpath(os.path.join(job["below"], single)), descriptor, pattern, budget)
    else:
        for path, folder, name in _walk_files(top, job, skipped):
            if not budget.is_left:
                break
            descriptor = _open_file(folder, name, skipped)
            if descriptor is not None:
                _search_file(path, descriptor, pattern, budget)
    print(SEPARATOR + json.dumps({**skipped, "matches": budget.matches <= 0, "bytes": budget.size <= 0}), flush=True)


if __name__ == "__main__":
    main()

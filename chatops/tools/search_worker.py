"""Search a folder for a regular expression: a separate script, so that a slow expression can be killed.

Runs as ``python -I -S search_worker.py JOB`` with the standard library only. JOB is a JSON object:

- ``root``: the workspace; ``below``: folder to search, relative to it; ``file``: name of a single file in it, or empty
- ``pattern``; ``literal``: the pattern is plain text
- ``secret``: names that are skipped
- ``careful``: an expression for names that are skipped too, unless they are in ``harmless`` or lie in a folder named in
  ``packages``
- ``places``: pairs ``folder/name`` that are always skipped
- ``protected``: absolute paths that are skipped
- ``matches``, ``bytes``: limits

Symlinks are never followed. Prints ``path:line: text`` for each match, then one line that starts with a record
separator and holds a JSON object about what was left out.
"""

import json
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator

SEPARATOR = "\x1e"
_LINE = 65_536
_SHOWN = 300
_SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".hypothesis"})


def _files(top: int, job: dict[str, object], left: dict[str, int]) -> Iterator[tuple[str, int, str]]:
    secret = set(map(str, _list(job["secret"])))
    careful = _Careful(job)
    protected = set(map(str, _list(job["protected"])))
    root = str(job["root"])
    for folder, folders, names, descriptor in os.fwalk(".", follow_symlinks=False, dir_fd=top):
        here = os.path.normpath(os.path.join(str(job["below"]), folder))
        kept = []
        for name in sorted(folders):
            full = os.path.normpath(os.path.join(root, here, name))
            if name.casefold() in secret or full in protected:
                left["protected"] += 1
            elif name in _SKIPPED_FOLDERS:
                left["folders"] += 1
            else:
                kept.append(name)
        folders[:] = kept
        for name in sorted(names):
            full = os.path.normpath(os.path.join(root, here, name))
            if name.casefold() in secret or full in protected or careful(here, name):
                left["protected"] += 1
                continue
            yield os.path.normpath(os.path.join(here, name)), descriptor, name


class _Careful:
    """Recognises files that often hold secrets, as `chatops.policy.secrets` does."""

    def __init__(self, job: dict[str, object]) -> None:
        self.names = re.compile(str(job["careful"]))
        self.places, self.harmless, self.packages = (
            frozenset(map(str, _list(job[key]))) for key in ("places", "harmless", "packages")
        )

    def __call__(self, folder: str, name: str) -> bool:
        """Return True if the file must not be searched."""
        name, parts = name.casefold(), folder.casefold().split("/")
        if f"{parts[-1]}/{name}" in self.places:
            return True
        if name in self.harmless or not self.packages.isdisjoint(parts):
            return False
        return self.names.fullmatch(name) is not None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _opened(folder: int, name: str, left: dict[str, int]) -> int:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return -1
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        return -1
    if info.st_nlink > 1:
        left["linked"] += 1
        os.close(descriptor)
        return -1
    return descriptor


def _start(job: dict[str, object]) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(str(job["root"]), flags)
    for part in str(job["below"]).split("/"):
        if part not in ("", "."):
            descriptor = os.open(part, flags, dir_fd=descriptor)
    return descriptor


def _search_file(path: str, descriptor: int, pattern: "re.Pattern[str]", budget: list[int]) -> None:
    with os.fdopen(descriptor, "rb") as handle:
        number = 0
        at_start = True
        while budget[0] > 0 and budget[1] > 0 and (piece := handle.readline(_LINE)):
            budget[1] -= len(piece)
            if number == 0 and b"\0" in piece[:8192]:
                return
            number += at_start
            at_start = piece.endswith(b"\n")
            text = piece.decode("utf-8", "replace").rstrip("\r\n")
            found = pattern.search(text)
            if found:
                budget[0] -= 1
                first = max(0, found.start() - _SHOWN // 2) if len(text) > _SHOWN else 0
                print(f"{path}:{number}: {text[first : first + _SHOWN]}", flush=True)


def main() -> None:
    """Search as the job says."""
    warnings.simplefilter("ignore")
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    job = json.loads(sys.argv[1])
    pattern = re.compile(re.escape(job["pattern"]) if job["literal"] else job["pattern"])
    budget = [int(job["matches"]), int(job["bytes"])]
    left = {"protected": 0, "linked": 0, "folders": 0}
    single = str(job.get("file") or "")
    top = _start(job)
    if single:
        descriptor = _opened(top, single, {"linked": 0})
        if descriptor >= 0:
            _search_file(os.path.normpath(os.path.join(job["below"], single)), descriptor, pattern, budget)
    else:
        for path, folder, name in _files(top, job, left):
            if budget[0] <= 0 or budget[1] <= 0:
                break
            descriptor = _opened(folder, name, left)
            if descriptor >= 0:
                _search_file(path, descriptor, pattern, budget)
    print(SEPARATOR + json.dumps({**left, "matches": budget[0] <= 0, "bytes": budget[1] <= 0}), flush=True)


if __name__ == "__main__":
    main()

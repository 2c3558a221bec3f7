"""The workspace's files for @ completion: one bounded walk that leaves out hidden and ignored files."""

import fnmatch
import os
import time
from collections import deque
from pathlib import Path

MAX_FILES = 5_000
MAX_DEPTH = 12
MAX_SECONDS = 1.0
_NEVER = frozenset({"node_modules", "__pycache__", "venv", "env", "dist", "build", "target", "site-packages"})


def workspace_files(root: Path, *, seconds: float = MAX_SECONDS) -> tuple[str, ...]:
    """Return paths relative to `root`, nearest first: at most `MAX_FILES`, found in at most `seconds`.

    Links are not followed, unreadable folders are skipped, and names that cannot be shown on one line are left out.
    """
    ignored = _ignored(root)
    until = time.monotonic() + seconds
    found: list[str] = []
    waiting = deque([("", 0)])
    while waiting and len(found) < MAX_FILES and time.monotonic() < until:
        folder, depth = waiting.popleft()
        for name, is_folder in _entries(root / folder):
            path = f"{folder}{name}"
            if name.startswith(".") or not name.isprintable() or _matches(name, path, ignored):
                continue
            if not is_folder:
                found.append(path)
            elif depth < MAX_DEPTH and name not in _NEVER:
                waiting.append((f"{path}/", depth + 1))
    return tuple(found[:MAX_FILES])


def _entries(folder: Path) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if not entry.is_symlink()
            )
    except OSError:
        return []


def _ignored(root: Path) -> tuple[str, ...]:
    """Return the plain patterns of the top .gitignore. Negations are ignored: at worst, fewer files are offered."""
    try:
        text = (root / ".gitignore").read_text(encoding="utf-8", errors="replace")[:100_000]
    except OSError:
        return ()
    lines = (entry.strip() for entry in text.splitlines())
    return tuple(entry.strip("/") for entry in lines if entry and not entry.startswith(("#", "!")))


def _matches(name: str, path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(path if "/" in pattern else name, pattern) for pattern in patterns)

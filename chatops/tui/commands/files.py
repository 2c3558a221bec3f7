"""The workspace's files and folders for @ completion: one bounded walk that leaves out hidden and ignored files."""

import os
import time
from collections import deque
from pathlib import Path

from chatops.tools.gitignore import GitIgnore

MAX_FILES = 5_000
MAX_DEPTH = 12
MAX_SECONDS = 1.0
_NEVER = frozenset({"node_modules", "__pycache__", "venv", "env", "dist", "build", "target", "site-packages"})


def workspace_files(root: Path, *, seconds: float = MAX_SECONDS) -> tuple[str, ...]:
    """Return paths relative to `root`, nearest first: at most `MAX_FILES`, found in at most `seconds`.

    Those of folders end with a slash.

    Links are not followed, unreadable folders are skipped, and names that cannot be shown on one line are left out.
    """
    ignored = GitIgnore(root)
    until = time.monotonic() + seconds
    found: list[str] = []
    waiting = deque([("", 0)])
    while waiting and len(found) < MAX_FILES and time.monotonic() < until:
        folder, depth = waiting.popleft()
        for name, is_folder in _entries(root / folder):
            path = f"{folder}{name}"
            if name.startswith(".") or not name.isprintable() or ignored.ignores(f"{path}/" if is_folder else path):
                continue
            if not is_folder:
                found.append(path)
            elif name not in _NEVER:
                found.append(f"{path}/")
                if depth < MAX_DEPTH:
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

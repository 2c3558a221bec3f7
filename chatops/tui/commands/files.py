"""The workspace's files and folders for @ completion: a bounded walk that leaves out hidden and ignored files."""

import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from chatops.git.ignore import GitIgnore

MAX_FILES = 5_000
MAX_DEPTH = 12
MAX_SECONDS = 1.0
_NEVER = frozenset({"node_modules", "__pycache__", "venv", "env", "dist", "build", "target", "site-packages"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceFiles:
    """Paths relative to the workspace, nearest first. Those of folders end with a slash."""

    paths: tuple[str, ...] = ()
    complete: bool = True
    """False if a limit was reached, so that there may be more."""


def workspace_files(root: Path, *, below: str = "", seconds: float = MAX_SECONDS) -> WorkspaceFiles:
    """Return the paths `below` a folder of `root`: at most `MAX_FILES`, found in at most `seconds`.

    Links are not followed, unreadable folders are skipped, and names that cannot be shown on one line are left out.
    """
    if below and not (root / below).resolve().is_relative_to(root.resolve()):
        return WorkspaceFiles()
    ignored = GitIgnore(root, start=below)
    until = time.monotonic() + seconds
    found: list[str] = []
    waiting = deque([(below, 0)])
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
    return WorkspaceFiles(paths=tuple(found[:MAX_FILES]), complete=not waiting and len(found) <= MAX_FILES)


def _entries(folder: Path) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if not entry.is_symlink()
            )
    except OSError:
        return []

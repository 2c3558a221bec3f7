"""What commands must not reach below a folder: ways out of a sandbox, and files that may hold secrets.

A read-only bind is no wall for a socket, a pipe or a device: whoever opens one talks to what is at its other end. So
folders are listed before each command. Links are never followed.
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chatops.policy.secrets import PACKAGE_FOLDERS, is_secret, may_hold_secrets
from chatops.tools.confine import fold

MAX_ENTRIES = 1_000_000
"""More take several seconds before each command."""
_LINKED_FOLDERS = PACKAGE_FOLDERS | {".git", ".venv", "venv"}
"""Where hard links are usual: package managers link to their cache, and a local clone to its origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found."""

    special: tuple[Path, ...] = ()
    """Sockets, pipes and devices."""
    closed: tuple[Path, ...] = ()
    """Folders that cannot be listed."""
    secret: tuple[Path, ...] = ()
    """Files and folders that `file_read` refuses or asks about."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """One walk: what it looks for, and what it has found."""

    secrets: bool
    hard_links: bool
    skipped: frozenset[Path]
    special: list[Path] = field(default_factory=list)
    closed: list[Path] = field(default_factory=list)
    secret: list[Path] = field(default_factory=list)
    entries: int = 0
    links: dict[tuple[int, int], tuple[int, list[Path]]] = field(default_factory=dict)
    """By device and inode: how many names there are, and those that were found."""

    def folder(self, folder: Path, parts: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
        """Look at what one folder holds; give its folders."""
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self.entries += 1
                    path = folder / entry.name
                    if path in self.skipped or entry.is_symlink():
                        continue
                    below = (*parts, fold(entry.name)) if self.secrets else parts
                    if self.secrets and is_secret(below[-1:]):
                        self.secret.append(path)
                    elif entry.is_dir(follow_symlinks=False):
                        yield path, below
                    elif not entry.is_file(follow_symlinks=False):
                        self.special.append(path)
                    elif self.secrets and may_hold_secrets(below):
                        self.secret.append(path)
                    elif self.hard_links and _LINKED_FOLDERS.isdisjoint(parts):
                        info = entry.stat(follow_symlinks=False)
                        if info.st_nlink > 1:
                            names = self.links.setdefault((info.st_dev, info.st_ino), (info.st_nlink, []))[1]
                            names.append(path)
        except PermissionError:
            self.closed.append(folder)
        except (FileNotFoundError, NotADirectoryError):
            return


def survey(
    root: Path, *, secrets: bool = False, hard_links: bool = False, skipped: frozenset[Path] = frozenset()
) -> Survey:
    """List everything below `root` but what is `skipped`. Raises OSError for what cannot be looked at.

    `secrets`: name files that may hold secrets too; `hard_links`: among them files with a name outside `root`.
    """
    walk = _Walk(secrets=secrets, hard_links=hard_links, skipped=skipped)
    waiting: list[tuple[Path, tuple[str, ...]]] = [(root, ())]
    while waiting:
        waiting.extend(walk.folder(*waiting.pop()))
        if walk.entries > MAX_ENTRIES:
            raise OSError(errno.E2BIG, f"it holds more than {MAX_ENTRIES:,} files")
    outside = [path for number, names in walk.links.values() if len(names) < number for path in names]
    return Survey(
        special=tuple(walk.special), closed=tuple(walk.closed), secret=tuple(sorted((*walk.secret, *outside)))
    )

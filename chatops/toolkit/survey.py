"""List what commands must not reach below a folder: ways out of the sandbox, and files that may hold secrets.

A read-only bind does not stop a command from using a socket, pipe or device to talk to the process at the other end, so
folders are listed before each command. Links are never followed.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Flag, auto
from pathlib import Path

from chatops.domain.names import PACKAGE_FOLDERS, fold, is_secret, may_hold_secrets

MAX_ENTRIES = 1_000_000
"""Files and folders below a surveyed one. Listing more takes several seconds before each command."""
MAX_REPOSITORIES = 1_000
"""In the workspace. Each needs a mount of its own."""
_LINKED_FOLDERS = PACKAGE_FOLDERS | {".git", ".venv", "venv"}
"""Folders in which hard links are usual: package managers link to their cache, a local clone to its origin."""
_CREDENTIAL = re.compile(rb"://[^/\s]*@|extraheader|password|token|secret", re.IGNORECASE)
_MAX_CONFIG_BYTES = 200_000
"""Bytes of a repository's settings that are searched."""


class Find(Flag):
    """Further things to list, besides sockets, pipes, devices and folders that cannot be listed."""

    NOTHING = 0
    SECRETS = auto()
    """Files that may hold secrets, and files that have another name (a hard link) outside the listed folder."""
    LINKS = auto()
    """Symlinks: those that lead out of the workspace, or all of them together with `SECRETS`."""


@dataclass(slots=True, kw_only=True)
class FoundPaths:
    """The paths that `survey` found."""

    special: list[Path] = field(default_factory=list)
    """Sockets, pipes and devices."""
    closed: list[Path] = field(default_factory=list)
    """Folders that cannot be listed."""
    secret: list[Path] = field(default_factory=list)
    """Files and folders that `file_read` refuses or asks about."""
    repositories: list[Path] = field(default_factory=list)
    """Each ``.git``, file or folder, but no link."""


@dataclass(slots=True, kw_only=True)
class _Survey:
    """A survey under way: what it looks for, and what it has found."""

    find: Find
    hard_links: bool
    """True if files with a further name outside the surveyed folder count as secret."""
    top: Path
    """The folder from which paths are judged, and out of which links may not lead."""
    skipped: frozenset[Path]
    found: FoundPaths = field(default_factory=FoundPaths)
    entries: int = 0
    linked: dict[tuple[int, int], tuple[int, list[Path]]] = field(default_factory=dict)
    """Files with several names, by device and inode: how many names they have, and those that were found."""

    def examine(self, folder: Path, parts: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
        """Examine the entries of one folder and yield its subfolders, each with its `parts`.

        `parts` are those of the folder's path, as `domain.names` judges them. They stay as they are without SECRETS.
        """
        secrets = Find.SECRETS in self.find
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self.entries += 1
                    path = folder / entry.name
                    if path in self.skipped:
                        continue
                    if entry.is_symlink():
                        leads_out = not Path(os.path.realpath(path)).is_relative_to(self.top)
                        if Find.LINKS in self.find and (secrets or leads_out):
                            self.found.secret.append(path)
                        continue
                    if entry.name == ".git":
                        self.found.repositories.append(path)
                    below = (*parts, fold(entry.name)) if secrets else parts
                    if secrets and is_secret(below[-1:]):
                        self.found.secret.append(path)
                    elif entry.is_dir(follow_symlinks=False):
                        yield path, below
                    elif not entry.is_file(follow_symlinks=False):
                        self.found.special.append(path)
                    elif secrets:
                        self._examine_file(entry, path, below)
        except PermissionError:
            self.found.closed.append(folder)
        except (FileNotFoundError, NotADirectoryError):
            return

    def _examine_file(self, entry: "os.DirEntry[str]", path: Path, parts: tuple[str, ...]) -> None:
        if may_hold_secrets(parts):
            if parts[-2:] != (".git", "config") or holds_credentials(path):
                self.found.secret.append(path)
        elif self.hard_links and _LINKED_FOLDERS.isdisjoint(parts):
            info = entry.stat(follow_symlinks=False)
            if info.st_nlink > 1:
                _, found = self.linked.setdefault((info.st_dev, info.st_ino), (info.st_nlink, []))
                found.append(path)


def survey(
    root: Path, *, workspace: Path, find: Find = Find.NOTHING, skipped: frozenset[Path] = frozenset()
) -> FoundPaths:
    """List everything below `root` except `skipped`. Secrets are judged by their path in the workspace.

    `root` may lie outside of the workspace. Then its path starts at `root`, and hard links do not matter: its owner
    chose to show the folder.

    Raises OSError if a folder cannot be examined or holds more than `MAX_ENTRIES` entries, or more than
    `MAX_REPOSITORIES` if it is in the workspace.
    """
    inside = root.is_relative_to(workspace)
    work = _Survey(find=find, hard_links=inside, top=workspace if inside else root, skipped=skipped)
    found = work.found
    parts = tuple(fold(part) for part in root.relative_to(work.top).parts)
    to_examine: list[tuple[Path, tuple[str, ...]]] = [(root, parts)]
    while to_examine:
        to_examine.extend(work.examine(*to_examine.pop()))
        if work.entries > MAX_ENTRIES:
            raise OSError(errno.E2BIG, f"it holds more than {MAX_ENTRIES:,} files")
        if inside and len(found.repositories) > MAX_REPOSITORIES:
            raise OSError(errno.E2BIG, f"it holds more than {MAX_REPOSITORIES:,} repositories; use a smaller folder")
    # A file all of whose names were found has none outside.
    found.secret += [path for count, names in work.linked.values() if len(names) < count for path in names]
    found.secret.sort()
    found.repositories.sort()
    return found


def sensitive(path: Path, *, workspace: Path) -> bool:
    """Return True if `file_read` refuses the file at `path` by its name, or asks about it. Raises OSError."""
    parts = tuple(fold(part) for part in path.relative_to(workspace).parts)
    if is_secret(parts) or may_hold_secrets(parts):
        return parts[-2:] != (".git", "config") or holds_credentials(path)
    info = os.lstat(path)
    return stat.S_ISREG(info.st_mode) and info.st_nlink > 1 and _LINKED_FOLDERS.isdisjoint(parts)


def holds_credentials(config: Path) -> bool:
    """Return True if a repository's settings contain a password; without one every command may read them."""
    try:
        with open(os.open(config, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return True
            return _CREDENTIAL.search(file.read(_MAX_CONFIG_BYTES)) is not None
    except OSError:
        return True

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

from chatops.domain.secrets import PACKAGE_FOLDERS, is_secret, may_hold_secrets
from chatops.policy.runs_later import fold

MAX_ENTRIES = 1_000_000
"""Listing more takes several seconds before each command."""
MAX_REPOSITORIES = 1_000
"""In the workspace. Each needs a mount of its own."""
_CREDENTIAL = re.compile(rb"://[^/\s]*@|extraheader|password|token|secret", re.IGNORECASE)
_MOST_READ = 200_000
_LINKED_FOLDERS = PACKAGE_FOLDERS | {".git", ".venv", "venv"}
"""Folders in which hard links are usual: package managers link to their cache, a local clone to its origin."""


class Find(Flag):
    """Further things to list, besides sockets, pipes, devices and folders that cannot be listed."""

    NOTHING = 0
    SECRETS = auto()
    """Files that may hold secrets, and files that have another name (a hard link) outside the listed folder."""
    LINKS = auto()
    """Symlinks: those that lead out of the workspace, or all of them together with `SECRETS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPaths:
    """Paths that were found."""

    special: tuple[Path, ...] = ()
    """Sockets, pipes and devices."""
    closed: tuple[Path, ...] = ()
    """Folders that cannot be listed."""
    secret: tuple[Path, ...] = ()
    """Files and folders that `file_read` refuses or asks about."""
    repositories: tuple[Path, ...] = ()
    """Each ``.git``, file or folder, but no link."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """State of one walk: what it looks for, and what it has found."""

    find: Find
    hard_links: bool
    workspace: Path
    skipped: frozenset[Path]
    special: list[Path] = field(default_factory=list)
    closed: list[Path] = field(default_factory=list)
    secret: list[Path] = field(default_factory=list)
    repositories: list[Path] = field(default_factory=list)
    entries: int = 0
    names: dict[tuple[int, int], tuple[int, list[Path]]] = field(default_factory=dict)
    """By device and inode: the number of links, and the paths that were found."""

    def folder(self, folder: Path, parts: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
        """Examine the entries of one folder and yield its subfolders."""
        secrets = Find.SECRETS in self.find
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self.entries += 1
                    path = folder / entry.name
                    if path in self.skipped:
                        continue
                    if entry.is_symlink():
                        if Find.LINKS in self.find and (secrets or self._leads_out(path)):
                            self.secret.append(path)
                        continue
                    if entry.name == ".git":
                        self.repositories.append(path)
                    below = (*parts, fold(entry.name)) if secrets else parts
                    if secrets and is_secret(below[-1:]):
                        self.secret.append(path)
                    elif entry.is_dir(follow_symlinks=False):
                        yield path, below
                    elif not entry.is_file(follow_symlinks=False):
                        self.special.append(path)
                    elif secrets:
                        self._file(entry, path, below)
        except PermissionError:
            self.closed.append(folder)
        except (FileNotFoundError, NotADirectoryError):
            return

    def _leads_out(self, path: Path) -> bool:
        return not Path(os.path.realpath(path)).is_relative_to(self.workspace)

    def _file(self, entry: "os.DirEntry[str]", path: Path, parts: tuple[str, ...]) -> None:
        if may_hold_secrets(parts):
            if parts[-2:] != (".git", "config") or holds_credentials(path):
                self.secret.append(path)
        elif self.hard_links and _LINKED_FOLDERS.isdisjoint(parts):
            info = entry.stat(follow_symlinks=False)
            if info.st_nlink > 1:
                self.names.setdefault((info.st_dev, info.st_ino), (info.st_nlink, []))[1].append(path)


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
    walk = _Walk(find=find, hard_links=inside, workspace=workspace if inside else root, skipped=skipped)
    parts = tuple(fold(part) for part in root.relative_to(walk.workspace).parts)
    waiting: list[tuple[Path, tuple[str, ...]]] = [(root, parts)]
    while waiting:
        waiting.extend(walk.folder(*waiting.pop()))
        if walk.entries > MAX_ENTRIES:
            raise OSError(errno.E2BIG, f"it holds more than {MAX_ENTRIES:,} files")
        if inside and len(walk.repositories) > MAX_REPOSITORIES:
            raise OSError(errno.E2BIG, f"it holds more than {MAX_REPOSITORIES:,} repositories; use a smaller folder")
    outside = [path for number, names in walk.names.values() if len(names) < number for path in names]
    return FoundPaths(
        special=tuple(walk.special),
        closed=tuple(walk.closed),
        secret=tuple(sorted((*walk.secret, *outside))),
        repositories=tuple(sorted(walk.repositories)),
    )


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
            return _CREDENTIAL.search(file.read(_MOST_READ)) is not None
    except OSError:
        return True

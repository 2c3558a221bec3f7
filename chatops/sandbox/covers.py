"""Cover what a sandboxed command must not reach in the folders that it sees: arguments of bubblewrap.

Protected paths and the usual credential files are covered wherever they are visible. Sockets, pipes and devices are
covered because a read-only bind does not keep a command from talking to the process at the other end. So user
folders are listed before each command (`survey`). Folders that cannot be listed are covered as well. System folders
are too large to list; sockets that listen there are taken from ``/proc/net/unix``. With `masked`, files that may
hold secrets are covered too, because a rule and not the user allowed the command.

No link is followed on the way to a mount point: bwrap would create the mount point at the link's target, which may
be outside of the sandbox.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import Mount
from chatops.sandbox.mount_points import BARE_HEAD, is_mount_point
from chatops.toolkit.confine import SETTINGS_FOLDER, home_folders
from chatops.toolkit.output import visible
from chatops.toolkit.survey import Find, survey

_MAX_COVERED = 1_000
"""Maximum number of covers. Each is a mount and takes time, and bwrap accepts at most 9,000 arguments."""


class SandboxSetupError(Exception):
    """The sandbox cannot be set up for a command; the text says why, as a clause."""


@frozen_dataclass
class View:
    """The workspace's place in the sandbox, and the folder of this machine that is mounted there."""

    workspace: Path
    source: Path

    def in_sandbox(self, path: Path) -> Path:
        """Return the place in the sandbox of a path of this machine."""
        return self.workspace / path.relative_to(self.source) if path.is_relative_to(self.source) else path


def mount_paths(view: View, mounts: tuple[Mount, ...]) -> list[str]:
    """Mount further paths. The place of one in the workspace has to exist in its source, and not behind a link."""
    args: list[str] = []
    for mount in mounts:
        target = Path(mount.target)
        if target.is_relative_to(view.workspace):
            parts = target.relative_to(view.workspace).parts
            mode = _mode_below(view.source, parts)
            if not mode or stat.S_ISLNK(mode):
                raise SandboxSetupError(f"there is no place for {visible(str(target))}, or a link on the way to it")
        args += ["--ro-bind", mount.source, mount.target]
    return args


def guard_settings(view: View, *, hidden: tuple[Path, ...], roots: tuple[Path, ...]) -> list[str]:
    """Keep settings from being written, and cover `hidden`, paths of this machine, below `roots` and the workspace."""
    source = view.source
    if (source / SETTINGS_FOLDER).is_symlink():
        raise SandboxSetupError(f"{SETTINGS_FOLDER} is a link, which a command could replace")
    args = mount_protected(source / SETTINGS_FOLDER, target=view.in_sandbox(source / SETTINGS_FOLDER))
    # Nothing can be mounted below what is covered already.
    uncovered = (path for path in hidden if frozenset(hidden).isdisjoint(path.parents))
    for path in uncovered:
        inside = path.is_relative_to(view.workspace)
        place = source / path.relative_to(view.workspace) if inside else path
        root = next((root for root in (source, *roots) if place != source and place.is_relative_to(root)), None)
        args += [] if root is None else _cover(place, root=root, view=view)
    return args


def cover_homes(workspace: Path) -> list[str]:
    """Cover each home folder with an empty one, unless the workspace is that folder or contains it."""
    args: list[str] = []
    for home in home_folders():
        if home != Path("/") and not home.is_relative_to(workspace):
            args += ["--tmpfs", str(home)]
    return args


def is_special(path: str) -> bool:
    """Return True for a socket, pipe or device."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISDIR(mode) and not stat.S_ISREG(mode)


def cover_special_files(
    view: View, *, hidden: tuple[Path, ...], listed: tuple[Path, ...], system: tuple[Path, ...], masked: bool
) -> tuple[list[str], list[str]]:
    """Cover sockets, pipes and devices, and with `masked` files that may hold secrets.

    Return the arguments that keep the repositories below the workspace read-only, and those of the covers. The first
    make the folders on the way writable, so they come before any other mount there. `listed` are folders that are
    searched, `system` those that are too large for that.
    """
    inside = (path.relative_to(view.workspace) for path in hidden if path.is_relative_to(view.workspace))
    skipped = frozenset((*hidden, *(view.source / path for path in inside)))
    find = Find.SECRETS if masked else Find.NOTHING
    args: list[str] = []
    repositories: list[str] = []
    for root in (view.source, *(root for root in listed if not root.is_relative_to(view.workspace))):
        try:
            found = survey(root, workspace=view.source, find=find, skipped=skipped)
            secret = found.secret if root == view.source else _join_covered(found.secret, listed=listed)
        except OSError as error:
            why = f"{visible(str(root))} cannot be searched for sockets and pipes: {error.strerror}"
            raise SandboxSetupError(why) from error
        if root == view.source:
            repositories = _mount_repositories(view, found.repositories)
        for path in (*found.special, *secret, *(folder for folder in found.closed if folder != root)):
            args += _cover(path, root=root, view=view)
    for path in for_root_only(Path("/etc")):
        permitted = any(path.is_relative_to(folder) for folder in (view.workspace, *listed))
        args += [] if permitted else _cover(path, root=Path("/etc"), view=view)
    for path in _listening_sockets(system):
        args += _cover(path, root=Path("/"), view=view)
    # A cover is one of these two, see `_cover`.
    if args.count("/dev/null") + args.count("--tmpfs") > _MAX_COVERED:
        kinds = "sockets, pipes, devices and files that may hold secrets" if masked else "sockets, pipes and devices"
        raise SandboxSetupError(f"there are more than {_MAX_COVERED:,} {kinds} in what it shows")
    return repositories, args


def for_root_only(folder: Path) -> tuple[Path, ...]:
    """Return the paths below a folder of the system that only root can read; nothing unless this user is root.

    A command is confined with root's name and without its rights, so it could still read all that belongs to root.
    """
    closed: list[str] = []
    to_search = [str(folder)] if os.geteuid() == 0 else []
    while to_search:
        try:
            with os.scandir(to_search.pop()) as entries:
                for entry in entries:
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISDIR(mode) and mode & stat.S_IXOTH:
                        to_search.append(entry.path)
                    elif stat.S_ISDIR(mode) or not (mode & stat.S_IROTH or stat.S_ISLNK(mode)):
                        closed.append(entry.path)
        except OSError:
            continue  # A command cannot list it either.
    return tuple(map(Path, closed))


def readable_parts(folder: Path) -> list[str]:
    """Return `folder`, or for root the largest parts of it that hold nothing `for_root_only`. Links are left out."""
    closed = set(map(str, for_root_only(folder)))
    above_closed = {str(parent) for path in closed for parent in Path(path).parents}
    readable, to_search = [], [str(folder)]
    while to_search:
        place = to_search.pop()
        if place not in above_closed:
            readable.append(place)
            continue
        with os.scandir(place) as entries:
            to_search += [entry.path for entry in entries if not entry.is_symlink() and entry.path not in closed]
    return readable


def _join_covered(secret: Sequence[Path], *, listed: tuple[Path, ...]) -> Sequence[Path]:
    """Replace the files of each folder that holds nothing else by the folder, unless it is one of `listed`.

    A mount takes the longer, the more there are: 500 take two seconds. A listed folder may lie below another one, and
    nothing can be mounted in a covered folder.
    """
    by_folder: dict[Path, list[Path]] = {}
    for path in secret:
        by_folder.setdefault(path.parent, []).append(path)
    covered: list[Path] = []
    for folder, paths in by_folder.items():
        holds_nothing_else = len(paths) > 1 and set(os.listdir(folder)) == {path.name for path in paths}
        covered += [folder] if holds_nothing_else and folder not in listed else paths
    return covered


def _mount_repositories(view: View, repositories: Sequence[Path]) -> list[str]:
    """Keep each ``.git`` below the top of the workspace as it is.

    Git at the top follows that of a submodule, and runs programs that its settings name. The folders on the way are
    mounted too, as a mount cannot be renamed: a command could put another folder in the place of one.
    """
    store = view.source / ".git"
    inner = [path for path in repositories if not path.is_relative_to(store)]
    parents = {parent for path in inner for parent in path.parents if parent.is_relative_to(view.source)}
    if len(inner) + len(parents) > _MAX_COVERED:
        raise SandboxSetupError(f"there are more than {_MAX_COVERED:,} repositories in what it shows")
    args = []
    for path in sorted((*inner, *(parents - {view.source}))):
        args += ["--ro-bind" if path.name == ".git" else "--bind", str(path), str(view.in_sandbox(path))]
    return args


def _cover(path: Path, *, root: Path, view: View) -> list[str]:
    """Cover `path`, which lies below `root`, with something empty; do nothing if it does not exist.

    Raises SandboxSetupError for a link at it or on the way to it, which a command may have made; see the module.
    """
    mode = _mode_below(root, path.relative_to(root).parts)
    if stat.S_ISLNK(mode):
        raise SandboxSetupError(f"{visible(str(path))} was replaced by a link, or a folder on the way to it")
    if stat.S_ISDIR(mode):
        return _mount_empty(view.in_sandbox(path))
    return ["--ro-bind", "/dev/null", str(view.in_sandbox(path))] if mode else []


def _mount_empty(place: Path) -> list[str]:
    return ["--tmpfs", str(place), "--remount-ro", str(place)]


def _mode_below(root: Path, parts: tuple[str, ...]) -> int:
    """Return the mode of the last of `parts`, or of the first link on the way; 0 if something is missing."""
    try:
        descriptor = os.open(root, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        for number, part in enumerate(parts, 1):
            try:
                mode = os.lstat(part, dir_fd=descriptor).st_mode
                if number == len(parts) or stat.S_ISLNK(mode):
                    return mode
                if not stat.S_ISDIR(mode):
                    return 0
                below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            except (FileNotFoundError, PermissionError):
                return 0
            os.close(descriptor)
            descriptor = below
        return os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)


def _listening_sockets(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the listening sockets below `folders`, which have too many files to list before each command."""
    try:
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ()
    fields = (line.split(None, 7) for line in lines[1:])
    # A line has eight fields if its socket has a path, which is the last one.
    paths = {Path(os.path.realpath(field[7])) for field in fields if len(field) == 8 and field[7].startswith("/")}
    return tuple(sorted(path for path in paths if any(path.is_relative_to(folder) for folder in folders)))


def mount_protected(place: Path, *, target: Path) -> list[str]:
    """Mount a folder or file read-only at `target`; without one mount an empty one, so that none can be made."""
    is_ours = is_mount_point(place)
    if not is_ours and place.exists() and not place.is_symlink():
        return ["--ro-bind", str(place), str(target)]
    if not is_ours and (os.path.lexists(place) or not os.access(place.parent, os.W_OK)):
        return []
    # `mount_point` makes it before the command starts, as a file or folder.
    return ["--ro-bind", str(place), str(target)] if place.name == BARE_HEAD else _mount_empty(target)

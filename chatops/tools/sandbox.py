"""The sandbox for commands: choose a level, and build the bubblewrap (bwrap) command line for it.

Theory of operation

Levels. `level_for` turns the settings into a `SandboxLevel` before the user sees a call:

- ``off``: no sandbox.
- ``auto``: bwrap where it works; otherwise no sandbox, and `SandboxLevel.description` says why.
- ``require``: bwrap where it works; otherwise commands are refused.

An installed bwrap may not work, so `probe` runs it once per process instead of only looking for the program. There is
no sandbox if the workspace is ``/``. `SandboxLevel.description` is a part of what the user approves:
`execution.run_confined` runs nothing if it has changed since. A sandbox that cannot be set up for one command
(`SandboxSetupError`, or bwrap ends before the command starts) is an error and never a fallback to an unsandboxed run;
see `execution` for how the user may allow one.

Mounts. bwrap applies its arguments in order, and a later mount covers an earlier one:

- new namespaces of every kind, no capabilities, no nested user namespaces; the network is shared only by setting
- system programs read-only; fresh ``/dev``, ``/proc``, ``/tmp``, ``/run`` and ``/var/tmp``
- an empty folder over each home folder, unless it is the workspace or lies in it
- the paths of the setting ``read``, and with network the folders of the name service, read-only
- the workspace, writable; read-only for a rule with ``"workspace": "read"`` (`Exposure.READ_ONLY`)
- ``.git`` read-only (setting ``git_protect``), ``.chatops`` read-only
- empty covers over what a command must not reach

Covers. Protected paths and the usual credential files are covered wherever they are visible. Sockets, pipes and devices
are covered because a read-only bind does not keep a command from talking to the process at the other end. The visible
user folders are therefore listed before each command (`survey`). Folders that cannot be listed are covered as well.
System folders are too large to list; sockets that listen there are taken from ``/proc/net/unix``. With `masked`, files
that may hold secrets are covered too, because a rule and not the user allowed the command. No link is followed on the
way to a mount point, because bwrap would create the mount point at the link's target, which may be outside of the
sandbox.

The settings folder. Where the workspace has no ``.chatops``, an empty one is mounted, so that a command cannot create
it. That needs a mount point in the workspace. `mount_point` makes one that is recognised by its mode (01555), and holds
a shared lock (flock) on it while a command runs. `remove_mount_point` removes it only with an exclusive lock, so the
last process does, or the next one after a kill.

Start and end. `_WATCH`, a shell script, runs the command inside. It sends ``ready``, waits for ``go``, and reports how
many processes are left. So no command starts after its app has died; see `process.Command`.
"""

import fcntl
import logging
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

from chatops.tools.confine import SETTINGS_FOLDER, home_folders, home_secrets
from chatops.tools.output import visible
from chatops.tools.process import Command
from chatops.tools.supervisor import MAX_FILE
from chatops.tools.survey import Find, survey

log = logging.getLogger(__name__)

_SYSTEM = ("/usr", "/etc", "/opt")
_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_NAME_SERVICE = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")
_TRIED_IN = ("/usr/bin", "/usr/local/bin", "/bin")
_PROBE_S = 5.0
_MOST_COVERED = 1_000
"""Each cover is a mount and takes time, and bwrap accepts at most 9,000 arguments."""
_MOUNT_POINT = stat.S_ISVTX | 0o555
"""Mode by which a mount point of this module is recognised: users do not give it to their own folders."""
_TRIES = 3
_WATCH = (
    # A lower limit that is already in force stays: trying to raise it would end this shell.
    f"ulimit -c 0; (ulimit -f {MAX_FILE // 512}) 2>/dev/null && ulimit -f {MAX_FILE // 512}; exec 9<&0 0</dev/null; "
    "echo ready >&9; read -r s <&9 || exit 1; "
    '"$@" 9>&-; s=$?; n=0; '
    "while set -- /proc/[0-9]*; [ $# -gt 2 ] && [ $n -lt 3 ]; do sleep 0.05; n=$((n+1)); done; "
    "echo $(($#-2)) >&9; exit $s"
)
"""Script that runs the command as a child after ``go`` and reports how many processes it leaves.

Only init and this shell are not counted. Processes that end right after the command (a pipe's last reader) get up to
0.15 s to do so. The script uses its standard input for reports, see `Command`, because a POSIX shell cannot name
descriptors above 9.
"""


class SandboxSetupError(Exception):
    """The sandbox cannot be set up for a command; the text says why, as a clause."""


class SandboxMode(StrEnum):
    """Sandbox setting."""

    AUTO = "auto"
    """Use the sandbox if it works; say so if it does not."""
    OFF = "off"
    REQUIRE = "require"
    """Refuse commands if the sandbox does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """Settings for commands.

    `read`: further absolute paths that they may read. `network`: whether they have any.
    """

    sandbox: SandboxMode = SandboxMode.AUTO
    network: bool = False
    read: tuple[str, ...] = ()
    git_protect: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLevel:
    """Confinement of a command. `program` is the path of bwrap, empty if the command runs unsandboxed."""

    program: str = ""
    description: str = ""
    network: bool = True
    refusal: str = ""
    path: tuple[str, ...] = field(default=())
    """Folders in which commands are looked up; empty: PATH of the environment."""
    needs_user: str = ""
    """See `CallFacts.needs_user`."""


def level_for(settings: ShellSettings, *, workspace: Path) -> SandboxLevel:
    """Return the level that commands would run at, with the reason if there is no sandbox.

    May run the probe: call it in a thread.
    """
    if settings.sandbox is SandboxMode.OFF:
        return SandboxLevel(description="off (switched off in the settings)")
    reason = "the workspace is the whole file system" if workspace == Path("/") else ""
    program, fault = ("", reason) if reason else probe()
    if fault:
        required = settings.sandbox is SandboxMode.REQUIRE
        refusal = f"The settings require a sandbox, and it does not work: {fault}." if required else ""
        return SandboxLevel(description=f"off ({fault})", refusal=refusal)
    # A symlink's target cannot be protected by a mount over the link: a command that can write the workspace could
    # replace the link.
    guarded = settings.git_protect and not (workspace / ".git").is_symlink()
    git = "its .git read-only" if guarded else "its .git too"
    network = "network" if settings.network else "no network"
    reads = f", may read {', '.join(settings.read)}" if settings.read else ""
    description = f"bubblewrap: workspace writable, {git}, no home, {network}{reads}"
    return SandboxLevel(program=program, description=description, network=settings.network, path=_search_path(settings))


@cache
def probe() -> tuple[str, str]:
    """Return the bwrap program that works here, and otherwise the reason. Runs it once per process."""
    program = shutil.which("bwrap", path=os.pathsep.join(_TRIED_IN))
    if program is None:
        return "", "bubblewrap is not installed"
    argv = [program, *_isolation(network=False), *_system(), "--", "/usr/bin/true"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False, env={}, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"bubblewrap does not start: {type(error).__name__}"
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        log.warning("bwrap probe failed: %s", lines)
        return "", f"bubblewrap does not work here: {lines[-1][:120] if lines else 'no reason given'}"
    return program, ""


def sandboxed_command(
    argv: tuple[str, ...],
    *,
    level: SandboxLevel,
    settings: ShellSettings,
    workspace: Path,
    protected: tuple[Path, ...],
    cwd: Path,
    environment: Mapping[str, str],
    call: str,
    read_only: bool = False,
    masked: bool = False,
) -> Command:
    """Return a command that runs `argv` in the sandbox of `level`.

    `call` as in `Command`. `read_only`: the workspace cannot be written. `masked`: files that may hold secrets are
    hidden.

    Lists all visible user folders: call it in a thread.

    Raises SandboxSetupError.
    """
    read = tuple(path for path in settings.read if not _is_special(path))
    names = _NAME_SERVICE if settings.network else ()
    rest = ["--chdir", str(cwd), "--clearenv"]
    for name, value in environment.items():
        rest += ["--setenv", name, value]
    outer = (
        level.program,
        *_isolation(network=settings.network),
        *_system(),
        *_homes(workspace),
        *(part for path in read for part in ("--ro-bind-try", path, path)),
        *(part for path in names for part in ("--ro-bind-try", path, path)),
        "--ro-bind" if read_only else "--bind",
        str(workspace),
        str(workspace),
        *_guarded(workspace, git=settings.git_protect, protected=protected, read=read),
        *_covered(workspace, protected=protected, read=(*read, *names), masked=masked),
        *rest,
        "--",
        "/bin/sh",
        "-c",
    )
    return Command(
        argv=(*outer, _WATCH, "sh", *argv),
        cwd=cwd,
        environment=environment,
        call=call,
        contained=True,
        reports=True,
    )


def program_is_visible(path: str, *, settings: ShellSettings, workspace: Path) -> bool:
    """Return True if a program is visible in the sandbox, both at `path` and at the end of its links."""
    places = (Path(path), Path(os.path.realpath(path)))
    return all(is_visible(place, settings=settings, workspace=workspace) for place in places)


def is_visible(place: Path, *, settings: ShellSettings, workspace: Path) -> bool:
    """Return True if `place` itself lies in what the sandbox shows."""
    return any(place.is_relative_to(root) for root in (*_SYSTEM, *_LINKS, *settings.read, str(workspace)))


def _isolation(*, network: bool) -> list[str]:
    flags = ["--die-with-parent", "--new-session", "--unshare-all", "--unshare-user", "--disable-userns"]
    flags += ["--cap-drop", "ALL", "--hostname", "sandbox"]
    return [*flags, "--share-net"] if network else flags


def _system() -> list[str]:
    args: list[str] = []
    for path in _SYSTEM:
        args += ["--ro-bind-try", path, path]
    for path in _LINKS:
        if os.path.islink(path):
            args += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            args += ["--ro-bind", path, path]
    return [*args, "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp"]


def _homes(workspace: Path) -> list[str]:
    """Cover each home folder with an empty one, unless the workspace is that folder or contains it."""
    args: list[str] = []
    for home in home_folders():
        if home != Path("/") and not home.is_relative_to(workspace):
            args += ["--tmpfs", str(home)]
    return args


def _guarded(workspace: Path, *, git: bool, protected: tuple[Path, ...], read: tuple[str, ...]) -> list[str]:
    """Make ``.git`` read-only and cover protected paths in what the sandbox shows of the disk."""
    roots = (workspace, *(Path(path) for path in (*read, *_SYSTEM, *_LINKS)))
    args: list[str] = []
    store = workspace / ".git"
    if git and store.exists() and not store.is_symlink():
        args += ["--ro-bind", str(store), str(store)]
    args += _settings(workspace / SETTINGS_FOLDER)
    for path in (*protected, *home_secrets()):
        root = next((root for root in roots if path != workspace and path.is_relative_to(root)), None)
        args += [] if root is None else _cover(path, root=root)
    return args


def _covered(workspace: Path, *, protected: tuple[Path, ...], read: tuple[str, ...], masked: bool) -> list[str]:
    """Cover sockets, pipes and devices, and with `masked` files that may hold secrets.

    A read-only bind does not keep a command from talking through a socket, pipe or device.
    """
    skipped = frozenset((*protected, *home_secrets()))
    find = Find.SECRETS if masked else Find.NOTHING
    args: list[str] = []
    for root in (workspace, *(Path(path) for path in read if not Path(path).is_relative_to(workspace))):
        try:
            found = survey(root, workspace=workspace, find=find, skipped=skipped)
        except OSError as error:
            why = f"{visible(str(root))} cannot be searched for sockets and pipes: {error.strerror}"
            raise SandboxSetupError(why) from error
        for path in (*found.special, *found.secret, *(folder for folder in found.closed if folder != root)):
            args += _cover(path, root=root)
    for path in _listening(_SYSTEM):
        args += _cover(path, root=Path("/"))
    if args.count("/dev/null") + args.count("--tmpfs") > _MOST_COVERED:
        kinds = "sockets, pipes, devices and files that may hold secrets" if masked else "sockets, pipes and devices"
        raise SandboxSetupError(f"there are more than {_MOST_COVERED:,} {kinds} in what it shows")
    return args


def _cover(path: Path, *, root: Path) -> list[str]:
    """Cover `path`, which lies below `root`, with something empty; do nothing if it does not exist.

    No link is followed on the way: if a command had replaced a folder with one, bwrap would create the mount point at
    its target, possibly outside of the sandbox.

    Raises SandboxSetupError for a link.
    """
    mode = _mode_below(root, path.relative_to(root).parts)
    if stat.S_ISLNK(mode):
        raise SandboxSetupError(f"{visible(str(path))} was replaced by a link, or a folder on the way to it")
    if stat.S_ISDIR(mode):
        return ["--tmpfs", str(path), "--remount-ro", str(path)]
    return ["--ro-bind", "/dev/null", str(path)] if mode else []


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
                if number == len(parts) or not stat.S_ISDIR(mode):
                    return mode if number == len(parts) or stat.S_ISLNK(mode) else 0
                below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            except (FileNotFoundError, PermissionError):
                return 0
            os.close(descriptor)
            descriptor = below
        return os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)


def _listening(folders: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the listening sockets below `folders`, which have too many files to list before each command."""
    try:
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ()
    fields = (line.split(None, 7) for line in lines[1:])
    found = {Path(os.path.realpath(field[7])) for field in fields if len(field) == 8 and field[7].startswith("/")}
    return tuple(sorted(path for path in found if any(path.is_relative_to(folder) for folder in folders)))


def _is_special(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISDIR(mode) and not stat.S_ISREG(mode)


def _settings(folder: Path) -> list[str]:
    """Mount the settings folder read-only; without one mount an empty folder, so that none can be made."""
    if folder.is_dir() and not folder.is_symlink() and not _is_mount_point(folder):
        return ["--ro-bind", str(folder), str(folder)]
    if not _is_mount_point(folder) and (os.path.lexists(folder) or not os.access(folder.parent, os.W_OK)):
        return []
    return ["--tmpfs", str(folder), "--remount-ro", str(folder)]


@contextmanager
def mount_point(workspace: Path) -> Iterator[None]:
    """Hold an empty folder for `sandboxed_command` to mount on if the workspace has no settings folder.

    bwrap would create a folder too, but one that looks like the user's own. This one is recognised by its mode and is
    locked while a process needs it. A folder that a killed process left is removed by the next user of the workspace.
    """
    folder = workspace / SETTINGS_FOLDER
    held = next((one for _ in range(_TRIES) if (one := _hold(folder)) is not None), None)
    try:
        yield
    finally:
        if held is not None:
            os.close(held)
        remove_mount_point(workspace)


def _hold(folder: Path) -> int | None:
    """Create and lock the mount point; return its descriptor, or None if the folder is not ours."""
    try:
        os.mkdir(folder)
        os.chmod(folder, _MOUNT_POINT)
    except OSError:
        pass
    if not _is_mount_point(folder):
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def remove_mount_point(workspace: Path) -> None:
    """Remove the folder of `mount_point` if no process needs it; leave anything else."""
    folder = workspace / SETTINGS_FOLDER
    if not _is_mount_point(folder):
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rmdir(folder)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _is_mount_point(folder: Path) -> bool:
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == _MOUNT_POINT


def _search_path(settings: ShellSettings) -> tuple[str, ...]:
    """Return the entries of PATH that are visible in the sandbox, and the usual ones."""
    roots = (*_SYSTEM, *_LINKS, *settings.read)
    entries = os.environ.get("PATH", "").split(os.pathsep)
    seen = [entry for entry in entries if any(Path(entry).is_relative_to(root) for root in roots)]
    return tuple(dict.fromkeys([*seen, "/usr/local/bin", "/usr/bin", "/bin"]))

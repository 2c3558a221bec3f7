"""The sandbox for commands: choose a level, and build the bubblewrap (bwrap) command line for it.

Theory of operation

Limits. Each call has its own: `ToolContext.sandbox`, a `SandboxSpec`. `policy.sandbox` tells how registry, site, role
and session make it. `ToolContext.source` puts another folder at the workspace's place, such as a copy of it, and
`ToolContext.mounts` adds to that. All of them are parameters: there is one way into the sandbox.

Levels. `confinement` turns the limits into a `Confinement` before the user sees a call: bwrap where it works; otherwise
no sandbox, and `Confinement.description` says why. Where the limits require a level, commands are refused instead.

An installed bwrap may not work, so `probe` runs it once per process instead of only looking for the program. There is
no sandbox if the workspace is ``/``. `Confinement.description` is a part of what the user approves:
`execution.run_confined` runs nothing if it has changed since. A sandbox that cannot be set up for one command
(`SandboxSetupError`, or bwrap ends before the command starts) is an error and never a fallback to an unsandboxed run;
see `execution` for how the user may allow one.

Mounts. bwrap applies its arguments in order, and a later mount covers an earlier one:

- new namespaces of every kind, no capabilities, no nested user namespaces; the network is shared only by setting
- system programs read-only; fresh ``/dev``, ``/proc``, ``/tmp``, ``/run`` and ``/var/tmp``
- an empty folder over each home folder, unless it is the workspace or lies in it
- the paths of `read`, and with network the folders of the name service, read-only; those of `write`
- the workspace, writable; read-only for a rule with ``"workspace": "read"`` (`Exposure.READ_ONLY`)
- ``.git`` read-only (`git`: protect), ``.chatops`` read-only
- empty covers over what a command must not reach

Covers. Protected paths and the usual credential files are covered wherever they are visible. Sockets, pipes and devices
are covered because a read-only bind does not keep a command from talking to the process at the other end. The visible
user folders are therefore listed before each command (`survey`). Folders that cannot be listed are covered as well.
System folders are too large to list; sockets that listen there are taken from ``/proc/net/unix``. With `masked`, files
that may hold secrets are covered too, because a rule and not the user allowed the command. No link is followed on the
way to a mount point, because bwrap would create the mount point at the link's target, which may be outside of the
sandbox.

The settings folder. Where the workspace has no ``.chatops``, an empty one is mounted, so that a command cannot create
it; see `mount_point`.

Start and end. `_WATCH`, a shell script, runs the command inside. It sends ``ready``, waits for ``go``, and reports how
many processes are left. So no command starts after its app has died; see `process.Command`.
"""

import logging
import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from chatops.domain.sandbox import Mount, SandboxLevel, SandboxSpec
from chatops.domain.tools import Exposure
from chatops.tools.base import ToolContext
from chatops.tools.confine import SETTINGS_FOLDER, home_folders, home_secrets
from chatops.tools.mount_point import is_mount_point
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """How a command would be confined. `program` is the path of bwrap, empty if the command runs unsandboxed."""

    level: SandboxLevel = SandboxLevel.NONE
    program: str = ""
    description: str = ""
    """Level and limits in words, complete: an approval is bound to it."""
    network: bool = True
    refusal: str = ""
    path: tuple[str, ...] = field(default=())
    """Folders in which commands are looked up; empty: PATH of the environment."""
    needs_user: str = ""
    """See `CallFacts.needs_user`."""


def confinement(
    spec: SandboxSpec, *, workspace: Path, best: SandboxLevel = SandboxLevel.HARD, replaced: bool = False
) -> Confinement:
    """Return how commands would be confined under `spec`, with the reason if there is no sandbox.

    `best` is the highest level that may be used. `replaced`: the workspace is replaced by another folder, which only
    level hard can do.

    May run the probe: call it in a thread.
    """
    if best is SandboxLevel.NONE:
        reason = "switched off in the settings"
    else:
        reason = "the workspace is the whole file system" if workspace == Path("/") else ""
    program, fault = ("", reason) if reason else probe()
    if fault:
        needed = SandboxLevel.HARD if replaced else spec.require
        refusal = f"The settings require a sandbox, and it does not work: {fault}." if needed else ""
        return Confinement(description=f"off ({fault})", refusal=refusal)
    # A symlink's target cannot be protected by a mount over the link: a command that can write the workspace could
    # replace the link.
    guarded = spec.git == "protect" and not (workspace / ".git").is_symlink()
    git = "its .git read-only" if guarded else "its .git too"
    network = "network" if spec.network else "no network"
    lists = (("may read", spec.read), ("may write", spec.write), ("gets", spec.env))
    more = "".join(f", {verb} {', '.join(names)}" for verb, names in lists if names)
    where = "a copy of the workspace" if replaced else "workspace"
    description = f"bubblewrap: {where} writable, {git}, no home, {network}{more}"
    return Confinement(
        level=SandboxLevel.HARD,
        program=program,
        description=description,
        network=spec.network,
        path=_search_path(spec),
    )


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
    confined: Confinement,
    context: ToolContext,
    cwd: Path,
    environment: Mapping[str, str],
    call: str,
    masked: bool = False,
) -> Command:
    """Return a command that runs `argv` as `confined` says, under the limits of `context`.

    `call` as in `Command`. `masked`: files that may hold secrets are hidden.

    Lists all visible user folders: call it in a thread.

    Raises SandboxSetupError.
    """
    spec, workspace = context.sandbox, context.workspace
    view = _View(workspace=workspace, source=context.source or workspace)
    read = tuple(path for path in spec.read if not _is_special(path))
    write = tuple(path for path in spec.write if os.path.isdir(path))
    names = _NAME_SERVICE if spec.network else ()
    rest = ["--chdir", str(cwd), "--clearenv"]
    for name, value in environment.items():
        rest += ["--setenv", name, value]
    outer = (
        confined.program,
        *_isolation(network=spec.network),
        *_system(),
        *_homes(workspace),
        *(part for path in read for part in ("--ro-bind-try", path, path)),
        *(part for path in names for part in ("--ro-bind-try", path, path)),
        *(part for path in write for part in ("--bind", path, path)),
        "--ro-bind" if context.exposure is Exposure.READ_ONLY else "--bind",
        str(view.source),
        str(workspace),
        *_guarded(view, git=spec.git == "protect", protected=context.protected, read=(*read, *write)),
        *_further(view, context.mounts),
        *_covered(view, protected=context.protected, read=(*read, *names, *write), masked=masked),
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


def program_is_visible(path: str, *, spec: SandboxSpec, workspace: Path) -> bool:
    """Return True if a program is visible in the sandbox, both at `path` and at the end of its links."""
    places = (Path(path), Path(os.path.realpath(path)))
    return all(is_visible(place, spec=spec, workspace=workspace) for place in places)


def is_visible(place: Path, *, spec: SandboxSpec, workspace: Path) -> bool:
    """Return True if `place` itself lies in what the sandbox shows."""
    return any(place.is_relative_to(root) for root in (*_SYSTEM, *_LINKS, *spec.read, *spec.write, str(workspace)))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """The workspace's place in the sandbox, and the folder of this machine that is mounted there."""

    workspace: Path
    source: Path

    def shown(self, path: Path) -> Path:
        """Return the place in the sandbox of a path of this machine."""
        return self.workspace / path.relative_to(self.source) if path.is_relative_to(self.source) else path


def _further(view: _View, mounts: tuple[Mount, ...]) -> list[str]:
    """Mount further paths. The place of one in the workspace has to exist in its source, and not behind a link."""
    args: list[str] = []
    for mount in mounts:
        target = Path(mount.target)
        if target.is_relative_to(view.workspace):
            parts = target.relative_to(view.workspace).parts
            mode = _mode_below(view.source, parts)
            if not mode or stat.S_ISLNK(mode):
                raise SandboxSetupError(f"there is no place for {visible(str(target))}, or a link on the way to it")
        args += ["--bind" if mount.writable else "--ro-bind", mount.source, mount.target]
    return args


def _guarded(view: _View, *, git: bool, protected: tuple[Path, ...], read: tuple[str, ...]) -> list[str]:
    """Make ``.git`` read-only and cover protected paths in what the sandbox shows of the disk."""
    source = view.source
    roots = (source, *(Path(path) for path in (*read, *_SYSTEM, *_LINKS)))
    args: list[str] = []
    store = source / ".git"
    if git and store.exists() and not store.is_symlink():
        args += ["--ro-bind", str(store), str(view.shown(store))]
    args += _settings(source / SETTINGS_FOLDER, shown=view.shown(source / SETTINGS_FOLDER))
    for path in (*protected, *home_secrets()):
        inside = path.is_relative_to(view.workspace)
        place = source / path.relative_to(view.workspace) if inside else path
        root = next((root for root in roots if place != source and place.is_relative_to(root)), None)
        args += [] if root is None else _cover(place, root=root, view=view)
    return args


def _covered(view: _View, *, protected: tuple[Path, ...], read: tuple[str, ...], masked: bool) -> list[str]:
    """Cover sockets, pipes and devices, and with `masked` files that may hold secrets.

    A read-only bind does not keep a command from talking through a socket, pipe or device.
    """
    hidden = (*protected, *home_secrets())
    inside = (path.relative_to(view.workspace) for path in hidden if path.is_relative_to(view.workspace))
    skipped = frozenset((*hidden, *(view.source / path for path in inside)))
    find = Find.SECRETS if masked else Find.NOTHING
    args: list[str] = []
    for root in (view.source, *(Path(path) for path in read if not Path(path).is_relative_to(view.workspace))):
        try:
            found = survey(root, workspace=view.source, find=find, skipped=skipped)
        except OSError as error:
            why = f"{visible(str(root))} cannot be searched for sockets and pipes: {error.strerror}"
            raise SandboxSetupError(why) from error
        for path in (*found.special, *found.secret, *(folder for folder in found.closed if folder != root)):
            args += _cover(path, root=root, view=view)
    for path in _listening(_SYSTEM):
        args += _cover(path, root=Path("/"), view=view)
    if args.count("/dev/null") + args.count("--tmpfs") > _MOST_COVERED:
        kinds = "sockets, pipes, devices and files that may hold secrets" if masked else "sockets, pipes and devices"
        raise SandboxSetupError(f"there are more than {_MOST_COVERED:,} {kinds} in what it shows")
    return args


def _cover(path: Path, *, root: Path, view: _View) -> list[str]:
    """Cover `path`, which lies below `root`, with something empty; do nothing if it does not exist.

    No link is followed on the way: if a command had replaced a folder with one, bwrap would create the mount point at
    its target, possibly outside of the sandbox.

    Raises SandboxSetupError for a link.
    """
    mode = _mode_below(root, path.relative_to(root).parts)
    if stat.S_ISLNK(mode):
        raise SandboxSetupError(f"{visible(str(path))} was replaced by a link, or a folder on the way to it")
    if stat.S_ISDIR(mode):
        return ["--tmpfs", str(view.shown(path)), "--remount-ro", str(view.shown(path))]
    return ["--ro-bind", "/dev/null", str(view.shown(path))] if mode else []


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


def _settings(folder: Path, *, shown: Path) -> list[str]:
    """Mount the settings folder read-only; without one mount an empty folder, so that none can be made."""
    if folder.is_dir() and not folder.is_symlink() and not is_mount_point(folder):
        return ["--ro-bind", str(folder), str(shown)]
    if not is_mount_point(folder) and (os.path.lexists(folder) or not os.access(folder.parent, os.W_OK)):
        return []
    return ["--tmpfs", str(shown), "--remount-ro", str(shown)]


def _search_path(spec: SandboxSpec) -> tuple[str, ...]:
    """Return the entries of PATH that are visible in the sandbox, and the usual ones."""
    roots = (*_SYSTEM, *_LINKS, *spec.read, *spec.write)
    entries = os.environ.get("PATH", "").split(os.pathsep)
    seen = [entry for entry in entries if any(Path(entry).is_relative_to(root) for root in roots)]
    return tuple(dict.fromkeys([*seen, "/usr/local/bin", "/usr/bin", "/bin"]))

"""The sandbox for commands: choose a level, and build the bubblewrap (bwrap) command line for it.

Theory of operation

Limits. Each call has its own: `ToolContext.sandbox`, a `SandboxSpec`. `policy.sandbox` tells how registry, site,
role and session make it. `ToolContext.source` puts another folder at the workspace's place, such as a copy of it,
and `ToolContext.mounts` adds to that. All of them are parameters: there is one way into the sandbox.

Levels. `confinement` turns the limits into a `Confinement` before the user sees a call. It takes the highest level
that works: bubblewrap, hard or basic; Landlock and seccomp (`landlock`); none, that is a process group and a clean
environment. Where the limits require a higher one, commands are refused. Installed programs and kernel interfaces
may not work, so `probe` and `landlock_fault` try them, once per process, so a level does not change while the app
runs. There is no sandbox if the workspace is ``/``. `Confinement.description` is a part of what the user approves:
`execution.run_confined` runs nothing if it has changed since. A sandbox that cannot be set up for one command
(`SandboxSetupError`, or bwrap ends before the command starts) is an error and never a fallback to an unsandboxed
run; see `execution` for how the user may allow one.

Mounts. bwrap applies its arguments in order, and a later mount covers an earlier one:

- new namespaces of every kind, no capabilities, no nested user namespaces; the network is shared only by setting
- system programs read-only; fresh ``/dev``, ``/proc``, ``/tmp``, ``/run`` and ``/var/tmp``
- an empty folder over each home folder, unless it is the workspace or lies in it
- the paths of `read`, and with network the folders of the name service, read-only; those of `write`
- the workspace, writable; read-only for a rule with ``"workspace": "read"`` (`Exposure.READ_ONLY`)
- ``.git`` read-only (`git`: protect), also of repositories below; ``.chatops`` read-only
- empty covers over what a command must not reach

Further modules explain the rest: `covers` (also the mount points of ``.chatops`` and ``.git``), `git_access` (the
repository), `programs` (the virtual environment and toolchains outside of the system folders, visible read-only),
`git.user_config` (`~/.gitconfig` without credentials), `landlock` (a filter of system calls: no file becomes setuid or
setgid), `proxy` and `supervisor` (with `hosts` and without `network`, the command reaches these and no others).

Start and end. `_RUN_COMMAND`, a shell script, runs the command inside. It sends ``ready``, waits for ``go``, and
reports how many processes are left. So no command starts after its app has died; see `process.Command`.
"""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import GitAccess, SandboxLevel, SandboxSpec
from chatops.domain.sanitize import show_path
from chatops.domain.tools import Exposure
from chatops.git.user_config import config_place, filtered_config
from chatops.sandbox import covers, landlock, mount_points, supervisor
from chatops.sandbox.credentials import why_unusable
from chatops.sandbox.git_access import Repository, Stage, git_mounts, own_repository
from chatops.sandbox.landlock import set_id_filter
from chatops.sandbox.process import DATA, Command, memory_file
from chatops.sandbox.programs import (
    SYSTEM,
    SYSTEM_FOLDERS,
    SYSTEM_LINKS,
    Toolchains,
    display_names,
    find_toolchains,
    outermost,
)
from chatops.sandbox.proxy import PORT
from chatops.sandbox.supervisor import MAX_FILE
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import home_secrets, why_not_for_commands

log = logging.getLogger(__name__)

_NAME_SERVICE = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")
_BWRAP_FOLDERS = ("/usr/bin", "/usr/local/bin", "/bin")
"""Folders in which chatops looks for bwrap, instead of in PATH: a command could have put another program there."""
_PROBE_S = 5.0
"""Seconds for a program that ends at once. With less, a slow machine gets no sandbox; one that hangs delays longer."""
_MAX_REASON = 120
"""Maximum number of characters of another program's message in a fault."""
_LEVEL_NAMES = {
    SandboxLevel.HARD: "bubblewrap",
    SandboxLevel.BASIC: "bubblewrap (basic)",
    SandboxLevel.LANDLOCK: "Landlock",
}
_TAKE_OUT = "Take it out of sandbox.read and sandbox.write of the settings, or of --add-dir."
_NO_PROXY = "it needs a sandbox of bubblewrap with the network off"
_GIT_WORDS = {"protect": "its .git read-only", "commit": "its .git for commits"}
_FILE_BLOCKS = MAX_FILE // 512
"""The limit in the unit of a POSIX shell."""
# A lower limit that is already in force stays: trying to raise it would end this shell.
_LIMIT_FILES = f"ulimit -c 0; (ulimit -f {_FILE_BLOCKS}) 2>/dev/null && ulimit -f {_FILE_BLOCKS}; "
_RUN_COMMAND = (
    f"{_LIMIT_FILES}exec 9<&0 0</dev/null; "
    "echo ready >&9; read -r s <&9 || exit 1; "
    '"$@" 9>&-; s=$?; n=0; '
    "while set -- /proc/[0-9]*; [ $# -gt 2 ] && [ $n -lt 3 ]; do sleep 0.05; n=$((n+1)); done; "
    "echo $(($#-2)) >&9; exit $s"
)
"""Script that runs the command as a child after ``go`` and reports how many processes it leaves behind.

Only init and this shell are not counted. Processes that end right after the command (a pipe's last reader) get up to
0.15 s to do so. The script uses its standard input for reports, see `Command`, because a POSIX shell cannot name
descriptors above 9.
"""
_RUN_SERVER = f'{_LIMIT_FILES}exec "$@"'
"""Script that runs a server: its standard input is for its messages, so it reports nothing."""


@frozen_dataclass
class Confinement:
    """How a command would be confined. `program` is the path of bwrap, empty if the command runs unsandboxed."""

    level: SandboxLevel = SandboxLevel.NONE
    program: str = ""
    description: str = ""
    """Level and limits in words, complete: an approval is bound to it."""
    network: bool = True
    refusal: str = ""
    toolchains: Toolchains = field(default_factory=Toolchains)
    repository: Repository | None = None
    path: tuple[str, ...] = field(default=())
    """Folders in which commands are looked up; empty: PATH of the environment."""
    needs_user: str = ""
    """See `CallFacts.needs_user`."""
    fault: str = ""
    """Reason why there is no sandbox here."""
    credentials: tuple[str, ...] = ()
    """See `CallFacts.credentials`."""


class WorkspaceAccess(Enum):
    """Access of commands to the workspace. The value is its text."""

    WRITABLE = "workspace writable"
    READ_ONLY = "workspace read-only"
    COPY = "a copy of the workspace writable"
    """Another folder in its place, which only level hard can show."""


def confinement(
    spec: SandboxSpec,
    *,
    workspace: Path,
    best: SandboxLevel = SandboxLevel.HARD,
    access: WorkspaceAccess = WorkspaceAccess.WRITABLE,
    protected: tuple[Path, ...] = (),
) -> Confinement:
    """Return how commands would be confined under `spec`, with the reason if there is no sandbox.

    `best` is the highest level that may be used. `protected` are paths that no command may get, besides the usual
    credentials. May run the probe: call it in a thread.
    """
    works = _best_level(workspace, best)
    needed = SandboxLevel.HARD if access is WorkspaceAccess.COPY else spec.require
    refusal = ""
    if works.level < needed:
        refusal = f"The settings require a sandbox of level {needed.word}, and it does not work: {works.fault}."
    if works.level is SandboxLevel.NONE:
        return Confinement(description=f"off ({works.fault})", fault=works.fault, refusal=refusal)
    path_fault = why_not_for_commands(
        (*spec.read, *spec.write), protected=protected, can_hide_parts=bool(works.program)
    ) or _link_fault(spec, workspace)
    if path_fault and not refusal:
        refusal = f"{path_fault} {_TAKE_OUT}"
    toolchains = find_toolchains(workspace, os.environ)
    shown = display_names(toolchains)
    lists = (("may read", spec.read), ("may write", spec.write), ("programs of", shown), ("gets", spec.env))
    list_words = [f"{verb} {', '.join(names)}" for verb, names in lists if names]
    proxied = bool(works.program) and not spec.network
    network_words = "network" if spec.network else "no network"
    network_words += f" but {', '.join(spec.hosts)}" if spec.hosts and proxied else ""
    workspace_words = _describe_workspace(spec, workspace, access, bubblewrap=bool(works.program))
    credential_faults = {
        credential: why_unusable(credential, os.environ) if proxied else _NO_PROXY for credential in spec.credentials
    }
    credential_words = [
        f"without the credential for {credential.name} ({fault})" if fault else f"uses the credential {credential}"
        for credential, fault in credential_faults.items()
    ]
    words = (network_words, *workspace_words, "no home", *list_words, *credential_words)
    return Confinement(
        level=works.level,
        program=works.program,
        description=f"{_LEVEL_NAMES[works.level]}: {', '.join(words)}",
        refusal=refusal,
        network=spec.network,
        path=_search_path(spec, toolchains),
        toolchains=toolchains,
        repository=own_repository(workspace),
        credentials=tuple(str(credential) for credential, fault in credential_faults.items() if not fault),
    )


def _describe_workspace(spec: SandboxSpec, workspace: Path, access: WorkspaceAccess, *, bubblewrap: bool) -> list[str]:
    if access is WorkspaceAccess.READ_ONLY:
        return [access.value]
    # A symlink's target cannot be protected by a mount over the link: a command that can write the workspace could
    # replace the link.
    linked = (workspace / ".git").is_symlink()
    git_is_writable = linked or spec.git == "writable" or not bubblewrap
    return [access.value, "its .git too" if git_is_writable else _GIT_WORDS[spec.git]]


def _link_fault(spec: SandboxSpec, workspace: Path) -> str:
    """Return which path of the limits leads through a link where commands can write, as a sentence; empty if none does.

    A command may have made the link, so the user has not permitted what it leads to.
    """
    roots = [Path(os.path.realpath(folder)) for folder in (str(workspace), *spec.write)]
    for name in (*spec.read, *spec.write):
        for part in (Path(name), *Path(name).parents):
            folder = Path(os.path.realpath(part.parent))
            if part.is_symlink() and any(folder.is_relative_to(root) for root in roots):
                return f"No command may follow the link {show_path(str(part))}: it lies where commands can write."
    return ""


class Probed(NamedTuple):
    """The highest level that works here."""

    program: str
    """Path of bwrap; empty below level basic."""
    fault: str
    """Reason why a higher level does not work, as a clause; empty for level hard."""
    level: SandboxLevel = SandboxLevel.NONE


def _best_level(workspace: Path, best: SandboxLevel) -> Probed:
    """Return the highest level up to `best` that works for this workspace."""
    if best is SandboxLevel.NONE:
        return Probed("", "switched off in the settings")
    if workspace == Path("/"):
        return Probed("", "the workspace is the whole file system")
    probed = probe() if best > SandboxLevel.LANDLOCK else Probed("", "bubblewrap is switched off in the settings")
    if probed.program or landlock_fault():
        return probed
    return Probed("", probed.fault, SandboxLevel.LANDLOCK)


@cache
def probe() -> Probed:
    """Return the bwrap program that works here and its level, or the reason why none does. Runs it once per process."""
    program = shutil.which("bwrap", path=os.pathsep.join(_BWRAP_FOLDERS))
    if program is None:
        return Probed("", "bubblewrap is not installed")
    fault = ""
    for level in (SandboxLevel.HARD, SandboxLevel.BASIC):
        reason = _bwrap_fault(program, [*_isolate(level, share_network=False), *_mount_system(), "--", "/usr/bin/true"])
        if not reason:
            return Probed(program, fault, level)
        fault = fault or reason
    return Probed("", fault)


def _bwrap_fault(program: str, options: list[str]) -> str:
    """Return why bwrap with these options, and the filter of commands, fails; empty if it does not."""
    file = memory_file(set_id_filter())
    argv = [program, *(["--seccomp", str(file)] if set_id_filter() else []), *options]
    try:
        return _trial_fault("bubblewrap", argv, pass_fds=(file,))
    finally:
        os.close(file)


def _trial_fault(name: str, argv: list[str], *, pass_fds: tuple[int, ...] = ()) -> str:
    """Run a program that ends at once. Return why `name` fails with it, as a clause; empty if it does not."""
    try:
        trial = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_S,
            check=False,
            env={},
            cwd="/",
            pass_fds=pass_fds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{name} does not start: {type(error).__name__}"
    if not trial.returncode:
        return ""
    lines = trial.stderr.decode("utf-8", "replace").strip().splitlines()
    log.warning("trying %s failed: %s", name, lines)
    return f"{name} does not work here: {lines[-1][:_MAX_REASON] if lines else 'no reason given'}"


@cache
def landlock_fault() -> str:
    """Return why Landlock and seccomp do not work here; empty if they do. Tries them once per process."""
    if landlock.abi() < landlock.LEAST_ABI:
        return "this kernel has no Landlock, or an early one"
    script = (
        "import json, os, socket, sys; sys.path.insert(0, sys.argv[1]); import landlock\n"
        "landlock.confine(read=['/usr', '/lib', '/lib64'], write=[], network=False)\n"
        "try: os.listdir('/')\n"
        "except PermissionError: pass\n"
        "else: sys.exit('it hides nothing')\n"
        "try: socket.socket()\n"
        "except PermissionError: sys.exit(0)\n"
        "sys.exit('it permits sockets')"
    )
    return _trial_fault("Landlock", [sys.executable, "-I", "-S", "-c", script, os.path.dirname(landlock.__file__)])


def landlock_limits(confined: Confinement, context: ToolContext, *, private: Path) -> str:
    """Return the limits of a command at level landlock, for the supervisor.

    `private` is its own folder for temporary files, and its home. The settings of git are written there.
    """
    spec = context.sandbox
    (private / ".gitconfig").write_bytes(filtered_config())
    name_service = _NAME_SERVICE if spec.network else ()
    workspace = str(context.workspace)
    etc = covers.readable_parts(Path("/etc"))
    programs = map(str, confined.toolchains.shown)
    read = ["/usr", "/opt", *etc, *map(str, SYSTEM_LINKS), "/proc", *name_service, *spec.read, *programs, workspace]
    write = [str(private), *spec.write, *([] if context.exposure is Exposure.READ_ONLY else [workspace])]
    return landlock.encode_arguments(read=read, write=write, network=spec.network)


def sandboxed_command(
    argv: tuple[str, ...],
    *,
    confined: Confinement,
    context: ToolContext,
    cwd: Path,
    environment: Mapping[str, str],
    call: str,
    masked: bool = False,
    stage: Stage | None = None,
    channel: int | None = None,
    serves: bool = False,
) -> Command:
    """Return a command that runs `argv` as `confined` says, under the limits of `context`.

    `call` as in `Command`. `masked`: files that may hold secrets are hidden. `stage`: see `git_access`. `channel`:
    descriptor of a unix socket that passes on the listening socket of the command's own network, see `supervisor`.
    `serves`: the command is a server that reads its standard input, so it does not take part in the handshake.

    Lists all visible user folders: call it in a thread. Raises SandboxSetupError.
    """
    spec, workspace = context.sandbox, context.workspace
    view = covers.View(workspace=workspace, source=context.source or workspace)
    read = _unmounted_paths(spec.read, confined.toolchains, workspace=workspace)
    write = tuple(path for path in spec.write if os.path.isdir(path))
    name_service = _NAME_SERVICE if spec.network else ()
    hidden = (*context.protected, *home_secrets())
    repository = confined.repository if context.source is None else None
    main_repository = (repository.common,) if repository is not None and repository.is_linked_worktree else ()
    listed = (*map(Path, (*read, *name_service, *write)), *main_repository)
    config, call_filter = config_place(), set_id_filter()
    git_config = b"" if config is None or config.is_relative_to(workspace) else filtered_config()
    # Every user of the machine can read the words of a program, and the key of a server is in its environment.
    setenv = (part for name, value in environment.items() for part in ("--setenv", name, value))
    variables = b"".join(os.fsencode(part) + b"\0" for part in setenv)
    read_only = context.exposure is Exposure.READ_ONLY
    keep_repositories, cover_args = covers.cover_special_files(
        view, hidden=hidden, listed=listed, system=SYSTEM_FOLDERS, masked=masked
    )
    bwrap_argv = (
        confined.program,
        *_isolate(confined.level, share_network=spec.network or channel is not None),
        *_mount_system(),
        *covers.cover_homes(workspace),
        *_show_programs(confined.toolchains, workspace=None),
        *_bind("--ro-bind-try", (*read, *name_service)),
        *_bind("--bind", write),
        "--ro-bind" if read_only else "--bind",
        str(view.source),
        str(workspace),
        *_mount_repository(view, repository, "protect" if read_only else spec.git, stage),
        *([] if read_only or spec.git == "writable" else keep_repositories),
        *_show_programs(confined.toolchains, workspace=workspace, write=write),
        *covers.guard_settings(view, hidden=hidden, roots=(*listed, *SYSTEM)),
        *covers.mount_paths(view, context.mounts),
        *cover_args,
        *(["--ro-bind-data", DATA, str(config)] if git_config else []),
        *(["--seccomp", DATA] if call_filter else []),
        *("--chdir", str(cwd), "--clearenv", "--args", DATA),
        "--",
        "/bin/sh",
        "-c",
    )
    return Command(
        argv=(*_enter_own_network(channel), *bwrap_argv, _RUN_SERVER if serves else _RUN_COMMAND, "sh", *argv),
        cwd=cwd,
        environment=environment,
        call=call,
        contained=True,
        reports=not serves,
        # In the order of the words `DATA` above.
        data=tuple(filter(None, (git_config, call_filter, variables))),
        passed=() if channel is None else (channel,),
    )


def program_is_visible(path: str, *, confined: Confinement, spec: SandboxSpec, workspace: Path) -> bool:
    """Return True if a program is visible in the sandbox, both at `path` and at the end of its links."""
    places = (Path(path), Path(os.path.realpath(path)))
    return all(is_visible(place, confined=confined, spec=spec, workspace=workspace) for place in places)


def is_visible(place: Path, *, confined: Confinement, spec: SandboxSpec, workspace: Path) -> bool:
    """Return True if `place` itself lies in what the sandbox shows."""
    roots: tuple[str | Path, ...] = (*SYSTEM, *spec.read, *spec.write, *confined.toolchains.shown, workspace)
    return any(place.is_relative_to(root) for root in roots)


def _show_programs(toolchains: Toolchains, *, workspace: Path | None, write: tuple[str, ...] = ()) -> list[str]:
    """Show the user's programs read-only: outside of a workspace (None), or those in it.

    The virtual environment of a workspace is writable if the limits name it.
    """
    places = toolchains.shown
    if workspace is not None:
        inside = (place for place in places if place.is_relative_to(workspace))
        places = tuple(place for place in inside if str(place) not in write and not place.is_symlink())
    return _bind("--ro-bind-try", places)


def _enter_own_network(channel: int | None) -> tuple[str, ...]:
    if channel is None:
        return ()
    return (sys.executable, "-I", "-S", supervisor.__file__, supervisor.OWN_NETWORK, str(channel), str(PORT))


def _mount_repository(
    view: covers.View, repository: Repository | None, access: GitAccess, stage: Stage | None
) -> list[str]:
    """Give access to the repository; without one, let none be made unless `.git` may be written."""
    store = view.source / ".git"
    args = git_mounts(repository, access, stage) if repository is not None else []
    # Of a linked worktree, `git_mounts` shows the repository elsewhere and not the file here.
    is_mounted = repository is not None and not repository.is_linked_worktree
    if access == "writable" or store.is_symlink() or is_mounted:
        return args
    args += covers.mount_protected(store, target=view.in_sandbox(store))
    if repository is None and mount_points.can_become_bare(view.source):
        head = view.source / mount_points.BARE_HEAD
        args += covers.mount_protected(head, target=view.in_sandbox(head))
    return args


def _isolate(level: SandboxLevel, *, share_network: bool) -> list[str]:
    flags = ["--die-with-parent", "--new-session", "--unshare-all", "--unshare-user"]
    flags += ["--disable-userns"] if level is SandboxLevel.HARD else []
    flags += ["--cap-drop", "ALL", "--hostname", "sandbox"]
    return [*flags, "--share-net"] if share_network else flags


def _bind(option: str, paths: Iterable[str | Path]) -> list[str]:
    """Return the arguments that show each path at its own place."""
    return [part for path in paths for part in (option, str(path), str(path))]


def _mount_system() -> list[str]:
    args = _bind("--ro-bind-try", SYSTEM_FOLDERS)
    for path in map(str, SYSTEM_LINKS):
        if os.path.islink(path):
            args += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            args += ["--ro-bind", path, path]
    return [*args, "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp"]


def _unmounted_paths(read: tuple[str, ...], toolchains: Toolchains, *, workspace: Path) -> tuple[str, ...]:
    """Return the paths of `read` that nothing else shows: see `outermost`."""
    places = tuple(Path(path) for path in read if not covers.is_special(path))
    unmounted = outermost((*toolchains.shown, *places), workspace=workspace)
    return tuple(str(place) for place in dict.fromkeys(places) if place in unmounted and place not in toolchains.shown)


def _search_path(spec: SandboxSpec, toolchains: Toolchains) -> tuple[str, ...]:
    """Return the virtual environment, the entries of PATH that are visible in the sandbox, and the usual ones."""
    roots: tuple[str | Path, ...] = (*SYSTEM, *spec.read, *spec.write)
    entries = os.environ.get("PATH", "").split(os.pathsep)
    visible = [entry for entry in entries if any(Path(entry).is_relative_to(root) for root in roots)]
    return tuple(dict.fromkeys([*toolchains.path, *visible, "/usr/local/bin", "/usr/bin", "/bin"]))

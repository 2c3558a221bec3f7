"""What a command lacks in its sandbox, and what the user can give it: `+` in the dialog.

A lack is found twice: by the words of the command before it runs (`with_lacks`), and by how it failed
(`likely_cause`). Both are guesses. They grant nothing; they only fill the dialog and the text on the command's end.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from chatops.domain.errors import ToolFailedError
from chatops.domain.sandbox import NARROWEST, GitAccess, Lack, SandboxLevel, SandboxSpec
from chatops.domain.tools import CallFacts, Exposure
from chatops.policy.sandbox import covers_host, host_problem, limited_by, widened
from chatops.sandbox.confinement import Confinement, confinement, is_visible
from chatops.sandbox.process import Command
from chatops.sandbox.programs import program_at
from chatops.shell.effects import Need, NeedKind, effects
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import home_folders, home_secrets, opened_file
from chatops.toolkit.output import visible

_MAX_NAMED = 3
"""Maximum number of hosts or hidden files that a cause lists, so that it stays one line."""
_MAX_OFFERED = 8
"""Maximum number of hosts that the + key of the approval dialog allows at once: as many as the user reads."""
_REMOTE_URL = re.compile(r"^\s*(?:push)?url\s*=\s*(\S+)\s*$", re.MULTILINE | re.IGNORECASE)
_WEB_HOST = re.compile(r"https?://(?:[^/@\s]*@)?([^/\s]+)", re.IGNORECASE)
_FOLDER_URLS = ("/", "./", "../", "file:")
"""Beginnings of the URLs of remotes that are folders of this machine."""
_MAX_CONFIG_BYTES = 100_000
"""Bytes of the settings of git that are read."""
_OWN_PLACES = ("/tmp", "/dev", "/proc", "/run", "/var/tmp")
"""Places that the sandbox has for itself."""
_NO_NETWORK = re.compile(
    r"could not resolve host|temporary failure in name resolution|name or service not known|network is unreachable"
    r"|nodename nor servname|failed to resolve|no address associated|getaddrinfo"
    r"|\b(?:EAI_AGAIN|ENETUNREACH|ENOTFOUND)\b|network unreachable|unable to resolve|connection refused|ECONNREFUSED"
    r"|failed to establish a new connection|couldn't connect to server",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"read-only file system|EROFS|Errno 30", re.IGNORECASE)
_NO_PERMISSION = re.compile(r"permission denied|EACCES|Errno 13", re.IGNORECASE)
_IN_GIT = re.compile(r"(?<![\w.-])\.git\b")
"""The folder itself. A bare repository, such as origin.git, is another one."""
_GIT_SETTINGS = re.compile(r"\.git/(?:config|hooks|info|modules|worktrees)\b")
_NO_PROGRAM = re.compile(
    r"command not found|no such file or directory|required file not found|no module named|bad interpreter",
    re.IGNORECASE,
)
_EXIT_NOT_FOUND = 127
"""Exit code of a shell that does not find the program."""


class Cause(NamedTuple):
    """Restriction of the sandbox that made a command fail."""

    text: str
    """As a clause; empty if nothing is known."""
    needs: SandboxSpec = NARROWEST
    """The limits with which it would not; `NARROWEST` if no limits help."""


NO_CAUSE = Cause("")


def unreached_cause(hosts: tuple[str, ...], *, code: int | None, spec: SandboxSpec) -> Cause:
    """Return as the cause that the proxy reached none of `hosts`.

    `code` is the command's exit code: one that succeeded lacked nothing.
    """
    refused = tuple(name for name in hosts if not any(covers_host(entry, name) for entry in spec.hosts))
    if not refused:
        return Cause(f"the sandbox permits it, but it was not reached: {', '.join(hosts[:_MAX_NAMED])}")
    needs = SandboxSpec(hosts=refused[:_MAX_OFFERED]) if code else NARROWEST
    return Cause(f"not reachable from the sandbox: {', '.join(refused[:_MAX_NAMED])}", needs)


def likely_cause(
    output: str, *, code: int, argv: tuple[str, ...], command: Command, confined: Confinement, context: ToolContext
) -> Cause:
    """Return which part of the sandbox made `argv` fail with `code`; `NO_CAUSE` if the output gives no hint.

    `command` is `argv` wrapped in its sandbox.
    """
    spec = context.sandbox
    if refused_writes := [line for line in output.splitlines() if _READ_ONLY.search(line)]:
        return _cause_of_refused_writes(refused_writes, context=context)
    if hidden := _unopened_masks(output, command, workspace=context.workspace):
        return Cause(f"hidden from commands that a rule allows: {', '.join(hidden)}")
    words = argv[-1].split() if argv[:2] == ("/bin/bash", "-c") else argv
    missing_folders = hidden_folders_of(words[0], cwd=command.cwd, confined=confined, context=context)
    if missing_folders and (code == _EXIT_NOT_FOUND or _NO_PROGRAM.search(output)):
        names = [visible(folder, limit=200) for folder in missing_folders]
        what = f"the sandbox does not show {' and '.join(names)}"
        setting = f'"read": {json.dumps(names)}'
        return Cause(_with_remedy(what, setting, context=context), SandboxSpec(read=missing_folders))
    if not spec.network and _NO_NETWORK.search(output):
        text = _with_remedy("the sandbox has no network", '"network": true', context=context)
        return Cause(text, SandboxSpec(network=True))
    return NO_CAUSE


def _cause_of_refused_writes(lines: list[str], *, context: ToolContext) -> Cause:
    """Return why writing was refused, by these lines of the output."""
    access = context.sandbox.git
    if any(_IN_GIT.search(line) for line in lines) and access != "writable":
        needs_settings = access == "commit" or any(_GIT_SETTINGS.search(line) for line in lines)
        needs = SandboxSpec(git="writable" if needs_settings else "commit")
        what = "config, hooks and info in .git are" if access == "commit" else ".git is"
        return Cause(_with_remedy(f"{what} read-only in the sandbox", f'"git": "{needs.git}"', context=context), needs)
    if context.exposure is Exposure.READ_ONLY:
        return Cause('the rule that allows this command makes the workspace read-only ("workspace": "read")')
    return Cause("the sandbox allows writing only in the workspace")


def _with_remedy(what: str, setting: str, *, context: ToolContext) -> str:
    """Return the clause `what`, followed by what the user can do: allow it once, or `setting` in the registry."""
    once = "+ in the dialog of the repeated call allows it once"
    if context.contained:
        # Calls in the copy do not ask.
        return f"{what}; /contain off ends the containment, then {once}"
    return f'{what}; {once}, "sandbox": {{{setting}}} in the registry changes that'


def _unopened_masks(output: str, command: Command, *, workspace: Path) -> list[str]:
    """Return the masked files that, by the output, could not be opened."""
    options = zip(command.argv, command.argv[1:], command.argv[2:], strict=False)
    masked = [target for option, source, target in options if (option, source) == ("--ro-bind", "/dev/null")]
    errors = "\n".join(line for line in output.splitlines() if _NO_PERMISSION.search(line))
    names = {path: re.escape(os.path.basename(path)) for path in masked}
    unopened = [path for path, name in names.items() if re.search(rf"(?<!\w){name}(?!\w)", errors)]
    return [visible(os.path.relpath(path, workspace), limit=100) for path in unopened[:_MAX_NAMED]]


def with_lacks(
    facts: CallFacts, *, confined: Confinement, best: SandboxLevel, context: ToolContext, earlier: Iterable[Lack]
) -> CallFacts:
    """Add to the facts of a confined shell command what it will probably lack, and what the user can give it.

    `best` is the highest level to use. `earlier` are the lacks for which the same command failed before. What the
    ceiling forbids is not offered.
    """
    if confined.level is SandboxLevel.NONE or facts.interpreter or context.source is not None:
        return facts
    spec = context.sandbox
    by_words = _lacks_by_words(facts.command, cwd=Path(facts.cwd), confined=confined, context=context)
    lacks = []
    for lack in dict.fromkeys((*earlier, *by_words)):
        # Hosts stem from words of a command, and a pattern among them would mean many.
        exact_hosts = tuple(host for host in lack.needs.hosts if "*" not in host and not host_problem(host))
        needs = replace(lack.needs, hosts=exact_hosts)
        if widened(spec, needs) != spec:
            lacks.append(replace(lack, needs=needs))
    wanted = reduce(widened, (lack.needs for lack in lacks), spec)
    permitted = limited_by(context.ceiling, wanted)
    extra = _difference(permitted, than=spec)
    if extra == NARROWEST:
        return replace(facts, lacks=tuple(lacks))
    with_extra = confinement(permitted, workspace=context.workspace, best=best)
    return replace(facts, lacks=tuple(lacks), extra=extra, extra_sandbox=with_extra.description)


def _difference(spec: SandboxSpec, *, than: SandboxSpec) -> SandboxSpec:
    """Return what `spec` permits beyond `than`, such that ``widened(than, more)`` is `spec`; else nothing."""
    more = SandboxSpec(
        network=spec.network and not than.network,
        hosts=tuple(host for host in spec.hosts if host not in than.hosts),
        git=spec.git if spec.git != than.git else "protect",
        read=tuple(path for path in spec.read if path not in than.read),
        write=tuple(path for path in spec.write if path not in than.write),
        env=tuple(name for name in spec.env if name not in than.env),
    )
    return more if widened(than, more) == spec else NARROWEST


def _lacks_by_words(command: str, *, cwd: Path, confined: Confinement, context: ToolContext) -> Iterator[Lack]:
    will, spec = effects(command), context.sandbox
    for need in will.needs:
        # Without bubblewrap there is no proxy, and .git is as writable as the workspace.
        yield from _lacks_of_need(need, spec=spec, bubblewrap=bool(confined.program), context=context)
    for program in will.programs:
        if "/" not in program and shutil.which(program, path=os.pathsep.join(confined.path)):
            continue
        for folder in hidden_folders_of(program, cwd=cwd, confined=confined, context=context):
            yield Lack(by=program, needs=SandboxSpec(read=(folder,)))
    for target in will.writes:
        if folder := _folder_outside(target, cwd=cwd, spec=spec, context=context):
            yield Lack(by=f"writing {target}", needs=SandboxSpec(write=(folder,)))


def _lacks_of_need(need: Need, *, spec: SandboxSpec, bubblewrap: bool, context: ToolContext) -> Iterator[Lack]:
    match need.kind:
        case NeedKind.COMMIT | NeedKind.CONFIGURE:
            wanted: GitAccess = "commit" if need.kind is NeedKind.COMMIT else "writable"
            if bubblewrap and (context.workspace / ".git").exists():
                yield Lack(by=need.by, needs=SandboxSpec(git=wanted))
        case NeedKind.NETWORK if not spec.network and not bubblewrap:
            yield Lack(by=need.by, needs=SandboxSpec(network=True))
        case NeedKind.NETWORK if not spec.network:
            urls = _remote_urls(context) if need.by.startswith("git ") and not need.hosts else []
            if urls and all(url.startswith(_FOLDER_URLS) for url in urls):
                return
            hosts = need.hosts or _web_hosts(urls)
            missing = tuple(host for host in hosts if not any(covers_host(listed, host) for listed in spec.hosts))
            if missing:
                yield Lack(by=need.by, needs=SandboxSpec(hosts=missing))
            elif not hosts and not spec.hosts:
                # With hosts in the settings, those that are not known here are probably among them.
                yield Lack(by=need.by, needs=SandboxSpec(network=True))
        case _:
            pass


def _remote_urls(context: ToolContext) -> list[str]:
    """Return the URLs of the repository's remotes; none if its settings cannot be read."""
    try:
        with opened_file(context.workspace / ".git" / "config", context=context) as descriptor:
            return _REMOTE_URL.findall(os.read(descriptor, _MAX_CONFIG_BYTES).decode("utf-8", "replace"))
    except (OSError, ToolFailedError):
        return []


def _web_hosts(urls: list[str]) -> tuple[str, ...]:
    """Return the hosts of the URLs if all are reached by HTTP, else nothing."""
    remotes = [_WEB_HOST.match(url) for url in urls]
    return tuple(dict.fromkeys(remote[1] for remote in remotes if remote)) if all(remotes) else ()


def hidden_folders_of(program: str, *, cwd: Path, confined: Confinement, context: ToolContext) -> tuple[str, ...]:
    """Return the virtual environments and installations that a program needs and the sandbox does not show."""
    program_path = os.path.join(cwd, program) if "/" in program else shutil.which(program)
    if not program_path:
        return ()
    installed = program_at(Path(program_path), workspace=context.workspace).shown
    # A script in a virtual environment needs the interpreter there, which in turn needs its base installation.
    needed = [program_path, os.path.join(os.path.dirname(program_path), "python")]
    linked = [Path(place) for path in needed for place in (path, os.path.realpath(path)) if os.path.exists(path)]
    not_installed = (place for place in linked if not any(place.is_relative_to(root) for root in installed))
    hidden = (
        place
        for place in (*installed, *not_installed)
        if not is_visible(place, confined=confined, spec=context.sandbox, workspace=context.workspace)
    )
    folders = (_installation_of(place, context=context) for place in hidden)
    return tuple(dict.fromkeys(str(folder) for folder in folders if not _contains_protected(folder, context=context)))


def _installation_of(program: Path, *, context: ToolContext) -> Path:
    """Return the virtual environment or installation that is or contains `program`, otherwise its folder."""
    if program.is_dir():
        return program
    folder = program.parent.parent if program.parent.name in ("bin", "sbin") else program.parent
    # Not the whole home folder for a program in ~/bin.
    return program.parent if _contains_protected(folder, context=context) else folder


def _folder_outside(target: str, *, cwd: Path, spec: SandboxSpec, context: ToolContext) -> str:
    """Return the folder outside the workspace that a write to `target` needs; empty if it needs none or may not."""
    path = Path(os.path.realpath(os.path.join(cwd, os.path.expanduser(target))))
    writable = (str(context.workspace), *_OWN_PLACES, *spec.write)
    if any(path.is_relative_to(place) for place in writable):
        return ""
    folder = path.parent
    return str(folder) if folder.is_dir() and not _contains_protected(folder, context=context) else ""


def _contains_protected(folder: Path, *, context: ToolContext) -> bool:
    """Return True if `folder` holds what no command gets with it: the workspace, a home folder, credentials."""
    secrets = (*context.protected, *home_secrets())
    overlaps = any(place.is_relative_to(folder) or folder.is_relative_to(place) for place in secrets)
    return overlaps or any(place.is_relative_to(folder) for place in (context.workspace, *home_folders()))

"""Run one program for a tool at the sandbox level in force, describe its end, and say what it lacks in its sandbox.

`shell_exec` and `python_exec` share this, so both get the same environment, limits and clean-up.

A command whose sandbox could not be set up is not run unsandboxed instead. The failure is recorded. The next call of
exactly the same command in the same session is inspected as an unsandboxed one and waits for the user's decision,
whatever the rules say. When it runs, the record is removed.

What a command lacks is predicted twice: by its words before it runs (`with_lacks`), and by how it failed
(`likely_cause`).
"""

import json
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from chatops.domain.endings import EndedBy, Ending, exit_of, with_ending
from chatops.domain.errors import ToolFailedError
from chatops.domain.sandbox import NARROWEST, GitAccess, Lack, SandboxLevel, SandboxSpec
from chatops.domain.tools import CallFacts, Exposure, Outcome, ResultFacts, ToolResult
from chatops.policy.sandbox import covers_host, host_problem, limited_by, widened
from chatops.sandbox.confinement import (
    Confinement,
    WorkspaceAccess,
    confinement,
    is_visible,
    landlock_limits,
    sandboxed_command,
)
from chatops.sandbox.covers import SandboxSetupError, mount_points
from chatops.sandbox.git_access import staged
from chatops.sandbox.process import MOST_SHOWN, Command, Ended, attempt_name, clean_environment, run_command
from chatops.sandbox.programs import program_at
from chatops.sandbox.proxy import Proxy, proxy_environment
from chatops.shell.effects import Need, NeedKind, effects
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import (
    home_folders,
    home_secrets,
    locate,
    opened_file,
    with_place,
    with_problem,
    world_problem,
)
from chatops.toolkit.output import visible
from chatops.toolkit.threads import in_thread

MAX_TEXT = 100_000
"""Maximum number of bytes of a command or of code; Linux limits one argument of a program to 128 KiB."""
_MARGIN_S = 1.0
"""Seconds by which the tool ends before the runtime's own limit, so that the output so far is not lost."""
_STATUS_ROOM = 600
"""Characters of the tool's limit that are kept free for the line on how the command ended."""
_TRIAL_S = 30.0
"""Time limit of the trial command of `setup_fault`, in seconds."""
_REASON = 160
"""Maximum length of bubblewrap's own message, in characters."""
_MOST_NAMED = 3
"""Maximum number of hosts or hidden files that a cause lists."""
_MOST_OFFERED = 8
"""Maximum number of hosts that the + key of the approval dialog allows at once."""
NO_SANDBOX = "it would run outside the sandbox, which could not be set up for it"


@dataclass(frozen=True, slots=True)
class SandboxFailures:
    """Sandbox failures by session, command and folder, kept while the app runs. `best`: the highest level to use."""

    best: SandboxLevel = SandboxLevel.HARD
    _failures: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _lacks: dict[tuple[str, str, str], SandboxSpec] = field(default_factory=dict)
    """Limits that commands probably failed at, by command."""

    def confinement_for(self, command: str, *, cwd: Path, context: ToolContext) -> Confinement:
        """Return the confinement in which `command` would run. May run the sandbox's probe: call it in a thread."""
        # A copy has no virtual environment: the commands that run in it see that of the workspace.
        workspace = context.original or context.workspace
        found = confinement(
            context.sandbox,
            workspace=workspace,
            best=self.best,
            access=WorkspaceAccess.WRITABLE if context.source is None else WorkspaceAccess.COPY,
            protected=context.protected,
        )
        reason = self._failures.get((context.session_id, command, str(cwd)))
        if reason is None or not found.program or not _may_run_unsandboxed(context):
            return found
        return Confinement(
            description=f"off (it could not be set up for this command: {reason})", needs_user=NO_SANDBOX
        )

    def record(self, facts: CallFacts, context: ToolContext, *, reason: str) -> None:
        """Record that the sandbox could not be set up for this call."""
        self._failures[self._key(facts, context)] = reason

    def reason(self, facts: CallFacts, context: ToolContext) -> str:
        """Return why the sandbox could not be set up for this call; empty if it could."""
        return self._failures.get(self._key(facts, context), "")

    def forget(self, facts: CallFacts, context: ToolContext) -> None:
        """Forget the failure of a call that runs now, so that the next one tries the sandbox again."""
        self._failures.pop(self._key(facts, context), None)

    def learn(self, facts: CallFacts, context: ToolContext, *, needs: SandboxSpec) -> None:
        """Keep what the command probably lacked in its sandbox, for the dialog of its repetition."""
        self._lacks.pop(self._key(facts, context), None)
        if needs != NARROWEST:
            self._lacks[self._key(facts, context)] = needs

    def lacks(self, facts: CallFacts, context: ToolContext) -> tuple[Lack, ...]:
        """Return what this command probably lacked when it failed last."""
        needs = self._lacks.get(self._key(facts, context))
        return (Lack(by="it", needs=needs, seen=True),) if needs is not None else ()

    def _key(self, facts: CallFacts, context: ToolContext) -> tuple[str, str, str]:
        return (context.session_id, facts.command, facts.cwd)


def _may_run_unsandboxed(context: ToolContext) -> bool:
    """Return True if the user may allow a command of this call outside the sandbox."""
    return not context.sandbox.require and context.source is None


def inspect_program(
    text: str, *, field: str, cwd: str, facts: CallFacts, context: ToolContext, failures: SandboxFailures
) -> tuple[CallFacts, Confinement | None]:
    """Return the facts of a call that runs `text`, the argument `field`, in the folder `cwd`, and its confinement.

    The confinement is None if the call cannot run. May run the sandbox's probe: call it in a thread.
    """
    if problem := unfit(text):
        return with_problem(facts, field, problem), None
    place = locate(cwd, context=context, field="cwd")
    facts = replace(with_place(facts, place), paths=(), caution="")
    if not place.usable:
        return facts, None
    if place.info is None or not stat.S_ISDIR(place.info.st_mode):
        return world_problem(facts, "is not a folder", field="cwd", given=cwd), None
    confined = failures.confinement_for(text, cwd=place.path, context=context)
    facts = replace(
        facts,
        refusal=confined.refusal,
        cwd=str(place.path),
        command=text,
        sandbox=confined.description,
        network=confined.network,
        needs_user=confined.needs_user,
        sandboxed=bool(confined.program),
    )
    return facts, confined


def unfit(text: str) -> str:
    """Return why `text` cannot be passed to a program as one argument; empty if it can."""
    if not text.strip():
        return "is empty"
    if "\0" in text:
        return "contains a NUL character"
    if len(text.encode("utf-8")) > MAX_TEXT:
        return f"is longer than {MAX_TEXT:,} bytes; write it to a file with file_write and run the file"
    return ""


def search_path(confined: Confinement) -> str:
    """Return the PATH of programs that run `confined`."""
    return os.pathsep.join(confined.path) or clean_environment(os.environ)["PATH"]


def seconds_left(context: ToolContext) -> float:
    """Return how many seconds a program of the call may run."""
    return max(0.5, context.timeout_s - min(_MARGIN_S, context.timeout_s / 10))


async def run_confined(
    argv: tuple[str, ...],
    *,
    facts: CallFacts,
    context: ToolContext,
    failures: SandboxFailures,
    seconds: float,
    masked: bool,
    environment: Mapping[str, str] = MappingProxyType({}),
    pipeline: tuple[str, ...] = (),
) -> ToolResult:
    """Run `argv` in the folder and at the level that `facts` name, for at most `seconds`.

    `masked`: the sandbox hides files that may hold secrets. `environment` holds further variables. `pipeline` names the
    programs of a command whose exit code is that of the last one.

    Raises ToolFailedError if the program cannot be started, or if its sandbox cannot be set up or is no longer what was
    approved.
    """
    confined = await in_thread(failures.confinement_for, facts.command, cwd=Path(facts.cwd), context=context)
    # The approval is bound to this description: if it differs, so does what was approved.
    if confined.refusal or confined.description != facts.sandbox:
        raise ToolFailedError(
            f"The sandbox has changed since the approval: {confined.description}. The command was not run."
        )
    # Later entries win: no variable that the registry passes on replaces one that the sandbox sets.
    given = {name: os.environ[name] for name in context.sandbox.env if name in os.environ}
    environment = {
        **given,
        **clean_environment(os.environ),
        **confined.toolchains.environment,
        "PATH": search_path(confined),
        **environment,
    }
    if confined.program:
        environment["TMPDIR"] = "/tmp"
    started = time.monotonic()
    try:
        run = await _run(
            argv,
            confined=confined,
            facts=facts,
            context=context,
            failures=failures,
            seconds=seconds,
            masked=masked,
            environment=environment,
        )
    except SandboxSetupError as error:
        raise _not_set_up(str(error), facts=facts, context=context, failures=failures) from error
    except OSError as error:
        raise ToolFailedError(f"The command could not be started: {error.strerror}.") from error
    ended = run.ended
    if not ended.started and ended.code is not None:
        reason = visible(ended.output.text().strip().rpartition("\n")[2] or "it gave no reason", limit=_REASON)
        raise _not_set_up(reason, facts=facts, context=context, failures=failures)
    duration = int((time.monotonic() - started) * 1000)
    cause, needs = _cause(run, argv=argv, confined=confined, context=context)
    failures.learn(facts, context, needs=needs)
    if ended.lost:
        ending = Ending(by=EndedBy.UNKNOWN)
    elif ended.code is None:
        ending = Ending(by=EndedBy.TIME_LIMIT, seconds=seconds)
    else:
        ending = exit_of(ended.code)
    ending = replace(ending, stopped=ended.left, cause="; ".join(filter(None, (cause, *run.left))))
    if pipeline:
        output = ended.output.text()
        names = tuple(visible(name) for name in pipeline)
        missing = tuple(name for name in dict.fromkeys(names) if name and f": {name}: command not found" in output)
        ending = replace(ending, pipeline=names, not_found=missing)
    shown = ended.output.capped(limit=context.max_output_chars - _STATUS_ROOM)
    return ToolResult(
        outcome=Outcome.SUCCESS if ended.code == 0 else Outcome.FAILED,
        content=with_ending(shown.text, ending),
        truncated=shown.truncated,
        duration_ms=duration,
        facts=ResultFacts(ending=ending, refused_hosts=run.unreached),
    )


def _cause(
    run: "_Run", *, argv: tuple[str, ...], confined: Confinement, context: ToolContext
) -> tuple[str, SandboxSpec]:
    """Return what in the sandbox made the command fail, as a clause, and the limits with which it would not."""
    code = run.ended.code
    if run.unreached:
        # The proxy knows this; what the output says of the network follows from it.
        known = context.sandbox.hosts
        refused = tuple(name for name in run.unreached if not any(covers_host(entry, name) for entry in known))
        needs = SandboxSpec(hosts=refused[:_MOST_OFFERED]) if code else NARROWEST
        return f"not reachable from the sandbox: {', '.join(run.unreached[:_MOST_NAMED])}", needs
    if not confined.program or not code:
        return "", NARROWEST
    output = run.ended.output.text()
    return likely_cause(output, code=code, argv=argv, command=run.command, confined=confined, context=context)


async def setup_fault(context: ToolContext) -> str:
    """Return why no command can be run in bubblewrap, as a clause; empty if one can, or if bubblewrap does not work.

    Runs ``true`` in the workspace, as a tool would.
    """
    failures = SandboxFailures()
    facts = CallFacts(arguments="", command="true", cwd=str(context.workspace))
    confined = await in_thread(failures.confinement_for, facts.command, cwd=context.workspace, context=context)
    if not confined.program or confined.refusal:
        return ""
    facts = replace(facts, sandbox=confined.description)
    argv = ("/usr/bin/true",)
    try:
        await run_confined(argv, facts=facts, context=context, failures=failures, seconds=_TRIAL_S, masked=False)
    except ToolFailedError as error:
        return failures.reason(facts, context) or str(error).rstrip(".")
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A command that has ended. `unreached`: hosts that it asked for in vain; `left`: see `git_access.Stage.finish`."""

    command: Command
    ended: Ended
    unreached: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


async def _run(
    argv: tuple[str, ...],
    *,
    confined: Confinement,
    facts: CallFacts,
    context: ToolContext,
    failures: SandboxFailures,
    seconds: float,
    masked: bool,
    environment: dict[str, str],
) -> _Run:
    """Run the command with what its limits need around it: a proxy, a stage, mount points.

    Raises SandboxSetupError or OSError.
    """
    cwd, limits = Path(facts.cwd), context.sandbox
    call = attempt_name(context.call_id, context.attempt)
    left: tuple[str, ...] = ()
    proxy = Proxy(hosts=limits.hosts) if confined.program and limits.hosts and not limits.network else None
    async with AsyncExitStack() as stack:
        stage = None
        if not confined.program:
            command = Command(argv=argv, cwd=cwd, environment=environment, call=call)
            if confined.level is SandboxLevel.LANDLOCK:
                private = stack.enter_context(TemporaryDirectory(prefix="chatops-", ignore_cleanup_errors=True))
                own = {**environment, "HOME": private, "TMPDIR": private}
                limited = landlock_limits(confined, context, private=Path(private))
                command = replace(command, limits=limited, environment=own)
        else:
            # Only a command that may write the workspace itself gets a stage for the repository.
            writes = context.source is None and context.exposure is not Exposure.READ_ONLY
            stage = stack.enter_context(staged(confined.repository if writes else None, limits.git))
            channel = None
            if proxy is not None:
                environment |= proxy_environment(limits.hosts)
                ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
                channel = theirs.fileno()
                await stack.enter_async_context(proxy.serving(ours))
            command = await in_thread(
                sandboxed_command,
                argv,
                confined=confined,
                context=context,
                cwd=cwd,
                environment=environment,
                call=call,
                masked=masked,
                stage=stage,
                channel=channel,
            )
            place = context.source or context.workspace
            stack.enter_context(mount_points(place, protects_git=limits.git != "writable"))
        failures.forget(facts, context)
        keep = context.max_output_chars
        try:
            ended = await run_command(
                command,
                timeout_s=seconds,
                keep=min(keep, MOST_SHOWN),
                output=context.output,
                shown=max(keep, MOST_SHOWN),
            )
        finally:
            try:
                left = stage.finish() if stage is not None else ()
            except OSError as error:
                # The command has run, so its result is not lost to an error.
                left = (f"changes of the files in .git may not have been taken over: {error.strerror}",)
    return _Run(command=command, ended=ended, unreached=tuple(proxy.unreached) if proxy is not None else (), left=left)


def _not_set_up(reason: str, *, facts: CallFacts, context: ToolContext, failures: SandboxFailures) -> ToolFailedError:
    failures.record(facts, context, reason=reason)
    message = f"The command was not run, because its sandbox could not be set up: {reason.rstrip('.')}."
    if not _may_run_unsandboxed(context):
        return ToolFailedError(f"{message} The settings require a sandbox, so it cannot run without one.")
    return ToolFailedError(f"{message} Repeat the call with the same arguments to ask the user to run it unsandboxed.")


_REMOTE_URL = re.compile(r"^\s*(?:push)?url\s*=\s*(\S+)\s*$", re.MULTILINE | re.IGNORECASE)
_WEB = re.compile(r"https?://(?:[^/@\s]*@)?([^/\s]+)", re.IGNORECASE)
_MOST_CONFIG = 100_000
"""Bytes of the settings of git that are read."""
_OPEN = ("/tmp", "/dev", "/proc", "/run", "/var/tmp")
"""Places that the sandbox has for itself."""
_NETWORK = re.compile(
    r"could not resolve host|temporary failure in name resolution|name or service not known|network is unreachable"
    r"|nodename nor servname|failed to resolve|no address associated|getaddrinfo"
    r"|\b(?:EAI_AGAIN|ENETUNREACH|ENOTFOUND)\b|network unreachable|unable to resolve|connection refused|ECONNREFUSED"
    r"|failed to establish a new connection",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"read-only file system|EROFS|Errno 30", re.IGNORECASE)
_HIDDEN = re.compile(r"permission denied|EACCES|Errno 13", re.IGNORECASE)
_CONFIGURES = re.compile(r"\.git/(?:config|hooks|info|modules|worktrees)\b")
_MISSING = re.compile(
    r"command not found|no such file or directory|required file not found|no module named|bad interpreter",
    re.IGNORECASE,
)
_NOT_FOUND = 127


def likely_cause(
    output: str,
    *,
    code: int,
    argv: tuple[str, ...],
    command: Command,
    confined: Confinement,
    context: ToolContext,
) -> tuple[str, SandboxSpec]:
    """Return which part of the sandbox made `argv` fail with `code`, and the limits with which it would not.

    `command` is `argv` wrapped in its sandbox. Empty if the output gives no hint.
    """
    spec = context.sandbox
    refused = [line for line in output.splitlines() if _READ_ONLY.search(line)]
    if any(".git" in line for line in refused) and spec.git != "writable":
        configures = spec.git == "commit" or any(_CONFIGURES.search(line) for line in refused)
        needs = SandboxSpec(git="writable" if configures else "commit")
        what = "config, hooks and info in .git are" if spec.git == "commit" else ".git is"
        return _with_remedy(f"{what} read-only in the sandbox", f'"git": "{needs.git}"', context=context), needs
    if refused and context.exposure is Exposure.READ_ONLY:
        return 'the rule that allows this command makes the workspace read-only ("workspace": "read")', NARROWEST
    if refused:
        return "the sandbox allows writing only in the workspace", NARROWEST
    if hidden := _masked(output, command, workspace=context.workspace):
        return f"hidden from commands that a rule allows: {', '.join(hidden)}", NARROWEST
    words = argv[-1].split() if argv[:2] == ("/bin/bash", "-c") else argv
    missing = unseen(words[0], cwd=command.cwd, confined=confined, context=context)
    if missing and (code == _NOT_FOUND or _MISSING.search(output)):
        shown = [visible(folder, limit=200) for folder in missing]
        what = f"the sandbox does not show {' and '.join(shown)}"
        text = _with_remedy(what, f'"read": {json.dumps(shown)}', context=context)
        return text, SandboxSpec(read=missing)
    if not spec.network and _NETWORK.search(output):
        return _with_remedy("the sandbox has no network", '"network": true', context=context), SandboxSpec(network=True)
    return "", NARROWEST


def _with_remedy(what: str, setting: str, *, context: ToolContext) -> str:
    """Return the clause `what`, followed by what the user can do: allow it once, or `setting` in the registry."""
    once = "+ in the dialog of the repeated call allows it once"
    if context.contained:
        # Calls in the copy do not ask.
        return f"{what}; /contain off ends the containment, then {once}"
    return f'{what}; {once}, "sandbox": {{{setting}}} in the registry changes that'


def _masked(output: str, command: Command, *, workspace: Path) -> list[str]:
    """Return the masked files that, by the output, could not be opened."""
    words = command.argv
    empty = [at for at, word in enumerate(words) if word == "--ro-bind" and words[at + 1] == "/dev/null"]
    errors = "\n".join(line for line in output.splitlines() if _HIDDEN.search(line))
    found = [words[at + 2] for at in empty if os.path.basename(words[at + 2]) in errors]
    return [visible(os.path.relpath(path, workspace), limit=100) for path in found[:_MOST_NAMED]]


def with_lacks(
    facts: CallFacts, *, confined: Confinement, best: SandboxLevel, context: ToolContext, seen: Iterable[Lack]
) -> CallFacts:
    """Add to the facts of a confined shell command what it will probably lack, and what the user can give it.

    `best` is the highest level to use. `seen` are the lacks for which the same command failed before. What the ceiling
    forbids is not offered.
    """
    if confined.level is SandboxLevel.NONE or facts.interpreter or context.source is not None:
        return facts
    spec = context.sandbox
    lacks = [*seen, *_by_words(facts.command, cwd=Path(facts.cwd), confined=confined, context=context)]
    lacks = [replace(lack, needs=_with_exact_hosts(lack.needs)) for lack in dict.fromkeys(lacks)]
    lacks = [lack for lack in lacks if widened(spec, lack.needs) != spec]
    wanted = reduce(widened, (lack.needs for lack in lacks), spec)
    given = limited_by(context.ceiling, wanted)
    extra = _more(given, than=spec)
    if extra == NARROWEST:
        return replace(facts, lacks=tuple(lacks))
    shown = confinement(given, workspace=context.workspace, best=best)
    return replace(facts, lacks=tuple(lacks), extra=extra, extra_sandbox=shown.description)


def _with_exact_hosts(needs: SandboxSpec) -> SandboxSpec:
    """Leave out hosts that are not one host: they stem from words of a command, and a pattern means many."""
    exact = (host for host in needs.hosts if "*" not in host and not host_problem(host))
    return replace(needs, hosts=tuple(exact))


def _more(spec: SandboxSpec, *, than: SandboxSpec) -> SandboxSpec:
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


def _by_words(command: str, *, cwd: Path, confined: Confinement, context: ToolContext) -> Iterator[Lack]:
    known, spec = effects(command), context.sandbox
    for need in known.needs:
        # Without bubblewrap there is no proxy, and .git is as writable as the workspace.
        yield from _of_need(need, spec=spec, bubblewrap=bool(confined.program), context=context)
    for program in known.programs:
        if "/" not in program and shutil.which(program, path=os.pathsep.join(confined.path)):
            continue
        for folder in unseen(program, cwd=cwd, confined=confined, context=context):
            yield Lack(by=program, needs=SandboxSpec(read=(folder,)))
    for target in known.writes:
        if folder := _folder_outside(target, cwd=cwd, spec=spec, context=context):
            yield Lack(by=f"writing {target}", needs=SandboxSpec(write=(folder,)))


def _of_need(need: Need, *, spec: SandboxSpec, bubblewrap: bool, context: ToolContext) -> Iterator[Lack]:
    match need.kind:
        case NeedKind.COMMIT | NeedKind.CONFIGURE:
            wanted: GitAccess = "commit" if need.kind is NeedKind.COMMIT else "writable"
            if bubblewrap and (context.workspace / ".git").exists():
                yield Lack(by=need.by, needs=SandboxSpec(git=wanted))
        case NeedKind.NETWORK if not spec.network and not bubblewrap:
            yield Lack(by=need.by, needs=SandboxSpec(network=True))
        case NeedKind.NETWORK if not spec.network:
            hosts = need.hosts or (_remote_hosts(context) if need.by.startswith("git ") else ())
            missing = tuple(host for host in hosts if not any(covers_host(listed, host) for listed in spec.hosts))
            if missing:
                yield Lack(by=need.by, needs=SandboxSpec(hosts=missing))
            elif not hosts and not spec.hosts:
                # With hosts in the settings, those that are not known here are probably among them.
                yield Lack(by=need.by, needs=SandboxSpec(network=True))
        case _:
            pass


def _remote_hosts(context: ToolContext) -> tuple[str, ...]:
    """Return the hosts of the repository's remotes if all are reached by HTTP, else nothing."""
    try:
        with opened_file(context.workspace / ".git" / "config", context=context) as descriptor:
            text = os.read(descriptor, _MOST_CONFIG).decode("utf-8", "replace")
    except (OSError, ToolFailedError):
        return ()
    remotes = [_WEB.match(url) for url in _REMOTE_URL.findall(text)]
    return tuple(dict.fromkeys(found[1] for found in remotes if found)) if all(remotes) else ()


def unseen(program: str, *, cwd: Path, confined: Confinement, context: ToolContext) -> tuple[str, ...]:
    """Return the environments that a program needs and the sandbox does not show."""
    found = os.path.join(cwd, program) if "/" in program else shutil.which(program)
    if not found:
        return ()
    installed = program_at(Path(found), workspace=context.workspace).shown
    # A script in a virtual environment needs the interpreter there, which in turn needs its base installation.
    needed = [found, os.path.join(os.path.dirname(found), "python")]
    linked = [Path(place) for path in needed for place in (path, os.path.realpath(path)) if os.path.exists(path)]
    beside = (place for place in linked if not any(place.is_relative_to(root) for root in installed))
    hidden = (
        place
        for place in (*installed, *beside)
        if not is_visible(place, confined=confined, spec=context.sandbox, workspace=context.workspace)
    )
    folders = (_environment(place, context=context) for place in hidden)
    return tuple(dict.fromkeys(str(folder) for folder in folders if not _holds_more(folder, context=context)))


def _environment(program: Path, *, context: ToolContext) -> Path:
    """Return the virtual environment or installation that is or contains `program`, otherwise its folder."""
    if program.is_dir():
        return program
    folder = program.parent.parent if program.parent.name in ("bin", "sbin") else program.parent
    # Not the whole home folder for a program in ~/bin.
    return program.parent if _holds_more(folder, context=context) else folder


def _folder_outside(target: str, *, cwd: Path, spec: SandboxSpec, context: ToolContext) -> str:
    """Return the folder outside the workspace that a write to `target` needs; empty if it needs none or may not."""
    path = Path(os.path.realpath(os.path.join(cwd, os.path.expanduser(target))))
    if path.is_relative_to(context.workspace) or any(path.is_relative_to(place) for place in (*_OPEN, *spec.write)):
        return ""
    folder = path.parent
    return str(folder) if folder.is_dir() and not _holds_more(folder, context=context) else ""


def _holds_more(folder: Path, *, context: ToolContext) -> bool:
    """Return True if `folder` holds what no command gets with it: the workspace, a home folder, credentials."""
    kept = (*context.protected, *home_secrets())
    holds = any(place.is_relative_to(folder) or folder.is_relative_to(place) for place in kept)
    return holds or any(place.is_relative_to(folder) for place in (context.workspace, *home_folders()))

"""Run one program for a tool at the sandbox level in force, and describe its end for the model.

`shell_exec` and `python_exec` share this, so both get the same environment, limits and clean-up.

A command whose sandbox could not be set up is not run unsandboxed instead. The failure is recorded. The next call of
exactly the same command in the same session is inspected as an unsandboxed one and waits for the user's decision,
whatever the rules say. When it runs, the record is removed.
"""

import os
import socket
import stat
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from chatops.domain.endings import EndedBy, Ending, exit_of, with_ending
from chatops.domain.errors import ToolFailedError
from chatops.domain.sandbox import NARROWEST, Lack, SandboxLevel, SandboxSpec
from chatops.domain.tools import CallFacts, Exposure, Outcome, Problem, ResultFacts, ToolResult
from chatops.policy.sandbox import covers_host
from chatops.sandbox.confinement import Confinement, WorkspaceAccess, confinement, landlock_limits, sandboxed_command
from chatops.sandbox.covers import SandboxSetupError, mount_points
from chatops.sandbox.git_access import Stage, staged
from chatops.sandbox.lacks import likely_cause
from chatops.sandbox.process import MOST_SHOWN, Command, Ended, attempt_name, clean_environment, run_command
from chatops.sandbox.proxy import Proxy, proxy_environment
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import locate, with_place, world_problem
from chatops.toolkit.output import EMPTY, visible
from chatops.toolkit.threads import in_thread

MAX_TEXT = 100_000
"""Maximum number of bytes of a command or of code; Linux limits one argument of a program to 128 KiB."""
_MARGIN_S = 1.0
"""Seconds by which the tool ends before the runtime's own limit, so that the output so far is not lost."""
_STATUS_ROOM = 600
_TRIAL_S = 30.0
_REASON = 160
_MOST_NAMED = 3
_MOST_OFFERED = 8
"""Maximum number of hosts that one key gives to a call."""
NO_SANDBOX = "it would run outside the sandbox, which could not be set up for it"

_Command = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class SandboxFailures:
    """Sandbox failures by session, command and folder, kept while the app runs. `best`: the highest level to use."""

    best: SandboxLevel = SandboxLevel.HARD
    _failures: dict[_Command, str] = field(default_factory=dict)
    _lacks: dict[_Command, SandboxSpec] = field(default_factory=dict)
    """Limits that commands probably failed at, by command."""

    def level(self, command: str, *, cwd: Path, context: ToolContext) -> Confinement:
        """Return how `command` would be confined. May run the sandbox's probe: call it in a thread."""
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

    def _key(self, facts: CallFacts, context: ToolContext) -> _Command:
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
        return replace(facts, problems=(Problem(path=field, message=problem),)), None
    place = locate(cwd, context=context, field="cwd")
    facts = replace(with_place(facts, place), paths=(), caution="")
    if not place.usable:
        return facts, None
    if place.info is None or not stat.S_ISDIR(place.info.st_mode):
        return world_problem(facts, "is not a folder", field="cwd", given=cwd), None
    level = failures.level(text, cwd=place.path, context=context)
    facts = replace(
        facts,
        refusal=level.refusal,
        cwd=str(place.path),
        command=text,
        sandbox=level.description,
        network=level.network,
        needs_user=level.needs_user,
        sandboxed=bool(level.program),
    )
    return facts, level


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
    level = await in_thread(failures.level, facts.command, cwd=Path(facts.cwd), context=context)
    if level.refusal or level.description != facts.sandbox:
        raise ToolFailedError(
            f"The sandbox has changed since the approval: {level.description}. The command was not run."
        )
    given = {name: os.environ[name] for name in context.sandbox.env if name in os.environ}
    environment = {
        **given,
        **clean_environment(os.environ),
        **level.toolchains.environment,
        "PATH": search_path(level),
        **environment,
    }
    if level.program:
        environment["TMPDIR"] = "/tmp"
    started = time.monotonic()
    try:
        run = await _run(
            argv,
            level=level,
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
    causes, needs = [], NARROWEST
    if level.program and ended.code:
        output = ended.output.text()
        cause, needs = likely_cause(
            output, code=ended.code, argv=argv, command=run.command, confined=level, context=context
        )
        causes.append(cause)
    if run.unreached:
        # The proxy knows this; what the output says of the network follows from it.
        causes = [f"not reachable from the sandbox: {', '.join(run.unreached[:_MOST_NAMED])}"]
        known = context.sandbox.hosts
        refused = tuple(name for name in run.unreached if not any(covers_host(entry, name) for entry in known))
        needs = SandboxSpec(hosts=refused[:_MOST_OFFERED]) if ended.code else NARROWEST
    failures.learn(facts, context, needs=needs)
    causes += run.left
    cause = "; ".join(filter(None, causes))
    ending = replace(_ending(ended, seconds=seconds), stopped=ended.left, cause=cause)
    if pipeline:
        output = ended.output.text()
        names = tuple(visible(name) for name in pipeline)
        missing = tuple(name for name in dict.fromkeys(names) if name and f": {name}: command not found" in output)
        ending = replace(ending, pipeline=names, not_found=missing)
    return _result(run, ending=ending, limit=context.max_output_chars, duration_ms=duration)


async def setup_fault(context: ToolContext) -> str:
    """Return why no command can be run in bubblewrap, as a clause; empty if one can, or if bubblewrap does not work.

    Runs ``true`` in the workspace, as a tool would.
    """
    failures = SandboxFailures()
    facts = CallFacts(arguments="", command="true", cwd=str(context.workspace))
    level = await in_thread(failures.level, facts.command, cwd=context.workspace, context=context)
    if not level.program or level.refusal:
        return ""
    facts = replace(facts, sandbox=level.description)
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
    level: Confinement,
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
    cwd = Path(facts.cwd)
    call = attempt_name(context.call_id, context.attempt)
    if not level.program:
        failures.forget(facts, context)
        command = Command(argv=argv, cwd=cwd, environment=environment, call=call)
        if level.level is SandboxLevel.NONE:
            return _Run(command=command, ended=await _ended(command, seconds=seconds, context=context))
        with TemporaryDirectory(prefix="chatops-", ignore_cleanup_errors=True) as private:
            limits_text = landlock_limits(level, context, private=Path(private))
            own = {**environment, "HOME": private, "TMPDIR": private}
            command = replace(command, limits=limits_text, environment=own)
            return _Run(command=command, ended=await _ended(command, seconds=seconds, context=context))
    limits = context.sandbox
    left: tuple[str, ...] = ()
    proxy = Proxy(hosts=limits.hosts) if limits.hosts and not limits.network else None
    async with AsyncExitStack() as stack:
        stage = stack.enter_context(_staged(level, context))
        channel = None
        if proxy is not None:
            environment |= proxy_environment(limits.hosts)
            ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
            channel = theirs.fileno()
            await stack.enter_async_context(proxy.serving(ours))
        command = await in_thread(
            sandboxed_command,
            argv,
            confined=level,
            context=context,
            cwd=cwd,
            environment=environment,
            call=call,
            masked=masked,
            stage=stage,
            channel=channel,
        )
        stack.enter_context(mount_points(context.source or context.workspace, protects_git=limits.git != "writable"))
        failures.forget(facts, context)
        try:
            ended = await _ended(command, seconds=seconds, context=context)
        finally:
            left = _finished(stage) if stage is not None else ()
    return _Run(command=command, ended=ended, unreached=tuple(proxy.unreached) if proxy is not None else (), left=left)


def _finished(stage: Stage) -> tuple[str, ...]:
    """Return what was not taken over from the stage: the command has run, so its result is not lost to an error."""
    try:
        return stage.finish()
    except OSError as error:
        return (f"changes of the files in .git may not have been taken over: {error.strerror}",)


async def _ended(command: Command, *, seconds: float, context: ToolContext) -> Ended:
    keep = context.max_output_chars
    return await run_command(
        command, timeout_s=seconds, keep=min(keep, MOST_SHOWN), output=context.output, shown=max(keep, MOST_SHOWN)
    )


def _staged(level: Confinement, context: ToolContext) -> AbstractContextManager[Stage | None]:
    """Return a stage for the repository if the command gets one."""
    writes = context.source is None and context.exposure is not Exposure.READ_ONLY
    return staged(level.repository if writes else None, context.sandbox.git)


def _not_set_up(reason: str, *, facts: CallFacts, context: ToolContext, failures: SandboxFailures) -> ToolFailedError:
    failures.record(facts, context, reason=reason)
    return ToolFailedError(_no_sandbox(reason, may_run_unsandboxed=_may_run_unsandboxed(context)))


def _no_sandbox(reason: str, *, may_run_unsandboxed: bool) -> str:
    message = f"The command was not run, because its sandbox could not be set up: {reason.rstrip('.')}."
    if not may_run_unsandboxed:
        return f"{message} The settings require a sandbox, so it cannot run without one."
    return f"{message} Repeat the call with the same arguments to ask the user to run it unsandboxed."


def _result(run: _Run, *, ending: Ending, limit: int, duration_ms: int) -> ToolResult:
    ended = run.ended
    shown = ended.output.capped(limit=limit - _STATUS_ROOM)
    return ToolResult(
        outcome=Outcome.SUCCESS if ended.code == 0 else Outcome.FAILED,
        content=with_ending(shown.text, ending) or EMPTY,
        truncated=shown.truncated,
        duration_ms=duration_ms,
        facts=ResultFacts(ending=ending, refused_hosts=run.unreached),
    )


def _ending(ended: Ended, *, seconds: float) -> Ending:
    if ended.lost:
        return Ending(by=EndedBy.UNKNOWN)
    if ended.code is None:
        return Ending(by=EndedBy.TIME_LIMIT, seconds=seconds)
    return exit_of(ended.code)

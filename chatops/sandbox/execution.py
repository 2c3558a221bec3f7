"""Run one program for a tool at the sandbox level in force, and describe its end.

`shell_exec` and `python_exec` share this, so both get the same environment, limits and clean-up.

A command whose sandbox could not be set up is not run unsandboxed instead. The failure is recorded. The next call of
exactly the same command in the same session is inspected as an unsandboxed one and waits for the user's decision,
whatever the rules say. When it runs, the record is removed.
"""

import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType

from chatops.config.paths import remove_left_folders, temporary_folder
from chatops.domain.endings import EndedBy, Ending, exit_of, with_ending
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import NARROWEST, Lack, SandboxLevel, SandboxSpec
from chatops.domain.tools import CallFacts, Exposure, Outcome, ResultFacts, ToolResult
from chatops.sandbox.confinement import Confinement, WorkspaceAccess, confinement, landlock_limits, sandboxed_command
from chatops.sandbox.covers import SandboxSetupError
from chatops.sandbox.credentials import credential_environment, used_credentials
from chatops.sandbox.git_access import Stage, stage_for
from chatops.sandbox.lacks import NO_CAUSE, Cause, likely_cause, unreached_cause
from chatops.sandbox.mount_points import mount_points
from chatops.sandbox.orphans import attempt_name
from chatops.sandbox.process import MAX_SHOWN, Command, EndedCommand, clean_environment, run_command
from chatops.sandbox.proxy import Proxy, proxy_environment
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import locate, with_place, with_problem, with_solvable_problem
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
_MAX_REASON = 160
"""Maximum length of bubblewrap's own message, in characters."""
NO_SANDBOX = "it would run outside the sandbox, which could not be set up for it"


@frozen_dataclass(kw_only=False)
class SandboxFailures:
    """Failures of the sandbox, and what commands lacked in it, by session, command and folder, while the app runs."""

    best: SandboxLevel = SandboxLevel.HARD
    """The highest level to use."""
    _failures: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _lacks: dict[tuple[str, str, str], SandboxSpec] = field(default_factory=dict)
    """Limits that commands probably failed at, by command."""

    def confinement_for(self, command: str, *, cwd: Path, context: ToolContext) -> Confinement:
        """Return the confinement in which `command` would run. May run the sandbox's probe: call it in a thread."""
        # A copy has no virtual environment: the commands that run in it see that of the workspace.
        workspace = context.original or context.workspace
        confined = confinement(
            context.sandbox,
            workspace=workspace,
            best=self.best,
            access=WorkspaceAccess.WRITABLE if context.source is None else WorkspaceAccess.COPY,
            protected=context.protected,
        )
        reason = self._failures.get(_key(command, str(cwd), context))
        if reason is None or not confined.program or not _may_run_unsandboxed(context):
            return confined
        return Confinement(
            description=f"off (it could not be set up for this command: {reason})", needs_user=NO_SANDBOX
        )

    def record(self, facts: CallFacts, context: ToolContext, *, reason: str) -> None:
        """Record that the sandbox could not be set up for this call."""
        self._failures[_key(facts.command, facts.cwd, context)] = reason

    def reason(self, facts: CallFacts, context: ToolContext) -> str:
        """Return why the sandbox could not be set up for this call; empty if it could."""
        return self._failures.get(_key(facts.command, facts.cwd, context), "")

    def forget(self, facts: CallFacts, context: ToolContext) -> None:
        """Forget the failure of a call that runs now, so that the next one tries the sandbox again."""
        self._failures.pop(_key(facts.command, facts.cwd, context), None)

    def learn(self, facts: CallFacts, context: ToolContext, *, needs: SandboxSpec) -> None:
        """Keep what the command probably lacked in its sandbox, for the dialog of its repetition."""
        self._lacks[_key(facts.command, facts.cwd, context)] = needs

    def lacks(self, facts: CallFacts, context: ToolContext) -> tuple[Lack, ...]:
        """Return what this command probably lacked when it ran last."""
        needs = self._lacks.get(_key(facts.command, facts.cwd, context), NARROWEST)
        return (Lack(by="it", needs=needs, seen=True),) if needs != NARROWEST else ()


def _key(command: str, cwd: str, context: ToolContext) -> tuple[str, str, str]:
    return (context.session_id, command, cwd)


def _may_run_unsandboxed(context: ToolContext) -> bool:
    """Return True if the user may allow a command of this call outside the sandbox."""
    return not context.sandbox.require and context.source is None


@frozen_dataclass
class ConfinedCall:
    """The facts of a call that runs a program, and how the program would be confined."""

    facts: CallFacts
    confined: Confinement


def inspect_program(
    text: str, *, field: str, cwd: str, facts: CallFacts, context: ToolContext, failures: SandboxFailures
) -> ConfinedCall | CallFacts:
    """Inspect a call that runs `text`, the argument `field`, in the folder `cwd`.

    Returns only facts, which say why, if the call cannot run. May run the sandbox's probe: call it in a thread.
    """
    if problem := argument_fault(text):
        return with_problem(facts, field, problem)
    place = locate(cwd, context=context, field="cwd")
    facts = replace(with_place(facts, place), paths=(), caution="")
    if not place.usable:
        return facts
    if place.info is None or not stat.S_ISDIR(place.info.st_mode):
        return with_solvable_problem(facts, "is not a folder", field="cwd", given=cwd)
    confined = failures.confinement_for(text, cwd=place.path, context=context)
    facts = replace(
        facts,
        refusal=confined.refusal,
        cwd=str(place.path),
        command=text,
        sandbox=confined.description,
        network=confined.network,
        needs_user=confined.needs_user,
        credentials=confined.credentials,
        sandboxed=bool(confined.program),
    )
    return ConfinedCall(facts=facts, confined=confined)


def argument_fault(text: str) -> str:
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


def base_environment(spec: SandboxSpec, confined: Confinement) -> dict[str, str]:
    """Return the environment of a program under `spec`, before what it is given itself.

    No variable that the registry passes on replaces one that the sandbox sets.
    """
    hidden = {credential.env for credential in spec.credentials}
    passed_on = {name: os.environ[name] for name in spec.env if name in os.environ and name not in hidden}
    return {
        **passed_on,
        **clean_environment(os.environ),
        **confined.toolchains.environment,
        "PATH": search_path(confined),
    }


@frozen_dataclass
class Prepared:
    """A command as it is started, wrapped in its limits."""

    command: Command
    unreached: Sequence[str] = ()
    """Hosts that the proxy has not reached so far. It grows while the command runs."""


@asynccontextmanager
async def set_up(
    command: Command,
    *,
    confined: Confinement,
    context: ToolContext,
    masked: bool,
    stage: Stage | None = None,
    serves: bool = False,
) -> AsyncIterator[Prepared]:
    """Yield `command` under the limits of `context`, with what these need around it.

    The arguments are those of `sandboxed_command`. Raises SandboxSetupError or OSError.
    """
    async with AsyncExitStack() as stack:
        if confined.program:
            yield await _put_in_bubblewrap(
                command, stack, confined=confined, context=context, masked=masked, stage=stage, serves=serves
            )
        elif confined.level is SandboxLevel.LANDLOCK:
            private = stack.enter_context(temporary_folder())
            limited = landlock_limits(confined, context, private=private)
            own = {**command.environment, "HOME": str(private), "TMPDIR": str(private)}
            yield Prepared(command=replace(command, limits=limited, environment=own))
        else:
            yield Prepared(command=command)


async def _put_in_bubblewrap(
    command: Command,
    stack: AsyncExitStack,
    *,
    confined: Confinement,
    context: ToolContext,
    masked: bool,
    stage: Stage | None,
    serves: bool,
) -> Prepared:
    """Wrap a command in bubblewrap. Its proxy and its mount points stay until `stack` is closed."""
    limits, unreached = context.sandbox, list[str]()
    environment = {**command.environment, "TMPDIR": "/tmp"}
    channel = None
    used = used_credentials(limits)
    if (limits.hosts or used) and not limits.network:
        environment |= proxy_environment((*limits.hosts, *(use.credential.name for use in used)))
        environment |= credential_environment(used, environment)
        ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
        channel = theirs.fileno()
        proxy = Proxy(hosts=limits.hosts, credentials=used, unreached=unreached)
        await stack.enter_async_context(proxy.serving(ours))
    wrapped = await in_thread(
        sandboxed_command,
        command.argv,
        confined=confined,
        context=context,
        cwd=command.cwd,
        environment=environment,
        call=command.call,
        masked=masked,
        stage=stage,
        channel=channel,
        serves=serves,
    )
    place = context.source or context.workspace
    stack.enter_context(mount_points(place, protects_git=limits.git != "writable"))
    return Prepared(command=wrapped, unreached=unreached)


def program_seconds(context: ToolContext) -> float:
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
    failures.forget(facts, context)
    command = Command(
        argv=argv,
        cwd=Path(facts.cwd),
        environment={**base_environment(context.sandbox, confined), **environment},
        call=attempt_name(context.call_id, context.attempt),
    )
    started = time.monotonic()
    try:
        run = await _run_in_sandbox(command, confined=confined, context=context, seconds=seconds, masked=masked)
    except SandboxSetupError as error:
        raise _record_failure(str(error), facts=facts, context=context, failures=failures) from error
    except OSError as error:
        raise ToolFailedError(f"The command could not be started: {error.strerror}.") from error
    duration = int((time.monotonic() - started) * 1000)
    cause = _find_cause(run, argv=argv, confined=confined, context=context)
    failures.learn(facts, context, needs=cause.needs)
    ending = _ending_of(run.ended, seconds=seconds, pipeline=pipeline)
    ending = replace(ending, cause="; ".join(filter(None, (cause.text, *run.untaken))))
    shown = run.ended.output.capped(limit=context.max_output_chars - _STATUS_ROOM)
    return ToolResult(
        outcome=Outcome.SUCCESS if run.ended.code == 0 else Outcome.FAILED,
        content=with_ending(shown.text, ending),
        truncated=shown.truncated,
        duration_ms=duration,
        facts=ResultFacts(ending=ending, refused_hosts=run.unreached),
    )


def _ending_of(ended: EndedCommand, *, seconds: float, pipeline: tuple[str, ...]) -> Ending:
    """Return how the command ended, and which programs of `pipeline` were not found."""
    if ended.lost:
        ending = Ending(by=EndedBy.UNKNOWN)
    elif ended.code is None:
        ending = Ending(by=EndedBy.TIME_LIMIT, seconds=seconds)
    else:
        ending = exit_of(ended.code)
    output = ended.output.text() if pipeline else ""
    names = tuple(visible(name) for name in pipeline)
    missing = tuple(name for name in dict.fromkeys(names) if name and f": {name}: command not found" in output)
    return replace(ending, stopped=ended.stopped, pipeline=names, not_found=missing)


def _find_cause(run: "_EndedRun", *, argv: tuple[str, ...], confined: Confinement, context: ToolContext) -> Cause:
    """Return what in the sandbox made the command fail; `NO_CAUSE` if it did not fail, or not for that."""
    code = run.ended.code
    if run.unreached:
        # The proxy knows this; what the output says of the network follows from it.
        return unreached_cause(run.unreached, code=code, spec=context.sandbox)
    if not confined.program or not code:
        return NO_CAUSE
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


@frozen_dataclass
class _EndedRun:
    """A command that has ended."""

    command: Command
    """As it was started, wrapped in its limits."""
    ended: EndedCommand
    unreached: tuple[str, ...]
    """Hosts that it asked for in vain."""
    untaken: tuple[str, ...]
    """Its changes in .git that were not taken over, as clauses."""


async def _run_in_sandbox(
    command: Command, *, confined: Confinement, context: ToolContext, seconds: float, masked: bool
) -> _EndedRun:
    """Run the command with what its limits need around it. Raises SandboxSetupError or OSError."""
    # Only a command that may write the workspace itself gets a stage for the repository.
    writes = confined.program and context.source is None and context.exposure is not Exposure.READ_ONLY
    max_chars, untaken = context.max_output_chars, tuple[str, ...]()
    await in_thread(remove_left_folders)
    with stage_for(confined.repository if writes else None, context.sandbox.git) as stage:
        ready = set_up(command, confined=confined, context=context, masked=masked, stage=stage)
        async with ready as prepared:
            try:
                ended = await run_command(
                    prepared.command,
                    timeout_s=seconds,
                    keep=min(max_chars, MAX_SHOWN),
                    output=context.output,
                    # No less is shown than the result may hold.
                    max_shown=max(max_chars, MAX_SHOWN),
                )
            finally:
                try:
                    untaken = stage.finish() if stage is not None else ()
                except OSError as error:
                    # The command has run, so its result is not lost to an error.
                    untaken = (f"changes of the files in .git may not have been taken over: {error.strerror}",)
    if not ended.started and ended.code is not None:
        last_line = ended.output.text().strip().rpartition("\n")[2]
        raise SandboxSetupError(visible(last_line or "it gave no reason", limit=_MAX_REASON))
    return _EndedRun(command=prepared.command, ended=ended, unreached=tuple(prepared.unreached), untaken=untaken)


def _record_failure(
    reason: str, *, facts: CallFacts, context: ToolContext, failures: SandboxFailures
) -> ToolFailedError:
    failures.record(facts, context, reason=reason)
    message = f"The command was not run, because its sandbox could not be set up: {reason.rstrip('.')}."
    if not _may_run_unsandboxed(context):
        return ToolFailedError(f"{message} The settings require a sandbox, so it cannot run without one.")
    return ToolFailedError(f"{message} Repeat the call with the same arguments to ask the user to run it unsandboxed.")

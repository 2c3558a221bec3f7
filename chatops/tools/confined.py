"""Run one program for a tool at the sandbox level in force, and describe its end for the model.

Every tool that starts programs uses this module, so all of them get the same environment, limits and clean-up.
"""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType

from chatops.domain import endings
from chatops.domain.errors import ToolFailedError
from chatops.domain.tools import CallFacts, Exposure, Outcome, ToolResult
from chatops.tools.base import ToolContext
from chatops.tools.causes import likely_cause
from chatops.tools.left_over import named
from chatops.tools.output import EMPTY, visible
from chatops.tools.outside import Outside
from chatops.tools.process import Command, Ended, clean_environment, run_command
from chatops.tools.sandbox import Level, SandboxSetupError, mount_point, sandboxed
from chatops.tools.threads import in_thread

MAX_TEXT = 100_000
"""Most bytes of a command or of code; Linux limits one argument of a program to 128 KiB."""
_MARGIN_S = 1.0
"""Seconds by which the tool ends before the runtime's own limit, so that the output so far is not lost."""
_STATUS_ROOM = 600
_REASON = 160


def unfit(text: str) -> str:
    """Return why `text` cannot be passed to a program as one argument; empty if it can."""
    if not text.strip():
        return "is empty"
    if "\0" in text:
        return "contains a NUL character"
    if len(text.encode("utf-8")) > MAX_TEXT:
        return f"is longer than {MAX_TEXT:,} bytes; write it to a file with file_write and run the file"
    return ""


def search_path(level: Level) -> str:
    """Return the PATH of programs that run at `level`."""
    return os.pathsep.join(level.path) or clean_environment(os.environ)["PATH"]


def seconds_left(context: ToolContext) -> float:
    """Return how many seconds a program of the call may run."""
    return max(0.5, context.timeout_s - min(_MARGIN_S, context.timeout_s / 10))


async def run_confined(
    argv: tuple[str, ...],
    *,
    facts: CallFacts,
    context: ToolContext,
    outside: Outside,
    seconds: float,
    masked: bool,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> ToolResult:
    """Run `argv` in the folder and at the level that `facts` name, for at most `seconds`.

    `masked`: the sandbox hides files that may hold secrets. `environment` holds further variables.

    Raises ToolFailedError if the program cannot be started, or if its sandbox cannot be set up or is no longer what was
    approved.
    """
    settings = outside.settings
    level = await in_thread(outside.level, facts.command, cwd=Path(facts.cwd), context=context)
    if level.refusal or level.words != facts.sandbox:
        raise ToolFailedError(f"The sandbox has changed since the approval: {level.words}. The command was not run.")
    environment = {**clean_environment(os.environ), "PATH": search_path(level), **environment}
    cwd = Path(facts.cwd)
    call = named(context.call_id, context.attempt)
    if level.program:
        environment["TMPDIR"] = "/tmp"
        try:
            command = await in_thread(
                sandboxed,
                argv,
                level=level,
                settings=settings,
                workspace=context.workspace,
                protected=context.protected,
                cwd=cwd,
                environment=environment,
                call=call,
                read_only=context.exposure is Exposure.READ_ONLY,
                masked=masked,
            )
        except SandboxSetupError as error:
            raise _not_set_up(str(error), facts=facts, context=context, outside=outside) from error
    else:
        command = Command(argv=argv, cwd=cwd, environment=environment, call=call)
    outside.forget(facts, context)
    started = time.monotonic()
    try:
        with mount_point(context.workspace) if level.program else nullcontext():
            ended = await run_command(command, timeout_s=seconds, keep=context.max_output_chars, output=context.output)
    except OSError as error:
        raise ToolFailedError(f"The command could not be started: {error.strerror}.") from error
    if not ended.begun and ended.code is not None:
        reason = visible(ended.output.text().strip().rpartition("\n")[2] or "it gave no reason", limit=_REASON)
        raise _not_set_up(reason, facts=facts, context=context, outside=outside)
    duration = int((time.monotonic() - started) * 1000)
    cause = ""
    if level.program and ended.code:
        cause = likely_cause(
            ended.output.text(), code=ended.code, argv=argv, command=command, settings=settings, context=context
        )
    return _result(ended, seconds=seconds, limit=context.max_output_chars, duration_ms=duration, cause=cause)


def _not_set_up(reason: str, *, facts: CallFacts, context: ToolContext, outside: Outside) -> ToolFailedError:
    outside.note(facts, context, reason=reason)
    return ToolFailedError(_no_sandbox(reason, offered=outside.offered))


def _no_sandbox(reason: str, *, offered: bool) -> str:
    told = f"The command was not run, because its sandbox could not be set up: {reason.rstrip('.')}."
    if not offered:
        return f"{told} The settings require a sandbox, so it cannot run without one."
    return f"{told} Repeat the call with the same arguments to ask the user to run it unsandboxed."


def _result(ended: Ended, *, seconds: float, limit: int, duration_ms: int, cause: str) -> ToolResult:
    shown = ended.output.capped(limit=limit - _STATUS_ROOM)
    stopped = endings.left(ended.left) if ended.left else ""
    return ToolResult(
        outcome=Outcome.SUCCESS if ended.code == 0 else Outcome.FAILED,
        content=endings.closed(
            shown.text,
            how=_how(ended, seconds=seconds),
            stopped=stopped,
            cause=endings.caused(cause) if cause else "",
        )
        or EMPTY,
        truncated=shown.truncated,
        duration_ms=duration_ms,
    )


def _how(ended: Ended, *, seconds: float) -> str:
    if ended.lost:
        return endings.LOST
    if ended.code is None:
        return endings.stopped_after(seconds)
    return _exit(ended.code) if ended.code else ""


def _exit(code: int) -> str:
    number = -code if code < 0 else code - 128 if code > 128 else 0
    try:
        name = signal.Signals(number).name if number else ""
    except ValueError:
        name = ""
    return endings.exited(code if code > 0 else 128 - code, signal=name)

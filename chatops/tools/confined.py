"""One program of a tool, run as the sandbox in force says, and how it ended in words for the model.

All tools that start programs do it here: the same environment, limits and clean-up for each of them.
"""

import os
import signal
import time
from pathlib import Path

from chatops.domain.errors import ToolFailed
from chatops.domain.tools import KILLED, CallFacts, Outcome, ToolResult
from chatops.tools.base import ToolContext
from chatops.tools.confine import SETTINGS_FOLDER
from chatops.tools.left_over import named
from chatops.tools.output import EMPTY
from chatops.tools.process import Command, Ended, clean_environment, run_command
from chatops.tools.sandbox import Level, ShellSettings, level_for, remove_mount_point, sandboxed
from chatops.tools.threads import in_thread

MAX_TEXT = 100_000
"""Bytes of a command or of code; an argument of a program cannot be longer than 128 KiB."""
_MARGIN_S = 1.0
"""The tool ends this much before the runtime's own limit, so that the output so far is not lost."""
_STATUS_ROOM = 300


def unfit(text: str) -> str:
    """Why `text` cannot be given to a program as one argument; empty if it can."""
    if not text.strip():
        return "is empty"
    if "\0" in text:
        return "holds a NUL character"
    if len(text.encode("utf-8")) > MAX_TEXT:
        return f"is longer than {MAX_TEXT:,} bytes; write a file with file_write and run that"
    return ""


def search_path(level: Level) -> str:
    """PATH of what runs at `level`."""
    return os.pathsep.join(level.path) or clean_environment(os.environ)["PATH"]


def seconds_left(context: ToolContext) -> float:
    """How long a program of the call may run."""
    return max(0.5, context.timeout_s - min(_MARGIN_S, context.timeout_s / 10))


async def run_confined(
    argv: tuple[str, ...], *, facts: CallFacts, context: ToolContext, settings: ShellSettings, seconds: float
) -> ToolResult:
    """Run `argv` in the folder and at the level that `facts` name, for at most `seconds`.

    Raises ToolFailed if it cannot be started, or if the sandbox is no longer what was approved.
    """
    level = await in_thread(level_for, settings, workspace=context.workspace)
    if level.refusal or level.words != facts.sandbox:
        raise ToolFailed(f"The sandbox is no longer what was approved: {level.words}. Nothing was run.")
    environment = {**clean_environment(os.environ), "PATH": search_path(level)}
    cwd = Path(facts.cwd)
    call = named(context.call_id, context.attempt)
    if level.program:
        environment["TMPDIR"] = "/tmp"
        command = sandboxed(
            argv,
            level=level,
            settings=settings,
            workspace=context.workspace,
            protected=context.protected,
            cwd=cwd,
            environment=environment,
            call=call,
        )
    else:
        command = Command(argv=argv, cwd=cwd, environment=environment, call=call)
    made = bool(level.program) and _absent(context.workspace / SETTINGS_FOLDER)
    started = time.monotonic()
    try:
        ended = await run_command(command, timeout_s=seconds, keep=context.max_output_chars, output=context.output)
    except OSError as error:
        raise ToolFailed(f"The command could not be started: {error.strerror}.") from error
    finally:
        if made:
            remove_mount_point(context.workspace)
    duration = int((time.monotonic() - started) * 1000)
    return _result(ended, seconds=seconds, limit=context.max_output_chars, duration_ms=duration)


def _absent(path: Path) -> bool:
    return not os.path.lexists(path)


def _result(ended: Ended, *, seconds: float, limit: int, duration_ms: int) -> ToolResult:
    shown = ended.output.capped(limit=limit - _STATUS_ROOM)
    notes = _notes(ended, seconds=seconds)
    content = "\n".join(part for part in (shown.text.rstrip("\n"), *notes) if part)
    return ToolResult(
        outcome=Outcome.SUCCESS if ended.code == 0 else Outcome.FAILED,
        content=content or EMPTY,
        truncated=shown.truncated,
        duration_ms=duration_ms,
    )


def _notes(ended: Ended, *, seconds: float) -> list[str]:
    notes: list[str] = []
    if ended.lost:
        notes.append("[the command killed the process that watched over it, so its exit code is not known]")
    elif ended.code is None:
        notes.append(f"[stopped after {seconds:g} s: the time limit; above is the output so far]")
    elif ended.code:
        notes.append(f"[{_exit(ended.code)}]")
    if ended.left:
        plural = "process was" if ended.left == 1 else "processes were"
        notes.append(f"[{ended.left} background {plural} stopped when the command ended]")
    return notes


def _exit(code: int) -> str:
    number = -code if code < 0 else code - 128 if code > 128 else 0
    try:
        name = signal.Signals(number).name if number else ""
    except ValueError:
        name = ""
    shown = code if code > 0 else 128 - code
    if name == "SIGKILL":
        return f"{KILLED}, exit code {shown}"
    return f"exit code {shown} ({name})" if name else f"exit code {shown}"

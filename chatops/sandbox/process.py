"""Run a program so that its output is bounded and none of its processes outlives the call.

Linux offers two ways to contain an entire process tree: a PID namespace (the sandbox) and a subreaper
(`chatops.sandbox.supervisor`). A process group alone does not contain it, because setsid leaves the group. A process
that escapes both is found by its environment (`chatops.sandbox.orphans`).

A started command (`_Running`) is killed in three ways, each harder than the one before: a signal to the container or
the supervisor, then SIGKILL to all that is below the first process, then SIGKILL to all that carry the command's mark.
"""

import asyncio
import codecs
import ctypes
import logging
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from chatops.config.failpoints import reach
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.sandbox import supervisor
from chatops.sandbox.orphans import CALL_VARIABLE, stop_marked
from chatops.toolkit.output import Collector

log = logging.getLogger(__name__)

KEPT_VARIABLES = frozenset({"LANG", "LANGUAGE", "TZ", "HOME", "USER", "LOGNAME", "SHELL", "COLUMNS", "LINES"})
"""Variables of the app's environment that commands get, besides PATH and ``LC_*``. None of them holds an API key."""
DATA = "{data}"
"""Word of `Command.argv` that stands for the descriptor of a file, see `Command.data`."""
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
READY = b"ready\n"
GO = b"go\n"
"""Messages of the handshake: a command that `reports` sends ``READY`` and waits for ``GO``; see `Command`."""
MAX_SHOWN = 200_000
"""Maximum number of characters of a run that are sent to the screen while it runs."""

_PR_SET_DUMPABLE = 4
_READ_BYTES = 65_536
"""Bytes of output that are read at a time: all that a pipe of Linux holds."""
_BURST_BYTES = 1_000_000
_PAUSE_AFTER_BURST_S = 0.01
"""Seconds for which reading pauses after `_BURST_BYTES`, so that endless output cannot block the event loop."""
_MAX_REPORT_BYTES = 1_000
"""Maximum number of bytes read from `status`: the command can find the descriptor and write there too."""
_EXIT_S = 0.5
"""Seconds for a stopped command to end, then for each harder way to stop it: a call stops within three times that."""
_DRAIN_S = 0.1
"""Seconds for output that is still in the pipe when the command has ended. What comes later is not in the result."""


@frozen_dataclass
class Command:
    """A program to run.

    `contained`: killing the first process kills the entire tree (a PID namespace). `call` names the attempt in the
    environment of the processes, see `orphans.attempt_name`.

    A contained command that `reports` gets a socket as its standard input and later replaces it with an empty one. It
    sends ``ready`` there and waits for ``go``; without ``go`` it exits. At the end it sends how many processes it
    leaves behind. So no command starts in a container that became ready only after the app had died.
    """

    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    call: str
    contained: bool = False
    reports: bool = False
    data: tuple[bytes, ...] = ()
    """Contents of files for the first process. Each `DATA` in `argv` stands for the descriptor of the next one."""
    limits: str = ""
    """For a command that is not contained: see `landlock.encode_arguments`; empty: none."""
    passed: tuple[int, ...] = ()
    """Descriptors that the first process inherits."""


@frozen_dataclass
class EndedCommand:
    """A command that has ended. `code` is negative for a signal and None if this module stopped the command."""

    code: int | None
    output: Collector
    stopped: int = 0
    """Background processes that were stopped after the command had ended."""
    lost: bool = False
    """True if something killed the supervisor, so the command's end is unknown."""
    started: bool = True
    """False if the container was not created, or not in time: no part of the command has run."""


def harden_process() -> bool:
    """Keep other processes of this user from reading this process's memory and environment.

    Has no effect on root. Returns True if it is in force.
    """
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def clean_environment(source: Mapping[str, str]) -> dict[str, str]:
    """Build the environment of a command: an allow-list, absolute PATH entries only, a dumb terminal."""
    kept = {name: value for name, value in source.items() if name in KEPT_VARIABLES or name.startswith("LC_")}
    path = [entry for entry in source.get("PATH", "").split(os.pathsep) if os.path.isabs(entry)]
    return {**kept, "PATH": os.pathsep.join(path) or DEFAULT_PATH, "TERM": "dumb", "GIT_TERMINAL_PROMPT": "0"}


async def run_command(
    command: Command,
    *,
    timeout_s: float,
    keep: int,
    output: Callable[[str], None] = lambda text: None,
    max_shown: int = MAX_SHOWN,
) -> EndedCommand:
    """Run `command` for at most `timeout_s` seconds and keep `keep` characters of its output.

    `output` gets the first `max_shown` characters while it runs. No process of the command is left when this returns or
    is cancelled. Raises OSError if the command cannot be started.
    """
    running = _start_command(command, keep=keep, output=output, max_shown=max_shown)
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await running.exited.wait()
        except TimeoutError:
            running.kill()
            await running.wait_gone()
            return EndedCommand(code=None, output=running.output.collector, started=running.started)
        await running.output.wait_ended(_DRAIN_S)
        return running.describe_end()
    finally:
        # Also runs on cancellation; the signals are sent before the first await.
        running.kill()
        try:
            await running.wait_gone()
        finally:
            running.close()


def _start_command(command: Command, *, keep: int, output: Callable[[str], None], max_shown: int) -> "_Running":
    mark = f"{command.call}/{secrets.token_hex(8)}"
    environment = {**command.environment, CALL_VARIABLE: mark}
    out_read, out_write = os.pipe()
    status_read, status_write = (end.detach() for end in socket.socketpair())
    argv, data_files = words_to_start(command, status=status_write)
    try:
        # Fork on the event loop's thread on purpose: a parent-death signal is bound to the thread that forks.
        process = subprocess.Popen(
            argv,
            cwd=command.cwd,
            env=environment,
            stdin=status_write if command.reports else subprocess.DEVNULL,
            stdout=out_write,
            stderr=out_write,
            start_new_session=True,
            pass_fds=(*data_files, *command.passed, *(() if command.contained else (status_write,))),
        )
    except BaseException:
        os.close(out_read)
        os.close(status_read)
        raise
    finally:
        for descriptor in (*data_files, out_write, status_write):
            os.close(descriptor)
    reach("after_spawn")
    return _Running(
        process=process,
        contained=command.contained,
        started=not command.reports,
        mark=mark,
        status=status_read,
        output=_Output(out_read, collector=Collector(limit=keep), show=output, max_shown=max_shown),
    )


class _Output:
    """The output of a started command, read from the pipe `source`: kept in `collector`, and its beginning shown."""

    def __init__(self, source: int, *, collector: Collector, show: Callable[[str], None], max_shown: int) -> None:
        self.collector = collector
        self.ended = asyncio.Event()
        """Set when no process holds the pipe any more."""
        self._source = source
        self._show = show
        self._room = max_shown
        """Characters that are still shown."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._burst = 0
        """Bytes read since the last pause."""
        self._pause: asyncio.TimerHandle | None = None
        os.set_blocking(source, False)
        self._resume()

    def _resume(self) -> None:
        asyncio.get_running_loop().add_reader(self._source, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._source, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # No more can be read, as at the end of the output.
        loop = asyncio.get_running_loop()
        if not data:
            loop.remove_reader(self._source)
            self.ended.set()
            return
        self.collector.feed(data)
        self._show_beginning(data)
        self._burst += len(data)
        if self._burst >= _BURST_BYTES:
            self._burst = 0
            loop.remove_reader(self._source)
            self._pause = loop.call_later(_PAUSE_AFTER_BURST_S, self._resume)

    def _show_beginning(self, data: bytes) -> None:
        if self._room <= 0:
            return
        text = self._decoder.decode(data)
        self._room -= len(text)
        if self._room <= 0:
            text += "\n[more output is not shown while it runs]\n"
        try:
            self._show(text)
        except Exception:
            # A fault of the screen must not end the command.
            log.exception("showing output failed")

    async def wait_ended(self, seconds: float) -> None:
        """Wait until all output has been read, at most `seconds`: another process may hold the pipe open."""
        try:
            async with asyncio.timeout(seconds):
                await self.ended.wait()
        except TimeoutError:
            log.debug("output pipe still open after the command's end")

    def close(self) -> None:
        """Stop reading, and close the pipe."""
        if self._pause is not None:
            self._pause.cancel()
        asyncio.get_running_loop().remove_reader(self._source)
        os.close(self._source)


@dataclass(slots=True, kw_only=True)
class _Running:
    """A started command: its output, the handshake with it, how it ended, and how to stop it."""

    process: subprocess.Popen[bytes]
    contained: bool
    started: bool
    """True once the command may run: at once, or when it has got ``GO``."""
    mark: str
    """Value of `CALL_VARIABLE` in the environment of its processes; no other command has it."""
    status: int
    """Descriptor of the handshake, and of the report on its end."""
    output: _Output
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the first process (the container or the supervisor) has ended and is reaped."""
    report: bytes = b""
    """Bytes read from `status` so far."""
    pidfd: int | None = None
    """Descriptor of the first process; None where there is none, so `watcher` waits for the end."""
    watcher: "asyncio.Task[None] | None" = None
    killed: bool = False
    """True once `kill` has sent its signals. From then on the command does not get ``GO`` either."""

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        os.set_blocking(self.status, False)
        loop.add_reader(self.status, self._read_report)
        try:
            self.pidfd = os.pidfd_open(self.process.pid)
            loop.add_reader(self.pidfd, self._note_exit, self.pidfd)
        except (AttributeError, OSError):
            self.watcher = asyncio.ensure_future(self._wait_in_thread())

    async def _wait_in_thread(self) -> None:
        """Wait in a thread where there is no pidfd; `close` ends the process and so the wait."""
        await asyncio.to_thread(self.process.wait)
        self.exited.set()

    def _note_exit(self, pidfd: int) -> None:
        if self.process.poll() is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            self.exited.set()

    def _read_report(self) -> None:
        """Read from `status`, and let a command that is ready start."""
        try:
            data = os.read(self.status, _MAX_REPORT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self.report) > _MAX_REPORT_BYTES:
            asyncio.get_running_loop().remove_reader(self.status)
            return
        self.report += data
        if not self.started and self.report.startswith(READY):
            self.report = self.report.removeprefix(READY)
            # Without the whole ``GO``, because the container has died, the command never starts.
            with suppress(OSError):
                self.started = not self.killed and os.write(self.status, GO) == len(GO)

    def kill(self) -> None:
        """Send the signals that end the tree, without waiting."""
        if self.killed:
            return
        self.killed = True
        if self.process.poll() is None:
            with suppress(OSError):
                if self.contained:
                    os.killpg(self.process.pid, signal.SIGKILL)
                else:
                    os.kill(self.process.pid, signal.SIGTERM)
                    # The command may have stopped its supervisor, which then would not see the signal.
                    os.kill(self.process.pid, signal.SIGCONT)

    async def wait_gone(self) -> None:
        """Wait for the end of all processes. Kill those that did not end, or that the supervisor missed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_S):
                await self.exited.wait()
                await self.output.ended.wait()
        if self.process.poll() is None:
            supervisor.kill_below(self.process.pid, seconds=_EXIT_S)
            with suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            # Lets the callbacks of the descriptors run before they are asked below.
            await asyncio.sleep(0)
        # The supervisor ends with 0 once it has killed the tree. With another code, something killed it first.
        if not self.contained and (self.process.poll() != 0 or not self.output.ended.is_set()):
            stop_marked(self.mark, seconds=_EXIT_S)

    def describe_end(self) -> EndedCommand:
        """Return how the command ended, from its report and its exit status."""
        # The report may have come with the exit, before the event loop read it.
        self._read_report()
        report = self.report.decode("ascii", "replace").strip()
        if self.contained:
            code, stopped = self.process.returncode, int(report) if report.isdigit() else 0
            return EndedCommand(code=code, output=self.output.collector, stopped=stopped, started=self.started)
        supervised = re.fullmatch(r"exit (?P<wait_status>\d+) (?P<stopped>\d+)", report)
        if supervised is None:
            return EndedCommand(code=None, output=self.output.collector, lost=True)
        code = os.waitstatus_to_exitcode(int(supervised["wait_status"]))
        return EndedCommand(code=code, output=self.output.collector, stopped=int(supervised["stopped"]))

    def close(self) -> None:
        """Close all descriptors, and kill and reap the process if it still runs."""
        self.output.close()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.status)
        os.close(self.status)
        if self.pidfd is not None:
            loop.remove_reader(self.pidfd)
            os.close(self.pidfd)
        if self.watcher is not None:
            self.watcher.cancel()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def words_to_start(command: Command, *, status: int) -> tuple[list[str], list[int]]:
    """Return the words that start a command, and the open files with its data, which they name.

    A command that is not contained starts under the supervisor, which reports the end to `status`.
    """
    files = [memory_file(data) for data in command.data]
    numbers = iter(files)
    argv = [str(next(numbers)) if word == DATA else word for word in command.argv]
    if command.contained:
        return argv, files
    above = (sys.executable, "-I", "-S", supervisor.__file__, str(status), str(os.getpid()), command.limits)
    return [*above, *argv], files


def memory_file(data: bytes) -> int:
    """Return a descriptor of a file in memory, at its start."""
    descriptor = os.memfd_create("chatops")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor

"""Run a program so that its output is bounded and none of its processes outlives the call.

Linux offers two ways to contain an entire process tree: a PID namespace (the sandbox) and a subreaper
(`chatops.sandbox.supervisor`). A process group alone does not contain it, because setsid leaves the group.
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
from dataclasses import dataclass, field
from pathlib import Path

from chatops.config.failpoints import reach
from chatops.sandbox import supervisor
from chatops.sandbox.orphans import CALL_VARIABLE, stop_marked
from chatops.toolkit.output import Collector

log = logging.getLogger(__name__)

KEPT_VARIABLES = frozenset({"LANG", "LANGUAGE", "TZ", "HOME", "USER", "LOGNAME", "SHELL", "COLUMNS", "LINES"})
"""Variables of the app's environment that commands get, besides PATH and ``LC_*``. None of them holds an API key."""
DATA = "{data}"
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
READY = b"ready\n"
GO = b"go\n"
"""Messages of the handshake: a command that `reports` sends ``READY`` and waits for ``GO``; see `Command`."""

_PR_SET_DUMPABLE = 4
_PIECE = 65_536
_BURST = 1_000_000
"""Bytes after which reading pauses, so that endless output cannot block the event loop."""
_REST_S = 0.01
MOST_SHOWN = 200_000
"""Maximum number of characters of a run that are sent to the screen while it runs."""
_MOST_REPORTED = 1_000
"""Maximum number of bytes read from `status`: the command can find the descriptor and write there too."""
_EXIT_S = 0.5
_DRAIN_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run.

    `contained`: killing the first process kills the entire tree (a PID namespace). `call` names the attempt in the
    environment of the processes, see `chatops.sandbox.orphans`.

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
    """Contents of files for the first process. The word `DATA` in `argv` stands for the descriptor of the next one."""
    limits: str = ""
    """For a command that is not contained: see `landlock.encoded`; empty: none."""
    passed: tuple[int, ...] = ()
    """Descriptors that the first process inherits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """End of a command. `code` is negative for a signal and None if this module stopped the command."""

    code: int | None
    output: Collector
    left: int = 0
    """Background processes that were stopped after the command had ended."""
    lost: bool = False
    """True if the supervisor was killed from below, so the command's end is unknown."""
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
    shown: int = MOST_SHOWN,
) -> Ended:
    """Run `command` for at most `timeout_s` seconds and keep `keep` characters of its output.

    `output` gets the first `shown` characters while it runs.

    No process of the command is left when this returns or is cancelled.

    Raises OSError if the command cannot be started.
    """
    running = _start(command, keep=keep, output=output, most_shown=shown)
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await running.exited.wait()
        except TimeoutError:
            running.kill()
            await running.wait_gone(_EXIT_S)
            return Ended(code=None, output=running.collector, started=running.started)
        await running.wait_output(_DRAIN_S)
        return running.ended()
    finally:
        # Also runs on cancellation; the signals are sent before the first await.
        running.kill()
        try:
            await running.wait_gone(_EXIT_S)
        finally:
            running.close()


def _start(command: Command, *, keep: int, output: Callable[[str], None], most_shown: int) -> "_Running":
    mark = f"{command.call}/{secrets.token_hex(8)}"
    environment = {**command.environment, CALL_VARIABLE: mark}
    files = [memory_file(data) for data in command.data]
    out_read, out_write = os.pipe()
    status_read, status_write = (end.detach() for end in socket.socketpair())
    numbers = iter(files)
    argv = [str(next(numbers)) if word == DATA else word for word in command.argv]
    if not command.contained:
        argv = supervised(argv, status=status_write, limits=command.limits)
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
            pass_fds=(*files, *command.passed, *(() if command.contained else (status_write,))),
        )
    except BaseException:
        os.close(out_read)
        os.close(status_read)
        raise
    finally:
        for descriptor in (*files, out_write, status_write):
            os.close(descriptor)
    reach("after_spawn")
    return _Running(
        process=process,
        contained=command.contained,
        started=not command.reports,
        mark=mark,
        out=out_read,
        status=status_read,
        collector=Collector(limit=keep),
        output=output,
        most_shown=most_shown,
    )


@dataclass(slots=True, kw_only=True)
class _Running:
    """A started command: its descriptors, how it ended, and how to stop it."""

    process: subprocess.Popen[bytes]
    contained: bool
    started: bool
    mark: str
    out: int
    status: int
    collector: Collector
    output: Callable[[str], None]
    most_shown: int
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    output_ended: asyncio.Event = field(default_factory=asyncio.Event)
    shown: int = 0
    burst: int = 0
    report: bytes = b""
    """Bytes read from `status` so far."""
    pidfd: int = -1
    closed: bool = False
    killed: bool = False
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    watcher: "asyncio.Task[None] | None" = None

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        os.set_blocking(self.out, False)
        os.set_blocking(self.status, False)
        loop.add_reader(self.out, self._read_output)
        loop.add_reader(self.status, self._read_report)
        try:
            self.pidfd = os.pidfd_open(self.process.pid)
            loop.add_reader(self.pidfd, self._exited)
        except (AttributeError, OSError):
            self.watcher = asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        """Wait in a thread where there is no pidfd; `close` ends the process and so the wait."""
        await asyncio.to_thread(self.process.wait)
        self.exited.set()

    def _exited(self) -> None:
        if self.process.poll() is not None:
            asyncio.get_running_loop().remove_reader(self.pidfd)
            self.exited.set()

    def _read_output(self) -> None:
        try:
            data = os.read(self.out, _PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.out)
            self.output_ended.set()
            return
        self.collector.feed(data)
        self._show(data)
        self.burst += len(data)
        if self.burst >= _BURST:
            self.burst = 0
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.out)
            loop.call_later(_REST_S, self._resume)

    def _read_report(self) -> None:
        """Read from `status`, and let a command that is ready start."""
        try:
            data = os.read(self.status, 100)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self.report) > _MOST_REPORTED:
            asyncio.get_running_loop().remove_reader(self.status)
            return
        self.report += data
        if not self.started and self.report.startswith(READY):
            self.report = self.report.removeprefix(READY)
            self.started = not self.killed and _sent(self.status, GO)

    def _resume(self) -> None:
        if not self.closed:
            asyncio.get_running_loop().add_reader(self.out, self._read_output)

    def _show(self, data: bytes) -> None:
        if self.shown >= self.most_shown:
            return
        text = self.decoder.decode(data)
        self.shown += len(text)
        if self.shown >= self.most_shown:
            text += "\n[more output is not shown while it runs]\n"
        try:
            self.output(text)
        except Exception:
            log.exception("showing output failed")

    def kill(self) -> None:
        """Send every signal that ends the tree, without waiting."""
        if self.killed or (self.process.poll() is not None and self.contained):
            return
        self.killed = True
        if self.process.poll() is None:
            if self.contained:
                _send_group(self.process.pid, signal.SIGKILL)
            else:
                _send(self.process.pid, signal.SIGTERM)
                _send(self.process.pid, signal.SIGCONT)

    async def wait_gone(self, seconds: float) -> None:
        """Wait for the end; find processes that the supervisor missed by their mark and kill them."""
        try:
            async with asyncio.timeout(seconds):
                await self.exited.wait()
                await self.output_ended.wait()
        except TimeoutError:
            pass
        if self.process.poll() is None:
            supervisor.kill_below(self.process.pid, seconds=_EXIT_S)
            _send_group(self.process.pid, signal.SIGKILL)
            await asyncio.sleep(0)
        if not self.contained and (self.process.poll() != 0 or not self.output_ended.is_set()):
            stop_marked(self.mark, seconds=_EXIT_S)

    async def wait_output(self, seconds: float) -> None:
        """Wait until all output has been read, at most `seconds`: another process may hold the pipe open."""
        try:
            async with asyncio.timeout(seconds):
                await self.output_ended.wait()
        except TimeoutError:
            log.debug("output pipe still open after the command's end")

    def ended(self) -> Ended:
        """Return how the command ended, from its report and its exit status."""
        self._read_report()
        text = self.report.decode("ascii", "replace").strip()
        if self.contained:
            left = int(text) if text.isdigit() else 0
            return Ended(code=self.process.returncode, output=self.collector, left=left, started=self.started)
        found = re.fullmatch(r"exit (\d+) (\d+)", text)
        if found is None:
            return Ended(code=None, output=self.collector, lost=True)
        code = os.waitstatus_to_exitcode(int(found[1]))
        return Ended(code=code, output=self.collector, left=int(found[2]))

    def close(self) -> None:
        """Close all descriptors, and kill and reap the process if it still runs."""
        self.closed = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.out)
        loop.remove_reader(self.status)
        os.close(self.out)
        os.close(self.status)
        if self.pidfd >= 0:
            loop.remove_reader(self.pidfd)
            os.close(self.pidfd)
        if self.watcher is not None:
            self.watcher.cancel()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def supervised(argv: list[str], *, status: int, limits: str) -> list[str]:
    """Return `argv` under the supervisor, which reports the end to `status`; `limits` as in `Command`."""
    return [sys.executable, "-I", "-S", supervisor.__file__, str(status), str(os.getpid()), limits, *argv]


def memory_file(data: bytes) -> int:
    """Return a descriptor of a file in memory, at its start."""
    descriptor = os.memfd_create("chatops")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _sent(descriptor: int, word: bytes) -> bool:
    try:
        return os.write(descriptor, word) == len(word)
    except OSError:
        return False


def _send(pid: int, number: int) -> None:
    """Send a signal to a process if it still exists."""
    try:
        os.kill(pid, number)
    except OSError:
        pass


def _send_group(pid: int, number: int) -> None:
    """Send a signal to a process group if it still exists."""
    try:
        os.killpg(pid, number)
    except OSError:
        pass

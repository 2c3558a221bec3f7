"""Running a program so that its output is bounded and nothing of it outlives the call.

Linux has two ways to hold on to a whole tree: a PID namespace (the sandbox) and a subreaper
(`chatops.tools.supervisor`). A process group alone is neither: setsid leaves it.
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
from chatops.tools import supervisor
from chatops.tools.left_over import stop_marked
from chatops.tools.marked import MARK, send, send_group
from chatops.tools.output import Collector

log = logging.getLogger(__name__)

KEPT_VARIABLES = frozenset({"LANG", "LANGUAGE", "TZ", "HOME", "USER", "LOGNAME", "SHELL", "COLUMNS", "LINES"})
"""What a command gets of the app's environment, besides PATH and ``LC_*``. No key is among them."""
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
READY = b"ready\n"
GO = b"go\n"
"""What a command that `reports` says before it begins, and what it waits for; see `Command`."""

_PR_SET_DUMPABLE = 4
_PIECE = 65_536
_BURST = 1_000_000
"""Bytes after which reading rests, so that an endless output cannot hold the event loop."""
_REST_S = 0.01
_SHOWN = 200_000
"""Characters of a run that are sent to the screen while it runs."""
_MOST_SAID = 1_000
"""Bytes at `status`: the command can write there too, if it looks for the descriptor."""
_EXIT_S = 0.5
_DRAIN_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run. `contained`: killing the first process kills all of it (a PID namespace). `call` names the attempt
    that it belongs to in the environment of its processes, see `chatops.tools.left_over`.

    A contained command that `reports` has a socket to us as its standard input, until it gives itself an empty one. It
    says ``ready`` there, begins when it is told ``go``, ends itself if that does not come, and says in the end how many
    processes it leaves. So nothing begins whose container was not there yet when the app died.
    """

    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    call: str
    contained: bool = False
    reports: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended. `code` is negative for a signal, None if it was stopped by us."""

    code: int | None
    output: Collector
    left: int = 0
    """Background processes that were stopped when the command had ended."""
    lost: bool = False
    """The supervisor was killed from below, so nobody saw the command's end."""
    begun: bool = True
    """False: its container could not be made, or did not come in time, so nothing of it has run."""


def harden_process() -> bool:
    """Keep other processes of this person from reading our memory and environment (no effect on root)."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def clean_environment(source: Mapping[str, str]) -> dict[str, str]:
    """The environment for a command: an allow-list, absolute PATH entries only, a dumb terminal."""
    kept = {name: value for name, value in source.items() if name in KEPT_VARIABLES or name.startswith("LC_")}
    path = [entry for entry in source.get("PATH", "").split(os.pathsep) if os.path.isabs(entry)]
    return {**kept, "PATH": os.pathsep.join(path) or DEFAULT_PATH, "TERM": "dumb", "GIT_TERMINAL_PROMPT": "0"}


async def run_command(
    command: Command, *, timeout_s: float, keep: int, output: Callable[[str], None] = lambda text: None
) -> Ended:
    """Run `command` for at most `timeout_s` seconds; `keep` characters of its output are kept.

    Raises OSError if it cannot be started. When it is cancelled, or returns, nothing of the command runs.
    """
    running = _start(command, keep=keep, output=output)
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await running.exited.wait()
        except TimeoutError:
            running.kill()
            await running.gone(_EXIT_S)
            return Ended(code=None, output=running.collector, begun=running.begun)
        await running.drained(_DRAIN_S)
        return running.ended()
    finally:
        # Runs on cancellation too; the signals are sent before anything is awaited.
        running.kill()
        try:
            await running.gone(_EXIT_S)
        finally:
            running.close()


def _start(command: Command, *, keep: int, output: Callable[[str], None]) -> "_Running":
    mark = f"{command.call}/{secrets.token_hex(8)}"
    environment = {**command.environment, MARK: mark}
    out_read, out_write = os.pipe()
    status_read, status_write = (end.detach() for end in socket.socketpair())
    argv = list(command.argv)
    if not command.contained:
        argv = [sys.executable, "-I", "-S", supervisor.__file__, str(status_write), str(os.getpid()), *argv]
    try:
        # On the event loop's thread on purpose: a parent-death signal is bound to the thread that forks.
        process = subprocess.Popen(
            argv,
            cwd=command.cwd,
            env=environment,
            stdin=status_write if command.reports else subprocess.DEVNULL,
            stdout=out_write,
            stderr=out_write,
            start_new_session=True,
            pass_fds=() if command.contained else (status_write,),
        )
    except BaseException:
        os.close(out_read)
        os.close(status_read)
        raise
    finally:
        os.close(out_write)
        os.close(status_write)
    reach("after_spawn")
    return _Running(
        process=process,
        contained=command.contained,
        begun=not command.reports,
        mark=mark,
        out=out_read,
        status=status_read,
        collector=Collector(limit=keep),
        output=output,
    )


@dataclass(slots=True, kw_only=True)
class _Running:
    """A started command: its descriptors, its end, and how to stop it."""

    process: subprocess.Popen[bytes]
    contained: bool
    begun: bool
    mark: str
    out: int
    status: int
    collector: Collector
    output: Callable[[str], None]
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    at_end: asyncio.Event = field(default_factory=asyncio.Event)
    shown: int = 0
    burst: int = 0
    said: bytes = b""
    """Read from `status` so far."""
    pidfd: int = -1
    closed: bool = False
    killed: bool = False
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    watcher: "asyncio.Task[None] | None" = None

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        os.set_blocking(self.out, False)
        os.set_blocking(self.status, False)
        loop.add_reader(self.out, self._read)
        loop.add_reader(self.status, self._listen)
        try:
            self.pidfd = os.pidfd_open(self.process.pid)
            loop.add_reader(self.pidfd, self._exited)
        except (AttributeError, OSError):
            self.watcher = asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        """Where there is no pidfd a thread waits; `close` makes it end."""
        await asyncio.to_thread(self.process.wait)
        self.exited.set()

    def _exited(self) -> None:
        if self.process.poll() is not None:
            asyncio.get_running_loop().remove_reader(self.pidfd)
            self.exited.set()

    def _read(self) -> None:
        try:
            data = os.read(self.out, _PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.out)
            self.at_end.set()
            return
        self.collector.feed(data)
        self._show(data)
        self.burst += len(data)
        if self.burst >= _BURST:
            self.burst = 0
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.out)
            loop.call_later(_REST_S, self._resume)

    def _listen(self) -> None:
        """Take in what is said at `status`, and let a command begin that is ready."""
        try:
            data = os.read(self.status, 100)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self.said) > _MOST_SAID:
            asyncio.get_running_loop().remove_reader(self.status)
            return
        self.said += data
        if not self.begun and self.said.startswith(READY):
            self.said = self.said.removeprefix(READY)
            self.begun = not self.killed and _told(self.status, GO)

    def _resume(self) -> None:
        if not self.closed:
            asyncio.get_running_loop().add_reader(self.out, self._read)

    def _show(self, data: bytes) -> None:
        if self.shown >= _SHOWN:
            return
        text = self.decoder.decode(data)
        self.shown += len(text)
        if self.shown >= _SHOWN:
            text += "\n[more output is not shown while it runs]\n"
        try:
            self.output(text)
        except Exception:
            log.exception("showing output failed")

    def kill(self) -> None:
        """Send every signal that ends the tree; does not wait."""
        if self.killed or (self.process.poll() is not None and self.contained):
            return
        self.killed = True
        if self.process.poll() is None:
            if self.contained:
                send_group(self.process.pid, signal.SIGKILL)
            else:
                send(self.process.pid, signal.SIGTERM)
                send(self.process.pid, signal.SIGCONT)

    async def gone(self, seconds: float) -> None:
        """Wait for the end; what a supervisor did not get is looked for by its mark and killed."""
        try:
            async with asyncio.timeout(seconds):
                await self.exited.wait()
                await self.at_end.wait()
        except TimeoutError:
            pass
        if self.process.poll() is None:
            supervisor.kill_below(self.process.pid, seconds=_EXIT_S)
            send_group(self.process.pid, signal.SIGKILL)
            await asyncio.sleep(0)
        if not self.contained and (self.process.poll() != 0 or not self.at_end.is_set()):
            stop_marked(self.mark, seconds=_EXIT_S)

    async def drained(self, seconds: float) -> None:
        """Wait until all output has been read, at most `seconds`: somebody else may hold the pipe."""
        try:
            async with asyncio.timeout(seconds):
                await self.at_end.wait()
        except TimeoutError:
            log.debug("output pipe still open after the command's end")

    def ended(self) -> Ended:
        """The end as it was reported."""
        self._listen()
        text = self.said.decode("ascii", "replace").strip()
        if self.contained:
            left = int(text) if text.isdigit() else 0
            return Ended(code=self.process.returncode, output=self.collector, left=left, begun=self.begun)
        found = re.fullmatch(r"exit (\d+) (\d+)", text)
        if found is None:
            return Ended(code=None, output=self.collector, lost=True)
        code = os.waitstatus_to_exitcode(int(found[1]))
        return Ended(code=code, output=self.collector, left=int(found[2]))

    def close(self) -> None:
        """Give all descriptors back."""
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


def _told(descriptor: int, word: bytes) -> bool:
    try:
        return os.write(descriptor, word) == len(word)
    except OSError:
        return False

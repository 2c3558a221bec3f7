"""Run a program so that its output is bounded and none of its processes outlives the call.

Linux offers two ways to contain an entire process tree: a PID namespace (the sandbox) and a subreaper
(`chatops.sandbox.supervisor`). A process group alone does not contain it, because setsid leaves the group.

Processes that a command left behind are found and stopped by a mark in their environment. In the sandbox and under the
supervisor, a command dies with the app. A process that escaped both, or that lost its supervisor to a kill, still
carries the mark of its call. Each process is held by a descriptor (pidfd_open) and then checked once more, so that a
reused process id is never signalled.

`run_isolated` runs a function in an isolated subprocess with a limit on CPU time. It is meant for work that may never
end, such as regular expressions: their author rarely sees the text that makes one take years, a model that knows the
pattern may write that text, and a running match in this process cannot be interrupted. Arguments and result are passed
as JSON. The child limits its own CPU time, so it ends even if this process dies first.
"""

import asyncio
import codecs
import ctypes
import json
import logging
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chatops.config.failpoints import reach
from chatops.config.paths import PACKAGE
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId
from chatops.sandbox import supervisor
from chatops.sandbox.supervisor import descendants, signal_all
from chatops.toolkit.counting import Counter, counts_from
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

_PR_SET_DUMPABLE = 4
_READ_BYTES = 65_536
"""Bytes of output that are read at a time."""
_BURST_BYTES = 1_000_000
"""Bytes after which reading pauses, so that endless output cannot block the event loop."""
_PAUSE_AFTER_BURST_S = 0.01
MAX_SHOWN = 200_000
"""Maximum number of characters of a run that are sent to the screen while it runs."""
_MAX_REPORTED = 1_000
"""Maximum number of bytes read from `status`: the command can find the descriptor and write there too."""
_EXIT_S = 0.5
"""Seconds for a stopped command to end, then for each harder way to stop it."""
_DRAIN_S = 0.1
"""Seconds for output that is still in the pipe when the command has ended."""


@frozen_dataclass
class Command:
    """A program to run.

    `contained`: killing the first process kills the entire tree (a PID namespace). `call` names the attempt in the
    environment of the processes, see `chatops.sandbox.process`.

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
    shown: int = MAX_SHOWN,
) -> EndedCommand:
    """Run `command` for at most `timeout_s` seconds and keep `keep` characters of its output.

    `output` gets the first `shown` characters while it runs.

    No process of the command is left when this returns or is cancelled.

    Raises OSError if the command cannot be started.
    """
    running = _start_command(command, keep=keep, output=output, most_shown=shown)
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await running.exited.wait()
        except TimeoutError:
            running.kill()
            await running.wait_gone()
            return EndedCommand(code=None, output=running.collector, started=running.started)
        await running.wait_output(_DRAIN_S)
        return running.describe_end()
    finally:
        # Also runs on cancellation; the signals are sent before the first await.
        running.kill()
        try:
            await running.wait_gone()
        finally:
            running.close()


def _start_command(command: Command, *, keep: int, output: Callable[[str], None], most_shown: int) -> "_Running":
    mark = f"{command.call}/{secrets.token_hex(8)}"
    environment = {**command.environment, CALL_VARIABLE: mark}
    files = [memory_file(data) for data in command.data]
    out_read, out_write = os.pipe()
    status_read, status_write = (end.detach() for end in socket.socketpair())
    numbers = iter(files)
    argv = [str(next(numbers)) if word == DATA else word for word in command.argv]
    if not command.contained:
        argv = with_supervisor(argv, status=status_write, limits=command.limits)
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
    """True once the command may run: at once, or when it has got ``GO``."""
    mark: str
    out: int
    status: int
    collector: Collector
    output: Callable[[str], None]
    most_shown: int
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    output_ended: asyncio.Event = field(default_factory=asyncio.Event)
    shown: int = 0
    """Characters passed to `output` so far."""
    burst: int = 0
    """Bytes read since the last pause."""
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
            loop.add_reader(self.pidfd, self._note_exit)
        except (AttributeError, OSError):
            self.watcher = asyncio.ensure_future(self._wait_in_thread())

    async def _wait_in_thread(self) -> None:
        """Wait in a thread where there is no pidfd; `close` ends the process and so the wait."""
        await asyncio.to_thread(self.process.wait)
        self.exited.set()

    def _note_exit(self) -> None:
        if self.process.poll() is not None:
            asyncio.get_running_loop().remove_reader(self.pidfd)
            self.exited.set()

    def _read_output(self) -> None:
        try:
            data = os.read(self.out, _READ_BYTES)
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
        if self.burst >= _BURST_BYTES:
            self.burst = 0
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.out)
            loop.call_later(_PAUSE_AFTER_BURST_S, self._resume_reading)

    def _read_report(self) -> None:
        """Read from `status`, and let a command that is ready start."""
        try:
            data = os.read(self.status, 100)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self.report) > _MAX_REPORTED:
            asyncio.get_running_loop().remove_reader(self.status)
            return
        self.report += data
        if not self.started and self.report.startswith(READY):
            self.report = self.report.removeprefix(READY)
            with suppress(OSError):
                self.started = not self.killed and os.write(self.status, GO) == len(GO)

    def _resume_reading(self) -> None:
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
            with suppress(OSError):
                if self.contained:
                    os.killpg(self.process.pid, signal.SIGKILL)
                else:
                    os.kill(self.process.pid, signal.SIGTERM)
                    # The command may have stopped its supervisor, which then would not see the signal.
                    os.kill(self.process.pid, signal.SIGCONT)

    async def wait_gone(self) -> None:
        """Wait for the end; find processes that the supervisor missed by their mark and kill them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_S):
                await self.exited.wait()
                await self.output_ended.wait()
        if self.process.poll() is None:
            supervisor.kill_below(self.process.pid, seconds=_EXIT_S)
            with suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
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

    def describe_end(self) -> EndedCommand:
        """Return how the command ended, from its report and its exit status."""
        self._read_report()
        text = self.report.decode("ascii", "replace").strip()
        if self.contained:
            code, stopped = self.process.returncode, int(text) if text.isdigit() else 0
            return EndedCommand(code=code, output=self.collector, stopped=stopped, started=self.started)
        found = re.fullmatch(r"exit (\d+) (\d+)", text)
        if found is None:
            return EndedCommand(code=None, output=self.collector, lost=True)
        code = os.waitstatus_to_exitcode(int(found[1]))
        return EndedCommand(code=code, output=self.collector, stopped=int(found[2]))

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


def with_supervisor(argv: list[str], *, status: int, limits: str) -> list[str]:
    """Return `argv` under the supervisor, which reports the end to `status`; `limits` as in `Command`."""
    return [sys.executable, "-I", "-S", supervisor.__file__, str(status), str(os.getpid()), limits, *argv]


def memory_file(data: bytes) -> int:
    """Return a descriptor of a file in memory, at its start."""
    descriptor = os.memfd_create("chatops")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


@frozen_dataclass
class Limits:
    """Limits of the child of `run_isolated`."""

    cpu_s: int = 5
    """CPU time in whole seconds; other load on this machine does not count."""
    wait_s: float = 60.0
    """Wall-clock seconds after which the child is killed in any case."""
    memory: int = 0
    """Bytes of address space; 0: no limit."""


_INTERPRETER_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONUTF8")
"""Further environment variables that the interpreter may need to start."""
_CHILD_SCRIPT = """
import dataclasses, importlib, json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]), int(sys.argv[3])))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if int(sys.argv[4]):
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[4]), int(sys.argv[4])))
if int(sys.argv[5]) >= 0:
    importlib.import_module("chatops.toolkit.counting").count_into(int(sys.argv[5]))
function = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
json.dump(function(**json.load(sys.stdin)), sys.stdout, default=dataclasses.asdict)
"""


class IsolatedCallError(Exception):
    """The function was stopped or failed; the text says which, as a clause."""


def run_isolated(
    function: Callable[..., object], *, limits: Limits = Limits(), counter: Counter | None = None, **arguments: object
) -> JsonValue:
    """Call `function`, defined at the top level of a module, in a subprocess and return its result. Blocks.

    Arguments and result pass as JSON, dataclasses in them as objects. `counter` counts what the function counts.

    Raises IsolatedCallError.
    """
    # -P: do not import modules from the current folder.
    argv = [sys.executable, "-P", "-c", _CHILD_SCRIPT, function.__module__, function.__qualname__]
    reader, writer = os.pipe() if counter is not None else (-1, -1)
    if counter is not None:
        threading.Thread(target=_count_progress, args=(reader, counter), name="progress", daemon=True).start()
    argv += [str(limits.cpu_s), str(limits.memory), str(writer)]
    path = [str(PACKAGE.parent), *(entry for entry in sys.path if os.path.isabs(entry))]
    # The child may parse untrusted pages, so its environment holds no keys.
    kept = {name: os.environ[name] for name in _INTERPRETER_VARIABLES if name in os.environ}
    environment = {**clean_environment(os.environ), **kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
    try:
        done = subprocess.run(
            argv,
            input=json.dumps(arguments, default=asdict).encode(),
            capture_output=True,
            env=environment,
            timeout=limits.wait_s,
            pass_fds=(writer,) if counter is not None else (),
            # Ctrl+C in the terminal is handled by this process, not by the child.
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise IsolatedCallError("it took too long") from None
    except OSError as error:
        raise IsolatedCallError(f"its process could not be started ({error.strerror})") from error
    finally:
        if counter is not None:
            os.close(writer)
    if done.returncode < 0:
        raise IsolatedCallError("it took too long")
    try:
        value: JsonValue = json.loads(done.stdout)
    except ValueError:
        raise IsolatedCallError("it failed") from None
    return value


def _count_progress(reader: int, counter: Counter) -> None:
    with open(reader, "rb", buffering=0), suppress(OSError):
        counts_from(reader, counter)


CALL_VARIABLE = "CHATOPS_CALL"
"""Environment variable that names the call of a command, so that its remaining processes can be found."""

_MAX_ENVIRONMENT_BYTES = 65_536
"""Bytes of a process's environment that are searched for its mark."""
_KILL_S = 3.0
_KILL_RETRY_S = 0.005


@frozen_dataclass
class StoppedProcesses:
    """Number of processes that were stopped, and the ids of those that could not be stopped."""

    count: int = 0
    running: tuple[int, ...] = ()


def attempt_name(call_id: CallId, attempt: int) -> str:
    """Return the name of an attempt for the environment of its processes, so that they can be found later."""
    return f"{call_id}/{attempt}"


def can_find_orphans() -> bool:
    """Return True if processes and their environment can be inspected and held here (Linux)."""
    return hasattr(os, "pidfd_open") and os.path.isdir("/proc/self")


def count_orphans(call_id: CallId, attempt: int) -> int:
    """Return how many processes of an attempt are running."""
    return len(_processes_of(_mark(call_id, attempt)))


def stop_orphans(call_id: CallId, attempt: int) -> StoppedProcesses:
    """Stop all processes of an attempt and their descendants. Blocks until they are gone, for 3 s at most.

    Only for an attempt whose app is dead; the caller has to check that.
    """
    stopped = stop_marked(_mark(call_id, attempt), seconds=_KILL_S)
    if stopped.running:
        log.warning("processes of call %s cannot be stopped: %s", call_id, stopped.running)
    return stopped


def stop_marked(mark: str, *, seconds: float) -> StoppedProcesses:
    """Stop all processes whose mark starts with `mark`, and their descendants.

    Blocks until they are gone, for `seconds` at most.
    """
    deadline = time.monotonic() + seconds
    stopped: set[int] = set()
    # Once the process with the mark is dead, nothing names its descendants, which may take longer to die.
    while left := _processes_of(mark) | set(filter(_is_running, stopped)):
        if time.monotonic() > deadline:
            return StoppedProcesses(count=len(stopped - left), running=tuple(sorted(left)))
        stopped |= _stop_and_kill(mark)
        time.sleep(_KILL_RETRY_S)
    return StoppedProcesses(count=len(stopped))


def _mark(call_id: CallId, attempt: int) -> str:
    """Return the prefix of the marks of an attempt's processes."""
    return f"{attempt_name(call_id, attempt)}/"


def _stop_and_kill(mark: str) -> set[int]:
    """Stop all, so that none can fork meanwhile, then kill them; return those that were signalled."""
    numbers = (signal.SIGSTOP, signal.SIGKILL)
    return set().union(*(signal_all(lambda: _processes_of(mark), number) for number in numbers))


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:
            return handle.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def _processes_of(mark: str) -> set[int]:
    """Return the processes whose environment names the attempt, and their descendants; never this one."""
    found = _marked_processes(mark)
    return found.union(*(descendants(pid) for pid in found)) - {os.getpid()}


def _marked_processes(prefix: str) -> set[int]:
    """Return the processes whose mark starts with `prefix`, without this one.

    A zombie has no environment any more, so it is not among them.
    """
    wanted = f"{CALL_VARIABLE}={prefix}".encode("utf-8", "surrogateescape")
    try:
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
    except OSError:
        return set()
    return {pid for pid in pids if _is_marked(pid, wanted)}


def _is_marked(pid: int, wanted: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as handle:
            return any(entry.startswith(wanted) for entry in handle.read(_MAX_ENVIRONMENT_BYTES).split(b"\0"))
    except OSError:
        return False

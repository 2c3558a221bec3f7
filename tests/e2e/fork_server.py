"""Starts the program by forking a process that has imported everything: each start is a real process that can be
killed, without the second that imports take. `shared` is the one that all tests of this process may use.

`ForkServer` is the test's side. Run as a program, this module is the other: for each message (what to start, as JSON,
with its three streams and a socket) it forks, tells the child's process id through that socket and, when the child has
ended, its exit status.
"""

import atexit
import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from tests.support.command_line import Ran, program_environment
from tests.support.terminal import Program, Terminal, terminal_environment

_LOADED = (
    "anyio._backends._asyncio",
    "chatops.commands.approvals",
    "chatops.commands.deciding",
    "chatops.commands.ask",
    "chatops.commands.parser",
    "chatops.commands.ask",
    "chatops.commands.sessions",
    "chatops.commands.workflow",
    "chatops.config.workflow_read",
    "chatops.models.client",
    "chatops.demo.model",
    "chatops.models.chat",
    "chatops.store.store",
    "chatops.tools.catalog",
    "chatops.wiring.toolbox",
    "h11",
    "httpcore2",
    "openai",
)
SCREEN = (
    "chatops.commands.chat",
    "chatops.tui.transcript.projector",
    "chatops.tui.dialogs.approval",
    "chatops.tui.transcript.transcript",
    "chatops.wiring.workspace",
)
"""Further modules that the chat on a terminal needs."""
_LARGEST = 65_536
"""Bytes of a message."""


class Child:
    """A started program."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self._reading = threading.Lock()
        self._code: int | None = None
        answers.settimeout(None)
        self.pid = int(answers.recv(100))

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, a signal's negative; raises subprocess.TimeoutExpired."""
        with self._reading:
            if self._code is None:
                self._answers.settimeout(timeout)
                try:
                    self._code = int(self._answers.recv(100))
                except TimeoutError:
                    raise subprocess.TimeoutExpired("chatops", timeout or 0) from None
                self._answers.close()
            return self._code

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""
        try:
            return self.wait(0.000_001)
        except subprocess.TimeoutExpired:
            return None


class ForkServer:
    """Starts `chatops` with any arguments; a start that a signal ended has that signal's negative as its code."""

    def __init__(self, *further: str, within: Sequence[str] = ()) -> None:
        """`further` modules are imported too; `within` is a command that runs the one behind it elsewhere."""
        self._streams = tempfile.TemporaryDirectory()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*within, sys.executable, "-m", "tests.e2e.fork_server", str(theirs.fileno()), *further],
                cwd=program_environment()["PYTHONPATH"],
                env=program_environment() | {"LANG": "C.UTF-8"},
                pass_fds=[theirs.fileno()],
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._control.close()
        self._process.wait()
        self._streams.cleanup()

    def run(self, *arguments: str, cwd: Path, env: dict[str, str], killed_after: float = 0) -> Ran:
        """One run of the program, from start to whatever ended it: a SIGKILL after so many seconds at the latest."""
        out, err = (Path(self._streams.name) / name for name in ("out", "err"))
        with open(os.devnull, "rb") as nothing, out.open("wb") as standard, err.open("wb") as other:
            streams = (nothing.fileno(), standard.fileno(), other.fileno())
            child = self.start(arguments, cwd=cwd, env=env, streams=streams)
        try:
            code = child.wait(killed_after or None)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        return Ran(code=code, out=out.read_text(), err=err.read_text())

    def start(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        on_terminal: bool = False,
    ) -> Child:
        """Start the program with these three streams. `env` is added to the environment of this process as it is now,
        and is all of it for a program `on_terminal`, which gets a session of its own with the first stream as its
        terminal."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        whole = dict(env) if on_terminal else {**os.environ, **env}
        wanted = {"argv": list(arguments), "cwd": str(cwd), "env": whole, "on_terminal": on_terminal}
        with theirs:
            socket.send_fds(self._control, [json.dumps(wanted).encode()], [theirs.fileno(), *streams])
        return Child(ours)


class ForkedTerminal(Terminal):
    """A terminal whose program a fork server starts."""

    def __init__(
        self,
        fork_server: ForkServer,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        cols: int = 100,
        rows: int = 30,
        kitty: bool = False,
    ) -> None:
        self._fork_server = fork_server
        super().__init__(arguments, cwd=cwd, env=env, cols=cols, rows=rows, kitty=kitty)

    def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | str | None, slave: int) -> Program:
        """Fork the program onto the terminal."""
        assert cwd is not None
        streams = (slave, slave, slave)
        whole = {**terminal_environment(), **env}
        return self._fork_server.start(argv, cwd=Path(cwd), env=whole, streams=streams, on_terminal=True)


@cache
def shared(*further: str) -> ForkServer:
    """The one of this process, with a screen; started when it is first asked for, and gone with this process. There is
    one for each set of `further` modules."""
    started = ForkServer(*SCREEN, *further)
    atexit.register(started.__exit__, None, None, None)
    return started


def _serve(control: socket.socket) -> None:
    ready = selectors.DefaultSelector()
    ready.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is control:
                message, passed, _, _ = socket.recv_fds(control, _LARGEST, 4)
                if not message:
                    return
                child = os.fork()
                if not child:
                    control.close()
                    _become(json.loads(message), *passed)
                answers = socket.socket(fileno=passed[0])
                for descriptor in passed[1:]:
                    os.close(descriptor)
                answers.send(str(child).encode())
                ready.register(os.pidfd_open(child), selectors.EVENT_READ, (child, answers))
            else:
                child, answers = key.data
                ready.unregister(key.fd)
                os.close(key.fd)
                _, status = os.waitpid(child, 0)
                with answers, contextlib.suppress(OSError):
                    answers.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(wanted: dict[str, Any], answers: int, *streams: int) -> NoReturn:
    """The program, as if it had been started with these arguments, in this folder, with these streams.

    Like any program it ends with its threads and does what it has registered for the end. What the interpreter does
    after that, taking all modules apart, would take longer than most commands.
    """
    code = 70
    try:
        os.close(answers)
        if wanted["on_terminal"]:
            os.setsid()
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 1024)
        os.chdir(wanted["cwd"])
        os.environ.clear()
        os.environ.update(wanted["env"])
        from chatops.cli import main

        code = main(wanted["argv"])
    except BaseException:
        traceback.print_exc()
    finally:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for module in (*_LOADED, *sys.argv[2:]):
        __import__(module)
    _serve(socket.socket(fileno=int(sys.argv[1])))

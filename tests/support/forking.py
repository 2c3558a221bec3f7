"""Let `subprocess.Popen` fork ``python -m chatops`` from a process that has imported it: no start pays for imports.

What is forked is a process like any other: a child of the one that starts it, with the arguments, environment, folder,
streams, session and exit status that a new program would have, also in ``/proc``. Started as always is a program for
which Python would find something else while it starts (`_READ_AT_THE_START`) or that Popen has more to do for, and
what a forked program starts. In a session of its own a forked program takes its standard input for its terminal.

Run as a program, this module is the process that forks. For each message (what to start, as JSON, with its streams and
a socket) it forks a process that forks the program and ends; the test's process, a "subreaper" meanwhile, adopts it.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import inspect
import json
import os
import pkgutil
import socket
import subprocess
import sys
import termios
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from chatops import __main__ as main

_REPOSITORY = Path(__file__).resolve().parents[2]
_PR_SET_CHILD_SUBREAPER = 36
_REAL = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_ARGUMENTS = inspect.signature(_REAL)
_AS_ALWAYS = {
    "executable": None,
    "preexec_fn": None,
    "close_fds": True,
    "pass_fds": (),
    "shell": False,
    "gid": None,
    "gids": None,
    "uid": None,
    "umask": -1,
    "process_group": -1,
}
"""Arguments of Popen with the values under which a program can be forked."""
_READ_AT_THE_START = ("LANG", "LC_ALL", "LC_CTYPE", "TERM", "COLORTERM", "NO_COLOR", "LD_PRELOAD", "PYTHONPATH")
_USUAL = {"LANG": "C.UTF-8", "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(_REPOSITORY)}
"""Values of these which the forking process has, or which the modules that it has imported do not look at."""
_BEFORE_TESTS = dict(os.environ)
_ON_DEMAND = frozenset({"acp", "serve", "tui"})
"""Packages that are imported once a program needs them."""
_THIRD_PARTY = ("anyio._backends._asyncio", "h11", "httpcore2", "openai")
"""What the program imports late, from within other packages."""
_ROOM = 65_536
"""Bytes of a message at most, which are also those that ``/proc`` has for arguments and for the environment."""


class ForkServer:
    """The test's side of the process that forks."""

    def __init__(self, *within: str, load: str = "sys") -> None:
        """`within` is a command that runs the one behind it elsewhere; `load` is a further module to import."""
        self._starting = threading.Lock()
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _ROOM)
        with theirs:
            self._process = subprocess.Popen(
                [*within, sys.executable, "-m", "tests.support.forking", str(theirs.fileno()), load, "-" * _ROOM],
                cwd=_REPOSITORY,
                # Nothing of the test that is the first to start a program. The room is overwritten in each program.
                env={**_BEFORE_TESTS, **_USUAL, "ROOM": "-" * _ROOM},
                pass_fds=[theirs.fileno()],
            )

    def close(self) -> None:
        """End the process that forks; what it has started goes on."""
        self._control.close()
        self._process.wait()

    @contextlib.contextmanager
    def forking(self) -> Iterator[None]:
        """Let this one fork within, and end it."""
        global _server
        before, _server = _server, self
        try:
            yield
        finally:
            _server = before
            self.close()

    def start(self, wanted: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Start a program with these three streams; its process id."""
        message = json.dumps(wanted).encode("utf-8", "surrogatepass")
        answer, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Only while it starts: what else a test leaves behind is to be adopted by the init of the machine.
        with self._starting, answer:
            self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                with theirs:
                    socket.send_fds(self._control, [message], [theirs.fileno(), *streams])
                pid = int(answer.recv(100))
                # Sent once the process that has forked the program is gone, and the program adopted.
                answer.recv(100)
            finally:
                self._prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        return pid


_server: ForkServer | None = None


def install() -> None:
    """Let Popen fork from now on, in this process."""
    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]


def can_fork(argv: Sequence[object], env: Mapping[str, str]) -> bool:
    """Return whether a start of that program differs in nothing that Python reads before it runs."""
    if argv[:3] != [sys.executable, "-m", "chatops"] and argv[:4] != [sys.executable, "-P", "-m", "chatops"]:
        return False
    python = {name for name in env if name.startswith("PYTHON")} - {"PYTHONPATH", "PYTHONUNBUFFERED"}
    usual = (env.get(name) in (_BEFORE_TESTS.get(name), _USUAL.get(name)) for name in _READ_AT_THE_START)
    return all(usual) and not python


def _execute_child(popen: Any, *arguments: Any) -> None:
    """Take the place of the method of Popen."""
    global _server
    asked = _ARGUMENTS.bind(popen, *arguments).arguments
    argv = [] if isinstance(asked["args"], str | bytes | os.PathLike) else list(asked["args"])
    cwd = asked["cwd"] or os.getcwd()
    env = dict(os.environ if asked["env"] is None else asked["env"])
    usual = all(asked.get(name, value) == value for name, value in _AS_ALWAYS.items())
    wanted = {"argv": [*map(str, argv)], "cwd": os.fspath(cwd), "env": env, "session": asked["start_new_session"]}
    if not (usual and can_fork(argv, env) and os.path.isdir(cwd) and len(json.dumps(wanted)) < _ROOM):
        _REAL(popen, *arguments)
        return
    if _server is None:
        _server = ForkServer()
        atexit.register(_server.close)
    ends = [asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
    streams = [number if given == -1 else given for number, given in enumerate((ends[0], ends[3], ends[5]))]
    popen.pid = _server.start(wanted, streams)
    popen._child_created = True
    popen._close_pipe_fds(*ends)


def _import(package: str, *, but: frozenset[str] = frozenset()) -> None:
    """Import a package with all that is in it, but for what these names stand for."""
    __import__(package)
    for module in pkgutil.iter_modules(sys.modules[package].__path__, f"{package}."):
        name = module.name.rpartition(".")[2]
        if module.ispkg and name not in but:
            _import(module.name)
        elif name != "__main__" and name not in but:
            __import__(module.name)


def _serve(control: socket.socket, further: str) -> None:
    _import("chatops", but=_ON_DEMAND)
    for name in (*_THIRD_PARTY, further):
        __import__(name)
    gc.freeze()
    while True:
        message, passed, _, _ = socket.recv_fds(control, _ROOM, 4)
        if not message:
            return
        wanted = json.loads(message.decode("utf-8", "surrogatepass"))
        for name in _ON_DEMAND.intersection([*wanted["argv"], "tui" if os.isatty(passed[2]) else ""]):
            _import(f"chatops.{name}")
        if not os.fork():
            control.close()
            child = os.fork()
            if not child:
                _become(wanted, *passed)
            os.write(passed[0], str(child).encode())
            os._exit(0)
        os.wait()
        os.write(passed[0], b"adopted")
        for descriptor in passed:
            os.close(descriptor)


def _become(wanted: Mapping[str, Any], answer: int, *streams: int) -> NoReturn:
    """The program, as if Python had been started with these arguments, in this folder, with these streams.

    It ends with its threads and does what it has registered for the end, like any program. What the interpreter does
    after that, taking all modules apart, would take longer than most commands.
    """
    code = 1
    try:
        if wanted["session"]:
            os.setsid()
            with contextlib.suppress(OSError):
                fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 1024)
        os.chdir(wanted["cwd"])
        os.environ.clear()
        os.environ.update(wanted["env"])
        _show(wanted["argv"], wanted["env"])
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            usual = getattr(sys, name)
            file = open(number, usual.mode, encoding=usual.encoding, errors=usual.errors, closefd=False)
            unbuffered = "PYTHONUNBUFFERED" in os.environ
            file.reconfigure(line_buffering=file.line_buffering or number == 2, write_through=unbuffered)
            setattr(sys, name, file)
        start = wanted["argv"].index("chatops")
        sys.orig_argv = wanted["argv"]
        sys.argv = [main.__file__, *wanted["argv"][start + 1 :]]
        if "-P" not in wanted["argv"][:start]:
            sys.path.insert(0, wanted["cwd"])
        code = main.main()
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _show(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Write arguments and environment where ``/proc`` reads those of this process."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arguments, _, variables, end = map(int, fields[45:49])
    text = b"".join(os.fsencode(word) + b"\0" for word in argv)
    ctypes.memmove(arguments, text.ljust(variables - arguments, b"\0"), variables - arguments)
    text = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    ctypes.memmove(variables, text.ljust(end - variables, b"\0"), end - variables)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])

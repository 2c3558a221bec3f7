"""Starts the program by forking a process that has imported everything: each start is a real process that can be
killed, without the second that imports take.

`Zygote` is the test's side. Run as a program this module is the other side: it reads one JSON object per line (the
arguments, the folder, variables, files for the two streams) and answers with the exit status.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from tests.support.command_line import Ran, program_environment

_LOADED = (
    "anyio._backends._asyncio",
    "chatops.commands.approvals",
    "chatops.commands.ask",
    "chatops.commands.parser",
    "chatops.commands.resume",
    "chatops.commands.sessions",
    "chatops.commands.workflow",
    "chatops.models.client",
    "chatops.models.openai_chat",
    "chatops.store.sqlite",
    "chatops.tools.catalog",
    "chatops.wiring.toolbox",
    "h11",
    "httpcore2",
    "openai",
)


class Zygote:
    """Starts `chatops` with any arguments; a start that a signal ended has that signal's negative as its code."""

    def __init__(self) -> None:
        self._streams = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=program_environment()["PYTHONPATH"],
            env=program_environment(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()
        self._streams.cleanup()

    def run(self, *arguments: str, cwd: Path, env: dict[str, str], killed_after: float = 0) -> Ran:
        """One run of the program, from start to whatever ended it: a SIGKILL after so many seconds at the latest."""
        out, err = (Path(self._streams.name) / name for name in ("out", "err"))
        wanted = {
            "argv": arguments,
            "cwd": str(cwd),
            "env": env,
            "out": str(out),
            "err": str(err),
            "after": killed_after,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return Ran(code=code, out=out.read_text(), err=err.read_text())


def _serve() -> None:
    for module in _LOADED:
        __import__(module)
    for line in sys.stdin:
        wanted = json.loads(line)
        child = os.fork()
        if not child:
            _become(wanted)
        killer = threading.Timer(wanted["after"], os.kill, (child, signal.SIGKILL))
        if wanted["after"]:
            killer.start()
        _, status = os.waitpid(child, 0)
        killer.cancel()
        if wanted["after"]:
            # No thread may be there when the next child is forked.
            killer.join()
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(wanted: dict[str, object]) -> NoReturn:
    """The program, as if it had been started with these arguments, in this folder, with these streams."""
    code = 70
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for number, stream in (
            (0, nothing),
            (1, os.open(str(wanted["out"]), flags)),
            (2, os.open(str(wanted["err"]), flags)),
        ):
            os.dup2(stream, number)
        os.chdir(str(wanted["cwd"]))
        variables, arguments = wanted["env"], wanted["argv"]
        assert isinstance(variables, dict) and isinstance(arguments, list)
        os.environ.update(variables)
        from chatops.cli import main

        code = main(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()

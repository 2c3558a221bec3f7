"""A chat kept open over many faults, where commands are in a sandbox and where they are not."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from chatops.sandbox.confinement import probe
from tests.e2e.installation import ChatTerminal, Installation
from tests.faults.entry_points import FaultyChat, Provider, patient_registry
from tests.support.command_line import program_environment

IN_DOUBT = "u tell the model it is unknown"
"""On the screen when an interrupted call is asked about."""
needs_sandbox = pytest.mark.skipif(bool(probe()[1]), reason=f"no sandbox here: {probe()[1]}")


def hiding_bubblewrap(argv: Sequence[str]) -> tuple[str, ...]:
    """`argv` as the same process, in a mount namespace in which there is no bubblewrap."""
    program = shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin")
    if program is None:
        return tuple(argv)
    return ("unshare", "-rm", "sh", "-c", 'mount --bind /dev/null "$0" && exec "$@"', program, *argv)


@cache
def can_hide_bubblewrap() -> bool:
    """Return True if this machine permits such a namespace."""
    try:
        return not subprocess.run(hiding_bubblewrap(["true"]), capture_output=True, check=False).returncode
    except OSError:
        return False


class Bench:
    """The chat of one user: open whenever it is asked for, also after it has been quit or killed."""

    def __init__(
        self, folder: Path, provider: Provider, *, sandbox: bool, env: Mapping[str, str] | None = None
    ) -> None:
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        self.sandbox = sandbox
        self.provider = provider
        self.installation = Installation.with_note(folder / "project", self.home)
        self.installation.use(patient_registry(provider.server.url))
        self._env = dict(env or {})
        self._terminal: ChatTerminal | None = None
        self._opened = 0

    @property
    def chat(self) -> FaultyChat:
        """The open chat; a call that was interrupted when it was closed is told to the model as unknown."""
        if self._terminal is None:
            more = ("-c",) if self._opened else ("--role", "coder")
            argv = [sys.executable, "-m", "chatops", *self.installation.flags, *more]
            env = {"PYTHONPATH": program_environment()["PYTHONPATH"], "CHATOPS_HOME": str(self.home)}
            self._terminal = ChatTerminal(
                argv if self.sandbox else hiding_bubblewrap(argv),
                env={**env, "HOME": str(self.home.parent), **self._env},
                cwd=self.installation.workspace,
                cols=110,
                rows=36,
            )
            self._terminal.ready("coder")
            self._opened += 1
            if self._opened > 1:
                self._answer(self._terminal)
        return FaultyChat(self.installation, self.provider, self._terminal)

    def _answer(self, terminal: ChatTerminal) -> None:
        """Answer for the call that the last end of the program has interrupted, unless it was cancelled before."""
        asked = self.provider.requests[-1].last_user
        terminal.wait_until(
            lambda text: IN_DOUBT in text or self.installation.session().active_turn is None,
            what="the interrupted call",
        )
        if IN_DOUBT in terminal.text():
            self.provider.script()
            terminal.press("u")
            terminal.wait_gone(IN_DOUBT)
            terminal.wait_for(f"You said: {asked}")

    def left(self, end: str) -> None:
        """A program that was ended like this is gone, and so the next chat is a new process.

        To be called once survivors were looked for: a terminal that is closed kills who would have stopped them.
        """
        if end in ("quit", "SIGKILL"):
            self.close()

    def close(self) -> None:
        """End what is open."""
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None


def sleeping(number: str) -> list[int]:
    """Processes that sleep for exactly that many seconds; wrappers that only name the number are none."""
    return [pid for pid in _processes() if _words(pid)[-2:] in (["sleep", number], ["/usr/bin/sleep", number])]


def naming(number: str) -> list[int]:
    """Living processes whose command line holds the number anywhere."""
    return [pid for pid in _processes() if any(number in word for word in _words(pid))]


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []

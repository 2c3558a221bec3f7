"""An installation with forked programs, a scene beside it, and a user who continues with one effect after another."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from chatops.config.failpoints import VARIABLE
from tests.e2e.installation import ChatTerminal, Installation
from tests.kill.scene import Scene
from tests.support import processes
from tests.support.command_line import Ran, program_environment
from tests.support.waiting import PATIENCE

PROGRAM = (sys.executable, "-m", "chatops")
LOOK_S = 0.005
KILLED = -9
EMPTY = "Message (Enter sends"
UNKNOWN = "u tell the model it is unknown"


class StuckError(AssertionError):
    """Nothing that was waited for came, and the program lives."""


class KilledChat(ChatTerminal):
    """The chat, which may die while something is waited for."""

    def reaches(self, holds: Callable[[str], bool], *, what: str) -> bool:
        """Wait until `holds` is true of the screen; False if the program is dead before. Raises StuckError."""
        give_up = time.monotonic() + PATIENCE
        while not holds(text := self.text()):
            if not processes.running(self.pid):
                return False
            if time.monotonic() > give_up:
                raise StuckError(f"Waited for {what}. The screen:\n{text}")
            time.sleep(LOOK_S)
        return True


class Stage:
    """Entry point of a kill."""

    def __init__(self, installation: Installation, scene: Scene) -> None:
        self.installation = installation
        self.scene = scene
        self.file = installation.home / "data" / "chatops.db"
        self._commands = 0

    def chat(self, *arguments: str, point: str = "") -> KilledChat:
        """The chat on a new terminal, as coder; dies at `point`."""
        return KilledChat(
            [*PROGRAM, *self.installation.flags, *arguments, "--role", "coder"],
            cwd=self.installation.workspace,
            env={VARIABLE: point},
            cols=110,
            rows=36,
        )

    def run(self, *arguments: str) -> Ran:
        """A command, to its end."""
        return self.command(*arguments).ended()

    def command(self, *arguments: str, point: str = "") -> "Command":
        """A command that has been started; dies at `point`."""
        self._commands += 1
        folder = self.installation.workspace.parent
        out, err = (folder / f"{name}-{self._commands}" for name in ("out", "err"))
        with out.open("wb") as standard, err.open("wb") as other:
            child = subprocess.Popen(
                [*PROGRAM, *self.installation.flags, *arguments],
                cwd=self.installation.workspace,
                env=program_environment() | {"CHATOPS_HOME": str(self.installation.home), VARIABLE: point},
                stdin=subprocess.DEVNULL,
                stdout=standard,
                stderr=other,
            )
        return Command(child, out, err)


class Command:
    """A command under way."""

    def __init__(self, child: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self._child = child
        self._out = out
        self._err = err

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()

    @property
    def out(self) -> str:
        """Return its output so far."""
        return self._out.read_text()

    def reaches(self, holds: Callable[[str], bool], *, what: str) -> bool:
        """Wait until `holds` is true of its output; False if it has ended before. Raises StuckError."""
        give_up = time.monotonic() + PATIENCE
        while not holds(self.out):
            if self._child.poll() is not None:
                return False
            if time.monotonic() > give_up:
                raise StuckError(f"Waited for {what}. {self.out}\n{self._err.read_text()}")
            time.sleep(LOOK_S)
        return True

    def ended(self) -> Ran:
        """Return its exit code."""
        code = self._child.wait(PATIENCE)
        return Ran(code=code, out=self.out, err=self._err.read_text())

"""A real program on a real pseudo-terminal: what a user sees and types, for tests.

    with Terminal(["chatops"], cwd=workspace) as terminal:
        terminal.wait_for("demo")
        terminal.send("run `ls`")
        terminal.press("enter")

A program started here is gone, with all that it started, when the block ends.
"""

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import processes
from tests.support.emulator import Cell, Emulator, Image
from tests.support.forking import can_fork
from tests.support.waiting import PATIENCE

_ESCAPE_REST = 0.3
# A new session leader whose standard input is the terminal has to ask for it as its controlling one.
# In a C locale Python sets LC_CTYPE for its children; the program gets what the test has set.
_LAUNCHER = (
    "import fcntl,os,sys,termios;fcntl.ioctl(0,termios.TIOCSCTTY,0);"
    "sys.argv[1]=='-' and os.environ.pop('LC_CTYPE',0);os.execvp(sys.argv[2],sys.argv[2:])"
)
_MARK = "CHATOPS_TEST_TERMINAL"
_INHERITED = ("PATH", "PYTHONPATH", "CHATOPS_HOME", "SSL_CERT_FILE")

_KEYS = {
    "enter": "\r",
    "tab": "\t",
    "shift+tab": "\x1b[Z",
    "escape": "\x1b",
    "space": " ",
    "backspace": "\x7f",
    "delete": "\x1b[3~",
    "shift+up": "\x1b[1;2A",
    "shift+down": "\x1b[1;2B",
    "insert": "\x1b[2~",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "f1": "\x1bOP",
    "f2": "\x1bOQ",
    "f3": "\x1bOR",
    "f4": "\x1bOS",
}


class Terminal:
    """A program in its own session on a terminal of `cols` × `rows` cells.

    The program gets a small environment of its own (PATH, PYTHONPATH, a UTF-8 locale, TERM, the test's CHATOPS_HOME, an
    empty HOME in there) with `env` on top: nothing of the developer's settings gets in.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        cols: int = 100,
        rows: int = 30,
        kitty: bool = False,
    ) -> None:
        """Start `argv`; raises OSError if there is no terminal to be had. `kitty`: it shows images."""
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        self._emulator = Emulator(columns=cols, rows=rows, kitty=kitty)
        self._raw = bytearray()
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._written_at = 0.0
        """When the program wrote last."""
        self._ended = False
        self._deaf = False
        self._known: set[processes.Process] = set()
        self._master, slave = os.openpty()
        _set_size(self._master, cols=cols, rows=rows)
        self._settings = termios.tcgetattr(slave)
        try:
            marked = {**(env or {}), **dict([self._mark.split("=", 1)])}
            self._child = _start(argv, env=terminal_environment() | marked, cwd=cwd, slave=slave)
        except BaseException:
            os.close(self._master)
            raise
        finally:
            os.close(slave)
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        """The terminal itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @property
    def pid(self) -> int:
        """The program's process id, which is its session's too."""
        return self._child.pid

    @property
    def raw(self) -> bytes:
        """Every byte that the program has written so far, escape sequences and all."""
        with self._changed:
            return bytes(self._raw)

    @property
    def title(self) -> str:
        """The window title that the program set."""
        with self._changed:
            return self._emulator.title

    def screen(self) -> list[str]:
        """The rows now on the screen, without the blanks at their ends."""
        with self._changed:
            return self._emulator.lines()

    def text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.screen())

    def cursor(self) -> tuple[int, int]:
        """Row and column of the cursor, counted from 0."""
        with self._changed:
            return self._emulator.cursor()

    def cells(self) -> list[list[Cell]]:
        """The characters on the screen with their looks, row by row."""
        with self._changed:
            return self._emulator.cells()

    def images(self) -> dict[int, Image]:
        """The images that the terminal keeps, by their ids."""
        with self._changed:
            return dict(self._emulator.images)

    def pictured(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """The cells in which a part of an image is seen: by row and column, its id and the part's row and column."""
        with self._changed:
            return self._emulator.pictured()

    def left_on(self) -> list[str]:
        """Terminal settings that the program changed and did not restore: modes, echo, line editing."""
        with self._changed:
            modes = self._emulator.left_on()
        return modes + ([] if termios.tcgetattr(self._master) == self._settings else ["line settings"])

    def wait_for(self, wanted: str | re.Pattern[str], *, timeout: float = PATIENCE) -> str:
        """Wait until the screen's text holds `wanted` and return that text; AssertionError with the screen if not."""
        return self.wait_until(lambda text: _holds(text, wanted), what=f"{wanted!r} to show", timeout=timeout)

    def wait_gone(self, unwanted: str | re.Pattern[str], *, timeout: float = PATIENCE) -> str:
        """Wait until the screen's text no longer holds `unwanted`."""
        return self.wait_until(lambda text: not _holds(text, unwanted), what=f"{unwanted!r} to go", timeout=timeout)

    def wait_until(self, holds: Callable[[str], bool], *, what: str, timeout: float = PATIENCE) -> str:
        """Wait until `holds` is true of the screen's text; `what` says in the failure what was waited for."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not holds(text := "\n".join(self._emulator.lines())):
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    reason = "the program's terminal closed" if self._ended else f"{timeout:g} s went by"
                    raise AssertionError(f"Waited for {what}, but {reason}. The screen:\n{_framed(text)}")
                # In slices, for `holds` may look at more than the screen.
                self._changed.wait(min(left, 0.1))
        return text

    def wait_quiet(self, seconds: float) -> None:
        """Wait until the program has written nothing for so long, at most ten times as long."""
        give_up = time.monotonic() + 10 * seconds
        with self._changed:
            while not self._ended and (now := time.monotonic()) < give_up and now - self._written_at < seconds:
                self._changed.wait(0.1)

    def send(self, text: str) -> None:
        """Type `text` as it is; control characters are keys."""
        self._write(text.encode())

    def press(self, *keys: str) -> None:
        """Press keys by name, one after the other: `enter`, `ctrl+g`, `alt+x`, `shift+tab`, `a`.

        A lone escape is followed by a rest, for programs tell it from the start of a sequence by time alone.
        """
        for key in keys:
            self._write(_key(key).encode())
            if key == "escape":
                time.sleep(_ESCAPE_REST)

    def paste(self, text: str) -> None:
        """Paste `text` as a terminal does for a program that asked for bracketed paste."""
        self.send(f"\x1b[200~{text}\x1b[201~")

    def trickle(self, *parts: str) -> None:
        """Type parts of a whole with a rest after each, as a slow line cuts up what a key or the mouse sends."""
        for part in parts:
            self.send(part)
            time.sleep(_ESCAPE_REST)

    def stop_reading(self) -> None:
        """Take nothing more of what the program writes, as a terminal that hangs."""
        self._deaf = True

    def go_on_reading(self) -> None:
        """Take again what the program writes."""
        self._deaf = False

    def resize(self, *, cols: int, rows: int) -> None:
        """Change the window's size; the program is told as by a window manager."""
        with self._changed:
            self._emulator.resize(columns=cols, rows=rows)
        _set_size(self._master, cols=cols, rows=rows)

    def processes(self) -> list[int]:
        """Ids of everything alive that this terminal's program started, directly or not, itself included."""
        self._known |= processes.family(self.pid, mark=self._mark)
        self._known = {process for process in self._known if processes.alive(process)}
        return sorted(process.pid for process in self._known)

    def kill9(self) -> None:
        """`kill -9` the program, and nothing but the program; returns when it is dead."""
        self.processes()
        self._child.kill()
        self._child.wait()

    def hang_up(self) -> None:
        """Tell the program that its window was closed (SIGHUP), as a closed terminal does."""
        self.processes()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGHUP)

    def tear_off(self) -> None:
        """Take the terminal away under the program: whatever it reads or writes from now on fails (EIO)."""
        self.processes()
        with self._changed:
            self._ended = True
        self._reader.join()
        os.close(self._master)
        self._master = -1

    def wait_exit(self, *, timeout: float = PATIENCE) -> int:
        """Wait for the program's end; its exit status, negative for a signal."""
        try:
            status = self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"Still running after {timeout:g} s. The screen:\n{_framed(self.text())}") from None
        if not self._deaf:
            # All that the program wrote is in the terminal's buffer by now.
            while self._has_unread_output():
                time.sleep(0.01)
        return status

    def _has_unread_output(self) -> bool:
        with self._changed:
            return not self._ended and bool(select.select([self._master], [], [], 0)[0])

    def close(self) -> None:
        """Kill what is left of the program and of what it started, and give the terminal back."""
        while left := self.processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.pid in left:
                self._child.wait()
            time.sleep(0.01)
        self._child.wait()
        with self._changed:
            self._ended = True
        self._reader.join()
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def _write(self, data: bytes) -> None:
        with self._writing, contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._master, data) :]

    def _read(self) -> None:
        while not self._ended:
            if self._deaf:
                time.sleep(0.01)
                continue
            readable, _, _ = select.select([self._master], [], [], 0.2)
            if not readable:
                continue
            with self._changed:
                try:
                    data = os.read(self._master, 1 << 16)
                except OSError:
                    data = b""
                self._raw += data
                self._written_at = time.monotonic()
                answers = self._emulator.feed(data)
                if not data:
                    self._ended = True
                self._changed.notify_all()
            if answers:
                self._write(answers)


def _start(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | str | None, slave: int
) -> subprocess.Popen[bytes]:
    """Start the program on the terminal."""
    words = [*map(os.fspath, argv)]
    if not can_fork(words, env):
        words = [sys.executable, "-ISc", _LAUNCHER, env.get("LC_CTYPE") or "-", *words]
    return subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=env, start_new_session=True)


def terminal_environment() -> dict[str, str]:
    """Return the environment for a program on a terminal."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    # Not the folder it starts in: a home as workspace is a case of its own.
    home = os.path.join(inherited.get("CHATOPS_HOME", tempfile.gettempdir()), "person")
    return inherited | {"HOME": home, "LANG": "C.UTF-8", "TERM": "xterm-256color", "COLORTERM": "truecolor"}


def _set_size(terminal: int, *, cols: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def _holds(text: str, wanted: str | re.Pattern[str]) -> bool:
    return wanted in text if isinstance(wanted, str) else wanted.search(text) is not None


def _framed(text: str) -> str:
    return "\n".join(f"| {line}" for line in text.split("\n"))


def _key(name: str) -> str:
    if name in _KEYS:
        return _KEYS[name]
    held, _, key = name.rpartition("+") if len(name) > 1 else ("", "", name)
    match held, key:
        case "ctrl", key if len(key) == 1:
            return chr(ord(key.upper()) & 0x1F)
        case "alt", key:
            return f"\x1b{_key(key)}"
        case "", key if len(key) == 1:
            return key
        case _:
            raise ValueError(f"No key is called {name!r}")

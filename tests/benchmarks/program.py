"""A program on a terminal of 120 x 40, recorded with times: what a benchmark sees of it."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[P_^X][^\x1b]*\x1b\\|[ -/]*[0-OQ-WYZ`-~])"
)
_MODE = re.compile(rb"\x1b\[\?(2026|2004)\$p")
_TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 120.0


def take_priority() -> None:
    """Let other programs of this machine disturb the figures less, where that is permitted (to root, on Linux)."""
    # With autogroups, nice values count within a session only, and each terminal starts a session.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("-15")


class Program:
    """A running program. Times are monotonic seconds."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        self.started = time.monotonic()
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                take_priority()
                os.execvpe(argv[0], [*argv], dict(env))
            finally:
                os._exit(127)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.bytes = 0
        self._text = b""
        """The output since the last `send`, without escape sequences."""
        self._rest = b""

    def send(self, keys: str) -> float:
        """Type keys and return when. What was printed before is forgotten."""
        self.pump(0)
        self._text = b""
        os.write(self._terminal, keys.encode())
        return time.monotonic()

    def pump(self, seconds: float) -> float | None:
        """Read what comes within that time; return when something came, or None."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return None
        at = time.monotonic()
        try:
            data = os.read(self._terminal, 1 << 20)
        except OSError:
            data = b""
        if not data:
            raise EOFError(f"the program has ended: {self._text[-2000:].decode(errors='replace')}")
        self.bytes += len(data)
        for mode in _MODE.findall(data):
            os.write(self._terminal, b"\x1b[?%b;2$y" % mode if mode == b"2026" else b"\x1b[?%b;1$y" % mode)
        data = self._rest + data
        cut = data.rfind(b"\x1b", max(0, len(data) - 64))
        cut = len(data) if cut < 0 or _SEQUENCE.match(data, cut) else cut
        data, self._rest = data[:cut], data[cut:]
        self._text = (self._text + _SEQUENCE.sub(b"", data))[-200_000:]
        return at

    def until(self, text: str) -> float:
        """Wait until `text` was printed since the last `send`, and return when it was."""
        wanted, end, at = text.encode(), time.monotonic() + PATIENCE_S, time.monotonic()
        while wanted not in self._text:
            at = self.pump(0.5) or at
            if time.monotonic() > end:
                raise TimeoutError(f"{text!r} did not appear: {self._text[-2000:].decode(errors='replace')}")
        return at

    def rest(self, seconds: float) -> None:
        """Let it run untouched for that time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.pump(left)

    def cpu(self) -> float:
        """Return the CPU seconds that it and its ended children have used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:15])) / _TICKS

    def memory(self) -> float:
        """Return its resident memory in MB."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def leave(self) -> float:
        """Quit with ctrl+q and return the seconds until it has ended."""
        at = self.send("\x11")
        try:
            while True:
                self.pump(PATIENCE_S)
        except EOFError:
            os.waitpid(self.pid, 0)
        os.close(self._terminal)
        return time.monotonic() - at

    def kill(self) -> None:
        """End it in any case."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            return


class Server:
    """`floor.server` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "requests.jsonl"
        self._log.touch()
        command = [sys.executable, "-m", "tests.benchmarks.floor.server", str(self._log)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/v1"

    def at(self, event: str, ident: str) -> float:
        """Return when the first `request` or the `last` token with this id was."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for line in self._log.read_text().splitlines():
                fields: dict[str, Any] = json.loads(line)
                if (fields["event"], fields["id"]) == (event, ident):
                    return float(fields["at"])
            time.sleep(0.02)
        raise TimeoutError(f"no {event} {ident}")

    def clear(self) -> None:
        """Forget all requests."""
        self._log.write_text("")

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()

"""The time that starting takes, as a ratio to the least that is possible, on this machine in one run:
``pytest -s -m bench tests/benchmarks/bench_start.py``.

Not collected by default. CPU time of fresh processes on a terminal of their own, so other work counts little.
"""

import fcntl
import os
import pty
import resource
import statistics
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

pytestmark = pytest.mark.bench

RUNS = 7
MOST = 1.5
"""Times the bare app; the measured floor of a chat is at about 1.1."""

MOST_OF_BARE = 5.5
"""Times `python -c pass` that --version may take; the aim is 5."""
MOST_OF_VERSION = 2.5
"""Times --version that a list from the store may take."""

_REPORT = """
import os, sys, time
def painted():
    with open(sys.argv[1], "w") as file:
        file.write(str(time.process_time()))
    os._exit(0)
"""

BARE = (
    _REPORT
    + """
import gc; gc.disable()
from textual.app import App
from textual.scroll_view import ScrollView
from textual.widgets import Input
class Bare(App):
    def compose(self):
        yield ScrollView()
        yield Input()
    def on_mount(self):
        self.query_one(Input).focus()
        self.call_after_refresh(painted)
Bare().run()
"""
)

CHAT = (
    _REPORT
    + """
import functools
import chatops.commands.chat as chat
chat.ChatopsApp = functools.partial(chat.ChatopsApp, on_painted=painted)
from chatops.cli import main
main([])
"""
)


def cpu_to_first_paint(program: str, report: Path) -> float:
    """Seconds of CPU time."""
    report.unlink(missing_ok=True)
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "CHATOPS_HOME": str(report.parent / "home")}
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(report)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
        start_new_session=True,
    )
    os.close(follower)
    said = b""
    try:
        while part := os.read(leader, 65_536):
            said += part
    except OSError:
        pass  # EIO: the other end is closed
    os.close(leader)
    assert child.wait(60) == 0 and report.exists(), said.decode(errors="replace")
    return float(report.read_text())


def test_the_first_paint_costs_little_more_than_that_of_a_bare_textual_app(tmp_path: Path) -> None:
    times: dict[str, list[float]] = {BARE: [], CHAT: []}
    for _ in range(RUNS):
        for program, taken in times.items():
            taken.append(cpu_to_first_paint(program, tmp_path / "report"))
    bare, chat = (statistics.median(taken) for taken in times.values())
    print(
        f"\nCPU to the first paint: bare Textual {bare * 1e3:.0f} ms, chatops {chat * 1e3:.0f} ms, {chat / bare:.2f}x"
    )
    assert chat < bare * MOST


def cpu_of(command: list[str], environment: dict[str, str]) -> float:
    """Seconds of CPU time that a program takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_commands_that_only_read_cost_little_more_than_the_version(tmp_path: Path) -> None:
    environment = {**os.environ, "CHATOPS_HOME": str(tmp_path / "home")}
    program = [str(Path(sys.executable).parent / "chatops"), "--workspace", str(tmp_path)]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "chatops --version": [*program, "--version"],
        "chatops sessions list": [*program, "sessions", "list"],
        "chatops approvals list": [*program, "approvals", "list"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(2 * RUNS):
        for name, command in commands.items():
            times[name].append(cpu_of(command, environment))
    bare, version, *lists = (statistics.median(taken) for taken in times.values())
    print("\n" + ", ".join(f"{name} {statistics.median(taken) * 1e3:.0f} ms" for name, taken in times.items()))
    assert version < bare * MOST_OF_BARE
    assert all(taken < version * MOST_OF_VERSION for taken in lists)

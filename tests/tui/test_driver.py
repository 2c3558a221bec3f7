"""Leaving restores the terminal and ends every thread."""

import os
import pty
import select
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

PROGRAM = """
import sys, threading
from textual.app import App
from textual.widgets import Static
from chatops.tui.driver import TerminalDriver

class Tiny(App):
    BINDINGS = [("q", "quit", ""), ("e", "edit", "")]
    ENABLE_COMMAND_PALETTE = False
    def compose(self):
        yield Static("ready", markup=False)
    def on_key(self, event):
        self.query_one(Static).update("got " + event.key)
    def action_edit(self):
        with self.suspend():
            print("<" + sys.stdin.readline().strip() + ">", flush=True)

def driver(app, **settings):
    return TerminalDriver(app, on_lost=app.exit, redraw=app.refresh, takes_text=lambda: False, **settings)

Tiny(driver_class=driver).run()
names = [thread.name for thread in threading.enumerate()]
print("threads", names, flush=True)
"""


class Terminal:
    def __init__(self, program: Path) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        self.process = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=environment,
            start_new_session=True,
        )

    def wait_for(self, text: bytes) -> None:
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], PATIENCE)
            assert ready, self.seen[-500:]
            self.seen += os.read(self.master, 65536)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(tmp_path: Path) -> object:
    program = tmp_path / "tiny.py"
    program.write_text(PROGRAM)
    made = Terminal(program)
    yield made
    made.close()


def test_leaving_restores_the_terminal_and_leaves_no_thread(terminal: Terminal) -> None:
    terminal.wait_for(b"ready")
    os.write(terminal.master, b"x")
    terminal.wait_for(b"got x")
    os.write(terminal.master, b"q")
    terminal.wait_for(b"threads ['MainThread']")
    assert terminal.process.wait(timeout=PATIENCE) == 0
    assert termios.tcgetattr(terminal.slave) == terminal.before
    for mode in (b"?1049l", b"?25h", b"?1000l", b"?1003l", b"?2004l", b"?1004l", b"\x1b[<u"):
        assert mode in terminal.seen.rpartition(b"got x")[2], mode


def test_a_key_waits_for_the_rest_of_a_paste_where_it_could_decide(tmp_path: Path) -> None:
    bursts = """
import os
from chatops.tui import key_reader
from chatops.tui.key_reader import KeyReader
from chatops.tui.input_parser import InputParser
# However slow the machine, the rest of a burst is waited for.
key_reader._BURST_MAX_S = 60.0
def burst(text, *, takes_text, marks_pastes):
    reading, writing = os.pipe()
    made = object.__new__(KeyReader)
    made._descriptor, made._takes_text = reading, lambda: takes_text
    os.write(writing, text)
    os.close(writing)
    first = os.read
    os.read = lambda handle, count: first(handle, 1)
    try:
        return made._read_burst(InputParser(marks_pastes=marks_pastes))
    finally:
        os.read = first
print(burst(b"a\\rb", takes_text=False, marks_pastes=False))
print(burst(b"a\\rb", takes_text=True, marks_pastes=False))
print(burst(b"\\ra\\r", takes_text=True, marks_pastes=False))
print(burst(b"\\ra\\r", takes_text=False, marks_pastes=False))
print(burst(b"\\x03a\\r", takes_text=True, marks_pastes=False))
print(burst(b"\\ra\\r", takes_text=False, marks_pastes=True))
"""
    found = subprocess.run([sys.executable, "-c", bursts], capture_output=True, text=True, check=True).stdout
    assert found.split() == [r"b'a\rb'", "b'a'", r"b'\r'", r"b'\ra\r'", r"b'\x03a\r'", r"b'\r'"]


@pytest.mark.more
def test_alt_with_a_digit_is_a_key_and_no_sign(terminal: Terminal) -> None:
    terminal.wait_for(b"ready")
    for sign in (b"2", b"-"):
        os.write(terminal.master, b"\x1b" + sign)
        terminal.wait_for(b"got alt+" + sign)
    os.write(terminal.master, b"q")
    assert terminal.process.wait(timeout=PATIENCE) == 0


def test_broken_utf8_does_not_end_the_app(terminal: Terminal) -> None:
    terminal.wait_for(b"ready")
    os.write(terminal.master, b"\xff\xfe")
    os.write(terminal.master, b"y")
    terminal.wait_for(b"got y")
    os.write(terminal.master, b"q")
    assert terminal.process.wait(timeout=PATIENCE) == 0


def test_another_program_gets_the_keys_while_the_app_is_suspended(terminal: Terminal) -> None:
    terminal.wait_for(b"ready")
    os.write(terminal.master, b"e")
    terminal.wait_for(b"?1049l")
    os.write(terminal.master, b"typed\n")
    terminal.wait_for(b"<typed>")
    terminal.wait_for(b"?1049h")
    terminal.seen = b""
    os.write(terminal.master, b"z")
    terminal.wait_for(b"got z")
    os.write(terminal.master, b"q")
    assert terminal.process.wait(timeout=PATIENCE) == 0
    assert termios.tcgetattr(terminal.slave) == terminal.before

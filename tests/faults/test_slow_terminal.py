"""A terminal that takes nothing for a while: the app does not wait for it, and what waits for it is bounded (F08)."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import EFFECT
from tests.faults.entry_points import FaultyChat
from tests.faults.terminals import chat_in
from tests.support.fake_openai import Completion, Raw, SeenRequest, Wait, call, calls, delta, says, sse
from tests.support.waiting import PATIENCE


def peak_memory(pid: int) -> int:
    """Kilobytes that the process has had at most."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[FaultyChat]:
    with chat_in(tmp_path) as opened:
        (opened.installation.workspace / "note.txt").write_text("the note")
        yield opened


class Over:
    """A reply that ends a turn, and an event for when it was asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._asked = threading.Event()

    def __call__(self, request: SeenRequest) -> Completion:
        self._asked.set()
        return says(self._text)

    def wait(self) -> None:
        assert self._asked.wait(PATIENCE), f"the server was not asked for {self._text!r}"


@pytest.mark.more
@pytest.mark.fault("F08")
def test_everything_goes_on_behind_a_terminal_that_stands_still_and_is_there_when_it_moves(chat: FaultyChat) -> None:
    lines = [f"line {number} of a long answer, as long as a line of the screen is or longer" for number in range(3000)]
    body = [sse(*(delta(f"{line}\n\n") for line in lines[at : at + 50]), done=False) for at in range(0, 3000, 50)]
    wanted = {"index": 0, "id": "c1", "function": {"name": "file_read", "arguments": '{"path": "note.txt"}'}}
    goes_on, read = threading.Event(), Over("That was the note.")
    begin, end = sse(delta("It begins. "), done=False), sse(delta(tool_calls=[wanted]), delta(finish="tool_calls"))
    chat.say("tell me", Raw(steps=(begin, Wait(event=goes_on), *body, end)), read)
    chat.wait_for("It begins")
    before = peak_memory(chat.terminal.pid)
    chat.terminal.stop_reading()
    goes_on.set()
    # Keys are read, and do what they do, although nothing of it can be seen.
    chat.terminal.send("half a thought")
    read.wait()
    chat.terminal.go_on_reading()
    chat.wait_for("line 2999 .* That was the note. .*half a thought")
    assert peak_memory(chat.terminal.pid) < before + 60_000
    chat.terminal.press("ctrl+c")
    chat.terminal.wait_gone("half a thought")
    # A tool that is asked for, approved and stopped at its limit.
    stopped = Over("It was stopped.")
    chat.say("now run it", calls(call("shell_exec", command="sleep 300", timeout_s=1)), stopped)
    chat.terminal.dialog()
    chat.terminal.stop_reading()
    chat.terminal.send("a")
    stopped.wait()
    chat.terminal.go_on_reading()
    chat.wait_for("sleep 300 .* It was stopped")
    assert "1 s" in chat.provider.requests[-1].tool_results[-1]
    chat.assert_well()


def fill_the_line(chat: FaultyChat) -> None:
    """Have whole screens drawn: more than the line to the terminal holds back."""
    for number in range(40):
        chat.terminal.resize(cols=100 + number % 2, rows=30)
        time.sleep(0.03)


@pytest.mark.fault("F08", "F12")
def test_a_dialog_that_nobody_can_have_seen_takes_no_answer(chat: FaultyChat) -> None:
    asks = threading.Event()
    wanted = calls(call("shell_exec", command=EFFECT), wait=Wait(event=asks))
    chat.say("write it down", wanted, says("It is over."))
    chat.wait_for("working")
    chat.terminal.stop_reading()
    fill_the_line(chat)
    asks.set()
    while chat.installation.session().pending == 0:
        time.sleep(0.05)
    for key in "asA":
        # Longer than a dialog that can be seen takes to accept a key.
        time.sleep(0.8)
        chat.terminal.send(key)
    chat.terminal.go_on_reading()
    chat.wait_for("a approve once")
    assert chat.installation.journal() == []
    chat.terminal.press("d")
    chat.wait_for("It is over.")
    chat.terminal.wait_for(re.compile(r"^│ asA +│$", re.MULTILINE))
    chat.terminal.press("ctrl+c")
    chat.assert_well()


@pytest.mark.more
@pytest.mark.fault("F08")
def test_the_app_leaves_a_terminal_that_stands_still(chat: FaultyChat) -> None:
    chat.assert_well()
    chat.terminal.stop_reading()
    fill_the_line(chat)
    os.kill(chat.terminal.pid, signal.SIGTERM)
    assert chat.terminal.wait_exit() == 0
    assert chat.terminal.processes() == []

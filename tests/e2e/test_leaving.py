"""Leaving, by choice or not: the terminal is as it was, nothing keeps running, what waits keeps waiting."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from chatops.domain.tools import Outcome
from tests.e2e.installation import EFFECT, TITLE, Installation, registry
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says
from tests.support.terminal import Terminal
from tests.support.waiting import PATIENCE


def assert_restored(terminal: Terminal) -> None:
    assert b"\x1b[?1049h" in terminal.raw, "the screen was never taken"
    assert terminal.left_on() == []
    assert "Traceback" not in terminal.text()


HELD = """
import sys
class Held:
    def find_spec(self, name, *rest):
        if name == "chatops.commands.chat":
            open("start", "rb", 0).read(1)  # Imports go on once the test writes to it.
sys.meta_path.insert(0, Held())
from chatops.cli import main
sys.exit(main(sys.argv[1:]))
"""


Held = tuple[Terminal, Callable[[], object]]


@pytest.fixture
def held(installation: Installation) -> Iterator[Held]:
    """The chat that has said that it starts, and what lets it import its screen."""
    os.mkfifo(installation.workspace / "start")
    pipe = os.open(installation.workspace / "start", os.O_RDWR)
    with installation.open(python=("-c", HELD)) as terminal:
        terminal.wait_for("Starting")
        yield terminal, lambda: os.write(pipe, b"x")
    os.close(pipe)


def test_the_terminal_says_at_once_that_the_chat_starts_and_keeps_none_of_it(held: Held) -> None:
    terminal, let_go = held
    terminal.send("typed\rahead")
    let_go()
    terminal.wait_for(re.compile(r"^▌ typed$[\s\S]*^│ ahead +│", re.MULTILINE))
    assert terminal.raw.partition(b"\x1b")[0] == b"\rStarting\r        \r"


def test_a_chat_killed_while_it_starts_restores_the_terminal(held: Held) -> None:
    terminal, let_go = held
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.send("\x1a\r")
    let_go()
    assert terminal.wait_exit() == -signal.SIGTERM
    assert (terminal.text().strip(), terminal.left_on()) == ("", [])


def test_ctrl_c_while_the_chat_starts_restores_the_terminal(held: Held) -> None:
    terminal, _ = held
    terminal.press("ctrl+c")
    assert terminal.wait_exit() == 130
    assert (terminal.text().strip(), terminal.left_on()) == ("", [])


@pytest.mark.fault("F10")
def test_ctrl_c_twice_quits_and_gives_the_terminal_back(installation: Installation) -> None:
    with installation.open() as terminal:
        terminal.wait_for("DEMO model")
        terminal.press("ctrl+c")
        terminal.wait_for("ctrl+c again quits")
        terminal.press("ctrl+c")
        assert terminal.wait_exit() == 0
        assert_restored(terminal)
        assert terminal.processes() == []


@pytest.mark.more
def test_leaving_says_what_was_interrupted_and_what_is_queued(installation: Installation) -> None:
    with installation.open("--role", "coder") as terminal:
        terminal.ready("coder")
        terminal.say("!sleep 600")
        terminal.wait_for("Esc to stop")
        terminal.say("and then?")
        terminal.wait_for("❯ and then?")
        terminal.press("ctrl+q")
        terminal.wait_for("ctrl+q again stops it and quits")
        terminal.press("ctrl+q")
        terminal.wait_for(
            "Interrupted while running shell_exec (sleep 600): outcome unknown.\n1 message is queued.\nTo continue: "
        )


def all_gone(terminal: Terminal) -> None:
    """Wait until the program's children have followed it; its terminal is closed by then."""
    deadline = time.monotonic() + PATIENCE
    while terminal.processes():
        assert time.monotonic() < deadline, f"still there: {terminal.processes()}"
        time.sleep(0.05)


def test_killed_while_the_tool_runs_it_is_not_run_again_but_asked_about(installation: Installation) -> None:
    slow = f"{EFFECT}; sleep 300"

    def model(request: SeenRequest) -> Completion:
        return says("Understood.") if request.tool_results else calls(call("shell_exec", command=slow))

    with FakeOpenAI(model) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("write it down")
            terminal.dialog()
            terminal.press("a")
            terminal.wait_until(lambda screen: installation.count == 1, what="the effect")
            terminal.kill9()
            all_gone(terminal)
        with installation.open("-c") as terminal:
            terminal.wait_for("it may have")
            terminal.wait_for("u tell the model it is unknown")
            terminal.press("a")
            terminal.wait_for("R runs it again")
            terminal.press("u")
            terminal.wait_for("Understood.")
            assert TITLE not in terminal.text()
        (result,) = server.requests[-1].tool_results
        assert server.violations == []
    assert installation.count == 1
    assert "unknown" in result
    assert [(row.attempt, row.outcome) for row in installation.journal()] == [(1, Outcome.UNKNOWN)]

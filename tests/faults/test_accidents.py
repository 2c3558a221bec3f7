"""Errors of our own: one line on the screen, the rest in the log, and the conversation goes on (D20, F10)."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.installation import ChatTerminal, Installation
from tests.faults.entry_points import FaultyChat, Provider, flat, patient_registry
from tests.support.command_line import program_environment
from tests.support.fake_openai import says


@contextmanager
def opened(installation: Installation, mode: str) -> Iterator[ChatTerminal]:
    program = [sys.executable, "-m", "tests.faults.accident", mode, *installation.flags, "--role", "coder"]
    env = {"PYTHONPATH": program_environment()["PYTHONPATH"]}
    with ChatTerminal(program, env=env, cwd=installation.workspace, cols=110, rows=36) as terminal:
        yield terminal


@pytest.fixture
def broken(installation: Installation, provider: Provider) -> Iterator[FaultyChat]:
    installation.use(patient_registry(provider.server.url))
    with opened(installation, "later") as terminal:
        terminal.ready("coder")
        yield FaultyChat(installation, provider, terminal)


def log_of(installation: Installation) -> str:
    (file,) = Path(installation.home).rglob("chatops.log")
    return file.read_text()


@pytest.mark.more
@pytest.mark.fault("D20", "F10")
def test_an_error_of_a_part_is_one_line_and_everything_goes_on(broken: FaultyChat) -> None:
    chat = broken
    chat.assert_well()
    for part in ("handler", "widget", "drawing"):
        chat.say(f"{part} breaks", says(f"The {part} was asked for."))
        chat.terminal.send("half a thought")
        chat.wait_for(rf"Internal error .RuntimeError: the {part} is broken")
        chat.wait_for(f"{part} breaks .*The {part} was asked for")
        assert "half a thought" in chat.terminal.text()
        assert "Traceback" not in chat.terminal.text()
        chat.terminal.press("ctrl+c")
        chat.terminal.wait_gone("half a thought")
        chat.assert_well()
    chat.say("worker breaks")
    chat.wait_for("RuntimeError: the worker is broken")
    # What was on its way is not lost with the worker: it is the last message of the history.
    chat.terminal.press("up")
    chat.wait_for(r"worker breaks.{0,20}coder ·")
    chat.terminal.press("ctrl+c")
    chat.assert_well()
    log = log_of(chat.installation)
    for part in ("handler", "widget", "drawing", "worker"):
        assert re.search(rf"(?s)Traceback.*RuntimeError: the {part} is broken", log)
    chat.terminal.press("ctrl+q")
    assert chat.terminal.wait_exit() == 0
    assert chat.terminal.left_on() == []
    assert "Traceback" not in chat.terminal.raw.decode()


@pytest.mark.more
@pytest.mark.fault("D20", "F10")
def test_a_screen_that_cannot_be_drawn_any_more_is_left_and_the_conversation_kept(broken: FaultyChat) -> None:
    chat = broken
    chat.say("breaks always", says("It has been said."))
    assert chat.terminal.wait_exit() == 1
    assert chat.terminal.left_on() == []
    text = flat(chat.terminal.text())
    assert "unexpected error: RuntimeError: the always is broken" in text
    assert "Nothing stored is lost" in text and "Traceback" not in text
    with chat.installation.open("-c") as terminal:
        again = FaultyChat(chat.installation, chat.provider, terminal)
        again.wait_for("breaks always .* ctx")
        again.assert_well()


@pytest.mark.more
@pytest.mark.fault("F10")
def test_an_error_at_the_start_gives_the_terminal_back(installation: Installation) -> None:
    with opened(installation, "start") as terminal:
        assert terminal.wait_exit() == 1
        assert terminal.left_on() == []
        text = flat(terminal.text())
        assert "unexpected error: RuntimeError: the start is broken" in text
        assert "Traceback" not in text

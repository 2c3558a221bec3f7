"""Keys typed before a screen is there, or right after the key that closes it, get where they were meant to go."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.installation import EFFECT, ChatTerminal, Installation
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says

SCREENS = {
    "roles": ("\x12", "│  {}"),
    "history": ("\x1br", "│  {}"),
    "find": ("\x06", " find {}"),
    "sessions": ("/sessions\r", "│  {}"),
    "help": ("\x1bOP/", "│  {}"),
    "commands": ("\x10", "│  {}"),
    "themes": ("/theme\r", "│  {}"),
    "models": ("/model\r", "│  {}"),
    "personas": ("/persona\r", "│  {}"),
    "context": ("/context\r/", "│  {}"),
    "permissions": ("/permissions\r/", "│  {}"),
    "nothing pending": ("\x07", "│ {}"),
    "no steps": ("\x0c", "│ {}"),
}
"""For each screen, the keys that open it and the place where it shows typed text."""
KEYS = re.compile(r"\x1bO.|\x1br|[\s\S]")
TYPED, AFTER = "hxlwbymnop", "Then this."


def answers(request: SeenRequest) -> Completion:
    if request.last_user == "Run it." and not request.tool_results:
        return calls(call("shell_exec", command=EFFECT))
    return says(f"You said: {request.last_user}")


@contextmanager
def chat(installation: Installation, role: str) -> Iterator[tuple[ChatTerminal, FakeOpenAI]]:
    with installation.chat(answers, role=role) as (server, terminal):
        yield terminal, server


def type_keys(terminal: ChatTerminal, keys: str, gap: float) -> None:
    """Send all keys in one write, or one by one `gap` seconds apart.

    Esc and a letter that are read at once, but without what follows, are an Alt key.
    """
    for key in KEYS.findall(keys) if gap else [keys]:
        terminal.send(key)
        time.sleep(0.15 if key == "\x1b" else gap)


@pytest.mark.parametrize(
    ("screens", "gap"),
    [
        (("roles", "find"), 0),
        *(pytest.param(tuple(SCREENS), gap, marks=pytest.mark.more) for gap in (0, 0.001, 0.005, 0.03)),
    ],
)
def test_what_is_typed_ahead_of_a_screen_gets_there(
    installation: Installation, screens: tuple[str, ...], gap: float
) -> None:
    with chat(installation, "assistant") as (terminal, server):
        terminal.say("Hello.")
        terminal.wait_for("You said: Hello.")
        for name in screens:
            opens, shows = SCREENS[name]
            type_keys(terminal, opens + TYPED, gap)
            terminal.wait_for(shows.format(TYPED))
            # A search in a text ends before the text is closed.
            type_keys(terminal, ("\x1b" if opens.endswith("/") else "") + "\x1b" + AFTER, gap)
            terminal.wait_for(re.compile(rf"^│ (?:{TYPED})?{AFTER}.*│\n╰.*╯\n assistant", re.MULTILINE))
            terminal.send("\x15")
            terminal.wait_for("Message (Enter sends")
            assert len(server.requests) == 1, name


@pytest.mark.parametrize("gap", [0, pytest.param(0.005, marks=pytest.mark.more)])
def test_a_message_typed_right_after_a_choice_is_sent_under_it(installation: Installation, gap: float) -> None:
    with chat(installation, "assistant") as (terminal, server):
        # It marks pastes, so that two lines at once are keys.
        terminal.paste("")
        type_keys(terminal, "\x12coder\rFirst.\r", gap)
        terminal.wait_for("You said: First.")
        type_keys(terminal, "/role researcher\rSecond.\r", gap)
        terminal.wait_for("You said: Second.")
        systems = [request.system for request in server.requests]
        assert ["code-specialist" in system for system in systems] == [True, False]
        assert "research mode" in systems[1]


@pytest.mark.parametrize("gap", [0, 0.005, 0.03])
@pytest.mark.more
def test_a_message_begun_right_after_new_is_in_the_new_session(installation: Installation, gap: float) -> None:
    with chat(installation, "assistant") as (terminal, _):
        terminal.say("Hello.")
        terminal.wait_for("You said: Hello.")
        terminal.send("/new")
        terminal.wait_for("start an empty session")
        type_keys(terminal, f"\r{TYPED}", gap)
        terminal.wait_gone("You said: Hello.")
        terminal.wait_for(f"│ {TYPED} ")


def test_so_is_one_that_was_begun_before_the_first_session_was_open(installation: Installation) -> None:
    with chat(installation, "assistant") as (terminal, _):
        terminal.say("Hello.")
        terminal.wait_for("You said: Hello.")
        terminal.press("ctrl+q")
        terminal.wait_exit()
        with installation.open("-c") as later:
            later.send(f"/new\r{TYPED}")
            later.wait_for("Try ")
            later.wait_for(f"│ {TYPED} ")


@pytest.mark.more
@pytest.mark.parametrize("opens", ["", "\x12coder\r", "/sessions\r\x1b"])
def test_what_is_typed_right_before_quitting_is_kept(installation: Installation, opens: str) -> None:
    with chat(installation, "assistant") as (terminal, _):
        terminal.send(f"{opens}My draft.\x11")
        terminal.wait_exit()
    assert installation.drafts() == ["My draft."]

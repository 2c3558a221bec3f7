"""Messages typed during an answer: they are seen, taken back, held and sent in the order of typing."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.installation import ChatTerminal, Installation, registry
from tests.support.fake_openai import FakeOpenAI, Hang, Raw, Reply, Reset, SeenRequest, Wait, delta, says, sse

STORY = "Once upon a time"
HELD = "Queue on hold"


def tells_a_story(request: SeenRequest) -> Reply:
    """Begins a story that does not end; answers anything else at once."""
    return says(STORY, wait=Hang()) if request.last_user == "go" else says(f"You said: {request.last_user}")


def asked(server: FakeOpenAI) -> list[str]:
    return [request.last_user for request in server.requests]


@contextmanager
def telling(installation: Installation, server: FakeOpenAI, *queued: str) -> Iterator[ChatTerminal]:
    """A chat in the middle of an answer, with messages queued behind it."""
    installation.use(registry(server.url))
    with installation.open() as terminal:
        terminal.ready("assistant")
        terminal.say("go")
        terminal.wait_for(STORY)
        for number, text in enumerate(queued, start=1):
            terminal.say(text)
            terminal.wait_for(f"{number} queued")
        yield terminal


@pytest.mark.more
def test_queued_messages_are_shown_taken_back_and_held_by_escape(installation: Installation) -> None:
    with FakeOpenAI(tells_a_story) as server, telling(installation, server, "second", "third") as terminal:
        terminal.wait_for("Queued until this turn ends. Up takes back the last:\n ❯ second\n ❯ third\n")
        terminal.press("up")
        terminal.wait_for("1 queued")
        assert "❯ third" not in terminal.text()
        terminal.say(", edited")
        terminal.wait_for("❯ second\n ❯ third, edited\n")
        terminal.press("escape")
        terminal.wait_for(f"{HELD}. Enter sends it")
        terminal.wait_gone("Esc stops")
        assert asked(server) == ["go"], "Esc sends nothing"
        terminal.say("fourth")
        terminal.wait_for("You said: fourth")
        terminal.wait_gone("queued")
        assert asked(server) == ["go", "second", "third, edited", "fourth"]
        assert server.violations == []


@pytest.mark.more
def test_a_failed_turn_holds_the_queue_and_nothing_typed_later_overtakes_it(installation: Installation) -> None:
    breaks = threading.Event()

    def breaks_off(request: SeenRequest) -> Reply:
        if request.last_user == "go":
            return Raw(steps=(sse(delta(STORY), done=False), Wait(event=breaks), Reset()))
        return says(f"You said: {request.last_user}")

    with FakeOpenAI(breaks_off) as server, telling(installation, server, "second") as terminal:
        breaks.set()
        terminal.wait_for("Press R to retry")
        terminal.wait_for(HELD)
        terminal.say("third")
        terminal.wait_for("You said: third")
        assert asked(server)[-2:] == ["second", "third"]


@pytest.mark.more
def test_a_held_queue_is_still_held_after_a_kill_and_enter_sends_it(installation: Installation) -> None:
    with FakeOpenAI(tells_a_story) as server:
        with telling(installation, server, "second", "third") as terminal:
            terminal.press("escape")
            terminal.wait_for(HELD)
            terminal.kill9()
        with installation.open("-c") as terminal:
            terminal.wait_for(HELD)
            terminal.wait_for("❯ second\n ❯ third\n")
            assert asked(server) == ["go"]
            terminal.press("enter")
            terminal.wait_for("You said: third")
            terminal.wait_gone("queued")
        assert asked(server) == ["go", "second", "third"]


@pytest.mark.more
def test_a_message_taken_back_is_in_the_message_alone_after_a_kill(installation: Installation) -> None:
    with FakeOpenAI(tells_a_story) as server:
        with telling(installation, server, "second", "third") as terminal:
            terminal.press("up")
            terminal.wait_for("1 queued")
            terminal.kill9()
        with installation.open("-c") as terminal:
            terminal.wait_for("❯ second\n")
            terminal.wait_for(re.compile(r"^│ third +│$", re.MULTILINE))
            assert "❯ third" not in terminal.text()


@pytest.mark.more
def test_another_window_sees_the_queue_and_gets_it_with_the_session(installation: Installation) -> None:
    with FakeOpenAI(tells_a_story) as server, telling(installation, server, "second", "third") as first:
        first.press("escape")
        first.wait_for(HELD)
        with installation.open("-c") as second:
            second.wait_for("Queued in the other window:\n ❯ second\n ❯ third\n")
            second.press("enter", "up")
            second.wait_for(re.compile(r"^│ third +│$", re.MULTILINE))
            assert "❯ third" in second.text(), "Up takes nothing out of another window's queue"
            second.press("ctrl+c", "f2")
            second.wait_for(HELD)
            assert asked(server) == ["go"]
            second.press("enter")
            second.wait_for("You said: third")
        assert asked(server) == ["go", "second", "third"]


@pytest.mark.more
def test_a_marked_message_is_removed_and_stays_in_the_history(installation: Installation) -> None:
    with FakeOpenAI(tells_a_story) as server, telling(installation, server, "second", "third") as terminal:
        terminal.press("shift+up", "shift+up")
        terminal.wait_for("Delete removes it; shift+Up")
        terminal.wait_for("✗ second\n")
        terminal.press("delete")
        terminal.wait_for("1 queued")
        assert "second" not in terminal.text()
        terminal.press("escape")
        terminal.wait_for(HELD)
        terminal.press("enter")
        terminal.wait_for("You said: third")
        assert asked(server) == ["go", "third"]


@pytest.mark.more
def test_a_correction_goes_on_in_the_same_turn_and_survives_a_kill(installation: Installation) -> None:
    with FakeOpenAI(tells_a_story) as server:
        with telling(installation, server, "second") as terminal:
            terminal.send("no, shorter")
            terminal.press("ctrl+s")
            terminal.wait_for("You said: no, shorter")
            terminal.wait_for("You said: second")
            last = [request.last_user for request in server.requests]
            assert last == ["go", "no, shorter", "second"]
            said = [message["content"] for message in server.requests[1].body["messages"][1:]]
            assert said[0] == "go"
            assert said[1].startswith(STORY)
            terminal.kill9()
        with installation.open("-c") as terminal:
            terminal.wait_for("no, shorter")
        assert server.violations == []

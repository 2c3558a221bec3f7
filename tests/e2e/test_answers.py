"""Answers of a user, and other actions instead of an answer."""

import pytest

from tests.e2e.installation import (
    EFFECT,
    Installation,
    registry,
)
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says


def asks_once(request: SeenRequest) -> Completion:
    """Asks for the effect until there is a result; then repeats what it was told last."""
    if request.last_user != "write it down":
        return says(f"You said: {request.last_user}")
    return says("Understood.") if request.tool_results else calls(call("shell_exec", command=EFFECT))


@pytest.mark.more
def test_nothing_else_that_is_typed_runs_the_call_and_messages_are_sent_after_the_turn(
    installation: Installation,
) -> None:
    with installation.chat(asks_once) as (server, terminal):
        terminal.say("write it down")
        terminal.dialog()
        terminal.press("escape")
        terminal.wait_for("1 approval pending – ctrl+g")
        for number, text in enumerate(("yes", "a", "approve"), start=1):
            terminal.say(text)
            terminal.wait_for(f"{number} queued")
        terminal.say("/approve")
        terminal.wait_for("There is no command")
        terminal.press("ctrl+c")
        terminal.wait_for("Message (Enter sends")
        terminal.paste("yes, run it")
        terminal.press("enter")
        terminal.wait_for("4 queued")
        assert installation.count == 0
        assert len(server.requests) == 1
        terminal.press("ctrl+g")
        terminal.dialog()
        terminal.press("d")
        terminal.wait_for("You said: yes, run it")
        terminal.wait_gone("queued")
    asked = [request.last_user for request in server.requests]
    assert asked == ["write it down", "write it down", "yes", "a", "approve", "yes, run it"]
    assert installation.count == 0
    assert installation.journal() == []


@pytest.mark.more
def test_a_message_that_waits_for_its_turn_survives_a_kill(installation: Installation) -> None:
    with FakeOpenAI(asks_once) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("write it down")
            terminal.dialog()
            terminal.press("escape")
            terminal.wait_for("1 approval pending – ctrl+g")
            terminal.say("and then this")
            terminal.wait_for("1 queued")
            terminal.kill9()
        with installation.open("-c") as terminal:
            terminal.dialog()
            terminal.press("d")
            terminal.wait_for("You said: and then this")
            terminal.wait_gone("queued")
        assert server.violations == []
        assert [request.last_user for request in server.requests[2:]] == ["and then this"]
    assert installation.count == 0


def test_a_continued_session_draws_its_answers_once(installation: Installation) -> None:
    with installation.chat([says("The **answer** is here.")]) as (_, terminal):
        terminal.say("what is it?")
        terminal.wait_for("The answer is here.")
        terminal.say("/quit")
        terminal.wait_exit()
    with installation.open("-c") as terminal:
        terminal.wait_for("The answer is here.")
        assert b"**answer" not in terminal.raw

"""Answers of a user, and other actions instead of an answer."""

import pytest

from tests.e2e.installation import (
    EFFECT,
    TITLE,
    ChatTerminal,
    Installation,
    answers_each_call_once,
    lines_with,
    registry,
)
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says


def asks_once(request: SeenRequest) -> Completion:
    """Asks for the effect until there is a result; then repeats what it was told last."""
    if request.last_user != "write it down":
        return says(f"You said: {request.last_user}")
    return says("Understood.") if request.tool_results else calls(call("shell_exec", command=EFFECT))


@pytest.mark.more
def test_denied_with_a_reason_the_model_hears_it_and_the_turn_goes_on(installation: Installation) -> None:
    with installation.chat(asks_once) as (server, terminal):
        terminal.say("write it down")
        terminal.dialog()
        terminal.press("D")
        terminal.wait_for("Deny shell_exec")
        terminal.send("not on a Friday")
        terminal.press("enter")
        terminal.wait_for("Understood.")
        assert TITLE not in terminal.text()
        assert "not on a Friday" in terminal.text()
    (result,) = server.requests[-1].tool_results
    assert "not on a Friday" in result
    assert "Denied" in result
    assert installation.count == 0
    assert installation.journal() == []


def two_calls(request: SeenRequest) -> Completion:
    """Two effects side by side."""
    if request.tool_results:
        return says("Understood.")
    return calls(
        call("shell_exec", command="printf first >> first.txt"),
        call("shell_exec", command="printf second >> second.txt"),
    )


def answer(terminal: ChatTerminal, about: str, key: str) -> None:
    """Choose the call that is about `about` in the dialog's list, and answer it."""
    if not lines_with(terminal.text(), ["│ >", about]):
        terminal.press("tab")
        terminal.wait_until(lambda text: bool(lines_with(text, ["│ >", about])), what=f"{about} to be chosen")
    assert about in terminal.dialog()
    terminal.press(key)


@pytest.mark.more
def test_of_two_calls_one_is_denied_and_one_approved_each_on_its_own_in_any_order(installation: Installation) -> None:
    with installation.chat(two_calls) as (server, terminal):
        terminal.say("do both")
        # It opens with the call that can be asked about first, which may be either.
        terminal.wait_for("of 2, 2 undecided")
        terminal.dialog()
        answer(terminal, "printf second", "a")
        terminal.wait_for("1 of 2, 1 undecided")
        assert len(server.requests) == 1, "the turn went on with a call undecided"
        terminal.dialog()
        answer(terminal, "printf first", "d")
        terminal.wait_for("Understood.")
    last = server.requests[-1]
    assert not (installation.workspace / "first.txt").exists()
    assert (installation.workspace / "second.txt").read_text() == "second"
    assert answers_each_call_once(last)
    denied, done = last.tool_results
    assert "Denied" in denied
    assert "Denied" not in done


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

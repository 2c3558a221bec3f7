"""Texts sent again: from the history, edited, or to another model. The session they were sent in stays as it was."""

import pytest

from chatops.sandbox.confinement import probe
from chatops.store.base import SessionInfo
from tests.e2e.installation import Installation
from tests.e2e.test_choices import two_models
from tests.support.fake_openai import FakeOpenAI, SeenRequest, says


def users(request: SeenRequest) -> list[str]:
    return [message["content"] for message in request.messages if message["role"] == "user"]


def sessions_of(installation: Installation) -> list[SessionInfo]:
    """The stored sessions, newest first."""
    with installation.store() as store:
        return sorted(store.sessions(), key=lambda session: session.created_at, reverse=True)


def test_an_edited_message_is_sent_in_a_copy_that_ends_before_it(installation: Installation) -> None:
    with FakeOpenAI(lambda request: says(f"You said: {request.last_user}")) as server:
        installation.use(two_models(server.url))
        with installation.open("--model", "local") as terminal:
            terminal.ready("assistant")
            for text in ("first question", "second question", "third question"):
                terminal.say(text)
                terminal.wait_for(f"You said: {text}")
            terminal.say("/edit")
            terminal.wait_for("Edit a message and send it again")
            terminal.send("second")
            terminal.press("enter")
            terminal.wait_for("Edit the message and send it")
            terminal.wait_for("approved for it asks again.")
            terminal.wait_gone("You said: third question")
            terminal.send(", edited")
            terminal.press("enter")
            terminal.wait_for("You said: second question, edited")
            assert users(server.requests[-1]) == ["first question", "second question, edited"]
            terminal.say("/edit 1")
            terminal.wait_gone("You said: first question")
            terminal.press("enter")
            terminal.wait_for("You said: first question")
            assert users(server.requests[-1]) == ["first question"]
            # An answer is on the screen a moment before it is stored.
            terminal.wait_until(lambda _: sessions_of(installation)[0].messages == 2, what="the answer stored")
    copy, middle, original = sessions_of(installation)
    assert (original.messages, middle.messages, copy.messages) == (6, 4, 2)
    assert (middle.forked_from, copy.forked_from) == (original.id, middle.id)


@pytest.mark.more
def test_the_last_message_is_asked_again_with_another_model_or_role(installation: Installation) -> None:
    with FakeOpenAI(lambda request: says(f"{request.body['model']} on: {request.last_user}")) as server:
        installation.use(two_models(server.url))
        with installation.open("--model", "local") as terminal:
            terminal.ready("assistant")
            terminal.say("why")
            terminal.wait_for("fake-model on: why")
            terminal.say("/retry nothing")
            terminal.wait_for("There is no model and no role nothing.")
            terminal.press("ctrl+c")
            terminal.say("/retry other")
            terminal.wait_for("other-model on: why")
            terminal.say("/retry coder")
            terminal.ready("coder")
            terminal.wait_for("fake-model on: why")
        assert [users(request) for request in server.requests] == [["why"]] * 3
        assert "code-specialist" in server.requests[-1].system
    assert [session.messages for session in sessions_of(installation)] == [2, 2, 2]


def test_a_command_typed_after_an_undo_takes_the_place_of_its_message(installation: Installation) -> None:
    with FakeOpenAI(lambda request: says(f"You said: {request.last_user}")) as server:
        installation.use(two_models(server.url))
        with installation.open("--model", "local") as terminal:
            terminal.ready("assistant")
            for text in ("first question", "second question"):
                terminal.say(text)
                terminal.wait_for(f"You said: {text}")
            for text in ("second question", "first question"):
                terminal.say("/undo")
                terminal.wait_gone(f"You said: {text}")
                terminal.wait_for(f"│ {text} ")
            terminal.say("/role coder")
            terminal.ready("coder")
            terminal.wait_for("│ first question ")
            terminal.send("/again")
            terminal.wait_for("│ /again ")
            terminal.send("\x15")
            terminal.wait_for("│ first question ")
            terminal.send(", /again")
            terminal.press("enter")
            terminal.wait_for("You said: first question, /again")


@pytest.mark.skipif(bool(probe()[1]), reason="without bubblewrap a typed command asks")
def test_a_command_of_the_user_is_not_asked_again_as_a_message(installation: Installation) -> None:
    with FakeOpenAI(lambda request: says(f"{request.body['model']} on: {request.last_user}")) as server:
        installation.use(two_models(server.url))
        with installation.open("--model", "local", "--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("!echo shown-$((40+1))")
            terminal.wait_for("shown-41")
            terminal.say("/retry other")
            terminal.wait_for("There is no message to ask again yet.")
            terminal.say("why")
            terminal.wait_for("fake-model on: why")
            terminal.say("!false; echo shown-$((40+2))")
            terminal.wait_for("shown-42")
            terminal.say("/retry")
            terminal.wait_for("There is no failed turn to retry.")
            terminal.say("/retry other")
            terminal.wait_for("other-model on: why")
            terminal.say("!!echo shown-$((40+3))")
            terminal.wait_for("shown-43")
            terminal.say("/edit 0")
            terminal.wait_for("│ !!echo shown-$((40+3)) ")
        assert [users(request)[-1] for request in server.requests] == ["why", "why"]


@pytest.mark.more
def test_a_text_of_the_history_is_put_into_the_message_field(installation: Installation) -> None:
    with FakeOpenAI(lambda request: says(f"You said: {request.last_user}")) as server:
        installation.use(two_models(server.url))
        with installation.open("--model", "local") as terminal:
            terminal.ready("assistant")
            for text in ("about apples", "about pears"):
                terminal.say(text)
                terminal.wait_for(f"You said: {text}")
            terminal.send("half a thought")
            terminal.press("alt+r")
            terminal.wait_for("Sent before")
            terminal.send("apples")
            terminal.press("enter")
            terminal.wait_gone("Sent before")
            terminal.send(" again")
            terminal.press("enter")
            terminal.wait_for("You said: about apples again")
            terminal.press("up")
            terminal.press("up")
            terminal.wait_for("half a thought")

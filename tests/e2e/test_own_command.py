"""A command that the user types in the chat: shown, run once, and part of the next request or left out of it."""

from chatops.sandbox.confinement import probe
from tests.e2e.installation import Installation
from tests.support.fake_openai import SeenRequest, says


def roles(request: SeenRequest) -> list[str]:
    return [message["role"] for message in request.body["messages"]]


def test_its_result_goes_with_the_next_message_unless_it_is_private(installation: Installation) -> None:
    with installation.chat(lambda request: says(f"You said: {request.last_user}")) as (server, terminal):
        for command, printed in (("!echo shown-$((40+2))", "shown-42"), ("!!echo hidden-$((40+3))", "hidden-43")):
            terminal.say(command)
            if not probe().program:
                terminal.dialog()
                terminal.decide("a")
            terminal.wait_for(printed)
        terminal.say("what did it print")
        terminal.wait_for("You said: what did it print")
    (request,) = server.requests
    assert roles(request)[-5:] == ["user", "assistant", "tool", "assistant", "user"]
    assert "shown-42" in str(request.body)
    assert "hidden" not in str(request.body)

"""Servers that refuse tools, or take them and hide them: the user is told, the conversation goes on, it is kept."""

import json

import pytest

from tests.e2e.installation import EFFECT, Installation, registry
from tests.e2e.text_model import SPELLINGS, replies_so_far, streamed
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, error, says

HERMES = SPELLINGS["hermes"]
REFUSALS = {
    "ollama": error(400, "registry.ollama.ai/library/gemma3:4b does not support tools"),
    "vllm": error(400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    "llama.cpp": error(500, "tools param requires --jinja flag"),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_is_told_worked_around_and_remembered(refusal: str, installation: Installation) -> None:
    def reply(request: SeenRequest) -> Reply:
        if "tools" in request.body:
            return REFUSALS[refusal]
        if request.last_user == "good morning":
            return says("Good morning.")
        if replies_so_far(request):
            return says("Written down.", model="a-quantised-one")
        return streamed(HERMES.asks("shell_exec", words="I write it down.", command=EFFECT))

    with FakeOpenAI(reply) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("write it down")
            terminal.dialog()
            terminal.press("a")
            screen = terminal.wait_for("Written down.")
        words = " ".join(screen.split())
        assert f"127.0.0.1:{server.port} does not accept tools for Local, so they are described in its prompt" in words
        assert "chatops doctor --model local" in words
        assert "answered with model 'a-quantised-one'" in words
        assert ["tools" in request.body for request in server.requests] == [True, False, False]
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("good morning")
            assert "does not accept tools" not in terminal.wait_for("Good morning.")
        assert "tools" not in server.requests[-1].body and "shell_exec" in server.requests[-1].system
        assert len(server.requests) == 4
        assert server.violations == []
    assert installation.count == 1


def test_two_remarks_on_one_reply_are_both_there_to_be_read(installation: Installation) -> None:
    def reply(request: SeenRequest) -> Reply:
        return REFUSALS["ollama"] if "tools" in request.body else says("Hello.", model="a-quantised-one")

    with FakeOpenAI(reply) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("hello")
            terminal.wait_for("Hello.")
            terminal.wait_until(
                lambda text: "does not accept tools" in text and "a-quantised-one" in text, what="both remarks"
            )


@pytest.mark.more
def test_tools_that_a_server_hides_are_in_the_prompt_from_the_next_request_on(installation: Installation) -> None:
    def reply(request: SeenRequest) -> Reply:
        if "tools" in request.body:
            # As many tokens as the messages may have, and fewer than the tools must have.
            seen = len(json.dumps(request.messages)) // 8
            return says("I have no tools.", usage={"prompt_tokens": seen, "completion_tokens": 5})
        if "[end of result" in request.last_user:
            return says("It is due on Friday.")
        return streamed(HERMES.asks("file_read", words="Now I see them.", path="note.txt"))

    with FakeOpenAI(reply) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("when is it due?")
            terminal.wait_for("I have no tools.")
            # One count may be a mistake of the server; the second one has to agree.
            terminal.say("are you sure?")
            words = " ".join(terminal.wait_for("did not show them").split())
            terminal.say("look again")
            terminal.wait_for("It is due on Friday.")
        assert server.violations == []
        assert ["tools" in request.body for request in server.requests] == [True, True, False, False]
    assert (
        "accepted the tools and did not show them to Local; from the next request on they are described in its" in words
    )

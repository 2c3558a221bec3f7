"""A model that writes its calls as text, on a real terminal: they run, ask, survive and are answered as native ones."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from chatops.domain.tools import Outcome
from tests.e2e.installation import EFFECT, TITLE, Installation, answers_each_call_once, registry
from tests.e2e.text_model import SPELLINGS, Spelling, replies_so_far, streamed
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, error, says

READING, WRITING, DONE = "First the note.", "Now I write it down.", "All of it is done."
HERMES = SPELLINGS["hermes"]
MANNERS = ("field", "prompt")
"""Place of the tool descriptions in the request."""


def registry_of(url: str, format: str, *, model: str = "fake-model") -> dict[str, Any]:
    """A registry whose model has this `tool_format`."""
    value = registry(url)
    value["models"]["local"] |= {"model_name": model, "tool_format": format}
    return value


def reads_and_writes(spelling: Spelling, hold: threading.Event) -> Callable[[SeenRequest], Reply]:
    """Reads the note, writes once, answers; the second call comes no further than its middle while `hold` is unset."""

    def reply(request: SeenRequest) -> Reply:
        match replies_so_far(request):
            case 0:
                words = "" if spelling.lead else READING
                return streamed(spelling.asks("file_read", words=words, path="note.txt"))
            case 1:
                text = spelling.asks("shell_exec", words=WRITING, command=EFFECT)
                return streamed(text, hold=hold, at=text.index("count.txt"))
            case _:
                return streamed(spelling.answers(DONE))

    return reply


def is_well_told(request: SeenRequest, spelling: Spelling, *, manner: str) -> bool:
    """Return True if the call history has the place and spelling that the model expects."""
    if manner == "field":
        return "tools" in request.body and answers_each_call_once(request)
    speakers = [message["role"] for message in request.messages]
    return (
        "tools" not in request.body
        and "tool_choice" not in request.body
        and speakers == ["system", *["user", "assistant"] * (len(speakers) // 2 - 1), "user"]
        and not any("tool_calls" in message for message in request.messages)
        and "<tools>" in request.system
    )


ALL = [
    pytest.param(format, manner, marks=[] if number % 2 == other else [pytest.mark.kill])
    for number, format in enumerate(SPELLINGS)
    for other, manner in enumerate(MANNERS)
]
"""Each format in one manner is in the default tier, in the other one in the tier of kills."""


@pytest.mark.some(1)
@pytest.mark.parametrize(("format", "manner"), ALL)
def test_calls_run_are_gated_and_survive_a_kill(format: str, manner: str, installation: Installation) -> None:
    spelling, hold = SPELLINGS[format], threading.Event()
    with FakeOpenAI(reads_and_writes(spelling, hold)) as server:
        # Where a model cannot be asked for its own format, it does not keep to another.
        asked_for = "hermes" if format == "harmony" else format
        tool_format = asked_for if manner == "prompt" else "auto"
        installation.use(registry_of(server.url, tool_format, model=spelling.model))
        with installation.open("--role", "coder") as before:
            before.ready("coder")
            before.say("read the note, then write it down")
            streaming = before.wait_for(WRITING)
            assert TITLE not in streaming
            hold.set()
            shown = before.dialog()
            before.kill9()
            raw = before.raw.decode()
        assert EFFECT in shown
        assert installation.count == 0
        assert len(server.requests) == 2
        with installation.open("-c") as after:
            assert after.dialog() == shown
            after.press("a")
            screen = after.wait_for(DONE)
            assert TITLE not in screen
            raw += after.raw.decode()
        assert server.violations == []
        first, second, third = server.requests
    assert installation.count == 1
    assert [(row.attempt, row.tool, row.outcome) for row in installation.journal()] == [
        (1, "file_read", Outcome.SUCCESS),
        (1, "shell_exec", Outcome.SUCCESS),
    ]
    assert [found for found in spelling.markup if found in raw] == []
    for request in (first, second, third):
        assert is_well_told(request, spelling, manner=manner)
    results = second.tool_results if manner == "field" else [second.last_user]
    assert len(results) == 1 and "due on Friday" in results[0]
    if manner == "prompt" and format != "harmony":
        # What the model reads as its own words is what it wrote.
        assert spelling.call("shell_exec", {"command": EFFECT}) in third.messages[-2]["content"]


def test_the_reason_of_a_refusal_reaches_the_model_as_its_results_do(installation: Installation) -> None:
    asks, answer = streamed(HERMES.asks("shell_exec", command=EFFECT)), says("Understood.")
    with FakeOpenAI(lambda request: answer if replies_so_far(request) else asks) as server:
        installation.use(registry_of(server.url, "hermes"))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("write it down")
            terminal.dialog()
            terminal.press("D")
            terminal.wait_for("Deny shell_exec")
            terminal.send("not on a Friday")
            terminal.press("enter")
            terminal.wait_for("Understood.")
        last = server.requests[-1]
        assert server.violations == []
    assert installation.count == 0 and installation.journal() == []
    result = last.last_user
    assert "of shell_exec: denied]" in result
    assert result.index("[result ") < result.index("not on a Friday") < result.index("[end of result ")
    assert HERMES.call("shell_exec", {"command": EFFECT}) in last.messages[-2]["content"]


def test_a_server_that_refuses_tools_is_told_and_remembered(installation: Installation) -> None:
    def reply(request: SeenRequest) -> Reply:
        if "tools" in request.body:
            return error(400, "registry.ollama.ai/library/gemma3:4b does not support tools")
        return says(f"You said {request.last_user}.", model="a-quantised-one")

    with FakeOpenAI(reply) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("good evening")
            screen = terminal.wait_until(
                lambda text: "does not accept tools" in text and "a-quantised-one" in text, what="both remarks"
            )
        words = " ".join(screen.split())
        assert f"127.0.0.1:{server.port} does not accept tools for Local, so they are described in its prompt" in words
        assert "chatops doctor --model local" in words
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("good morning")
            assert "does not accept tools" not in terminal.wait_for("You said good morning.")
        assert ["tools" in request.body for request in server.requests] == [True, False, False]
        assert "shell_exec" in server.requests[-1].system
        assert server.violations == []

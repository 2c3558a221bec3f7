"""Scripts and a model that writes its calls as text: the same reports, exit codes and events as with native calls."""

import json

import pytest

from tests.e2e.installation import EFFECT, Installation, registry
from tests.e2e.text_model import SPELLINGS, Spelling, replies_so_far, streamed
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest


def reads_then_writes(spelling: Spelling) -> FakeOpenAI:
    def reply(request: SeenRequest) -> Reply:
        words = "" if spelling.lead else "First the note."
        match replies_so_far(request):
            case 0:
                return streamed(spelling.asks("file_read", words=words, path="note.txt"))
            case 1:
                return streamed(spelling.asks("shell_exec", words="Now I write it down.", command=EFFECT))
            case _:
                return streamed(spelling.answers("All of it is done."))

    return FakeOpenAI(reply)


@pytest.mark.some(1)
@pytest.mark.parametrize("format", SPELLINGS)
def test_the_report_names_each_call_with_its_verdict_and_a_gated_one_pauses(
    format: str, installation: Installation
) -> None:
    spelling = SPELLINGS[format]
    with reads_then_writes(spelling) as server:
        value = registry(server.url)
        value["models"]["local"]["model_name"] = spelling.model
        installation.use(value)
        paused = installation.run("-p", "write it down", "--role", "coder", "--output-format", "json")
        assert (paused.code, paused.json["status"]) == (3, "paused"), paused.err
        read, asked = paused.json["calls"]
        (pending,) = paused.json["pending"]
        assert (read["tool"], read["verdict"], read["outcome"]) == ("file_read", "allow", "success")
        assert read["arguments"] == {"path": "note.txt"}
        assert (asked["tool"], asked["verdict"], asked["outcome"]) == ("shell_exec", "ask", None)
        assert (pending["id"], pending["arguments"]) == (asked["id"], {"command": EFFECT})
        assert installation.count == 0

        installation.run("approvals", "approve", pending["id"])
        ended = installation.run("resume", paused.json["session_id"], "--output-format", "json")
        assert (ended.code, ended.json["answer"]) == (0, "All of it is done."), ended.err
        assert server.violations == []
    assert [(one["tool"], one["outcome"]) for one in ended.json["calls"]][-1] == ("shell_exec", "success")
    assert installation.count == 1


@pytest.mark.some(2)
@pytest.mark.parametrize("format", SPELLINGS)
def test_a_stream_of_events_has_the_words_and_the_calls_and_no_markup(format: str, installation: Installation) -> None:
    spelling = SPELLINGS[format]
    with reads_then_writes(spelling) as server:
        value = registry(server.url)
        value["models"]["local"]["model_name"] = spelling.model
        installation.use(value)
        ran = installation.run("-p", "write it down", "--role", "coder", "--output-format", "stream-json")
    assert ran.code == 3, ran.err
    events = [json.loads(line) for line in ran.out.splitlines()]
    said = "".join(event["text"] for event in events if event["type"] == "text_delta")
    assert "Now I write it down." in said
    assert [found for found in spelling.markup if found in said] == []
    assert [event["tool"] for event in events if event["type"] == "call_proposed"] == ["file_read", "shell_exec"]
    assert [event["type"] for event in events].count("approval_requested") == 1

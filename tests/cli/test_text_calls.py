"""A model that writes its calls as text, through the whole program: they run, wait or are answered like any other."""

import json

import pytest

from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, says

READS = '<tool_call>\n{"name": "file_read", "arguments": {"path": "note.txt"}}\n</tool_call>'
WRITES = '<tool_call>\n{"name": "file_write", "arguments": {"path": "new.txt", "content": "x"}}\n</tool_call>'


def flags(chatops: CommandLine, server: FakeOpenAI, **keys: object) -> list[str]:
    model = {"api_url": server.url, "model_name": "fake-model", **keys}
    roles = {"assistant": {"primary": "mine", "tools": ["file_read", "file_write"], "system_append": "Be a pirate."}}
    file = chatops.workspace.parent / "r.json"
    users = {"*": {"access_level": "operator"}}
    file.write_text(json.dumps({"version": 3, "models": {"mine": model}, "roles": roles, "users": users}))
    return ["--registry", str(file)]


@pytest.mark.parametrize("tool_format", ["auto", "hermes"])
def test_a_call_in_the_text_runs_and_its_result_goes_back_as_the_server_takes_it(
    chatops: CommandLine, tool_format: str
) -> None:
    with FakeOpenAI([says(f"I look.\n{READS}"), says("It is due on Friday.")]) as server:
        ran = chatops(*flags(chatops, server, tool_format=tool_format), "-p", "When is it due?")
        first, second = server.requests
    assert (ran.code, ran.out.strip()) == (0, "It is due on Friday.")
    if tool_format == "auto":
        assert "due on Friday" in second.tool_results[0]
        assert "gives the calls of mine as text (hermes)" in ran.err
    else:
        assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "user"]
        assert "due on Friday" in second.last_user and "[end of result" in second.last_user
        assert READS in second.messages[2]["content"]
    for request in (first, second):
        assert request.system.split("\n\n")[-1] == "--- Role Context ---\nBe a pirate."


def test_a_stream_of_events_has_the_words_and_the_call_and_no_markup(chatops: CommandLine) -> None:
    with FakeOpenAI([says(f"I write it down.\n{WRITES}", pieces=30)]) as server:
        ran = chatops(*flags(chatops, server), "-p", "write it", "--output-format", "stream-json")
    assert ran.code == 3, ran.err
    events = [json.loads(line) for line in ran.out.splitlines()]
    said = "".join(event["text"] for event in events if event["type"] == "text_delta")
    assert said.strip() == "I write it down."
    assert [event["tool"] for event in events if event["type"] == "call_proposed"] == ["file_write"]
    assert [event["type"] for event in events].count("approval_requested") == 1


@pytest.mark.parametrize(
    "answer", [f"The raw output would be:\n{READS}", f"<analysis>\nI look.\n{READS}", f"Ok. <action>{READS}</action>"]
)
def test_a_call_that_may_be_an_example_asks_although_its_tool_would_not(chatops: CommandLine, answer: str) -> None:
    with FakeOpenAI([says(answer)]) as server:
        ran = chatops(*flags(chatops, server), "-p", "read it", "--approve", "file_read", "--output-format", "json")
    assert ran.code == 3, ran.err
    assert ran.json["pending"][0]["tool"] == "file_read"


@pytest.mark.parametrize(
    "text",
    [
        '<function=file_read{"path": "note.txt"}></function>',
        '{"thought": "", "tool_calls": [{"name": "file_read", "arguments": {"path": "note.txt"}}]}',
        '```json\n{"tool_calls": [{"name": "file_read", "arguments": {"path": "note.txt"}}]}\n```',
        '```tool_code\nprint(file_read(path="note.txt"))\n```',
        'file_read.call(path="note.txt")',
    ],
)
def test_a_reply_that_is_nothing_but_a_call_is_that_call_and_does_not_ask(chatops: CommandLine, text: str) -> None:
    with FakeOpenAI([says(text, pieces=len(text)), says("Friday.")]) as server:
        ran = chatops(*flags(chatops, server), "-p", "read it")
        assert "due on Friday" in server.requests[-1].tool_results[0]
    assert (ran.code, ran.out.strip()) == (0, "Friday."), ran.err


def test_both_of_two_fenced_calls_are_asked_about(chatops: CommandLine) -> None:
    fenced = '```json\n{"name": "file_read", "arguments": {"path": "%s"}}\n```'
    with FakeOpenAI([says(f"{fenced % 'note.txt'}\n\n{fenced % 'other.txt'}")]) as server:
        ran = chatops(*flags(chatops, server), "-p", "read them", "--output-format", "json")
    assert ran.code == 3
    assert [one["arguments"]["path"] for one in ran.json["calls"]] == ["note.txt", "other.txt"]


@pytest.mark.parametrize(
    "text",
    [
        '<tools>\n{"name": "file_read", "arguments": {"path": "note.txt"}}\n</tools>',
        'I need it.assistantcommentary to=functions.file_read json{"path": "note.txt"}',
        f"<think>I look. {READS}</think>",
        "<function/file_read{}</function>",
    ],
)
def test_a_call_in_a_form_that_no_model_uses_is_said_to_the_model(chatops: CommandLine, text: str) -> None:
    with FakeOpenAI([says(text), says(READS), says("Friday.")]) as server:
        ran = chatops(*flags(chatops, server), "-p", "read it")
        _, sent, last = server.requests
    assert (ran.code, ran.out.strip()) == (0, "Friday."), ran.err
    assert sent.tool_results[0].startswith("file_read was not run: it ")
    assert "due on Friday" in last.tool_results[1]


def test_what_may_be_text_about_a_call_is_said_once_and_then_is_the_answer(chatops: CommandLine) -> None:
    answer = 'It is written so:\n<tools>{"name": "file_read", "arguments": {"path": "note.txt"}}</tools>'
    with FakeOpenAI(lambda _: says(answer)) as server:
        ran = chatops(*flags(chatops, server), "-p", "how?")
        assert len(server.requests) == 2
    assert (ran.code, ran.out.strip()) == (0, answer), ran.err

"""A model that writes its calls as text, through the whole program: they run, wait or are answered like any other."""

import json

import pytest

from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, call, calls, error, says

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


def test_a_gated_call_in_the_text_waits_for_a_user(chatops: CommandLine) -> None:
    with FakeOpenAI([says(WRITES)]) as server:
        ran = chatops(*flags(chatops, server), "-p", "write it", "--output-format", "json")
    assert ran.code == 3
    (pending,) = ran.json["pending"]
    assert pending["tool"] == "file_write"
    assert not (chatops.workspace / "new.txt").exists()


def test_a_stream_of_events_has_the_words_and_the_call_and_no_markup(chatops: CommandLine) -> None:
    with FakeOpenAI([says(f"I write it down.\n{WRITES}", pieces=30)]) as server:
        ran = chatops(*flags(chatops, server), "-p", "write it", "--output-format", "stream-json")
    assert ran.code == 3, ran.err
    events = [json.loads(line) for line in ran.out.splitlines()]
    said = "".join(event["text"] for event in events if event["type"] == "text_delta")
    assert said.strip() == "I write it down."
    assert [event["tool"] for event in events if event["type"] == "call_proposed"] == ["file_write"]
    assert [event["type"] for event in events].count("approval_requested") == 1


def test_a_repaired_call_asks_although_its_tool_would_not(chatops: CommandLine) -> None:
    with FakeOpenAI([says(READS.replace('"note.txt"}}', '"note.txt",}}'))]) as server:
        ran = chatops(*flags(chatops, server), "-p", "read it", "--output-format", "json")
    assert ran.code == 3, ran.err
    assert ran.json["pending"][0]["tool"] == "file_read"


def test_a_call_in_a_pair_of_tags_of_no_format_is_part_of_the_answer(chatops: CommandLine) -> None:
    answer = f"<analysis>\nOne could {READS}, but no.\n</analysis>\nI leave it."
    with FakeOpenAI([says(answer, pieces=30)]) as server:
        ran = chatops(*flags(chatops, server), "-p", "read it", "--output-format", "json")
        assert len(server.requests) == 1
    assert (ran.code, ran.json["calls"], ran.json["answer"]) == (0, [], answer)


@pytest.mark.parametrize(
    "answer", [f"The raw output would be:\n{READS}", f"<analysis>\nI look.\n{READS}", f"Ok. <action>{READS}</action>"]
)
def test_a_call_that_may_be_an_example_asks_although_its_tool_would_not(chatops: CommandLine, answer: str) -> None:
    with FakeOpenAI([says(answer)]) as server:
        ran = chatops(*flags(chatops, server), "-p", "read it", "--approve", "file_read", "--output-format", "json")
    assert ran.code == 3, ran.err
    assert ran.json["pending"][0]["tool"] == "file_read"


def test_a_call_that_cannot_be_read_is_answered_and_the_model_corrects_it(chatops: CommandLine) -> None:
    nameless = says('<tool_call>\n{"nam')
    replies = [nameless, says(READS[:-30]), says(READS.replace("file_read", "file_reed")), says(READS), says("Friday.")]
    with FakeOpenAI(replies) as server:
        ran = chatops(*flags(chatops, server), "-p", "read it")
        _, first, second, third, last = server.requests
    assert (ran.code, ran.out.strip()) == (0, "Friday.")
    assert first.tool_results[0].startswith("A call was not run: it was cut off")
    assert "Tools on offer: file_read, file_write" in first.tool_results[0]
    assert "file_read was not run: it was cut off" in second.tool_results[1]
    assert "file_reed" in third.tool_results[2] and "file_read" in third.tool_results[2]
    assert "due on Friday" in last.tool_results[3]


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


def test_the_last_round_does_not_show_the_call_that_it_may_not_make(chatops: CommandLine) -> None:
    with FakeOpenAI([says(READS), says(f"Friday, it seems.\n{READS}")]) as server:
        ran = chatops(*flags(chatops, server), "-p", "read it", "--max-rounds", "1")
    assert ran.code == 4
    assert ran.out.strip() == "Friday, it seems."


def test_a_server_that_takes_no_tools_is_worked_with_in_the_same_turn(chatops: CommandLine) -> None:
    def reply(request: SeenRequest) -> Reply:
        if "tools" in request.body:
            return error(400, "registry.ollama.ai/library/gemma3:4b does not support tools")
        return says("Friday.") if "[end of result" in request.last_user else says(READS)

    with FakeOpenAI(reply) as server:
        ran = chatops(*flags(chatops, server), "-p", "When is it due?")
        assert len(server.requests) == 3
    assert (ran.code, ran.out.strip()) == (0, "Friday.")
    assert "does not accept tools for mine" in ran.err


def test_a_model_that_makes_the_same_call_again_and_again_is_stopped_at_the_third(chatops: CommandLine) -> None:
    def model(request: SeenRequest) -> Reply:
        closing = request.body.get("tool_choice") == "none"
        return says("It is due on Friday.") if closing else calls(call("file_read", path="note.txt"))

    with FakeOpenAI(model) as server:
        arguments = ["-p", "When is it due?", "--max-rounds", "10"]
        ran = chatops(*flags(chatops, server), *arguments, "--output-format", "json")
        assert len(server.requests) == 4
        text = chatops(*flags(chatops, server), *arguments)
    assert [one["outcome"] for one in ran.json["calls"]] == ["success", "success", "invalid"]
    assert (ran.code, ran.json["status"], ran.json["answer"]) == (4, "limit", "It is due on Friday.")
    assert (text.code, text.out) == (4, "It is due on Friday.\n")
    assert 'The model made the same call 3 times in a row: file_read {"path": "note.txt"}.' in text.err


@pytest.mark.more
def test_the_same_call_again_and_again_ends_with_what_was_gathered_if_the_closing_call_fails(
    chatops: CommandLine,
) -> None:
    again = calls(call("file_read", path="note.txt"))
    with FakeOpenAI([again, again, again, error(500, "no")]) as server:
        ran = chatops(*flags(chatops, server, max_rounds=9), "-p", "When is it due?")
    assert ran.code == 4
    assert ran.out.startswith("The model made the same call 3 times in a row: file_read")
    assert "due on Friday" in ran.out

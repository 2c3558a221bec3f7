"""``chatops doctor --model``: asks one model to call a tool, says what came of it, and remembers it."""

import json

import pytest

from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, call, calls, error, says

REFUSED = error(400, "this model does not support tools")
TEXT = says('<tool_call>\n{"name": "ping", "arguments": {"word": "heron"}}\n</tool_call>')

GONE = [error(404, "no such model")]
CUT = TEXT.text[:-30]


def registry(chatops: CommandLine, server: FakeOpenAI, **keys: object) -> list[str]:
    model = {"api_url": server.url, "model_name": "fake-model", **keys}
    roles = {"assistant": {"primary": "mine", "tools": ["file_read"]}}
    file = chatops.workspace.parent / "r.json"
    file.write_text(json.dumps({"version": 3, "models": {"mine": model}, "roles": roles}))
    return ["--registry", str(file)]


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("replies", "code", "line"),
    [
        ([calls(call("ping", word="heron"))], 0, "ok    model mine     it calls tools natively"),
        ([TEXT], 0, "its calls come as text (hermes) and are parsed from it"),
        (
            [REFUSED, TEXT],
            0,
            "the server accepts no tools for it; with tools described in its prompt (hermes) it calls",
        ),
        ([says("No tools."), TEXT], 0, "it does not call tools that are sent in their own field; with tools described"),
        ([says("I will not."), says("I will not.")], 0, "it did not call a tool. It said: 'I will not.' Try another"),
        ([says(CUT)], 0, "which could not be run: it was cut off before its end, so nothing of it was run. Try"),
        ([calls(call("pong"))], 0, "which could not be run: it named another tool, 'pong'. Try another tool_format"),
        ([error(401, "no")], 1, "refuses the key of model 'mine'"),
        ([error(501, "loading")], 1, "loading. The server"),
    ],
)
def test_the_line_about_calls(chatops: CommandLine, replies: list[Reply], code: int, line: str) -> None:
    with FakeOpenAI(replies) as server:
        ran = chatops(*registry(chatops, server), "doctor", "--model", "mine")
    assert ran.code == code, ran.out + ran.err
    assert line in ran.out


def test_a_model_that_may_only_call_natively_is_not_sent_looking_for_formats(chatops: CommandLine) -> None:
    with FakeOpenAI([TEXT]) as server:
        ran = chatops(*registry(chatops, server, tool_format="native"), "doctor", "--model", "mine")
    assert "it did not call a tool." in ran.out and "Its tool_format is native" in ran.out


def test_what_was_found_out_holds_for_the_next_conversation(chatops: CommandLine) -> None:
    def reply(request: SeenRequest) -> Reply:
        if "tools" in request.body:
            return REFUSED
        return TEXT if "ping" in request.system else says("fine")

    with FakeOpenAI(reply) as server:
        flags = registry(chatops, server)
        chatops(*flags, "doctor", "--model", "mine")
        ran = chatops(*flags, "-p", "hello")
        assert (ran.code, ran.out.strip()) == (0, "fine")
        assert "does not accept tools" not in ran.err
        assert "tools" not in server.requests[-1].body and "file_read" in server.requests[-1].system


def test_a_server_that_is_down_is_named_once(chatops: CommandLine) -> None:
    with FakeOpenAI() as server:
        flags = registry(chatops, server)
    ran = chatops(*flags, "doctor", "--model", "mine")
    assert ran.code == 1
    assert ran.out.count("Nothing listens") == 1


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("keys", "replies", "line"),
    [
        (
            {"model_name": "gone"},
            GONE,
            "is unknown at HOST; known: fake-model. Choose one with chatops connect, or corr",
        ),
        (
            {"model_name": "gone", "host_type": "ollama"},
            GONE,
            "known: fake-model. Get it with ollama pull gone, or corr",
        ),
        (
            {"api_url": "HTTPS", "timeout_s": {"connect": 1}},
            [],
            "TLS within 1 s. If the server has no TLS, its address",
        ),
        ({}, [error(401, "no")], "Give model 'mine' a key: \"api_key_env\""),
    ],
)
def test_a_failure_has_one_line_with_its_cause_and_one_step(
    chatops: CommandLine, keys: dict[str, object], replies: list[Reply], line: str
) -> None:
    with FakeOpenAI(replies, prefixes=("/v1",)) as server:
        places = {"HTTPS": server.url.replace("http:", "https:"), "HOST": server.root.removeprefix("http://")}
        for mark, place in places.items():
            keys = json.loads(json.dumps(keys).replace(mark, place))
            line = line.replace(mark, place)
        ran = chatops(*registry(chatops, server, **keys), "doctor", "--model", "mine")
    assert ran.code == 1
    (failed,) = (one for one in ran.out.splitlines() if one.startswith("fail"))
    assert line in failed


def test_without_a_name_no_model_is_asked_anything(chatops: CommandLine) -> None:
    with FakeOpenAI() as server:
        chatops(*registry(chatops, server), "doctor")
        assert server.requests == []


def test_the_demo_needs_no_trial(chatops: CommandLine) -> None:
    ran = chatops("doctor", "--model", "demo")
    assert ran.code == 0 and "built in, needs nothing" in ran.out

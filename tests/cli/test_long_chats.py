"""A conversation that outgrows the context of its model goes on: visibly, and with the originals in the store."""

import json
from pathlib import Path
from typing import Any

from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, call, calls, error, says

LEFT_OUT = "[result of file_read left out to save room"


def use(home: Path, server: FakeOpenAI, **model: Any) -> None:
    """Make the server's model the one that the only role asks."""
    entry = {"api_url": server.url, "model_name": "fake-model", "label": "Local", **model}
    role = {"primary": "local", "tools": ["file_read"]}
    file = home / "config" / "model_registry.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    registry = {"version": 3, "default_role": "solo", "models": {"local": entry}, "roles": {"solo": role}}
    file.write_text(json.dumps(registry))


def reads_when_asked(request: SeenRequest) -> Reply:
    if request.messages[-1]["role"] == "user" and "read" in request.last_user:
        return calls(call("file_read", path="long.txt"))
    return says("Fine.")


def test_an_old_result_is_left_out_once_and_stays_out(
    chatops: CommandLine, workspace: Path, chatops_home: Path
) -> None:
    (workspace / "long.txt").write_text("the whole text\n" * 1_000)
    with FakeOpenAI(reads_when_asked) as server:
        use(chatops_home, server, context_window=10_000)
        first = chatops("-p", "please read it")
        more = chatops("-c", "-p", "x" * 9_000)
        last = chatops("-c", "-p", "and now?", "--output-format", "json")
        assert server.violations == []
        *_, read, asked, again = server.requests
    assert [first.code, more.code, last.code] == [0, 0, 0]
    assert read.tool_results[0].count("the whole text") > 900
    assert asked.tool_results[0].startswith(LEFT_OUT) and again.tool_results[0].startswith(LEFT_OUT)
    assert "1 tool result (file_read" in more.err and "left out" in more.err
    assert "left out" not in last.err
    # What a server has cached of a request is the beginning of the next one.
    assert again.messages[: len(asked.messages)] == asked.messages
    exported = chatops("sessions", "export", last.json["session_id"], "--format", "jsonl")
    assert exported.out.count("the whole text") > 900 and LEFT_OUT not in exported.out


def test_the_user_is_warned_when_the_context_is_nearly_full(chatops: CommandLine, chatops_home: Path) -> None:
    with FakeOpenAI(lambda _: says("Fine.")) as server:
        use(chatops_home, server, context_window=3_000)
        small = chatops("-p", "hello")
        large = chatops("-c", "-p", "x" * 9_000)
        same = chatops("-c", "-p", "go on")
        over = chatops("-c", "-p", "x" * 7_500)
    assert "context" not in small.err
    assert "of the context of Local (3,000 tokens)" in large.err
    assert "a new session, or a model with a larger context makes room" in large.err and "/new" not in large.err
    assert "of the context" not in same.err
    assert "Local takes 3,000" in over.err


def test_a_limit_that_the_server_names_counts_from_then_on(
    chatops: CommandLine, workspace: Path, chatops_home: Path
) -> None:
    (workspace / "long.txt").write_text("the whole text\n" * 1_000)

    def reply(request: SeenRequest) -> Reply:
        if len(json.dumps(request.messages)) > 10_000:
            return error(400, "This model's maximum context length is 4096 tokens, you sent more.")
        return reads_when_asked(request)

    with FakeOpenAI(reply) as server:
        use(chatops_home, server)
        first = chatops("-p", "please read it")
        assert (first.code, first.out.strip()) == (0, "Fine.")
        assert "maximum context length is 4096 tokens" in first.err
        asked = len(server.requests)
        # Another process knows it, and the registry's own number is newer once it changes.
        second = chatops("-p", "please read it")
        assert (second.code, len(server.requests) - asked) == (0, 2)
        use(chatops_home, server, context_window=20_000)
        third = chatops("-p", "please read it")
        assert (third.code, len(server.requests) - asked) == (0, 5)


def test_a_refusal_although_the_limit_was_known_uses_less_of_it(
    chatops: CommandLine, workspace: Path, chatops_home: Path
) -> None:
    (workspace / "long.txt").write_text("the whole text\n" * 1_000)

    def reply(request: SeenRequest) -> Reply:
        # A text of which a token is shorter than our estimate of it.
        if len(json.dumps(request.messages)) > 8_000:
            return error(400, "the request exceeds the available context size (8000 tokens)")
        return reads_when_asked(request)

    with FakeOpenAI(reply) as server:
        use(chatops_home, server, context_window=8_000)
        ran = chatops("-p", "please read it")
    assert (ran.code, ran.out.strip()) == (0, "Fine.")

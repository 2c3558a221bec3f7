"""The demo model: what it reads out of a message, and that it goes the way of every other model."""

import json

import pytest

from chatops.demo.plan import plan
from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from chatops.domain.model import ModelReply, ToolChoice
from chatops.domain.tools import Outcome, ToolCall
from chatops.engine import feedback
from chatops.policy.registry import ModelSpec, ModelType
from chatops.runtime.user_actions import SUMMARY_INSTRUCTION
from tests.models.asking import client_for, question, send, tool
from tests.support.cases import for_each

ALL = tuple(
    tool(name)
    for name in (
        "file_read",
        "file_list",
        "file_search",
        "file_write",
        "file_edit",
        "shell_exec",
        "web_fetch",
        "web_search",
        "memory_write",
    )
)
Rounds = list[list[tuple[str, dict[str, object]]]]


@for_each(
    ("message", "expected"),
    [
        ("read README.md", [[("file_read", {"path": "README.md"})]]),
        ("Please read the file `my notes.txt`.", [[("file_read", {"path": "my notes.txt"})]]),
        ("could you READ README.md?", [[("file_read", {"path": "README.md"})]]),
        ("list .", [[("file_list", {"path": "."})]]),
        ("list", [[("file_list", {"path": "."})]]),
        ("list the files in src/", [[("file_list", {"path": "src/"})]]),
        ("list ..", [[("file_list", {"path": ".."})]]),
        ("search needle", [[("file_search", {"pattern": "needle"})]]),
        ('search for "a and b" in src', [[("file_search", {"pattern": "a and b", "path": "src"})]]),
        ("search the web for textual widgets", [[("web_search", {"query": "textual widgets"})]]),
        ("run `git status && echo then read x`", [[("shell_exec", {"command": "git status && echo then read x"})]]),
        ("run echo hello world", [[("shell_exec", {"command": "echo hello world"})]]),
        ("write hello and goodbye to a.txt", [[("file_write", {"path": "a.txt", "content": "hello and goodbye"})]]),
        ("write 'x to y' into the file out.txt", [[("file_write", {"path": "out.txt", "content": "x to y"})]]),
        ("replace foo with bar in a.py", [[("file_edit", {"path": "a.py", "old": "foo", "new": "bar"})]]),
        (
            'replace "a with b" by `c in d` in src/a.py',
            [[("file_edit", {"path": "src/a.py", "old": "a with b", "new": "c in d"})]],
        ),
        ("fetch https://example.org/a?b=c.", [[("web_fetch", {"url": "https://example.org/a?b=c"})]]),
        ("fetch example.org", [[("web_fetch", {"url": "https://example.org"})]]),
        ("remember that I like tea", [[("memory_write", {"text": "I like tea"})]]),
        (
            "read a.txt and read b.txt",
            [[("file_read", {"path": "a.txt"}), ("file_read", {"path": "b.txt"})]],
        ),
        (
            "read src/a.py, b.txt and c.txt then show `d.py and e.py`",
            [
                [("file_read", {"path": path}) for path in ("src/a.py", "b.txt", "c.txt")],
                [("file_read", {"path": "d.py and e.py"})],
            ],
        ),
        (
            "write read a.txt and b.txt to c.txt",
            [[("file_write", {"path": "c.txt", "content": "read a.txt and b.txt"})]],
        ),
        (
            "read a.txt and run `ls`, then write done to b.txt",
            [
                [("file_read", {"path": "a.txt"}), ("shell_exec", {"command": "ls"})],
                [("file_write", {"path": "b.txt", "content": "done"})],
            ],
        ),
        (
            "write x to f and then read f. After that, list .",
            [
                [("file_write", {"path": "f", "content": "x"})],
                [("file_read", {"path": "f"})],
                [("file_list", {"path": "."})],
            ],
        ),
        ('use time__now {"zone": "UTC and more"}', [[("time__now", {"zone": "UTC and more"})]]),
        (
            "read a.txt then use tide {}",
            [[("file_read", {"path": "a.txt"})], [("tide", {})]],
        ),
        ("use tide {broken}", []),
        ("use common sense", []),
        ("hello there", []),
        ("what can you do?", []),
        ("can you read it?", []),
        ("I already did that", []),
        ("", []),
    ],
)
def test_plan(message: str, expected: Rounds) -> None:
    assert [[(action.tool, dict(action.arguments)) for action in actions] for actions in plan(message)] == expected


async def say(*messages: Message, tools: tuple[str, ...] = (), choice: ToolChoice = ToolChoice.AUTO) -> ModelReply:
    client = client_for(ModelSpec(name="test", type=ModelType.DEMO))
    offered = tuple(tool(name) for name in tools) if tools else ALL
    try:
        return (await send(client, question(*messages, tools=offered, tool_choice=choice))).reply
    finally:
        await client.aclose()


def user(text: str) -> UserMessage:
    return UserMessage(id=MessageId(f"u.{text}"), text=text)


def answered(number: int, *results: tuple[str, str]) -> list[Message]:
    calls = tuple(
        ToolCall(id=CallId(f"r{number}.{i}"), name=name, arguments="{}") for i, (name, _) in enumerate(results)
    )
    messages: list[Message] = [AssistantMessage(id=MessageId(f"a{number}"), text="", calls=calls)]
    for call, (name, content) in zip(calls, results, strict=True):
        messages.append(
            ToolMessage(
                id=MessageId(f"t.{call.id}"),
                call_id=call.id,
                tool=name,
                arguments="{}",
                outcome=Outcome.SUCCESS,
                content=content,
            )
        )
    return messages


async def test_it_asks_for_calls_side_by_side_and_reports_usage() -> None:
    reply = await say(user("read a.txt and run `ls -l`"))
    assert [(call.name, json.loads(call.arguments)) for call in reply.calls] == [
        ("file_read", {"path": "a.txt"}),
        ("shell_exec", {"command": "ls -l"}),
    ]
    assert "(demo)" in reply.text
    assert reply.usage is not None
    assert reply.usage.input_tokens > 0
    assert reply.usage.output_tokens > 0
    assert reply.usage.cost is None


async def test_it_goes_on_with_the_next_round_and_then_quotes() -> None:
    asked = user("read a.txt then run `ls`")
    first = answered(1, ("file_read", "line one\nline two\nline three\nline four"))
    reply = await say(asked, *first)
    assert [call.name for call in reply.calls] == ["shell_exec"]
    last = await say(asked, *first, *answered(2, ("shell_exec", "a.txt b.txt")))
    assert not last.calls
    assert last.text.startswith("(demo)")
    for words in ("    line one\n", "    line three\n    …\n", "    a.txt b.txt"):
        assert words in last.text
    assert "line four" not in last.text


async def test_only_the_present_message_counts() -> None:
    reply = await say(user("read a.txt"), *answered(1, ("file_read", "x")), user("read a.txt"))
    assert [call.name for call in reply.calls] == ["file_read"]


async def test_a_quotation_keeps_indentation_and_blank_lines() -> None:
    last = await say(user("read a.py"), *answered(1, ("file_read", "\ndef f():\n\n    return 1\n")))
    assert last.text.endswith("gave:\n\n    def f():\n\n        return 1")


async def test_a_summary_says_what_was_asked() -> None:
    before = (user("read a.txt"), *answered(1, ("file_read", "x")), user("list\n."))
    summary = await say(*before, user(f"{SUMMARY_INSTRUCTION}\n\nKeep in particular: names"))
    assert summary.text == "(demo) You asked me:\n\n- read a.txt\n- list ."


async def test_what_the_program_adds_to_a_message_does_not_hide_it() -> None:
    before = (user("read a.txt"), *answered(1, ("file_read", "x")))
    reply = await say(*before, user("[chatops] Applied 1 change: a.txt.\n\nread b.txt"))
    assert [json.loads(call.arguments) for call in reply.calls] == [{"path": "b.txt"}]


async def test_it_acknowledges_a_denial_with_its_reason() -> None:
    asked = user("run `rm x` and read a.txt")
    results = answered(1, ("shell_exec", feedback.denied_text("too risky, ask Ana")), ("file_read", "fine"))
    reply = await say(asked, *results)
    assert "shell_exec was denied because: too risky, ask Ana." in reply.text
    assert "    fine" in reply.text
    assert "Do not ask" not in reply.text
    assert (
        "was denied"
        in (await say(asked, *answered(1, ("shell_exec", feedback.denied_text("")), ("file_read", "x")))).text
    )


async def test_a_tool_that_is_not_offered_is_named_with_the_way_out() -> None:
    reply = await say(user("run `ls`"), tools=("file_read",))
    assert not reply.calls
    assert "shell_exec" in reply.text
    assert "/role" in reply.text
    both = await say(user("run `ls` and read a.txt"), tools=("file_read",))
    assert [call.name for call in both.calls] == ["file_read"]
    assert "shell_exec" in both.text


async def test_the_closing_call_gets_words() -> None:
    messages = (user("read a.txt then run `ls`"), *answered(1, ("file_read", "x")), user(feedback.CLOSING))
    reply = await say(*messages, choice=ToolChoice.NONE)
    assert not reply.calls
    assert "I stop here" in reply.text
    assert "    x" in reply.text


async def test_it_never_leaves_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert "(demo)" in (await say(user("hm"))).text


async def test_anything_else_gets_help() -> None:
    reply = await say(user("What is the meaning of life?"))
    assert not reply.calls
    for words in ("(demo)", "not a language model", "chatops connect URL", "read FILE"):
        assert words in reply.text


async def test_it_streams_in_small_pieces_and_is_deterministic() -> None:
    client = client_for(ModelSpec(name="test", type=ModelType.DEMO))
    first, second = await send(client, question(user("hm"))), await send(client, question(user("hm")))
    await client.aclose()
    assert len(first.events) > 3
    assert first.text == first.reply.text
    assert first.reply == second.reply

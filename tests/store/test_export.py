"""Exports: readable by people and programs, and never a way for hostile text to act."""

import html.parser
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import (
    AssistantMessage,
    Message,
    NoticeMessage,
    RoleSwitchMessage,
    Speaker,
    ToolMessage,
    UserMessage,
)
from chatops.domain.tools import Outcome, ToolCall
from chatops.store import codec
from chatops.store.export import ExportFormat, export, to_html, to_jsonl, to_markdown, to_openai
from tests.store.storekit import memory_store
from tests.support.cases import for_each

HOSTILE = '\x1b]0;x\x07 <script>alert(1)</script> & "q" \'</pre> \u202egnp \ud83d ````'


def call(id_: str, arguments: str = "{}", name: str = "file_read") -> ToolCall:
    return ToolCall(id=CallId(id_), name=name, arguments=arguments)


def result(id_: str, content: str = "ok", outcome: Outcome = Outcome.SUCCESS) -> ToolMessage:
    return ToolMessage(
        id=MessageId(f"r-{id_}"),
        call_id=CallId(id_),
        tool="file_read",
        arguments="{}",
        outcome=outcome,
        content=content,
    )


def said(text: str, *calls: ToolCall) -> AssistantMessage:
    return AssistantMessage(id=MessageId(f"a-{text}"), text=text, calls=calls, role="coder", model="local")


def asked(text: str) -> UserMessage:
    return UserMessage(id=MessageId(f"u-{text}"), text=text)


HISTORY: tuple[Message, ...] = (
    asked("Read it"),
    replace(said("I read.", call("c1", '{"path":"a"}'), call("c2")), reasoning="Let me think"),
    result("c1", "content ```of``` a"),
    result("c2", "refused", Outcome.DENIED),
    RoleSwitchMessage(id=MessageId("x"), before="coder", after="reviewer", model="m", added=("t",), removed=("s",)),
    NoticeMessage(id=MessageId("n"), text="Limit reached", advice="Ask again"),
    replace(said("It says a."), incomplete=True),
)


def parsed(history: tuple[Message, ...]) -> list[dict[str, object]]:
    messages = json.loads(to_openai(history))
    assert isinstance(messages, list)
    return messages


def test_markdown_names_speakers_and_keeps_blocks_apart() -> None:
    text = to_markdown(HISTORY, title="A title")
    headings = re.findall(r"^#+ .*$", text, re.MULTILINE)
    assert headings == [
        "# A title",
        "## You",
        "## Assistant (coder, local)",
        "## Tool file_read",
        "## Tool file_read — denied",
        "## Role: coder → reviewer",
        "## Notice (info)",
        "## Assistant (coder, local), cut off",
    ]
    assert "````\ncontent ```of``` a\n````" in text
    assert "Limit reached\nAsk again" in text
    assert "+ t, − s" in text


def test_another_model_of_the_same_role_is_named_as_that() -> None:
    switch = RoleSwitchMessage(id=MessageId("r"), before="coder", after="coder", model="Qwen 3")
    assert "## Model of coder: Qwen 3" in to_markdown((switch,))


def test_what_the_machine_said_to_a_model_is_not_put_into_the_users_mouth() -> None:
    refusal = replace(asked("[chatops] Your response was empty."), by=Speaker.MACHINE)
    text = to_markdown((asked("hello"), refusal))
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## You", "## chatops"]
    assert [one["role"] for one in json.loads(to_openai((asked("hello"), said("hi"), refusal)))] == [
        "user",
        "assistant",
        "user",
    ]


def test_an_empty_session_has_a_title() -> None:
    assert to_markdown(()) == "# Session\n"
    assert json.loads(to_openai(())) == []


class Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile_history() -> tuple[Message, ...]:
    return (
        asked(HOSTILE),
        replace(said(HOSTILE, call("c1", HOSTILE, HOSTILE)), role=HOSTILE, model=HOSTILE, reasoning=HOSTILE),
        replace(result("c1", HOSTILE), tool=HOSTILE, decided_by=HOSTILE, arguments=HOSTILE),
        RoleSwitchMessage(id=MessageId("x"), before=HOSTILE, after=HOSTILE, model=HOSTILE, added=(HOSTILE,)),
        NoticeMessage(id=MessageId("n"), text=HOSTILE, advice=HOSTILE),
    )


def test_the_page_holds_hostile_text_as_text_and_nothing_that_runs_or_loads() -> None:
    page = Page()
    source = to_html(hostile_history(), title=HOSTILE)
    page.feed(source)
    assert set(page.tags) <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "section", "div", "details", "summary", "pre")
    }
    assert set(page.attributes) <= {"lang", "charset", "http-equiv", "content", "class"}
    assert page.text.count("<script>alert(1)</script>") >= 10
    assert "default-src 'none'" in source
    assert "http://" not in source


@for_each("to", list(ExportFormat))
def test_no_export_lets_control_characters_through_or_fails_to_encode(to: ExportFormat) -> None:
    info = memory_store().create_session(workspace="/w\udcff", role="r", persona="p", title=HOSTILE)
    text = export(hostile_history(), info, to=to)
    text.encode("utf-8")
    assert not set(text) & {"\x1b", "\x07", "\x9b"}
    if to in {ExportFormat.HTML, ExportFormat.MARKDOWN}:
        assert "\u202e" not in text
        assert "<U+202E>" in text or "&lt;U+202E&gt;" in text


def test_json_lines_lose_nothing(tmp_path: Path) -> None:
    info = memory_store().create_session(workspace="/w", role="r", persona="p", title="T")
    file = tmp_path / "export.jsonl"
    file.write_text(to_jsonl(hostile_history() + HISTORY[1:4], info), encoding="utf-8", newline="")
    header, *lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    assert json.loads(header)["id"] == info.id
    read = [codec.decode_message(line, message_id=json.loads(line)["id"]) for line in lines]
    assert tuple(read) == hostile_history() + HISTORY[1:4]


def test_openai_messages_have_one_result_behind_each_call() -> None:
    messages = parsed(HISTORY)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[1]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "file_read", "arguments": '{"path":"a"}'}},
        {"id": "call_2", "type": "function", "function": {"name": "file_read", "arguments": "{}"}},
    ]
    assert messages[3] == {"role": "tool", "tool_call_id": "call_2", "content": "refused"}


def test_openai_messages_are_made_whole_where_the_history_is_not() -> None:
    history = (
        result("orphan"),
        said("", call("c1", "{broken", "a tool!"), call("c2", "[1]"), call("c3", "NaN")),
        said(""),
    )
    messages = parsed(history)
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "tool"]
    calls = messages[0]["tool_calls"]
    assert isinstance(calls, list)
    assert [json.loads(each["function"]["arguments"]) for each in calls] == [
        {"unreadable": "{broken"},
        {"unreadable": "[1]"},
        {"unreadable": "NaN"},
    ]
    assert calls[0]["function"]["name"] == "a_tool_"
    assert messages[0]["content"] is None


short = st.text(alphabet=st.characters(codec=None, categories=None), max_size=8)
ids = st.sampled_from(["c1", "c2", "c3"])
any_message = (
    st.builds(asked, short)
    | st.builds(result, ids, short)
    | st.builds(lambda text, made: said(text, *made), short, st.lists(st.builds(call, ids, short, short), max_size=3))
)


@pytest.mark.more
@given(st.lists(any_message, max_size=8))
def test_openai_messages_are_valid_for_any_history(history: list[Message]) -> None:
    text = to_openai(history)
    text.encode("utf-8")
    waiting: list[str] = []
    seen: set[str] = set()
    for message in json.loads(text):
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        for each in message.get("tool_calls", []):
            assert each["id"] not in seen
            seen.add(each["id"])
            waiting.append(each["id"])
            assert isinstance(json.loads(each["function"]["arguments"]), dict)
            assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", each["function"]["name"])
    assert not waiting

"""No value of a model ends a command, an export, a listing or a digest, also where JSON cannot hold it."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatops.domain.canonical import digest, json_or_text
from tests.support.command_line import CommandLine, Ran, registry_for
from tests.support.fake_openai import Call, FakeOpenAI, calls, says
from tests.support.properties import examples

FOREIGN = [
    "1e400", "-1e999", "NaN", "-Infinity", "9" * 400, "9" * 5000, "-0.0", r'"\ud800"', r'{"\udfff": "\udc00"}',
    '{"a": 1, "a": 2}', "[" * 300 + "]" * 300, "[" * 990 + "]" * 990, "[" * 100_000 + "]" * 100_000,
    '{"a":' * 600 + "1e400" + "}" * 600,
]  # fmt: skip
VALUES = st.recursive(
    st.sampled_from(FOREIGN) | st.floats().map(json.dumps) | st.integers().map(str) | st.text().map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda many: f"[{', '.join(many)}]")
        | st.lists(st.tuples(st.sampled_from('"path" "content" "x"'.split()), inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{name}: {value}" for name, value in pairs) + "}"
        )
    ),
    max_leaves=5,
)


def strict(text: str) -> Any:
    """Read JSON as a strict reader does."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def every_listing(chatops: CommandLine, session: str, registry: str) -> None:
    """Ask each command that shows what a model wrote."""
    shown = chatops("sessions", "show", session, "--output-format", "json")
    assert shown.code == 0, shown.err
    assert strict(shown.out)["message_list"]
    for command in (
        ["sessions", "show", session],
        ["sessions", "list", "--output-format", "json"],
        ["sessions", "search", "write", "--output-format", "json"],
        ["approvals", "list"],
        ["approvals", "list", "--output-format", "json"],
        ["audit", "list", "--output-format", "json"],
        *(["sessions", "export", session, "--format", kind] for kind in ("md", "html", "jsonl", "openai")),
    ):
        ran = chatops(*command, "--registry", registry)
        assert ran.code == 0, (command, ran.err)


def asked(chatops: CommandLine, url: str, output: str) -> tuple[Ran, str]:
    file = registry_for(chatops.workspace, url, tools=["file_read", "file_write"])
    return chatops("--registry", file, "-p", "write", "--output-format", output), file


@pytest.mark.more
@settings(max_examples=examples(5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(VALUES, min_size=1, max_size=3))
def test_arguments_that_json_cannot_hold_end_nothing(values: list[str], chatops: CommandLine) -> None:
    check_arguments(values, chatops)


@pytest.mark.some(1)
@pytest.mark.parametrize("value", FOREIGN, ids=range(len(FOREIGN)))
def test_each_value_that_is_known_to_be_foreign_ends_nothing(value: str, chatops: CommandLine) -> None:
    check_arguments([value], chatops)


def check_arguments(values: list[str], chatops: CommandLine) -> None:
    """The values as an argument of a tool, as one that no tool has, and as all of the arguments."""
    texts = [text for one in values for text in (f'{{"path": {one}}}', f'{{"path": "note.txt", "x": {one}}}', one)]
    wanted = [
        Call(name=("file_read", "file_write", "nothing")[number % 3], arguments=text, id=f"c{number}")
        for number, text in enumerate(texts)
    ]
    waits = Call(name="file_write", arguments='{"path": "a", "content": "b"}', id="w")
    with FakeOpenAI(lambda request: says("Done.") if request.tool_results else calls(*wanted, waits)) as server:
        ran, file = asked(chatops, server.url, "json")
        assert ran.code == 3, ran.err
        report = strict(ran.out)
        assert len(report["calls"]) == len(wanted) + 1
        (pending,) = report["pending"]
        every_listing(chatops, report["session_id"], file)
        assert chatops("approvals", "approve", pending["id"], "--registry", file).code == 0
        streamed = chatops("resume", report["session_id"], "--registry", file, "--output-format", "stream-json")
        assert streamed.code == 0, streamed.err
        assert [strict(line) for line in streamed.out.splitlines()][-1]["status"] == "success"
        every_listing(chatops, report["session_id"], file)


@pytest.mark.some(1)
@pytest.mark.parametrize("value", FOREIGN, ids=range(len(FOREIGN)))
def test_an_answer_of_foreign_json_is_text(value: str, chatops: CommandLine) -> None:
    with FakeOpenAI([says(f'{{"x": {value}}}')]) as server:
        ran, file = asked(chatops, server.url, "json")
    assert ran.code in (0, 1), ran.err
    every_listing(chatops, strict(ran.out)["session_id"], file)


@pytest.mark.parametrize("value", FOREIGN, ids=range(len(FOREIGN)))
def test_parse_answers_each_text_with_json(
    value: str, chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f'<tool_call>{{"name": "file_read", "arguments": {{"path": {value}}}}}</tool_call>'
    line = json.dumps({"text": text, "tools": {"file_read": {"type": "object"}}}) + "\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line.encode() * 2)))
    ran = chatops("parse")
    assert ran.code == 0, ran.err
    assert len([strict(one) for one in ran.out.splitlines()]) == 2


@pytest.mark.more
@settings(max_examples=examples(100), deadline=None)
@given(VALUES)
def test_what_is_shown_of_a_value_can_be_written_and_digested(text: str) -> None:
    value = json_or_text(text)
    strict(json.dumps(value, indent=2, allow_nan=False))
    assert len(digest(text, value)) == 64


@pytest.mark.parametrize("output", ["text", "json"])
def test_controls_of_an_answer_reach_a_terminal_neither_directly_nor_through_a_pipe(
    output: str, chatops: CommandLine
) -> None:
    answer = "see \x1b]0;owned\x07 \x9b2J \x7f end"
    with FakeOpenAI([says(answer)]) as server:
        ran, file = asked(chatops, server.url, output)
    assert ran.code == 0, ran.err
    assert not any(char in ran.out for char in "\x1b\x07\x9b\x7f")
    assert "see" in ran.out and "end" in ran.out
    if output == "json":
        assert ran.json["answer"] == answer
        session = ran.json["session_id"]
        exported = {
            kind: chatops("sessions", "export", session, "--format", kind, "--registry", file).out
            for kind in ("md", "html", "jsonl", "openai")
        }
        assert not any(char in text for text in exported.values() for char in "\x1b\x07\x9b\x7f")
        assert strict(exported["openai"])[-1]["content"] == answer

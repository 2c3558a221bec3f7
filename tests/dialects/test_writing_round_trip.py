"""Written calls read back the same: names, values and order, without repairs and with high confidence."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatops.dialects import read_calls
from chatops.dialects.families import family_of
from chatops.dialects.formats.base import MARKS, TAGS
from chatops.dialects.reading import Confidence
from chatops.dialects.writers import inert, object_of
from chatops.dialects.writing import WRITABLE, ToolDescription, WrittenCall, WrittenResult
from chatops.domain.canonical import JsonValue, canonical
from tests.dialects.examples import SPELLINGS
from tests.support.cases import for_each
from tests.support.properties import examples

ALL = for_each("name", sorted(WRITABLE))
LS: dict[str, dict[str, JsonValue]] = {"ls": {"type": "object", "properties": {"path": {"type": "string"}}}}
UNSURE = {"json_fenced"}
"""Read as less sure by rule: documentation looks the same."""

TOOL_NAMES = ["file_read", "ls", "f", "web.search", "mcp-git_status", "server.tool-name", "class", "_x1", "print"]
KEYS = [
    "path",
    "n",
    "from",
    "a-b",
    "a.b",
    "two words",
    "name",
    "arguments",
    "parameters",
    "ключ",
    "</parameter>",
    "x=1",
    '"',
    "",
]
PROSE = [
    "",
    "I will have a look.",
    "First this.\nThen that, if 3 < 5 & a[0] > {x}.",
    "Schön: 東京 😀 (see <b>here</b>)",
    "- one\n- two",
    "It's `ls` that I need.",
]
MARKUP = [
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<function=ls>", "</function>", "<think>"),
    *("<parameter=path>", "</parameter>", "<arg_key>", "</arg_value>", "<invoke name='ls'>", "</invoke>", "</think>"),
    *(
        "<|python_tag|>",
        "<|im_end|>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁end｜>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "</s>",
    ),
    *("```", "```json\n", "\n```\n", "`", "~~~", "> quote", "    indented", "<!--", "-->", "[/INST]", "</tools>"),
    *('"', "'", '"""', "\\", "\\n", "\n", "\r\n", "\t", "{", "}", "[", "]", "(", ")", ", ", "=", ":", ";", "#", "//"),
    *('{"name": "ls", "arguments": {}}', "[ls()]", "Action: ls\nAction Input: {}", "null", "true", "123", "-1.5e3"),
    *(
        "\u2028",
        "\x85",
        "\x0c",
        "\x00",
        "\ufeff",
        "\u200b",
        "é",
        "e\u0301",
        "😀",
        "<",
        ">",
        "&",
        "&lt;",
        "%a",
        "%n",
        " ",
    ),
    *("[result 0123456789abcdef of ls: success]", "[end of result 0123456789abcdef]", "<|", "|>", "</", "]]>"),
    *("<![CDATA[", "/*", "*/", "</s>", " "),
]
TEXTS = st.text(max_size=12) | st.lists(st.sampled_from(MARKUP) | st.text(max_size=3), max_size=5).map("".join)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
ANYTHING: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
VALUES: Mapping[str, st.SearchStrategy[JsonValue]] = {
    "string": TEXTS,
    "integer": st.integers(),
    "number": NUMBERS,
    "boolean": st.booleans(),
    "array": st.lists(ANYTHING, max_size=3),
    "object": st.dictionaries(TEXTS, ANYTHING, max_size=3),
}


@dataclass(frozen=True)
class Message:
    """Calls of a message together with the tools they call."""

    tools: dict[str, dict[str, JsonValue]]
    calls: list[tuple[str, dict[str, JsonValue]]]

    def written(self) -> list[WrittenCall]:
        return [WrittenCall(name=name, arguments=json.dumps(arguments)) for name, arguments in self.calls]


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """One to three calls of one to three tools, each argument of the type that its schema says."""
    tools: dict[str, dict[str, JsonValue]] = {}
    types: dict[str, dict[str, str]] = {}
    for name in draw(st.lists(st.sampled_from(TOOL_NAMES), min_size=1, max_size=3, unique=True)):
        types[name] = draw(st.dictionaries(st.sampled_from(KEYS) | TEXTS, st.sampled_from(sorted(VALUES)), max_size=4))
        tools[name] = {"type": "object", "properties": {key: {"type": kind} for key, kind in types[name].items()}}
    calls: list[tuple[str, dict[str, JsonValue]]] = []
    for name in draw(st.lists(st.sampled_from(sorted(tools)), min_size=1, max_size=3)):
        keys = [key for key in types[name] if draw(st.integers(0, 4))]
        calls.append((name, {key: draw(VALUES[types[name][key]]) for key in keys}))
    return Message(tools=tools, calls=calls)


def assert_reads_back(name: str, text: str, message: Message) -> None:
    reading = read_calls(text, message.tools)
    read = [(call.name, canonical(json.loads(call.arguments))) for call in reading.calls]
    assert read == [(tool, canonical(arguments)) for tool, arguments in message.calls]
    assert not reading.diagnostics
    for call in reading.calls:
        assert call.repairs == ()
        assert call.confidence is (Confidence.LOW if name in UNSURE and reading.content else Confidence.HIGH)


@pytest.mark.some(2)
@pytest.mark.parametrize("name", sorted(WRITABLE))
@settings(max_examples=examples(15, among=len(WRITABLE)))
@given(message=messages(), prose=st.sampled_from(PROSE))
def test_calls_are_read_as_they_were_written(name: str, message: Message, prose: str) -> None:
    text = WRITABLE[name].message(prose, message.written())
    assert_reads_back(name, text, message)
    assert read_calls(text, message.tools).content.split() == prose.split()


@for_each("format", sorted(SPELLINGS))
def test_no_mark_of_a_format_is_left_in_a_value(format: str) -> None:
    """A value may hold what another format writes: `_MARKUP` of `writers.py` escapes each of its tags and tokens."""
    openings = [*(f"<{word}>" for word in TAGS.get(format, ())), *MARKS.get(format, ())]
    text = " ".join([SPELLINGS[format].spell([("ls", {"path": "/"})]), *openings])
    assert not re.search(r"<(?!/?path>)[/|｜\w]|\[/?[A-Z]", inert(text)), "match the `<` or `[` of the mark in _MARKUP"


ENDS = ["", "\n", "\n\n", "\nx", "x\n", "\nx\n", "\r", "x\r", "\r\nx", "x\r\n", "\r\nx\r\n", " ", " x\t", "\x85x\x85"]
LOOKS = ["null", " null", "None", "123", "-1.5", "true", "{}", "[1]", '"x"', "'x'", "x<", ">x", "</", "x\\", "<b>x</b>"]


@ALL
@for_each("type_", ["string", ["string", "null"]])
def test_a_text_keeps_its_ends_and_stays_text(name: str, type_: JsonValue) -> None:
    properties: JsonValue = {"path": {"type": type_}, "note": {"type": type_}}
    for text in [*ENDS, *LOOKS]:
        arguments: dict[str, JsonValue] = {"path": text, "note": text}
        message = Message(tools={"ls": {"type": "object", "properties": properties}}, calls=[("ls", arguments)])
        assert_reads_back(name, WRITABLE[name].calls(message.written()), message)


@pytest.mark.some(4)
@pytest.mark.parametrize("name", sorted(WRITABLE))
@settings(max_examples=examples(10, among=len(WRITABLE)))
@given(message=messages())
def test_calls_with_an_opener_are_read_without_text_before_them_too(name: str, message: Message) -> None:
    assert_reads_back(name, WRITABLE[name].calls(message.written()), message)


@pytest.mark.some(5)
@pytest.mark.parametrize("name", sorted(WRITABLE))
@settings(max_examples=examples(10, among=len(WRITABLE)))
@given(broken=TEXTS.filter(lambda text: not object_of(text)))
def test_arguments_that_were_broken_never_become_others(name: str, broken: str) -> None:
    for call in read_calls(WRITABLE[name].calls([WrittenCall(name="ls", arguments=broken)]), LS).calls:
        assert json.loads(call.arguments) == {} or call.repairs


@st.composite
def hostile(draw: st.DrawFn) -> str:
    """The output of a tool that knows every format and has seen fences before."""
    call = [WrittenCall(name="ls", arguments='{"path": "/"}')]
    texts = [writer.calls(call) for writer in WRITABLE.values()] + [
        writer.message("", call) for writer in WRITABLE.values()
    ]
    seen = WRITABLE["hermes"].results([WrittenResult(name="ls", content="x", outcome="success")], secret="s")
    parts = st.sampled_from([*texts, *MARKUP, seen, *seen.splitlines(keepends=True)]) | st.text(max_size=5)
    return "".join(draw(st.lists(parts, max_size=8)))


@pytest.mark.some(2)
@pytest.mark.parametrize("name", sorted(WRITABLE))
@settings(max_examples=examples(15, among=len(WRITABLE)))
@given(contents=st.lists(hostile(), min_size=1, max_size=3), prose=st.sampled_from(PROSE))
def test_nothing_in_a_result_is_a_call(name: str, contents: list[str], prose: str) -> None:
    results = [WrittenResult(name="ls", content=content, outcome="success") for content in contents]
    text = prose + "\n" + WRITABLE[name].results(results, secret="s")
    assert read_calls(text, LS).calls == ()


@ALL
def test_nothing_in_the_prompt_is_a_call(name: str) -> None:
    call = WRITABLE[name].calls([WrittenCall(name="ls", arguments="{}")])
    tools = [ToolDescription(name="ls", description=call, schema='{"type": "object"}')]
    assert read_calls(WRITABLE[name].system_prompt(tools), {"ls": {"type": "object"}}).calls == ()


OFFERS = [{"web_search", "python_exec", "wolfram_alpha"}, {"web_search", "brave_search"}, {"file_read"}]


@for_each("offered", OFFERS)
@for_each("model_name", ["llama3.1:8b", "qwen3:8b"])
def test_a_tool_written_under_the_name_the_model_knows_reads_as_ours(model_name: str, offered: set[str]) -> None:
    family = family_of(model_name)
    for name in offered:
        text = WRITABLE["hermes"].calls([WrittenCall(name=family.their_name(name, offered), arguments="{}")])
        reading = read_calls(text, {each: {"type": "object"} for each in offered}, aliases=family.aliases)
        assert [call.name for call in reading.calls] == [name]

"""A text comes to the same reading in whatever pieces it arrives, and what is certain is not kept back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.dialects import CallReader, ContentSegment, Reading, ReasoningSegment, Segment, read_calls
from chatops.dialects.formats.marked import MARK_READERS
from chatops.dialects.scanner import KINDS
from tests.dialects.examples import CORPUS, SPELLINGS, TOOLS, Wanted
from tests.dialects.test_corpus import put_together
from tests.support.cases import for_each

OSLO: Wanted = ("get_weather", {"city": "Oslo"})
TOKENS = [
    *(f"<{word}>" for word in sorted(KINDS)),
    *(f"<{word} " for word in sorted(KINDS)[::5]),
    *sorted(MARK_READERS),
    *(
        "[ARGS]",
        "[CALL_ID]",
        "[THINK]",
        "[/THINK]",
        "◁think▷",
        "◁/think▷",
        "<invoke name=",
        "<function=",
        "<parameter=",
        ">",
    ),
    *(
        "</parameter>",
        "</function>",
        "</tool_call>",
        "</tool_calls>",
        "<|sep|>",
        "<|message|>",
        "<|constrain|>",
        "<|call|>",
    ),
    *("<analysis>", "</analysis>", "<no", "te>", "</note>", "<answer>", "</answer>", "<action>", "</action>", "<br>"),
    *("[note]", "[/note]", "<|draft|>", "<|/draft|>", "<|draft_start|>", "<|draft_end|>", "<1>", "</1>"),
    *("to=functions.run_shell", "to=user", "to=self", "commentary", "analysis", "final", "assistant", "thought"),
    *("`", "``", "```", "```json\n", "~~~", "\n", "\n\n", "    ", "\t", " ", "\r\n", "> ", ">>>", "<!--", "-->"),
    *(
        "Action:",
        "\nAction Input: ",
        "Observation:",
        "function call<|role_sep|>",
        "Example: ",
        "word",
        "é",
        "😀",
        "\ud800",
    ),
    *("{", "}", "[", "]", '"', "'", "\\", ",", ";", ":", "=", "<", "<|", "</", "run_shell", "command", "name"),
    *(
        '{"command": "ls"}',
        '{"name": "run_shell", "arguments": {"command": "ls"}}',
        "(command='ls')",
        '"name": "run_shell"',
    ),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "call:", '<|"|>', "<escape>", 'call tool="run_shell"'),
    *(
        'argument key="command" type="string"',
        "[result 0123456789abcdef of x: ok]\n",
        "[end of result 0123456789abcdef]",
    ),
]
SOUP = st.lists(st.sampled_from(TOKENS), max_size=30).map("".join)
CALLS = [
    spelling.spell([("run_shell", {"command": "ls `x` </think>"}), OSLO][: 1 + spelling.several])
    for spelling in SPELLINGS.values()
]
MIXTURES = st.lists(st.one_of(st.sampled_from(CALLS), st.sampled_from(TOKENS)), min_size=1, max_size=6).map("".join)
TEXTS = st.one_of(SOUP, MIXTURES, st.text(max_size=80), st.sampled_from([case["text"] for case in CORPUS]))
SIZES = st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=12)


def in_pieces(
    text: str, sizes: list[int], finish_reason: str = "stop", tools: Any = TOOLS
) -> tuple[list[Segment], Reading]:
    """Return the segments and the reading of `text` in chunks of `sizes`, repeated."""
    reader = CallReader(tools)
    pieces: list[Segment] = []
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        pieces += reader.feed(text[at : at + size])
        at += size
        turn += 1
    last, reading = reader.close(finish_reason)
    return pieces + last, reading


def joined(pieces: list[Segment]) -> list[Segment]:
    """`pieces` with neighbours of one kind put together."""
    result: list[Segment] = []
    for piece in pieces:
        last = result[-1] if result else None
        if isinstance(piece, ContentSegment) and isinstance(last, ContentSegment):
            result[-1] = ContentSegment(text=last.text + piece.text)
        elif isinstance(piece, ReasoningSegment) and isinstance(last, ReasoningSegment):
            result[-1] = ReasoningSegment(text=last.text + piece.text)
        else:
            result.append(piece)
    return result


@pytest.mark.more
@given(text=TEXTS, sizes=SIZES, finish_reason=st.sampled_from(["stop", "length"]))
def test_chunks_change_neither_the_reading_nor_the_pieces(text: str, sizes: list[int], finish_reason: str) -> None:
    whole = in_pieces(text, [max(len(text), 1)], finish_reason)
    pieces, reading = in_pieces(text, sizes, finish_reason)
    assert reading == whole[1] == read_calls(text, TOOLS, finish_reason=finish_reason)
    assert joined(pieces) == joined(whole[0])
    assert put_together(pieces) == (reading.content, reading.reasoning)
    assert in_pieces(text, [1], finish_reason)[1] == reading


@given(text=TEXTS)
def test_whatever_the_text_a_call_is_one_of_a_tool_on_offer_with_an_object(text: str) -> None:
    reading = read_calls(text, TOOLS)
    for call in reading.calls:
        assert call.name in TOOLS
        assert isinstance(json.loads(call.arguments), dict)
        assert 0 <= call.start < call.end <= len(text)
    for diagnostic in reading.diagnostics:
        assert diagnostic.message
        assert len(diagnostic.excerpt) <= 200
        assert 0 <= diagnostic.start <= len(text)


@given(text=TEXTS)
def test_nothing_within_thought_is_a_call(text: str) -> None:
    if "</think" not in text.lower():
        assert read_calls(f"<think>{text}", TOOLS).calls == ()


@given(text=st.text(alphabet=st.characters(exclude_characters="<[]`~>◁\"'"), max_size=200), sizes=SIZES)
def test_plain_text_comes_out_as_it_went_in(text: str, sizes: list[int]) -> None:
    if text.lstrip()[:1] not in ("", "{") and "functools" not in text:
        assert in_pieces(text, sizes, tools={"x": {}})[1] == Reading(content=text)


def test_prose_is_passed_on_word_by_word() -> None:
    words = (
        "It is, I think, a **good** day; 3 < 4 and the list (see #1) is `short` & <b>bold</b>.\n\n- one\n- two\n".split(
            " "
        )
    )
    reader = CallReader(TOOLS)
    given_out = ""
    for number, word in enumerate(words):
        chunk = word + " " * (number < len(words) - 1)
        given_out += "".join(piece.text for piece in reader.feed(chunk))
        arrived = " ".join(words[: number + 1])
        assert len(arrived) - len(given_out) <= 2, (arrived, given_out)


@for_each("text", [*CALLS, *(f"{call}\n\nDone." for call in CALLS)])
def test_every_format_reads_the_same_character_by_character(text: str) -> None:
    segments, reading = in_pieces(text, [1])
    whole_segments, whole = in_pieces(text, [len(text)])
    assert reading == whole == read_calls(text, TOOLS)
    assert joined(segments) == joined(whole_segments)


@for_each("format", sorted(name for name, each in SPELLINGS.items() if each.marked))
def test_text_before_a_call_has_come_before_the_call_and_nothing_of_the_call_ever_does(format: str) -> None:
    before = "I will look that up for you. "
    lines = before + ("\n" if format in ("react", "commandr_action", "functionary_v32") else "")
    text = lines + SPELLINGS[format].spell([OSLO])
    reader = CallReader(TOOLS)
    shown = ""
    for char in text:
        shown += "".join(piece.text for piece in reader.feed(char))
        assert lines.startswith(shown)
    last, reading = reader.close()
    shown += "".join(piece.text for piece in last)
    assert shown == reading.content == lines
    assert len(reading.calls) == 1


@for_each("format", sorted(name for name, each in SPELLINGS.items() if each.marked and name != "react"))
def test_text_behind_a_call_flows_again(format: str) -> None:
    reader = CallReader(TOOLS)
    shown = ""
    for char in SPELLINGS[format].spell([OSLO]) + "\n\nThat was it, and now some more words follow here.":
        shown += "".join(piece.text for piece in reader.feed(char))
    assert shown.strip() == "That was it, and now some more words follow here."


def test_a_message_that_may_be_a_call_as_a_whole_waits_for_its_end() -> None:
    reader = CallReader(TOOLS)
    assert reader.feed('{"name": "get_weather", "arguments": {"city": "Oslo"}}') == []
    assert reader.close()[1].calls
    reader = CallReader(TOOLS)
    assert reader.feed('{"temperature": 3}') == []
    pieces, reading = reader.close()
    assert pieces == [ContentSegment(text='{"temperature": 3}')]
    assert reading.calls == ()


@for_each("text", ["[1, 2, 3", "[see below", "get weather", "getting on", "run_shell is", "```python\nx = 1\n"])
def test_a_message_that_can_no_longer_be_a_call_flows(text: str) -> None:
    reader = CallReader(TOOLS)
    shown = "".join(piece.text for char in text for piece in reader.feed(char))
    assert len(text) - len(shown) <= 2


def test_code_that_cannot_be_a_call_flows_line_by_line() -> None:
    reader = CallReader(TOOLS)
    reader.feed("So:\n\n```\n")
    assert reader.feed("print(1)\n") == [ContentSegment(text="\n```\nprint(1)")]
    assert reader.feed("print(2)\n") == [ContentSegment(text="\nprint(2)")]


def test_a_code_span_that_is_never_closed_hides_no_call() -> None:
    text = f"A lone ` and then\n{SPELLINGS['hermes'].spell([OSLO])}"
    for sizes in ([1], [1000]):
        assert len(in_pieces(text, sizes)[1].calls) == 1


def test_feeding_nothing_changes_nothing() -> None:
    reader = CallReader(TOOLS)
    assert reader.feed("") == []
    assert reader.close() == ([], Reading())

"""The corpus of written calls: every case of it, whole, in pieces and cut off."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from chatops.dialects import CallReader, ContentSegment, Reading, ReasoningSegment, Segment, read_calls
from tests.dialects.examples import CORPUS
from tests.support.cases import for_each

Case = dict[str, Any]

FORMATS_IN_IT = sorted({case["format"] for case in CORPUS})
CUT_BEFORE_THE_END_OF_THOUGHT = {"hermes-a63ff9fc", "think-426938d8"}
"""Cases whose thought is only known by a closing tag after the call; cut before it, the call follows prose."""


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _calls(reading: Reading) -> list[dict[str, Any]]:
    return [{"name": call.name, "arguments": json.loads(call.arguments)} for call in reading.calls]


def _folded(text: str) -> str:
    return " ".join(text.split())


def put_together(pieces: Sequence[Segment]) -> tuple[str, str]:
    """The content and the reasoning that pieces come to."""
    content = reasoning = ""
    for piece in pieces:
        if isinstance(piece, ContentSegment):
            content += piece.text
        elif isinstance(piece, ReasoningSegment):
            reasoning += piece.text
        else:
            content, reasoning = content[: len(content) - piece.removed], reasoning + piece.text
    return content, reasoning


def in_chunks(text: str, tools: Any, sizes: Random | int) -> tuple[list[Segment], Reading]:
    """Return the segments and the reading of `text` in chunks of one size, or of random ones."""
    reader = CallReader(tools)
    pieces: list[Segment] = []
    at = 0
    while at < len(text):
        size = sizes if isinstance(sizes, int) else sizes.choice((1, 2, 3, 5, 8, 21, 55))
        pieces += reader.feed(text[at : at + size])
        at += size
    last, reading = reader.close()
    return pieces + last, reading


def _of(format: str) -> list[Case]:
    return [case for case in CORPUS if case["format"] == format]


@for_each("format", FORMATS_IN_IT)
def test_every_case_gives_the_calls_it_should_and_no_others(format: str) -> None:
    wrong = [
        (case["id"], case["tag"], case["text"], _calls(reading))
        for case in _of(format)
        if not _same(_calls(reading := read_calls(case["text"], case["tools"])), case["expected"])
    ]
    assert wrong == []


@for_each("format", FORMATS_IN_IT)
def test_the_content_is_everything_but_the_calls(format: str) -> None:
    wrong = [
        (case["id"], case["text"], content)
        for case in _of(format)
        if case["expected_content"] is not None
        and _folded(content := read_calls(case["text"], case["tools"]).content) != _folded(case["expected_content"])
    ]
    assert wrong == []


def test_nothing_that_must_not_run_runs() -> None:
    ran = [case["id"] for case in CORPUS if case["must_not_execute"] and read_calls(case["text"], case["tools"]).calls]
    assert ran == []


@pytest.mark.some(10)
@pytest.mark.parametrize("format", FORMATS_IN_IT)
def test_the_way_a_text_arrives_changes_nothing(format: str) -> None:
    chance = Random(format)
    for case in _of(format):
        text, tools = case["text"], case["tools"]
        whole = in_chunks(text, tools, max(len(text), 1))
        for sizes in (1, chance, chance):
            pieces, reading = in_chunks(text, tools, sizes)
            assert reading == whole[1], (case["id"], text)
            assert put_together(pieces) == (reading.content, reading.reasoning), (case["id"], text)


@pytest.mark.some(12)
@pytest.mark.parametrize("format", FORMATS_IN_IT)
def test_a_message_that_was_cut_off_gives_no_other_call_than_the_whole_one(format: str) -> None:
    chance = Random(format)
    for case in _of(format):
        if case["must_not_execute"] or len(case["text"]) < 3 or case["id"] in CUT_BEFORE_THE_END_OF_THOUGHT:
            continue
        for end in sorted(chance.sample(range(1, len(case["text"])), min(16, len(case["text"]) - 1))):
            for finish_reason in ("stop", "length"):
                reading = read_calls(case["text"][:end], case["tools"], finish_reason=finish_reason)
                for call in _calls(reading):
                    assert any(_same(call, wanted) for wanted in case["expected"]), (case["id"], case["text"][:end])


@for_each("format", FORMATS_IN_IT)
def test_names_in_another_case_and_tools_that_are_gone_are_no_tools(format: str) -> None:
    for case in _of(format):
        others = {f"{name.swapcase()}_": schema for name, schema in case["tools"].items()}
        assert read_calls(case["text"], others).calls == (), case["id"]
        assert read_calls(case["text"], {}).calls == (), case["id"]


@for_each("format", FORMATS_IN_IT)
def test_a_call_has_its_position(format: str) -> None:
    for case in _of(format):
        for call in read_calls(case["text"], case["tools"]).calls:
            assert 0 <= call.start < call.end <= len(case["text"]), case["id"]
            assert call.name in case["text"][call.start : call.end], case["id"]

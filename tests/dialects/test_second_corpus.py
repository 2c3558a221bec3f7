"""A second corpus, written from the table of formats and the rules alone, and texts that try to get something run.

`data/toolcalls_more.jsonl` has the form of `data/toolcalls.jsonl`: other tools, other values, every format encoded by
hand, every rule that forbids a call tried in every format. What an attack of kind `attack` says must never run.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chatops.dialects import CallReader, Reading, read_calls
from tests.support.cases import for_each

Case = dict[str, Any]
CASES: list[Case] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "toolcalls_more.jsonl").read_text(encoding="utf-8").splitlines()
]
POSITIVE = [case for case in CASES if not case["must_not_execute"]]
KINDS = sorted({case["kind"] for case in CASES})
SHORT = 200
UNOPENED = "unopened-think"
"""Thought whose opening tag was in the prompt: until its closing tag comes, it looks like an answer."""


def _calls(reading: Reading) -> list[dict[str, Any]]:
    return [{"name": call.name, "arguments": json.loads(call.arguments)} for call in reading.calls]


def _same(one: object, other: object) -> bool:
    """Return True if two values are the same: 1 equals 1.0, and no number equals a boolean."""
    match one, other:
        case bool(), _:
            return one is other
        case _, bool():
            return False
        case dict(), dict():
            return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(_same, one, other))
        case _:
            return one == other


def _folded(text: str) -> str:
    return " ".join(text.split())


def _wrong(case: Case) -> bool:
    reading = read_calls(case["text"], case["tools"])
    content = case["expected_content"]
    return not _same(_calls(reading), case["expected"]) or (
        content is not None and _folded(reading.content) != _folded(content)
    )


@for_each("kind", KINDS)
def test_every_case_is_read_as_it_was_meant(kind: str) -> None:
    cases = [case for case in CASES if case["kind"] == kind]
    assert cases
    assert [f"{case['id']} {case['tag']}" for case in cases if _wrong(case)] == []


@pytest.mark.more
def test_the_reading_does_not_depend_on_the_chunks() -> None:
    chance = random.Random(11)
    different = []
    for case in CASES:
        reader = CallReader(case["tools"])
        for chunk in _chunks(case["text"], chance):
            reader.feed(chunk)
        if reader.close()[1] != read_calls(case["text"], case["tools"]):
            different.append(case["id"])
    assert different == []


def _chunks(text: str, chance: random.Random) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = at + chance.choice((1, 2, 3, 7, 20, 90))
        yield text[at:end]
        at = end


@pytest.mark.more
def test_no_beginning_of_an_answer_runs_what_the_whole_answer_does_not() -> None:
    spurious = []
    for case in POSITIVE:
        text = case["text"]
        if len(text) > SHORT or case["tag"] == UNOPENED:
            continue
        for end in range(1 + len(text) % 3, len(text), 3):
            calls = _calls(read_calls(text[:end], case["tools"]))
            if any(not any(_same(call, wanted) for wanted in case["expected"]) for call in calls):
                spurious.append((case["id"], text[:end]))
                break
    assert spurious == []


@pytest.mark.more
def test_an_answer_that_the_server_cut_runs_nothing_that_was_shortened() -> None:
    shortened = []
    for case in POSITIVE:
        text = case["text"]
        if case["tag"] == UNOPENED:
            continue
        for end in range(7, len(text), 13):
            calls = _calls(read_calls(text[:end], case["tools"], finish_reason="length"))
            if any(not any(_same(call, wanted) for wanted in case["expected"]) for call in calls):
                shortened.append((case["id"], text[:end]))
                break
    assert shortened == []

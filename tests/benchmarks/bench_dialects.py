"""Time of the readers of written calls and values: ``pytest -s -m bench tests/benchmarks/bench_dialects.py``.

Not collected by default. CPU time of the best of some runs. It fails on ratios only: four times a hostile text against
that text, and small values against `json.loads`. The figures for the corpus and for the sixteen stress inputs are
printed.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import product

import pytest

from chatops.dialects import CallReader, read_calls
from chatops.dialects.formats.pythonic import read_call_list
from chatops.dialects.json_reader import read_value
from chatops.dialects.reading import UnreadableValueError
from chatops.domain.canonical import JsonValue
from tests.dialects.examples import CORPUS
from tests.dialects.hostile import STRESS, UNITS

pytestmark = pytest.mark.bench

TOOLS: dict[str, dict[str, JsonValue]] = {
    "run_shell": {"type": "object", "properties": {"command": {"type": "string"}}}
}
LONG, LONG_VALUE = 60_000, 400_000
MOST = 6.0
"""Times what a fourth of the text takes: 4 is linear, 16 is square."""
LEAST = 0.02
"""Seconds below which a ratio says nothing."""
VALUES = [
    *("{", "[", "\\", '"', "'", '{"a":', '["a" ', '" b', "1,", "//\n", '"""', '{"a":1 ', "'a' b',", "\\u12", "“", " "),
    *("(", "f(a=1)\n", "'x' ", "A(A=,\t\t)", "x"),
]
BEFORE_VALUES = ["", "[", '{"a": "', '{"a": ', "f(a=", "[f(a='", "{'a': 'b' c "]


def _whole(text: str) -> None:
    read_calls(text, TOOLS)


def _in_words(text: str) -> None:
    reader = CallReader(TOOLS)
    for at in range(0, len(text), 4):
        reader.feed(text[at : at + 4])
    reader.close()


def _value(text: str) -> None:
    with suppress(UnreadableValueError):
        read_value(text, close_open=True)


def _call_list(text: str) -> None:
    with suppress(UnreadableValueError):
        read_call_list(text)


def _seconds(read: Callable[[str], object], text: str, runs: int = 3) -> float:
    best = float("inf")
    for _ in range(runs):
        begun = time.process_time()
        read(text)
        best = min(best, time.process_time() - begun)
    return best


@pytest.mark.parametrize("read", [_whole, _in_words, _value, _call_list])
def test_four_times_the_text_takes_about_four_times_as_long(read: Callable[[str], None]) -> None:
    of_values = read in (_value, _call_list)
    units = list(product(BEFORE_VALUES, VALUES)) if of_values else UNITS
    length = LONG_VALUE if of_values else LONG
    worst = ("", 0.0, 0.0)
    for before, unit in units:
        count = length // len(unit)
        long = _seconds(read, before + unit * count)
        short = _seconds(read, before + unit * (count // 4))
        if long > LEAST:
            worst = max(worst, (before + unit * 2, long / short, long), key=lambda one: one[1])
            assert long < MOST * short, (before, unit, short, long)
    print(f"{read.__name__}: worst ratio {worst[1]:.1f} for {worst[0]!r}, {worst[2]:.3f} s for {length:,} characters")


def test_figures() -> None:
    for name, (text, _) in STRESS.items():
        print(f"{name:28} {_seconds(_whole, text(), runs=1):.3f} s")
    begun = time.process_time()
    for case in CORPUS:
        read_calls(case["text"], case["tools"])
    print(f"corpus: {len(CORPUS) / (time.process_time() - begun):,.0f} cases/s")


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Paris", "unit": "celsius"}',
        '{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}',
        "{'city': 'Paris', 'unit': 'celsius',}",
    ],
)
def test_small_values_are_read_in_no_more_than_some_times_what_json_takes(text: str) -> None:
    strict = json.dumps({"city": "Paris", "unit": "celsius"})
    ours = _seconds(lambda _: [read_value(text) for _ in range(20_000)], "")
    theirs = _seconds(lambda _: [json.loads(strict) for _ in range(20_000)], "")
    print(f"{20_000 / ours:,.0f}/s, json.loads of two strings {20_000 / theirs:,.0f}/s: {text}")
    assert ours < (4 if '"' in text else 40) * theirs

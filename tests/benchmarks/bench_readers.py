"""Time of the readers of written values on hostile text, as a ratio to a fourth of that text, and their speed on small
values: ``pytest -s -m bench tests/benchmarks/bench_readers.py``.

Not collected by default. CPU time of the best of some runs, so other work counts little.
"""

import json
import time
from collections.abc import Callable

import pytest

from chatops.dialects.formats.pythonic import read_call_list
from chatops.dialects.json_reader import read_value
from chatops.dialects.reading import UnreadableValueError

pytestmark = pytest.mark.bench

LONG = 400_000
MOST = 6.0
"""Times what a fourth of the text takes: 4 is linear, 16 is square."""
LEAST = 0.01
"""Seconds below which a ratio says nothing."""

UNITS = [
    *("{", "[", "\\", '"', "'", '{"a":', '["a" ', '" b', "1,", "//\n", '"""', '{"a":1 ', "'a' b',", "\\u12", "“", " "),
    *("(", "f(a=1)\n", "'x' ", "A(A=,\t\t)", "x"),
]
BEFORE = ["", "[", '{"a": "', '{"a": ', "f(a=", "[f(a='", "{'a': 'b' c "]


def _open(text: str) -> object:
    return read_value(text, close_open=True)


def _seconds(read: Callable[[str], object], text: str, runs: int = 3) -> float:
    best = float("inf")
    for _ in range(runs):
        begun = time.process_time()
        try:
            read(text)
        except UnreadableValueError:
            pass
        best = min(best, time.process_time() - begun)
    return best


@pytest.mark.parametrize("read", [_open, read_call_list])
def test_four_times_the_text_takes_about_four_times_as_long(read: Callable[[str], object]) -> None:
    worst = ("", 0.0, 0.0)
    for before in BEFORE:
        for unit in UNITS:
            count = LONG // len(unit)
            long = _seconds(read, before + unit * count)
            short = _seconds(read, before + unit * (count // 4))
            if long > LEAST:
                worst = max(worst, (before + unit * 3, long / short, long), key=lambda one: one[1])
                assert long < MOST * short, (before, unit, short, long)
    text, ratio, seconds = worst
    print(f"{read.__name__}: worst ratio {ratio:.1f}, for {text!r}: {seconds:.3f} s for {LONG:,} characters")


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

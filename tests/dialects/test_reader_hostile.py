"""Texts that are meant to stall the reader, or to get it to run something."""

from collections.abc import Callable

import pytest

from chatops.dialects import CallReader, Reading, read_calls
from chatops.domain.canonical import JsonValue
from tests.dialects.hostile import STRESS, UNITS
from tests.dialects.reading_steps import steps
from tests.support.cases import for_each

TOOLS: dict[str, dict[str, JsonValue]] = {
    "run_shell": {"type": "object", "properties": {"command": {"type": "string"}}}
}
SHORT = 1500
MOST = 2.6
"""Times the steps for twice the text: 2 is linear, 4 is square."""
FEW = 4000
"""Steps below which a ratio says nothing."""


def _whole(text: str) -> None:
    read_calls(text, TOOLS)


def _by_characters(text: str) -> None:
    reader = CallReader(TOOLS)
    for char in text:
        reader.feed(char)
    reader.close()


@pytest.mark.some(2)
@pytest.mark.parametrize(("text", "calls"), STRESS.values(), ids=STRESS)
def test_hostile_texts_give_the_calls_that_are_in_them(text: Callable[[], str], calls: int) -> None:
    assert len(read_calls(text(), TOOLS).calls) == calls


LONG = pytest.mark.kill
"""Families of texts that stalled the reader before; the default tier runs these two."""


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("read", "after"),
    [
        pytest.param(_whole, " x", id="whole, then text"),
        pytest.param(_by_characters, "", id="by characters, to the end"),
        pytest.param(_whole, "", id="whole, to the end", marks=LONG),
        pytest.param(_by_characters, " x", id="by characters, then text", marks=LONG),
    ],
)
@pytest.mark.parametrize(("before", "unit"), UNITS)
def test_twice_the_text_takes_about_twice_the_steps(
    before: str, unit: str, after: str, read: Callable[[str], None]
) -> None:
    length = SHORT * (8 if read is _whole else 1)
    count = max(length // len(unit), 4)
    short, long = (steps(read, before + unit * times + after) for times in (count, 2 * count))
    assert long < max(MOST * short, FEW)


@for_each(("before", "unit"), UNITS)
def test_repetition_changes_nothing_in_pieces(before: str, unit: str) -> None:
    text = before + unit * max(600 // len(unit), 2)
    reader = CallReader(TOOLS)
    for char in text:
        reader.feed(char)
    assert reader.close()[1] == read_calls(text, TOOLS)


def test_a_call_may_not_be_endless() -> None:
    text = '<tool_call>{"name": "run_shell", "arguments": {"command": "' + "x" * 8_000_000 + '"}}</tool_call>'
    reading = read_calls(text, TOOLS)
    assert reading.calls == ()
    assert ["longer" in each.message for each in reading.diagnostics] == [True]


@for_each(
    "text",
    [
        "<tool_call>" + '{"name": "run_shell", "arguments": ' * 300 + "}" * 300,
        "<|tool_call>call:run_shell{" + "a:{" * 300 + "}" * 301 + "<tool_call|>",
        "<|tool_call>call:run_shell{a:" + "[" * 300 + "]" * 300 + "}<tool_call|>",
        ']<]minimax[>[<invoke name="run_shell">' + "]<]minimax[>[<a>" * 300 + "x" + "]<]minimax[>[</a>" * 300,
        "<|python_start|>[run_shell(command=" + "[" * 300 + "]" * 300 + ")]",
    ],
)
def test_depth_has_a_limit(text: str) -> None:
    assert read_calls(text, TOOLS).calls == ()


MARK = "]<]minimax[>["


@for_each(
    "text",
    [
        f'{MARK}<invoke name="run_shell">' + f"{MARK}<a>" * 5000 + f"{MARK}</a>" * 5000 + f"{MARK}</invoke>",
        "<|tool_call>call:run_shell{a:" + "{a:" * 5000 + "1" + "}" * 5001 + "<tool_call|>",
        "<|tool_call>call:run_shell{a:" + "[" * 5000 + "]" * 5000 + "}<tool_call|>",
    ],
    ids=["tags", "objects", "lists"],
)
def test_what_is_nested_leaves_room_on_the_stack_of_a_deep_caller(text: str) -> None:
    def deep(levels: int) -> Reading:
        return deep(levels - 1) if levels else read_calls(text, TOOLS)

    reading = deep(500)
    assert reading.calls == ()
    assert "nested more than" in reading.diagnostics[0].message

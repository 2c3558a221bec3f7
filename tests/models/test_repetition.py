"""Texts that are an endless repetition, and above all texts that are not."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.model import FailureKind
from chatops.models.assemble import LONGEST_CHUNK, LONGEST_UNIT, MAX_REPEATED, Repetition
from tests.models.asking import ask
from tests.support.cases import for_each
from tests.support.fake_openai import FakeOpenAI, Raw, delta, sse, stream


def watched(text: str, *, piece: int = 7) -> Repetition:
    """After the whole text, in pieces, unless it is stopped before."""
    again = Repetition()
    for start in range(0, len(text), piece):
        again.feed(text[start : start + piece])
        if again.is_endless:
            break
    return again


@for_each("unit", ["!", "the ", "\n", "no. ", "0, ", "█", "x" * (LONGEST_UNIT - 1) + "y"])
@for_each("piece", [1, 3, LONGEST_CHUNK])
@for_each("before", ["", "An answer that begins well, then "])
def test_one_short_unit_for_ever_is_noticed(unit: str, piece: int, before: str) -> None:
    again = watched(before + unit * (2 * MAX_REPEATED // len(unit)), piece=piece)
    assert again.is_endless
    assert again.shown.strip() in unit * 2
    assert len(again.unit) <= len(unit)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("the " * 10_000, id="ten-thousand-words"),
        pytest.param("-" * 40_000, id="a-very-long-line"),
        pytest.param("\n".join(f"{number}: 0" for number in range(20_000)), id="a-list-of-zeros"),
        pytest.param(json.dumps([[0] * 100] * 1_000), id="a-matrix-of-zeros"),
        pytest.param("\n".join(["| a | b |"] + ["|---|---|"] + ["| 0 | 0 | " + "0 | " * 20] * 3_000), id="a-table"),
        pytest.param(base64.b64encode(bytes(30_000)).decode(), id="nothing-in-base64"),
        pytest.param("\n".join(f"{at:08x}  " + "00 " * 16 for at in range(0, 65_536, 16)), id="a-dump-of-nothing"),
        pytest.param("\n".join(["0" * 60] * 5_000), id="longer-than-a-unit"),
        pytest.param(("the " * 12_000 + "end. ") * 5, id="with-an-end-now-and-then"),
    ],
)
def test_repetition_that_may_be_wanted_is_left_alone(text: str) -> None:
    for piece in (1, 13, LONGEST_CHUNK):
        assert not watched(text, piece=piece).is_endless


def test_what_a_server_had_ready_is_no_model_that_goes_round_in_circles() -> None:
    assert not watched("the " * 1_000_000, piece=LONGEST_CHUNK + 1).is_endless


@for_each(
    ("text", "left"),
    [
        ("Well. " + "the " * 900, "Well. the the "),
        ("Well. " + "the " * 900 + "th", "Well. the the "),
        ("the " * 900, "the the the "),
        ("Well.", "Well."),
        ("", ""),
    ],
)
def test_only_the_beginning_of_a_repetition_is_kept(text: str, left: str) -> None:
    again = watched("the " * MAX_REPEATED)
    assert again.is_endless
    assert again.cut_out_of(text, keep=8).startswith(left)
    assert len(again.cut_out_of(text, keep=8)) <= len(left) + 12


@given(
    before=st.text(max_size=300),
    unit=st.text(min_size=1, max_size=LONGEST_UNIT),
    sizes=st.lists(st.integers(1, LONGEST_CHUNK), min_size=1, max_size=40),
)
def test_what_is_counted_is_at_the_end_of_the_text(before: str, unit: str, sizes: list[int]) -> None:
    text = before + unit * (sum(sizes) // len(unit) + 1)
    again, at = Repetition(), 0
    for size in sizes:
        again.feed(text[at : at + size])
        at = min(len(text), at + size)
        if again.unit:
            end = text[:at][-again.length :]
            assert len(end) == again.length
            assert (again.unit * (again.length // len(again.unit) + 2)).endswith(end)
            assert len(again.unit) <= LONGEST_UNIT


async def test_an_endless_repetition_is_stopped_and_its_beginning_kept() -> None:
    endless = (sse(delta("Well, "), done=False), *[sse(*[delta("the ")] * 500, done=False)] * 400)
    async with FakeOpenAI([Raw(steps=endless)]) as server:
        events = await ask(server)
        assert await server.requests[0].left()
    assert events.failure.kind is FailureKind.OUT_OF_TOKENS
    assert "wrote 'the' over and over" in events.failure.message
    assert events.failure.partial_text.startswith("Well, the the the")
    assert len(events.failure.partial_text) < 1_500


async def test_a_thought_that_goes_round_in_circles_is_stopped() -> None:
    endless = [sse(*[delta(reasoning_content="wait, ")] * 500, done=False)] * 40
    async with FakeOpenAI([Raw(steps=tuple(endless))]) as server:
        events = await ask(server)
    assert "wrote 'wait,' over and over" in events.failure.message
    assert len(events.failure.partial_reasoning) < 1_500


async def test_a_finished_reply_is_kept_whole_even_if_it_repeats() -> None:
    text = "ha" * MAX_REPEATED
    async with FakeOpenAI([stream(delta(text), delta(finish="stop"))]) as server:
        assert (await ask(server)).reply.text == text

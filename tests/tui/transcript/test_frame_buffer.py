"""Events reach the screen in batches, and no timer runs while none arrive."""

import asyncio

from chatops.domain.events import Event, Notice, Published, TextDelta
from chatops.domain.ids import RoundId
from chatops.tui.transcript.frame_buffer import FrameBuffer


def delta(text: str) -> Published:
    return published(TextDelta(id="t", parent_id=RoundId("r"), text=text))


def published(event: Event) -> Published:
    return Published(at=0.0, event=event)


async def test_deltas_wait_for_the_frame_and_keep_their_order() -> None:
    batches: list[list[Published]] = []
    buffer = FrameBuffer(batches.append, seconds=3_600)
    pieces = [delta(str(number)) for number in range(100)]
    for piece in pieces:
        buffer(piece)
    buffer.flush()
    assert batches == [pieces]
    for piece in pieces:
        buffer(piece)
    await asyncio.sleep(0)
    assert batches == [pieces]
    buffer.flush()
    assert batches == [pieces, pieces]


async def test_the_last_delta_of_a_stalled_stream_is_shown() -> None:
    shown = asyncio.Event()
    batches: list[list[Published]] = []

    def take(batch: list[Published]) -> None:
        batches.append(batch)
        shown.set()

    buffer = FrameBuffer(take, seconds=0.001)
    for text in ("a", "b"):
        shown.clear()
        buffer(delta(text))
        await asyncio.wait_for(shown.wait(), 10)
    assert [piece for batch in batches for piece in batch] == [delta("a"), delta("b")]


async def test_other_events_do_not_wait_and_send_the_deltas_along() -> None:
    arrived = asyncio.Event()
    batches: list[list[Published]] = []

    def take(batch: list[Published]) -> None:
        batches.append(batch)
        arrived.set()

    buffer = FrameBuffer(take, seconds=3_600)
    notice = published(Notice(id="n", parent_id="", text="x"))
    buffer(notice)
    await asyncio.wait_for(arrived.wait(), 10)
    arrived.clear()
    buffer(delta("a"))
    buffer(notice)
    await asyncio.wait_for(arrived.wait(), 10)
    assert batches == [[notice], [delta("a"), notice]]
    assert not buffer._waiting
    arrived.clear()
    buffer(delta("b"))
    buffer(end_of_text := delta(""))
    await asyncio.wait_for(arrived.wait(), 10)
    assert batches[2:] == [[delta("b"), end_of_text]]


async def test_dropped_events_are_not_shown() -> None:
    batches: list[list[Published]] = []
    buffer = FrameBuffer(batches.append, seconds=3_600)
    buffer(delta("a"))
    buffer.drop()
    buffer.flush()
    assert batches == []


async def test_events_are_kept_while_held_and_passed_on_after_it_in_their_order() -> None:
    batches: list[list[Published]] = []
    buffer = FrameBuffer(batches.append, seconds=3_600)
    sent = [published(Notice(id="n", parent_id="", text="x")), delta("a")]
    with buffer.hold():
        for one in sent:
            buffer(one)
        await asyncio.sleep(0)
        assert batches == []
    assert batches == [sent]

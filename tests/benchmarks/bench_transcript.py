"""Cost of the transcript as ratios, on this machine in one run: ``pytest -s tests/benchmarks/bench_transcript.py``.

Not collected by default. Each ratio compares two amounts of the same work, so a slow machine does not fail it.
"""

import time
from collections.abc import Callable

from textual.app import App, ComposeResult

from chatops.domain.sanitize import sanitize
from chatops.tui.theme import PLAIN
from chatops.tui.transcript.answer import AnswerDrawing, warm_up
from chatops.tui.transcript.blocks import AnswerBlock, Extend, Op, Put, UserBlock
from chatops.tui.transcript.transcript import Transcript
from tests.support.transcript_blocks import MARKDOWN

TOKENS = [token + " " for token in (MARKDOWN * 40).split(" ")]


class Host(App[None]):
    """Nothing but a transcript."""

    def compose(self) -> ComposeResult:
        yield Transcript()


def seconds(work: Callable[[], object], *, repeat: int = 3) -> float:
    best = float("inf")
    for _ in range(repeat):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def draw(text: str, *, frames: int) -> None:
    drawing = AnswerDrawing(width=100, theme=PLAIN)
    step = max(1, len(text) // frames)
    for start in range(0, len(text), step):
        drawing.extend(text[start : start + step])
        drawing.finished()
        drawing.open_strips()


def test_drawing_an_answer_four_times_as_long_costs_about_four_times_as_much() -> None:
    warm_up()
    short = seconds(lambda: draw(MARKDOWN * 10, frames=100))
    long = seconds(lambda: draw(MARKDOWN * 40, frames=400))
    print(f"\nstreamed answer: {short * 1e3:.0f} ms, four times as long: {long * 1e3:.0f} ms, ratio {long / short:.1f}")
    assert long < short * 6


def test_a_frame_of_a_long_code_block_costs_no_more_than_of_a_short_one() -> None:
    warm_up()
    line = "value = compute(first, second)  # a comment\n"
    times = []
    for count in (200, 4_000):
        drawing = AnswerDrawing(width=100, theme=PLAIN)
        drawing.extend("```python\n" + line * count)
        drawing.open_strips()
        times.append(seconds(drawing.open_strips, repeat=7))
    print(f"\nopen code block: {times[0] * 1e3:.1f} ms at 200 lines, {times[1] * 1e3:.1f} ms at 4000 lines")
    assert times[1] < times[0] * 2


def test_sanitising_hostile_text_is_linear() -> None:
    piece = "\x1b[31mred\u202e\u200b plain words ü\r\n" * 2_000
    one, eight = seconds(lambda: sanitize(piece)), seconds(lambda: sanitize(piece * 8))
    print(f"\nsanitise: {one / len(piece) * 1e9:.0f} ms/MB, eight times as much: ratio {eight / one:.1f}")
    assert eight < one * 12


async def stream(transcript: Transcript, pilot_pause: Callable[[], object], *, key: str) -> float:
    begin = time.process_time()
    ops: list[Op] = [Put(block=AnswerBlock(id=key, text="begin ", open=True))]
    transcript.apply(ops)
    for start in range(0, 2_000, 25):
        transcript.apply([Extend(id=key, text="".join(TOKENS[start : start + 25]))])
        await pilot_pause()  # type: ignore[misc]
    transcript.apply([Put(block=AnswerBlock(id=key, text="begin " + "".join(TOKENS[:2_000])))])
    return time.process_time() - begin


async def test_streaming_in_a_long_conversation_costs_about_as_much_as_in_an_empty_one() -> None:
    warm_up()
    app = Host()
    async with app.run_test(size=(120, 40)) as pilot:
        transcript = app.query_one(Transcript)
        empty = min([await stream(transcript, pilot.pause, key=f"e{number}") for number in range(2)])
        history = [UserBlock(id=f"u{number}", text="hello " * 30) for number in range(2_000)]
        answers = [AnswerBlock(id=f"a{number}", text=MARKDOWN) for number in range(300)]
        transcript.set_blocks([*history, *answers])
        while transcript._slicing:
            await pilot.pause(0.005)
        long = min([await stream(transcript, pilot.pause, key=f"l{number}") for number in range(2)])
    print(f"\n80 frames: {empty * 1e3:.0f} ms in an empty conversation, {long * 1e3:.0f} ms after 2300 blocks")
    assert long < empty * 1.5

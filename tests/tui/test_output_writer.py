"""Writing to a terminal that is slow, stalled or gone. A pipe without a reader stands for it."""

import fcntl
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from chatops.tui.output_writer import MAX_BYTES, MAX_QUEUED, OutputWriter
from tests.support.waiting import PATIENCE

_SET_PIPE_SIZE = 1031


@dataclass
class Line:
    """A writer into a small pipe."""

    reading: int
    writer: OutputWriter
    caught_up: threading.Event = field(default_factory=threading.Event)
    lost: threading.Event = field(default_factory=threading.Event)

    def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size and (data := os.read(self.reading, size - len(found))):
            found += data
        return found


@pytest.fixture
def line() -> Iterator[Line]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, _SET_PIPE_SIZE, 4096)
    caught_up, lost = threading.Event(), threading.Event()
    writer = OutputWriter(writing, encode=str.encode, on_caught_up=caught_up.set, on_lost=lost.set)
    made = Line(reading, writer, caught_up, lost)
    yield made
    if made.reading >= 0:
        os.close(made.reading)
    writer.close("", timeout_s=PATIENCE)
    os.close(writing)


def test_all_output_arrives_in_order(line: Line) -> None:
    for number in range(1000):
        line.writer.write(f"{number:04};")
    assert line.read(5000) == "".join(f"{number:04};" for number in range(1000)).encode()


def test_writing_never_waits_for_a_stalled_reader_and_the_queue_is_bounded(line: Line) -> None:
    frame = "x" * 10_000
    written = 0
    while not line.writer.skips_frame():
        line.writer.write(frame)
        written += len(frame)
    assert written <= MAX_QUEUED + 2 * len(frame) + 4096
    for _ in range(3 * MAX_BYTES // len(frame)):
        line.writer.write(frame)
    assert line.writer._size <= MAX_BYTES + len(frame)


def test_caught_up_is_called_after_frames_were_left_out(line: Line) -> None:
    for _ in range(2):
        line.writer.write("x" * MAX_QUEUED)
    assert not line.writer.skips_frame()
    line.writer.write("x")
    assert line.writer.skips_frame()
    assert not line.caught_up.is_set()
    line.read(2 * MAX_QUEUED + 1)
    assert line.caught_up.wait(PATIENCE)
    assert not line.writer.skips_frame()


def test_redrawing_a_large_screen_leaves_out_no_frame(line: Line) -> None:
    """A frame left out asks for the whole screen again: if that one caused it, drawing would never end."""
    for _ in range(3):
        line.writer.write("x" * (5 * MAX_QUEUED))
        assert not line.writer.skips_frame()
        line.writer.write("y" * (MAX_QUEUED // 2))
        assert not line.writer.skips_frame()
        line.read(5 * MAX_QUEUED + MAX_QUEUED // 2)
    line.writer.write("x" * MAX_BYTES)
    assert line.writer.skips_frame(), "nothing more would be taken"


def test_closing_drops_queued_frames_but_not_the_last_text(line: Line) -> None:
    line.writer.write("begun" * 2000)
    for _ in range(10):
        line.writer.write("x" * MAX_QUEUED)
    assert not line.writer.close("LAST", timeout_s=0.0), "the reader still stands still"
    os.set_blocking(line.reading, True)
    found = b""
    while not found.endswith(b"LAST"):
        found += os.read(line.reading, 65536)
    assert len(found) <= len("begun" * 2000) + MAX_QUEUED + len("LAST")


def test_a_lost_terminal_is_reported_once_and_the_queue_is_dropped(line: Line) -> None:
    os.close(line.reading)
    line.reading = -1
    line.writer.write("x")
    assert line.lost.wait(PATIENCE)
    line.writer.write("y" * MAX_BYTES)
    assert line.writer._size == 0
    assert line.writer.close("z", timeout_s=PATIENCE)

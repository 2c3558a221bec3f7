"""Passes a session's events to the screen in batches, so that streamed text is drawn once a frame."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chatops.domain.events import CallProgressed, CallStreamed, Event, Published, ReasoningDelta, TextDelta, ToolOutput

_FRAME_S = 0.05
"""Seconds between two frames. With less, drawing costs more CPU and bytes, and no one reads faster."""


def is_delta(event: Event) -> bool:
    """Return True if an event only continues a text or a call. There may be hundreds of them per second."""
    return isinstance(event, TextDelta | ReasoningDelta | CallStreamed | ToolOutput | CallProgressed)


class FrameBuffer:
    """Passes events on in batches. Deltas wait for the next frame; the end of a text and any other event do not.

    A timer runs only while something waits, so an idle session costs nothing. Call it on the event loop.
    """

    def __init__(self, pass_on: Callable[[list[Published]], object], *, seconds: float = _FRAME_S) -> None:
        """Create it. `pass_on` gets each batch; `seconds` are between two frames."""
        self._pass_on = pass_on
        self._seconds = seconds
        self._waiting: list[Published] = []
        self._timer: asyncio.TimerHandle | None = None
        self._next_frame = 0.0
        """The earliest time of the next frame, as the event loop counts."""
        self._holds = 0
        """How many `hold` blocks run."""

    def __call__(self, published: Published) -> None:
        """Add an event. A listener for `Session.subscribe`."""
        self._waiting.append(published)
        if self._holds:
            return
        event = published.event
        # An empty delta is the end of a text.
        is_end = isinstance(event, TextDelta) and not event.text
        may_wait = is_delta(event) and not is_end
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            is_due = self._timer.when() <= loop.time()
            if may_wait or is_due:
                return
        self._stop_timer()
        self._timer = loop.call_at(self._next_frame if may_wait else loop.time(), self.flush)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep all events while the block runs, and pass them on after it."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                self.flush()

    def flush(self) -> None:
        """Pass waiting events on now."""
        self._stop_timer()
        if self._waiting:
            batch, self._waiting = self._waiting, []
            if any(is_delta(published.event) for published in batch):
                # The first delta of an answer does not wait for a frame that only drew the question.
                self._next_frame = asyncio.get_running_loop().time() + self._seconds
            self._pass_on(batch)

    def drop(self) -> None:
        """Drop waiting events, because a snapshot taken now contains them."""
        self._stop_timer()
        self._waiting = []

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

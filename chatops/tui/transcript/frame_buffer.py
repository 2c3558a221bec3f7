"""Batches events, so that the screen is drawn a few times a second however fast a model writes."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chatops.domain.events import Event, Published, ReasoningDelta, TextDelta, ToolOutput

_FRAME_SECONDS = 0.05
"""Twenty frames a second. More would cost CPU and bytes, and no one reads faster."""


def is_delta(event: Event) -> bool:
    """Return True if an event only continues a text. There may be hundreds of them per second."""
    return isinstance(event, TextDelta | ReasoningDelta | ToolOutput)


class FrameBuffer:
    """Passes events on in batches. Deltas wait for the next frame; the end of a text and any other event do not.

    A timer runs only while something waits, so an idle session costs nothing. Call it on the event loop.
    """

    def __init__(self, flush: Callable[[list[Published]], None], *, seconds: float = _FRAME_SECONDS) -> None:
        self._flush = flush
        self._seconds = seconds
        self._waiting: list[Published] = []
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0
        """The earliest time of the next frame."""
        self._at_once = False
        self._holds = 0

    def __call__(self, published: Published) -> None:
        """Add an event. A listener for `Session.subscribe`."""
        self._waiting.append(published)
        if self._holds:
            return
        event = published.event
        patient = is_delta(event) and not (isinstance(event, TextDelta) and not event.text)
        if self._timer is not None and (patient or self._at_once):
            return
        self._stop_timer()
        loop = asyncio.get_running_loop()
        due = max(0.0, self._next - loop.time()) if patient else 0.0
        self._at_once = not due
        self._timer = loop.call_later(due, self.flush)

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

    @property
    def waits(self) -> bool:
        """True while events wait for a frame."""
        return bool(self._waiting)

    def flush(self) -> None:
        """Pass waiting events on now."""
        self._stop_timer()
        if self._waiting:
            batch, self._waiting = self._waiting, []
            if any(is_delta(published.event) for published in batch):
                # The first delta of an answer does not wait for a frame that only drew the question.
                self._next = asyncio.get_running_loop().time() + self._seconds
            self._flush(batch)

    def drop(self) -> None:
        """Drop waiting events, because a snapshot taken now contains them."""
        self._stop_timer()
        self._waiting = []

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

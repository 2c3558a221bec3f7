"""One timer for everything on a screen that moves: signs, and the times of what runs.

The timer runs only while something moves on a screen that is seen, also behind a dialog. A screen on which nothing
moves, or whose turn waits for a dialog, writes no byte to the terminal.
"""

from collections.abc import Callable
from typing import Any

from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

FRAMES_A_SECOND = 8
"""Frames of what moves. More would cost bytes on slow lines and CPU; with fewer, signs jump."""


class Moving(Widget):
    """Mixin for widgets in which something may move."""

    @property
    def moves(self) -> bool:
        """True while something moves in it."""
        raise NotImplementedError

    def tick(self, *, second: bool) -> None:
        """Draw what has moved. `second` is True once a second, for times."""
        raise NotImplementedError


class Ticker:
    """Ticks the moving widgets among the children of a screen. `clock` returns monotonic seconds."""

    def __init__(self, screen: Screen[Any], *, clock: Callable[[], float]) -> None:
        self._screen = screen
        self._clock = clock
        self._last_second = 0
        """The whole second of the last tick."""
        self._paused = False
        """See `update`."""
        self._timer: Timer | None = None
        """None while nothing moves."""

    @property
    def ticks(self) -> bool:
        """True while the timer runs."""
        return self._timer is not None

    @property
    def _moving(self) -> list[Moving]:
        """The widgets to tick; none while the screen is paused or covered."""
        if self._paused or not self._screen.is_current:
            return []
        return [child for child in self._screen.children if isinstance(child, Moving) and child.moves]

    def update(self, *, paused: bool) -> None:
        """Start the timer if something moves, unless the screen is `paused`. Call it when either may have changed."""
        self._paused = paused
        if self._timer is None and self._moving:
            self._timer = self._screen.set_interval(1 / FRAMES_A_SECOND, self._tick)

    def _tick(self) -> None:
        moving, now = self._moving, int(self._clock())
        if not moving and self._timer is not None:
            self._timer.stop()
            self._timer = None
        is_new_second, self._last_second = now != self._last_second, now
        for widget in moving:
            widget.tick(second=is_new_second)


def frame_at(now: float, frames: str) -> str:
    """Return the moving sign at a time; empty if there are no frames."""
    return frames[int(now * FRAMES_A_SECOND) % len(frames)] if frames else ""

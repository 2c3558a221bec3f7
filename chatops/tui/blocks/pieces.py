"""The finished pieces of one answer as lines. How many there are is kept of all, the lines of those looked at last."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import overload

from textual.strip import Strip

MOST_LINES = 3_000
"""Drawn lines of one answer kept at most, roughly 5 MB; a single piece that is longer is kept whole."""


class Pieces(Sequence[Strip]):
    """`draw(number, gap)` gives the lines of a piece, as many each time; `gap`: there are lines before it."""

    def __init__(self, draw: Callable[[int, bool], list[Strip]]) -> None:
        self._draw = draw
        self._starts = [0]
        self._near: OrderedDict[int, list[Strip]] = OrderedDict()
        """Drawn pieces by number, the one looked at last at the end."""
        self.kept = 0
        """Lines that are drawn now."""

    @property
    def added(self) -> int:
        """How many pieces there are."""
        return len(self._starts) - 1

    def add(self) -> None:
        """Draw the next piece and put it at the end."""
        number = self.added
        self._starts.append(self._starts[-1] + len(self._drawn(number)))

    def give_up(self) -> None:
        """Keep no line: nobody looks at them."""
        self._near.clear()
        self.kept = 0

    def __len__(self) -> int:
        """Lines of all pieces."""
        return self._starts[-1]

    @overload
    def __getitem__(self, at: int) -> Strip: ...
    @overload
    def __getitem__(self, at: slice) -> list[Strip]: ...
    def __getitem__(self, at: int | slice) -> Strip | list[Strip]:
        """A line, or some, drawn again if they are not kept."""
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        number = bisect_right(self._starts, at) - 1
        lines, place = self._drawn(number), at - self._starts[number]
        # What draws Markdown has just been loaded, and all is about to be drawn anew: it may have fewer lines by now.
        return lines[place] if place < len(lines) else Strip([])

    def _drawn(self, number: int) -> list[Strip]:
        lines = self._near.get(number)
        if lines is not None:
            self._near.move_to_end(number)
            return lines
        lines = self._near[number] = self._draw(number, self._starts[number] > 0)
        self.kept += len(lines)
        while self.kept > MOST_LINES and len(self._near) > 1:
            _, far = self._near.popitem(last=False)
            self.kept -= len(far)
        return lines

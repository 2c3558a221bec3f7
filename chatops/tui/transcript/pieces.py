"""The finished pieces of one answer as lines.

Line counts are kept for all pieces, lines only for those looked at last.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import overload

from textual.strip import Strip

MOST_LINES = 3_000
"""Maximum drawn lines kept of one answer, roughly 5 MB. A single longer piece is kept in full."""


class Pieces(Sequence[Strip]):
    """The lines of all pieces, as a sequence.

    `draw(number, gap)` returns the lines of a piece, the same number each time. `gap` is True if lines precede it.
    """

    def __init__(self, draw: Callable[[int, bool], list[Strip]]) -> None:
        self._draw = draw
        self._starts = [0]
        self._near: OrderedDict[int, list[Strip]] = OrderedDict()
        """Drawn pieces by number, the one looked at last at the end."""
        self.kept = 0
        """Number of lines held in memory."""

    @property
    def added(self) -> int:
        """Number of pieces."""
        return len(self._starts) - 1

    def add(self) -> None:
        """Draw the next piece and append it."""
        number = self.added
        self._starts.append(self._starts[-1] + len(self._drawn(number)))

    def give_up(self) -> None:
        """Drop all lines. They are drawn again when needed."""
        self._near.clear()
        self.kept = 0

    def __len__(self) -> int:
        """Return the number of lines of all pieces."""
        return self._starts[-1]

    @overload
    def __getitem__(self, at: int) -> Strip: ...
    @overload
    def __getitem__(self, at: slice) -> list[Strip]: ...
    def __getitem__(self, at: int | slice) -> Strip | list[Strip]:
        """Return a line or a slice of lines, drawn again if they are not kept.

        Raises IndexError if there is no such line.
        """
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        number = bisect_right(self._starts, at) - 1
        lines, place = self._drawn(number), at - self._starts[number]
        # The Markdown renderer has just been imported and everything is about to be redrawn: the piece may have fewer
        # lines.
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

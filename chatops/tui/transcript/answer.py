"""Draws an answer while it grows.

Finished pieces are drawn when looked at. The open piece is drawn again at each change, only its end if it is long.
"""

from rich.text import Text
from textual.strip import Strip

from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.late import draw_markdown
from chatops.tui.transcript.lines import GUTTER, prefixed, strips_of
from chatops.tui.transcript.pieces import Pieces
from chatops.tui.transcript.segments import Segmenter

_TAIL_LINES = 60
_TAIL_CHARS = 6_000
"""Only the end of an open piece longer than this is drawn until it is finished."""


class AnswerDrawing:
    """The strips of one answer at one width. The finished result does not depend on how the text arrived."""

    def __init__(self, *, width: int, theme: BlockTheme) -> None:
        self._width = width
        self._theme = theme
        self._segmenter = Segmenter()
        self._incomplete = False
        self._finished = Pieces(self._piece)

    def extend(self, text: str) -> None:
        """Add text, without drawing it yet."""
        self._segmenter.feed(text)

    def close(self, *, incomplete: bool = False) -> None:
        """Mark the answer as complete. `incomplete`: show that it was cut off."""
        self._segmenter.close()
        self._incomplete = incomplete

    def strips(self) -> list[Strip]:
        """Return all current lines."""
        return [*self.finished(), *self.open_strips()]

    def finished(self) -> Pieces:
        """Return the lines that will not change any more. It is the same object each time and only grows."""
        while self._finished.added < len(self._segmenter.closed) + self._incomplete:
            self._finished.add()
        return self._finished

    def _piece(self, number: int, gap: bool) -> list[Strip]:
        if number < len(self._segmenter.closed):
            segment = self._segmenter.closed[number]
            return self._draw(segment.source, gap=segment.gap and gap)
        mark = Text(f"  [cut off here{self._theme.symbols.ellipsis}]", self._theme.warn, end="")
        return self._strips([mark])

    def open_strips(self) -> list[Strip]:
        """Return the lines after `finished`."""
        source = self._segmenter.tail
        if not source.strip():
            return []
        return self._draw(self._end_of(source), gap=self._segmenter.tail_gap and bool(self._finished))

    def _end_of(self, source: str) -> str:
        """Return the last lines of a long open piece. A code block keeps its opening line."""
        if len(source) > _TAIL_CHARS or source.count("\n") > _TAIL_LINES:
            lines = source[-_TAIL_CHARS:].splitlines(keepends=True)[-_TAIL_LINES:]
            if self._segmenter.tail_is_code:
                lines.insert(0, source[: source.index("\n") + 1])
            return "".join(lines)
        return source

    def _draw(self, source: str, *, gap: bool) -> list[Strip]:
        lines = draw_markdown(source, width=max(1, self._width - GUTTER), theme=self._theme)
        indent = Text(" " * GUTTER, end="")
        drawn = prefixed(lines, first=indent, rest=indent)
        return self._strips([Text(end=""), *drawn] if gap else drawn)

    def _strips(self, lines: list[Text]) -> list[Strip]:
        return strips_of(lines, width=self._width, base=self._theme.base)

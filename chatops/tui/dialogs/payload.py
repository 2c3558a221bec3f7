"""A scrollable view of what would run, drawn line by line: a megabyte is as cheap as one line.

The view knows if the end of the payload has been on screen. An approval requires that.
"""

import textwrap
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar, Literal

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from chatops.domain.charset import exact
from chatops.domain.sanitize import reveal

LABEL_WIDTH = 13
GUTTER = 2

RowTone = Literal["plain", "heading", "code", "add", "remove", "hunk", "caution", "quiet"]
_TONES: tuple[RowTone, ...] = ("plain", "heading", "code", "add", "remove", "hunk", "caution", "quiet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One logical line. A `label` is put in a column of its own. `exact` rows wrap at cells, not words."""

    text: str = ""
    tone: RowTone = "plain"
    label: str = ""
    exact: bool = False
    risky: tuple[tuple[int, int], ...] = ()
    """Parts of the text of an exact row that are marked, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The rows of a call. The first `payload` rows must have been on screen before an approval."""

    rows: tuple[Row, ...]
    payload: int


def line(text: str) -> str:
    """Return untrusted text on one line with nothing hidden."""
    return reveal(text, newlines=False)


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the screen: the prefix, the text, its tone."""

    left: str
    text: str
    tone: RowTone
    risky: tuple[tuple[int, int], ...] = ()


def wrapped(row: Row, *, width: int) -> list[_Line]:
    """Return the screen lines of a row. Exact rows break at the last cell; continuation lines start with ``» ``."""
    if row.tone == "plain" and row.text:
        return _labelled(row, width=width)
    if row.exact:
        parts = _chopped(row.text, max(1, width - GUTTER))
        starts = accumulate((len(part) for part in parts), initial=0)
        return [
            _Line("» " if index else "  ", part, row.tone, _shifted(row.risky, start, len(part)))
            for index, (start, part) in enumerate(zip(starts, parts, strict=False))
        ]
    return [_Line("", part, row.tone) for part in _by_words(row.text, max(1, width))]


def _shifted(spans: tuple[tuple[int, int], ...], start: int, length: int) -> tuple[tuple[int, int], ...]:
    """Return the parts of `spans` that lie in the `length` characters from `start` on, counted from there."""
    shifted = ((max(0, first - start), min(length, last - start)) for first, last in spans)
    return tuple((first, last) for first, last in shifted if first < last)


def _labelled(row: Row, *, width: int) -> list[_Line]:
    """Return a value beside its label. An exact value is broken at cells, so that two spaces in a path stay two."""
    broken = _chopped if row.exact else _by_words
    if width < LABEL_WIDTH * 3:
        text = f"{row.label}: {row.text}" if row.label else row.text
        return [_Line("", part, row.tone) for part in broken(text, max(1, width))]
    parts = broken(row.text, width - LABEL_WIDTH)
    return [_Line(("" if index else row.label).ljust(LABEL_WIDTH), part, row.tone) for index, part in enumerate(parts)]


def _by_words(text: str, width: int) -> list[str]:
    words = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [part for chunk in words for part in _chopped(chunk, width)]


def _chopped(text: str, width: int) -> list[str]:
    if not text:
        return [""]
    if text.isascii():
        return [text[at : at + width] for at in range(0, len(text), width)]
    return chop_cells(text, width)


class PayloadView(ScrollView, can_focus=False):
    """Shows a `Description` and reports when its end comes on screen."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "payload--label",
        "payload--risky",
        *(f"payload--{tone}" for tone in _TONES),
    }

    end_seen: reactive[bool] = reactive(False, init=False)
    """True if the last line of the payload is or was on screen since `show`."""

    class Wrapped(Message):
        """Posted when the number of lines has changed with the width."""

    class EndSeen(Message):
        """Posted when the end of the payload is on screen; `key` is the argument of `show`."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._description = Description(rows=(), payload=0)
        self._lines: list[_Line] = []
        self._payload_lines = 0
        self._wrapped_at = 0
        self._key = ""

    def show(self, description: Description, *, key: str, seen: bool) -> None:
        """Show another payload, named `key`, from its top. The same key keeps the scroll position."""
        same = key == self._key
        charset = getattr(self.app, "charset", "utf-8")
        rows = tuple(replace(row, text=exact(row.text, charset)) for row in description.rows)
        self._description = replace(description, rows=rows)
        self._key = key
        self._wrap()
        if not same or not seen:
            # Also for the same payload when it must be looked at again, as after an edit.
            self.end_seen = seen
        if not same:
            self.scroll_to(0, 0, animate=False, force=True)
        self.refresh()
        self.call_after_refresh(self._look)

    @property
    def lines_below(self) -> int:
        """Payload lines below the last visible one."""
        visible = self.scrollable_content_region.height
        return max(0, self._payload_lines - (self.scroll_offset.y + visible))

    @property
    def total_lines(self) -> int:
        """Lines at this width, including the model's words."""
        return len(self._lines)

    def show_row(self, index: int) -> None:
        """Scroll so that a row of the description is at the top."""
        width = max(1, self.scrollable_content_region.width)
        y = sum(len(wrapped(row, width=width)) for row in self._description.rows[:index])
        self.scroll_to(y=y, animate=False, force=True)

    def page(self, by: int) -> None:
        """Scroll by one page without animation: a line counted as seen must have been drawn."""
        page = max(1, self.scrollable_content_region.height)
        self.scroll_to(y=self.scroll_offset.y + by * page, animate=False, force=True)

    def on_resize(self, event: events.Resize) -> None:
        """Wrap again for a new width."""
        if event.size.width != self._wrapped_at:
            self._wrap()
            self.post_message(self.Wrapped())
        self.call_after_refresh(self._look)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Check if scrolling has brought the end on screen."""
        super().watch_scroll_y(old_value, new_value)
        self.call_after_refresh(self._look)

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen."""
        index = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        base = self.rich_style
        if index >= len(self._lines):
            return Strip.blank(width, base)
        line = self._lines[index]
        style = self.get_component_rich_style(f"payload--{line.tone}")
        segments = [Segment(line.left, self.get_component_rich_style("payload--label"))]
        done = 0
        for first, last in line.risky:
            if last > done:
                first = max(first, done)
                risky = self.get_component_rich_style("payload--risky")
                segments += [Segment(line.text[done:first], style), Segment(line.text[first:last], risky)]
                done = last
        segments.append(Segment(line.text[done:], style))
        return Strip(segments, cell_len(line.left) + cell_len(line.text)).adjust_cell_length(width, base)

    def _wrap(self) -> None:
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        self._lines = []
        for index, row in enumerate(self._description.rows):
            if index == self._description.payload:
                self._payload_lines = len(self._lines)
            self._lines.extend(wrapped(row, width=width))
        if self._description.payload >= len(self._description.rows):
            self._payload_lines = len(self._lines)
        self._wrapped_at = width
        self.virtual_size = Size(width, len(self._lines))

    def _look(self) -> None:
        region: Region = self.scrollable_content_region
        if not self._key or self._wrapped_at != region.width or region.height < 1 or region.width < GUTTER + 8:
            return
        if self.screen.is_active and not self.end_seen and self.lines_below == 0:
            self.end_seen = True
            self.post_message(self.EndSeen(self._key))

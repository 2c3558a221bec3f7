"""A scrollable view of what would run, drawn line by line: a megabyte is as cheap as one line.

The view knows which lines have been on screen, and if the user has scrolled to the end. An approval requires that.
"""

import io
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, get_args

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from chatops.tui.dialogs.rows import (
    BETWEEN,
    GUTTER,
    Description,
    Line,
    Row,
    RowTone,
    Span,
    cells_of,
    shown_in,
    side_width,
    wrap_row,
)

_READABLE_WIDTH = GUTTER + 8
"""Cells below which lines on screen do not count as seen."""
_CONSOLE = Console(file=io.StringIO(), width=80, color_system=None, legacy_windows=False, _environ={})
"""Rich needs one to render. It never writes."""


class PayloadView(ScrollView, can_focus=False):
    """Shows a `Description` and reports when its end comes on screen."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "payload--label",
        "payload--risky",
        *(f"payload--{tone}" for tone in get_args(RowTone)),
    }

    end_seen: reactive[bool] = reactive(False, init=False)
    """True if the payload was on screen to its last line since `show`, without lines that a jump has skipped.

    Other lines may have been scrolled past, but each caution was on the screen itself.
    """

    class Wrapped(Message):
        """Posted when the number of lines has changed with the width."""

    @dataclass
    class EndSeen(Message):
        """Posted when the end of the payload is on screen; `key` is the argument of `show`."""

        key: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._description = Description(rows=(), payload=0)
        self._lines: list[Line] = []
        self._starts = [0]
        """Index of the first line of each row, and the number of lines."""
        self._payload_lines = 0
        """Number of lines of the payload. Those of the details follow them."""
        self._cautions: list[int] = []
        """The lines of the payload that warn."""
        self._seen_lines = bytearray()
        """1 for each line of the payload that was on screen or scrolled past, 0 for the others."""
        self._last_top = 0
        """The first line on screen when `_seen_lines` was brought up to date."""
        self._jumped = False
        """True after a jump to a row, until `_note_seen_lines`: the lines between were not scrolled past."""
        self._wrapped_width = 0
        """The cells that the rows were wrapped for."""
        self.widest = 0
        """Cells of the longest row, as far as a dialog can be so wide."""
        self.key = ""
        """Names what is shown, see `show`."""
        self._drawn_spans: dict[int, Sequence[Span]] = {}
        """The spans of rows drawn since `_wrap`, by the identity of the row, which a line refers to."""

    def show(self, description: Description, *, key: str, seen: bool) -> None:
        """Show another payload, named `key`, from its top. The same key keeps the scroll position.

        `seen` is True if it was on the screen to its end before, so that it need not be read again.
        """
        is_same = key == self.key
        charset = getattr(self.app, "charset", "utf-8")
        rows = description.rows
        if not is_same or description.payload != self._description.payload or (self.end_seen and not seen):
            self._seen_lines, self._cautions, self._jumped = bytearray(), [], True
        if charset != "utf-8":
            rows = tuple(shown_in(row, charset) for row in rows)
        self._description = replace(description, rows=rows)
        self.widest = max((cells_of(row) for row in rows), default=0)
        self.key = key
        self._wrap()
        if not is_same or not seen:
            # Also for the same payload when it must be looked at again, as after an edit.
            self.end_seen = seen
        if not is_same:
            self.scroll_to(0, 0, animate=False, force=True, immediate=True)
        self.refresh()
        self.call_after_refresh(self._note_seen_lines)

    @property
    def continues_below(self) -> bool:
        """True if there are lines below the last visible one."""
        return self.max_scroll_y > self.scroll_offset.y

    @property
    def lines_below(self) -> int:
        """Payload lines below the last visible one."""
        visible = self.scrollable_content_region.height
        return max(0, self._payload_lines - (self.scroll_offset.y + visible))

    @property
    def lines_left(self) -> int:
        """Payload lines that an approval still waits for."""
        return self.lines_below + self.lines_skipped

    @property
    def lines_skipped(self) -> int:
        """Payload lines above the first visible one that were not on screen: cautions, and those a jump has skipped."""
        return self._seen_lines[: self.scroll_offset.y].count(0)

    def read_on(self) -> None:
        """Scroll by one page, or back to the first line that was skipped."""
        if self.lines_skipped:
            self._jump(self._seen_lines.find(0))
        else:
            self.page(1)

    def look(self) -> None:
        """Take note of the lines on screen once they are drawn: nothing is counted below another screen."""
        self.call_after_refresh(self._note_seen_lines)

    @property
    def total_lines(self) -> int:
        """Lines at this width, those of the details included."""
        return len(self._lines)

    @property
    def top_row(self) -> int:
        """Index of the row of the description at the top."""
        return self._row_at(self.scroll_offset.y)

    def line_in_view(self, row: int) -> int | None:
        """Return the line of the view in which a row of the description begins; None if it is out of view."""
        line = self._starts[min(row, len(self._starts) - 1)] - self.scroll_offset.y
        return line if 0 <= line < self.scrollable_content_region.height else None

    def _row_at(self, line: int) -> int:
        return max(0, bisect_right(self._starts, line) - 1)

    def show_row(self, index: int) -> None:
        """Scroll so that a row of the description is at the top."""
        if index < len(self._starts):
            self._jump(self._starts[index])

    def keep_row(self, index: int) -> None:
        """Scroll only as far as needed to have a row of the description on screen; from the top for the first ones."""
        top, height = self.scroll_offset.y, self.scrollable_content_region.height
        if index + 1 >= len(self._starts):
            return
        begin, end = self._starts[index], self._starts[index + 1]
        if begin < top or end > top + height:
            self._jump(0 if end <= height else begin if begin < top else end - height)

    def _jump(self, y: int) -> None:
        self._jumped = True
        # At once: `_note_seen_lines` must not run between here and the move.
        self.scroll_to(y=y, animate=False, force=True, immediate=True)
        self.call_after_refresh(self._note_seen_lines)

    def page(self, by: int) -> None:
        """Scroll by one page without animation: a line counted as seen must have been drawn.

        The next page begins with a row, not within one, if that costs at most half of it.
        """
        top, page = self.scroll_offset.y, max(1, self.scrollable_content_region.height)
        y = top + by * page
        start = self._starts[self._row_at(y)]
        self.scroll_to(y=start if by > 0 and start - top > page // 2 else y, animate=False, force=True)

    def scroll_by_key(self, key: str) -> bool:
        """Scroll if the key scrolls. Return False if it does not."""
        match key:
            case "up" | "k":
                self.scroll_to(y=self.scroll_offset.y - 1, animate=False)
            case "down" | "j":
                self.scroll_to(y=self.scroll_offset.y + 1, animate=False)
            case "pageup":
                self.page(-1)
            case "pagedown" | "space":
                self.page(1)
            case "home" | "g":
                self.scroll_to(y=0, animate=False)
            case "end" | "G":
                self.scroll_to(y=self.max_scroll_y, animate=False)
            case _:
                return False
        return True

    def on_resize(self, event: events.Resize) -> None:
        """Wrap again for a new width."""
        if event.size.width != self._wrapped_width:
            self._wrap()
            self.post_message(self.Wrapped())
        self.call_after_refresh(self._note_seen_lines)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Check if scrolling has brought the end on screen."""
        super().watch_scroll_y(old_value, new_value)
        self.call_after_refresh(self._note_seen_lines)

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen."""
        index = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        base = self.rich_style
        if index >= len(self._lines):
            return Strip.blank(width, base)
        line = self._lines[index]
        if line.beside is None:
            return self._strip(line, width)
        between = Strip([Segment(BETWEEN, self.get_component_rich_style("payload--label"))], len(BETWEEN))
        half = side_width(width)
        sides = Strip.join([self._strip(line, half), between, self._strip(line.beside, half)])
        return sides.adjust_cell_length(width, base)

    def _strip(self, line: Line, width: int) -> Strip:
        """Return one side of a line, or all of it, filled up to `width`."""
        row, base = line.row, self.rich_style
        background = base + row.background if row.background is not None else base
        style = background + self.get_component_rich_style(f"payload--{row.tone}", partial=True)
        lead = row.lead_style or self.get_component_rich_style("payload--label", partial=True)
        text = Text(line.text, style, end="")
        for begin, end, span_style in self._spans(row):
            if begin < line.start + len(line.text) and end > line.start:
                # A style without any attribute is falsy, and no risk.
                if span_style is None:
                    span_style = self.get_component_rich_style("payload--risky", partial=True)
                text.stylize(span_style, max(0, begin - line.start), end - line.start)
        parts = text.render(_CONSOLE) if text.spans else [Segment(line.text, style)]
        segments = [Segment(line.left, background + lead), *parts]
        strip = Strip(segments, cell_len(line.left) + cell_len(line.text))
        return strip.adjust_cell_length(width, background)

    def _spans(self, row: Row) -> Sequence[Span]:
        spans = self._drawn_spans.get(id(row))
        if spans is None:
            spans = self._drawn_spans[id(row)] = row.spans()
        return spans

    def _count_rows_seen(self) -> int:
        """Return how many rows from the first on were on screen."""
        first_unseen = self._seen_lines.find(0)
        return self._row_at(len(self._seen_lines) if first_unseen < 0 else first_unseen)

    def _wrap(self) -> None:
        """Break the rows into lines. Those at the top that were on screen stay marked as shown."""
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        self._lines = []
        self._drawn_spans.clear()
        rows_seen = self._count_rows_seen()
        before, self._starts = self._starts, []
        for row in self._description.rows:
            self._starts.append(len(self._lines))
            self._lines.extend(wrap_row(row, width=width))
        self._starts.append(len(self._lines))
        self._payload_lines = self._starts[min(self._description.payload, len(self._starts) - 1)]
        payload = self._lines[: self._payload_lines]
        self._cautions = [at for at, line in enumerate(payload) if line.row.tone == "caution"]
        if self._starts != before or len(self._seen_lines) != self._payload_lines:
            self._seen_lines, self._jumped = bytearray(self._payload_lines), True
            self._mark_seen(0, self._starts[rows_seen])
        self._wrapped_width = width
        self.virtual_size = Size(width, len(self._lines))

    def _note_seen_lines(self) -> None:
        """Mark the lines that are on screen, and those that were scrolled past since the last time.

        A caution that was only scrolled past does not count as seen.
        """
        region: Region = self.scrollable_content_region
        if not self.key or self._wrapped_width != region.width or region.height < 1 or region.width < _READABLE_WIDTH:
            return
        top, height = self.scroll_offset.y, region.height
        if not self.screen.is_active or self.end_seen:
            return
        # A move to or from the details below the payload scrolls past nothing: its end was not on screen.
        jumped = self._jumped or max(top, self._last_top) >= self._payload_lines
        skipped = [at for at in self._cautions if not self._seen_lines[at] and not top <= at < top + height]
        highest, lowest = (top, top) if jumped else sorted((top, self._last_top))
        self._mark_seen(highest, lowest + height)
        for at in skipped:
            self._seen_lines[at] = 0
        self._last_top, self._jumped = top, False
        # Details may follow: what counts is the last line of the payload itself.
        if self._payload_lines > 0 and 0 not in self._seen_lines:
            self.end_seen = True
            self.post_message(self.EndSeen(self.key))

    def _mark_seen(self, begin: int, end: int) -> None:
        end = min(end, self._payload_lines)
        if begin < end:
            self._seen_lines[begin:end] = b"\1" * (end - begin)

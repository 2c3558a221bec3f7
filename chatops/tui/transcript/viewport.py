"""A scrolling view of drawn blocks, built on Textual's line API.

Theory of operation
-------------------
The transcript of a long session has thousands of blocks. One widget per block is slow, because every layout pass visits
all of them. `Viewport` is a single `ScrollView` instead: `render_line` returns one line (a `Strip`) at a time, and a
frame costs as much as what has changed. The blocks, their heights and their cached strips are in a `BlockLayout`.

Drawing. Three kinds of work are kept apart:

- `_draw_view` draws, at once, the blocks that will be in view: upwards from the end while the view follows it,
  otherwise downwards from the block at the top.
- `_draw_slice` draws the blocks up to `_HEIGHTS_AHEAD` heights of the view above and below it in the background, in
  slices of `_SLICE_S`. Between two slices the event loop gets `_PAUSE_S` to handle keys. The timer stops when these
  are drawn. Blocks further away are not drawn, so that a long session costs no more than a short one. Drawing all of
  them was tried: 10,000 messages kept a core busy for most of a minute.
- `BlockLayout.line` draws a block on demand if its lines were dropped to bound memory.

Heights. A block that is not drawn for the current width has an estimated height (or the one it had at the last width).
Drawing corrects it, and `BlockLayout` moves the blocks below. The scroll bar of a long session is therefore
approximate. Paging is exact: the page is drawn before the view moves to it.

Scroll position. The view is in one of two states:

- Following: it stays at the end while blocks arrive. This is the state at the start, and again whenever the user
  scrolls back to the end.
- Not following: the user has scrolled away. The line at the top of the view is remembered as (block id, lines of that
  block above the view) and restored after every change, so text does not move while it is read. Blocks that arrive
  are counted and reported with `Unseen`, and so is that there is more below the view.

`watch_scroll_y` is called for each new position and chooses the state: following if the position is the end. It leaves
the state alone while `_scrolls_itself` is True, because then the viewport itself, not the user, moves the position.

Invariants:

- Every change goes through `show_changes`: measure, draw what is in view, set the virtual size, set the scroll
  position, drop far lines, refresh the rows that have changed.
- Every strip is drawn for `BlockLayout.width` and the current theme. A change of width, theme, background or renderer
  discards all of them (`restyle`).
- A block that cannot be drawn is shown as its source text. The error is passed to the app's error boundary and does not
  end the frame.
- The Markdown renderer is imported in a thread after the first paint (`start_warm_up`). Until then text is plain.
"""

import math
import re
import time
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from rich.style import Style
from textual import events
from textual.color import Color
from textual.css.styles import StylesBase
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.selection import Selection
from textual.strip import Strip

from chatops.tui.graphics import PLACEHOLDERS
from chatops.tui.textual_internals import ErrorBoundary, report_error
from chatops.tui.theme import SPINNER, BlockTheme, theme_of
from chatops.tui.transcript.answer import is_warm, warm_up
from chatops.tui.transcript.blocks import ToolCardBlock
from chatops.tui.transcript.layout import BlockLayout, LaidOutBlock
from chatops.tui.transcript.lines import GUTTER, marked

_SLICE_S = 0.006
"""Longest time that one slice of background drawing may delay keys."""
_PAUSE_S = 0.01
"""Time between two slices, in which keys are handled."""
MAX_ROWS_AFTER = 2
"""Maximum of `Viewport.rows_after`: a line, and the empty line before it."""
_HEIGHTS_AHEAD = 3
"""Heights of the view that are drawn ahead above and below it."""


class Position(NamedTuple):
    """A scroll position."""

    block_id: str
    """The block at the top of the view; empty without blocks."""
    lines_above: int
    """Lines of that block above the view."""


class Viewport(ErrorBoundary, ScrollView, can_focus=True):
    """Shows the blocks of its layout. Redraws only what has changed and has no timer while idle."""

    @dataclass
    class Unseen(Message):
        """Posted when others are the blocks that arrived below the view, or when the view leaves or reaches the end."""

        messages: int
        calls: int
        """Messages and tool calls that arrived."""
        more: bool
        """True if there is anything below the view."""

    DEFAULT_CSS = """
    Viewport {
        height: 1fr;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        background: $background;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._blocks_layout = BlockLayout()
        self.following = True
        """True while new lines scroll into view."""
        self._unseen: set[str] = set()
        """The ids of the blocks below the view that have arrived since the user scrolled away."""
        self._more_below = False
        """True if there are lines below the view."""
        self._scrolls_itself = False
        """True while the viewport itself moves the scroll position."""
        self._slicing = False
        """True while a timer runs that draws the next slice."""
        self._rows: list[Strip | None] = []
        """Lines in view after the last change."""
        self._reserved = 0
        """Lines to scroll through when `rows_after` was last above 0; 0 once blocks have taken their place."""

    # Drawing

    def redraw(self, keys: Iterable[str]) -> None:
        """Redraw these blocks. Unless the view follows the end, the lines in view stay where they are."""
        position = self._position()
        for key in keys:
            self._blocks_layout.redraw(self._blocks_layout.index[key])
        self.show_changes(position)

    def unfold(self, index: int) -> None:
        """Show the reads that are folded into an entry on lines of their own."""
        position = self._position()
        self._blocks_layout.unfold(index)
        self.show_changes(position)

    def _measure(self, *, force: bool = False) -> bool:
        """Adopt the current width and theme. Return False if the size is not known yet."""
        width = self.scrollable_content_region.width
        if not width:
            return False
        if force or width != self._blocks_layout.width or self._blocks_layout.theme is None:
            self._blocks_layout.restyle(width=width, theme=self._theme())
        return True

    def _theme(self) -> BlockTheme:
        theme = theme_of(self.app, roles=getattr(self.app, "role_colours", {}))
        spinner = SPINNER if getattr(self.app, "moves", True) else ""
        return replace(theme, base=self.rich_style, spinner=spinner)

    def _position(self) -> Position:
        layout = self._blocks_layout
        if not layout.entries:
            return Position("", 0)
        index = layout.index_at(self.scroll_offset.y)
        return Position(layout.entries[index].block.id, self.scroll_offset.y - layout.start(index))

    def show_changes(self, position: Position | None = None) -> None:
        """Update what is in view, then the virtual size, then scroll to `position`; None: to where the view is."""
        if not self._measure():
            return
        position = position or self._position()
        layout = self._blocks_layout
        self._draw_view(position)
        self._scrolls_itself = True
        try:
            # Assigning would lay out the whole screen, and only the scroll bar could change.
            self.set_reactive(Viewport.virtual_size, Size(layout.width, self._height()))
            if self.following:
                self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)
            elif position.block_id in layout.index:
                index = layout.index[position.block_id]
                top = layout.start(index) + min(position.lines_above, max(0, layout.entries[index].height - 1))
                self.scroll_to(y=top, animate=False, immediate=True, force=True)
            else:
                self.scroll_y = self.validate_scroll_y(self.scroll_y)
        finally:
            self._scrolls_itself = False
        top = self.scroll_offset.y
        layout.drop_far_lines(top=top, bottom=top + self.size.height)
        self._move_scroll_bar()
        self._refresh_rows()
        self._note_unseen()
        for error in layout.take_errors():
            report_error(self.app, error)

    @property
    def rows_after(self) -> int:
        """Number of rows after the last block, for a line that is no block."""
        return 0

    def line_at(self, y: int) -> Strip | None:
        """Return line `y` as it is now."""
        return self._blocks_layout.line(y)

    def _height(self) -> int:
        """Return the number of lines to scroll through.

        Rows after the last block stay when nothing is in them any more, until blocks take their place. Otherwise all
        lines would move down and up again.
        """
        height = self._blocks_layout.height
        if self.rows_after:
            self._reserved = height + self.rows_after
        elif height >= self._reserved or not self.following:
            self._reserved = 0
        return max(height, min(self._reserved, height + MAX_ROWS_AFTER))

    def _move_scroll_bar(self) -> None:
        """Set size and position of the scroll bar. Repaint it only if it looks different."""
        bar, height = self.vertical_scrollbar, self.size.height
        before = _thumb_place(bar.window_virtual_size, bar.position, height)
        bar.set_reactive(ScrollBar.window_virtual_size, self.virtual_size.height)
        bar.set_reactive(ScrollBar.position, self.scroll_y)
        if _thumb_place(bar.window_virtual_size, bar.position, height) != before:
            bar.refresh()

    def _refresh_rows(self) -> None:
        """Repaint the rows whose line is not the one that was there before."""
        top, width, height = self.scroll_offset.y, self._blocks_layout.width, self.size.height
        before, self._rows = self._rows, [self.line_at(top + y) for y in range(height)]
        if len(before) != height or self.is_marked:
            self.refresh()
            return
        lines = enumerate(zip(before, self._rows, strict=True))
        changed = [Region(0, y, width, 1) for y, (old, new) in lines if new is not old and new != old]
        if changed:
            self.refresh(*changed)

    def _draw_view(self, position: Position) -> None:
        """Draw the blocks that will be in view: upwards from the end, or downwards from `position`."""
        layout = self._blocks_layout
        needed = self.size.height + 1
        if self.following or position.block_id not in layout.index:
            order: Iterable[int] = range(len(layout.entries) - 1, -1, -1)
        else:
            needed += position.lines_above
            order = range(layout.index[position.block_id], len(layout.entries))
        for index in order:
            layout.ensure(index)
            needed -= layout.entries[index].height
            if needed <= 0:
                break

    def _draw_ahead_later(self) -> None:
        if not self._slicing:
            self._slicing = True
            self.set_timer(_PAUSE_S, self._draw_slice)

    def _draw_slice(self) -> None:
        """Draw some blocks that are near the view, then pause."""
        self._slicing = False
        if self._measure() and self._draw_near(_HEIGHTS_AHEAD * self.size.height, seconds=_SLICE_S):
            self._draw_ahead_later()

    def _draw_near(self, distance: int, *, seconds: float = math.inf) -> bool:
        """Draw the blocks up to `distance` lines from the view, which shows the same lines afterwards.

        Returns False if all of them were drawn already. Otherwise there may be more to draw: time was up, or blocks
        that turned out shorter have brought others within the distance.
        """
        layout, top = self._blocks_layout, self.scroll_offset.y
        end = time.perf_counter() + seconds
        position = self._position()
        drawn = changed = False
        for index in layout.estimated(top=top - distance, bottom=top + self.size.height + distance):
            drawn = True
            changed |= layout.ensure(index)
            if time.perf_counter() > end:
                break
        if changed:
            self.show_changes(position)
        return drawn

    def render_line(self, y: int) -> Strip:
        """Return line `y` of the view."""
        return self._drawn([y])[0].apply_offsets(0, self.scroll_offset.y + y)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return lines to paint, in less time than the method of Widget.

        That one looks at each line for border, padding, tint and opacity, which the view does not have. And only the
        lookup of a mouse position needs offsets, which take a style for each segment.
        """
        background = self.background_colors[1]
        strips = self._drawn(crop.line_range)
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        if crop.column_span == (0, self.size.width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def _drawn(self, rows: Iterable[int]) -> list[Strip]:
        """Return rows of the view: lines as wide as it, with marks and then the selection drawn over them."""
        top, width, base = self.scroll_offset.y, self.size.width, self._base_style
        blank = Strip.blank(width, base)
        drawn = {y: self.line_at(y) or blank for y in (top + row for row in rows)}
        lines = {
            y: strip if strip.cell_length == width else strip.crop_extend(0, width, base) for y, strip in drawn.items()
        }
        if self.is_marked:
            lines = {y: self.decorated(strip, y) for y, strip in lines.items()}
        if (selection := self.text_selection) is not None:
            styles = self.screen.get_component_styles("screen--selection")
            style = _selection_style(styles, behind=self.background_colors[1])
            for y, strip in lines.items():
                if (span := selection.get_span(y)) is not None:
                    lines[y] = marked(strip, span, style)
        return list(lines.values())

    @property
    def is_marked(self) -> bool:
        """True if something is drawn over lines, such as a selection."""
        return self.text_selection is not None

    def decorated(self, strip: Strip, y: int) -> Strip:
        """Return line `y` of the layout with what is drawn over it, such as marks. Called only while `is_marked`."""
        return strip

    @property
    def _base_style(self) -> Style:
        theme = self._blocks_layout.theme
        return self.rich_style if theme is None or theme.base is None else theme.base

    def notify_style_update(self) -> None:
        """Redraw every line when the background has changed, because each strip contains it."""
        super().notify_style_update()
        theme = self._blocks_layout.theme
        if theme is not None and theme.base != self.rich_style:
            self.call_later(self.restyle)

    def start_warm_up(self) -> None:
        """Import the Markdown renderer in a thread, then redraw. Call it after the first paint."""
        if not is_warm():
            self.run_worker(self._warm_up, thread=True, exclusive=True, group="warm-up")

    def restyle(self) -> None:
        """Redraw everything after a change of width, theme or renderer; what is in view first."""
        if self._measure(force=True):
            self._rows = []  # The next refresh compares with these, so it paints every row.
            self.show_changes()
            self._draw_ahead_later()

    # Selecting text

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text without the gutter and trailing padding, or None if nothing is drawn."""
        return (selected_text(self._blocks_layout, selection), "\n") if self._blocks_layout.height else None

    # Scrolling

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the end exactly when the user has scrolled to it."""
        if not self._scrolls_itself:
            self._rows = []
            super().watch_scroll_y(old_value, new_value)
            self.following = round(new_value) >= self.max_scroll_y
            self._note_unseen()
            if round(old_value) != round(new_value):
                self._draw_newly_visible()

    def _draw_newly_visible(self) -> None:
        """Correct the lines below blocks that came into view with only an estimated height, then draw ahead."""
        layout = self._blocks_layout
        if any(entry.drawn_width != layout.width for entry in self._entries_in_view()):
            self.show_changes()
        self._draw_ahead_later()

    def _entries_in_view(self) -> list[LaidOutBlock]:
        layout = self._blocks_layout
        top = self.scroll_offset.y
        return layout.entries[layout.index_at(top) : layout.index_at(top + self.size.height) + 1]

    def _note_unseen(self, *, arrived: Set[str] = frozenset()) -> None:
        """Note which of these blocks, and of the earlier ones, end below the view. Post `Unseen` on a change."""
        layout, bottom = self._blocks_layout, self.scroll_offset.y + self.size.height
        # Following the end shows whatever arrives.
        known = frozenset[str]() if self.following else self._unseen | arrived
        places = [layout.index[key] for key in known if key in layout.index]
        ends = {place: layout.start(place) + layout.entries[place].height for place in places}
        below = [layout.entries[place].block for place, end in ends.items() if end > bottom]
        before = self._unseen, self._more_below
        self._unseen = {block.id for block in below}
        self._more_below = not self.following and self.scroll_offset.y < self.max_scroll_y
        if (self._unseen, self._more_below) != before:
            calls = sum(isinstance(block, ToolCardBlock) for block in below)
            self.post_message(self.Unseen(len(below) - calls, calls, more=self._more_below))

    def follow(self) -> None:
        """Scroll to the end and stay there."""
        self.following = True
        self.show_changes()

    def action_scroll_home(self) -> None:
        """Scroll to the start."""
        self.scroll_to(y=0, animate=False, immediate=True)

    def action_scroll_end(self) -> None:
        """Scroll to the end and follow it."""
        self.follow()

    def action_page_up(self) -> None:
        """Scroll one page back, keeping one line."""
        self._draw_page_ahead()
        self.scroll_to(y=self.scroll_offset.y - self._page, animate=False, immediate=True)

    def action_page_down(self) -> None:
        """Scroll one page forward, keeping one line."""
        self._draw_page_ahead()
        self.scroll_to(y=self.scroll_offset.y + self._page, animate=False, immediate=True)

    def _draw_page_ahead(self) -> None:
        """Make the heights of the blocks exact that one page can move into the view."""
        while self._measure() and self._draw_near(self._page):
            pass

    @property
    def _page(self) -> int:
        return max(1, self.size.height - 1)

    # Textual events

    def on_mount(self) -> None:
        """Subscribe to theme changes."""
        self.app.theme_changed_signal.subscribe(self, lambda _: self.restyle())

    def on_resize(self, event: events.Resize) -> None:
        """Redraw everything for a new width, what is in view first. A new height keeps the end in view."""
        position = self._position() if self._blocks_layout.width else None
        changed = self.scrollable_content_region.width != self._blocks_layout.width
        self.show_changes(position)
        if changed:
            self._draw_ahead_later()

    def _warm_up(self) -> None:
        warm_up()
        self.app.call_from_thread(self.restyle)


def _thumb_place(lines: int, top: float, rows: int) -> tuple[int, int]:
    """Return size and position of the thumb of a scroll bar in rows, as the app draws it."""
    if lines <= rows:
        return 0, 0
    size = max(1, rows * rows / lines)
    return math.ceil(size), int((rows - size) * top / (lines - rows))


def selected_text(layout: BlockLayout, selection: Selection) -> str:
    """Return the selected text of the drawn lines, without the gutter and trailing padding."""
    first = selection.start.y if selection.start is not None else 0
    last = min(selection.end.y if selection.end is not None else layout.height, layout.height - 1)
    lines = []
    for y in range(first, last + 1):
        strip, span = layout.line(y), selection.get_span(y)
        if span is None:
            continue
        text = re.sub(PLACEHOLDERS, " ", strip.text) if strip is not None else ""
        begin, end = span
        lines.append(text[max(begin, GUTTER) : len(text) if end == -1 else end].rstrip())
    return "\n".join(lines)


def _selection_style(styles: StylesBase, *, behind: Color) -> Style:
    """Return the style for selected text: the theme's selection colours over the background `behind`.

    Many themes make the selection's foreground transparent. Rich has no transparent colour and would draw the text in
    its background colour, so such text becomes black or white, whichever contrasts more.
    """
    background = behind + styles.background
    foreground = background + (styles.color if styles.color.a else background.get_contrast_text(1.0))
    return Style(color=foreground.rich_color, bgcolor=background.rich_color, dim=False)

"""A scrolling view of drawn blocks, on Textual's line API: what is in view is drawn at once, the rest by and by.

The view follows the end until the person scrolls away, and again when they come back to it.
"""

import time
from collections.abc import Iterable
from dataclasses import replace

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from chatops.tui.accidents import Sturdy
from chatops.tui.blocks.late import is_warm, warm_up
from chatops.tui.blocks.theme import BlockTheme, symbols_for, theme_from
from chatops.tui.widgets.layout import Entry, Layout
from chatops.tui.widgets.selecting import marked, selected_text, selection_style

_SLICE_SECONDS = 0.006
"""How long one slice of drawing in the background may keep keys waiting."""
_PAUSE_SECONDS = 0.01


class Viewport(Sturdy, ScrollView, can_focus=True):
    """Shows what its layout holds. Draws nothing that has not changed, keeps no timer when idle."""

    class Unseen(Message):
        """The number of blocks that came or grew since the view left the end has changed; 0 while it is there."""

        def __init__(self, count: int) -> None:
            super().__init__()
            self.count = count

    ALLOW_SELECT = True
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

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._layout_of = Layout()
        self._following = True
        self._unseen: set[str] = set()
        self._placing = False
        self._slicing = False

    @property
    def following(self) -> bool:
        """Whether new lines scroll into view."""
        return self._following

    # Drawing

    def _redraw_keeping_place(self, keys: Iterable[str]) -> None:
        """Draw these blocks again. Away from the end, what is in view stays where it is."""
        place = self._place()
        for key in keys:
            self._layout_of.redraw(self._layout_of.index[key])
        self._show_changes(place=place)

    def _measure(self, *, force: bool = False) -> bool:
        """Take over width and theme. False: the size is not known yet."""
        width = self.scrollable_content_region.width
        if not width:
            return False
        if force or width != self._layout_of.width or self._layout_of.theme is None:
            self._layout_of.restyle(width=width, theme=self._theme())
        return True

    def _theme(self) -> BlockTheme:
        symbols = symbols_for(getattr(self.app, "charset", "utf-8"))
        theme = theme_from(self.app.theme_variables, dark=self.app.current_theme.dark, symbols=symbols)
        return replace(theme, base=self.rich_style)

    def _place(self) -> tuple[str, int]:
        """The block at the top of the view, and how many of its lines are above."""
        layout = self._layout_of
        if not layout.entries:
            return "", 0
        index = layout.at(self.scroll_offset.y)
        return layout.entries[index].block.id, self.scroll_offset.y - layout.start(index)

    def _show_changes(self, *, keep: bool = False, place: tuple[str, int] | None = None) -> None:
        """Bring what is in view up to date, and the scroll position with it."""
        if not self._measure():
            return
        place = self._place() if keep and place is None else place
        layout = self._layout_of
        self._draw_view(place)
        height = max(layout.height, 0)
        self._placing = True
        try:
            size = Size(layout.width, height)
            if size != self.virtual_size:
                self.virtual_size = size
            if self._following:
                self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)
            elif place is not None and place[0] in layout.index:
                index = layout.index[place[0]]
                top = layout.start(index) + min(place[1], max(0, layout.entries[index].height - 1))
                self.scroll_to(y=top, animate=False, immediate=True, force=True)
        finally:
            self._placing = False
        top = self.scroll_offset.y
        layout.give_up_far_lines(top=top, bottom=top + self.size.height)
        self.refresh()
        for error in layout.take_troubles():
            self.app._handle_exception(error)

    def _draw_view(self, place: tuple[str, int] | None) -> None:
        """Draw the blocks that will be in view: upwards from the end, or downwards from `place`."""
        layout = self._layout_of
        needed, first = self.size.height + 1, len(layout.entries)
        if self._following or place is None or place[0] not in layout.index:
            order: Iterable[int] = range(len(layout.entries) - 1, -1, -1)
        else:
            needed += place[1]
            order = range(layout.index[place[0]], len(layout.entries))
        for index in order:
            if layout.ensure(index):
                first = min(first, index)
            needed -= layout.entries[index].height
            if needed <= 0:
                break
        if first < len(layout.entries):
            layout.sum_from(first)

    def _draw_rest_later(self) -> None:
        if not self._slicing:
            self._slicing = True
            self.set_timer(_PAUSE_SECONDS, self._draw_slice)

    def _draw_slice(self) -> None:
        """Draw some of what is not in view, so that the scroll bar comes to tell the truth; then pause."""
        self._slicing = False
        layout = self._layout_of
        if not self._measure() or not layout.entries:
            return
        end = time.perf_counter() + _SLICE_SECONDS
        place = self._place()
        lowest, more = len(layout.entries), False
        for index in layout.stale(around=layout.at(self.scroll_offset.y)):
            if time.perf_counter() > end:
                more = True
                break
            if layout.ensure(index):
                lowest = min(lowest, index)
        if lowest < len(layout.entries):
            layout.sum_from(lowest)
            self._show_changes(place=place)
        if more:
            self._draw_rest_later()

    def render_line(self, y: int) -> Strip:
        """Line `y` of the view."""
        top, width = self.scroll_offset.y, self.size.width
        strip = self._layout_of.line(top + y)
        if strip is None or strip.cell_length != width:
            style = self._base_style
            strip = self._blank(width, style) if strip is None else strip.crop_extend(0, width, style)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(top + y)) is not None:
            styles = self.screen.get_component_styles("screen--selection")
            strip = marked(strip, span, selection_style(styles, behind=self.background_colors[1]))
        return strip.apply_offsets(0, top + y)

    @property
    def _base_style(self) -> Style:
        theme = self._layout_of.theme
        return self.rich_style if theme is None or theme.base is None else theme.base

    def _blank(self, width: int, style: Style) -> Strip:
        return Strip([Segment(" " * width, style)], width)

    def notify_style_update(self) -> None:
        """Another background is under every line, so every line is drawn again."""
        super().notify_style_update()
        theme = self._layout_of.theme
        if theme is not None and theme.base != self.rich_style:
            self.call_later(self.restyle)

    def start_warm_up(self) -> None:
        """After the first paint: load what draws Markdown in a thread, then draw again what was plain."""
        if not is_warm():
            self.run_worker(self._warm_up, thread=True, exclusive=True, group="warm-up")

    def restyle(self) -> None:
        """Draw everything again (width, theme or renderer have changed), what is in view at once."""
        if self._measure(force=True):
            self._show_changes(keep=True)
            self._draw_rest_later()

    # Selecting text

    @property
    def allow_select(self) -> bool:
        """Text can be selected with the mouse."""
        return True

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, without the gutter and the blanks that fill lines."""
        return (selected_text(self._layout_of, selection), "\n") if self._layout_of.height else None

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw with the new selection."""
        self.refresh()

    # Scrolling

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the end exactly when the person is there."""
        super().watch_scroll_y(old_value, new_value)
        if not self._placing:
            self._following = round(new_value) >= self.max_scroll_y
            if self._following:
                self._note_unseen(set())
            if round(old_value) != round(new_value):
                self._draw_newly_visible()

    def _draw_newly_visible(self) -> None:
        """What has come into view may be taller than estimated: correct the lines below it."""
        layout = self._layout_of
        if any(entry.drawn_at != layout.width for entry in self._entries_in_view()):
            self._show_changes(keep=True)

    def _entries_in_view(self) -> list[Entry]:
        layout = self._layout_of
        top = self.scroll_offset.y
        return layout.entries[layout.at(top) : layout.at(top + self.size.height) + 1]

    def _note_unseen(self, keys: set[str]) -> None:
        """Take over which blocks have come or grown below the view."""
        changed, self._unseen = len(keys) != len(self._unseen), keys
        if changed:
            self.post_message(self.Unseen(len(keys)))

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._following = True
        self._note_unseen(set())
        self._show_changes()

    def action_scroll_home(self) -> None:
        """Go to the begin."""
        self.scroll_to(y=0, animate=False, immediate=True)

    def action_scroll_end(self) -> None:
        """Go to the end and follow it."""
        self.follow()

    def action_page_up(self) -> None:
        """One page back, a line kept."""
        self.scroll_to(y=self.scroll_offset.y - self._page, animate=False, immediate=True)

    def action_page_down(self) -> None:
        """One page on, a line kept."""
        self.scroll_to(y=self.scroll_offset.y + self._page, animate=False, immediate=True)

    @property
    def _page(self) -> int:
        return max(1, self.size.height - 1)

    # Textual

    def on_mount(self) -> None:
        """Follow theme changes."""
        self.app.theme_changed_signal.subscribe(self, lambda _: self.restyle())

    def on_resize(self, event: events.Resize) -> None:
        """A new width draws everything anew, what is in view first; a new height keeps the end in view."""
        place = self._place() if self._layout_of.width else None
        changed = self.scrollable_content_region.width != self._layout_of.width
        self._show_changes(place=place)
        if changed:
            self._draw_rest_later()

    def _warm_up(self) -> None:
        warm_up()
        self.app.call_from_thread(self.restyle)

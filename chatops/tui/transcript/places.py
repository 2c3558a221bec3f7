"""The places of a search in a transcript: all of them are marked, and one is brought into view."""

from rich.style import Style
from textual.strip import Strip

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.tui.transcript.block_lines import can_open
from chatops.tui.transcript.finding import TextSearch
from chatops.tui.transcript.layout import BlockLayout
from chatops.tui.transcript.lines import with_sign
from chatops.tui.transcript.viewport import Position, Viewport

_MAX_MOVES = 4
"""Most moves of the view to a line that moves with the heights of the blocks above it. Two are usual."""


@frozen_dataclass(kw_only=False)
class _Place:
    """A place that is drawn."""

    block_id: str
    line: int
    """The line of the block."""
    nth: int
    """The number of the place within the line, from 0."""


class ShownPlaces:
    """Shows the places of a search in `view`, which has this layout."""

    def __init__(self, view: Viewport, layout: BlockLayout) -> None:
        self._view = view
        self._layout = layout
        self._search: TextSearch | None = None
        """None: no place is marked."""
        self._current: _Place | None = None
        """The place that was brought into view last."""
        self._opened: str | None = None
        """The folded block that was opened for a place. It is folded again once a place in another one is shown."""

    @property
    def any_marked(self) -> bool:
        """True while a search is shown."""
        return self._search is not None

    def mark(self, search: TextSearch | None) -> None:
        """Mark the places of a search; None: mark nothing."""
        self._search, self._current = search, None

    def draw(self, strip: Strip, y: int) -> Strip:
        """Return line `y` of the layout with its places marked."""
        search, current, theme = self._search, self._current, self._layout.theme
        if search is None or theme is None:
            return strip
        if current is None or y != self._line_of(current):
            return search.drawn(strip, theme, current=None)
        # Without colours, only the sign says which line is shown.
        strip = search.drawn(strip, theme, current=current.nth)
        return with_sign(strip, theme.symbols.selected, (theme.base or Style()) + theme.warn)

    def _line_of(self, place: _Place) -> int | None:
        """Return the line of the layout that a place is in; None if its block was removed."""
        index = self._layout.index.get(place.block_id)
        return self._layout.start(index) + place.line if index is not None else None

    def show(self, block_id: str, number: int) -> None:
        """Bring the place with this number in a block into view. Open the block if it is folded."""
        search, entry = self._search, self._layout.entry(block_id)
        if search is None or entry is None:
            return
        self._view.following = False
        self._fold_other(block_id)
        self._show_read(block_id)
        drawn, count = self._drawn_in(block_id, search), search.count_in(block_id)
        if len(drawn) < count and can_open(entry.block) and not entry.expanded:
            self._expand(block_id, expanded=True)
            self._opened = block_id
            drawn = self._drawn_in(block_id, search)
        # A card names its subject twice, in its first line and below: the last places agree.
        self._current = drawn[max(0, len(drawn) - count + number)] if drawn else _Place(block_id, 0, 0)
        self._scroll_to(self._current)
        self._view.refresh()

    def _fold_other(self, block_id: str) -> None:
        """Fold the block that was opened for the place before, unless the next place is in it too."""
        if self._opened is not None and self._opened != block_id:
            self._expand(self._opened, expanded=False)
            self._opened = None

    def _show_read(self, block_id: str) -> None:
        """Give the block a line of its own if it is a read that is folded into an earlier one."""
        head = index = self._layout.index[block_id]
        while self._layout.entries[head].folded:
            head -= 1
        if head != index:
            self._view.unfold(head)

    def _expand(self, block_id: str, *, expanded: bool) -> None:
        if (entry := self._layout.entry(block_id)) is not None:
            entry.expanded = expanded
            self._view.redraw([block_id])

    def _drawn_in(self, block_id: str, search: TextSearch) -> list[_Place]:
        """Return the places that are drawn in a block."""
        index = self._layout.index[block_id]
        self._layout.ensure(index)
        entry = self._layout.entries[index]
        strips = ((line, entry.line(line)) for line in range(entry.height))
        texts = ((line, strip.text) for line, strip in strips if strip is not None)
        return [_Place(block_id, line, nth) for line, text in texts for nth, _ in enumerate(search.spans(text))]

    def _scroll_to(self, place: _Place) -> None:
        """Bring the line of a place into view, with a third of the view above it."""
        layout, view = self._layout, self._view
        index = layout.index[place.block_id]
        # Blocks above get their real heights as they come into view, and move the line.
        for _ in range(_MAX_MOVES):
            y, top = layout.start(index) + place.line, view.scroll_offset.y
            if top <= y < top + view.size.height and layout.entries[index].drawn_width:
                break
            view.show_changes(Position(place.block_id, place.line))
            view.scroll_to(y=layout.start(index) + place.line - view.size.height // 3, animate=False, immediate=True)

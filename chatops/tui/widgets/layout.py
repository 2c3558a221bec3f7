"""Where each block of a transcript stands: drawn lines, heights and what is still to be drawn at this width.

A width change or a long history is not drawn at once: blocks keep their last height, or get an estimate, until
they are looked at. Lines far from the view are given up again, only heights stay.
"""

from bisect import bisect_right
from collections.abc import Iterator

from textual.strip import Strip

from chatops.tui.blocks.answer import AnswerDrawing
from chatops.tui.blocks.model import AnswerBlock, Block, ToolCardBlock
from chatops.tui.blocks.render import as_written, render_block
from chatops.tui.blocks.theme import BlockTheme

_KEPT_AROUND = 2_000
"""Lines kept above and below the view when there are too many."""
_MOST_KEPT = 12_000
"""Drawn lines kept at most, roughly 25 MB."""


class Entry:
    """One block and its drawing. `drawn_at`: the width it was drawn for, 0 if the height is an estimate."""

    __slots__ = ("block", "closing", "drawing", "drawn_at", "expanded", "gap", "head", "height", "selected", "strips")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.drawing: AnswerDrawing | None = None
        """Of an open answer; `strips` then holds its open end only and `head` its finished lines."""
        self.head: list[Strip] = []
        self.strips: list[Strip] | None = None
        self.height = 0
        """Lines of the block itself."""
        self.gap = 0
        """Empty lines before it."""
        self.drawn_at = 0
        self.closing = False
        """It has just been closed: what is drawn of it stays good."""
        self.expanded = False
        self.selected = False

    def forget(self) -> None:
        """The drawing is void; the height stays as an estimate."""
        self.drawing = None
        self.strips = None
        self.head = []
        self.drawn_at = 0


class Layout:
    """A list of entries with the line at which each begins."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.index: dict[str, int] = {}
        self.width = 0
        self.theme: BlockTheme | None = None
        self._starts = [0]
        self._kept = 0
        self._troubles: list[Exception] = []

    def take_troubles(self) -> list[Exception]:
        """What went wrong in drawing since the last call; the blocks in question stand there as they were written."""
        troubles, self._troubles = self._troubles, []
        return troubles

    @property
    def height(self) -> int:
        """Lines of all blocks, estimates included."""
        return self._starts[-1]

    def start(self, index: int) -> int:
        """The first line of an entry, after the gap before it."""
        return self._starts[index] + self.entries[index].gap

    def at(self, y: int) -> int:
        """The entry that covers line `y`; the last one for lines below."""
        return max(0, min(bisect_right(self._starts, y) - 1, len(self.entries) - 1))

    def reset(self, blocks: list[Block]) -> None:
        """Begin anew with these blocks."""
        self.entries = [Entry(block) for block in blocks]
        self._kept = 0
        self._reindex()
        for entry in self.entries:
            entry.height = self._estimate(entry.block)
        self.sum_from(0)

    def insert(self, block: Block, *, at: int) -> None:
        """Put a block before the `at`-th entry."""
        entry = Entry(block)
        entry.height = self._estimate(block)
        self.entries.insert(at, entry)
        if at == len(self.entries) - 1:
            self.index[block.id] = at
        else:
            self._reindex()
        self.sum_from(at)

    def remove(self, index: int) -> None:
        """Take an entry away."""
        del self.entries[index]
        self._reindex()
        self.sum_from(index)

    def restyle(self, *, width: int, theme: BlockTheme) -> None:
        """Everything is to be drawn again for `width` and `theme`, when it is looked at."""
        estimated = self.width == 0
        self.width, self.theme = width, theme
        self._kept = 0
        for entry in self.entries:
            entry.forget()
            if estimated:
                entry.height = self._estimate(entry.block)
        self.sum_from(0)

    def ensure(self, index: int) -> bool:
        """Draw an entry if it is not. True if its height has changed (call `sum_from`)."""
        entry = self.entries[index]
        if self.theme is None or (entry.strips is not None and entry.drawn_at == self.width):
            return False
        try:
            self._draw(entry, self.theme)
        except Exception as error:
            self._troubles.append(error)
            entry.drawing, entry.head, entry.closing = None, [], False
            entry.strips = as_written(entry.block, self.width, self.theme)
        entry.drawn_at = self.width
        height = len(entry.head) + len(entry.strips or ())
        changed = height != entry.height
        entry.height = height
        self._kept += height
        return changed

    def redraw(self, index: int) -> None:
        """The entry's block or state has changed: draw it again now."""
        entry = self.entries[index]
        growing = isinstance(entry.block, AnswerBlock) and (entry.block.open or entry.closing)
        if growing and entry.drawing is not None:
            entry.strips = None
        else:
            entry.forget()
        self.ensure(index)
        self.sum_from(index)

    def stale(self, *, around: int) -> Iterator[int]:
        """Entries whose height is an estimate, the nearest to `around` first."""
        count = len(self.entries)
        for distance in range(max(around, count - around) + 1):
            for index in {around - distance, around + distance}:
                if 0 <= index < count and self.entries[index].drawn_at != self.width:
                    yield index

    def line(self, y: int) -> Strip | None:
        """Line `y`, drawn by now; None between blocks and below the end."""
        if not self.entries or not 0 <= y < self.height:
            return None
        index = self.at(y)
        if self.ensure(index):
            self.sum_from(index)
        entry = self.entries[index]
        offset = y - self.start(index)
        if offset < 0:
            return None
        if offset < len(entry.head):
            return entry.head[offset]
        offset -= len(entry.head)
        strips = entry.strips or []
        return strips[offset] if offset < len(strips) else None

    def sum_from(self, index: int) -> None:
        """Heights have changed from this entry on."""
        del self._starts[index + 1 :]
        total = self._starts[index]
        for place in range(index, len(self.entries)):
            entry = self.entries[place]
            entry.gap = 0 if place == 0 or _belong_together(self.entries[place - 1], entry) else 1
            total += entry.gap + entry.height
            self._starts.append(total)

    def give_up_far_lines(self, *, top: int, bottom: int) -> None:
        """Keep memory bounded: drop lines far from the view once there are too many."""
        if self._kept <= _MOST_KEPT:
            return
        self._kept = 0
        for index, entry in enumerate(self.entries):
            begin, end = self._starts[index], self._starts[index + 1]
            far = end < top - _KEPT_AROUND or begin > bottom + _KEPT_AROUND
            if far and entry.drawing is None and entry.drawn_at:
                entry.strips = None
            elif entry.strips is not None:
                self._kept += entry.height

    def _draw(self, entry: Entry, theme: BlockTheme) -> None:
        block = entry.block
        if entry.closing and entry.drawing is not None:
            entry.drawing.close()
            entry.strips, entry.head = entry.drawing.strips(), []
            entry.drawing, entry.closing = None, False
            return
        entry.closing = False
        if not isinstance(block, AnswerBlock) or not block.open:
            entry.drawing, entry.head = None, []
            entry.strips = render_block(block, self.width, theme, expanded=entry.expanded, selected=entry.selected)
            return
        if entry.drawing is None:
            entry.drawing = AnswerDrawing(width=self.width, theme=theme)
            entry.drawing.extend(block.text)
        entry.head = entry.drawing.finished()
        entry.strips = entry.drawing.open_strips()

    def _estimate(self, block: Block) -> int:
        text = getattr(block, "text", "")
        if not isinstance(text, str) or not self.width or not isinstance(block, AnswerBlock):
            return 1
        return sum(1 + len(line) // self.width for line in text.split("\n"))

    def _reindex(self) -> None:
        self.index = {entry.block.id: place for place, entry in enumerate(self.entries)}


def _belong_together(above: Entry, below: Entry) -> bool:
    """Folded cards stand close."""
    cards = isinstance(above.block, ToolCardBlock) and isinstance(below.block, ToolCardBlock)
    return cards and not above.expanded and not below.expanded

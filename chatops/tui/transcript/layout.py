"""Layout of a transcript: the drawn lines of blocks, their heights, and where each block starts.

A width change or a long history is not drawn at once. Blocks keep their last height, or get an estimate, until they
come near the view. Lines far from the view are dropped again and only heights are kept. Neighbouring reads of one tool
are folded into one line.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text
from textual.strip import Strip

from chatops.domain.tools import Capabilities, built_in_capabilities
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import AnswerDrawing, SegmentLines
from chatops.tui.transcript.block_lines import FOLDED_LINES, PictureOf, block_lines, can_open, source_strips
from chatops.tui.transcript.blocks import AnswerBlock, Block, NoticeBlock, ToolCardBlock, UserBlock
from chatops.tui.transcript.card import may_fold
from chatops.tui.transcript.lines import GUTTER, indented, strips_of

_KEPT_AROUND = 1_000
"""Lines kept above and below the view once there are too many. With less, a scroll of some pages draws them again."""
_MAX_KEPT = 4_000
"""Maximum number of drawn lines kept, roughly 6 MB."""


@dataclass(slots=True, eq=False)
class LaidOutBlock:
    """One block and its drawing."""

    block: Block
    drawing: AnswerDrawing | None = None
    """Set for an answer only."""
    head: SegmentLines | None = None
    """The finished lines of an answer; `strips` then holds the lines after them."""
    strips: list[Strip] | None = None
    """The drawn lines; None if they are not drawn, or dropped."""
    height: int = 0
    """Lines of the block itself, without the gap."""
    gap: int = 0
    """Empty lines before the block."""
    drawn_width: int = 0
    """The width it was drawn for; 0 if `height` is an estimate."""
    expanded: bool = False
    further: tuple[ToolCardBlock, ...] = ()
    """The reads after this one that are folded into it."""
    folded: bool = False
    """True if this read is folded into an earlier one, and takes no line."""
    apart: bool = False
    """True if this read was unfolded and stays on a line of its own."""
    note: Text | None = None
    """A line below a card: how far its call is."""

    def forget(self) -> None:
        """Discard the drawing. The height stays as an estimate."""
        self.drawing = self.head = self.strips = None
        self.drawn_width = 0

    @property
    def kept(self) -> int:
        """Number of lines held in memory."""
        return len(self.strips or ()) + (self.head.kept if self.head is not None else 0)

    @property
    def drawn(self) -> int:
        """Number of lines of the drawing, including dropped ones."""
        return len(self.strips or ()) + len(self.head or ())

    def line(self, at: int) -> Strip | None:
        """Return a line of the drawing, or None below its end."""
        head, strips = self.head or (), self.strips or ()
        if at < len(head):
            return head[at]
        return strips[at - len(head)] if at < self.drawn else None

    def drop_lines(self) -> None:
        """Drop the lines that can be drawn again."""
        if self.head is None:
            self.strips = None
        else:
            self.head.drop()


class BlockLayout:
    """The entries of a transcript, one for each block, with the line at which each starts."""

    def __init__(self) -> None:
        self.entries: list[LaidOutBlock] = []
        self.index: dict[str, int] = {}
        """The index of each entry in `entries`, by the id of its block."""
        self.width = 0
        """Columns that blocks are drawn for; 0 and no theme until `restyle`."""
        self.theme: BlockTheme | None = None
        self.capabilities: Callable[[str], Capabilities] = built_in_capabilities
        """Returns the capabilities of a tool by its name."""
        self.pictures: PictureOf = lambda file: None
        """Returns what can be shown of an image."""
        self._summed = [0]
        """`_starts` as they were computed last. They are right up to the first entry of `_changed`."""
        self._changed = range(0)
        """The entries whose heights have changed since then."""
        self._kept = 0
        """About how many drawn lines are held in memory."""
        self._errors: list[Exception] = []

    def take_errors(self) -> list[Exception]:
        """Return the drawing errors since the last call. The blocks concerned are shown as their source text."""
        errors, self._errors = self._errors, []
        return errors

    @property
    def _starts(self) -> list[int]:
        """The line at which the gap before each entry starts, then the number of all lines."""
        if self._changed:
            self._sum_changed()
        return self._summed

    @property
    def height(self) -> int:
        """Number of lines of all blocks, estimates included."""
        return self._starts[-1]

    def entry(self, block_id: str) -> LaidOutBlock | None:
        """Return the entry of a block; None if there is no such block."""
        index = self.index.get(block_id)
        return self.entries[index] if index is not None else None

    def start(self, index: int) -> int:
        """Return the first line of an entry, after the gap before it."""
        return self._starts[index] + self.entries[index].gap

    def index_at(self, y: int) -> int:
        """Return the index of the entry that covers line `y`, or of the last entry for lines below."""
        return max(0, min(bisect_right(self._starts, y) - 1, len(self.entries) - 1))

    def reset(self, blocks: list[Block]) -> None:
        """Replace all entries with these blocks."""
        self.entries = [LaidOutBlock(block) for block in blocks]
        self._kept = 0
        self._reindex()
        self._fold_reads(0, len(self.entries))
        for entry in self.entries:
            entry.height = self._estimate(entry)
        self._note_moved(0)

    def insert(self, block: Block, *, index: int) -> None:
        """Insert a block before the entry that has this index now."""
        entry = LaidOutBlock(block)
        entry.height = self._estimate(entry)
        self.entries.insert(index, entry)
        if index == len(self.entries) - 1:
            self.index[block.id] = index
        else:
            self._reindex()
        self._note_moved(index)
        self._fold_around(index)

    def remove(self, index: int) -> None:
        """Remove an entry."""
        del self.entries[index]
        self._reindex()
        self._note_moved(index)
        self._fold_around(index)

    def restyle(self, *, width: int, theme: BlockTheme) -> None:
        """Discard all drawings. Entries are drawn for `width` and `theme` when they come into view."""
        first_time = self.width == 0
        self.width, self.theme = width, theme
        self._kept = 0
        for entry in self.entries:
            entry.forget()
            if first_time:
                entry.height = self._estimate(entry)
        self._note_moved(0)

    def ensure(self, index: int) -> bool:
        """Draw an entry if needed. Return True if its height has changed."""
        entry = self.entries[index]
        is_drawn = entry.strips is not None and entry.drawn_width == self.width
        if self.theme is None or is_drawn:
            return False
        try:
            self._draw(entry, self.theme)
        except Exception as error:
            # A bug must not hide what a block says. `take_errors` reports it.
            self._errors.append(error)
            entry.forget()
            entry.strips = source_strips(entry.block, self.width, self.theme)
        entry.drawn_width = self.width
        self._kept += entry.kept
        if entry.height == entry.drawn:
            return False
        entry.height = entry.drawn
        self._note_changed(index, index + 1)
        return True

    def redraw(self, index: int) -> None:
        """Redraw an entry whose block or state has changed."""
        entry = self.entries[index]
        if entry.drawing is not None:
            # An answer only grows, so its finished lines stay valid.
            entry.strips = None
        else:
            entry.forget()
        self._fold_around(index)
        self.ensure(index)

    def unfold(self, index: int) -> None:
        """Show the reads that are folded into an entry on lines of their own."""
        entries = self.entries[index : index + 1 + len(self.entries[index].further)]
        for entry in entries:
            entry.apart = True
        self._fold_around(index)

    def _fold_around(self, index: int) -> None:
        """Fold the reads around an entry again after it has changed, or after the one before it was removed."""
        first, end = index, min(index + 1, len(self.entries))
        while first > 0 and isinstance(self.entries[first - 1].block, ToolCardBlock):
            first -= 1
        while end < len(self.entries) and isinstance(self.entries[end].block, ToolCardBlock):
            end += 1
        self._fold_reads(first, end)
        self._note_changed(first, end)

    def _fold_reads(self, first: int, end: int) -> None:
        """Fold each run of reads from `first` up to `end`, all of one tool, into its first one."""
        # Entries that cannot be folded have no tool, and stay apart.
        tools = groupby(self.entries[first:end], key=lambda entry: self._foldable_tool(entry) or id(entry))
        for head, *others in (list(entries) for _, entries in tools):
            self._set_folding(
                head, tuple(entry.block for entry in others if isinstance(entry.block, ToolCardBlock)), folded=False
            )
            for entry in others:
                self._set_folding(entry, (), folded=True)

    def _set_folding(self, entry: LaidOutBlock, further: tuple[ToolCardBlock, ...], *, folded: bool) -> None:
        if (entry.further, entry.folded) != (further, folded):
            entry.further, entry.folded = further, folded
            entry.forget()
            # A line more or less is taken into account even where nothing is drawn yet.
            entry.height = self._estimate(entry)

    def _foldable_tool(self, entry: LaidOutBlock) -> str:
        """Return the tool of an entry that may be folded together with those beside it; empty if it may not."""
        block = entry.block
        if entry.expanded or entry.apart or not isinstance(block, ToolCardBlock):
            return ""
        return block.tool if may_fold(block, self.capabilities(block.tool)) else ""

    def estimated(self, *, top: int, bottom: int) -> Iterator[int]:
        """Yield the entries between two lines whose height is an estimate, from the lowest up."""
        if not self.entries:
            return
        for index in range(self.index_at(bottom), self.index_at(top) - 1, -1):
            if self.entries[index].drawn_width != self.width:
                yield index

    def line(self, y: int) -> Strip | None:
        """Return line `y`, drawing it if needed. None between blocks and below the end."""
        if not self.entries or not 0 <= y < self.height:
            return None
        index = self.index_at(y)
        self.ensure(index)
        entry = self.entries[index]
        offset = y - self.start(index)
        return entry.line(offset) if offset >= 0 else None

    def _note_changed(self, first: int, end: int) -> None:
        """Take note that heights from `first` up to `end` have changed. Entries below only move."""
        before = self._changed or range(first, end)
        self._changed = range(min(first, before.start), max(end, before.stop))

    def _note_moved(self, index: int) -> None:
        """Take note that other entries stand from this index on, or that all of their heights have changed."""
        del self._summed[index + 1 :]
        self._note_changed(index, len(self.entries))

    def _sum_changed(self) -> None:
        """Compute again where the changed entries start, and move those below."""
        # With the entry after them: the gap before that depends on whether the last one is open.
        first, end = self._changed.start, min(self._changed.stop + 1, len(self.entries))
        starts = [self._summed[first]]
        for index in range(first, end):
            entry = self.entries[index]
            entry.gap = 0 if index == 0 or entry.folded or _no_gap_between(self.entries[index - 1], entry) else 1
            starts.append(starts[-1] + entry.gap + entry.height)
        below = self._summed[end:]
        moved_by = starts[-1] - below[0] if below else 0
        self._summed[first:] = starts + ([start + moved_by for start in below[1:]] if moved_by else below[1:])
        self._changed = range(0)

    def drop_far_lines(self, *, top: int, bottom: int) -> None:
        """Bound memory: drop lines far from the view once there are too many."""
        if self._kept <= _MAX_KEPT:
            return
        self._kept, starts = 0, self._starts
        for index, entry in enumerate(self.entries):
            begin, end = starts[index], starts[index + 1]
            far = end < top - _KEPT_AROUND or begin > bottom + _KEPT_AROUND
            if far and entry.drawn_width:
                entry.drop_lines()
            self._kept += entry.kept

    def _draw(self, entry: LaidOutBlock, theme: BlockTheme) -> None:
        block = entry.block
        if entry.folded:
            entry.strips = []
            return
        if not isinstance(block, AnswerBlock):
            lines = block_lines(
                block,
                width=self.width,
                theme=theme,
                expanded=entry.expanded,
                capabilities=self.capabilities(block.tool) if isinstance(block, ToolCardBlock) else None,
                further=entry.further,
                pictures=self.pictures,
            )
            if entry.note is not None:
                lines += indented([entry.note], columns=GUTTER + 2)
            entry.strips = strips_of(lines, width=self.width, base=theme.base)
            return
        drawing = entry.drawing
        if drawing is None:
            drawing = entry.drawing = AnswerDrawing(width=self.width, theme=theme)
            drawing.extend(block.text)
        if not block.open:
            drawing.close(incomplete=block.incomplete)
        entry.head, entry.strips = drawing.finished(), drawing.open_strips()

    def _estimate(self, entry: LaidOutBlock) -> int:
        """Return how many lines an entry will take, about: without wrapping at words, and one line for most blocks."""
        block = entry.block
        if entry.folded:
            return 0
        if not self.width or not isinstance(block, AnswerBlock | UserBlock | NoticeBlock):
            return 1
        if can_open(block) and not entry.expanded:
            return FOLDED_LINES + 1
        room = max(1, self.width - GUTTER)
        return sum(1 + len(line) // room for line in block.text.split("\n"))

    def _reindex(self) -> None:
        self.index = {entry.block.id: index for index, entry in enumerate(self.entries)}


def _no_gap_between(above: LaidOutBlock, below: LaidOutBlock) -> bool:
    """Return True for two cards that are not open, of which the upper one has a single line: they stand together."""
    are_cards = isinstance(above.block, ToolCardBlock) and isinstance(below.block, ToolCardBlock)
    return are_cards and not (above.expanded or below.expanded) and above.height <= 1

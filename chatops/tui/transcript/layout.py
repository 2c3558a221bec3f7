"""Layout of a transcript: drawn lines, heights, and which blocks are still to be drawn.

A width change or a long history is not drawn at once. Blocks keep their last height, or get an estimate, until they
come near the view. Lines far from the view are dropped again and only heights are kept.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import assert_never

from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from chatops.domain.files import FileRef
from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.tools import Capabilities, built_in_capabilities
from chatops.domain.wording import plural
from chatops.tui.keys import key_of
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import AnswerDrawing, SegmentLines
from chatops.tui.transcript.blocks import (
    AnswerBlock,
    Block,
    NoticeBlock,
    ReasoningBlock,
    StepBlock,
    ToolCardBlock,
    UserBlock,
)
from chatops.tui.transcript.card import card_lines, may_fold
from chatops.tui.transcript.lines import GUTTER, PROSE, one_line, padded, prefixed, strips_of, styled, truncated, wrap
from chatops.tui.transcript.picture import PictureOf, picture_lines

_KEPT_AROUND = 1_000
"""Lines kept above and below the view once there are too many."""
_MAX_KEPT = 4_000
"""Maximum number of drawn lines kept, roughly 6 MB."""
_BLANK = Text(" " * GUTTER, end="")
_MAX_LINES = 12
"""Lines of a message of the user that are shown in full; a longer one is folded to `FOLDED_LINES`."""
_MAX_CHARACTERS = 2_000
FOLDED_LINES = 6
_GRANTS = " (/permissions)"
"""Command that lists suspended grants. Left out if it would take another line."""
_LAST_THOUGHTS = 12
"""Lines shown of the end of reasoning that is still growing."""


@dataclass(slots=True, eq=False)
class LaidOutBlock:
    """One block and its drawing. `drawn_at` is the width it was drawn for, 0 if the height is an estimate."""

    block: Block
    drawing: AnswerDrawing | None = None
    """Set for an answer only."""
    head: SegmentLines | None = None
    """The finished lines of an answer; `strips` then holds the lines after them."""
    strips: list[Strip] | None = None
    height: int = 0
    """Lines of the block itself, without the gap."""
    gap: int = 0
    """Empty lines before the block."""
    drawn_at: int = 0
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
        self.drawn_at = 0

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
    """A list of entries with the line at which each starts."""

    def __init__(self) -> None:
        self.entries: list[LaidOutBlock] = []
        self.index: dict[str, int] = {}
        self.width = 0
        self.theme: BlockTheme | None = None
        self.capabilities: Callable[[str], Capabilities] = built_in_capabilities
        """Returns the capabilities of a tool by its name."""
        self.pictures: PictureOf = lambda file: None
        """Returns what can be shown of an image."""
        self._starts = [0]
        self._kept = 0
        self._errors: list[Exception] = []

    def take_errors(self) -> list[Exception]:
        """Return the drawing errors since the last call. The blocks concerned are shown as their source text."""
        errors, self._errors = self._errors, []
        return errors

    @property
    def height(self) -> int:
        """Number of lines of all blocks, estimates included."""
        return self._starts[-1]

    def start(self, index: int) -> int:
        """Return the first line of an entry, after the gap before it."""
        return self._starts[index] + self.entries[index].gap

    def at(self, y: int) -> int:
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
        self.sum_from(0)

    def insert(self, block: Block, *, at: int) -> None:
        """Insert a block before the `at`-th entry."""
        entry = LaidOutBlock(block)
        entry.height = self._estimate(entry)
        self.entries.insert(at, entry)
        if at == len(self.entries) - 1:
            self.index[block.id] = at
        else:
            self._reindex()
        self.sum_from(min(at, self._fold_around(at)[0]))

    def remove(self, index: int) -> None:
        """Remove an entry."""
        del self.entries[index]
        self._reindex()
        self.sum_from(min(index, self._fold_around(index)[0]))

    def restyle(self, *, width: int, theme: BlockTheme) -> None:
        """Discard all drawings. Entries are drawn for `width` and `theme` when they come into view."""
        estimated = self.width == 0
        self.width, self.theme = width, theme
        self._kept = 0
        for entry in self.entries:
            entry.forget()
            if estimated:
                entry.height = self._estimate(entry)
        self.sum_from(0)

    def ensure(self, index: int) -> bool:
        """Draw an entry if needed. Return True if its height has changed; the caller must then call `sum_of`."""
        entry = self.entries[index]
        if self.theme is None or (entry.strips is not None and entry.drawn_at == self.width):
            return False
        try:
            self._draw(entry, self.theme)
        except Exception as error:
            self._errors.append(error)
            entry.forget()
            entry.strips = source_strips(entry.block, self.width, self.theme)
        entry.drawn_at = self.width
        height = entry.drawn
        changed = height != entry.height
        entry.height = height
        self._kept += entry.kept
        return changed

    def redraw(self, index: int) -> None:
        """Redraw an entry whose block or state has changed."""
        entry = self.entries[index]
        if entry.drawing is not None:
            # An answer only grows, so its finished lines stay valid.
            entry.strips = None
        else:
            entry.forget()
        first, last = self._fold_around(index)
        self.ensure(index)
        self.sum_of(min(first, index), max(last, index))

    def unfold(self, index: int) -> None:
        """Show the reads that are folded into an entry on lines of their own."""
        entries = self.entries[index : index + 1 + len(self.entries[index].further)]
        for entry in entries:
            entry.apart = True
        self.sum_of(*self._fold_around(index))

    def _fold_around(self, index: int) -> tuple[int, int]:
        """Fold the reads around an entry again after it has changed. Return the first and last one that may change."""
        first, end = index, min(index + 1, len(self.entries))
        while first > 0 and isinstance(self.entries[first - 1].block, ToolCardBlock):
            first -= 1
        while end < len(self.entries) and isinstance(self.entries[end].block, ToolCardBlock):
            end += 1
        self._fold_reads(first, end)
        return first, max(first, end - 1)

    def _fold_reads(self, first: int, end: int) -> None:
        """Fold each run of reads from `first` up to `end`, all of one tool, into its first one."""
        start = first
        while start < end:
            stop = start + 1
            if tool := self._foldable_tool(self.entries[start]):
                while stop < end and self._foldable_tool(self.entries[stop]) == tool:
                    stop += 1
            further = tuple(
                entry.block for entry in self.entries[start + 1 : stop] if isinstance(entry.block, ToolCardBlock)
            )
            for place in range(start, stop):
                entry, inner = self.entries[place], () if place > start else further
                if (entry.further, entry.folded) != (inner, place > start):
                    entry.further, entry.folded = inner, place > start
                    entry.forget()
                    # A line more or less is taken into account even where nothing is drawn yet.
                    entry.height = self._estimate(entry)
            start = stop

    def _foldable_tool(self, entry: LaidOutBlock) -> str:
        """Return the tool of an entry that may be folded together with those beside it; empty if it may not."""
        block = entry.block
        if entry.expanded or entry.apart or not isinstance(block, ToolCardBlock):
            return ""
        return block.tool if may_fold(block, self.capabilities(block.tool)) else ""

    def stale(self, *, top: int, bottom: int) -> Iterator[int]:
        """Yield the entries between two lines whose height is an estimate, from the lowest up."""
        if not self.entries:
            return
        for index in range(self.at(bottom), self.at(top) - 1, -1):
            if self.entries[index].drawn_at != self.width:
                yield index

    def line(self, y: int) -> Strip | None:
        """Return line `y`, drawing it if needed. None between blocks and below the end."""
        if not self.entries or not 0 <= y < self.height:
            return None
        index = self.at(y)
        if self.ensure(index):
            self.sum_of(index, index)
        entry = self.entries[index]
        offset = y - self.start(index)
        return entry.line(offset) if offset >= 0 else None

    def sum_from(self, index: int) -> None:
        """Recompute where entries start, from this entry on."""
        del self._starts[index + 1 :]
        self._sum(index, len(self.entries))

    def sum_of(self, first: int, last: int) -> None:
        """Recompute where entries start after the heights of these have changed. Those below only move."""
        # The gap below an entry depends on whether it is open.
        end = min(last + 2, len(self.entries))
        below = self._starts[end + 1 :]
        before = self._starts[end]
        del self._starts[first + 1 :]
        self._sum(first, end)
        moved = self._starts[-1] - before
        self._starts += [start + moved for start in below] if moved else below

    def _sum(self, first: int, end: int) -> None:
        total = self._starts[first]
        for place in range(first, end):
            entry = self.entries[place]
            entry.gap = 0 if place == 0 or entry.folded or _no_gap_between(self.entries[place - 1], entry) else 1
            total += entry.gap + entry.height
            self._starts.append(total)

    def drop_far_lines(self, *, top: int, bottom: int) -> None:
        """Bound memory: drop lines far from the view once there are too many."""
        if self._kept <= _MAX_KEPT:
            return
        self._kept = 0
        for index, entry in enumerate(self.entries):
            begin, end = self._starts[index], self._starts[index + 1]
            far = end < top - _KEPT_AROUND or begin > bottom + _KEPT_AROUND
            if far and entry.drawn_at:
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
                known=self.capabilities(block.tool) if isinstance(block, ToolCardBlock) else None,
                further=entry.further,
                pictures=self.pictures,
            )
            if entry.note is not None:
                indent = Text(" " * (GUTTER + 2), end="")
                lines += prefixed([entry.note], first=indent, rest=indent)
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
        self.index = {entry.block.id: place for place, entry in enumerate(self.entries)}


def _no_gap_between(above: LaidOutBlock, below: LaidOutBlock) -> bool:
    """Return True for two folded cards, which have no empty line between them if the first has only one line."""
    cards = isinstance(above.block, ToolCardBlock) and isinstance(below.block, ToolCardBlock)
    return cards and not above.expanded and not below.expanded and above.height <= 1


def source_strips(block: Block, width: int, theme: BlockTheme) -> list[Strip]:
    """Return the plain source text of a block that could not be drawn, because a bug must not hide it."""
    values = [
        getattr(block, field.name) for field in fields(block) if field.name not in ("id", "kind", "level", "status")
    ]
    text = "\n".join(value for value in values if isinstance(value, str) and value)
    source = styled(("! This could not be displayed. Source text:\n", theme.warn), (text, theme.text))
    return strips_of(
        prefixed(wrap(source, width=max(1, width - GUTTER)), first=_BLANK, rest=_BLANK), width=width, base=theme.base
    )


def can_open(block: Block) -> bool:
    """Return True if the block has details that are shown only on demand."""
    match block:
        case UserBlock():
            return block.text.count("\n") >= _MAX_LINES or len(block.text) > _MAX_CHARACTERS
        case StepBlock():
            return bool(block.text)
        case _:
            return isinstance(block, ToolCardBlock | ReasoningBlock)


def block_lines(
    block: UserBlock | ReasoningBlock | ToolCardBlock | RoleSwitchMessage | NoticeBlock | StepBlock,
    *,
    width: int,
    theme: BlockTheme,
    expanded: bool = False,
    known: Capabilities | None = None,
    further: Sequence[ToolCardBlock] = (),
    pictures: PictureOf = lambda file: None,
) -> list[Text]:
    """Return a block that is no answer in `width` columns, gutter included, without empty lines around it.

    `known` are the capabilities of the tool of a card; None: those of the built-in tool of its name. `further` are the
    cards that are folded into this one. `pictures` is asked for what can be shown of its images.

    Untrusted text is sanitised: no control character acts, and none is hidden.
    """
    room = max(1, width - GUTTER)
    prose = min(room, PROSE)
    match block:
        case UserBlock():
            bar = Text(theme.symbols.user.ljust(GUTTER), theme.role(block.role), end="")
            words = wrap(styled((block.text, theme.text), prose=True), width=prose)
            if can_open(block) and not expanded and (more := len(words) - FOLDED_LINES) > 0:
                rest = f"{theme.symbols.ellipsis} {plural(more, 'more line')} ({key_of('open-block')})"
                words[FOLDED_LINES:] = [Text(rest, theme.muted, end="")]
            named = [_file(file, width=prose, theme=theme) for file in block.files]
            named += picture_lines(block.files, pictures, width=prose, theme=theme)
            lines = prefixed([*words, *named], first=bar, rest=bar)
            return [padded(line, width=width, style=theme.user_text) for line in lines]
        case ReasoningBlock():
            lines = _thought(block, width=prose, theme=theme, expanded=expanded)
            return prefixed(lines, first=_BLANK, rest=_BLANK)
        case ToolCardBlock():
            lines = card_lines(block, width=room, theme=theme, expanded=expanded, capabilities=known, further=further)
            shown = picture_lines(block.files, pictures, width=max(1, prose - 2), theme=theme)
            lines += prefixed(shown, first=Text("  ", end=""), rest=Text("  ", end=""))
            return prefixed(lines, first=_BLANK, rest=_BLANK)
        case RoleSwitchMessage():
            return _divider(block, width=width, theme=theme)
        case NoticeBlock():
            return _notice(block, width=prose, theme=theme)
        case StepBlock():
            lines = _step(block, width=room, theme=theme, expanded=expanded)
            return prefixed(lines, first=_BLANK, rest=_BLANK)
        case _ as never:
            assert_never(never)


def _file(file: FileRef, *, width: int, theme: BlockTheme) -> Text:
    """Return one line about a file of a message."""
    text = truncated(one_line(file.attachment), width=width, ellipsis=theme.symbols.ellipsis)
    return Text(text, theme.warn if file.problem else theme.muted, end="")


def _thought(block: ReasoningBlock, *, width: int, theme: BlockTheme, expanded: bool) -> list[Text]:
    signs = theme.symbols
    words = len(block.text.split())
    sign = signs.unfolded if expanded else signs.folded
    state = f"thinking{signs.ellipsis}" if block.open else "thought"
    lines = [Text(f"{sign} {state} ({plural(words, 'word')})", theme.muted, end="")]
    if expanded:
        thought = styled((block.text.strip(), theme.muted + theme.emphasis), prose=True)
        shown = wrap(thought, width=width - 2)
        indent = Text("  ", end="")
        lines.extend(prefixed(shown[-_LAST_THOUGHTS:] if block.open else shown, first=indent, rest=indent))
    return lines


def _divider(block: RoleSwitchMessage, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return the line of a role switch. Tools that do not fit are counted: first the lost ones, then also the new."""
    lines: list[Text] = []
    for named in (2, 1, 0):
        lines = _switch(block, width=width, theme=theme, added=named > 0, removed=named > 1)
        if len(lines) == 1:
            break
    return lines


def _switch(block: RoleSwitchMessage, *, width: int, theme: BlockTheme, added: bool, removed: bool) -> list[Text]:
    """Return the line of a role switch, with the names of the tools that it adds and removes, or their number."""
    signs = theme.symbols
    gained = ", ".join(block.added) if added else plural(len(block.added), "tool")
    lost = ", ".join(block.removed) if removed else plural(len(block.removed), "tool")
    text = Text(f"{signs.rule * 2} ", theme.muted, end="")
    if block.before != block.after:
        text.append(one_line(block.before), theme.role(block.before)).append(f" {signs.arrow} ", theme.muted)
    text.append(one_line(block.after), theme.role(block.after))
    changes = [
        (f"+ {gained}" if block.added else "", theme.good),
        (f"{signs.minus} {lost}" if block.removed else "", theme.bad),
        (f"{plural(block.suspended, 'grant')} suspended" if block.suspended else "", theme.warn),
    ]
    for content, style in changes:
        if content:
            text.append(f" {signs.dot} ", theme.muted).append(one_line(content), style)
    if block.suspended and text.cell_len + len(_GRANTS) <= width - GUTTER - 1:
        text.append(_GRANTS, theme.muted)
    if block.model and text.cell_len + len(block.model) + 12 <= width:
        text.append(f" {signs.dot} model {one_line(block.model)}", theme.muted)
    indent = Text(" " * (GUTTER + 1), end="")
    lines = prefixed(wrap(text, width=width - GUTTER - 1), first=Text(end=""), rest=indent)
    last = lines[-1]
    if last.cell_len + 1 < width:
        last.append(" " + signs.rule * (width - last.cell_len - 1), theme.muted)
    return lines


def _step(block: StepBlock, *, width: int, theme: BlockTheme, expanded: bool) -> list[Text]:
    signs = theme.symbols
    sign = f"{signs.unfolded if expanded else signs.folded} " if can_open(block) else f"{signs.rule} "
    room = max(1, width - len(sign) - 1)
    title = truncated(one_line(block.title), width=room, ellipsis=signs.ellipsis)
    line = Text.assemble((sign, theme.muted), (title, theme.user), " ", end="")
    line.append(signs.rule * (width - line.cell_len), theme.muted)
    if not expanded:
        return [line]
    indent = Text("  ", end="")
    return [line, *prefixed(wrap(styled((block.text, theme.muted)), width=width - 2), first=indent, rest=indent)]


def _notice(block: NoticeBlock, *, width: int, theme: BlockTheme) -> list[Text]:
    sign, word, style = _level(block, theme)
    text = styled((f"{word}: " if word else "", style), (block.text, theme.text))
    lines = prefixed(wrap(text, width=width), first=Text(sign.ljust(GUTTER), style, end=""), rest=Text("  ", end=""))
    if parts := [block.advice] * bool(block.advice) + ["Press R to retry."] * block.retry:
        arrow = Text(f"  {theme.symbols.arrow} ", theme.muted, end="")
        advice = wrap(styled((" ".join(parts), theme.text)), width=width - 2)
        lines.extend(prefixed(advice, first=arrow, rest=Text(" " * arrow.cell_len, end="")))
    return lines


def _level(block: NoticeBlock, theme: BlockTheme) -> tuple[str, str, Style]:
    match block.level:
        case "info":
            return theme.symbols.dot, "", theme.muted
        case "warning":
            return "!", "Note", theme.warn
        case "error":
            return theme.symbols.failed, "Error", theme.bad
        case _ as never:
            assert_never(never)

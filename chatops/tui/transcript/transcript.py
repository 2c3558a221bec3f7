"""The session's transcript: blocks, the operations that change them, and a block that is selected.

One widget per message makes a long session slow, because layout visits all of them. Here one widget draws lines, and a
frame costs what has changed. See `viewport` for how.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, assert_never

from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from chatops.domain.events import CallProgressed, Published, ToolFinished
from chatops.domain.files import FileRef
from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.progress import Progress
from chatops.domain.tools import NO_CAPABILITIES, Capabilities
from chatops.tui.keys import KeyHint
from chatops.tui.notice import copy
from chatops.tui.ticker import Moving, frame_at
from chatops.tui.transcript.blocks import (
    AnswerBlock,
    Block,
    CardStatus,
    Extend,
    NoticeBlock,
    Op,
    Put,
    ReasoningBlock,
    Remove,
    ToolCardBlock,
    UserBlock,
)
from chatops.tui.transcript.finding import TextSearch, copied_text, noun_of
from chatops.tui.transcript.layout import can_open
from chatops.tui.transcript.lines import GUTTER, prefixed, strips_of
from chatops.tui.transcript.picture import PictureOf
from chatops.tui.transcript.sign import Sign, progress_text
from chatops.tui.transcript.viewport import MAX_ROWS_AFTER, Viewport

_TRIES = 4
"""Times that the view is moved to a place that moves with the heights of the blocks above it."""
_BLANK = Text(" " * GUTTER, end="")


def _runs(block: Block) -> bool:
    return isinstance(block, ToolCardBlock) and block.status is CardStatus.RUNNING


class Transcript(Viewport, Moving):
    """Shows blocks, which `apply` changes."""

    BINDINGS: ClassVar = [
        ("ctrl+up", "select_previous"),
        ("ctrl+down", "select_next"),
        ("ctrl+home", "scroll_home"),
        ("ctrl+end", "scroll_end"),
        ("space,ctrl+o", "open_block"),
        ("enter", "open_transcript"),
    ]

    @dataclass
    class Selected(Message):
        """Posted when a block is selected, or none any more."""

        block_id: str
        more: KeyHint
        """The key that opens more of it, and what it opens; empty if nothing."""

    @dataclass
    class FilesWanted(Message):
        """Posted to open files with another program."""

        files: tuple[FileRef, ...]

    @dataclass
    class DelegatedWanted(Message):
        """Posted to show what was done for a delegated call."""

        call_id: str

    @dataclass
    class Opened(Message):
        """Posted to show the source text of a message on a screen of its own."""

        title: str
        text: str

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, id: str | None = None) -> None:
        super().__init__(id=id)
        self.sign = Sign()
        """The sign where the answer will come."""
        self._clock = clock
        self.selected_block = ""
        """The id of the selected block, or an empty string."""
        self._places: TextSearch | None = None
        self._shown_place = ("", 0, 0)
        """The place found last: block, line of the block, and number within the line."""
        self._opened_for_place = ""
        """The block that was folded and is open because a place in it is shown."""
        self._calls: set[str] = set()
        """The cards of calls that run."""
        self._progress: dict[str, Progress] = {}
        """How far calls are, by their cards. `tick` draws it."""

    # Used by the screen

    @property
    def blocks(self) -> list[Block]:
        """The blocks as shown, including text that has streamed in."""
        return [entry.block for entry in self._blocks_layout.entries]

    def draw_by(self, capabilities: Callable[[str], Capabilities], pictures: PictureOf) -> None:
        """Look up capabilities of tools by the tool's name, and ask `pictures` for what can be shown of an image."""
        self._blocks_layout.capabilities, self._blocks_layout.pictures = capabilities, pictures

    def redraw_image(self, digest: str) -> None:
        """Draw the blocks with this image again, because more of it is known."""
        self._redraw_keeping_place(
            [one.id for one in self._with_files() if any(file.digest == digest for file in one.files)]
        )

    def digests(self) -> frozenset[str]:
        """Return the digests of all files that the blocks show."""
        return frozenset(file.digest for block in self._with_files() for file in block.files)

    def _with_files(self) -> list[ToolCardBlock | UserBlock]:
        return [block for block in self.blocks if isinstance(block, ToolCardBlock | UserBlock)]

    def set_blocks(self, blocks: Sequence[Block]) -> None:
        """Show these blocks instead and scroll to the end."""
        self.select_block("")
        self._blocks_layout.reset(list(blocks))
        self._calls = {block.id for block in blocks if _runs(block)}
        self._progress.clear()
        self._reserved = 0
        self.follow()
        self._draw_rest_later()

    def clear(self) -> None:
        """Remove all blocks."""
        self.set_blocks([])

    def apply(self, ops: Iterable[Op]) -> None:
        """Apply the operations, then redraw once."""
        if not self._blocks_layout.width:
            self._measure()
        touched: dict[str, None] = {}
        grown: set[str] = set()
        for op in ops:
            known = isinstance(op, Put) and op.block.id in self._blocks_layout.index
            keys = self._apply(op)
            touched.update(dict.fromkeys(keys))
            if not known:
                grown.update(keys)
        if not self.following:
            self._note_unseen((self._unseen | grown) & self._blocks_layout.index.keys())
        self._redraw_keeping_place([key for key in touched if key in self._blocks_layout.index])

    # What moves

    def show_sign(self, *, running: bool, role: str) -> None:
        """Show the sign where the answer will come if a turn of this role runs and awaits the model."""
        shown = self.sign.shown
        self.sign.run(running=running, role=role, now=self._clock())
        if self.sign.tick(self._clock()) or self.sign.shown != shown:
            self._show_changes()

    def show_work(self, progress: Progress | None) -> None:
        """Show how far long work of a command is; None at its end."""
        self.sign.work = progress
        if progress is None and self.sign.tick(self._clock()):
            self._show_changes()

    def follow_calls(self, batch: Iterable[Published]) -> None:
        """Take note of how far calls are. Call it once their cards are there."""
        layout = self._blocks_layout
        for published in batch:
            match published.event:
                case CallProgressed(id=key, progress=Progress() as progress):
                    block = layout.entries[layout.index[key]].block if key in layout.index else None
                    # A call that was given up may still work.
                    if isinstance(block, ToolCardBlock) and block.status in (CardStatus.UNSETTLED, CardStatus.RUNNING):
                        self._progress[key] = progress
                case CallProgressed(id=key) | ToolFinished(id=key):
                    self._progress.pop(key, None)
                    if self._note(key, None):
                        self._redraw_keeping_place([key])
                case _:
                    pass

    def _note(self, key: str, note: Text | None) -> bool:
        """Put a note below a card. Return True if it is another one than before."""
        index = self._blocks_layout.index.get(key)
        if index is None or self._blocks_layout.entries[index].note == note:
            return False
        self._blocks_layout.entries[index].note = note
        return True

    def _noted(self) -> list[str]:
        """Put a note below each card whose call has taken long to be so far. Return those with another note."""
        layout, now = self._blocks_layout, self._clock()
        if layout.theme is None:
            return []
        room = layout.width - GUTTER - 2
        return [
            key
            for key, progress in self._progress.items()
            if progress.is_due(now) and self._note(key, progress_text(progress, layout.theme, width=room, now=now))
        ]

    @property
    def moves(self) -> bool:
        """True while a call runs or the model is awaited."""
        return self.sign.running or bool(self._calls & self._blocks_layout.index.keys())

    def tick(self, *, second: bool) -> None:
        """Show the next frame of what moves, and the times once a second. No other cells are painted."""
        self._calls &= self._blocks_layout.index.keys()
        calm = self._blocks_layout.theme is None or not self._blocks_layout.theme.spinner
        noted = self._noted() if second or not calm else []
        if self.sign.tick(self._clock(), calm=calm) or noted or (second and self._calls):
            self._redraw_keeping_place({*noted, *(self._calls if second else ())})
        top, moving = self.scroll_offset.y, self._moving_lines()
        if not moving or calm:
            return
        rows = [y - top for y in moving if 0 <= y - top < len(self._rows)]
        for row in rows:
            self._rows[row] = self.line_at(top + row)
        if rows:
            self.refresh(*(Region(GUTTER, row, 1, 1) for row in rows))

    @property
    def rows_after(self) -> int:
        """Number of rows that the sign takes, with the empty line before it."""
        return MAX_ROWS_AFTER if self.sign.shown and not self._calls else 0

    def _moving_lines(self) -> list[int]:
        """Return the lines that have a moving sign."""
        layout = self._blocks_layout
        known = [layout.index[key] for key in (*self._calls, *self._progress) if key in layout.index]
        noted = [at for at in known if layout.entries[at].block.id in self._calls or layout.entries[at].note]
        lines = [layout.start(at) for at in dict.fromkeys(noted)]
        return [*lines, layout.height + self.rows_after - 1] if self.rows_after else lines

    def line_at(self, y: int) -> Strip | None:
        """Return line `y`, with the frame of this moment if something moves in it."""
        layout, strip = self._blocks_layout, super().line_at(y)
        theme = layout.theme
        if theme is None or not (self._calls or self._progress or self.rows_after) or y not in self._moving_lines():
            return strip
        frame = frame_at(self._clock(), theme.spinner)
        if y >= layout.height:
            line = prefixed(
                [self.sign.line(frame, theme, width=layout.width, now=self._clock())], first=_BLANK, rest=_BLANK
            )
            return strips_of(line, width=layout.width, base=theme.base)[0]
        if strip is None or not frame:
            return strip
        before, sign, after = strip.divide([GUTTER, GUTTER + 1, strip.cell_length])
        return Strip.join([before, Strip([Segment(frame, one.style) for one in sign][:1], 1), after])

    def toggle(self, block_id: str) -> None:
        """Open or fold a card or a thought. Does nothing for other blocks."""
        index = self._blocks_layout.index.get(block_id)
        if index is None or not can_open(self._blocks_layout.entries[index].block):
            return
        entry = self._blocks_layout.entries[index]
        if entry.further:
            self._unfold(index)
            return
        entry.expanded = not entry.expanded
        self._redraw_keeping_place([block_id])
        if not self.following:
            self._bring_into_view(index)

    def _unfold(self, index: int) -> None:
        """Show the reads of one line on lines of their own."""
        place = self._place()
        self._blocks_layout.unfold(index)
        self._show_changes(place=place)

    # Operations

    def _apply(self, op: Op) -> tuple[str, ...]:
        layout = self._blocks_layout
        match op:
            case Put(block=block, before=before):
                (self._calls.add if _runs(block) else self._calls.discard)(block.id)
                if (index := layout.index.get(block.id)) is None:
                    layout.insert(block, at=layout.index.get(before, len(layout.entries)))
                    return (block.id,)
                entry = layout.entries[index]
                shown, entry.block = entry.block, block
                if not isinstance(shown, AnswerBlock | ReasoningBlock) or replace(shown, open=False) != block:
                    entry.forget()
                return (block.id,)
            case Extend(id=key, text=text):
                return self._extend(key, text)
            case Remove(id=key):
                if (index := layout.index.get(key)) is not None:
                    if self.selected_block == key:
                        self.select_block("")
                    layout.remove(index)
                return ()
            case _ as never:
                assert_never(never)

    def _extend(self, key: str, text: str) -> tuple[str, ...]:
        index = self._blocks_layout.index.get(key)
        if index is None:
            return ()
        entry = self._blocks_layout.entries[index]
        if isinstance(entry.block, AnswerBlock | ReasoningBlock):
            entry.block = replace(entry.block, text=entry.block.text + text)
            if entry.drawing is not None:
                entry.drawing.extend(text)
        return (key,)

    # The selected block

    def follow(self) -> None:
        """Scroll to the end and stay there. No block is selected afterwards."""
        self.select_block("")
        super().follow()

    def action_select_previous(self) -> None:
        """Select the block above, starting from the newest one if none is selected."""
        self._select_beside(-1)

    def action_select_next(self) -> None:
        """Select the block below. After the newest one, scroll to the end."""
        self._select_beside(1)

    def action_open_block(self) -> None:
        """Open or fold the selected block, else the newest one that can be opened.

        A message that is not folded opens as its source.
        """
        layout = self._blocks_layout
        if self.selected_block in layout.index:
            block = layout.entries[layout.index[self.selected_block]].block
            if isinstance(block, UserBlock | AnswerBlock | NoticeBlock | RoleSwitchMessage) and not can_open(block):
                role = isinstance(block, RoleSwitchMessage)
                title = "Role switch" if role else noun_of(block).removeprefix("the ").capitalize()
                self.post_message(self.Opened(title, copied_text(block)))
            else:
                self.toggle(self.selected_block)
            return
        newest = (entry for entry in reversed(layout.entries) if can_open(entry.block) and not entry.folded)
        if (entry := next(newest, None)) is not None:
            self.toggle(entry.block.id)

    def copy_block(self) -> None:
        """Copy the selected block."""
        if self.selected_block in self._blocks_layout.index:
            layout = self._blocks_layout
            block = layout.entries[layout.index[self.selected_block]].block
            known = layout.capabilities(block.tool) if isinstance(block, ToolCardBlock) else NO_CAPABILITIES
            copy(self.app, copied_text(block, known), noun_of(block))

    def action_open_transcript(self) -> None:
        """Show what was done for the selected call if it has delegated, else open or fold a block."""
        if self._delegated():
            self.post_message(self.DelegatedWanted(self.selected_block))
        else:
            self.action_open_block()

    def open_files(self) -> None:
        """Open the files of the selected block."""
        if files := self._files():
            self.post_message(self.FilesWanted(files))

    def _more(self) -> KeyHint:
        if self._delegated():
            return KeyHint("enter", "open its transcript")
        return KeyHint("o", "open the file") if self._files() else KeyHint()

    def _delegated(self) -> bool:
        block = self._selected
        return isinstance(block, ToolCardBlock) and self._blocks_layout.capabilities(block.tool).delegates

    def _files(self) -> tuple[FileRef, ...]:
        """Return the files that are kept of the selected block."""
        files = block.files if isinstance(block := self._selected, ToolCardBlock | UserBlock) else ()
        return tuple(file for file in files if file.type and not file.problem)

    @property
    def _selected(self) -> Block | None:
        index = self._blocks_layout.index.get(self.selected_block)
        return self._blocks_layout.entries[index].block if index is not None else None

    def select_block(self, block_id: str) -> None:
        """Select a block and bring it into view. An empty id selects none."""
        layout = self._blocks_layout
        before, self.selected_block = self.selected_block, block_id if block_id in layout.index else ""
        if before != self.selected_block:
            self.post_message(self.Selected(self.selected_block, self._more()))
            self.refresh()
        if self.selected_block:
            self._bring_into_view(layout.index[self.selected_block])

    def _select_beside(self, step: int) -> None:
        layout, entries = self._blocks_layout, self._blocks_layout.entries
        place = layout.index.get(self.selected_block, len(entries))
        if self.following and place < layout.at(self.scroll_offset.y):
            # At the end of the transcript, a selected block far above is out of sight: start from the newest one
            # instead.
            place = len(entries)
        place += step
        while 0 <= place < len(entries):
            if not entries[place].folded:
                self.select_block(entries[place].block.id)
                return
            place += step
        if step > 0:
            self.follow()

    @property
    def is_marked(self) -> bool:
        """True if a block is selected, or places of a search or selected text are shown."""
        return bool(self.selected_block) or self._places is not None or super().is_marked

    def decorated(self, strip: Strip, y: int) -> Strip:
        """Return line `y` with the places of a search, and a mark in the gutter if its block is selected."""
        layout = self._blocks_layout
        if self._places is not None and layout.theme is not None:
            block_id, line, nth = self._shown_place
            shown = block_id in layout.index and layout.start(layout.index[block_id]) + line == y
            strip = self._places.drawn(strip, layout.theme, current=nth if shown else None)
        if self.selected_block not in layout.index or layout.theme is None:
            return strip
        index = layout.index[self.selected_block]
        start = layout.start(index)
        if not start <= y < start + layout.entries[index].height:
            return strip
        signs = layout.theme.symbols
        sign = signs.selected if y == start else signs.selected_more
        if isinstance(layout.entries[index].block, RoleSwitchMessage):
            # Its line starts in the gutter: keep the rest of that.
            sign += strip.crop(cell_len(sign), GUTTER).text if y == start else ""
        mark = Segment(sign.ljust(GUTTER), self._base_style + layout.theme.user)
        return Strip.join([Strip([mark], GUTTER), strip.crop(GUTTER)])

    def on_key(self, event: events.Key) -> None:
        """Copy the selected block on y, open its files on o, select none on Esc, while the transcript has the focus."""
        if self.selected_block and event.key in ("y", "o", "escape"):
            event.stop()
            self.press(event.key)

    def press(self, key: str) -> None:
        """Handle a key that another widget has got: it scrolls, or selects, opens or copies a block."""
        match key:
            case "pageup":
                self.action_page_up()
            case "pagedown":
                self.action_page_down()
            case "home" | "ctrl+home":
                self.action_scroll_home()
            case "end" | "ctrl+end":
                self.action_scroll_end()
            case "y":
                self.copy_block()
            case "o":
                self.open_files()
            case "enter":
                self.action_open_transcript()
            case "escape":
                self.select_block("")
            case "ctrl+up":
                self.action_select_previous()
            case "ctrl+down":
                self.action_select_next()
            case _:
                self.action_open_block()

    # Finding text

    @property
    def last_visible(self) -> int:
        """The number of the last block in view."""
        return self._blocks_layout.at(self.scroll_offset.y + self.size.height - 1)

    def show_places(self, search: TextSearch | None) -> None:
        """Mark the places of a search; None: mark nothing."""
        self._places, self._shown_place = search, ("", 0, 0)
        self.refresh()

    def show_place(self, block_id: str, number: int) -> None:
        """Bring a place of the search into view, the `number`-th of a block, and open the block if it is folded."""
        layout, search = self._blocks_layout, self._places
        if search is None or block_id not in layout.index:
            return
        self.following = False
        if self._opened_for_place not in ("", block_id):
            self._expand(self._opened_for_place, expanded=False)
            self._opened_for_place = ""
        index = layout.index[block_id]
        if layout.entries[index].folded:
            head = index
            while layout.entries[head].folded:
                head -= 1
            self._unfold(head)
        lines = self._lines_with(search, index)
        entry = layout.entries[index]
        if len(lines) < search.count_in(block_id) and can_open(entry.block) and not entry.expanded:
            self._expand(block_id, expanded=True)
            self._opened_for_place = block_id
            lines = self._lines_with(search, index)
        # A card names its subject twice, in its first line and below: the last places agree.
        line, nth = lines[max(0, len(lines) - search.count_in(block_id) + number)] if lines else (0, 0)
        # Blocks above get their real heights as they come into view, and move the place.
        for _ in range(_TRIES):
            y, top = layout.start(index) + line, self.scroll_offset.y
            if top <= y < top + self.size.height and layout.entries[index].drawn_at:
                break
            self._show_changes(place=(block_id, line))
            wanted = layout.start(index) + line - self.size.height // 3
            self.scroll_to(y=wanted, animate=False, immediate=True)
        self._shown_place = (block_id, line, nth)
        self.refresh()

    def _expand(self, block_id: str, *, expanded: bool) -> None:
        index = self._blocks_layout.index.get(block_id)
        if index is not None:
            self._blocks_layout.entries[index].expanded = expanded
            self._redraw_keeping_place([block_id])

    def _lines_with(self, search: TextSearch, index: int) -> list[tuple[int, int]]:
        """Return line and number within the line of each place that is drawn in a block."""
        layout = self._blocks_layout
        if layout.ensure(index):
            layout.sum_of(index, index)
        entry = layout.entries[index]
        strips = ((line, entry.line(line)) for line in range(entry.height))
        return [
            (line, nth) for line, strip in strips if strip is not None for nth, _ in enumerate(search.spans(strip.text))
        ]

    def _bring_into_view(self, index: int) -> None:
        layout = self._blocks_layout
        if layout.ensure(index):
            layout.sum_of(index, index)
            self._show_changes()
        begin = layout.start(index)
        end = begin + layout.entries[index].height
        top = self.scroll_offset.y
        if begin < top or end > top + self.size.height:
            wanted = begin if begin < top else min(begin, end - self.size.height)
            self.scroll_to(y=wanted, animate=False, immediate=True)

    def on_click(self, event: events.Click) -> None:
        """Open a folded card, or fold an open one on its first line. A click that ends a selection does nothing."""
        if self.text_selection is not None or not self._blocks_layout.entries:
            return
        offset = event.get_content_offset(self)
        if offset is None:
            return
        y = self.scroll_offset.y + offset.y
        if y >= self._blocks_layout.height:
            return
        index = self._blocks_layout.at(y)
        entry = self._blocks_layout.entries[index]
        folded = can_open(entry.block) and not entry.expanded
        if folded or (can_open(entry.block) and y == self._blocks_layout.start(index)):
            self.toggle(entry.block.id)

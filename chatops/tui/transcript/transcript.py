"""The session's transcript: blocks, the operations that change them, and a block that is selected.

One widget per message makes a long session slow, because layout visits all of them. Here one widget draws lines, and a
frame costs what has changed. See `viewport` for how.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, assert_never

from rich.segment import Segment
from textual import events
from textual.geometry import Offset, Region
from textual.message import Message
from textual.strip import Strip

from chatops.domain.events import Published
from chatops.domain.files import FileRef
from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.progress import Progress
from chatops.domain.tools import NO_CAPABILITIES, Capabilities
from chatops.tui.keys import KeyHint
from chatops.tui.notice import copy
from chatops.tui.ticker import Moving, frame_at
from chatops.tui.transcript.block_lines import PictureOf, can_open
from chatops.tui.transcript.blocks import (
    AnswerBlock,
    Block,
    Extend,
    Op,
    Put,
    ReasoningBlock,
    Remove,
    StepBlock,
    ToolCardBlock,
    UserBlock,
)
from chatops.tui.transcript.finding import TextSearch, copied_text, noun_of
from chatops.tui.transcript.lines import GUTTER, indented, strips_of, with_sign
from chatops.tui.transcript.places import ShownPlaces
from chatops.tui.transcript.running import RunningCalls
from chatops.tui.transcript.sign import Sign
from chatops.tui.transcript.viewport import MAX_ROWS_AFTER, Viewport


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
        self._places = ShownPlaces(self, self._blocks_layout)
        self._calls = RunningCalls(self._blocks_layout)

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
        self.redraw([block_id for block_id, file in self._files_of_blocks() if file.digest == digest])

    def digests(self) -> frozenset[str]:
        """Return the digests of all files that the blocks show."""
        return frozenset(file.digest for _, file in self._files_of_blocks())

    def _files_of_blocks(self) -> Iterator[tuple[str, FileRef]]:
        """Yield each file of a block, with the block's id."""
        for block in self.blocks:
            if isinstance(block, ToolCardBlock | UserBlock):
                yield from ((block.id, file) for file in block.files)

    def set_blocks(self, blocks: Sequence[Block]) -> None:
        """Show these blocks instead and scroll to the end."""
        self.select_block("")
        self._blocks_layout.reset(list(blocks))
        self._calls.clear()
        for block in blocks:
            self._calls.put(block)
        self._reserved = 0
        self.follow()
        self._draw_ahead_later()

    def apply(self, ops: Iterable[Op]) -> None:
        """Apply the operations, then redraw once."""
        if not self._blocks_layout.width:
            self._measure()
        layout = self._blocks_layout
        changed: dict[str, None] = {}
        """The ids of blocks to redraw, each once and in order."""
        arrived = set[str]()
        for op in ops:
            match op:
                case Put(block=block, before=before):
                    if block.id not in layout.index:
                        arrived.add(block.id)
                    self._put(block, before=before)
                    changed[block.id] = None
                case Extend(id=key, text=text):
                    self._extend(key, text)
                    changed[key] = None
                case Remove(id=key):
                    self._remove(key)
                case _ as never:
                    assert_never(never)
        self.redraw([key for key in changed if key in layout.index])
        if not self.following:
            self._note_unseen(arrived=arrived)

    def _put(self, block: Block, *, before: str) -> None:
        layout, entry = self._blocks_layout, self._blocks_layout.entry(block.id)
        if entry is None:
            layout.insert(block, index=layout.index.get(before, len(layout.entries)))
        else:
            old, entry.block = entry.block, block
            # An answer that is only closed keeps its drawing.
            if not isinstance(old, AnswerBlock | ReasoningBlock) or replace(old, open=False) != block:
                entry.forget()
        self._calls.put(block)

    def _extend(self, block_id: str, text: str) -> None:
        entry = self._blocks_layout.entry(block_id)
        if entry is not None and isinstance(entry.block, AnswerBlock | ReasoningBlock):
            entry.block = replace(entry.block, text=entry.block.text + text)
            if entry.drawing is not None:
                entry.drawing.extend(text)

    def _remove(self, block_id: str) -> None:
        if (index := self._blocks_layout.index.get(block_id)) is not None:
            if self.selected_block == block_id:
                self.select_block("")
            self._blocks_layout.remove(index)
            self._calls.remove(block_id)

    # What moves

    def show_sign(self, *, running: bool, role: str) -> None:
        """Show the sign where the answer will come if a turn of this role runs and awaits the model."""
        shown = self.sign.shown
        self.sign.run(running=running, role=role, now=self._clock())
        if self.sign.tick(self._clock()) or self.sign.shown != shown:
            self.show_changes()

    def show_work(self, progress: Progress | None) -> None:
        """Show how far long work of a command is; None at its end."""
        self.sign.work = progress
        if progress is None and self.sign.tick(self._clock()):
            self.show_changes()

    def follow_calls(self, batch: Iterable[Published]) -> None:
        """Take note of how far calls are. Call it once their cards are there."""
        if without_note := self._calls.follow(batch):
            self.redraw(without_note)

    @property
    def counts_seconds(self) -> bool:
        """True if a time of the turn that passes is in view: that of the sign, or that of a running call."""
        layout, top = self._blocks_layout, self.scroll_offset.y
        lines = [layout.start(layout.index[key]) for key in self._calls.cards]
        if self.rows_after and self.sign.work is None:
            lines.append(layout.height)
        return any(top <= y < top + self.size.height for y in lines)

    @property
    def moves(self) -> bool:
        """True while a call runs or the model is awaited."""
        return self.sign.running or bool(self._calls.cards)

    def tick(self, *, second: bool) -> None:
        """Show the next frame of what moves, and the times once a second. No other cells are painted."""
        now, theme = self._clock(), self._blocks_layout.theme
        # Where nothing is to move, only times and notes change, once a second.
        calm = theme is None or not theme.spinner
        changed = set(self._calls.update_notes(now)) if second or not calm else set[str]()
        if second:
            changed |= self._calls.cards
        if self.sign.tick(now, calm=calm) or changed:
            self.redraw(changed)
        if calm:
            return
        top = self.scroll_offset.y
        rows = [y - top for y in self._moving_lines() if 0 <= y - top < len(self._rows)]
        for row in rows:
            self._rows[row] = self.line_at(top + row)
        if rows:
            self.refresh(*(Region(GUTTER, row, 1, 1) for row in rows))

    @property
    def rows_after(self) -> int:
        """Number of rows that the sign takes, with the empty line before it. Cards of running calls have their own."""
        return MAX_ROWS_AFTER if self.sign.shown and not self._calls.cards else 0

    def _moving_lines(self) -> list[int]:
        """Return the lines that have a moving sign: those of cards, and the line of `sign`, which is the last one."""
        signs = [self._blocks_layout.height + self.rows_after - 1] if self.rows_after else []
        turn_works = self.sign.running and self.sign.work is None
        return [*self._calls.lines(turn_works=turn_works), *signs]

    def line_at(self, y: int) -> Strip | None:
        """Return line `y`, with the frame of this moment if something moves in it."""
        layout, strip = self._blocks_layout, super().line_at(y)
        theme = layout.theme
        if theme is None or y not in self._moving_lines():
            return strip
        frame = frame_at(self._clock(), theme.spinner)
        if y >= layout.height:
            line = self.sign.line(frame, theme, width=layout.width, now=self._clock())
            return strips_of(indented([line], columns=GUTTER), width=layout.width, base=theme.base)[0]
        if strip is None or not frame:
            return strip
        # The sign of a card is the cell after the gutter. The frame has its style.
        before, sign, after = strip.divide([GUTTER, GUTTER + 1, strip.cell_length])
        return Strip.join([before, Strip([Segment(frame, segment.style) for segment in sign][:1], 1), after])

    def toggle(self, block_id: str) -> None:
        """Open or fold a block that can be opened. Do nothing for any other."""
        entry = self._blocks_layout.entry(block_id)
        if entry is None or not can_open(entry.block):
            return
        index = self._blocks_layout.index[block_id]
        if entry.further:
            self.unfold(index)
            return
        entry.expanded = not entry.expanded
        self.redraw([block_id])
        if not self.following:
            self._bring_into_view(index)

    def _block(self, block_id: str) -> Block | None:
        return entry.block if (entry := self._blocks_layout.entry(block_id)) is not None else None

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
        block = self._block(self.selected_block)
        if block is None:
            entries = reversed(self._blocks_layout.entries)
            self.toggle(next((entry.block.id for entry in entries if can_open(entry.block) and not entry.folded), ""))
        elif can_open(block):
            self.toggle(block.id)
        elif not isinstance(block, StepBlock):  # All of a gate's step is its line.
            is_switch = isinstance(block, RoleSwitchMessage)
            title = "Role switch" if is_switch else noun_of(block).removeprefix("the ").capitalize()
            self.post_message(self.Opened(title, copied_text(block)))

    def copy_block(self) -> None:
        """Copy the selected block."""
        if (block := self._block(self.selected_block)) is not None:
            look_up = self._blocks_layout.capabilities
            capabilities = look_up(block.tool) if isinstance(block, ToolCardBlock) else NO_CAPABILITIES
            copy(self.app, copied_text(block, capabilities), noun_of(block))

    def action_open_transcript(self) -> None:
        """Show what was done for the selected call if it has delegated, else open or fold a block."""
        if self._is_delegation_selected():
            self.post_message(self.DelegatedWanted(self.selected_block))
        else:
            self.action_open_block()

    def open_files(self) -> None:
        """Open the files of the selected block."""
        if files := self._selected_files():
            self.post_message(self.FilesWanted(files))

    def _opening_key(self) -> KeyHint:
        """Return the key that opens more of the selected block; an empty one if there is no more."""
        if self._is_delegation_selected():
            return KeyHint("enter", "open its transcript")
        return KeyHint("o", "open the file") if self._selected_files() else KeyHint()

    def _is_delegation_selected(self) -> bool:
        block = self._block(self.selected_block)
        return isinstance(block, ToolCardBlock) and self._blocks_layout.capabilities(block.tool).delegates

    def _selected_files(self) -> tuple[FileRef, ...]:
        """Return the files that are kept of the selected block."""
        block = self._block(self.selected_block)
        files = block.files if isinstance(block, ToolCardBlock | UserBlock) else ()
        return tuple(file for file in files if file.type and not file.problem)

    def select_block(self, block_id: str) -> None:
        """Select a block and bring it into view. An empty id selects none."""
        layout = self._blocks_layout
        before, self.selected_block = self.selected_block, block_id if block_id in layout.index else ""
        if before != self.selected_block:
            self.post_message(self.Selected(self.selected_block, self._opening_key()))
            self.refresh()
        if self.selected_block:
            self._bring_into_view(layout.index[self.selected_block])

    @property
    def selected_place(self) -> Offset | None:
        """Place of the selected block's first line in view, on the screen; None if the block is out of view."""
        layout, region = self._blocks_layout, self.content_region
        if (index := layout.index.get(self.selected_block)) is None:
            return None
        y = layout.start(index) - self.scroll_offset.y
        is_in_view = y < region.height and y + layout.entries[index].height > 0
        return region.offset + Offset(GUTTER, max(0, y)) if is_in_view else None

    def _select_beside(self, by: int) -> None:
        """Select the block above (`by` is -1) or below (1) that has a line of its own."""
        layout, entries = self._blocks_layout, self._blocks_layout.entries
        index = layout.index.get(self.selected_block, len(entries))
        if self.following and index < layout.index_at(self.scroll_offset.y):
            # The view follows the end, and the selected block is out of sight above it: start from the newest one.
            index = len(entries)
        beside = (entries[at] for at in range(index + by, len(entries) if by > 0 else -1, by))
        if (wanted := next((entry for entry in beside if not entry.folded), None)) is not None:
            self.select_block(wanted.block.id)
        elif by > 0:
            self.follow()

    @property
    def is_marked(self) -> bool:
        """True if a block is selected, or places of a search or selected text are shown."""
        return bool(self.selected_block) or self._places.any_marked or super().is_marked

    def decorated(self, strip: Strip, y: int) -> Strip:
        """Return line `y` with the places of a search, and a mark in the gutter if its block is selected."""
        layout = self._blocks_layout
        strip = self._places.draw(strip, y)
        selected = layout.entry(self.selected_block)
        if layout.theme is None or selected is None:
            return strip
        start, signs = layout.start(layout.index[self.selected_block]), layout.theme.symbols
        if not start <= y < start + selected.height:
            return strip
        sign = signs.selected if y == start else signs.selected_more
        return with_sign(strip, sign, self._base_style + layout.theme.user)

    def on_key(self, event: events.Key) -> None:
        """Copy the selected block on y, open its files on o, select none on Esc, while the transcript has the focus."""
        if self.selected_block and event.key in ("y", "o", "escape"):
            event.stop()
            self.press(event.key)

    def press(self, key: str) -> None:
        """Handle a key that another widget has got: it scrolls, or selects, opens or copies a block."""
        actions: dict[str, Callable[[], None]] = {
            "pageup": self.action_page_up,
            "pagedown": self.action_page_down,
            "home": self.action_scroll_home,
            "ctrl+home": self.action_scroll_home,
            "end": self.action_scroll_end,
            "ctrl+end": self.action_scroll_end,
            "y": self.copy_block,
            "o": self.open_files,
            "enter": self.action_open_transcript,
            "escape": lambda: self.select_block(""),
            "ctrl+up": self.action_select_previous,
            "ctrl+down": self.action_select_next,
            "ctrl+o": self.action_open_block,
        }
        actions[key]()

    # Finding text

    @property
    def last_visible(self) -> int:
        """The index of the last block in view."""
        return self._blocks_layout.index_at(self.scroll_offset.y + self.size.height - 1)

    def show_places(self, search: TextSearch | None) -> None:
        """Mark the places of a search; None: mark nothing."""
        self._places.mark(search)
        self.refresh()

    def show_place(self, block_id: str, number: int) -> None:
        """Bring the place with this number in a block into view, and open the block if it is folded."""
        self._places.show(block_id, number)

    def _bring_into_view(self, index: int) -> None:
        layout = self._blocks_layout
        if layout.ensure(index):
            self.show_changes()
        begin = layout.start(index)
        end = begin + layout.entries[index].height
        top, height = self.scroll_offset.y, self.size.height
        if begin < top or end > top + height:
            self.scroll_to(y=begin if begin < top else min(begin, end - height), animate=False, immediate=True)

    def on_click(self, event: events.Click) -> None:
        """Open a folded card, or fold an open one on its first line. A click that ends a selection does nothing."""
        if self.text_selection is not None or not self._blocks_layout.entries:
            return
        offset = event.get_content_offset(self)
        if offset is None:
            return
        layout, y = self._blocks_layout, self.scroll_offset.y + offset.y
        if y >= layout.height:
            return
        index = layout.index_at(y)
        entry = layout.entries[index]
        is_heading = y == layout.start(index)
        if can_open(entry.block) and (is_heading or not entry.expanded):
            self.toggle(entry.block.id)

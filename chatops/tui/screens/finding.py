"""Finds a text in the transcript (ctrl+f)."""

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.tui.composer import ALONE_S, Composer
from chatops.tui.screens.drawing import TranscriptPresenter
from chatops.tui.text_fields import FindBar

if TYPE_CHECKING:
    from chatops.tui.text_fields import FindBar
    from chatops.tui.transcript.finding import TextSearch

_SLICE_S = 0.006
"""Longest time that a part of the search may delay keys."""
_PAUSE_S = 0.002
_MOST_NEAR = 500
"""Characters that tell a message from others with the same text."""


class FindPresenter:
    """Shows the find bar, searches in slices, and moves from place to place."""

    def __init__(self, screen: Screen[Any], composer: Composer, drawing: TranscriptPresenter) -> None:
        """Create it for the chat screen, its message field and its transcript."""
        self._screen = screen
        self._composer = composer
        self._drawing = drawing
        self._bar: FindBar | None = None
        self._search: TextSearch | None = None
        self._number = 0
        """The place that is shown, counted from 0."""
        self._from = 0
        """The block from which on the nearest place is looked for upwards."""
        self._letter, self._letter_at = "", 0.0
        """The `n` or `N` that was pressed last, which may start a message, and when."""

    async def open(self, text: str = "", near: str = "") -> None:
        """Let the user type a text to find. With `text`, find that, first in the message that contains `near`."""
        transcript = self._drawing.transcript
        if transcript is None:
            return
        self._from = transcript.last_visible
        # Its keys are letters, which are typed into the field now.
        transcript.select_block("")
        if self._bar is None:
            self._bar = FindBar(text, changed=self._changed, pressed=self._pressed, id="find")
            await self._screen.mount(self._bar, before="#queued")
        self._bar.edit(text or None)
        if text:
            self._bar.move()
            await self._find(text, near=near)

    def close(self) -> bool:
        """Close the bar and leave the view where it is. Return False if it was not open."""
        if self._bar is None:
            return False
        bar, self._bar, self._search = self._bar, None, None
        self._composer.focus()
        bar.remove()
        if self._drawing.transcript is not None:
            self._drawing.transcript.show_places(None)
        return True

    def _changed(self, text: str) -> None:
        """Find another text."""
        # What is typed here is not meant for a dialog that opens in the same moment.
        self._composer.note_typing()
        if self._search is None or text != self._search.wanted:
            self._screen.run_worker(partial(self._find, text), group="find", exclusive=True)  # type: ignore[arg-type]

    def _pressed(self, key: str, character: str) -> None:
        """Handle a key of the bar. A letter without a meaning starts a message, with an `n` or `N` right before it."""
        now = self._composer.note_typing()
        begun = self._letter if now - self._letter_at < ALONE_S else ""
        self._letter, self._letter_at = character if key else "", now
        match key:
            case "n" | "up":
                self._step(-1)
            case "N" | "down":
                self._step(1)
            case "pageup" | "pagedown":
                self._drawing.press(key)
            case _:
                if character and begun:
                    self._step(1 if begun == "n" else -1)
                self.close()
                if character:
                    self._composer.append_typed(f"{begun}{character}")

    async def _find(self, text: str, *, near: str = "") -> None:
        """Search all blocks, with pauses for keys, and show the nearest place."""
        from chatops.tui.transcript.finding import TextSearch, searched_text

        transcript, bar = self._drawing.transcript, self._bar
        if transcript is None or bar is None:
            return
        if not text:
            self._search = None
            transcript.show_places(None)
            bar.show_count("")
            return
        search, wanted = TextSearch(text), near[:_MOST_NEAR]
        chosen, end = None, time.perf_counter() + _SLICE_S
        for index, block in enumerate(transcript.blocks):
            if search.add(block, at=index) and wanted and wanted in searched_text(block):
                chosen = index
            if time.perf_counter() > end:
                await asyncio.sleep(_PAUSE_S)
                end = time.perf_counter() + _SLICE_S
        if bar is not self._bar:
            return
        self._search = search
        transcript.show_places(search)
        self._number = search.last_up_to(self._from) if chosen is None else search.first_in(chosen)
        self._show()

    def _step(self, by: int) -> None:
        if self._search is not None and len(self._search):
            self._number = (self._number + by) % len(self._search)
            self._show()

    def _show(self) -> None:
        """Show the present place and its number."""
        search, bar, transcript = self._search, self._bar, self._drawing.transcript
        if search is None or bar is None or transcript is None:
            return
        if not len(search):
            bar.show_count("not found")
            return
        bar.show_count(f"{self._number + 1:,} of {len(search):,}")
        transcript.show_place(*search.place(self._number))

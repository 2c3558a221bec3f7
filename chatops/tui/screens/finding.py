"""The bar that finds a text in the transcript (ctrl+f), and the presenter that opens it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input, Static

from chatops.tui.composer import ALONE_S, Composer
from chatops.tui.keys import BACK, KeyHint, KeyLegend
from chatops.tui.screens.drawing import TranscriptPresenter
from chatops.tui.text_fields import LineField
from chatops.tui.textual_internals import ErrorBoundary

if TYPE_CHECKING:
    from chatops.tui.transcript.finding import TextSearch
    from chatops.tui.transcript.transcript import Transcript

_HANDLED_KEYS = frozenset({"escape", "up", "down", "pageup", "pagedown"})
"""Keys that the bar takes while its field has the focus, and while it has the focus itself."""
_OLDER_NEWER = (KeyHint("n", "older"), KeyHint("N", "newer"))
_MOVING_KEYS = (
    KeyLegend([[*_OLDER_NEWER, KeyHint(does="edit", id="find"), BACK]]),
    KeyLegend([[*_OLDER_NEWER, BACK]], "  "),
    KeyLegend([[KeyHint("n N"), BACK]], "  "),
    KeyLegend([[KeyHint("n N Esc")]]),
)
_TYPING_KEYS = (
    KeyLegend([[KeyHint(does="Enter, then n N"), BACK]]),
    KeyLegend([[KeyHint(does="Enter, n N"), KeyHint("escape")]], "  "),
    KeyLegend([[KeyHint("enter"), KeyHint("escape")]], "  "),
    KeyLegend([[KeyHint("enter")]]),
)
"""The keys while the bar has the focus, and while its field has it: in fewer and fewer words."""
_CELLS_BESIDE = 15
"""Cells of the line outside count and keys: the label, the edges and some of the text."""
_MIN_WIDTH_WITH_NOUN = 60
"""Cells of the line from which on it says what is counted: places, where ``/search`` counts messages."""
_SLICE_S = 0.006
"""Seconds of the search between two pauses, in which keys have to wait."""
_PAUSE_S = 0.002
"""Seconds of a pause, in which keys are handled. With more, a long search takes longer."""
_LONGEST_NEAR = 500
"""Characters that tell a message from others with the same text."""


class FindBar(ErrorBoundary, Horizontal, can_focus=True):
    """Searches in slices, and moves from place to place.

    It is a field while the text is typed. After Enter the bar itself has the focus, and letters are keys.
    """

    # Here and not in app.tcss, because the start would parse it for a bar that is not there yet.
    DEFAULT_CSS = """
    FindBar {
        height: 1;
        padding: 0 1;
        & > * { height: 1; width: auto; }
        & #find-label, & #find-keys { color: $text-muted; }
        & #find-count { color: $text-warning; padding: 0 1; }
        & #find-keys { margin: 0 0 0 1; }
        & #find-text { width: 1fr; min-width: 8; padding: 0 1; border: none; background: $surface; }
        &:focus #find-text { text-style: dim; }
    }
    """

    def __init__(self, text: str, transcript: "Transcript", composer: Composer, *, close: Callable[[], object]) -> None:
        """Create it with a text to find. `close` removes it."""
        super().__init__(id="find")
        self._text = text
        self._transcript = transcript
        self._composer = composer
        self._close = close
        self._search: TextSearch | None = None
        """The places of the text; None while there is no text."""
        self._number = 0
        """The place that is shown, counted from 0."""
        self._from = 0
        """The index of the block from which on the nearest place is looked for upwards."""
        self._letter, self._letter_at = "", 0.0
        """The `n` or `N` that was pressed last, which may start a message, and when."""
        self._count = ""
        """The words that are shown for number and count of the places."""
        self._keys: Sequence[KeyLegend] = _TYPING_KEYS

    def compose(self) -> ComposeResult:
        """Yield label, field, count and keys."""
        yield Static("find", id="find-label")
        yield LineField(self._text, placeholder="text", id="find-text", compact=True)
        yield Static("", id="find-count", markup=False)
        yield Static("", id="find-keys")

    async def open(self, text: str, *, near: str, last: int) -> None:
        """Let the user type. With `text`, find that, first in the message that contains `near`; `last` is in view."""
        self._from, field = last, self.query_one(Input)
        field.value = text or field.value
        field.focus()
        if text:
            self.focus()
            await self._find(text, near=near)

    def on_focus(self) -> None:
        """Show the keys that move."""
        self._keys = _MOVING_KEYS
        self.show_keys()

    def on_blur(self) -> None:
        """Show the keys of the field."""
        self._keys = _TYPING_KEYS
        self.show_keys()

    @on(events.Resize)
    def show_keys(self) -> None:
        """Show the keys that act, in as many words as fit."""
        room = self.size.width - _CELLS_BESIDE - len(self._count)
        drawn = (legend.draw() for legend in self._keys)
        fitting = (keys for keys in drawn if keys.cell_length <= room)
        self.query_one("#find-keys", Static).update(next(fitting, ""))

    def _show_count(self, words: str) -> None:
        self.query_one("#find-count", Static).update(words)
        self._count = words
        self.show_keys()

    @on(Input.Changed)
    def typed(self, event: Input.Changed) -> None:
        """Find another text."""
        event.stop()
        # What is typed here is not meant for a dialog that opens in the same moment.
        self._composer.note_typing()
        if self._search is None or event.value != self._search.wanted:
            self.run_worker(partial(self._find, event.value), group="find", exclusive=True)  # type: ignore[arg-type]

    @on(Input.Submitted)
    def entered(self, event: Input.Submitted) -> None:
        """Move among the places from now on (Enter)."""
        event.stop()
        if event.value:
            self.focus()

    def on_key(self, event: events.Key) -> None:
        """Handle a key. A letter without a meaning starts a message, with an `n` or `N` right before it."""
        typed = event.character if self.has_focus and event.is_printable and event.character else ""
        enter = self.has_focus and event.key == "enter"
        if not (typed or enter or event.key in _HANDLED_KEYS):
            return
        event.stop()
        event.prevent_default()
        now = self._composer.note_typing()
        letter_before = self._letter if now - self._letter_at < ALONE_S else ""
        self._letter, self._letter_at = typed if typed in ("n", "N") else "", now
        match typed or event.key:
            case "n" | "up" | "enter":
                self._move(-1)
            case "N" | "down":
                self._move(1)
            case "pageup" | "pagedown" as key:
                self._transcript.press(key)
            case _:
                if typed and letter_before:
                    # It was the start of a message: take its move back.
                    self._move(1 if letter_before == "n" else -1)
                self._close()
                if typed:
                    self._composer.append_typed(f"{letter_before}{typed}")

    async def _find(self, text: str, *, near: str = "") -> None:
        """Search all blocks, with pauses for keys, and show the nearest place."""
        from chatops.tui.transcript.finding import TextSearch, searched_text

        transcript = self._transcript
        if not text:
            self._search = None
            transcript.show_places(None)
            self._show_count("")
            return
        search, wanted = TextSearch(text), near[:_LONGEST_NEAR]
        wanted_index, end = None, time.perf_counter() + _SLICE_S
        for index, block in enumerate(transcript.blocks):
            if search.add(block, index=index) and wanted and wanted in searched_text(block):
                wanted_index = index
            if time.perf_counter() > end:
                await asyncio.sleep(_PAUSE_S)
                end = time.perf_counter() + _SLICE_S
        if not self.is_attached:
            return
        self._search = search
        transcript.show_places(search)
        self._number = search.last_up_to(self._from) if wanted_index is None else search.first_from(wanted_index)
        self._move(0)
        if not len(search):
            self._show_count("not found")

    def _move(self, by: int) -> None:
        """Show the place `by` places on, and its number."""
        search = self._search
        if search is not None and len(search):
            self._number = (self._number + by) % len(search)
            noun = ""
            if self.size.width >= _MIN_WIDTH_WITH_NOUN:
                noun = " place" if len(search) == 1 else " places"
            self._show_count(f"{self._number + 1:,} of {len(search):,}{noun}")
            self._transcript.show_place(*search.place(self._number))


class FindPresenter:
    """Opens and closes the find bar."""

    def __init__(self, screen: Screen[Any], composer: Composer, drawing: TranscriptPresenter) -> None:
        """Create it for the chat screen, its message field and its transcript."""
        self._screen = screen
        self._composer = composer
        self._drawing = drawing
        self._bar: FindBar | None = None

    async def open(self, text: str = "", near: str = "") -> None:
        """Let the user type a text to find. With `text`, find that, first in the message that contains `near`."""
        transcript = self._drawing.transcript
        if transcript is None:
            return
        last = transcript.last_visible
        # Its keys are letters, which are typed into the field now.
        transcript.select_block("")
        if self._bar is None:
            self._bar = FindBar(text, transcript, self._composer, close=self.close)
            await self._screen.mount(self._bar, before="#queued")
        await self._bar.open(text, near=near, last=last)

    def close(self) -> bool:
        """Close the bar and leave the view where it is. Return False if it was not open."""
        bar, self._bar = self._bar, None
        if bar is None:
            return False
        self._composer.focus()
        bar.remove()
        if self._drawing.transcript is not None:
            self._drawing.transcript.show_places(None)
        return True

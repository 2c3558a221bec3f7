"""The body of a dialog that decides: title, list of calls, payload, note and keys, fitted into the window.

Where there is no room for all of them, the list of calls goes first, then the note gets shorter. The keys and a part of
the payload always stay. The payload itself knows if its end was on the screen.
"""

import textwrap
from collections.abc import Callable

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.tui.dialogs.dialog_keys import Room
from chatops.tui.dialogs.modal import TALL
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.dialogs.rows import too_narrow_for_sides
from chatops.tui.textual_internals import toast_rows

MIN_WIDTH, MIN_HEIGHT = 20, 6
"""Cells below which nothing can be shown, and therefore nothing approved."""
_MAX_NOTE_LINES = 4
"""Maximum lines of a note, as in ``dialogs.tcss``."""
_PAYLOAD_LINES_BESIDE_LIST = 4
"""Lines of the payload that must have room below the list of calls. Otherwise the list is left out."""
_NARROWEST, _WIDEST = 80, 110
"""Columns between which a dialog is as wide as its text. It is never wider than the window."""
_NARROW_WIDTH, _NARROW_HEIGHT = 50, TALL
"""Columns and lines of a window. With fewer of either, a dialog fills it, without frame and list of calls.

The class ``-narrow`` says so, also where the window is only low.
"""
PAUSES = "Keys act after a short pause."
"""On the border, where it moves no line, or else in place of the keys."""
_FRAME_CELLS = 4
"""Cells of a line taken by a dialog's border and padding."""
_FRAME_LINES = 5
"""Lines taken by a dialog's border, padding and title."""


@frozen_dataclass
class DialogFrame:
    """What a dialog shows around its payload beside its keys: title and list of calls."""

    title: str | Content
    waits: bool = True
    """True while the subject waits for an answer. Otherwise no key decides, and the legend names no pause."""
    calls: Content | None = None
    """The list of calls, if there are several."""


class DialogBody(Vertical):
    """The widgets of a dialog. It draws what its dialog gives it, and asks for that when the room changes."""

    def __init__(self, redraw: Callable[[], None], *, page_key: str) -> None:
        """Create it. `redraw` calls `draw`; `page_key` is named for the next page."""
        super().__init__(id="dialog")
        self._redraw = redraw
        self._page_key = page_key
        self.side_by_side = False
        """True if diffs are shown side by side."""
        self._title: str | Content | None = None
        """None until the first drawing."""
        self._refusal = ""
        """Why the last key was not taken. It stands on the border, where it moves no line."""
        self._pauses = False
        """True while the keys that decide do not act yet."""
        self._notice_lines = 0
        """Lines that notices took above the dialog when it was fitted into the window."""

    def compose(self) -> ComposeResult:
        """Yield title, list of calls, payload, note and keys."""
        yield Static("", id="dialog-title", markup=False)
        yield Static("", id="dialog-calls", markup=False)
        yield PayloadView(id="dialog-payload")
        yield Static("", id="dialog-note", markup=False)
        yield Static("", id="dialog-keys", markup=False)
        yield Static("", id="dialog-small", markup=False)

    def on_mount(self) -> None:
        """Follow what changes the room and the place in the payload."""
        self.screen.screen_layout_refresh_signal.subscribe(self, self._laid_out)
        self.watch(self.payload, "scroll_y", self._scrolled_to, init=False)

    @property
    def payload(self) -> PayloadView:
        """The view that shows the subject of the decision."""
        return self.query_one(PayloadView)

    # The room

    @property
    def too_small(self) -> bool:
        """True if the window is too small to show the dialog."""
        return self.screen.size.width < MIN_WIDTH or self.screen.size.height < MIN_HEIGHT

    @property
    def room(self) -> Room:
        """How many words the legend has room for."""
        if self.screen.has_class("-lowest"):
            return Room.LOWEST
        return Room.NARROW if self.has_class("-narrow") else Room.USUAL

    @property
    def line_width(self) -> int:
        """Cells in a line of the dialog."""
        width = self.screen.size.width
        return max(1, width if self.has_class("-narrow") else min(width, self._max_width) - _FRAME_CELLS)

    @property
    def _max_width(self) -> int:
        """Columns that the dialog may have: what its text needs; all on the full screen or with two sides."""
        if self.has_class("-full") or self.has_class("-wide"):
            return self.screen.size.width
        # The scrollbar takes a column too.
        return max(_NARROWEST, min(_WIDEST, self.payload.widest + 1 + _FRAME_CELLS))

    def fit(self) -> None:
        """Adapt to the size of the window."""
        size = self.screen.size
        self.set_class(size.width < _NARROW_WIDTH or size.height < _NARROW_HEIGHT, "-narrow")
        self.set_class(self.too_small, "-too-small")

    def _laid_out(self, _: object) -> None:
        """Fit the dialog again when the notices above it change, so that its keys stay on screen."""
        if self._title is not None and toast_rows(self.screen) != self._notice_lines:
            self.call_later(self._redraw)

    @on(PayloadView.Wrapped)
    def payload_wrapped(self, event: PayloadView.Wrapped) -> None:
        """Redraw the frame for another number of payload lines."""
        event.stop()
        self._redraw()

    # Full screen, side by side

    @property
    def sides_label(self) -> str | None:
        """The label of the key that shows diffs side by side; None if the window is too narrow."""
        if too_narrow_for_sides(self.screen.size.width):
            return None
        return "one column" if self.side_by_side else "side by side"

    @property
    def full_label(self) -> str | None:
        """The label of the key that switches the full screen; None if it has no effect in this window."""
        return "smaller" if self.has_class("-full") else "full screen" if self._can_grow else None

    def toggle_full(self) -> None:
        """Give the payload the whole window, or back only what it needs. Do nothing where that is the same."""
        if self._can_grow or self.has_class("-full"):
            self.toggle_class("-full")
            self.call_after_refresh(self._redraw)

    @property
    def _can_grow(self) -> bool:
        shows_list = self.query_one("#dialog-calls").display
        return not self.has_class("-narrow") and (shows_list or self.screen.size.width > self._max_width)

    # Drawing

    def draw(self, frame: DialogFrame, *, note: str, refusal: str, pauses: bool, keys: Content, key_rows: int) -> None:
        """Draw everything around the payload. The keys keep `key_rows` lines, so that no line of the payload moves."""
        size, narrow = self.screen.size, self.has_class("-narrow")
        # A low or narrow window has no border, so the refusal stands in the note.
        self._refusal, self._pauses = "" if narrow else refusal, pauses
        note = ". ".join(filter(None, (refusal, note))) if narrow else note
        self.styles.width = size.width if narrow else min(size.width, self._max_width)
        self.query_one("#dialog-keys").styles.min_height = key_rows
        height = size.height - toast_rows(self.screen)
        around = _FRAME_LINES + key_rows
        # One line stays for the payload, and one for the empty line above the note.
        around += self._fit_note(note, most=height - around - 2)
        # The list has an empty line below it. It may go, because the title tells which call is shown.
        list_rows = frame.calls.plain.count("\n") + 2 if frame.calls is not None else 0
        may_have_list = not (narrow or self.has_class("-full"))
        shows_list = list_rows > 0 and may_have_list and height - around - list_rows >= _PAYLOAD_LINES_BESIDE_LIST
        self._put("#dialog-calls", frame.calls or "", shown=shows_list)
        self._put("#dialog-note", note, shown=bool(note))
        self._put("#dialog-keys", keys)
        self._fit_payload(around=around + (list_rows if shows_list else 0))
        self._title = frame.title
        self._name_scroll_keys()
        small = f"Make the window larger: at least {MIN_WIDTH}x{MIN_HEIGHT}. Nothing is decided."
        self._put("#dialog-small", small)

    def _scrolled_to(self, _: float) -> None:
        self.call_after_refresh(self._name_scroll_keys)

    def _name_scroll_keys(self) -> None:
        """Say that keys wait, and how to scroll if the payload continues: on the border, or else beside the title."""
        if self._title is None or not self.is_attached:
            return
        more = f"{self._page_key} more below · G end" if self.payload.continues_below else ""
        title = self._title if isinstance(self._title, Content) else Content(self._title)
        texts = Content.styled(self._refusal, "bold $text-warning"), Content(more), Content(PAUSES * self._pauses)
        parts = [text for text in texts if text]
        while len(parts) > 1 and Content("   ").join(parts).cell_length > self.line_width:
            parts.pop()
        self.border_subtitle = Content("   ").join(parts)
        gap = self.line_width - title.cell_length - len(more)
        if more and self.has_class("-narrow") and gap > 1:
            title = Content.assemble(title, " " * gap, (more, "not bold $text-muted"))
        self._put("#dialog-title", title)

    def _fit_note(self, note: str, *, most: int) -> int:
        """Limit the note to `most` lines, but at least one. Return its lines with the empty one above; 0 without it."""
        if not note or self.has_class("-narrow"):
            return 0
        rows = max(1, min(_MAX_NOTE_LINES, most, len(textwrap.wrap(note, self.line_width))))
        self.query_one("#dialog-note").styles.max_height = rows
        return 1 + rows

    def _fit_payload(self, *, around: int) -> None:
        """Make the payload as high as it needs, but keep the `around` other lines, including the keys, on screen."""
        view, self._notice_lines = self.payload, toast_rows(self.screen)
        if self.has_class("-narrow"):
            view.styles.height = "1fr"
            return
        available = self.screen.size.height - self._notice_lines - around
        view.styles.height = max(1, available if self.has_class("-full") else min(view.total_lines, available))

    def _put(self, where: str, text: str | Content, *, shown: bool = True) -> None:
        """Show a text in one of the widgets. In a window that is too small, only the one that says so is visible."""
        widget = self.query_one(where, Static)
        widget.update(text if isinstance(text, Content) else Content(text))
        may_show = self.too_small if where == "#dialog-small" else not self.too_small
        widget.display = shown and may_show

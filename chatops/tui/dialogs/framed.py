"""A dialog drawn to fit its window: title, payload, a line for notes, the keys. It knows how to scroll."""

import textwrap
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from chatops.tui.dialogs.dialog_keys import Room
from chatops.tui.dialogs.modal import Modal
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.dialogs.rows import missing_columns
from chatops.tui.notice import show_notice
from chatops.tui.textual_internals import toast_rows

MIN_WIDTH, MIN_HEIGHT = 20, 6
"""Cells below which nothing can be shown, and therefore nothing approved."""
NOTE_ROWS = 4
"""Maximum lines of a note, as in ``dialogs.tcss``."""
LEAST_PAYLOAD = 4
"""Lines of the payload that are worth more than the list of calls."""
_LEAST_WIDTH, _MAX_WIDTH = 80, 110
"""Columns between which a dialog is as wide as its text."""
_SIDES = 4
"""Cells taken by a dialog's border and padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogFrame:
    """What a dialog shows around its payload beside its keys: title and list of calls."""

    title: str | Content
    waits: bool = True
    """False if the subject has its answer, so that keys need no pause."""
    calls: Content | None = None
    """The list of calls, if there are several."""


class FramedDialog(Modal[None]):
    """Title, payload, a line for notes, keys. A subclass defines `frame`."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = ""
    PAGE_KEY: ClassVar[str] = "Space"
    """The key that is named for the next page."""

    def __init__(self) -> None:
        super().__init__()
        self._title: str | Content = ""
        self._note = ""
        self._drawn = False
        """True once there are widgets to draw on. The session continues while the dialog is being built."""
        self._finished = False
        self._side_by_side = False
        self._fitted_below = 0
        """Lines above the dialog that were taken when it was fitted into the window."""

    def compose(self) -> ComposeResult:
        """Yield title, list of calls, payload, note and keys."""
        with Vertical(id="dialog"):
            yield Static("", id="dialog-title", markup=False)
            yield Static("", id="dialog-calls", markup=False)
            yield PayloadView(id="dialog-payload")
            yield Static("", id="dialog-note", markup=False)
            yield Static("", id="dialog-keys", markup=False)
        yield Static("", id="dialog-small", markup=False)

    def on_mount(self) -> None:
        """Follow what changes the room and the place in the payload."""
        self.screen_layout_refresh_signal.subscribe(self, self._laid_out)
        self.watch(self.payload, "scroll_y", self._scrolled_to, init=False)

    def frame(self) -> DialogFrame | None:
        """Return the texts around the payload, or None if there is nothing to show."""
        raise NotImplementedError

    def show(self) -> None:
        """Draw the subject."""
        raise NotImplementedError

    def legend_lines(self, frame: DialogFrame) -> tuple[Content, int]:
        """Return the legend and its lines. These stay as many, so that none of the payload goes out of sight."""
        raise NotImplementedError

    @property
    def notes(self) -> str:
        """The text for the line of notes."""
        return self._note

    def scrolled(self, key: str) -> bool:
        """Scroll if the key scrolls. Return False if it does not."""
        view = self.payload
        match key:
            case "up" | "k":
                view.scroll_to(y=view.scroll_offset.y - 1, animate=False)
            case "down" | "j":
                view.scroll_to(y=view.scroll_offset.y + 1, animate=False)
            case "pageup":
                view.page(-1)
            case "pagedown" | "space":
                view.page(1)
            case "home" | "g":
                view.scroll_to(y=0, animate=False)
            case "end" | "G":
                view.scroll_to(y=view.max_scroll_y, animate=False)
            case _:
                return False
        self.call_after_refresh(self.show_frame)
        return True

    def _scrolled_to(self, _: float) -> None:
        self.call_after_refresh(self._name_scroll_keys)

    # Drawing

    @property
    def payload(self) -> PayloadView:
        """The view that shows the subject of the decision."""
        return self.query_one(PayloadView)

    @property
    def can_draw(self) -> bool:
        """True while the dialog is on screen and stays there."""
        return self._drawn and self.is_attached and not self._finished

    @property
    def too_small(self) -> bool:
        """True if the window is too small to show the dialog."""
        return self.size.width < MIN_WIDTH or self.size.height < MIN_HEIGHT

    def _laid_out(self, _: object) -> None:
        """Fit the dialog again when the notices above it change, so that its keys stay on screen."""
        if toast_rows(self) != self._fitted_below and self.can_draw:
            self.call_later(self.show_frame)

    @on(PayloadView.Wrapped)
    def payload_wrapped(self, event: PayloadView.Wrapped) -> None:
        """Redraw the frame for another number of payload lines."""
        event.stop()
        self.show_frame()

    def fit(self) -> None:
        """Adapt to the size of the window."""
        self.set_class(self.size.width < 50 or self.size.height < 16, "-narrow")
        self.set_class(self.too_small, "-too-small")

    def show_frame(self) -> None:
        """Draw everything around the payload."""
        frame = self.frame() if self.can_draw else None
        if frame is None:
            return
        width = self.size.width if self.has_class("-narrow") else min(self.size.width, self._most_width)
        self.query_one("#dialog").styles.width = width
        keys, key_rows = self.legend_lines(frame)
        self.query_one("#dialog-keys").styles.min_height = key_rows
        around = 5 + key_rows
        around += self._fit_note(most=self.size.height - toast_rows(self) - around - 2)
        rows = frame.calls.plain.count("\n") + 2 if frame.calls is not None else 0
        # The keys and some lines of the payload come first; the title tells which call is shown.
        room = self.size.height - toast_rows(self) - around - rows
        listed = frame.calls is not None and not self._payload_only and room >= LEAST_PAYLOAD
        self._put("#dialog-calls", frame.calls or "", shown=listed)
        self._put("#dialog-note", self.notes, shown=bool(self.notes))
        self._put("#dialog-keys", keys)
        self._fit_payload(around=around + (rows if listed else 0))
        self._title = frame.title
        self._name_scroll_keys()
        small = f"Make the window larger: at least {MIN_WIDTH}x{MIN_HEIGHT}. Nothing is decided."
        self._put("#dialog-small", small, shown=self.too_small)

    def _name_scroll_keys(self) -> None:
        """Say how to scroll where the payload continues below: on the border, or else beside the title."""
        if not self.can_draw:
            return
        more = f"{self.PAGE_KEY} more below · G end" if self.payload.continues_below else ""
        title = self._title if isinstance(self._title, Content) else Content(self._title)
        self.query_one("#dialog").border_subtitle = Content(more)
        room = self.line_width - title.cell_length - len(more)
        if more and self.has_class("-narrow") and room > 1:
            title = Content.assemble(title, " " * room, (more, "not bold $text-muted"))
        self._put("#dialog-title", title)

    @property
    def line_width(self) -> int:
        """Cells in a line of the dialog."""
        if self.has_class("-narrow"):
            return max(1, self.size.width)
        return max(1, min(self.size.width, self._most_width) - _SIDES)

    @property
    def _most_width(self) -> int:
        """Columns that the dialog may have: what its text needs; all on the full screen or with two sides."""
        if self.has_class("-full") or self.has_class("-wide"):
            return self.size.width
        return max(_LEAST_WIDTH, min(_MAX_WIDTH, self.payload.widest + 1 + _SIDES))

    @property
    def _payload_only(self) -> bool:
        return self.has_class("-narrow") or self.has_class("-full")

    def _toggle_full(self) -> None:
        """Give the payload the whole window, or back only what it needs. Do nothing where that is the same."""
        if self._can_grow or self.has_class("-full"):
            self.toggle_class("-full")
            self.call_after_refresh(self.show_frame)

    @property
    def _can_grow(self) -> bool:
        lists = self.query_one("#dialog-calls").display
        return not self.has_class("-narrow") and (lists or self.size.width > self._most_width)

    @property
    def room(self) -> Room:
        """The room for the legend."""
        if self.has_class("-lowest"):
            return Room.LOWEST
        return Room.NARROW if self.has_class("-narrow") else Room.USUAL

    @property
    def sides_label(self) -> str | None:
        """What the key does that shows diffs side by side; None if there is no room for it."""
        return None if missing_columns(self.size.width) else "one column" if self._side_by_side else "side by side"

    def _toggle_sides(self) -> None:
        if not self._side_by_side and (missing := missing_columns(self.size.width)):
            show_notice(self.app, missing)
        else:
            self._side_by_side = not self._side_by_side
            self._note = ""
            self.show()

    @property
    def full_label(self) -> str | None:
        """What the key of the full screen does; None if it has no effect in this window."""
        return "smaller" if self.has_class("-full") else "full screen" if self._can_grow else None

    def _fit_note(self, *, most: int) -> int:
        """Limit the note to `most` lines, but at least one. Return its lines with the empty one above; 0 without it."""
        if not self.notes or self.has_class("-narrow"):
            return 0
        rows = max(1, min(NOTE_ROWS, most, len(textwrap.wrap(self.notes, self.line_width))))
        self.query_one("#dialog-note").styles.max_height = rows
        return 1 + rows

    def _fit_payload(self, *, around: int) -> None:
        """Make the payload as high as it needs, but keep the `around` other lines, including the keys, on screen."""
        view, self._fitted_below = self.payload, toast_rows(self)
        if self.has_class("-narrow"):
            view.styles.height = "1fr"
            return
        room = self.size.height - self._fitted_below - around
        view.styles.height = max(1, room if self.has_class("-full") else min(view.total_lines, room))

    def _put(self, where: str, text: str | Content, *, shown: bool = True) -> None:
        """Show a text in one of the frame's widgets."""
        part = self.query_one(where, Static)
        part.update(text if isinstance(text, Content) else Content(text))
        part.display = shown

    def show_note(self, text: str) -> None:
        """Show a note inside the dialog."""
        self._note = text
        self.show_frame()

    def show_note_or_notice(self, text: str) -> None:
        """Show a note inside the dialog, or a notice if it is closed already."""
        if self.can_draw:
            self.show_note(text)
        else:
            show_notice(self.app, text)

    def finish(self) -> None:
        """Close the dialog, after a form or the help on top of it: what is typed there is not meant for the message."""
        self._finished = True
        self.dismiss(None)

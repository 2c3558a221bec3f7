"""Base of the dialogs that need a decision: frame, payload, and keys that act only when meant.

No key acts before a pause of half a second. Typing that began before the dialog opened, and pastes, go to the message
field. After the pause, a key without a meaning restarts the pause, because it may be the start of a word.
"""

import math
import textwrap
import time
from dataclasses import dataclass
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from chatops.tui.composer.composer import Composer
from chatops.tui.dialogs.diff_rows import missing_columns
from chatops.tui.dialogs.key_guard import GRACE_S, KeyGuard, ShowsLate
from chatops.tui.dialogs.modal import Modal
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.keys import KeyGroup, wrapped_legend
from chatops.tui.notice import show_notice
from chatops.tui.textual_internals import toast_rows

STROKE_S = 0.08
"""Seconds in which no other key may follow an answering key.

Text pasted into a terminal that does not mark pastes, or sent by a script, follows its first character at once.
"""
MIN_WIDTH, MIN_HEIGHT = 20, 6
"""Cells below which nothing can be shown, and therefore nothing approved."""
_LINE_ENDS = ("enter", "ctrl+j", "shift+enter", "alt+enter")
"""Keys that end a line of typing that goes to the message. None of them sends it while a dialog has the keyboard."""
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
    """The texts of a dialog around its payload: title, list of calls and keys."""

    title: str | Content
    keys: str
    """The key legend."""
    keys_when_read: str = ""
    """The legend once all was read, if it differs. Its lines are kept free from the start."""
    waits: bool = True
    """False if the subject has its answer, so that keys need no pause."""
    calls: Content | None = None
    """The list of calls, if there are several."""


class GuardedDialog(Modal[None]):
    """Title, payload, a line for notes, keys. A subclass defines `frame` and `answer`."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = ""
    DECIDING: ClassVar[frozenset[str]] = frozenset()
    """Keys that answer."""
    AT_ONCE: ClassVar[frozenset[str]] = frozenset("jk ")
    """Characters that act at once. All others wait `STROKE_S` seconds, because they may start a paste."""

    KEY_GROUP: ClassVar[KeyGroup] = "dialog"
    """The keys that F1 lists first."""

    class HelpWanted(Message):
        """Posted on F1 and ?. The help lists `key_group` first."""

        def __init__(self, key_group: KeyGroup) -> None:
            super().__init__()
            self.key_group = key_group

    def __init__(self, composer: Composer) -> None:
        """Create the dialog. Keys and pastes not meant for it go to `composer`, so that nothing typed is lost."""
        super().__init__()
        self._composer = composer
        self._guard = KeyGuard(composer.clock)
        self._typed_at = composer.typed_at
        self._typing = True
        """True if a key that comes too early belongs to the message: it continues earlier typing, or a paste."""
        self._note = ""
        self._typed_here = False
        """True once a key pressed here went to the message. Keys that delete follow it."""
        self._rearmed: Timer | None = None
        self._held = ""
        """An answering key that was just pressed, until it is clear that no other key follows at once."""
        self._releasing: Timer | None = None
        self._drawn = False
        """True once there are widgets to draw on. The session continues while the dialog is being built."""
        self._finished = False
        self._fitted_below = 0
        """Lines above the dialog that were taken when it was fitted into the window."""

    def compose(self) -> ComposeResult:
        """Yield title, list of calls, payload, note and keys."""
        with Vertical(id="approval"):
            yield Static("", id="approval-title", markup=False)
            yield Static("", id="approval-calls", markup=False)
            yield PayloadView(id="approval-payload")
            yield Static("", id="approval-note", markup=False)
            yield Static("", id="approval-keys", markup=False)
        yield Static("", id="approval-small", markup=False)

    def frame(self) -> DialogFrame | None:
        """Return the texts around the payload, or None if there is nothing to show."""
        raise NotImplementedError

    def answer(self, key: str, *, typed: bool) -> None:
        """Handle a key. `typed`: it is a character, which goes to the message if it has no meaning here."""
        raise NotImplementedError

    # Keys

    def on_key(self, event: events.Key) -> None:
        """Handle one key. A key not meant for the dialog goes to the message field."""
        event.stop()
        event.prevent_default()
        if self._typed_here and self._composer.erase_typed(event.key):
            return
        typed = event.character if event.is_printable and event.character else ""
        follows = self._take_back()
        decides = bool(typed) and typed in self.DECIDING
        if follows or not self._meant(event, decides=decides):
            line_end = "\n" if event.key in _LINE_ENDS and self._composer.text else ""
            self.too_early(typed or line_end or None)
            return
        self._typing = False
        if typed and typed not in self.AT_ONCE:
            self._held = typed
            self._releasing = self.set_timer(STROKE_S, self._release)
            return
        self.show_frame()
        if self._scrolled(event.key):
            return
        if event.key == "escape":
            self.go_back()
            return
        if event.key == "f1":
            self.post_message(self.HelpWanted(self.KEY_GROUP))
            return
        self.answer(typed or event.key, typed=bool(typed))

    def go_back(self) -> None:
        """Handle Esc: close the dialog without an answer."""
        self.dismiss(None)

    def _meant(self, event: events.Key, *, decides: bool) -> bool:
        """Return True if the user had seen the dialog for long enough when the key was pressed.

        The event loop may have been busy since then, and the terminal may not have shown yet what was drawn.
        """
        age = max(0.0, time.monotonic() - event.time)
        return self._guard.armed_at <= self._guard.clock() - age and not (decides and self._shown_for - age < GRACE_S)

    @property
    def _shown_for(self) -> float:
        """Seconds for which the user can have seen what was drawn last."""
        return self.app.shown_for() if isinstance(self.app, ShowsLate) else math.inf

    def on_mount(self) -> None:
        """Rearm after every redraw of the whole screen, as after ``fg``, because it has not been read yet."""
        self.app.app_resume_signal.subscribe(self, lambda _: self._start_again())
        self.screen_layout_refresh_signal.subscribe(self, self._laid_out)

    def _start_again(self) -> None:
        if self.can_draw:
            self.arm()
            self.show_frame()

    @property
    def key_held(self) -> bool:
        """True if a key was pressed that will act unless another one follows at once."""
        return bool(self._held)

    def _release(self) -> None:
        """Act on the held key once the app, and then this dialog, have got all keys that were read until now."""
        self.app.call_later(self.call_later, self._act_on_held)

    def _act_on_held(self) -> None:
        """Act on the held key, if what it was pressed for is still shown and no other key has followed it."""
        if isinstance(self.app, ShowsLate) and self.app.keys_wait():
            self._take_back()
            return
        key, self._held = self._held, ""
        if not key or not self.can_draw:
            return
        if not self._guard.armed:
            self.too_early(key)
            return
        self.show_frame()
        if key == "?":
            self.post_message(self.HelpWanted(self.KEY_GROUP))
            return
        self.answer(key, typed=True)

    def _take_back(self) -> bool:
        """Treat the held key as text for the message, because another key follows it. Return False if there is none."""
        key, self._held = self._held, ""
        if self._releasing is not None:
            self._releasing.stop()
        if key:
            self._typing = True
            self.too_early(key)
        return bool(key)

    def on_paste(self, event: events.Paste) -> None:
        """Put a paste into the message field. A paste never answers."""
        event.stop()
        self._take_back()
        self._composer.insert_paste(event.text)
        self._typing = True
        self._note = "Pasted into the message field."
        self.arm()
        self.show_frame()

    def on_screen_resume(self) -> None:
        """Rearm after the help or a form on top was closed: keys that closed it are not meant for this dialog."""
        if self._finished:
            self.dismiss(None)
        else:
            self._start_again()

    def too_early(self, character: str | None) -> None:
        """Handle a key that came before the pause was over: to the message if it is typing, else dropped."""
        if character and self._typing:
            self._composer.append_typed(character)
            self._typed_here = True
            self._note = "What you typed is in the message field. Keys act here after a pause."
        self.arm_again()

    def arm_again(self) -> None:
        """Start the grace period again and show that."""
        self.arm()
        self.show_frame()

    def arm(self) -> None:
        """Start the grace period, because the present content has not been read yet."""
        self._guard.rearm()
        self._look_again()

    def _look_again(self) -> None:
        if self._rearmed is not None:
            self._rearmed.stop()
        if self.can_draw:
            self._rearmed = self.set_timer(self._guard.left + 0.02, self._ready)

    def _ready(self) -> None:
        """End the grace period, unless the terminal showed the dialog later than it was drawn."""
        if self._shown_for < GRACE_S:
            self.arm()
        elif not self._guard.armed:
            # The guard's clock decides, not the timer's.
            self._look_again()
        else:
            self._typing = False
            self.show_frame()

    def begin(self) -> None:
        """Start the grace period for a dialog that has just appeared, counting keys typed before it."""
        self.arm()
        if self._typed_at is not None:
            self._guard.typed_elsewhere(self._typed_at)

    def _scrolled(self, key: str) -> bool:
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
            case "home":
                view.scroll_to(y=0, animate=False)
            case "end":
                view.scroll_to(y=view.max_scroll_y, animate=False)
            case _:
                return False
        self.call_after_refresh(self.show_frame)
        return True

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

    def on_resize(self) -> None:
        """Leave out decoration when there is little room, and rearm, because texts have moved."""
        self.fit()
        self._start_again()

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
        self.query_one("#approval").styles.width = width
        keys, key_rows = self._legend(frame)
        self.query_one("#approval-keys").styles.min_height = key_rows
        around = 5 + key_rows
        around += self._fit_note(most=self.size.height - toast_rows(self) - around - 2)
        rows = frame.calls.plain.count("\n") + 2 if frame.calls is not None else 0
        # The keys and some lines of the payload come first; the title tells which call is shown.
        room = self.size.height - toast_rows(self) - around - rows
        listed = frame.calls is not None and not self._payload_only and room >= LEAST_PAYLOAD
        self._put("#approval-title", frame.title)
        self._put("#approval-calls", frame.calls or "", shown=listed)
        self._put("#approval-note", self._note, shown=bool(self._note))
        self._put("#approval-keys", keys)
        self._fit_payload(around=around + (rows if listed else 0))
        small = f"Make the window larger: at least {MIN_WIDTH}x{MIN_HEIGHT}. Nothing is decided."
        self._put("#approval-small", small, shown=self.too_small)

    def _legend(self, frame: DialogFrame) -> tuple[Content, int]:
        """Return the legend and its lines. These stay as many, so that none of the payload goes out of sight."""
        keys = wrapped_legend("Esc later" if self.too_small else frame.keys, self.line_width)
        last = wrapped_legend(frame.keys_when_read or frame.keys, self.line_width).plain.count("\n") + 1
        if frame.waits and not self._guard.armed:
            return Content("Keys act after a short pause."), last
        return keys, max(last, keys.plain.count("\n") + 1)

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

    def toggle_full(self) -> None:
        """Give the payload the whole window, or back only what it needs. Do nothing where that is the same."""
        if self._can_grow or self.has_class("-full"):
            self.toggle_class("-full")
            self.call_after_refresh(self.show_frame)

    @property
    def _can_grow(self) -> bool:
        lists = self.query_one("#approval-calls").display
        return not self.has_class("-narrow") and (lists or self.size.width > self._most_width)

    def view_keys(self, *, sides: bool, beside: bool) -> str:
        """Return the legend of the keys for the view that have an effect in this window, each after a gap.

        `sides` is True if there is a diff to show side by side, and `beside` if it is shown so.
        """
        full = self.has_class("-full")
        keys = []
        if sides and not missing_columns(self.size.width):
            keys.append("| one column" if beside else "| side by side")
        if full or self._can_grow:
            keys.append("f smaller" if full else "f full screen")
        return "".join(f"   {key}" for key in keys)

    def _fit_note(self, *, most: int) -> int:
        """Limit the note to `most` lines, but at least one. Return its lines with the empty one above; 0 without it."""
        if not self._note or self.has_class("-narrow"):
            return 0
        rows = max(1, min(NOTE_ROWS, most, len(textwrap.wrap(self._note, self.line_width))))
        self.query_one("#approval-note").styles.max_height = rows
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

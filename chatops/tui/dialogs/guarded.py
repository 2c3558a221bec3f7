"""Base of the dialogs that need a decision: their keys act only when meant, see `key_guard`.

Typing that began before the dialog opened, and pastes, go to the message field. A key without a meaning restarts the
pause, because it may be the start of a word. Any other key that is not taken is named on the screen until the next one.
"""

import math
from typing import ClassVar

from textual import events, on
from textual.message import Message
from textual.timer import Timer

from chatops.tui.composer.composer import Composer
from chatops.tui.dialogs.framed import DialogFrame, FramedDialog
from chatops.tui.dialogs.key_guard import (
    PAUSE_S,
    REPEAT_S,
    STROKE_S,
    KeyGuard,
    KeyKind,
    KeyPress,
    Refusal,
    ShowsLate,
)
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.keymap import shown
from chatops.tui.keys import KeyGroup

_LINE_ENDS = ("enter", "ctrl+j", "shift+enter", "alt+enter")
"""Keys that end a line of typing that goes to the message. None of them sends it while a dialog has the keyboard."""
_STEPS = frozenset({"tab", "shift+tab", "left", "right"})


class GuardedDialog(FramedDialog):
    """A dialog whose keys answer. A subclass defines `frame` and `answer`."""

    DECIDING: ClassVar[frozenset[str]] = frozenset()
    """Keys that answer."""
    DENYING: ClassVar[frozenset[str]] = frozenset()
    """Those of them after which nothing runs and nothing is lost."""
    AT_ONCE: ClassVar[frozenset[str]] = frozenset("jkgG ")
    """Characters that act at once. All others wait for the next key, because they may start a paste."""

    KEY_GROUP: ClassVar[KeyGroup] = "dialog"
    """The keys that F1 lists first."""

    class HelpWanted(Message):
        """Posted on F1 and ?. The help lists `key_group` first."""

        def __init__(self, key_group: KeyGroup) -> None:
            super().__init__()
            self.key_group = key_group

    def __init__(self, composer: Composer) -> None:
        """Create the dialog. Keys and pastes not meant for it go to `composer`, so that nothing typed is lost.

        Its clock is the one that Textual puts on events.
        """
        super().__init__()
        self._composer = composer
        self._guard = KeyGuard(composer.clock)
        self._typed_at = composer.typed_at
        self._typing = True
        """True if a key that comes too early belongs to the message: it continues earlier typing, or a paste."""
        self._not_taken = ""
        """The key that was not taken, and why, until the next one."""
        self._typed_here = False
        """True once a key pressed here went to the message. Keys that delete follow it."""
        self._pause_timer: Timer | None = None
        self._held: KeyPress | None = None
        """A character that was just pressed, until it is clear that no other key follows at once."""
        self._repeats = 0
        """How often the held key has come again: it is held down, or begins a text."""
        self._releasing: Timer | None = None
        self._acting: KeyPress | None = None
        """The key that acted last."""

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
        press = self._pressed(typed or event.key, event.time)
        self._not_taken = ""
        if self._held is not None and self._held.key == press.key:
            self._repeats += 1
            self._hold(press.key)
            return
        refusal = Refusal.EARLY if self._take_back() else self._refusal(press)
        if refusal is not None:
            line_end = "\n" if event.key in _LINE_ENDS and self._composer.text else ""
            self._miss(press, refusal, typed or line_end)
            return
        self._typing = False
        if typed and typed not in self.AT_ONCE:
            self._held, self._repeats = press, 0
            self._hold(typed)
        else:
            self._act(press, typed.strip() or event.key)

    def _pressed(self, key: str, at: float) -> KeyPress:
        """Return the key, pressed `at`: the event loop may have been busy since."""
        kind = KeyKind.STEP if key in _STEPS else KeyKind.VIEW
        if key in self.DECIDING:
            kind = KeyKind.DENY if key in self.DENYING else KeyKind.DECIDE
        return KeyPress(key=key, kind=kind, at=at, subject=self._guard.subject)

    def _refusal(self, press: KeyPress) -> Refusal | None:
        return self._guard.refusal(press, shown_for=self._shown_for)

    def _act(self, press: KeyPress, key: str) -> None:
        self._acting = press
        self._guard.taken(press)
        self.show_frame()
        match key:
            case _ if self.scrolled(key):
                pass
            case "escape":
                self.go_back()
            case "f1" | "?":
                self.post_message(self.HelpWanted(self.KEY_GROUP))
            case _:
                self.answer(press.key, typed=len(press.key) == 1)

    def go_back(self) -> None:
        """Handle Esc: close the dialog without an answer."""
        self.dismiss(None)

    @property
    def _shown_for(self) -> float:
        """Seconds for which the user can have seen what was drawn last."""
        return self.app.shown_for() if isinstance(self.app, ShowsLate) else math.inf

    # A character waits for the next key

    @property
    def key_held(self) -> bool:
        """True if a key was pressed that will act unless another one follows at once."""
        return self._held is not None

    @property
    def is_drawn(self) -> bool:
        """True if what the dialog shows has been drawn, so that keys can be meant for it."""
        return not self.can_draw or self._guard.is_drawn

    def _hold(self, key: str) -> None:
        if self._releasing is not None:
            self._releasing.stop()
        again = self._repeats or (self._acting is not None and self._acting.key == key)
        self._releasing = self.set_timer(REPEAT_S if again else STROKE_S, self._release)

    def _release(self) -> None:
        """Act on the held key once the app, and then this dialog, have got all keys that were read until now."""
        self.app.call_later(self.call_later, self._act_on_held)

    def _act_on_held(self) -> None:
        """Act on the held key, if what it was pressed for is still shown and no other key has followed it."""
        press = self._held
        if press is None or not self.can_draw:
            return
        if isinstance(self.app, ShowsLate) and self.app.keys_wait():
            self._hold(press.key)
            return
        self._held = None
        if refusal := Refusal.HELD if self._repeats else self._refusal(press):
            self._miss(press, refusal)
        else:
            self._act(press, press.key)

    def _take_back(self) -> bool:
        """Treat the held key as text for the message, because another key follows it. Return False if there is none."""
        press, self._held = self._held, None
        if self._releasing is not None:
            self._releasing.stop()
        if press is not None:
            self._typing = True
            self._miss(press, Refusal.EARLY, press.key * (1 + self._repeats))
        return press is not None

    def on_paste(self, event: events.Paste) -> None:
        """Put a paste into the message field. A paste never answers."""
        event.stop()
        self._take_back()
        self._composer.insert_paste(event.text)
        self._typing = True
        self._note = "Pasted into the message field."
        self.pause_again()

    # Keys that are not taken

    def _miss(self, press: KeyPress, refusal: Refusal, text: str = "") -> None:
        """Handle a key that does not act: to the message if it is typing, else it is named."""
        self._guard.missed(press)
        if text and self._typing:
            self._composer.append_typed(text)
            self._typed_here = True
            self._note = "What you typed is in the message field. Keys act here after a pause."
            self._guard.pause()
        else:
            self._not_taken = f"not taken: {shown(press.key)}, {refusal}"
        self._await_pause_end()
        self.show_frame()

    def not_taken(self, why: str) -> None:
        """Say why the key that is being handled has no effect now. The keys after it may be meant for later."""
        self._guard.missed(self._acting)
        if self._acting is not None:
            self._not_taken = f"not taken: {shown(self._acting.key)}, {why}"
        self._await_pause_end()
        self.show_frame()

    def not_answered(self, why: str) -> None:
        """Say why an answer had no effect. Keys pressed since were meant for what would have followed."""
        self._guard.missed(self._acting)
        self.pause()
        self.show_note_or_notice(why)

    @property
    def notes(self) -> str:
        """The key that was not taken, and the note."""
        return ". ".join(filter(None, (self._not_taken, self._note)))

    # The pause

    def on_mount(self) -> None:
        """Pause again after every redraw of the whole screen, as after ``fg``, because it has not been read yet."""
        self.app.app_resume_signal.subscribe(self, lambda _: self._pause_again_if_drawn())

    def on_screen_resume(self) -> None:
        """Pause again after the help or a form on top was closed: keys that closed it are not meant for this dialog."""
        if self._finished:
            self.dismiss(None)
        else:
            self._pause_again_if_drawn()

    def on_resize(self) -> None:
        """Leave out decoration when there is little room, and pause again, because texts have moved."""
        self.fit()
        self._pause_again_if_drawn()

    def _pause_again_if_drawn(self) -> None:
        if self.can_draw:
            self.pause_again()

    def start_pause(self) -> None:
        """Start the pause of a dialog that has just appeared, counting keys typed before it."""
        self.pause()
        if self._typed_at is not None:
            self._guard.typed_elsewhere(self._typed_at)

    def pause_again(self) -> None:
        """Start the pause again and show that."""
        self.pause()
        self.show_frame()

    def pause(self, least: KeyKind = KeyKind.VIEW) -> None:
        """Start the pause for keys of the kind `least` and above, because the present content has not been read yet."""
        self._guard.pause(least)
        self._await_pause_end()

    @on(PayloadView.EndSeen)
    def end_appeared(self) -> None:
        """Start the pause for keys that decide, because the last lines have not been read yet."""
        self.pause(KeyKind.DECIDE)

    def _await_pause_end(self) -> None:
        if self._pause_timer is not None:
            self._pause_timer.stop()
        if self.can_draw:
            self._pause_timer = self.set_timer(self._guard.left + 0.02, self._pause_ended)

    def _pause_ended(self) -> None:
        """End the pause, unless the terminal showed the dialog later than it was drawn."""
        if self._shown_for < PAUSE_S:
            self.pause()
        elif self._guard.left:
            # The guard's clock decides, not the timer's.
            self._await_pause_end()
        else:
            self._typing = False
            self.show_frame()

    # Drawing

    def keys_now(self, frame: DialogFrame) -> str:
        """Return the legend of the keys that act now."""
        if not frame.waits or self._guard.acts(KeyKind.DECIDE):
            return frame.keys
        if frame.keys_at_once and self._guard.acts(KeyKind.DENY):
            return frame.keys_at_once
        return "Keys act after a short pause."

    def show_frame(self) -> None:
        """Draw everything around the payload, and take note of what the payload shows."""
        if self.can_draw and self.payload.key != self._guard.subject:
            self._guard.show(self.payload.key)
            self.call_after_refresh(self._guard.drawn, self.payload.key)
        super().show_frame()

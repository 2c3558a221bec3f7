"""Base of the dialogs that need a decision: their keys act only when meant, see `KeyGuard`.

Typing that began before the dialog opened, and pastes, go to the message field. A key without a meaning restarts the
pause, because it may be the start of a word. Any other key that is not taken is named on the screen until the next one.
"""

import math
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.content import Content
from textual.message import Message
from textual.timer import Timer

from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.tui.composer.composer import Composer
from chatops.tui.dialogs.dialog_keys import (
    PAUSE_S,
    REPEAT_S,
    STROKE_S,
    AnswerKey,
    DialogKey,
    KeyGuard,
    KeyKind,
    KeyPress,
    Refusal,
    Room,
    ShowsLate,
    keys_by_name,
    legend_of,
)
from chatops.tui.dialogs.framed import DialogFrame, FramedDialog
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.dialogs.rows import Description, read_on
from chatops.tui.keys import KeyGroup, KeyHint, KeyLegend, key_label

if TYPE_CHECKING:
    from chatops.domain.events import Event

_LINE_ENDS = ("enter", "ctrl+j", "shift+enter", "alt+enter")
"""Keys that end a line of typing that goes to the message. None of them sends it while a dialog has the keyboard."""
_STEPS = frozenset({"tab", "shift+tab", "left", "right"})
_SCROLLING = frozenset("jkgG ")
"""Characters that act at once in each dialog. Most others wait for the next key, because they may start a paste."""


class GuardedDialog(FramedDialog):
    """A dialog whose keys answer. A subclass defines `KEYS`, `begin`, `frame` and `legend`."""

    KEYS: ClassVar[tuple[DialogKey, ...]] = ()
    """What each key does here. All else follows from it."""
    by_name: ClassVar[Mapping[str, DialogKey]]
    """The row of each key."""
    DONE: ClassVar[str] = "approved"
    """What happens to the subject, for a window that is too small to show it."""
    KEY_GROUP: ClassVar[KeyGroup] = "dialog"
    """The keys that F1 lists first."""
    GROWS_WHEN_READ: ClassVar[bool] = False
    """True if the legend is longer once all was read. Its lines are kept free from the start."""

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
        self._sending = False
        """True while an answer is being stored."""
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

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.by_name = keys_by_name(cls.KEYS)

    def answer(self, key: DialogKey) -> None:
        """Handle a key of the table: do what it does, or say why not."""
        if self._sending and key.kind >= KeyKind.DENY:
            self.not_taken("an answer is being stored")
        elif why := self.why_not(key):
            self.show_note(why)
        elif not (isinstance(key, AnswerKey) and key.reads):
            self.perform(key)
        elif self.too_small:
            self.show_note(self.too_small_note)
        elif self.is_read:
            self.perform(key)
        else:
            self.payload.read_on()
            self.call_after_refresh(self.show_frame)

    @property
    def too_small_note(self) -> str:
        """Why keys that need all to be read have no effect in a very small window."""
        return f"Make the window larger: what is not shown cannot be {self.DONE}."

    def why_not(self, key: DialogKey) -> str:
        """Return why the key cannot have an effect now; empty if it can."""
        return key.missing if isinstance(key, AnswerKey) and key.words(self) is None else ""

    def perform(self, key: DialogKey) -> None:
        """Do what a key does."""
        getattr(self, f"_{key.act}")()

    def send(self, storing: Coroutine[Any, Any, str]) -> None:
        """Store an answer. `storing` returns why that had no effect, empty if it had one."""
        self._sending, self._note = True, ""
        self.show_frame()
        # On the app: a worker of this screen would be cancelled when the dialog closes, before the answer is stored.
        self.app.run_worker(self._store(storing), group="decide")

    async def _store(self, storing: Coroutine[Any, Any, str]) -> None:
        try:
            problem = await storing
        except ChatopsError as error:
            problem = sanitize(error.full)
        if problem:
            self._sending = False
            self.not_answered(problem)

    # What happens meanwhile

    def feed(self, event: "Event") -> None:
        """Handle an event of the session. Called for every event while the dialog is open."""
        self.follow()

    def follow(self) -> None:
        """Show what is pending now. Called after the followed session was read again."""
        # Earlier events are in the snapshot that the first drawing reads.
        if self.can_draw:
            self.refresh_subject()

    def refresh_subject(self) -> None:
        """Show what is pending now, or close the dialog if nothing is."""

    def note_change(self, note: str) -> None:
        """Say that the subject has changed without a key of the user: the next one was meant for what it was."""
        self._note = note
        self._typing = False
        self.pause()

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
        key = self.by_name.get(typed)
        if typed and typed not in _SCROLLING and not (key is not None and key.at_once):
            self._held, self._repeats = press, 0
            self._hold(typed)
        else:
            self._act(press, typed.strip() or event.key)

    def _pressed(self, key: str, at: float) -> KeyPress:
        """Return the key, pressed `at`: the event loop may have been busy since."""
        known = self.by_name.get(key)
        kind = KeyKind.STEP if key in _STEPS else known.kind if known is not None else KeyKind.VIEW
        return KeyPress(key=key, kind=kind, at=at, subject=self._guard.subject)

    def _refusal(self, press: KeyPress) -> Refusal | None:
        return self._guard.refusal(press, shown_for=self._shown_for)

    def _act(self, press: KeyPress, key: str) -> None:
        self._acting = press
        self._guard.taken(press)
        self.show_frame()
        known = self.by_name.get(key)
        if self.scrolled(key):
            pass
        elif known is not None:
            self.answer(known)
        elif len(press.key) == 1:
            self.pause_again()

    def _ask_help(self) -> None:
        self.post_message(self.HelpWanted(self.KEY_GROUP))

    def _go_back(self) -> None:
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

    def begin(self) -> None:
        """Draw the subject for the first time."""
        raise NotImplementedError

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
            self._not_taken = f"not taken: {key_label(press.key)}, {refusal}"
        self._await_pause_end()
        self.show_frame()

    def not_taken(self, why: str) -> None:
        """Say why the key that is being handled has no effect now. The keys after it may be meant for later."""
        self._guard.missed(self._acting)
        if self._acting is not None:
            self._not_taken = f"not taken: {key_label(self._acting.key)}, {why}"
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
        """Start the pause, because a user who is typing has not read the dialog yet, then draw it.

        After every redraw of the whole screen, as after ``fg``, it has not been read either.
        """
        self._drawn = True
        self.fit()
        self.start_pause()
        self.begin()
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
    def end_appeared(self, event: PayloadView.EndSeen) -> None:
        """Let keys act that need all to be read, after a pause, because the last lines have not been read yet."""
        event.stop()
        self.end_read(event.key)
        self.show_frame()
        self.pause(KeyKind.DECIDE)

    def end_read(self, subject: str) -> None:
        """Take note that all of the subject was on the screen."""

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

    @property
    def is_read(self) -> bool:
        """True if all that must be read before an approval was on the screen."""
        return self.payload.end_seen

    @property
    def unread(self) -> str:
        """What approving keys do until all was read; empty once it was."""
        left = 0 if self.is_read else self.payload.lines_below
        return read_on(left, short=self.room is not Room.USUAL) if left else ""

    def legend_at_once(self) -> KeyLegend | None:
        """Return the legend right after a key of the user has brought up another subject; None if no key acts then."""
        return None

    def hints(self, *lines: str, unread: str = "", room: Room | None = None) -> KeyLegend:
        """Return the legend of the keys named in `lines`."""
        room = room or (self.room if self.room is Room.USUAL else Room.NARROW)
        return legend_of(self.by_name, *lines, state=self, room=room, unread=unread)

    def keys_now(self, frame: DialogFrame) -> KeyLegend:
        """Return the legend of the keys that act now."""
        if not frame.waits or self._guard.acts(KeyKind.DECIDE):
            return self.legend(self.unread)
        at_once = self.legend_at_once() if self._guard.acts(KeyKind.DENY) else None
        return at_once or KeyLegend([[KeyHint(does="Keys act after a short pause.")]])

    def legend(self, unread: str) -> KeyLegend:
        """Return the legend of keys. `unread`: what approving keys do until all was read; empty once it was."""
        raise NotImplementedError

    def legend_lines(self, frame: DialogFrame) -> tuple[Content, int]:
        """Return the legend of the keys that act now and, as it changes with time, the lines to keep free for it."""
        now = KeyLegend([[KeyHint("escape", "later")]]) if self.too_small else self.keys_now(frame)
        kept = self.legend("" if self.GROWS_WHEN_READ else self.unread)
        drawn = [legend.draw(self.line_width) for legend in (now, kept)]
        return drawn[0], max(keys.plain.count("\n") + 1 for keys in drawn)

    def show_subject(self, description: Description, *, key: str, seen: bool) -> None:
        """Show a subject in the payload, and draw the rest once it is wrapped."""
        self.payload.show(description, key=key, seen=seen)
        self.show_frame()
        self.call_after_refresh(self.show_frame)

    def show_frame(self) -> None:
        """Draw everything around the payload, and take note of what the payload shows."""
        if self.can_draw and self.payload.key != self._guard.subject:
            self._guard.show(self.payload.key)
            self.call_after_refresh(self._guard.drawn, self.payload.key)
        super().show_frame()

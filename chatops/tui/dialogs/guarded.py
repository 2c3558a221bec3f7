"""Base of the dialogs that need a decision: a `DialogBody` to show the subject, a `KeyGate` for the keys that answer.

A dialog is built when it has widgets, and finished when nothing is left to decide. Between the two it can draw, and
keys pass four steps: typing that goes on from before the dialog stays with the message field; the gate lets a key act,
holds it, or refuses it; `answer` checks that the key has an effect and that all was read; `perform` does what it does.
The gate refuses keys during a pause, which starts with each content that the user cannot have read yet, and holds
characters that may start a paste. A refused or held key that is text goes to the message field, as pastes do. Any other
key that is not taken is named on the screen until the next one.
"""

import math
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from textual import events, on
from textual.app import ComposeResult
from textual.geometry import Offset
from textual.message import Message
from textual.timer import Timer

from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.tui.composer import Composer
from chatops.tui.dialogs.body import PAUSES, DialogBody, DialogFrame
from chatops.tui.dialogs.dialog_keys import AnswerKey, DialogKey, Room, keys_by_name, legend_of
from chatops.tui.dialogs.key_gate import PAUSE_S, Acts, KeyGate, KeyKind, KeyPress, Refused, Waits
from chatops.tui.dialogs.modal import Modal
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.dialogs.rows import Description, read_on_label, too_narrow_for_sides
from chatops.tui.keys import KeyGroup, KeyHint, KeyLegend, key_label
from chatops.tui.notice import show_notice

if TYPE_CHECKING:
    from chatops.domain.events import Event

_LINE_ENDS = ("enter", "ctrl+j", "shift+enter", "alt+enter")
"""Keys that end a line of typing that goes to the message. None of them sends it while a dialog has the keyboard."""
_SWITCHING_KEYS = frozenset({"tab", "shift+tab", "left", "right"})
"""Keys that show another subject, where there are several."""
_SCROLLING_CHARACTERS = frozenset("jkgG ")
"""Characters that act at once in each dialog. Most others wait for the next key, because they may start a paste."""


@runtime_checkable
class ShowsLate(Protocol):
    """Protocol of an app whose terminal may show output late, and whose keys may arrive late."""

    def shown_for(self) -> float:
        """Return for how many seconds the user can have seen what was drawn last."""

    def keys_wait(self) -> bool:
        """Return True if keys that were read already have not been delivered yet."""


class GuardedDialog(Modal[None]):
    """A dialog whose keys answer. A subclass defines `KEYS`, `begin`, `frame` and `legend`."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = ""
    KEYS: ClassVar[tuple[DialogKey, ...]] = ()
    """The keys of the dialog. The help, the legends and the gate are made from them."""
    by_name: ClassVar[Mapping[str, DialogKey]]
    """The row of each key by its name, those that every dialog has included."""
    DONE: ClassVar[str] = "approved"
    """Participle of what the dialog does, for the note that a window is too small for it."""
    KEY_GROUP: ClassVar[KeyGroup] = "dialog"
    """The keys that F1 lists first."""
    PAGE_KEY: ClassVar[str] = "Space"
    """The key that is named for the next page."""
    GROWS_WHEN_READ: ClassVar[bool] = False
    """True if the legend is longer once all was read. Its lines are kept free from the start."""

    @dataclass
    class HelpWanted(Message):
        """Posted on F1 and ?. The help lists `key_group` first."""

        key_group: KeyGroup

    def __init__(self, composer: Composer) -> None:
        """Create the dialog. Keys and pastes not meant for it go to `composer`, so that nothing typed is lost.

        Its clock is the one that Textual puts on events.
        """
        super().__init__()
        self._composer = composer
        self.gate = KeyGate(composer.typed_at)
        self.body = DialogBody(self.show_frame, page_key=self.PAGE_KEY)
        self.note = ""
        """The text that the line of notes shows until it is replaced or cleared."""
        self.sending = False
        """True while an answer is being stored."""
        self.finished = False
        """True once nothing is left to decide."""
        self._built = False
        """True once there are widgets to draw on. Events of the session arrive before that too."""
        self._not_taken = ""
        """The key that was not taken last, and why, as a sentence; empty once another key was pressed."""
        self._pause_timer: Timer | None = None
        """Runs until the pause ends."""
        self._release_timer: Timer | None = None
        """Runs until the key that the gate holds acts."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.by_name = keys_by_name(cls.KEYS)

    def compose(self) -> ComposeResult:
        """Yield the body."""
        yield self.body

    # What a subclass says

    def begin(self) -> None:
        """Draw the subject for the first time."""
        raise NotImplementedError

    def frame(self) -> DialogFrame | None:
        """Return the texts around the payload, or None if there is nothing to show."""
        raise NotImplementedError

    def legend(self, unread: str) -> KeyLegend:
        """Return the legend of keys. `unread`: what approving keys do until all was read; empty once it was."""
        raise NotImplementedError

    def show(self) -> None:
        """Draw the subject again."""

    def refresh_subject(self) -> None:
        """Show what is pending now, or close the dialog if nothing is."""

    def end_read(self, subject: str) -> None:
        """Take note that all of the subject was on the screen."""

    def why_not(self, key: DialogKey) -> str:
        """Return why the key cannot have an effect now; empty if it can."""
        return key.missing if isinstance(key, AnswerKey) and key.words(self) is None else ""

    # Answers

    def answer(self, key: DialogKey) -> None:
        """Handle a key of the table: do what it does, or say why not."""
        if self.sending and key.kind >= KeyKind.DENY:
            self.not_taken("an answer is being stored")
        elif why := self.why_not(key):
            self.show_note(why)
        elif not (isinstance(key, AnswerKey) and key.needs_reading):
            self.perform(key)
        elif self.body.too_small:
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

    def perform(self, key: DialogKey) -> None:
        """Do what a key does."""
        getattr(self, f"_{key.act}")()

    def send(self, storing: Coroutine[Any, Any, str], *, alone: bool = True) -> None:
        """Store an answer. `storing` returns why that had no effect, empty if it had one.

        `alone`: no other answer is taken meanwhile.
        """
        self.sending, self.note = alone, ""
        self.show_frame()
        # On the app: a worker of this screen would be cancelled when the dialog closes, before the answer is stored.
        self.app.run_worker(self._store(storing), group="decide")

    async def _store(self, storing: Coroutine[Any, Any, str]) -> None:
        try:
            problem = await storing
        except ChatopsError as error:
            problem = sanitize(error.full)
        if problem:
            self.sending = False
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

    def note_change(self, note: str) -> None:
        """Say that the subject has changed without a key of the user."""
        self.note = note
        self.gate.changed(self._now)
        self._await_pause_end()

    # Keys

    def on_key(self, event: events.Key) -> None:
        """Handle one key. A key not meant for the dialog goes to the message field."""
        event.stop()
        event.prevent_default()
        if self.gate.has_typed and self._composer.erase_typed(event.key):
            return
        typed = event.character if event.is_printable and event.character else ""
        press = self._press(typed or event.key, at=event.time)
        self._not_taken = ""
        follows = self._take_back(unless=press.key)
        line_end = "\n" if event.key in _LINE_ENDS and self._composer.text else ""
        outcome = self.gate.key(
            press,
            self._now,
            shown_for=self._shown_for,
            text=typed or line_end,
            at_once=not typed or self._acts_at_once(typed),
            follows=follows,
        )
        self._do(outcome)

    def _acts_at_once(self, typed: str) -> bool:
        """Return True if a character acts without waiting whether another one follows, as in a paste."""
        key = self.by_name.get(typed)
        return typed in _SCROLLING_CHARACTERS or (key is not None and key.at_once)

    def _press(self, name: str, *, at: float) -> KeyPress:
        """Return a key, pressed `at`: the event loop may have been busy since."""
        key = self.by_name.get(name)
        kind = KeyKind.SWITCH if name in _SWITCHING_KEYS else key.kind if key is not None else KeyKind.VIEW
        return KeyPress(key=name, kind=kind, at=at, subject=self.gate.subject)

    def _take_back(self, *, unless: str = "") -> bool:
        """Treat the held key as text, because a key other than `unless` follows it. Return False if there is none."""
        refused = self.gate.take_back(self._now, unless=unless)
        self._stop_release()
        if refused is not None:
            self._do(refused)
        return refused is not None

    def _stop_release(self) -> None:
        if self._release_timer is not None:
            self._release_timer.stop()

    def _do(self, outcome: Acts | Waits | Refused) -> None:
        """Act on what the gate says of a key."""
        match outcome:
            case Acts(press):
                self._await_pause_end()
                self.show_frame()
                name = "space" if press.key == " " else press.key
                if self.scroll_by_key(name):
                    pass
                elif (key := self.by_name.get(name)) is not None:
                    self.answer(key)
                elif len(name) == 1:
                    # No answer begins with it, so it begins a text.
                    self.gate.typed(self._now)
                    self._keep_typed(name)
            case Waits(seconds):
                self._stop_release()
                self._release_timer = self.set_timer(seconds, self._release)
            case Refused(press, why, text):
                if text:
                    self._keep_typed(text)
                    return
                self._not_taken = f"not taken: {key_label(press.key)}, {why}"
                self._await_pause_end()
                self.show_frame()

    def _keep_typed(self, text: str) -> None:
        self._composer.append_typed(text)
        self.note = "What you typed is in the message field."
        self._await_pause_end()
        self.show_frame()

    def _release(self) -> None:
        """Act on the held key once the app, and then this dialog, have got all keys that were read until now."""
        self.app.call_later(self.call_later, self._act_on_held)

    def _act_on_held(self) -> None:
        """Act on the held key, if what it was pressed for is still shown and no other key has followed it."""
        if not self.key_held or not self.can_draw:
            return
        if isinstance(self.app, ShowsLate) and self.app.keys_wait():
            self._do(self.gate.wait_again())
        elif outcome := self.gate.release(self._now, shown_for=self._shown_for):
            self._do(outcome)

    def on_paste(self, event: events.Paste) -> None:
        """Put a paste into the message field. A paste never answers."""
        event.stop()
        self._take_back()
        self._composer.insert_paste(event.text)
        self.gate.pasted(self._now)
        self.note = "Pasted into the message field."
        self.pause_again()

    def not_taken(self, why: str) -> None:
        """Say why the key that is being handled has no effect now. The keys after it may be meant for later."""
        last = self.gate.last
        self.gate.missed(last, self._now)
        if last is not None:
            self._not_taken = f"not taken: {key_label(last.key)}, {why}"
        self._await_pause_end()
        self.show_frame()

    def not_answered(self, why: str) -> None:
        """Say why an answer had no effect. Keys pressed since were meant for what would have followed."""
        self.gate.missed(self.gate.last, self._now)
        self.pause()
        self.show_note_or_notice(why)

    def scroll_by_key(self, key: str) -> bool:
        """Scroll if the key scrolls. Return False if it does not."""
        if scrolled := self.payload.scroll_by_key(key):
            self.call_after_refresh(self.show_frame)
        return scrolled

    def _ask_help(self) -> None:
        self.post_message(self.HelpWanted(self.KEY_GROUP))

    def _go_back(self) -> None:
        """Handle Esc: close the dialog without an answer."""
        self.dismiss(None)

    def _toggle_full(self) -> None:
        self.body.toggle_full()

    def _toggle_sides(self) -> None:
        if not self.body.side_by_side and (reason := too_narrow_for_sides(self.size.width)):
            show_notice(self.app, reason)
        else:
            self.body.side_by_side = not self.body.side_by_side
            self.note = ""
            self.show()

    @property
    def key_held(self) -> bool:
        """True if a key was pressed that will act unless another one follows at once."""
        return self.gate.held is not None

    @property
    def is_drawn(self) -> bool:
        """True if what the dialog shows has been drawn, so that keys can be meant for it."""
        return not self.can_draw or self.gate.is_drawn

    # The pause

    @property
    def _now(self) -> float:
        return self._composer.clock()

    @property
    def _shown_for(self) -> float:
        """Seconds for which the user can have seen what was drawn last."""
        return self.app.shown_for() if isinstance(self.app, ShowsLate) else math.inf

    def acts(self, kind: KeyKind) -> bool:
        """Return True if keys of this kind act now."""
        return self.gate.acts(kind, self._now)

    def on_mount(self) -> None:
        """Start the pause, because a user who is typing has not read the dialog yet, then draw it.

        After every redraw of the whole screen, as after ``fg``, it has not been read either.
        """
        self._built = True
        self.body.fit()
        self.gate.open(self._now)
        self._await_pause_end()
        self.begin()
        self.app.app_resume_signal.subscribe(self, lambda _: self._pause_again_if_drawn())

    def on_screen_resume(self) -> None:
        """Pause again after the help or a form on top was closed: keys that closed it are not meant for this dialog."""
        if self.finished:
            self.dismiss(None)
        else:
            self.payload.look()
            self._pause_again_if_drawn()

    def on_resize(self) -> None:
        """Leave out decoration when there is little room, and pause again, because texts have moved."""
        self.body.fit()
        self._pause_again_if_drawn()

    def _pause_again_if_drawn(self) -> None:
        if self.can_draw:
            self.pause_again()

    def pause_again(self) -> None:
        """Start the pause again and show that."""
        self.pause()
        self.show_frame()

    def pause(self, least: KeyKind = KeyKind.VIEW) -> None:
        """Start the pause for keys of the kind `least` and above, because the present content has not been read yet."""
        self.gate.pause(self._now, least)
        self._await_pause_end()

    @on(PayloadView.EndSeen)
    def end_appeared(self, event: PayloadView.EndSeen) -> None:
        """Let keys act that need all to be read, after a pause, because the last lines have not been read yet."""
        event.stop()
        self.end_read(event.key)
        self.pause(KeyKind.DECIDE)
        self.show_frame()

    def _await_pause_end(self) -> None:
        """Call `_end_pause` soon after further keys of those that wait act."""
        if self._pause_timer is not None:
            self._pause_timer.stop()
        if self.can_draw and (seconds := self.gate.seconds_left(self._now)):
            self._pause_timer = self.set_timer(seconds + 0.02, self._end_pause)

    def _end_pause(self) -> None:
        """Show which keys act, unless the subject is not drawn yet, or was shown later than it was drawn."""
        if self._shown_for < PAUSE_S or not self.gate.is_drawn:
            self.pause()
            return
        # The clock of the keys decides, not the timer's.
        if self.acts(KeyKind.DECIDE):
            self.gate.end_pause()
        self._await_pause_end()
        self.show_frame()

    # Drawing

    @property
    def can_draw(self) -> bool:
        """True while the dialog is on screen and stays there."""
        return self._built and self.is_attached and not self.finished

    @property
    def payload(self) -> PayloadView:
        """The view that shows the subject of the decision."""
        return self.body.payload

    @property
    def row_in_focus(self) -> Offset | None:
        """The place of the row of the payload that keys act on; its first line in view if it has none."""
        if not self._built:
            return None
        line = self.payload.line_in_view(self.pointed_row) or 0
        return self.payload.content_region.offset + Offset(0, line)

    @property
    def pointed_row(self) -> int:
        """The row of the payload that keys act on."""
        return 0

    @property
    def room(self) -> Room:
        """The room for the legend."""
        return self.body.room

    @property
    def is_read(self) -> bool:
        """True if all that must be read before an approval was on the screen."""
        return self.payload.end_seen

    @property
    def unread(self) -> str:
        """What approving keys do until all was read; empty once it was."""
        unread_lines = 0 if self.is_read else self.payload.lines_below
        return read_on_label(unread_lines, short=self.room is not Room.USUAL) if unread_lines else ""

    def hints(self, *lines: str, unread: str = "", room: Room | None = None) -> KeyLegend:
        """Return the legend of the keys named in `lines`."""
        room = room or (self.room if self.room is Room.USUAL else Room.NARROW)
        return legend_of(self.by_name, *lines, state=self, room=room, unread=unread)

    def _keys_now(self, frame: DialogFrame) -> KeyLegend:
        """Return the legend of keys, dimmed if they do not act yet. A low or narrow window has no room for both."""
        if self.body.too_small:
            return KeyLegend([[KeyHint("escape", "later")]])
        legend, now = self.legend(self.unread), self._now
        if not frame.waits:
            return legend
        if self.room is not Room.USUAL and not self.acts(KeyKind.DENY):
            return KeyLegend([[KeyHint(does=PAUSES)]])
        waiting = {name for name in self.by_name if not self.gate.takes(self._press(name, at=now))}
        lines = [[hint._replace(waits=hint.key in waiting) for hint in hints] for hints in legend.lines]
        return replace(legend, lines=lines)

    def show_subject(self, description: Description, *, key: str, seen: bool) -> None:
        """Show a subject in the payload, and draw the rest once it is wrapped."""
        self.payload.show(description, key=key, seen=seen)
        self.show_frame()
        self.call_after_refresh(self.show_frame)

    def show_frame(self) -> None:
        """Draw everything around the payload, and take note of what the payload shows."""
        if not self.can_draw:
            return
        subject = self.payload.key
        if subject != self.gate.subject:
            self.gate.show(subject)
            self.call_after_refresh(lambda: self.gate.drawn(subject, self._now))
        if (frame := self.frame()) is None:
            return
        # As many lines are kept free as the longest legend needs, so that no line of the payload goes out of sight
        # after it was counted as seen.
        legends = [self._keys_now(frame), self.legend(self.unread)]
        if self.GROWS_WHEN_READ:
            legends.append(self.legend(""))
        drawn = [legend.draw(self.body.line_width) for legend in legends]
        rows = max(text.plain.count("\n") + 1 for text in drawn)
        pauses = frame.waits and not self.acts(KeyKind.DECIDE)
        self.body.draw(frame, note=self.note, refusal=self._not_taken, pauses=pauses, keys=drawn[0], key_rows=rows)

    def show_note(self, text: str) -> None:
        """Show a note inside the dialog."""
        self.note = text
        self.show_frame()

    def show_note_or_notice(self, text: str) -> None:
        """Show a note inside the dialog, or a notice if it is closed already."""
        if self.can_draw:
            self.show_note(text)
        else:
            show_notice(self.app, text)

    def finish(self) -> None:
        """Close the dialog, after a form or the help on top of it: what is typed there is not meant for the message."""
        self.finished = True
        self.dismiss(None)

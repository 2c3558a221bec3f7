"""The key gate of a dialog that decides: it says of each key if it acts, waits, or is refused.

It knows keys, times and names of subjects, and nothing of the screen. All times are monotonic seconds. `now` is the
present time, and `shown_for` are the seconds for which the terminal has shown what was drawn last.

A key counts for the subject (the call, the list of changes) that was on the screen when it was pressed. Beyond that,
what a key does decides how long it is refused:

- After the dialog has opened, after its subject has changed without a key of the user, and after typing for the
  message field, every key waits `PAUSE_S`. A character without a meaning in the dialog is such typing.
- After a key of the user has brought up another subject, only keys that decide wait. Keys that deny act at once, so
  that several calls can be denied in a row.
- After a key was dropped, the keys that answer wait again. A user who presses keys for several calls does not
  notice that one was dropped, and the next would answer the wrong call. So a key that decides waits `MISSED_S`
  then, and as long after each key that follows. The dropped key may be pressed again after the usual
  pause, unless another one came in between.

Most characters are held until no other key has followed for `STROKE_S`. Then they act. If another key follows, both are
text: a part of what was typed before the dialog opened, or of a paste without marks.
"""

from enum import IntEnum, StrEnum

from chatops.domain.frozen_dataclass import frozen_dataclass

PAUSE_S = 0.5
"""Seconds in which a user can see what has appeared. With more, a user who has read it waits for the keys."""
MISSED_S = 2.0
"""Seconds in which a user can notice that a key was not taken."""
SEEN_S = 0.05
"""Seconds until something drawn has reached the screen. With more, keys pressed for it count for what was before."""
STROKE_S = 0.08
"""Seconds in which no other key may follow an answering key.

Text pasted into a terminal that does not mark pastes, or sent by a script, follows its first character at once.
"""
REPEAT_S = 0.12
"""The same for the key that answered last. If it is held down, it repeats after at most so long."""


class KeyKind(IntEnum):
    """The effect of a key, the more the higher."""

    VIEW = 0
    """Scrolls, shows something, or leaves the dialog. Also a key without a meaning."""
    SWITCH = 1
    """Shows another subject."""
    DENY = 2
    """Answers, so that nothing runs and nothing is lost."""
    DECIDE = 3
    """Answers in any other way."""


class Refusal(StrEnum):
    """The reason why a key was not taken. The value is the text that is shown."""

    EARLY = "too early"
    MISSED = "too early after a key that was not taken"
    OTHER = "something else was on the screen"
    HELD = "held down"


@frozen_dataclass
class KeyPress:
    """One key, pressed at the time `at`. `subject` is what the dialog showed when the key arrived."""

    key: str
    kind: KeyKind
    at: float
    subject: str


@frozen_dataclass(kw_only=False)
class Acts:
    """The key acts now."""

    press: KeyPress


@frozen_dataclass(kw_only=False)
class Waits:
    """The key is held for so many seconds. `release` then returns what it does, if no other key has followed."""

    seconds: float


@frozen_dataclass(kw_only=False)
class Refused:
    """The key does not act. `text` goes to the message field; without it the key is named with the reason."""

    press: KeyPress
    why: Refusal
    text: str = ""


class KeyGate:
    """The gate of one dialog."""

    def __init__(self, typed_at: float | None) -> None:
        """Create it for a dialog that opens after a key for the message was typed, at the time `typed_at`."""
        self._typed_at = typed_at
        self._acts_at = dict.fromkeys(KeyKind, 0.0)
        """The time from which on keys of a kind act."""
        self.subject = ""
        """Name of what the dialog shows."""
        self._seen_at = 0.0
        """Keys pressed earlier were pressed for another subject. Infinite until the subject is drawn."""
        self._missed_until = 0.0
        """Until then a key that decides is refused, because an earlier key was not taken."""
        self._missed_key = ""
        """The key that was not taken, if no other one was pressed since; else empty. It may be pressed again."""
        self._answered_at = 0.0
        """The time of the last key that answered."""
        self._is_typing = True
        """True if a key that comes too early belongs to the message: it continues earlier typing, or a paste."""
        self.has_typed = False
        """True once a key pressed here went to the message. Keys that delete follow it."""
        self.held: KeyPress | None = None
        """A character that was just pressed and acts unless another key follows at once."""
        self._repeats = 0
        """How often the held key has come again: it is held down, or begins a text."""
        self.last: KeyPress | None = None
        """The key that acted last."""

    @property
    def is_drawn(self) -> bool:
        """True if the subject has been drawn."""
        return self._seen_at < float("inf")

    # What is shown

    def open(self, now: float) -> None:
        """Pause for a dialog that has just appeared, counting a key typed before it."""
        self.pause(now)
        if self._typed_at is not None:
            self._wait(self._typed_at + PAUSE_S, KeyKind.VIEW)

    def show(self, subject: str) -> None:
        """Take note of another subject, which will be drawn."""
        self.subject, self._seen_at = subject, float("inf")

    def drawn(self, subject: str, now: float) -> None:
        """Take note that the subject was drawn."""
        if subject == self.subject:
            self._seen_at = now + SEEN_S

    def changed(self, now: float) -> None:
        """Take note that the subject has changed without a key of the user: the next key was meant for what it was."""
        self._is_typing = False
        self.pause(now)

    # The pause

    def pause(self, now: float, least: KeyKind = KeyKind.VIEW) -> None:
        """Let keys of the kind `least` and above wait from now on."""
        self._wait(now + PAUSE_S, least)

    def end_pause(self) -> None:
        """Take note that the pause is over: what is typed from now on is meant for the dialog."""
        self._is_typing = False

    def _wait(self, until: float, least: KeyKind) -> None:
        for kind, acts_at in self._acts_at.items():
            if kind >= least:
                self._acts_at[kind] = max(acts_at, until)

    def acts(self, kind: KeyKind, now: float) -> bool:
        """Return True if a key of this kind acts now, unless another one was not taken just before."""
        return now >= self._acts_at[kind]

    def takes(self, press: KeyPress) -> bool:
        """Return True if a key acts, as far as its time decides."""
        return self.acts(press.kind, press.at) and not self._follows_miss(press)

    def seconds_left(self, now: float) -> float:
        """Return the seconds until further keys act; 0 if no key waits."""
        return min((until - now for until in (*self._acts_at.values(), self._missed_until) if until > now), default=0.0)

    def taken_just_now(self, now: float) -> bool:
        """Return True if what happens now follows from an answer of the user."""
        return now - self._answered_at <= PAUSE_S

    # Keys

    def take_back(self, now: float, *, unless: str = "") -> Refused | None:
        """Return the held key as text, because another key or a paste follows it; None if no key is held.

        The held key stays held if the key that follows, `unless`, is the same one.
        """
        press = self.held
        if press is None or press.key == unless:
            return None
        self.held, self._is_typing = None, True
        return self._refuse(press, Refusal.EARLY, now, text=press.key * (1 + self._repeats))

    def key(
        self, press: KeyPress, now: float, *, shown_for: float, text: str, at_once: bool, follows: bool
    ) -> Acts | Waits | Refused:
        """Take note of a key, and return what it does.

        `text` is what it types. With `at_once`, it does not wait for a next key. `follows` is True if it has followed a
        held key at once, see `take_back`.
        """
        if self.held is not None:
            # It is the held key again: `take_back` has refused the held key if this is another one.
            self._repeats += 1
            return Waits(self._hold_seconds(press.key))
        if refusal := Refusal.EARLY if follows else self._refusal(press, now, shown_for=shown_for):
            return self._refuse(press, refusal, now, text=text)
        self._is_typing = False
        if at_once:
            return self._let_act(press, now)
        self.held, self._repeats = press, 0
        return Waits(self._hold_seconds(press.key))

    def release(self, now: float, *, shown_for: float) -> Acts | Refused | None:
        """Hold no key any more. Return what the held one does, as no other has followed; None if none was held."""
        press, self.held = self.held, None
        if press is None:
            return None
        if refusal := Refusal.HELD if self._repeats else self._refusal(press, now, shown_for=shown_for):
            return self._refuse(press, refusal, now)
        return self._let_act(press, now)

    def wait_again(self) -> Waits:
        """Let the held key wait once more, because keys are on their way."""
        return Waits(self._hold_seconds(self.held.key if self.held is not None else ""))

    def typed(self, now: float) -> None:
        """Take note of a character without a meaning here. It goes to the message, and what follows it at once too."""
        self._is_typing = self.has_typed = True
        self.pause(now)

    def pasted(self, now: float) -> None:
        """Take note of a paste, which went to the message."""
        self._is_typing = True
        self.pause(now)

    def missed(self, press: KeyPress | None, now: float) -> None:
        """Take note of a key that was not taken, or of an answer that had no effect."""
        self.pause(now, KeyKind.DENY)
        if press is None or press.kind >= KeyKind.SWITCH:
            self._note_miss(press.key if press is not None else "", now)

    def _hold_seconds(self, key: str) -> float:
        may_repeat = self._repeats or (self.last is not None and self.last.key == key)
        return REPEAT_S if may_repeat else STROKE_S

    def _let_act(self, press: KeyPress, now: float) -> Acts:
        self.last = press
        if press.kind >= KeyKind.DENY:
            self._answered_at = now
        if press.kind >= KeyKind.SWITCH and now < self._missed_until:
            self._note_miss(press.key, now)
        return Acts(press)

    def _refuse(self, press: KeyPress, why: Refusal, now: float, *, text: str = "") -> Refused:
        self.missed(press, now)
        if not (text and self._is_typing):
            return Refused(press, why)
        self.has_typed = True
        self.pause(now)
        return Refused(press, why, text)

    def _refusal(self, press: KeyPress, now: float, *, shown_for: float) -> Refusal | None:
        """Return why a key does not act now, or None if it acts."""
        if not self.acts(press.kind, press.at):
            return Refusal.EARLY
        if press.kind < KeyKind.DENY:
            return None
        if press.subject != self.subject or press.at < self._seen_at:
            return Refusal.OTHER
        if shown_for - (now - press.at) < PAUSE_S:
            return Refusal.EARLY
        return Refusal.MISSED if self._follows_miss(press) else None

    def _follows_miss(self, press: KeyPress) -> bool:
        """Return True if a key that decides comes too early after another one that was not taken."""
        return press.kind is KeyKind.DECIDE and press.at < self._missed_until and press.key != self._missed_key

    def _note_miss(self, key: str, now: float) -> None:
        """Let keys that decide wait `MISSED_S`. `key` may come again before that, unless another came in between."""
        is_only_one = now >= self._missed_until or key == self._missed_key
        self._missed_key = key if is_only_one else ""
        self._missed_until = now + MISSED_S

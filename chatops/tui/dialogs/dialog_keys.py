"""The keys of a dialog: each as one value, what legends say of them, and the guard that decides if a key acts.

Keys of dialogs are no bindings of Textual, so that no keymap can move a key that decides.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Protocol, runtime_checkable

from chatops.tui.keys import KeyGroup, KeyHint, KeyLegend, key_label

Words = str | tuple[str, ...] | None
"""What a legend says of a key, shorter the less room there is; None: it is not offered now."""
Label = Words | Callable[[Any], Words]
"""The words of a key, or a function that returns them for the state of a dialog."""
PAUSE_S = 0.5
"""Seconds in which a user can see what has appeared."""
MISSED_S = 2.0
"""Seconds in which a user can notice that a key was not taken."""
SEEN_S = 0.05
"""Seconds after which something drawn has reached the screen."""
STROKE_S = 0.08
"""Seconds in which no other key may follow an answering key.

Text pasted into a terminal that does not mark pastes, or sent by a script, follows its first character at once.
"""
REPEAT_S = 0.12
"""The same for the key that answered last. If it is held down, it repeats after at most so long."""


@runtime_checkable
class ShowsLate(Protocol):
    """Protocol of an app whose terminal may show output late, and whose keys may arrive late."""

    def shown_for(self) -> float:
        """Return for how many seconds the user can have seen what was drawn last."""

    def keys_wait(self) -> bool:
        """Return True if keys that were read already have not been delivered yet."""


class KeyKind(IntEnum):
    """The effect of a key, the more the higher."""

    VIEW = 0
    """Scrolls, shows something, or leaves the dialog. Also a key without a meaning."""
    STEP = 1
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPress:
    """One key. `at` is in seconds of the guard's clock, `subject` what the dialog showed when the key arrived."""

    key: str
    kind: KeyKind
    at: float
    subject: str


def _never() -> dict[KeyKind, float]:
    return dict.fromkeys(KeyKind, 0.0)


@dataclass(slots=True)
class KeyGuard:
    """The waits of one dialog: a key acts only on what the user can have seen when it was pressed.

    A key counts for the subject (the call, the list of changes) that was on the screen when it was pressed. Beyond
    that, what a key does decides how long it waits:

    - After the dialog has opened, after its subject has changed without a key of the user, and after typing for the
      message field, every key waits `PAUSE_S`.
    - After a key of the user has brought up another subject, only keys that decide wait. Keys that deny act at once, so
      that several calls can be denied in a row.
    - After a key that was not taken, keys that answer wait again. Whoever presses keys for several calls does not
      notice that one was dropped, and the next would answer the wrong call. So a key that decides waits `MISSED_S`
      then, and as long after each key that follows. The key that was not taken may be pressed again after the usual
      pause, unless another one came in between.

    `clock` returns monotonic seconds.
    """

    clock: Callable[[], float]
    _acts_at: dict[KeyKind, float] = field(default_factory=_never)
    _subject: str = ""
    _seen_at: float = 0.0
    """Keys pressed earlier were pressed for another subject."""
    _missed_until: float = 0.0
    """Until then a key that decides is refused, because an earlier key was not taken."""
    _missed_key: str = ""
    """The one key that was pressed since the first that was not taken; empty if there were others."""
    _taken_at: float = 0.0

    def pause(self, least: KeyKind = KeyKind.VIEW) -> None:
        """Let keys of the kind `least` and above wait from now on."""
        self._wait(self.clock() + PAUSE_S, least)

    def typed_elsewhere(self, at: float) -> None:
        """Let all keys wait because of a key typed at `at`, before the dialog was shown."""
        self._wait(at + PAUSE_S, KeyKind.VIEW)

    def _wait(self, until: float, least: KeyKind) -> None:
        for kind, acts_at in self._acts_at.items():
            if kind >= least:
                self._acts_at[kind] = max(acts_at, until)

    def acts(self, kind: KeyKind) -> bool:
        """Return True if a key of this kind acts now, unless another one was not taken just before."""
        return self.clock() >= self._acts_at[kind]

    @property
    def left(self) -> float:
        """Seconds until the last wait is over."""
        return max(0.0, max(self._acts_at.values()) - self.clock())

    @property
    def taken_just_now(self) -> bool:
        """True if what happens now follows from an answer of the user."""
        return self.clock() - self._taken_at <= PAUSE_S

    @property
    def subject(self) -> str:
        """Name of what the dialog shows."""
        return self._subject

    def show(self, subject: str) -> None:
        """Take note of another subject, which will be drawn."""
        self._subject, self._seen_at = subject, float("inf")

    def drawn(self, subject: str) -> None:
        """Take note that the subject was drawn."""
        if subject == self._subject:
            self._seen_at = self.clock() + SEEN_S

    @property
    def is_drawn(self) -> bool:
        """True if the subject has been drawn."""
        return self._seen_at < float("inf")

    def refusal(self, press: KeyPress, *, shown_for: float) -> Refusal | None:
        """Return why a key does not act now, or None if it acts.

        `shown_for` is for how many seconds the terminal has shown what was drawn last.
        """
        if press.at < self._acts_at[press.kind]:
            return Refusal.EARLY
        if press.kind < KeyKind.DENY:
            return None
        if press.subject != self._subject or press.at < self._seen_at:
            return Refusal.OTHER
        if shown_for - (self.clock() - press.at) < PAUSE_S:
            return Refusal.EARLY
        if press.kind is KeyKind.DECIDE and press.at < self._missed_until and press.key != self._missed_key:
            return Refusal.MISSED
        return None

    def taken(self, press: KeyPress) -> None:
        """Take note of a key that acts."""
        if press.kind >= KeyKind.DENY:
            self._taken_at = self.clock()
        if press.kind >= KeyKind.STEP and self.clock() < self._missed_until:
            self._miss(press.key)

    def missed(self, press: KeyPress | None = None) -> None:
        """Take note of a key that was not taken, or of an answer that had no effect."""
        self.pause(KeyKind.DENY if self.acts(KeyKind.VIEW) else KeyKind.VIEW)
        if press is None or press.kind >= KeyKind.STEP:
            self._miss(press.key if press is not None else "")

    def _miss(self, key: str) -> None:
        alone = self.clock() >= self._missed_until or key == self._missed_key
        self._missed_key = key if alone else ""
        self._missed_until = self.clock() + MISSED_S


class Room(IntEnum):
    """How many words a legend has room for."""

    USUAL = 0
    NARROW = 1
    LOWEST = 2


@dataclass(frozen=True, slots=True)
class DialogKey:
    """A row of a dialog's table. `names` are Textual's names of all keys that do this, the usual one first."""

    names: str
    act: str
    """The dialog's method for it, without its underscore."""
    help: str = ""
    """What the help says; empty if another row says it."""
    label: Label = None
    _: KW_ONLY
    kind: KeyKind = KeyKind.VIEW
    at_once: bool = False
    """True if it acts without waiting for a next key, which would make it part of a text."""
    group: KeyGroup | None = None
    """Its part of the help, if not the dialog's own."""
    id: str = ""
    """The id of the key that the user can give it."""
    named: str = ""
    """Its name in the help, where that stands for other rows too."""

    @property
    def help_name(self) -> str:
        """All its keys as the help names them."""
        return self.named or ", ".join(map(key_label, self.names.split()))

    def words(self, state: Any) -> Words:
        """Return what the legend says of it in this state; None if it is not offered."""
        return self.label(state) if callable(self.label) else self.label


@dataclass(frozen=True, slots=True)
class AnswerKey(DialogKey):
    """A key that answers."""

    kind: KeyKind = KeyKind.DECIDE
    runs: bool = False
    """True if the call runs after it."""
    reads: bool = False
    """True if it acts only once all was on the screen. Until then it reads on."""
    unknown: bool | None = False
    """True if it is for calls whose outcome is unknown, None if it is for all calls."""
    missing: str = ""
    """Said if it is pressed although it is not offered."""


LATER = ("later", "later", "")
"""The words of Esc, which the lowest windows do not name."""
ESCAPE = DialogKey("escape", "go_back", label=LATER)
HELP = DialogKey("f1 ?", "ask_help", label=("more keys", "more keys", "keys"), id="help")


def keys_by_name(keys: Iterable[DialogKey]) -> Mapping[str, DialogKey]:
    """Return the row of each key, with those that every dialog has."""
    return {name: key for key in (ESCAPE, HELP, *keys) for name in key.names.split()}


def legend_of(
    keys: Mapping[str, DialogKey], *lines: str, state: Any, room: Room, unread: str = "", then: str = ""
) -> KeyLegend:
    """Return the legend of those keys that are offered, named in `lines`, and then of a sentence.

    `unread` is what keys do that need all to be read; empty once it was.
    """
    hints: list[list[KeyHint]] = []
    for line in lines:
        hints.append([])
        for name in line.split():
            key = keys[name]
            words = key.words(state)
            if words is not None:
                words = (words,) if isinstance(words, str) else words
                reads_on = unread and isinstance(key, AnswerKey) and key.reads
                hints[-1].append(KeyHint(name, unread if reads_on else words[min(room, len(words) - 1)], key.id))
    if then:
        hints[-1].append(KeyHint(does=then))
    return KeyLegend([line for line in hints if line], "   " if room is Room.USUAL else "  ")

"""The keys of a dialog: each as one value, and what legends say of them.

Keys of dialogs are no bindings of Textual, so that no keymap can move a key that decides.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY
from enum import Enum, IntEnum, auto
from typing import Any

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.tui.dialogs.key_gate import KeyKind
from chatops.tui.keys import KeyGroup, KeyHint, KeyLegend, key_label, keys_of

Words = str | tuple[str, ...] | None
"""The text of a key in a legend: one text, or one for each `Room`; None if the key is not offered now."""
Label = Words | Callable[[Any], Words]
"""The words of a key, or a function that returns them for the dialog, or for an `AskedCall` in dialogs about calls."""


class Room(IntEnum):
    """How many words a legend has room for, the less the higher."""

    USUAL = 0
    NARROW = 1
    LOWEST = 2


class Answers(Enum):
    """The calls that a key answers, by what is known of them."""

    NOT_RUN = auto()
    """Calls that have not run."""
    OUTCOME_UNKNOWN = auto()
    """Calls that may have run: chatops was stopped before it stored their results."""
    ALL = auto()

    def includes(self, *, outcome_unknown: bool) -> bool:
        """Return True if the key answers a call with, or without, an unknown outcome."""
        return self is Answers.ALL or outcome_unknown == (self is Answers.OUTCOME_UNKNOWN)


@frozen_dataclass(kw_only=False)
class DialogKey:
    """A row of a dialog's table: keys that do the same. `names` are Textual's names of them, the usual one first."""

    names: str
    act: str
    """The dialog's method for these keys, without its underscore."""
    help: str = ""
    """What the help says; empty if another row says it."""
    label: Label = None
    _: KW_ONLY
    kind: KeyKind = KeyKind.VIEW
    at_once: bool = False
    """True if a character acts at once. Others wait briefly: if another key follows, both were typed as text."""
    group: KeyGroup | None = None
    """The part of the help that lists this row; None: the dialog's own."""
    id: str = ""
    """The row's id in the keymap; empty for keys that the user cannot change."""
    named: str = ""
    """The keys as the help names them if `help` describes other rows too; empty: the keys of this row."""

    @property
    def help_name(self) -> str:
        """The keys as the help names them."""
        first, *others = self.names.split()
        return self.named or ", ".join([keys_of(self.id) if self.id else key_label(first), *map(key_label, others)])

    def words(self, state: Any) -> Words:
        """Return what the legend says of the keys in this state; None if they are not offered."""
        return self.label(state) if callable(self.label) else self.label


@frozen_dataclass(kw_only=False)
class AnswerKey(DialogKey):
    """A key that answers."""

    kind: KeyKind = KeyKind.DECIDE
    runs: bool = False
    """True if the call runs after this answer."""
    needs_reading: bool = False
    """True if the key answers only once all was on the screen. Until then it scrolls on."""
    answers: Answers = Answers.NOT_RUN
    missing: str = ""
    """The note if the key is pressed although it is not offered."""


LATER = ("later", "later", "")
"""The words of Esc, which the lowest windows do not name."""
ESCAPE = DialogKey("escape", "go_back", label=LATER)
HELP = DialogKey("f1 ?", "ask_help", label=("more keys", "more keys", "keys"), id="help")


def keys_by_name(keys: Iterable[DialogKey]) -> Mapping[str, DialogKey]:
    """Return the row of each key, with those that every dialog has."""
    return {name: key for key in (ESCAPE, HELP, *keys) for name in key.names.split()}


def legend_of(keys: Mapping[str, DialogKey], *lines: str, state: Any, room: Room, unread: str = "") -> KeyLegend:
    """Return the legend of the keys named in `lines`, without those that are not offered.

    `unread` says what a key that needs reading does as long as something is unread; empty if nothing is.
    """

    def hint(name: str) -> KeyHint | None:
        key = keys[name]
        words = key.words(state)
        if words is None:
            return None
        if unread and isinstance(key, AnswerKey) and key.needs_reading:
            return KeyHint(name, unread, key.id)
        return KeyHint(name, words if isinstance(words, str) else words[min(room, len(words) - 1)], key.id)

    hints = [[shown for name in line.split() if (shown := hint(name)) is not None] for line in lines]
    return KeyLegend([line for line in hints if line], "   " if room is Room.USUAL else "  ")

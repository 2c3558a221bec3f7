"""The keys of a dialog: each as one value, and what legends say of them.

Keys of dialogs are no bindings of Textual, so that no keymap can move a key that decides.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY
from enum import IntEnum
from typing import Any

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.tui.dialogs.key_gate import KeyKind
from chatops.tui.keys import KeyGroup, KeyHint, KeyLegend, key_label, keys_of

Words = str | tuple[str, ...] | None
"""What a legend says of a key, shorter the less room there is; None: it is not offered now."""
Label = Words | Callable[[Any], Words]
"""The words of a key, or a function that returns them for the state of a dialog."""


class Room(IntEnum):
    """How many words a legend has room for."""

    USUAL = 0
    NARROW = 1
    LOWEST = 2


@frozen_dataclass(kw_only=False)
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
    """True if it acts at once. Other keys wait briefly: if another key follows, both were typed as text."""
    group: KeyGroup | None = None
    """Its part of the help, if not the dialog's own."""
    id: str = ""
    """Its id in the keymap; empty for the keys that the user cannot change."""
    named: str = ""
    """Its name in the help if that row describes other rows too. If empty, the help names its keys."""

    @property
    def help_name(self) -> str:
        """All its keys as the help names them."""
        first, *others = self.names.split()
        return self.named or ", ".join([keys_of(self.id) if self.id else key_label(first), *map(key_label, others)])

    def words(self, state: Any) -> Words:
        """Return what the legend says of it in this state; None if it is not offered."""
        return self.label(state) if callable(self.label) else self.label


@frozen_dataclass(kw_only=False)
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

    `unread` says what a key with `reads` does as long as something is unread; empty if nothing is.
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

"""The keys of the chat for the help screen, those that the user can change, and the legends that name keys.

`keys` in settings.yaml gives an id other keys. A key that the user has chosen is translated when it arrives, so that
everything else knows the default keys only. Texts for the screen name a key by its id: `key_of` returns the label of
the key in force. Texts from below the screen name commands instead. Dialogs have tables of their own keys.

Why not `App.set_keymap`: it renames the keys of bindings, and Textual asks the focused widget first.

- A chosen key would reach the message field before the chat screen. ``role: ctrl+e`` would go to the end of the line.
- A key that was given up would fall through to a binding of Textual: ctrl+d would delete a letter, ctrl+z undo an edit,
  shift+tab move the focus. Here it means nothing.
- Some of these keys are no bindings: the composer decides by its text whether ctrl+d or PgUp is meant for it. Others
  are bindings of `TextArea` without an id.
- Ids are the same for the whole app, while most of these keys keep their default place in dialogs.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from textual.content import Content

from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass

KeyGroup = Literal[
    "chat", "message", "dialog", "all pending", "contained", "changes", "unknown", "review", "question", "trust"
]
KEY_GROUPS: dict[KeyGroup, str] = {
    "message": "Writing a message",
    "chat": "Anywhere",
    "dialog": "In the approval dialog",
    "all pending": "In /pending --all, the calls of all sessions",
    "contained": "At the end of a contained turn",
    "changes": "In the changes that /diff shows",
    "unknown": "When the outcome of a call is unknown",
    "review": "In the review dialog of a workflow step",
    "question": "When an MCP server asks you something",
    "trust": "When a folder brings files that need your trust",
}

KEYS: Mapping[KeyGroup, Mapping[str, str]] = {
    "message": {
        "Enter": "send the message; with no text, send the queued ones",
        "{newline}, shift+Enter": "new line; so does Enter after \\",
        "{correct}": "while a turn runs: interrupt it and continue with this message",
        "Up": "with no text: take back the last queued message",
        "shift+Up, shift+Down": "with no text: mark a queued message; Delete removes it",
        "Up, Down": "earlier messages, at the first or last line",
        "/": "commands; Tab completes",
        "Tab": "on the first screen: take one of the messages to try",
        "!": "run a command: !git status; !! does not show it to the model",
        "@": "name a file or an image of the workspace; it is attached to the message",
        "ctrl+v": "attach the image on the clipboard",
        "Esc": "stop the answer and hold the queue",
        "{history}": "choose among the texts you sent before",
        "R": "alone, with no text: retry after an error",
        "{interrupt}": "with a text: clear it, however many lines it has",
        "{leave}": "with no text: quit",
        "{undo}": "undo; {redo} redoes",
        "alt+b, alt+f": "a word left, right; ctrl+w, alt+d delete one",
    },
    "chat": {
        "{role}": "switch the role",
        "{next-role}": "the next one of your favourite roles: favourite_roles in settings.yaml, else all",
        "{pending}": "open what is pending: approvals, a review, a question",
        "{take-over}": "take over a session that is open elsewhere",
        "{page-up}, {page-down}": "scroll the transcript",
        "{start}, {end}": "its start, its end; Home, End with no text",
        "{find}": "find a text in this session; then n older, N newer, Esc back",
        "{block-above}, {block-below}": "select a message or tool call; Esc selects none",
        "y": "alone, with no text: copy what is selected with {block-above}",
        "o": "alone, with no text: open files of what is selected",
        "Enter": "with no text: what was done for the selected delegated task",
        "{open-block}": "open or fold what is selected, else the last tool call",
        "{panel}": "fold or open the panel of a workflow",
        "{steps}": "the steps of a workflow and their answers",
        "{palette}": "all commands",
        "{help}": "this help",
        "drag, double click": "select text; shift+drag selects as the terminal does",
        "{interrupt}": "copy the selection; else clear the text, then stop the turn, then quit",
        "{quit}": "quit; pending approvals stay pending",
        "{suspend}": "suspend to the shell; fg resumes",
    },
    "changes": {
        "n, p, Tab, shift+Tab": "next or previous file",
        "|": "show the diffs side by side",
        "Esc": "back",
    },
}
"""What keys outside the deciding dialogs do, by their names on the screen. An id in braces stands for its keys."""


DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "role": "ctrl+r",
        "next-role": "shift+tab",
        "correct": "ctrl+s",
        "history": "alt+r",
        "find": "ctrl+f",
        "pending": "ctrl+g",
        "take-over": "f2",
        "panel": "ctrl+t",
        "steps": "ctrl+l",
        "palette": "ctrl+p",
        "help": "f1",
        "interrupt": "ctrl+c",
        "quit": "ctrl+q",
        "suspend": "ctrl+z",
        "newline": "ctrl+j",
        "leave": "ctrl+d",
        "undo": "ctrl+underscore",
        "redo": "ctrl+y",
        "page-up": "pageup",
        "page-down": "pagedown",
        "start": "ctrl+home",
        "end": "ctrl+end",
        "block-above": "ctrl+up",
        "block-below": "ctrl+down",
        "open-block": "ctrl+o",
    }
)
"""Key of each id. Keys that type text, and those of dialogs, have no id and cannot be changed."""
_IDS_IN_DIALOGS = frozenset({"help", "interrupt", "quit", "suspend"})
"""Ids whose keys also hold while a dialog is open. All others keep their place in the chat screen."""
_EDITING_KEYS = frozenset({"alt+b", "alt+f", "alt+d", "alt+backspace", "alt+enter"})
"""Keys of the fields, as in shells."""
_KEYS_SENT_AS: Mapping[str, str] = MappingProxyType({"\r": "enter", "\x7f": "backspace"})
_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {"pgup": "pageup", "pgdn": "pagedown", "esc": "escape", "_": "underscore", "ins": "insert", "del": "delete"}
)
_LABELS: Mapping[str, str] = MappingProxyType(
    {"pageup": "PgUp", "pagedown": "PgDn", "escape": "Esc", " ": "Space", "underscore": "_"}
    | {
        name: name.capitalize()
        for name in ("home", "end", "up", "down", "left", "right", "insert", "enter", "tab", "space")
    }
)
_CHOOSABLE_KEY = (
    r"(?:ctrl|alt)\+(?:[a-z0-9]|underscore|home|end|up|down|left|right|pageup|pagedown|f\d\d?|enter)"
    r"|shift\+(?:tab|f\d\d?|enter)|f(?:[1-9]|1\d|2[0-4])|pageup|pagedown|insert"
)
"""Keys that an id can be given: they type nothing, and no field or dialog needs them."""
_TAKEN_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "ctrl+i": "terminals send it for Tab",
        "ctrl+m": "terminals send it for Enter",
        "ctrl+h": "terminals send it for Backspace",
        "ctrl+s": "it answers questions in dialogs",
        "shift+enter": "it starts a new line",
        "alt+enter": "it starts a new line",
    }
)


class Keymap:
    """The keys in force. Without changes they are the default ones."""

    def __init__(self, changes: Mapping[str, Sequence[str]] = MappingProxyType({})) -> None:
        """Give each id in `changes` these keys, in place of its default.

        Raises ConfigError for an unknown id, for a key that cannot be chosen, and for a key of two ids.
        """
        self._id_of: dict[str, str] = {}
        """Id by each key that the user has chosen."""
        self._freed = {DEFAULTS[id]: id for id in changes if id in DEFAULTS}
        """Id by each default key that the user has given up."""
        unchanged = {key: id for id, key in DEFAULTS.items() if id not in changes}
        self._chosen: dict[str, list[str]] = {}
        """The keys that the user has chosen, by their id."""
        for id, keys in changes.items():
            if id not in DEFAULTS:
                near = difflib.get_close_matches(id, DEFAULTS, n=1)
                hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(DEFAULTS)}."
                raise ConfigError(f"keys: there is no key with the id {id}. {hint}")
            chosen = self._chosen[id] = [_read_key(key, id) for key in keys]
            if not chosen:
                raise ConfigError(f"keys: {id} has no key. Write one, such as {id}: {DEFAULTS[id]}.")
            for key in chosen:
                other = self._id_of.get(key) or unchanged.get(key)
                if other is not None and other != id:
                    raise ConfigError(f"keys: {key_label(key)} would be both {other} and {id}. Give one another key.")
                self._id_of[key] = id

    def translated(self, key: str, *, in_dialog: bool) -> str:
        """Return the default key for a pressed one: the same if it has not changed, empty if it means nothing now."""
        if not self._chosen:
            return key
        id = self._id_of.get(key) or self._freed.get(key)
        if id is None or (in_dialog and id not in _IDS_IN_DIALOGS):
            return key
        return DEFAULTS[id] if key in self._id_of else ""

    def alt_acts(self, character: str) -> bool:
        """Return True if Alt and this character are a key that acts."""
        key = f"alt+{_KEYS_SENT_AS.get(character, character)}"
        is_default = key in DEFAULTS.values() and key not in self._freed
        return key in _EDITING_KEYS or key in self._id_of or is_default

    def labels(self, id: str) -> list[str]:
        """Return the keys of an id as texts name them."""
        return [key_label(key) for key in self._chosen.get(id, [DEFAULTS[id]])]


def _read_key(key: str, id: str) -> str:
    """Return the key of an id in Textual's spelling. Raises ConfigError."""
    parts = [_SPELLINGS.get(part, part) for part in key.strip().lower().split("+")]
    read = "+".join(parts)
    if read in _TAKEN_KEYS:
        raise ConfigError(f"keys: {id} cannot be {key.strip()}: {_TAKEN_KEYS[read]}.")
    if not re.fullmatch(_CHOOSABLE_KEY, read):
        raise ConfigError(
            f"keys: {id} cannot be {key.strip()!r}. Use ctrl+ or alt+ with a letter, a function key, PgUp or PgDn."
        )
    return read


def key_label(key: str) -> str:
    """Return a key as texts name it."""
    *modifiers, last = key.split("+")
    named = last.upper() if re.fullmatch(r"f\d+", last) else _LABELS.get(last, last)
    return "+".join([*modifiers, named])


_in_force = [Keymap()]
"""The keymap in force. There is one terminal in a process, and many texts name keys."""


def use_keymap(keymap: Keymap) -> None:
    """Put a keymap in force for all texts from now on."""
    _in_force[0] = keymap


def key_of(id: str) -> str:
    """Return the key in force for an id as texts name it, the first one if there are several."""
    return _in_force[0].labels(id)[0]


def keys_of(id: str) -> str:
    """Return all keys in force for an id as texts name them."""
    return " / ".join(_in_force[0].labels(id))


def help_rows(group: KeyGroup) -> dict[str, str]:
    """Return what the keys of a group do, by the keys in force."""
    every, first = ({id: label(id) for id in DEFAULTS} for label in (keys_of, key_of))
    return {name.format_map(every): does.format_map(first) for name, does in KEYS.get(group, {}).items()}


def alt_acts(character: str) -> bool:
    """Return True if Alt and this character are a key that acts."""
    return _in_force[0].alt_acts(character)


class KeyHint(NamedTuple):
    """An entry of a legend: a key, and what it does. Without a key it is a sentence."""

    key: str = ""
    does: str = ""
    id: str = ""
    """The id of a key that the user can change, which is named instead of `key`."""
    waits: bool = False
    """True while the key does not act yet."""

    def draw(self) -> Content:
        """Return the entry, dimmed if it waits. Its key is in the accent, and bold for terminals without colours."""
        key_style, style = ("$text-muted", "$text-muted") if self.waits else ("bold $text-accent", "")
        key = Content.styled(key_of(self.id) if self.id else key_label(self.key), key_style)
        return Content(" ").join(filter(None, (key, Content.styled(self.does, style))))


BACK = KeyHint("escape", "back")
SCROLL = KeyHint("j k g G PgUp PgDn", "scroll")


@frozen_dataclass(kw_only=False)
class KeyLegend:
    """The lines of a legend. They are broken between entries where there is not enough room."""

    lines: Sequence[Sequence[KeyHint]]
    gap: str = "   "

    def draw(self, width: int = 10_000) -> Content:
        """Return lines of at most `width` cells."""
        lines = [line for hints in self.lines for line in self._packed(hints, width)]
        return Content("\n").join(Content("\n").join(lines).wrap(max(1, width)))

    def _packed(self, hints: Sequence[KeyHint], width: int) -> Iterator[Content]:
        line = Content("")
        for entry in (hint.draw() for hint in hints):
            if line and line.cell_length + len(self.gap) + entry.cell_length > width:
                yield line
                line = entry
            else:
                line = line + self.gap + entry if line else entry
        yield line

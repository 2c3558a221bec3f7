"""The keys of the chat for the help screen, and the legends that name keys. Dialogs have tables of their own keys."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from textual.content import Content

from chatops.tui.keymap import key_label, key_of

KeyGroup = Literal["chat", "message", "dialog", "contained", "changes", "unknown", "review", "question", "trust"]
KEY_GROUPS: dict[KeyGroup, str] = {
    "message": "Writing a message",
    "chat": "Anywhere",
    "dialog": "In the approval dialog",
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
        "ctrl+j, shift+Enter": "new line; so does Enter after \\",
        "ctrl+s": "while a turn runs: interrupt it and go on with this message",
        "Up": "with no text: take back the last queued message",
        "shift+Up, shift+Down": "with no text: mark a queued message; Delete removes it",
        "Up, Down": "earlier messages, at the first or last line",
        "/": "commands; Tab completes",
        "Tab": "on the first screen: take one of the messages to try",
        "!": "run a command: !git status; !! does not show it to the model",
        "@": "name a file of the workspace; it is attached to the message",
        "Esc": "stop the answer and hold the queue",
        "alt+r": "choose among the texts you sent before",
        "R": "alone, with no text: retry after an error",
        "ctrl+d": "with no text: quit",
        "ctrl+_": "undo; ctrl+y redoes",
        "alt+b, alt+f": "a word left, right; ctrl+w, alt+d delete one",
    },
    "chat": {
        "ctrl+r": "switch the role",
        "shift+Tab": "the next one of your favourite roles: favourite_roles in settings.yaml, else all",
        "ctrl+g": "open what is pending: approvals, a review, a question",
        "F2": "take over a session that is open elsewhere",
        "PgUp, PgDn": "scroll the transcript",
        "ctrl+Home, ctrl+End": "its start, its end; Home, End with no text",
        "ctrl+f": "find a text in this session; then n older, N newer, Esc back",
        "ctrl+Up, ctrl+Down": "select a message or tool call; Esc selects none",
        "y": "alone, with no text: copy what is selected with ctrl+Up",
        "o": "alone, with no text: open images and other files of what is selected",
        "ctrl+o": "open or fold what is selected, else the last tool call",
        "ctrl+t": "fold or open the panel of a workflow",
        "ctrl+l": "the steps of a workflow and their answers",
        "ctrl+p": "all commands",
        "F1": "this help",
        "drag, double click": "select text; shift+drag selects as the terminal does",
        "ctrl+c": "copy the selection; else stop or clear the text, twice quits",
        "ctrl+q": "quit; pending approvals stay pending",
        "ctrl+z": "suspend to the shell; fg resumes",
    },
    "changes": {
        "n, p, Tab, shift+Tab": "next or previous file",
        "|": "show the diffs side by side",
        "Esc": "back",
    },
}
"""What keys outside the deciding dialogs do, by their names on the screen."""


_NO_LIMIT = 10_000


class KeyHint(NamedTuple):
    """An entry of a legend: a key, and what it does. Without a key it is a sentence."""

    key: str = ""
    does: str = ""
    id: str = ""
    """The id of a key that the user can change, which is named instead of `key`."""

    def draw(self) -> Content:
        """Return the entry with its key in bold, which is also visible on terminals without colours."""
        key = Content.styled(key_of(self.id) if self.id else key_label(self.key), "bold")
        return Content(" ").join(filter(None, (key, Content(self.does))))


BACK = KeyHint("escape", "back")
SCROLL = KeyHint("j k g G PgUp PgDn", "scroll")


@dataclass(frozen=True, slots=True)
class KeyLegend:
    """The lines of a legend. They are broken between entries where there is not enough room."""

    lines: Sequence[Sequence[KeyHint]]
    gap: str = "   "

    def draw(self, width: int = _NO_LIMIT) -> Content:
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

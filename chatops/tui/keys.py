"""The keys of the app as one table for the help screen, and the legend of keys under a dialog."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from textual.content import Content

from chatops.tui.keymap import with_user_keys

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHelp:
    """One line of the help screen: keys and what they do."""

    keys: str
    does: str
    group: KeyGroup


def _group(group: KeyGroup, rows: Mapping[str, str]) -> tuple[KeyHelp, ...]:
    return tuple(KeyHelp(keys=keys, does=does, group=group) for keys, does in rows.items())


KEYS: tuple[KeyHelp, ...] = (
    *_group(
        "message",
        {
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
    ),
    *_group(
        "chat",
        {
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
    ),
    *_group(
        "dialog",
        {
            "a": "approve once",
            "s": "approve, and what its line names for the rest of the session, in this role",
            "S": "the same for all edits in the folder of this file, but files that run later",
            "r": "approve and make a rule: choose its pattern and scope first",
            "+": "approve once with what the call lacks in its sandbox, as the dialog names it",
            "e": "edit the arguments, one field each; they are checked again, then shown",
            "E": "edit the main text of the call (command, content) in $VISUAL or $EDITOR",
            "d": "deny this call; the turn continues",
            "D": "deny and tell the model why",
            "c": "contain: go on in a copy of the folder, apply its changes at the end",
            "A": "approve the rest, once each has been on screen",
            "Tab, Right": "next call; shift+Tab, Left: the one before",
            "Up, Down, PgUp, PgDn, Space": "scroll the payload; g start, G end",
            "v": "show or hide details: the model's words, raw arguments, digests",
            "|": "show the diff side by side, in a window of at least 90 columns",
            "f": "full screen",
            "F1, ?": "this help",
            "Esc": "decide later: it stays pending",
        },
    ),
    *_group(
        "contained",
        {
            "a": "apply the ticked changes, once their end has been on screen; an undo at once",
            "Space": "tick or untick the file; decides nothing",
            "Enter": "the diff of the file",
            "Tab, shift+Tab": "next or previous file",
            "d": "discard all changes",
            "D": "send them back with a reason; the model goes on in the same copy",
            "|, f": "show the diffs side by side; full screen",
            "Esc": "decide later: they stay pending",
        },
    ),
    *_group(
        "changes",
        {
            "n, p, Tab, shift+Tab": "next or previous file",
            "|": "show the diffs side by side",
            "Esc": "back",
        },
    ),
    *_group(
        "unknown",
        {
            "R": "run it again",
            "u": "tell the model that the outcome is unknown",
            "m": "mark as done: you have checked that it took effect",
        },
    ),
    *_group(
        "review",
        {
            "a": "accept the answer",
            "r": "try the step again; a refused answer with a reason",
            "e": "try again with instructions",
            "s": "skip the step, where the workflow allows it",
            "X": "stop the run, for good",
        },
    ),
    *_group(
        "question",
        {
            "a": "answer, once all of it has been on screen: opens the form, which ctrl+s sends",
            "d": "decline",
            "x": "dismiss: no answer, neither yes nor no",
            "Esc": "later: the call waits, and its time limit is paused",
        },
    ),
    *_group(
        "trust",
        {
            "t": "trust all of it, once its end has been on screen",
            "d": "ignore it; asks again when something changes",
            "v": "show or hide the texts of the files",
            "Esc": "not now: ignored, and asked about at the next start",
        },
    ),
)

_NAMES = r"Enter|Esc|Tab|Space|PgUp|PgDn|F\d\d?|(?:ctrl|alt|shift)\+\w+|[A-Za-z+|]"
_KEYS = re.compile(rf"(?:^|(?<=\s\s))(?:{_NAMES})(?= |$)(?: (?:{_NAMES})(?= |$))*", re.MULTILINE)
"""Key names at the start of an entry. Entries are separated by two or more spaces, or by newlines."""


def wrapped_legend(text: str, width: int) -> Content:
    """Return a dialog's legend in lines of at most `width` cells, broken between entries where that is possible."""
    parts = with_user_keys(text, in_dialog=True).split("\n")
    lines = [line for part in parts for line in _packed(part, width)]
    return Content("\n").join(_with_bold_keys("\n".join(lines)).wrap(max(1, width)))


def _packed(text: str, width: int) -> Iterator[str]:
    line, gap = "", ""
    for part in re.split(r"(\s{2,})", text.strip()):
        if part.isspace():
            gap = part
        elif line and cell_len(line + gap + part) > width:
            yield line
            line = part
        else:
            line += gap + part if line else part
    yield line


def legend(text: str) -> Content:
    """Return entries such as ``a approve once   Esc later`` with their keys in bold.

    Bold is also visible on terminals without colours.
    """
    return _with_bold_keys(with_user_keys(text))


def _with_bold_keys(text: str) -> Content:
    content = Content(text)
    for found in _KEYS.finditer(text):
        content = content.stylize("bold", found.start(), found.end())
    return content

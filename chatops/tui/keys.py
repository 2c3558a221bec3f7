"""The keys of the app as one table for the help screen, and the legend of keys under a dialog."""

import re
from dataclasses import dataclass
from typing import Literal

from textual.content import Content

KeyGroup = Literal["chat", "message", "dialog", "unknown", "review"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHelp:
    """One key and what it does. `where` groups it on the help screen."""

    keys: str
    does: str
    where: KeyGroup


KEY_GROUPS: dict[KeyGroup, str] = {
    "message": "Writing a message",
    "chat": "Anywhere",
    "dialog": "In the approval dialog",
    "unknown": "When it is not known whether a call took effect",
    "review": "In the review dialog of a workflow step",
}

KEYS: tuple[KeyHelp, ...] = (
    KeyHelp(keys="Enter", does="send the message, or with no text the queue on hold", where="message"),
    KeyHelp(keys="ctrl+j, shift+Enter, \\ Enter", does="new line", where="message"),
    KeyHelp(keys="Up", does="with no text: take back the last queued message", where="message"),
    KeyHelp(keys="Up, Down", does="earlier messages, at the first or last line", where="message"),
    KeyHelp(keys="/", does="commands; Tab completes", where="message"),
    KeyHelp(keys="@", does="complete a file of the workspace", where="message"),
    KeyHelp(keys="Esc", does="stop the answer and hold the queue", where="message"),
    KeyHelp(keys="R", does="with no text: try again after an error", where="message"),
    KeyHelp(keys="ctrl+d", does="with no text: quit", where="message"),
    KeyHelp(keys="ctrl+_", does="undo; ctrl+y does it again", where="message"),
    KeyHelp(keys="ctrl+r", does="switch the role", where="chat"),
    KeyHelp(keys="ctrl+g", does="open what is pending: calls, or a step", where="chat"),
    KeyHelp(keys="F2", does="take over a conversation that is open elsewhere", where="chat"),
    KeyHelp(keys="PgUp, PgDn", does="scroll the conversation", where="chat"),
    KeyHelp(keys="ctrl+Home, ctrl+End", does="its start, its end; Home, End with no text", where="chat"),
    KeyHelp(keys="ctrl+Up, ctrl+Down", does="choose a tool call; ctrl+o opens or folds it", where="chat"),
    KeyHelp(keys="ctrl+t", does="fold or open the panel of a workflow", where="chat"),
    KeyHelp(keys="ctrl+l", does="the steps of a workflow, and what they gave", where="chat"),
    KeyHelp(keys="ctrl+p", does="all commands", where="chat"),
    KeyHelp(keys="F1", does="this help", where="chat"),
    KeyHelp(keys="ctrl+c", does="copy what is selected; else stop or clear the text, twice quits", where="chat"),
    KeyHelp(keys="ctrl+q", does="quit; pending calls stay pending", where="chat"),
    KeyHelp(keys="ctrl+z", does="to the shell; fg comes back", where="chat"),
    KeyHelp(keys="a", does="approve once", where="dialog"),
    KeyHelp(keys="s", does="approve, and the same again in this session and role", where="dialog"),
    KeyHelp(keys="r", does="approve and make a rule; the pattern is shown and can be edited first", where="dialog"),
    KeyHelp(keys="e", does="edit the arguments; they are checked and asked about again", where="dialog"),
    KeyHelp(keys="d", does="deny this call; the turn goes on", where="dialog"),
    KeyHelp(keys="D", does="deny and tell the model why", where="dialog"),
    KeyHelp(keys="A", does="approve the rest, once each has been on screen", where="dialog"),
    KeyHelp(keys="Tab, shift+Tab", does="next or previous call", where="dialog"),
    KeyHelp(keys="Up, Down, PgUp, PgDn", does="scroll what would run", where="dialog"),
    KeyHelp(keys="w", does="show or hide what the model said", where="dialog"),
    KeyHelp(keys="Esc", does="later: it stays pending", where="dialog"),
    KeyHelp(keys="R", does="run it again", where="unknown"),
    KeyHelp(keys="u", does="tell the model that it is unknown", where="unknown"),
    KeyHelp(keys="m", does="I have looked: it did take effect", where="unknown"),
    KeyHelp(keys="a", does="accept the answer", where="review"),
    KeyHelp(keys="r", does="try the step again; a refused answer with a reason", where="review"),
    KeyHelp(keys="e", does="try again, and say how", where="review"),
    KeyHelp(keys="s", does="go on without the step, where the workflow allows it", where="review"),
    KeyHelp(keys="X", does="stop the run, for good", where="review"),
)

_NAMES = r"Enter|Esc|Tab|PgUp|PgDn|ctrl\+(?:[a-z]|End)|[A-Za-z]"
_KEYS = re.compile(rf"(?:^|(?<=\s\s))(?:{_NAMES})(?= |$)(?: (?:{_NAMES})(?= |$))*", re.MULTILINE)
"""Key names at the start of an entry. Entries are separated by two or more spaces, or by newlines."""


def legend(text: str) -> Content:
    """Return entries such as ``a approve once   Esc later`` with their keys in bold.

    Bold is also visible on terminals without colours.
    """
    content = Content(text)
    for found in _KEYS.finditer(text):
        content = content.stylize("bold", found.start(), found.end())
    return content

"""The text of F1: all keys, also those of dialogs, and all commands. It imports every dialog that decides."""

from collections.abc import Iterable

from chatops.tui.commands.table import COMMANDS
from chatops.tui.dialogs.all_pending import AllPendingScreen
from chatops.tui.dialogs.approval import ApprovalScreen
from chatops.tui.dialogs.contained import ContainedScreen
from chatops.tui.dialogs.review import ReviewScreen
from chatops.tui.dialogs.server_question import ServerQuestionScreen
from chatops.tui.dialogs.trust import TrustScreen
from chatops.tui.keys import DEFAULTS, KEY_GROUPS, KeyGroup, help_rows, keys_of

_KEY_COLUMN = 24
"""Cells of the keys and commands in the help. What is longer pushes its explanation to the right."""
_ACCESSIBILITY = (
    ("reduced_motion: true", "in settings.yaml: nothing moves, notices stay till a key (accessibility, screen reader)"),
    ("NO_COLOR=1 chatops", "no colours, and nothing moves (accessibility)"),
    ("LC_ALL=C chatops", "plain ASCII, and nothing moves (accessibility, screen reader)"),
    ("chatops -p, -c -p", "the session as lines of text, without a screen (accessibility, screen reader)"),
    ("chatops approvals", "decide as lines of text, also calls of an open chat (accessibility, screen reader)"),
)
"""Settings and commands, with what each is for. `/help WORD` finds a row by the words in it, not by its heading."""
_DIALOGS = (ApprovalScreen, AllPendingScreen, ContainedScreen, ReviewScreen, ServerQuestionScreen, TrustScreen)


def help_text(*, first: KeyGroup = "message") -> str:
    """Return all keys and commands in aligned columns, those of the group `first` before the others."""
    lines: list[str] = []
    keys: dict[KeyGroup, dict[str, str]] = {group: help_rows(group) for group in KEY_GROUPS}
    for dialog in _DIALOGS:
        for key in dialog.KEYS:
            if key.help:
                keys[key.group or dialog.KEY_GROUP][key.help_name] = key.help
    for group in (first, *(group for group in KEY_GROUPS if group != first)):
        lines += [KEY_GROUPS[group], *_columns(list(keys[group].items())), ""]
    lines.append("Commands")
    lines += _columns([(f"/{command.name} {command.args}".rstrip(), command.help) for command in COMMANDS])
    lines += ["", "Ids of keys, to change them: keys in settings.yaml"]
    lines += _columns([(name, keys_of(name)) for name in DEFAULTS])
    lines += ["", "Accessibility", *_columns(_ACCESSIBILITY)]
    return "\n".join(lines)


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {left:<{_KEY_COLUMN}}  {right}" for left, right in rows]

"""Texts around a call in the approval dialog: heading, list of calls with their marks, and key legend."""

import textwrap

from textual.content import Content

from chatops.tui.dialogs.approval_list import ApprovalList, Item
from chatops.tui.dialogs.approval_text import line, title

LIST_ROWS = 4
NOTE_ROWS = 4
"""Maximum lines of a note, as in ``dialogs.tcss``."""
_MAX_WIDTH = 110
_SIDES = 4
"""Cells taken by a dialog's border and padding."""


def note_rows(note: str, *, window: int) -> int:
    """Return the lines of a note in a window `window` cells wide, with the empty line above; 0 without one."""
    if not note:
        return 0
    return 1 + min(NOTE_ROWS, len(textwrap.wrap(note, max(1, min(window, _MAX_WIDTH) - _SIDES))))


def heading(approvals: ApprovalList, *, narrow: bool) -> str:
    """Return the dialog's heading: which call is shown, of how many."""
    items, index = approvals.items, approvals.index
    if len(items) == 1 and items[0].pending.in_doubt:
        return "Outcome unknown" if narrow else "A call was interrupted, outcome unknown"
    if len(items) == 1:
        tool = line(items[0].pending.call.name)
        return f"Approve {tool}?" if items[0].pending.denial is None else f"Not permitted now: {tool}"
    if narrow:
        return f"{index + 1}/{len(items)} {items[index].mark.value}"
    return f"{index + 1} of {len(items)} calls, {len(approvals.waiting)} undecided"


def calls(approvals: ApprovalList) -> Content:
    """Return up to `LIST_ROWS` lines around the shown call, each with its mark as a word."""
    items, index = approvals.items, approvals.index
    first = max(0, min(index - LIST_ROWS + 2, len(items) - LIST_ROWS))
    lines = []
    for at in range(first, min(len(items), first + LIST_ROWS)):
        pointer = ">" if at == index else " "
        text = f"{pointer} {at + 1}  {items[at].mark.value:<17} {title(items[at].pending)}"
        lines.append(Content.styled(text, "bold" if at == index else ""))
    return Content("\n").join(lines)


def keys(approvals: ApprovalList, item: Item, *, left: int, narrow: bool) -> str:
    """Return the key legend for this call. `left` is how many of its lines have not been on screen yet."""
    if not item.waits:
        return "Tab next call   Esc close"
    return _short(item, left) if narrow else _long(approvals, item, left)


def _long(approvals: ApprovalList, item: Item, left: int) -> str:
    more = f"{left} more line{'s' if left != 1 else ''} below"
    deny = "d deny   D deny with a reason   Esc later"
    if item.pending.in_doubt and item.pending.denial is not None:
        return "u tell the model it is unknown   m mark done\nD unknown, with words to the model   Esc later"
    if item.pending.denial is not None:
        rest = "   A approve the rest" if approvals.approvable() else ""
        return f"e edit   {deny}{rest}"
    if item.pending.in_doubt:
        again = "R run it again" if item.seen else f"R scrolls, {more}"
        return f"{again}   u tell the model it is unknown   m mark done\nD unknown, with words to the model   Esc later"
    if not item.seen:
        return f"a scrolls, {more}   e edit\n{deny}"
    rest = "   A approve the rest" if len(approvals.approvable()) > 1 else ""
    return f"a approve once   s for this session   r make a rule   e edit\n{deny}{rest}"


def _short(item: Item, left: int) -> str:
    if item.pending.in_doubt and item.pending.denial is not None:
        return "m done\nu unknown  Esc"
    if item.pending.denial is not None:
        return "e d D Esc"
    if item.pending.in_doubt:
        return f"{'R again' if item.seen else f'R +{left}'}  m done\nu unknown  Esc"
    return "a s r e d D Esc" if item.seen else f"a +{left} lines  e d Esc"

"""Draw the surroundings of the payload in the approval dialog: heading, list of calls, legend of keys."""

from typing import Literal

from rich.cells import cell_len
from textual.content import Content

from chatops.domain.wording import cut
from chatops.runtime.descriptions import describe_extra
from chatops.tui.dialogs.approval_list import ApprovalList, ListedCall
from chatops.tui.dialogs.approval_text import title
from chatops.tui.dialogs.argument_fields import main_text
from chatops.tui.dialogs.rows import line, read_on
from chatops.tui.transcript.card import verb

_LONGEST_EXTRA = 100
"""Characters."""
_LONGEST_ALLOWED = 60
"""Characters of what a key allows for the session. A host that is longer stands in the call whole."""
LIST_ROWS = 4
"""Maximum lines of the list of calls."""


def heading(approvals: ApprovalList, *, width: int, narrow: bool) -> Content:
    """Return the dialog's heading: what is asked, and on the right who asks and which call is shown, of how many."""
    items, index = approvals.items, approvals.index
    item = items[index]
    tool, several = verb(item.pending.call.name), len(items) > 1
    if narrow and several:
        return Content(f"{index + 1}/{len(items)} {item.mark.value}")
    if item.pending.outcome_unknown:
        asks = "Outcome unknown" if narrow else f"{tool} was interrupted, outcome unknown"
    else:
        asks = f"Approve {tool}?" if item.pending.denial is None else f"Not permitted now: {tool}"
    place = f" · {index + 1} of {len(items)}, {len(approvals.undecided)} undecided" if several else ""
    role, model = line(item.pending.role), line(item.pending.model)
    for right in (f"{role} ({model}){place}" if model else "", f"{role}{place}"):
        gap = width - cell_len(asks) - cell_len(right)
        if right and gap >= 2 and not narrow:
            return Content.assemble(asks, " " * gap, (right, "not bold $text-muted"))
    return Content(asks)


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


LegendRoom = Literal["usual", "narrow", "lowest"]


def keys(approvals: ApprovalList, item: ListedCall, *, left: int, views: str, room: LegendRoom) -> str:
    """Return the key legend for this call, with `views` for how it is shown.

    `left` is how many of its lines have not been on screen yet. In small windows F1 names the other keys.
    """
    if not item.undecided:
        return "Tab next call   Esc close"
    if room == "usual":
        return _long(approvals, item, left, f"{views}{'   Tab next call' if len(approvals.items) > 1 else ''}")
    if item.pending.outcome_unknown or item.pending.denial is not None:
        return _narrow_exception(item)
    if room == "lowest":
        return f"{_approve(item) if item.seen else 'a read on'}  d deny  F1 keys"
    return _narrow(item, left, several=len(approvals.items) > 1)


def keys_at_once(item: ListedCall, *, room: LegendRoom) -> str:
    """Return the key legend for a call that a key of the user has brought up, until the others act too."""
    deny = "D unknown, with a note" if item.pending.outcome_unknown else "d deny   D deny with a reason"
    match room:
        case "usual":
            return f"{deny}   Esc later   The other keys act after a short pause."
        case "narrow":
            return "d deny  Esc later  The others after a pause."
        case "lowest":
            return "d deny  Others wait."


def _long(approvals: ApprovalList, item: ListedCall, left: int, view: str) -> str:
    more = read_on(left)
    pending = item.pending
    deny = "d deny   D deny with a reason"
    edit = f"e edit{'   E in your editor' if main_text(pending.facts.arguments)[0] else ''}"
    unknown = f"u tell the model it is unknown   m mark done\nD unknown, with a note   Esc later   {view}"
    if pending.outcome_unknown:
        again = "R run it again" if item.seen else f"R {more}"
        return unknown if pending.denial is not None else f"{again}   {unknown}"
    if pending.denial is not None:
        rest = f"   {_rest(approvals)}" if approvals.approvable() else ""
        return f"{edit}   {deny}   Esc later{rest}\n{view}"
    if not item.seen:
        return f"a {more}   {edit}\n{deny}   Esc later\n{view}"
    rest = f"   {_rest(approvals)}" if len(approvals.approvable()) > 1 else ""
    contain = "   c contain on a copy" if item.offer("c") is not None else ""
    extra = ""
    if item.offer("+") is not None:
        extra = f"+ approve once with {_extra(line(describe_extra(pending.facts.extra)))}"
    usual = f"a approve once{_session(item)}{'   r make a rule' if item.offer('r') is not None else ''}{contain}{rest}"
    # A call that will probably fail in its sandbox is first offered with what it lacks.
    first = "\n".join(filter(None, (extra, usual) if pending.facts.lacks else (usual, extra)))
    return f"{first}\n{edit}   {deny}   Esc later\n{view}"


def _session(item: ListedCall) -> str:
    """Return the keys that allow something for the session, each with what that is."""
    offers = (item.offer("s"), item.offer("S"))
    return "".join(f"   {one.key} {_cut(line(one.allows))}, this session" for one in offers if one is not None)


def _cut(allowed: str) -> str:
    return cut(allowed, most=_LONGEST_ALLOWED)


def _rest(approvals: ApprovalList) -> str:
    unseen = len(approvals.unseen())
    return f"A approve the rest{f' ({unseen} not read yet)' if unseen else ''}"


def _extra(described: str) -> str:
    """Return what `+` adds. If it is long, name the line of the payload that holds all of it."""
    return described if len(described) <= _LONGEST_EXTRA else "all that the line '+ adds' names"


def _narrow(item: ListedCall, left: int, *, several: bool) -> str:
    """Return the legend for a narrow window."""
    first = _approve(item) if item.seen else f"a {read_on(left, short=True)}"
    rule = ""
    if item.seen and (session := item.offer("s")) is not None:
        rule = f"  s {_cut(line(session.allows))}  r rule"
    return f"{first}  d deny  e edit{rule}{'  Tab next' if several else ''}  F1 more keys  Esc later"


def _approve(item: ListedCall) -> str:
    """Return the keys that approve once: `+` first if the call will probably fail in its sandbox."""
    if item.offer("+") is None:
        return "a approve"
    return "+ with more  a approve" if item.pending.facts.lacks else "a approve  + with more"


def _narrow_exception(item: ListedCall) -> str:
    """Return the legend for a narrow window and a call that is not simply approved."""
    if item.pending.outcome_unknown:
        again = "" if item.pending.denial is not None else f"R {'again' if item.seen else 'read on'}  "
        return f"{again}m done\nu unknown  Esc"
    return "e edit  d deny  F1 more keys  Esc later"

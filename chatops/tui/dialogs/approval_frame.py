"""The surroundings of the payload in the approval dialog: heading, list of calls, and the words of its keys."""

from dataclasses import dataclass, replace
from functools import partial

from rich.cells import cell_len
from textual.content import Content

from chatops.domain.wording import cut
from chatops.runtime.call_sheet import OfferKey
from chatops.runtime.descriptions import describe_extra
from chatops.tui.dialogs.approval_list import ApprovalList, ListedCall
from chatops.tui.dialogs.approval_text import title
from chatops.tui.dialogs.argument_fields import main_text
from chatops.tui.dialogs.dialog_keys import (
    ESCAPE,
    HELP,
    LATER,
    AnswerKey,
    DialogKey,
    Room,
    Words,
    keys_by_name,
    legend_of,
)
from chatops.tui.dialogs.key_guard import KeyKind
from chatops.tui.dialogs.rows import line
from chatops.tui.keys import KeyLegend
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCall:
    """The shown call with all that decides which keys its legend names."""

    item: ListedCall
    calls: ApprovalList
    details: bool = False
    """True while the details are shown."""
    sides_label: str | None = None
    full_label: str | None = None

    def if_offered(self, key: OfferKey, *words: str) -> Words:
        """Return the words of a key, None if the call does not have this answer."""
        return words if self.item.offer(key) is not None else None

    def session_label(self, key: OfferKey) -> Words:
        """Return what a key allows for the session."""
        if (offer := self.item.offer(key)) is None:
            return None
        allowed = cut(line(offer.allows), most=_LONGEST_ALLOWED)
        return f"{allowed}, this session", allowed

    @property
    def extra_label(self) -> Words:
        """What `+` adds. If it is long, this names the line of the payload that holds all of it."""
        described = line(describe_extra(self.item.pending.facts.extra))
        extra = described if len(described) <= _LONGEST_EXTRA else "all that the line '+ adds' names"
        return self.if_offered("+", f"approve once with {extra}", "with more")

    @property
    def rest_label(self) -> Words:
        """What approving the rest still waits for; None if there is no other call to approve."""
        unseen = len(self.calls.unseen())
        others = any(item is not self.item for item in self.calls.approvable())
        return f"approve the rest{f' ({unseen} not read yet)' if unseen else ''}" if others else None

    @property
    def details_label(self) -> str:
        """What the key of the details does."""
        said = " and the model's words" if self.item.pending.said.strip() else ""
        return "hide details" if self.details else f"details{said}"


_approving = partial(AnswerKey, runs=True, reads=True)
_for_unknown = partial(AnswerKey, unknown=True, group="unknown")
KEYS = (
    _approving("a", "approve", "approve once", ("approve once", "approve")),
    _approving(
        "s",
        "approve_exactly",
        "approve, and what its line names for the rest of the session, in this role",
        lambda asked: asked.session_label("s"),
    ),
    _approving(
        "S",
        "approve_edits",
        "the same for all edits in the folder of this file, but files that run later",
        lambda asked: asked.session_label("S"),
    ),
    _approving(
        "r",
        "ask_rule",
        "approve and make a rule: choose its pattern and scope first",
        lambda asked: asked.if_offered("r", "make a rule", "rule"),
    ),
    _approving(
        "+",
        "approve_with_extra",
        "approve once with what the call lacks in its sandbox, as the dialog names it",
        lambda asked: asked.extra_label,
        missing="Nothing is known that this call lacks in its sandbox.",
    ),
    AnswerKey("e", "edit", "edit the arguments, one field each; they are checked again, then shown", "edit"),
    AnswerKey(
        "E",
        "edit_outside",
        "edit the main text of the call (command, content) in $VISUAL or $EDITOR",
        lambda asked: "in your editor" if main_text(asked.item.pending.facts.arguments)[0] else None,
    ),
    AnswerKey("d", "deny", "deny this call; the turn continues", "deny", kind=KeyKind.DENY, unknown=None),
    AnswerKey(
        "D",
        "ask_reason",
        "deny and tell the model why",
        lambda asked: "unknown, with a note" if asked.item.pending.outcome_unknown else "deny with a reason",
        kind=KeyKind.DENY,
        unknown=None,
    ),
    AnswerKey(
        "c",
        "contain",
        "contain: go on in a copy of the folder, apply its changes at the end",
        lambda asked: asked.if_offered("c", "contain on a copy"),
        runs=True,
        missing="This call cannot be contained.",
    ),
    AnswerKey(
        "A",
        "approve_rest",
        "approve the rest, once each has been on screen",
        lambda asked: asked.rest_label,
        unknown=None,
    ),
    DialogKey(
        "tab right",
        "step_on",
        "next call; shift+Tab, Left: the one before",
        lambda asked: ("next call", "next") if len(asked.calls.items) > 1 or not asked.item.undecided else None,
    ),
    DialogKey("shift+tab left", "step_back"),
    DialogKey("up down pageup pagedown space", "scroll", "scroll the payload; g start, G end"),
    DialogKey(
        "v",
        "toggle_details",
        "show or hide details: the model's words, raw arguments, digests",
        lambda asked: asked.details_label,
        at_once=True,
    ),
    DialogKey(
        "|",
        "toggle_sides",
        "show the diff side by side, in a window of at least 90 columns",
        lambda asked: asked.sides_label,
        at_once=True,
    ),
    DialogKey("f", "toggle_full", "full screen", lambda asked: asked.full_label, at_once=True),
    replace(HELP, help="this help"),
    replace(
        ESCAPE, help="decide later: it stays pending", label=lambda asked: LATER if asked.item.undecided else "close"
    ),
    _for_unknown(
        "R",
        "approve",
        "run it again",
        lambda asked: None if asked.item.pending.denial else ("run it again", "again"),
        runs=True,
        reads=True,
    ),
    _for_unknown(
        "u", "deny", "tell the model that the outcome is unknown", ("tell the model it is unknown", "unknown")
    ),
    _for_unknown("m", "mark_done", "mark as done: you have checked that it took effect", ("mark done", "done")),
)
BY_NAME = keys_by_name(KEYS)


def call_legend(asked: AskedCall, *, room: Room, unread: str = "") -> KeyLegend:
    """Return the legend for a call. `unread`: what approving keys do until all of it was read; empty once it was."""
    pending, views = asked.item.pending, "v | f tab"
    unknown, denied, lacks = pending.outcome_unknown, pending.denial is not None, pending.facts.lacks
    lines: tuple[str, ...]
    if not asked.item.undecided:
        lines, room = ("tab escape",), Room.USUAL
    elif room is Room.USUAL and unknown:
        lines = "R u m", f"D escape {views}"
    elif room is Room.USUAL and denied:
        lines = "e E d D escape A", views
    elif room is Room.USUAL and unread:
        lines = "a e E", "d D escape", views
    elif room is Room.USUAL:
        # A call that will probably fail in its sandbox is first offered with what it lacks.
        answers = "a s S r c A"
        lines = *(("+", answers) if lacks else (answers, "+")), "e E d D escape", views
    elif unknown:
        lines, room, unread = ("R m", "u escape"), Room.LOWEST, unread and "read on"
    elif denied:
        lines, room = ("e d f1 escape",), Room.NARROW
    else:
        once = "a" if unread else "+ a" if lacks else "a +"
        unread = "read on" if unread and room is Room.LOWEST else unread
        rule = "" if unread else " s r"
        lines = (f"{once} d f1" if room is Room.LOWEST else f"{once} d e{rule} tab f1 escape",)
    return legend_of(BY_NAME, *lines, state=asked, room=room, unread=unread)

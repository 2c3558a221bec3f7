"""The keys of the approval dialog (`KEYS`): what each does, what its legend says of it, and which a call has."""

from dataclasses import replace
from functools import partial

from chatops.domain.events import AskReason
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import cut
from chatops.policy.sandbox import describe_extra
from chatops.runtime.call_sheet import OfferKey
from chatops.tui.dialogs.approval_list import ApprovalList, ListedCall
from chatops.tui.dialogs.dialog_keys import (
    ESCAPE,
    HELP,
    LATER,
    AnswerKey,
    Answers,
    DialogKey,
    Room,
    Words,
    keys_by_name,
    legend_of,
)
from chatops.tui.dialogs.fields import main_text
from chatops.tui.dialogs.key_gate import KeyKind
from chatops.tui.dialogs.rows import line
from chatops.tui.keys import KeyLegend

_LONGEST_EXTRA = 100
"""Characters of what `+` adds. If that is longer, the legend names the line of the payload that holds all of it."""
_LONGEST_ALLOWED = 60
"""Characters of what a key allows for the session. A host that is longer stands in the call whole."""


@frozen_dataclass
class AskedCall:
    """The shown call with all that decides which keys its legend names."""

    item: ListedCall
    calls: ApprovalList
    details: bool = False
    """True while the details are shown."""
    sides_label: str | None = None
    """The words of the key that shows a diff side by side; None if it has no effect."""
    full_label: str | None = None
    """The words of the key for the full screen; None if it has no effect."""
    applies: str = ""
    """How many of its changes `a` applies, for a call that is about changes; empty for any other."""

    @property
    def has_main_text(self) -> bool:
        """True if the call has a text that an editor can show."""
        return bool(main_text(self.item.pending.facts.arguments)[0])

    def if_offered(self, key: OfferKey, *words: str) -> Words:
        """Return the words of a key, None if the call does not have this answer."""
        return words if self.item.offer(key) is not None else None

    def unless_budget(self, *words: str, budget: str) -> Words:
        """Return the words of a key, or those that it has in the question about a `budget`."""
        return (budget,) if self.item.pending.reason is AskReason.BUDGET else words

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
        if self.item.pending.reason is AskReason.BUDGET or self.calls.approvable() in ([], [self.item]):
            return None
        unseen = len(self.calls.unseen())
        return f"approve the rest{f' ({unseen} not read yet)' if unseen else ''}"

    @property
    def details_label(self) -> str:
        """What the key of the details does."""
        with_words = " and the model's words" if self.item.pending.said.strip() else ""
        return "hide details" if self.details else f"details{with_words}"


_approving = partial(AnswerKey, runs=True, needs_reading=True)
_for_unknown = partial(AnswerKey, answers=Answers.OUTCOME_UNKNOWN, group="unknown")
KEYS = (
    _approving(
        "a", "approve", "approve once", lambda asked: asked.unless_budget("approve once", "approve", budget="go on")
    ),
    _approving(
        "s",
        "approve_exactly",
        "approve, and what its line names for the rest of the session, in this role",
        lambda asked: asked.session_label("s"),
    ),
    _approving(
        "S",
        "approve_edits",
        "the same for all edits in the folder of this file, but not of files that run later",
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
    AnswerKey(
        "e",
        "edit",
        "edit the arguments, one field each; they are checked again, then shown",
        lambda asked: asked.if_offered("e", "edit"),
    ),
    AnswerKey(
        "E",
        "edit_outside",
        "edit the main text of the call (command, content) in $VISUAL or $EDITOR",
        lambda asked: asked.if_offered("e", "in your editor") if asked.has_main_text else None,
    ),
    AnswerKey(
        "d",
        "deny",
        "deny this call; the turn continues",
        lambda asked: asked.unless_budget("deny", budget="end the turn"),
        kind=KeyKind.DENY,
    ),
    AnswerKey(
        "D",
        "ask_reason",
        "deny and tell the model why",
        lambda asked: "unknown, with a note" if asked.item.pending.outcome_unknown else "deny with a reason",
        kind=KeyKind.DENY,
        answers=Answers.ALL,
    ),
    AnswerKey(
        "c",
        "contain",
        "contain: continue in a copy of the folder, apply its changes at the end",
        lambda asked: asked.if_offered("c", "contain on a copy"),
        runs=True,
        missing="This call cannot be contained.",
    ),
    AnswerKey(
        "A",
        "approve_rest",
        "approve the rest, once each has been on screen",
        lambda asked: asked.rest_label,
        answers=Answers.ALL,
    ),
    DialogKey(
        "tab right",
        "go_next",
        "next call; shift+Tab, Left: the one before",
        lambda asked: ("next call", "next") if len(asked.calls.items) > 1 else None,
    ),
    DialogKey("shift+tab left", "go_previous"),
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
        needs_reading=True,
    ),
    _for_unknown(
        "u", "deny", "tell the model that the outcome is unknown", ("tell the model it is unknown", "unknown")
    ),
    _for_unknown("m", "mark_done", "mark as done: you have checked that it took effect", ("mark done", "done")),
)
BY_NAME = keys_by_name(KEYS)
VIEW_KEYS = "v | f"
"""The keys that change how a call is shown."""


def call_legend(asked: AskedCall, *, room: Room, unread: str = "") -> KeyLegend:
    """Return the legend for a call. `unread`: what approving keys do until all of it was read; empty once it was.

    The keys that matter most come first. A smaller room leaves out those that the help names too.
    """
    pending, view_keys = asked.item.pending, f"{VIEW_KEYS} tab"
    unknown, denied, lacks = pending.outcome_unknown, pending.denial is not None, pending.facts.lacks
    lines: tuple[str, ...]
    if not asked.item.undecided:
        lines, room = ("tab escape",), Room.USUAL
    elif room is Room.USUAL and unknown:
        lines = "R u m", f"D escape {view_keys}"
    elif room is Room.USUAL and denied:
        lines = "e E d D escape A", view_keys
    elif room is Room.USUAL and unread:
        lines = "a e E", "d D escape", view_keys
    elif room is Room.USUAL:
        # A call that will probably fail in its sandbox is first offered with what it lacks.
        answers = "a s S r c A"
        lines = *(("+", answers) if lacks else (answers, "+")), "e E d D escape", view_keys
    elif unknown:
        lines, room, unread = ("R m", "u escape"), Room.LOWEST, unread and "read on"
    elif denied:
        lines, room = ("e d f1 escape",), Room.NARROW
    else:
        approving = "a" if unread else "+ a" if lacks else "a +"
        unread = "read on" if unread and room is Room.LOWEST else unread
        making_rules = "" if unread else " s r"
        lines = (f"{approving} d f1" if room is Room.LOWEST else f"{approving} d e{making_rules} tab f1 escape",)
    return legend_of(BY_NAME, *lines, state=asked, room=room, unread=unread)

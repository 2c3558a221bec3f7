"""What the approval dialog shows: heading, list of calls, the facts of the call as rows, and the words of its keys."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import PurePath

from rich.cells import cell_len
from rich.style import Style
from textual.content import Content

from chatops.domain.decisions import Decision, Rejected
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import CallFacts
from chatops.domain.wording import cut
from chatops.policy.sandbox import describe_extra
from chatops.runtime.call_sheet import (
    CallSheet,
    Fact,
    Form,
    OfferKey,
    Weight,
    asked_by,
    call_sheet,
    command_lines,
    question,
    reading_order,
    subject_line,
)
from chatops.tui.dialogs.approval_list import ApprovalList, ListedCall
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
from chatops.tui.dialogs.fields import main_text
from chatops.tui.dialogs.key_gate import KeyKind
from chatops.tui.dialogs.question import Question
from chatops.tui.dialogs.rows import FOREIGN, Description, DiffRows, Row, RowTone, Span, line
from chatops.tui.keys import KeyLegend
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import coloured, warm_up
from chatops.tui.transcript.card import pending_verb

_LONGEST_EXTRA = 100
"""Characters."""
_LONGEST_ALLOWED = 60
"""Characters of what a key allows for the session. A host that is longer stands in the call whole."""
LIST_ROWS = 4
"""Maximum lines of the list of calls."""
_TONES: dict[Weight, RowTone] = {
    Weight.NOTE: "caution",
    Weight.CALL: "plain",
    Weight.CAUTION: "caution",
    Weight.EFFECT: "plain",
    Weight.ATTEMPT: "plain",
    Weight.LACK: "caution",
    Weight.SETTING: "quiet",
    Weight.DETAIL: "quiet",
}


def heading(approvals: ApprovalList, *, width: int, narrow: bool, colours: Mapping[str, str]) -> Content:
    """Return the dialog's heading: what is asked, and on the right who asks and which call is shown, of how many.

    `colours` are those of the roles.
    """
    items, index = approvals.items, approvals.index
    item = items[index]
    several = len(items) > 1
    if narrow and several:
        return Content(f"{index + 1}/{len(items)} {item.mark.value}")
    asks = "Outcome unknown" if narrow and item.pending.outcome_unknown else line(question(item.pending))
    place = f" · {index + 1} of {len(items)}, {len(approvals.undecided)} undecided" if several else ""
    role, model = line(asked_by(item.pending)), line(item.pending.model)
    for right in (f"{role} ({model}){place}" if model else "", f"{role}{place}"):
        gap = width - cell_len(asks) - cell_len(right)
        if right and gap >= 2 and not narrow:
            owner = f"bold {colours.get(item.pending.role, '')}".rstrip()
            rest = (right.removeprefix(role), "not bold $text-muted")
            return Content.assemble(asks, " " * gap, (role, owner), rest)
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


@frozen_dataclass
class AskedCall:
    """The shown call with all that decides which keys its legend names."""

    item: ListedCall
    calls: ApprovalList
    details: bool = False
    """True while the details are shown."""
    sides_label: str | None = None
    full_label: str | None = None
    applies: str = ""
    """How many of its changes `a` applies, for a call that is about changes."""

    @property
    def facts(self) -> CallFacts:
        """The facts of the call."""
        return self.item.pending.facts

    def if_offered(self, key: OfferKey, *words: str) -> Words:
        """Return the words of a key, None if the call does not have this answer."""
        return words if self.item.offer(key) is not None else None

    def unless_budget(self, instead: str, *words: str) -> Words:
        """Return the words of a key, or those `instead` that it has in the question about a budget."""
        return (instead,) if self.item.pending.reason is AskReason.BUDGET else words

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
        alone = self.item.pending.reason is AskReason.BUDGET
        others = not alone and any(item is not self.item for item in self.calls.approvable())
        return f"approve the rest{f' ({unseen} not read yet)' if unseen else ''}" if others else None

    @property
    def details_label(self) -> str:
        """What the key of the details does."""
        said = " and the model's words" if self.item.pending.said.strip() else ""
        return "hide details" if self.details else f"details{said}"


_approving = partial(AnswerKey, runs=True, reads=True)
_for_unknown = partial(AnswerKey, unknown=True, group="unknown")
KEYS = (
    _approving("a", "approve", "approve once", lambda asked: asked.unless_budget("go on", "approve once", "approve")),
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
        lambda asked: asked.if_offered("e", "in your editor") if main_text(asked.facts.arguments)[0] else None,
    ),
    AnswerKey(
        "d",
        "deny",
        "deny this call; the turn continues",
        lambda asked: asked.unless_budget("end the turn", "deny"),
        kind=KeyKind.DENY,
    ),
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
        unknown=None,
    ),
    DialogKey(
        "tab right",
        "go_next",
        "next call; shift+Tab, Left: the one before",
        lambda asked: ("next call", "next") if len(asked.calls.items) > 1 or not asked.item.undecided else None,
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
        reads=True,
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
    """Return the legend for a call. `unread`: what approving keys do until all of it was read; empty once it was."""
    pending, views = asked.item.pending, f"{VIEW_KEYS} tab"
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


def describe(
    pending: PendingCall,
    *,
    theme: BlockTheme,
    before: CallSheet | None = None,
    about: Iterable[Fact] = (),
    details: bool = False,
    side_by_side: bool = False,
) -> Description:
    """Return everything the user has to see, the call first. The details are not part of the payload.

    Settings that are as in `before`, which the user has seen, fold into one row. The details name them again. `about`
    are facts of the session that the call is of.
    """
    sheet = call_sheet(pending, now=time.time())
    shown, folded = sheet.since(before)
    notes, above, call, below, blocks = reading_order((*about, *shown))
    payload = [
        *(Row(text=line(fact.value), tone="caution") for fact in notes),
        *_gap(fact_rows(above)),
        *_call(pending, call, theme=theme, side_by_side=side_by_side),
        *_gap(fact_rows(below)),
    ]
    if folded:
        same = ", ".join(dict.fromkeys(fact.noun or fact.label for fact in folded))
        payload += [*(() if below else (Row(),)), Row(text=f"unchanged since the last call: {same}", tone="quiet")]
    for fact in blocks:
        payload += _block(fact)
    while payload and payload[0] == Row():
        payload.pop(0)
    behind = [
        replace(fact, form=Form.LINE) if fact.form is Form.BRIEF else fact
        for fact in sheet.facts
        if details and (fact in folded or fact.form is Form.BRIEF or fact.weight is Weight.DETAIL)
    ]
    return Description(rows=(*payload, *_details(behind)), payload=len(payload))


def _gap(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with an empty one before them, if there are any."""
    return [Row(), *found] if (found := list(rows)) else []


def _details(facts: Iterable[Fact]) -> Iterator[Row]:
    for single, group in groupby(facts, key=lambda fact: fact.form.one_line):
        if single:
            yield from _gap(fact_rows(group))
        else:
            for fact in group:
                yield from _block(fact)


def change_of(pending: PendingCall, theme: BlockTheme) -> DiffRows:
    """Return the diff of a call."""
    return DiffRows(pending.facts.diff, name=next(iter(pending.facts.paths), ""), theme=theme)


def title(pending: PendingCall) -> str:
    """Return one line for the list: the tool and the call's subject."""
    return f"{pending_verb(pending)}  {subject_line(pending)}"


def _call(pending: PendingCall, facts: Iterable[Fact], *, theme: BlockTheme, side_by_side: bool) -> Iterator[Row]:
    """Yield the command in syntax colours, the diff and the arguments."""
    change = change_of(pending, theme) if pending.facts.diff else None
    for fact in facts:
        if fact.form is Form.PROGRAM:
            yield from _program(pending.facts, theme)
        elif fact.form is Form.FILE:
            counts = f"  {change.counts}" if change is not None else ""
            yield from (Row(), Row(text=line(f"{fact.value}{counts}"), tone="heading"))
        elif fact.form is Form.DIFF and change is not None:
            yield from change.rows(side_by_side=side_by_side)
        else:
            yield from _block(fact, tone="code")


def _block(fact: Fact, *, tone: RowTone = "quiet") -> Iterator[Row]:
    """Yield a text of several lines. Each line that somebody else wrote is marked, so that none looks like ours."""
    yield from (Row(), Row(text=fact.label[:1].upper() + fact.label[1:], tone="heading"))
    lead = FOREIGN if fact.form is Form.FOREIGN else Row().lead
    yield from (Row(text=line(part), tone=tone, exact=True, lead=lead) for part in fact.value.split("\n"))


def _program(facts: CallFacts, theme: BlockTheme) -> Iterator[Row]:
    """Yield the command in syntax colours, its risky parts marked. A line with one begins with a sign."""
    lines = list(command_lines(facts))
    colours = _colour_lines("\n".join(text for text, _ in lines), language=_language(facts), theme=theme)
    # Nothing in the dialog weighs more than what would run.
    under = Style(bgcolor=theme.code.bgcolor, bold=True)
    yield Row()
    for (text, marks), styled in zip(lines, colours, strict=True):
        spans = [*styled, *(Span(*mark) for mark in marks)]
        lead, strong = (f"{theme.symbols.risky} ", _STRONG) if marks else ("  ", None)
        yield Row(
            text=text, tone="code", exact=True, spans=partial(tuple, spans), lead=lead, lead_style=strong, under=under
        )


_STRONG = Style(bold=True)


def _language(facts: CallFacts) -> str:
    if not facts.interpreter:
        return "bash"
    return "python" if PurePath(facts.interpreter[0]).name.startswith("python") else ""


def _colour_lines(text: str, *, language: str, theme: BlockTheme) -> list[list[Span]]:
    """Return the syntax colours of each line."""
    warm_up()
    lines = coloured(text, language=language, theme=theme).split("\n", allow_blank=True)
    return [
        [Span(span.start, span.end, span.style) for span in each.spans if isinstance(span.style, Style)]
        for each in lines
    ]


def fact_rows(facts: Iterable[Fact]) -> Iterator[Row]:
    """Yield labelled values; a label that repeats stands once."""
    before = ""
    for fact in facts:
        label = "" if fact.label == before else fact.label
        yield Row(
            label=label,
            text=line(fact.value),
            exact=fact.form is Form.EXACT,
            brief=fact.form is Form.BRIEF,
            tone=_TONES[fact.weight],
        )
        before = fact.label


def reason_question(pending: PendingCall) -> Question[Decision]:
    """Return the question for the reason of a denial, which the model is given."""
    tool = line(pending.call.name)
    return Question[Decision](
        f"Do not run {tool} again" if pending.outcome_unknown else f"Deny {tool}",
        explain="Tell the model why, or what to do instead. The turn continues.",
        text="",
        check=lambda text: Rejected(reason=text.strip()),
        done="tells the model" if pending.outcome_unknown else "denies",
        enter_answers=True,
    )

"""The facts of a pending call as rows of the approval dialog: the command in colours, the diff, labels and values."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.style import Style

from chatops.domain.decisions import Decision, Rejected
from chatops.domain.errors import ChatopsError
from chatops.domain.events import PendingCall
from chatops.domain.sanitize import show_path
from chatops.domain.tools import CallFacts
from chatops.runtime.call_sheet import CallSheet, Fact, Form, Weight, call_sheet, risky_parts
from chatops.runtime.descriptions import describe_decision
from chatops.tui.dialogs.diff_rows import DiffRows
from chatops.tui.dialogs.question import Question
from chatops.tui.dialogs.rows import FOREIGN, Description, Row, RowTone, Span, line
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import coloured, warm_up
from chatops.tui.transcript.card import verb

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView

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
_SHORT = 5
"""Lines of a call. The cautions about a longer one stand above it, so that none begins far down."""
_COLUMNS = 70
"""Characters that a line of the call has about."""


def describe(
    pending: PendingCall,
    *,
    theme: BlockTheme,
    before: CallSheet | None = None,
    details: bool = False,
    side_by_side: bool = False,
) -> Description:
    """Return everything the user has to see, the call first. The details are not part of the payload.

    Settings that are as in `before`, which the user has seen, fold into one row. The details name them again.
    """
    sheet = call_sheet(pending, now=time.time())
    shown, folded = sheet.since(before)
    notes, call, cautions, rest = (
        [one for one in shown if one.weight in weights]
        for weights in (
            (Weight.NOTE,),
            (Weight.CALL,),
            (Weight.CAUTION,),
            (Weight.EFFECT, Weight.ATTEMPT, Weight.LACK, Weight.SETTING),
        )
    )
    blocks = [one for one in rest if one.form in (Form.FOREIGN, Form.TEXT)]
    labelled = [*cautions, *(one for one in rest if one not in blocks)]
    long = sum(1 + len(part) // _COLUMNS for one in call for part in one.value.split("\n")) > _SHORT
    above, below = (cautions, labelled[len(cautions) :]) if long else ([], labelled)
    payload = [
        *(Row(text=line(one.value), tone="caution") for one in notes),
        *_gap(_rows(above)),
        *_call(pending, call, theme=theme, side_by_side=side_by_side),
        *_gap(_rows(below)),
    ]
    if folded:
        same = ", ".join(dict.fromkeys(_NOUNS.get(one.label, one.label) for one in folded))
        payload += [*(() if below else (Row(),)), Row(text=f"as for the last call: {same}", tone="quiet")]
    for one in blocks:
        payload += _block(one)
    while payload and payload[0] == Row():
        payload.pop(0)
    behind = [
        replace(one, form=Form.LINE) if one.form is Form.BRIEF else one
        for one in sheet.facts
        if details and (one in folded or one.form is Form.BRIEF or one.weight is Weight.DETAIL)
    ]
    return Description(rows=(*payload, *_details(behind)), payload=len(payload))


_NOUNS = MappingProxyType({"runs in": "folder", "asks because": "reason to ask"})
"""Names of settings whose labels begin a sentence."""


def _gap(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with an empty one before them, if there are any."""
    return [Row(), *found] if (found := list(rows)) else []


def _details(facts: Iterable[Fact]) -> Iterator[Row]:
    for single, group in groupby(facts, key=lambda one: one.form.one_line):
        if single:
            yield from _gap(_rows(group))
        else:
            for one in group:
                yield from _block(one)


def change_of(pending: PendingCall, theme: BlockTheme) -> DiffRows:
    """Return the diff of a call."""
    return DiffRows(pending.facts.diff, name=next(iter(pending.facts.paths), ""), theme=theme)


def title(pending: PendingCall) -> str:
    """Return one line for the list: the tool and the call's subject."""
    facts = pending.facts
    paths = " ".join(show_path(facts.relative(path)) for path in facts.paths)
    about = line(facts.command) or paths or line(" ".join(facts.hosts) or facts.arguments)
    return f"{verb(pending.call.name)}  {about}"


def _call(pending: PendingCall, facts: Iterable[Fact], *, theme: BlockTheme, side_by_side: bool) -> Iterator[Row]:
    """Yield the command in syntax colours, the diff and the arguments."""
    change = change_of(pending, theme) if pending.facts.diff else None
    for one in facts:
        if one.form is Form.PROGRAM:
            yield from _program(pending.facts, theme)
        elif one.form is Form.FILE and change is not None:
            yield from (Row(), Row(text=line(f"{one.value}  {change.counts}"), tone="heading"))
        elif one.form is Form.DIFF and change is not None:
            yield from change.rows(side_by_side=side_by_side)
        else:
            yield from _block(one, tone="code")


def _block(fact: Fact, *, tone: RowTone = "quiet") -> Iterator[Row]:
    """Yield a text of several lines. Each line that somebody else wrote is marked, so that none looks like ours."""
    yield from (Row(), Row(text=fact.label[:1].upper() + fact.label[1:], tone="heading"))
    lead = FOREIGN if fact.form is Form.FOREIGN else Row().lead
    yield from (Row(text=line(part), tone=tone, exact=True, lead=lead) for part in fact.value.split("\n"))


def _program(facts: CallFacts, theme: BlockTheme) -> Iterator[Row]:
    """Yield the command in syntax colours, its risky parts marked. A line with one begins with a sign."""
    parts = facts.command.split("\n")
    shown = [line(part) for part in parts]
    colours = _coloured("\n".join(shown), language=_language(facts), theme=theme)
    begin, risky = 0, deque(risky_parts(facts))
    under = Style(bgcolor=theme.code.bgcolor)
    yield Row()
    for part, text, styled in zip(parts, shown, colours, strict=True):
        end, marks = begin + len(part), list[Span]()
        while risky and risky[0][0] < end:
            first, last = risky[0]
            marks.append(Span(_place(part, first - begin), _place(part, last - begin)))
            if last > end:
                break  # It goes on in the next line.
            risky.popleft()
        spans = [*styled, *marks] if len(marks) <= _MOST_MARKS else [Span(0, len(text))]
        lead, strong = (f"{theme.symbols.risky} ", _STRONG) if marks else ("  ", None)
        yield Row(
            text=text, tone="code", exact=True, spans=partial(tuple, spans), lead=lead, lead_style=strong, under=under
        )
        begin = end + 1


def _place(part: str, at: int) -> int:
    """Return where the character of a command's line at index `at` stands once the line is revealed."""
    return len(line(part[: max(0, at)]))


_MOST_MARKS = 100
"""Marks on one line above which all of it is marked: placing each takes time in the length of the line."""
_STRONG = Style(bold=True)


def _language(facts: CallFacts) -> str:
    if not facts.interpreter:
        return "bash"
    return "python" if PurePath(facts.interpreter[0]).name.startswith("python") else ""


def _coloured(text: str, *, language: str, theme: BlockTheme) -> list[list[Span]]:
    """Return the syntax colours of each line."""
    warm_up()
    lines = coloured(text, language=language, theme=theme).split("\n", allow_blank=True)
    return [
        [Span(one.start, one.end, one.style) for one in each.spans if isinstance(one.style, Style)] for each in lines
    ]


def _rows(facts: Iterable[Fact]) -> Iterator[Row]:
    """Yield labelled values; a label that repeats stands once."""
    before = ""
    for one in facts:
        label = "" if one.label == before else one.label
        yield Row(
            label=label,
            text=line(one.value),
            exact=one.form is Form.EXACT,
            brief=one.form is Form.BRIEF,
            tone=_TONES[one.weight],
        )
        before = one.label


async def answered_elsewhere(session: "SessionView", pending: PendingCall) -> str:
    """Return who answered a call first, where and when, as a sentence; empty if that is not known."""
    try:
        answer = await session.decision_on(pending.call.id)
    except ChatopsError:
        return ""
    return (
        f"Answered elsewhere: {line(pending.call.name)} was {describe_decision(answer)}." if answer is not None else ""
    )


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

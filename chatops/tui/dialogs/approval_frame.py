"""What the approval dialog shows of calls: heading, list, and the facts of the shown call as rows."""

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
from chatops.domain.events import PendingCall
from chatops.domain.tools import CallFacts
from chatops.domain.wording import cut
from chatops.runtime.call_facts import Fact, Form, Weight, asked_by, command_lines
from chatops.runtime.call_sheet import CallSheet, call_sheet, question, reading_order, subject_line
from chatops.tui.dialogs.approval_list import ApprovalList
from chatops.tui.dialogs.question import Question
from chatops.tui.dialogs.rows import FOREIGN, Description, DiffRows, Row, RowTone, Span, line
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import coloured, warm_up
from chatops.tui.transcript.card import pending_verb

_LONGEST_SUBJECT = 200
"""Characters of a call that is shown while a reason is written: some lines."""
_LONGEST_KNOWN = 40
"""Characters of a setting that is as for the call before."""
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
    if not several and not item.undecided:
        return Content(line(f"{pending_verb(item.pending)}: {item.mark.value}"))
    asked = "Outcome unknown" if narrow and item.pending.outcome_unknown else line(question(item.pending))
    if narrow:
        return Content(asked)
    place = f" · {index + 1} of {len(items)}, {len(approvals.undecided)} undecided" if several else ""
    role, model = line(asked_by(item.pending)), line(item.pending.model)
    # The model is left out if there is no room for it.
    for after_role in (f" ({model}){place}" if model else place, place):
        gap = width - cell_len(asked) - cell_len(role + after_role)
        if gap >= 2:
            role_style = f"bold {colours.get(item.pending.role, '')}".rstrip()
            return Content.assemble(asked, " " * gap, (role, role_style), (after_role, "not bold $text-muted"))
    return Content(asked)


def call_list(approvals: ApprovalList) -> Content:
    """Return up to `LIST_ROWS` lines around the shown call, each with its mark as a word."""
    items, index = approvals.items, approvals.index
    # The list shows one call after the shown one, if there is one, so that the user sees what follows.
    first = max(0, min(index + 2 - LIST_ROWS, len(items) - LIST_ROWS))
    lines = []
    for at, item in enumerate(items[first : first + LIST_ROWS], start=first):
        text = f"{'>' if at == index else ' '} {at + 1}  {item.mark.value:<17} {title(item.pending)}"
        lines.append(Content.styled(text, "bold" if at == index else ""))
    return Content("\n").join(lines)


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
    are facts about the session of the call.
    """
    sheet = call_sheet(pending, now=time.time())
    shown, folded = sheet.fold_known(before)
    notes, above, call, below, blocks = reading_order((*about, *shown))
    payload = [
        *(Row(text=line(fact.value), tone="caution") for fact in notes),
        *_after_gap(fact_rows(above)),
        *_call_rows(pending, call, theme=theme, side_by_side=side_by_side),
        *_after_gap(fact_rows(below)),
    ]
    if folded:
        known = " · ".join(map(_known_setting, folded))
        payload += [*(() if below else (Row(),)), Row(label="as before", text=known, brief=True, tone="quiet")]
    for fact in blocks:
        payload += _block_rows(fact)
    while payload and payload[0] == Row():
        payload.pop(0)
    only_in_details = [
        replace(fact, form=Form.LINE) if fact.form is Form.BRIEF else fact
        for fact in sheet.facts
        if details and (fact in folded or fact.form is Form.BRIEF or fact.weight is Weight.DETAIL)
    ]
    return Description(rows=(*payload, *_detail_rows(only_in_details)), payload=len(payload))


def _known_setting(fact: Fact) -> str:
    """Return a known setting, shortened; its label alone if its value could look like a further one."""
    is_plain = fact.form.one_line and "·" not in fact.value
    return f"{fact.label} {cut(line(fact.value), most=_LONGEST_KNOWN)}" if is_plain else fact.label


def _after_gap(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with an empty one before them, if there are any."""
    return [Row(), *found] if (found := list(rows)) else []


def _detail_rows(facts: Iterable[Fact]) -> Iterator[Row]:
    for has_one_line, group in groupby(facts, key=lambda fact: fact.form.one_line):
        if has_one_line:
            yield from _after_gap(fact_rows(group))
        else:
            for fact in group:
                yield from _block_rows(fact)


def title(pending: PendingCall) -> str:
    """Return one line for the list: the tool and the call's subject."""
    return f"{pending_verb(pending)}  {subject_line(pending)}"


def _call_rows(pending: PendingCall, facts: Iterable[Fact], *, theme: BlockTheme, side_by_side: bool) -> Iterator[Row]:
    """Yield the command in syntax colours, the diff and the arguments."""
    diff = None
    if pending.facts.diff:
        diff = DiffRows(pending.facts.diff, name=next(iter(pending.facts.paths), ""), theme=theme)
    for fact in facts:
        if fact.form is Form.PROGRAM:
            yield from _program_rows(pending.facts, theme)
        elif fact.form is Form.FILE:
            counts = f"  {diff.counts}" if diff is not None else ""
            yield from (Row(), Row(text=line(f"{fact.value}{counts}"), tone="heading"))
        elif fact.form is Form.DIFF and diff is not None:
            yield from diff.rows(side_by_side=side_by_side)
        else:
            yield from _block_rows(fact, tone="code")


def _block_rows(fact: Fact, *, tone: RowTone = "quiet") -> Iterator[Row]:
    """Yield a heading and a text below it. Lines of somebody else are marked, so that none looks like ours."""
    yield from (Row(), Row(text=fact.label[:1].upper() + fact.label[1:], tone="heading"))
    lead = FOREIGN if fact.form is Form.FOREIGN else Row().lead
    yield from (Row(text=line(part), tone=tone, exact=True, lead=lead) for part in fact.value.split("\n"))


def _program_rows(facts: CallFacts, theme: BlockTheme) -> Iterator[Row]:
    """Yield the command in syntax colours, with its risky parts marked, and a sign before each line that has one."""
    lines = list(command_lines(facts))
    warm_up()
    code = coloured("\n".join(text for text, _, _ in lines), language=_language(facts), theme=theme)
    # Nothing in the dialog weighs more than what would run.
    background = Style(bgcolor=theme.code.bgcolor, bold=True)
    yield Row()
    for (text, marks, starts), coloured_line in zip(lines, code.split("\n", allow_blank=True), strict=True):
        colours = (
            Span(span.start, span.end, span.style) for span in coloured_line.spans if isinstance(span.style, Style)
        )
        yield Row(
            text=text,
            tone="code",
            exact=True,
            spans=partial(tuple, [*colours, *(Span(*mark) for mark in marks)]),
            lead=f"{theme.symbols.risky} " if starts else "  ",
            lead_style=Style(bold=True) if starts else None,
            background=background,
        )


def _language(facts: CallFacts) -> str:
    """Return the language of what would run; empty if its interpreter is neither a shell nor Python."""
    if not facts.interpreter:
        return "bash"
    return "python" if PurePath(facts.interpreter[0]).name.startswith("python") else ""


def fact_rows(facts: Iterable[Fact]) -> Iterator[Row]:
    """Yield labelled values; a label that repeats stands once."""
    label_before = ""
    for fact in facts:
        yield Row(
            label="" if fact.label == label_before else fact.label,
            text=line(fact.value),
            exact=fact.form is Form.EXACT,
            brief=fact.form is Form.BRIEF,
            tone=_TONES[fact.weight],
        )
        label_before = fact.label


def reason_question(pending: PendingCall) -> Question[Decision]:
    """Return the question for the reason of a denial, which the model is given."""
    tool = line(pending.call.name)
    return Question[Decision](
        f"Do not run {tool} again" if pending.outcome_unknown else f"Deny {tool}",
        # The question covers the call.
        explain=f"{cut(subject_line(pending), most=_LONGEST_SUBJECT)}\n"
        "Tell the model why, or what to do instead. The turn continues.",
        text="",
        check=lambda text: Rejected(reason=text.strip()),
        done="tells the model" if pending.outcome_unknown else "denies",
        enter_answers=True,
    )

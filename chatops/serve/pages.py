"""Draws the pages. Every text is inert: it is escaped, and what could hide in it is made visible, as in the terminal.

What a page says of a call are the facts of its `CallSheet`, in the order of the dialog.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from chatops.domain.diffs import DiffRow, diff_rows, mark_changed_words, replacements
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import reveal, sanitize
from chatops.domain.tools import CONTAINED_APPLY, is_undo
from chatops.domain.wording import plural
from chatops.headless.pending import scope
from chatops.runtime.call_facts import Fact, Form, Weight, command_lines
from chatops.runtime.call_sheet import call_sheet, question, reading_order

if TYPE_CHECKING:
    from chatops.contained.text import ContainedReview

FOLDER = Path(__file__).parent / "templates"
MAX_COMPARED = 2_000
"""Pairs of lines of a diff that are compared word by word. Further pairs are shown without marks, to save time."""
MAX_TICKS = 1_000
"""With more changes than this, none of them has a box to tick: all are applied, or none."""

Piece = tuple[str, bool]
"""Text, and True if it is marked."""


def render_page(name: str, **values: object) -> str:
    """Return a page as HTML."""
    return _environment().get_template(name).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_make_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["reveal"] = partial(reveal, newlines=False)
    return environment


def _make_visible(value: Any) -> Any:
    """Make hidden characters visible in whatever a template puts out, before it is escaped."""
    return value if isinstance(value, Markup) else sanitize(str(value))


@frozen_dataclass
class Block:
    """Lines of a text under a title."""

    title: str
    kind: str
    """``program``, ``text``, ``foreign``, ``diff`` or ``file``."""
    lines: Sequence[Sequence[Piece]] = ()
    rows: Sequence["Change"] = ()
    """Lines of a diff."""
    caution: str = ""
    tick: str = ""
    """Value that the form sends if the file is ticked; empty if there is no box."""


@frozen_dataclass
class Change:
    """A line of a diff."""

    number: str
    """Number of the line; empty for a gap."""
    sign: str
    kind: str
    """``add``, ``cut``, ``same``, or ``gap`` for what is no line of the file."""
    pieces: Sequence[Piece]


@frozen_dataclass
class Answer:
    """A button: what it sends, what it says, and whether it lets something run."""

    name: str
    label: str
    runs: bool = False
    reason: str = ""
    """Label of the text to send with it; empty if it takes none."""


@frozen_dataclass
class CallPage:
    """Everything that is shown about a call."""

    question: str
    notes: Sequence[str]
    above: Sequence[tuple[str, Sequence[Fact]]]
    """Labelled values: each label with those that follow each other."""
    call: Sequence[Block]
    below: Sequence[tuple[str, Sequence[Fact]]]
    blocks: Sequence[Block]
    details: Sequence[tuple[str, Sequence[Fact]]]
    detail_blocks: Sequence[Block]
    scope: Sequence[str]
    answers: Sequence[Answer]
    boxes: Mapping[str, str]
    """The changes that can be applied one by one: the path of each by what its box sends. Empty: all or none."""


def call_page(pending: PendingCall, review: "ContainedReview | None", *, may_decide: bool) -> CallPage:
    """Return what the page of a call shows. `review` are the changes of a contained turn, None if it is no such call.

    `may_decide`: False if it is not decided here.
    """
    sheet = call_sheet(pending, now=time.time())
    shown = reading_order([fact for fact in sheet.facts if fact.weight is not Weight.DETAIL])
    details = [fact for fact in sheet.facts if fact.weight is Weight.DETAIL]
    return CallPage(
        question=question(pending),
        notes=[fact.value for fact in shown.notes],
        above=_by_label(shown.above),
        call=list(_change_blocks(review) if review is not None else _call_blocks(pending, shown.call)),
        below=_by_label(shown.below),
        blocks=[_text_block(fact) for fact in shown.blocks],
        details=_by_label([fact for fact in details if fact.form.one_line]),
        detail_blocks=[_text_block(fact) for fact in details if not fact.form.one_line],
        scope=[] if pending.outcome_unknown else scope(pending, sheet),
        answers=list(_page_answers(pending, review)) if may_decide else [],
        boxes=_tick_boxes(review) if review is not None else {},
    )


def _tick_boxes(review: "ContainedReview") -> dict[str, str]:
    """Return the paths that can be ticked, by what their boxes send; none if all changes go together."""
    paths = {str(number): change.path for number, change in enumerate(review.changes) if not change.conflict}
    return paths if 1 < len(review.changes) <= MAX_TICKS else {}


def _page_answers(pending: PendingCall, review: "ContainedReview | None") -> Iterator[Answer]:
    """Yield the answers of the page, in the words of the dialog's keys."""
    may_run = pending.denial is None
    if pending.reason is AskReason.BUDGET:
        if may_run:
            yield Answer(name="approve", label="Go on", runs=True)
        yield Answer(name="deny", label="End the turn")
        return
    if pending.outcome_unknown:
        yield Answer(name="done", label="Mark as done")
        yield Answer(name="deny", label="Tell the model it is unknown")
        yield Answer(name="reason", label="Tell it, with a note", reason="Note to the model")
        return
    if pending.call.name == CONTAINED_APPLY:
        undoes = is_undo(pending.call.arguments)
        conflicts_everywhere = review is not None and all(change.conflict for change in review.changes)
        if may_run and not conflicts_everywhere:
            which = "the ticked" if review is not None and _tick_boxes(review) else "these" if undoes else "all"
            yield Answer(name="approve", label=f"{'Undo' if undoes else 'Apply'} {which} changes", runs=True)
        yield Answer(name="deny", label="Leave them applied" if undoes else "Discard all")
        if not undoes:
            yield Answer(name="send_back", label="Send back with a reason", reason="Reason for the model")
        return
    if may_run:
        yield Answer(name="approve", label="Approve once", runs=True)
    yield Answer(name="deny", label="Deny")
    yield Answer(name="reason", label="Deny with a reason", reason="Reason for the model")


def _by_label(facts: Sequence[Fact]) -> list[tuple[str, list[Fact]]]:
    return [(label, list(group)) for label, group in groupby(facts, key=lambda fact: fact.label)]


def _call_blocks(pending: PendingCall, facts: Sequence[Fact]) -> Iterator[Block]:
    rows, counts = _diff_rows(pending.facts.diff)
    for fact in facts:
        match fact.form:
            case Form.PROGRAM:
                lines = [_mark_pieces(text, marks) for text, marks, _ in command_lines(pending.facts)]
                yield Block(title=fact.title, kind="program", lines=lines)
            case Form.FILE:
                yield Block(title=f"{reveal(fact.value, newlines=False)}  {counts}", kind="file")
            case Form.DIFF:
                yield Block(title=fact.title, kind="diff", rows=rows)
            case _:
                yield _text_block(fact)


def _change_blocks(review: "ContainedReview") -> Iterator[Block]:
    """Yield the changes of a contained turn: the counts, what is not in a diff, then file after file."""
    notes = "\n".join(review.notes).rstrip()
    yield Block(
        title=review.head, kind="text" if notes else "file", lines=[_unmarked(text) for text in notes.split("\n")]
    )
    boxes = _tick_boxes(review)
    for number, change in enumerate(review.changes):
        rows, counts = _diff_rows(change.diff)
        stays = f"In conflict, stays as it is: {change.conflict}" if change.conflict else ""
        title = f"{reveal(change.title, newlines=False)}  {counts if change.diff else ''}"
        yield Block(title=title, kind="file", caution=stays, tick=str(number) if str(number) in boxes else "")
        if change.lines:
            yield Block(title="", kind="text", lines=[_unmarked(text) for text in change.lines])
        if change.diff:
            yield Block(title="Change", kind="diff", rows=rows)


def _text_block(fact: Fact) -> Block:
    kind = "foreign" if fact.form is Form.FOREIGN else "text"
    return Block(title=fact.title, kind=kind, lines=[_unmarked(text) for text in fact.value.split("\n")])


def _unmarked(text: str) -> list[Piece]:
    return [(reveal(text, newlines=False), False)]


def _mark_pieces(text: str, marks: Sequence[tuple[int, int]]) -> list[Piece]:
    """Return a text in pieces, those between `marks` marked. Nothing of it is left out."""
    pieces, done = list[Piece](), 0
    for begin, end in sorted(marks):
        # Marks may overlap.
        begin = max(begin, done)
        if end > begin:
            pieces += [(text[done:begin], False), (text[begin:end], True)]
            done = end
    return [(part, is_marked) for part, is_marked in (*pieces, (text[done:], False)) if part]


_ROW_KINDS = {"+": "add", "-": "cut", " ": "same", "": "gap"}


def _diff_rows(diff: str) -> tuple[list[Change], str]:
    """Return the lines of a diff, with the words that differ marked, and how many lines are added and removed."""
    rows: list[DiffRow] = [replace(row, text=reveal(row.text, newlines=False)) for row in diff_rows(diff)]
    for count, (old, new) in enumerate(replacements(rows)):
        if count < MAX_COMPARED:
            rows[old], rows[new] = mark_changed_words(rows[old], rows[new])
    added, removed = (sum(row.sign == sign for row in rows) for sign in "+-")
    counts = " ".join([*([f"+{added}"] if added else []), *([f"−{removed}"] if removed else [])])
    changes = [
        Change(
            number=str(row.number) if row.sign else "",
            sign="−" if row.sign == "-" else row.sign,
            kind=_ROW_KINDS[row.sign],
            pieces=_mark_pieces(row.text or ("" if row.sign else "…"), row.marks),
        )
        for row in rows
    ]
    return changes, counts or plural(0, "changed line")

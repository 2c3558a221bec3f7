"""Rows of a dialog: labelled values, code, a diff with its sides; and how they wrap into lines of the screen."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import accumulate, pairwise, zip_longest
from typing import Literal, NamedTuple

from rich.cells import cell_len, chop_cells
from rich.style import Style
from rich.text import Text

from chatops.domain.charset import with_code_points
from chatops.domain.diffs import DiffRow, diff_rows, end_of_rows, mark_changed_words, replacements
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import reveal
from chatops.domain.wording import plural
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import warm_up
from chatops.tui.transcript.diff import syntax
from chatops.tui.transcript.lines import cuts

LABEL_WIDTH = 13
GUTTER = 2
FOREIGN = "│ "
"""Stands before each line of a text that a server wrote, so that none looks like one of ours."""

RowTone = Literal["plain", "heading", "code", "caution", "quiet"]
_LONG = 500
BETWEEN = " │ "
"""Stands between the two sides of a row."""
LEAST_SIDES = 90
"""Columns of the window from which on a diff can be shown side by side."""
_MAX_COLOURED = 40_000
"""Characters of a diff up to which it gets syntax colours."""


class Span(NamedTuple):
    """A part of a row's text, in characters, and its style. No style: it deserves a second look."""

    begin: int
    end: int
    style: Style | None = None


def _no_spans() -> Sequence[Span]:
    return ()


@frozen_dataclass
class Row:
    """One logical line. `exact` rows keep all their blanks."""

    text: str = ""
    tone: RowTone = "plain"
    label: str | None = None
    """Stands in a column of its own; empty for a further value under the label of the row before."""
    exact: bool = False
    brief: bool = False
    """True if one line of the value is enough here: the details show all of it."""
    lead: str = " " * GUTTER
    """Stands before the first line of an exact row without a label."""
    lead_style: Style | None = None
    under: Style | None = None
    """Background up to the end of each line."""
    spans: Callable[[], Sequence[Span]] = field(default=_no_spans, compare=False)
    """Returns the styled parts of the text. Called once the row is drawn."""
    beside: "Row | None" = None
    """An exact row right of this one."""


@frozen_dataclass
class Description:
    """The rows of a call. The first `payload` rows must have been on screen before an approval."""

    rows: tuple[Row, ...]
    payload: int


def shown_in(row: Row, charset: str) -> Row:
    """Return the row as a terminal with this character set shows it, with its spans in place."""
    shown = replace(
        row,
        text=with_code_points(row.text, charset),
        lead=with_code_points(row.lead, charset),
        beside=shown_in(row.beside, charset) if row.beside is not None else None,
    )
    if shown.text == row.text:
        return shown

    def moved(index: int) -> int:
        return len(with_code_points(row.text[:index], charset))

    def spans() -> Sequence[Span]:
        return [Span(moved(begin), moved(end), style) for begin, end, style in row.spans()]

    return replace(shown, spans=spans)


def line(text: str) -> str:
    """Return untrusted text on one line with nothing hidden."""
    return reveal(text, newlines=False)


@frozen_dataclass(kw_only=False)
class Line:
    """One line of the screen: the text before it, its text, and where that begins in the text of its row."""

    left: str
    text: str
    row: Row
    start: int = 0
    beside: "Line | None" = None


def wrap_row(row: Row, *, width: int) -> list[Line]:
    """Return the screen lines of a row. Continuation lines of exact rows start with ``» ``."""
    if row.beside is not None:
        half = side_width(width)
        left, right = wrap_row(replace(row, beside=None), width=half), wrap_row(row.beside, width=half)
        # A side with fewer lines continues empty, with its background.
        rest = (Line("", "", replace(row, lead="")), Line("", "", replace(row.beside, lead="")))
        return [
            replace(one or rest[0], beside=other or rest[1]) for one, other in zip_longest(left, right, fillvalue=None)
        ]
    if row.label is not None and row.text:
        return _wrap_labelled(row, width=width)
    if row.exact:
        before = cell_len(row.lead)
        parts = _broken(row.text, max(1, width - before))
        if len(parts) == 1:
            return [Line(row.lead, row.text, row)]
        starts = accumulate((len(part) for part in parts), initial=0)
        further = "» ".rjust(before) if before else ""
        return [
            Line(further if index else row.lead, part, row, start)
            for index, (start, part) in enumerate(zip(starts, parts, strict=False))
        ]
    # Nothing in a name that the text holds may begin where labels do.
    hang = GUTTER if row.tone == "heading" else 0
    return _hanging(row, row.text, _by_words, width=width, hang=hang)


def _hanging(row: Row, text: str, broken: Callable[[str, int], list[str]], *, width: int, hang: int) -> list[Line]:
    parts = broken(text, max(1, width))
    if len(parts) > 1 and hang:
        parts = broken(text, max(1, width - hang))
    return [Line(" " * hang if index else "", part, row) for index, part in enumerate(parts)]


def cells_of(row: Row) -> int:
    """Return the cells that a row needs to stand on one line; more than any dialog has for a very long one."""
    before = LABEL_WIDTH if row.label else len(row.lead)
    return before + (cell_len(row.text) if len(row.text) < _LONG else _LONG)


def side_width(width: int) -> int:
    """Return the cells of each side where a row has two."""
    return max(1, (width - len(BETWEEN)) // 2)


def _wrap_labelled(row: Row, *, width: int) -> list[Line]:
    """Return a value beside its label. An exact value keeps all its spaces: it is broken before them, or in paths."""
    broken = _in_paths if row.exact else _by_words
    if width < LABEL_WIDTH * 3:
        text = f"{row.label}: {row.text}" if row.label else row.text
        return _hanging(row, text, broken, width=width, hang=GUTTER)
    room = width - LABEL_WIDTH
    parts = broken(row.text, room)
    if row.brief and len(parts) > 1:
        parts = [f"{broken(row.text, room - 2)[0]} …"]
    return [Line(("" if index else row.label or "").ljust(LABEL_WIDTH), part, row) for index, part in enumerate(parts)]


def _by_words(text: str, width: int) -> list[str]:
    words = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [part for chunk in words for part in _in_paths(chunk, width)]


def _in_paths(text: str, width: int) -> list[str]:
    at = [0, *cuts(text, width, before=" "), len(text)]
    return [text[begin:end] for begin, end in pairwise(at)]


def _broken(text: str, width: int) -> list[str]:
    """Break after the last blank of a line's second half, else at its last cell. All characters are kept."""
    if not text.isascii() and len(text) > _LONG:
        return chop_cells(text, width)  # Many times faster than line by line.
    parts, at = [], 0
    while at < len(text):
        # A rest without any cells has no part of its own.
        piece = text[at : at + width] if text.isascii() else next(iter(chop_cells(text[at:], width)), text[at:])
        end = at + len(piece)
        blank = text.rfind(" ", at + len(piece) // 2, end) if end < len(text) and text[end] != " " else -1
        parts.append(text[at : blank + 1 or end])
        at += len(parts[-1])
    return parts or [""]


def read_on(left: int, *, short: bool = False) -> str:
    """Return what the key of an approval does while `left` lines have not been on screen yet."""
    return f"read on, {left} more" if short else f"read on first: {plural(left, 'more line')}"


def missing_columns(width: int) -> str:
    """Return why a diff cannot be shown side by side in a window of that width; empty if it can."""
    return f"Side by side needs {LEAST_SIDES} columns; this window has {width}." if width < LEAST_SIDES else ""


class DiffRows:
    """One file's diff: line numbers, signs, syntax colours, word marks, optionally side by side.

    `name` decides the language. Everything is revealed, and nothing is left out. All texts are made at once, because
    their number of lines must be known. Colours and marks are found only for rows that are drawn, so that a diff of ten
    thousand lines opens like one of ten.
    """

    def __init__(self, diff: str, *, name: str, theme: BlockTheme) -> None:
        self._rows = [replace(row, text=line(row.text)) for row in diff_rows(diff)]
        self._partner = {at: other for pair in replacements(self._rows) for at, other in (pair, pair[::-1])}
        self._name = name
        self._theme = theme
        self._looks = {
            "+": ("+", theme.good, theme.added),
            "-": (theme.symbols.minus, theme.bad, theme.removed),
            " ": (" ", theme.muted, Style()),
        }
        """Sign, style and background of a row. Making a style takes longer than the rest of it."""
        self._digits = len(str(max((max(row.number, row.old) for row in self._rows), default=0)))
        self.length = len(self._rows)
        self.added = sum(row.sign == "+" for row in self._rows)
        self.removed = sum(row.sign == "-" for row in self._rows)

    @property
    def counts(self) -> str:
        """How many lines are added and removed."""
        minus = self._theme.symbols.minus
        parts = [f"+{self.added}" if self.added else "", f"{minus}{self.removed}" if self.removed else ""]
        return " ".join(filter(None, parts)) or plural(0, "changed line")

    def rows(self, *, side_by_side: bool) -> Iterator[Row]:
        """Yield the rows, the old file left of the new one if `side_by_side`."""
        yield from self._split() if side_by_side else (self._row(at) for at in range(len(self._rows)))

    def _split(self) -> Iterator[Row]:
        at, rows = 0, self._rows
        while at < len(rows):
            if rows[at].sign not in ("-", "+"):
                left = self._row(at, old=True)
                yield replace(left, beside=self._row(at)) if rows[at].sign else left
                at += 1
                continue
            removed = end_of_rows(rows, at, "-")
            added = end_of_rows(rows, removed, "+")
            for number in range(max(removed - at, added - removed)):
                left = self._row(at + number) if at + number < removed else self._nothing
                right = self._row(removed + number) if removed + number < added else self._nothing
                yield replace(left, beside=right)
            at = added

    @property
    def _nothing(self) -> Row:
        return Row(exact=True, tone="code", lead=" " * (self._digits + 3))

    def _row(self, at: int, *, old: bool = False) -> Row:
        row, theme = self._rows[at], self._theme
        if not row.sign:
            lead = " " * (self._digits + 1)
            return Row(text=f"{lead}{row.text or theme.symbols.ellipsis}", tone="quiet", exact=True, lead="")
        sign, style, under = self._looks[row.sign]
        number = row.old if old else row.number
        return Row(
            text=row.text,
            tone="code",
            exact=True,
            lead=f"{number:>{self._digits}} {sign} ",
            lead_style=style,
            under=under,
            spans=lambda: self._spans(at),
        )

    def _spans(self, at: int) -> Sequence[Span]:
        spans = [Span(span.start, span.end, _style(span.style)) for span in self._coloured[at].spans]
        partner = self._partner.get(at)
        if partner is None:
            return spans
        removed = self._rows[at].sign == "-"
        pair = mark_changed_words(*(self._rows[index] for index in (sorted((at, partner)))))
        marked: DiffRow = pair[0] if removed else pair[1]
        style = self._theme.removed_words if removed else self._theme.added_words
        return [*spans, *(Span(begin, end, style) for begin, end in marked.marks)]

    @cached_property
    def _coloured(self) -> list[Text]:
        if sum(len(row.text) for row in self._rows) > _MAX_COLOURED:
            return [Text(row.text) for row in self._rows]
        warm_up()
        return syntax(self._rows, name=self._name, theme=self._theme)


def _style(style: str | Style) -> Style:
    return style if isinstance(style, Style) else Style()

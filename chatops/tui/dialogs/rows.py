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
from chatops.domain.diffs import diff_rows, end_of_rows, mark_changed_words, replacements
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import reveal
from chatops.domain.wording import plural
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import warm_up
from chatops.tui.transcript.diff import syntax
from chatops.tui.transcript.lines import cuts

LABEL_WIDTH = 13
"""Cells of the column of labels, with the spaces after them."""
GUTTER = 2
"""Cells before the text of an exact row, and by which further lines of a heading are indented."""
FOREIGN = "│ "
"""Stands before each line of a text that a server wrote, so that none looks like one of ours."""

RowTone = Literal["plain", "heading", "code", "caution", "quiet"]
_BRIEF_LINES = 2
_REST_IN_DETAILS = " … v"
"""Stands for what is left out of a line, and names the key of the details."""
_LONG = 500
"""Characters of a row that is longer than any window is wide. It is measured and broken in faster ways."""
BETWEEN = " │ "
"""Stands between the two sides of a row."""
_MIN_WIDTH_FOR_SIDES = 90
"""Columns of the window from which on a diff can be shown side by side."""
_MAX_COLOURED = 40_000
"""Characters of a diff up to which it gets syntax colours. With more, a large diff would hold up keys when opened."""


class Span(NamedTuple):
    """A part of a row's text, in characters, and its style. None marks a risk that deserves a second look."""

    begin: int
    end: int
    style: Style | None = None


@frozen_dataclass
class Row:
    """One logical line. `exact` rows keep all their blanks."""

    text: str = ""
    tone: RowTone = "plain"
    label: str | None = None
    """Stands in a column of its own; empty for a further value under the label of the row before."""
    exact: bool = False
    brief: bool = False
    """True if `_BRIEF_LINES` of the value are enough here: the details show all of it."""
    lead: str = " " * GUTTER
    """Stands before the first line of an exact row without a label."""
    lead_style: Style | None = None
    background: Style | None = None
    """Style under the text, up to the end of each line."""
    spans: Callable[[], Sequence[Span]] = field(default=tuple, compare=False)
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

    def place(index: int) -> int:
        return len(with_code_points(row.text[:index], charset))

    def spans() -> Sequence[Span]:
        return [Span(place(begin), place(end), style) for begin, end, style in row.spans()]

    text = with_code_points(row.text, charset)
    return replace(
        row,
        text=text,
        lead=with_code_points(row.lead, charset),
        beside=shown_in(row.beside, charset) if row.beside is not None else None,
        spans=row.spans if text == row.text else spans,
    )


def line(text: str) -> str:
    """Return untrusted text on one line, with line ends, control and invisible characters made visible."""
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
        no_left, no_right = Line("", "", replace(row, lead="")), Line("", "", replace(row.beside, lead=""))
        return [
            replace(one or no_left, beside=other or no_right) for one, other in zip_longest(left, right, fillvalue=None)
        ]
    if row.label is not None and row.text:
        return _wrap_labelled(row, width=width)
    if row.exact:
        lead_width = cell_len(row.lead)
        parts = _break_exactly(row.text, max(1, width - lead_width))
        starts = accumulate((len(part) for part in parts), initial=0)
        continued = "» ".rjust(lead_width) if lead_width else ""
        return [
            Line(continued if start else row.lead, part, row, start) for start, part in zip(starts, parts, strict=False)
        ]
    # Further lines of a heading are indented: a name in it must not be able to imitate a label.
    hang = GUTTER if row.tone == "heading" else 0
    return _hanging_lines(row, row.text, _break_words, width=width, hang=hang)


def _hanging_lines(
    row: Row, text: str, break_text: Callable[[str, int], list[str]], *, width: int, hang: int
) -> list[Line]:
    """Return the lines of a text, with `hang` cells before all but the first."""
    parts = break_text(text, max(1, width))
    if len(parts) > 1 and hang:
        parts = break_text(text, max(1, width - hang))
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
    break_text = _break_paths if row.exact else _break_words
    if width < LABEL_WIDTH * 3:
        text = f"{row.label}: {row.text}" if row.label else row.text
        return _hanging_lines(row, text, break_text, width=width, hang=GUTTER)
    value_width = width - LABEL_WIDTH
    parts = break_text(row.text, value_width)
    if row.brief and len(parts) > _BRIEF_LINES:
        *begun, last = break_text(row.text, value_width - len(_REST_IN_DETAILS))[:_BRIEF_LINES]
        parts = [*begun, (last.rpartition(",")[0] or last) + _REST_IN_DETAILS]
    return [Line(("" if index else row.label or "").ljust(LABEL_WIDTH), part, row) for index, part in enumerate(parts)]


def _break_words(text: str, width: int) -> list[str]:
    """Break between words, and in words that are longer than a line."""
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [part for line in lines for part in _break_paths(line, width)]


def _break_paths(text: str, width: int) -> list[str]:
    """Break before spaces and after slashes. All characters are kept."""
    places = [0, *cuts(text, width, before=" "), len(text)]
    return [text[begin:end] for begin, end in pairwise(places)]


def _break_exactly(text: str, width: int) -> list[str]:
    """Break after the last space of a line's second half, else at its last cell. All characters are kept."""
    if not text.isascii() and len(text) > _LONG:
        return chop_cells(text, width)  # Many times faster than line by line.
    parts, start = [], 0
    while start < len(text):
        # The part that fits. A rest without any cells has no part of its own.
        fitting = text[start : start + width] if text.isascii() else next(iter(chop_cells(text[start:], width)), "")
        end = start + len(fitting) if fitting else len(text)
        if end < len(text) and text[end] != " ":
            end = text.rfind(" ", (start + end) // 2, end) + 1 or end
        parts.append(text[start:end])
        start = end
    return parts or [""]


def read_on_label(lines_left: int, *, short: bool = False) -> str:
    """Return the legend of a key that approves while so many lines have not been on screen yet."""
    return f"read on, {lines_left} more" if short else f"read on first: {plural(lines_left, 'more line')}"


def too_narrow_for_sides(width: int) -> str:
    """Return why a diff cannot be shown side by side in a window of that width; empty if it can."""
    if width >= _MIN_WIDTH_FOR_SIDES:
        return ""
    return f"Side by side needs {_MIN_WIDTH_FOR_SIDES} columns; this window has {width}."


class DiffRows:
    """One file's diff: line numbers, signs, syntax colours, word marks, optionally side by side.

    `name` decides the language. Everything is revealed, and nothing is left out. All texts are made at once, because
    their number of lines must be known. Colours and marks are found only for rows that are drawn, so that a diff of ten
    thousand lines opens like one of ten.
    """

    def __init__(self, diff: str, *, name: str, theme: BlockTheme) -> None:
        self._rows = [replace(row, text=line(row.text)) for row in diff_rows(diff)]
        self._counterparts = {at: other for pair in replacements(self._rows) for at, other in (pair, pair[::-1])}
        """The index of the row that a removed or added row was replaced by, or replaces, by its own index."""
        self._name = name
        self._theme = theme
        self._looks = {
            "+": ("+", theme.good, theme.added),
            "-": (theme.symbols.minus, theme.bad, theme.removed),
            " ": (" ", theme.muted, Style()),
        }
        """Shown sign, style and background by the sign of a row. Made once, because making styles is slow."""
        self._digits = len(str(max((max(row.number, row.old) for row in self._rows), default=0)))
        self.length = len(self._rows)
        self.added = sum(row.sign == "+" for row in self._rows)
        self.removed = sum(row.sign == "-" for row in self._rows)

    @property
    def counts(self) -> str:
        """How many lines are added and removed, such as ``+3 −1``."""
        minus = self._theme.symbols.minus
        parts = [f"+{self.added}" if self.added else "", f"{minus}{self.removed}" if self.removed else ""]
        return " ".join(filter(None, parts)) or plural(0, "changed line")

    def rows(self, *, side_by_side: bool) -> Iterator[Row]:
        """Yield the rows, the old file left of the new one if `side_by_side`."""
        yield from self._two_sides() if side_by_side else map(self._row, range(len(self._rows)))

    def _two_sides(self) -> Iterator[Row]:
        """Yield rows with two sides: removed lines left of the added ones that follow them."""
        rows, nothing = self._rows, Row(exact=True, tone="code", lead=" " * (self._digits + 3))
        start = 0
        while start < len(rows):
            if rows[start].sign not in ("-", "+"):
                left = self._row(start, old=True)
                yield replace(left, beside=self._row(start)) if rows[start].sign else left
                start += 1
                continue
            removed_end = end_of_rows(rows, start, "-")
            added_end = end_of_rows(rows, removed_end, "+")
            removed, added = map(self._row, range(start, removed_end)), map(self._row, range(removed_end, added_end))
            for left, right in zip_longest(removed, added, fillvalue=nothing):
                yield replace(left, beside=right)
            start = added_end

    def _row(self, at: int, *, old: bool = False) -> Row:
        """Return a row with its line number, which is that in the old file if `old`."""
        row, theme = self._rows[at], self._theme
        if not row.sign:
            lead = " " * (self._digits + 1)
            return Row(text=f"{lead}{row.text or theme.symbols.ellipsis}", tone="quiet", exact=True, lead="")
        sign, style, background = self._looks[row.sign]
        number = row.old if old else row.number
        return Row(
            text=row.text,
            tone="code",
            exact=True,
            lead=f"{number:>{self._digits}} {sign} ",
            lead_style=style,
            background=background,
            spans=lambda: self._spans(at),
        )

    def _spans(self, at: int) -> Sequence[Span]:
        """Return the syntax colours of a row, and the marks on the words that differ from its counterpart."""
        spans = [
            Span(span.start, span.end, span.style if isinstance(span.style, Style) else Style())
            for span in self._coloured[at].spans
        ]
        counterpart = self._counterparts.get(at)
        if counterpart is None:
            return spans
        # The removed row is above the added one.
        removed, added = mark_changed_words(*(self._rows[index] for index in sorted((at, counterpart))))
        is_removed = self._rows[at].sign == "-"
        style = self._theme.removed_words if is_removed else self._theme.added_words
        return [*spans, *(Span(begin, end, style) for begin, end in (removed if is_removed else added).marks)]

    @cached_property
    def _coloured(self) -> list[Text]:
        if sum(len(row.text) for row in self._rows) > _MAX_COLOURED:
            return [Text(row.text) for row in self._rows]
        warm_up()
        return syntax(self._rows, name=self._name, theme=self._theme)

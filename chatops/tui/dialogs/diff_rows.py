"""A unified diff as rows of a payload: line numbers, signs, syntax colours, word marks, optionally side by side.

All texts are made at once, because their number of lines must be known. Colours and marks are found only for rows that
are drawn, so that a diff of ten thousand lines opens like one of ten.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from rich.style import Style
from rich.text import Text

from chatops.domain.wording import plural
from chatops.tui.dialogs.rows import Row, Span, line
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import warm_up
from chatops.tui.transcript.diff import DiffRow, compared, diff_rows, replacements, syntax

LEAST_SIDES = 90
"""Columns of the window from which on a diff can be shown side by side."""
_MOST_COLOURED = 40_000
"""Characters of a diff up to which it gets syntax colours."""


def missing_columns(width: int) -> str:
    """Return why a diff cannot be shown side by side in a window of that width; empty if it can."""
    return f"Side by side needs {LEAST_SIDES} columns; this window has {width}." if width < LEAST_SIDES else ""


class DiffRows:
    """One file's diff. `name` decides the language. Everything is revealed, and nothing is left out."""

    def __init__(self, diff: str, *, name: str, theme: BlockTheme) -> None:
        self._rows = [replace(row, text=line(row.text)) for row in diff_rows(diff)]
        self._partner = {at: other for pair in replacements(self._rows) for at, other in (pair, pair[::-1])}
        self._name = name
        self._theme = theme
        self._digits = len(str(max((max(row.number, row.old) for row in self._rows), default=0)))
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
            removed = self._run(at, "-")
            added = self._run(removed, "+")
            for number in range(max(removed - at, added - removed)):
                left = self._row(at + number) if at + number < removed else self._nothing
                right = self._row(removed + number) if removed + number < added else self._nothing
                yield replace(left, beside=right)
            at = added

    def _run(self, at: int, sign: str) -> int:
        while at < len(self._rows) and self._rows[at].sign == sign:
            at += 1
        return at

    @property
    def _nothing(self) -> Row:
        return Row(exact=True, tone="code", lead=" " * (self._digits + 3))

    def _row(self, at: int, *, old: bool = False) -> Row:
        row, theme = self._rows[at], self._theme
        if not row.sign:
            lead = " " * (self._digits + 1)
            return Row(text=f"{lead}{row.text or theme.symbols.ellipsis}", tone="quiet", exact=True, lead="")
        sign, style, under = {
            "+": ("+", theme.good, theme.added),
            "-": (theme.symbols.minus, theme.bad, theme.removed),
        }.get(row.sign, (" ", theme.muted, Style()))
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
        pair = compared(*(self._rows[index] for index in (sorted((at, partner)))))
        marked: DiffRow = pair[0] if removed else pair[1]
        style = self._theme.removed_words if removed else self._theme.added_words
        return [*spans, *(Span(begin, end, style) for begin, end in marked.marks)]

    @cached_property
    def _coloured(self) -> list[Text]:
        if sum(len(row.text) for row in self._rows) > _MOST_COLOURED:
            return [Text(row.text) for row in self._rows]
        warm_up()
        return syntax(self._rows, name=self._name, theme=self._theme)


def _style(style: str | Style) -> Style:
    return style if isinstance(style, Style) else Style()

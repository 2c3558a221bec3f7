"""Draws a unified diff: line numbers, signs, syntax colours, and marks on the words that differ."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import PurePath

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from chatops.domain.diffs import DiffRow, diff_rows, mark_changed_words, replacements
from chatops.domain.sanitize import sanitize
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import coloured
from chatops.tui.transcript.lines import fold, padded

_CELLS_OF_SIGN = 3
"""Cells of the sign of a line, with the spaces around it, between number and text."""
_MIN_SHADED = 40
"""Minimum columns of the background of a changed line."""


def diff_lines(
    diff: str, *, name: str, width: int, theme: BlockTheme, most: int, whole: bool
) -> tuple[list[Text], int]:
    """Return the lines of a diff, at most `most`, and how many changed lines are among them to their end.

    `name` is the path of the file, whose language decides the colours. With `whole`, long lines are broken, else cut.
    """
    rows = list(islice(diff_rows(diff), most))
    while rows and not rows[-1].sign and not rows[-1].text:
        rows.pop()  # A gap at the end, after which no change is shown.
    rows = _mark_changes(rows)
    code = _marked_code(rows, name=name, theme=theme)
    digits = len(str(max((row.number for row in rows), default=0)))
    room = max(1, width - digits - _CELLS_OF_SIGN)
    drawn = [
        (row, fold(text, width=room) if whole else [_cut(text, width=room, theme=theme)])
        for row, text in zip(rows, code, strict=True)
    ]
    longest = max((cell_len(part.plain) for _, parts in drawn for part in parts), default=0)
    shaded = min(width, max(_MIN_SHADED, longest + digits + _CELLS_OF_SIGN + 2))
    lines: list[Text] = []
    changed = 0
    for row, parts in drawn:
        for index, part in enumerate(parts):
            lines.append(_diff_line(row, part, first=index == 0, digits=digits, width=shaded, theme=theme))
        # A line whose last parts are left out is not shown.
        changed += row.sign in ("+", "-") and len(lines) <= most
    return lines[:most], changed


def _mark_changes(rows: list[DiffRow]) -> list[DiffRow]:
    """Return the rows with marks on the words in which removed lines differ from the lines in their place."""
    rows = [replace(row, text=sanitize(row.text, newlines=False)) for row in rows]
    for old, new in replacements(rows):
        rows[old], rows[new] = mark_changed_words(rows[old], rows[new])
    return rows


def syntax(rows: Sequence[DiffRow], *, name: str, theme: BlockTheme) -> list[Text]:
    """Return the text of each row in syntax colours, which the suffix of `name` decides.

    Each side of the diff is read as one text.
    """
    language = PurePath(name).suffix.removeprefix(".")
    texts = [Text(row.text, theme.muted, end="") for row in rows]
    for side in ("-", "+"):
        places = [index for index, row in enumerate(rows) if row.sign in (side, " ")]
        joined = coloured("\n".join(rows[index].text for index in places), language=language, theme=theme)
        for index, part in zip(places, joined.split("\n", allow_blank=True), strict=False):
            texts[index] = part
    return texts


def _marked_code(rows: list[DiffRow], *, name: str, theme: BlockTheme) -> list[Text]:
    texts = syntax(rows, name=name, theme=theme)
    for row, text in zip(rows, texts, strict=True):
        style = theme.removed_words if row.sign == "-" else theme.added_words
        for begin, end in row.marks:
            text.stylize(style, begin, end)
    return texts


def _cut(text: Text, *, width: int, theme: BlockTheme) -> Text:
    if cell_len(text.plain) <= width:
        return text
    text.truncate(max(1, width - 1))
    return text.append(theme.symbols.ellipsis, theme.muted)


def _diff_line(row: DiffRow, part: Text, *, first: bool, digits: int, width: int, theme: BlockTheme) -> Text:
    signs = theme.symbols
    sign, style, background = {
        "+": ("+", theme.good, theme.added),
        "-": (signs.minus, theme.bad, theme.removed),
        " ": (" ", theme.muted, Style()),
    }.get(row.sign, ("", theme.muted, Style()))
    if not sign:
        return Text.assemble(" " * (digits + 1), part if part.plain else (signs.ellipsis, theme.muted), end="")
    number = str(row.number) if first else ""
    line = Text.assemble((f"{number.rjust(digits)} {sign} ", style), part, end="")
    return padded(line, width=width, style=background) if row.sign != " " else line

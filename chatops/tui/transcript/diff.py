"""Draws a unified diff: line numbers, signs, syntax colours, and marks on the words that differ.

Why not a library: textual-diff-view is a widget of its own and wants both whole texts. Here a diff is lines of a card
or of a dialog, and only the diff itself is stored.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePath

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from chatops.domain.sanitize import sanitize
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.answer import coloured
from chatops.tui.transcript.lines import fold, padded

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_LONGEST = 400
"""Longer lines (in characters) are not compared word by word."""
_ALIKE = 0.4
"""Minimum ratio of equal words at which a line counts as changed rather than replaced."""
_LEAST = 40
"""Minimum columns of the background of a changed line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRow:
    """A line of a diff. `sign` is a space, ``+`` or ``-`` for lines of the file, empty for what stands between them."""

    sign: str
    text: str
    number: int = 0
    """The line's number in the new file; of a removed line, in the old one."""
    old: int = 0
    """The number of an unchanged line in the old file."""
    marks: tuple[tuple[int, int], ...] = field(default=())
    """Bounds of the words that differ from the line that it replaces, or is replaced by."""


def diff_lines(
    diff: str, *, name: str, width: int, theme: BlockTheme, most: int, whole: bool
) -> tuple[list[Text], int]:
    """Return the lines of a diff, at most `most`, and how many changed lines are among them.

    `name` is the path of the file, whose language decides the colours. With `whole`, long lines are broken, else cut.
    """
    rows = list(islice(diff_rows(diff), most))
    while rows and not rows[-1].sign and not rows[-1].text:
        rows.pop()
    rows = _marked(rows)
    code = _code(rows, name=name, theme=theme)
    digits = len(str(max((row.number for row in rows), default=0)))
    room = max(1, width - digits - 3)
    drawn = [
        (row, fold(text, width=room) if whole else [_cut(text, width=room, theme=theme)])
        for row, text in zip(rows, code, strict=True)
    ]
    longest = max((cell_len(part.plain) for _, parts in drawn for part in parts), default=0)
    shaded = min(width, max(_LEAST, longest + digits + 5))
    lines = [
        _line(row, part, first=index == 0, digits=digits, width=shaded, theme=theme)
        for row, parts in drawn
        for index, part in enumerate(parts)
    ]
    return lines[:most], sum(row.sign in ("+", "-") for row in rows)


def diff_rows(diff: str) -> Iterator[DiffRow]:
    """Yield the rows of a unified diff of one file, without its header. An empty row stands between two hunks."""
    lines = diff.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    old = new = 0
    inside = False
    for line in lines:
        sign, text = line[:1], line[1:]
        if found := _HUNK.match(line):
            if inside:
                yield DiffRow(sign="", text="")
            inside, old, new = True, int(found[1]), int(found[2])
        elif not inside:
            if not line.startswith(("--- ", "+++ ")):
                yield DiffRow(sign="", text=line)
        elif sign == "-":
            yield DiffRow(sign=sign, text=text, number=old)
            old += 1
        elif sign == "+":
            yield DiffRow(sign=sign, text=text, number=new)
            new += 1
        elif sign == "\\":
            yield DiffRow(sign="", text=text.strip())
        else:
            yield DiffRow(sign=" ", text=text, number=new, old=old)
            old, new = old + 1, new + 1


def _marked(rows: list[DiffRow]) -> list[DiffRow]:
    """Return the rows with marks on the words in which removed lines differ from the lines in their place."""
    rows = [replace(row, text=sanitize(row.text, newlines=False)) for row in rows]
    for old, new in replacements(rows):
        rows[old], rows[new] = compared(rows[old], rows[new])
    return rows


def replacements(rows: Sequence[DiffRow]) -> Iterator[tuple[int, int]]:
    """Yield the indices of each removed row and of the added row in its place."""
    at = 0
    while at < len(rows):
        end = middle = run_end(rows, at, "-")
        if middle > at:
            end = run_end(rows, middle, "+")
            yield from zip(range(at, middle), range(middle, end), strict=False)
        at = max(end, at + 1)


def run_end(rows: Sequence[DiffRow], at: int, sign: str) -> int:
    """Return the index after the rows from `at` on that have this sign."""
    while at < len(rows) and rows[at].sign == sign:
        at += 1
    return at


def compared(old: DiffRow, new: DiffRow) -> tuple[DiffRow, DiffRow]:
    """Return both rows with marks on the words in which they differ; without, if they have little in common."""
    if max(len(old.text), len(new.text)) > _LONGEST:
        return old, new
    before, after = _WORDS.findall(old.text), _WORDS.findall(new.text)
    match = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if match.ratio() < _ALIKE:
        return old, new
    gone, fresh = [], []
    for kind, a, b, c, d in match.get_opcodes():
        if kind != "equal":
            gone.append((len("".join(before[:a])), len("".join(before[:b]))))
            fresh.append((len("".join(after[:c])), len("".join(after[:d]))))
    return replace(old, marks=tuple(gone)), replace(new, marks=tuple(fresh))


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


def _code(rows: list[DiffRow], *, name: str, theme: BlockTheme) -> list[Text]:
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


def _line(row: DiffRow, part: Text, *, first: bool, digits: int, width: int, theme: BlockTheme) -> Text:
    signs = theme.symbols
    sign, style, under = {
        "+": ("+", theme.good, theme.added),
        "-": (signs.minus, theme.bad, theme.removed),
        " ": (" ", theme.muted, Style()),
    }.get(row.sign, ("", theme.muted, Style()))
    if not sign:
        return Text.assemble(" " * (digits + 1), part if part.plain else (signs.ellipsis, theme.muted), end="")
    number = str(row.number) if first else ""
    line = Text.assemble((f"{number.rjust(digits)} {sign} ", style), part, end="")
    return padded(line, width=width, style=under) if row.sign != " " else line

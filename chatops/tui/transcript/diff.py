"""Draws a unified diff: line numbers, signs, syntax colours, and marks on the words that differ."""

import difflib
import re
from collections.abc import Iterator
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
"""Minimum ratio of equal words for a line to count as a changed one, and not as another one."""
_LEAST = 40
"""Minimum columns of the background of a changed line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A line of a diff. `sign` is a space, ``+`` or ``-`` for lines of the file, empty for what stands between them."""

    sign: str
    text: str
    number: int = 0
    marks: tuple[tuple[int, int], ...] = field(default=())
    """Bounds of the words that differ from the line that it replaces, or is replaced by."""


def diff_lines(
    diff: str, *, name: str, width: int, theme: BlockTheme, most: int, whole: bool
) -> tuple[list[Text], int]:
    """Return the lines of a diff, at most `most`, and how many changed lines are among them.

    `name` is the path of the file, whose language decides the colours. With `whole`, long lines are broken, else cut.
    """
    rows = list(islice(_rows(diff), most))
    while rows and not rows[-1].sign and not rows[-1].text:
        rows.pop()
    rows = _marked(rows)
    code = _code(rows, language=PurePath(name).suffix.removeprefix("."), theme=theme)
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


def _rows(diff: str) -> Iterator[_Row]:
    lines = diff.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    old = new = 0
    inside = False
    for line in lines:
        sign, text = line[:1], line[1:]
        if found := _HUNK.match(line):
            if inside:
                yield _Row(sign="", text="")
            inside, old, new = True, int(found[1]), int(found[2])
        elif not inside:
            if not line.startswith(("--- ", "+++ ")):
                yield _Row(sign="", text=line)
        elif sign == "-":
            yield _Row(sign=sign, text=text, number=old)
            old += 1
        elif sign == "+":
            yield _Row(sign=sign, text=text, number=new)
            new += 1
        elif sign == "\\":
            yield _Row(sign="", text=text.strip())
        else:
            yield _Row(sign=" ", text=text, number=new)
            old, new = old + 1, new + 1


def _marked(rows: list[_Row]) -> list[_Row]:
    """Return the rows with marks on the words in which removed lines differ from the lines in their place."""
    rows = [replace(row, text=sanitize(row.text, newlines=False)) for row in rows]
    at = 0
    while at < len(rows):
        end = middle = _run(rows, at, "-")
        if middle > at:
            end = _run(rows, middle, "+")
            for old, new in zip(range(at, middle), range(middle, end), strict=False):
                rows[old], rows[new] = _compared(rows[old], rows[new])
        at = max(end, at + 1)
    return rows


def _run(rows: list[_Row], at: int, sign: str) -> int:
    while at < len(rows) and rows[at].sign == sign:
        at += 1
    return at


def _compared(old: _Row, new: _Row) -> tuple[_Row, _Row]:
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


def _code(rows: list[_Row], *, language: str, theme: BlockTheme) -> list[Text]:
    """Return the text of each row in syntax colours. Each side of the diff is read as one text."""
    texts = [Text(row.text, theme.muted, end="") for row in rows]
    for side in ("-", "+"):
        places = [index for index, row in enumerate(rows) if row.sign in (side, " ")]
        joined = coloured("\n".join(rows[index].text for index in places), language=language, theme=theme)
        for index, part in zip(places, joined.split("\n", allow_blank=True), strict=False):
            texts[index] = part
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


def _line(row: _Row, part: Text, *, first: bool, digits: int, width: int, theme: BlockTheme) -> Text:
    signs = theme.symbols
    sign, style, under = {
        "+": ("+", theme.good, theme.added),
        "-": (signs.minus, theme.bad, theme.removed),
        " ": (" ", theme.muted, Style()),
    }.get(row.sign, ("", theme.muted, Style()))
    if not sign:
        return Text.assemble(" " * (digits + 3), part if part.plain else (signs.ellipsis, theme.muted), end="")
    number = str(row.number) if first else ""
    line = Text.assemble((f"{number.rjust(digits)} {sign} ", style), part, end="")
    return padded(line, width=width, style=under) if row.sign != " " else line

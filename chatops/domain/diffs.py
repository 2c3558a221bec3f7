"""Reads a unified diff into rows, and finds the words that differ.

Why not a library: textual-diff-view is a widget of its own and wants both whole texts. Here a diff is lines of a card,
of a dialog or of a page, and only the diff itself is stored.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from chatops.domain.frozen_dataclass import frozen_dataclass

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_LONGEST_COMPARED = 400
"""Longer lines (in characters) are not compared word by word."""
_MIN_SIMILARITY = 0.4
"""Minimum ratio of equal words at which a line counts as changed rather than replaced."""


@frozen_dataclass
class DiffRow:
    """A line of a diff. `sign` is a space, ``+`` or ``-`` for lines of the file, empty for a note of git or a gap."""

    sign: str
    text: str
    number: int = 0
    """The line's number in the new file; of a removed line, in the old one."""
    old: int = 0
    """The number of an unchanged line in the old file."""
    marks: tuple[tuple[int, int], ...] = ()
    """Bounds of the words that differ from the line that it replaces, or is replaced by."""


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


def mark_changed_words(old: DiffRow, new: DiffRow) -> tuple[DiffRow, DiffRow]:
    """Return both rows with marks on the words in which they differ; unchanged if they have little in common."""
    if max(len(old.text), len(new.text)) > _LONGEST_COMPARED:
        return old, new
    before, after = _WORDS.findall(old.text), _WORDS.findall(new.text)
    match = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if match.ratio() < _MIN_SIMILARITY:
        return old, new
    old_marks, new_marks = [], []
    for kind, old_start, old_end, new_start, new_end in match.get_opcodes():
        if kind != "equal":
            old_marks.append((len("".join(before[:old_start])), len("".join(before[:old_end]))))
            new_marks.append((len("".join(after[:new_start])), len("".join(after[:new_end]))))
    return replace(old, marks=tuple(old_marks)), replace(new, marks=tuple(new_marks))

"""Unified diffs: written of two texts, read as rows, and the words in which two rows differ.

A written diff is complete, because the user approves what it shows. It is made in time that is linear in the size of
the file. Lines end at line feeds only.

Why not a library: textual-diff-view is a widget of its own and wants both whole texts. Here a diff is lines of a card,
of a dialog or of a page, and only the diff itself is stored.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from chatops.domain.frozen_dataclass import frozen_dataclass

_HUNK_HEADER = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")
CONTEXT_LINES = 3
"""Unchanged lines that are shown before and after a change, as `diff -u` and git show them."""
_MAX_PRODUCT = 1_000_000
"""Largest product of old and new line counts for which the changed part is compared line by line. Beyond it, the whole
part is shown as replaced, because comparing would take seconds.
"""
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MAX_COMPARED = 400
"""Characters of a line that is compared word by word. The time for a pair of lines grows with the square of it."""
_MIN_SIMILARITY = 0.4
"""Share of equal words (0 to 1) from which on a line counts as changed. With less in common, marks on nearly all words
would say nothing."""


def diff_text(before: str, after: str, *, name: str) -> str:
    """Return the complete diff from `before` to `after`; empty if they are equal."""
    if before == after:
        return ""
    old, new = _split_lines(before), _split_lines(after)
    # difflib is quadratic, so it gets only the part that differs, with its context.
    same_head = _count_common(old, new)
    same_tail = _count_common(old[same_head:][::-1], new[same_head:][::-1])
    lead, trail = min(same_head, CONTEXT_LINES), min(same_tail, CONTEXT_LINES)
    skipped, skipped_tail = same_head - lead, same_tail - trail
    old_part, new_part = old[skipped : len(old) - skipped_tail], new[skipped : len(new) - skipped_tail]
    if len(old_part) * len(new_part) <= _MAX_PRODUCT:
        hunks = list(difflib.unified_diff(old_part, new_part, n=CONTEXT_LINES))[2:]  # Without its header.
    else:
        hunks = _replacing_hunk(old_part, new_part, lead=lead, trail=trail)
    shifted = [_shift_hunk(line, by=skipped) for line in hunks]
    header = [f"--- a/{name}\n" if before else "--- /dev/null\n", f"+++ b/{name}\n"]
    return "".join(_end_line(line) for line in header + shifted)


def _split_lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _count_common(old: list[str], new: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _replacing_hunk(old: list[str], new: list[str], *, lead: int, trail: int) -> list[str]:
    """Return a hunk that replaces all lines but the first `lead` and the last `trail`, which are its context."""
    head = f"@@ -{1 if old else 0},{len(old)} +{1 if new else 0},{len(new)} @@\n"
    removed = [f"-{line}" for line in old[lead : len(old) - trail]]
    added = [f"+{line}" for line in new[lead : len(new) - trail]]
    last = [f" {line}" for line in old[len(old) - trail :]] if trail else []
    return [head, *(f" {line}" for line in old[:lead]), *removed, *added, *last]


def _shift_hunk(line: str, *, by: int) -> str:
    """Add `by` to the line numbers if `line` is the header of a hunk."""
    header = _HUNK_HEADER.match(line) if by else None
    if header is None:
        return line
    old, old_count, new, new_count = header.groups()
    rest = line[header.end() :]
    return f"@@ -{int(old) + by}{old_count or ''} +{int(new) + by}{new_count or ''} @@{rest}"


def _end_line(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


@frozen_dataclass
class DiffRow:
    """A line of a diff."""

    sign: str
    """A space, ``+`` or ``-`` for lines of the file; empty for a note of git, and for the gap between two hunks."""
    text: str
    number: int = 0
    """The line's number in the new file; of a removed line, in the old one. 0: it is no line of the file."""
    old: int = 0
    """The number of an unchanged line in the old file; 0 for any other row."""
    marks: tuple[tuple[int, int], ...] = ()
    """Start and end in `text` of each word that differs from the line that it replaces, or is replaced by."""


def diff_rows(diff: str) -> Iterator[DiffRow]:
    """Yield the rows of a unified diff of one file, without its header. An empty row stands between two hunks."""
    lines = diff.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    old = new = 0
    in_hunk = False
    for line in lines:
        sign, text = line[:1], line[1:]
        if header := _HUNK_HEADER.match(line):
            if in_hunk:
                yield DiffRow(sign="", text="")
            in_hunk, old, new = True, int(header[1]), int(header[3])
        elif not in_hunk:
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
        added = end_of_rows(rows, at, "-")
        end = end_of_rows(rows, added, "+") if added > at else at + 1
        # Rows without a partner were only removed or only added.
        yield from zip(range(at, added), range(added, end), strict=False)
        at = end


def end_of_rows(rows: Sequence[DiffRow], at: int, sign: str) -> int:
    """Return the index after the rows of this sign that begin at `at`; `at` if there are none."""
    while at < len(rows) and rows[at].sign == sign:
        at += 1
    return at


def mark_changed_words(old: DiffRow, new: DiffRow) -> tuple[DiffRow, DiffRow]:
    """Return both rows with marks on the words in which they differ; unchanged if they have little in common."""
    if max(len(old.text), len(new.text)) > _MAX_COMPARED:
        return old, new
    before, after = _WORDS.findall(old.text), _WORDS.findall(new.text)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if matcher.ratio() < _MIN_SIMILARITY:
        return old, new
    old_marks, new_marks = [], []
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if kind != "equal":
            old_marks.append((len("".join(before[:old_start])), len("".join(before[:old_end]))))
            new_marks.append((len("".join(after[:new_start])), len("".join(after[:new_end]))))
    return replace(old, marks=tuple(old_marks)), replace(new, marks=tuple(new_marks))

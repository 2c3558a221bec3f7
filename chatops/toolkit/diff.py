"""Write the diff of a change: complete, because the user approves what it shows, and linear in the size of the file.

Lines end at line feeds only.
"""

import difflib
import re
from itertools import takewhile

CONTEXT_LINES = 3
"""Unchanged lines that are shown before and after a change, as `diff -u` and git show them."""
_MAX_PRODUCT = 1_000_000
"""Largest product of old and new line counts for which the changed part is compared line by line. Beyond it, the whole
part is shown as replaced, because comparing would take seconds.
"""
_HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def diff_text(before: str, after: str, *, name: str) -> str:
    """Return the complete diff from `before` to `after`, because the user approves what it shows."""
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
        hunks = list(difflib.unified_diff(old_part, new_part, n=CONTEXT_LINES))[2:]
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
    header = _HUNK.match(line) if by else None
    if header is None:
        return line
    old, old_count, new, new_count = header.groups()
    rest = line[header.end() :]
    return f"@@ -{int(old) + by}{old_count or ''} +{int(new) + by}{new_count or ''} @@{rest}"


def _end_line(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"

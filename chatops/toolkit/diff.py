"""Unified diff of a change to one file: complete, linear in the size of the file, split at line feeds only."""

import difflib
import re

CONTEXT_LINES = 3
_MAX_PRODUCT = 1_000_000
"""Largest product of old and new line counts for which the changed part is compared line by line."""
_HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def unified(before: str, after: str, *, name: str) -> str:
    """Return the complete diff from `before` to `after`, because the user approves what it shows."""
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    first = max(0, start - CONTEXT_LINES)
    after_end = max(0, end - CONTEXT_LINES)
    old_part, new_part = old[first : len(old) - after_end], new[first : len(new) - after_end]
    if len(old_part) * len(new_part) <= _MAX_PRODUCT:
        body = list(difflib.unified_diff(old_part, new_part, n=CONTEXT_LINES))[2:]
    else:
        body = _replaced(old_part, new_part, lead=start - first, trail=end - after_end)
    shifted = [_shifted(line, by=first) for line in body]
    header = [f"--- a/{name}\n" if before else "--- /dev/null\n", f"+++ b/{name}\n"]
    return "".join(_ended(line) for line in header + shifted)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _common(old: list[str], new: list[str]) -> int:
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count


def _replaced(old: list[str], new: list[str], *, lead: int, trail: int) -> list[str]:
    head = f"@@ -{1 if old else 0},{len(old)} +{1 if new else 0},{len(new)} @@\n"
    removed = [f"-{line}" for line in old[lead : len(old) - trail]]
    added = [f"+{line}" for line in new[lead : len(new) - trail]]
    last = [f" {line}" for line in old[len(old) - trail :]] if trail else []
    return [head, *(f" {line}" for line in old[:lead]), *removed, *added, *last]


def _shifted(line: str, *, by: int) -> str:
    found = _HUNK.match(line) if by else None
    if found is None:
        return line
    old, old_count, new, new_count = found.groups()
    rest = line[found.end() :]
    return f"@@ -{int(old) + by}{old_count or ''} +{int(new) + by}{new_count or ''} @@{rest}"


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"

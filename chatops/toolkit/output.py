"""Text of tools for the model and the user: bounded output, and diffs of a change.

Output is bounded with head and tail kept, and states how much was left out. A diff is complete, linear in the size of
the file, and split at line feeds only.
"""

import difflib
import re
from itertools import takewhile

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import cut

_SNIFF_BYTES = 8_192
_MIN_ROOM = 200
"""Smallest limit: a smaller one could not hold the marker."""


@frozen_dataclass
class Capped:
    """Text within a limit, and whether something was left out."""

    text: str
    truncated: bool = False


def marker(*, omitted: int, total: int, unit: str) -> str:
    """Return the line that replaces what was left out."""
    return f"\n[… {omitted:,} of {total:,} {unit} left out here …]\n"


def cap(text: str, *, limit: int) -> Capped:
    """Cut `text` to `limit` characters: two thirds head, one third tail, a marker between. Blank is empty."""
    if not text.strip():
        return Capped(text="")
    limit = max(limit, _MIN_ROOM)
    if len(text) <= limit:
        return Capped(text=text)
    room = limit - len(marker(omitted=len(text), total=len(text), unit="characters"))
    tail = room // 3
    head = room - tail
    middle = marker(omitted=len(text) - room, total=len(text), unit="characters")
    return Capped(text=text[:head] + middle + text[len(text) - tail :], truncated=True)


def is_binary(data: bytes) -> bool:
    """Return True if `data` is not text: a NUL byte, or over 30 % control bytes, in its first 8 KiB."""
    sample = data[:_SNIFF_BYTES]
    if b"\0" in sample:
        return True
    odd = sum(1 for byte in sample if byte < 32 and byte not in b"\t\n\r\f\b\x1b")
    return odd * 10 > len(sample) * 3


def visible(text: str, *, limit: int = 80) -> str:
    """Return `text` on one line, cut to `limit` characters before invisible ones are spelled out."""
    short = cut(text, most=limit)
    return "".join(
        char if char == " " or (char.isprintable() and not char.isspace()) else _spell(char) for char in short
    )


def _spell(char: str) -> str:
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return known.get(char, f"<U+{ord(char):04X}>")


class Collector:
    """Collects any number of bytes and keeps a bounded head and tail of them."""

    def __init__(self, *, limit: int) -> None:
        """Create a collector for `limit` characters. UTF-8 needs at most four bytes for each of them."""
        self._room = max(limit, _MIN_ROOM) * 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Bytes received so far."""

    def feed(self, data: bytes) -> None:
        """Add `data`; bytes that do not fit are dropped from the middle."""
        self.total += len(data)
        room = self._room - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._room:
            del self._tail[: -self._room]

    def text(self) -> str:
        """Return head and tail as text; this is the complete text only if nothing was dropped."""
        return (bytes(self._head) + bytes(self._tail)).decode("utf-8", "replace")

    def capped(self, *, limit: int) -> Capped:
        """Return the collected text within `limit` characters; binary data is described instead of shown."""
        tail = bytes(self._tail[-self._room :])
        if is_binary(bytes(self._head)):
            return Capped(text=f"[binary output, {self.total:,} bytes, not shown]", truncated=True)
        omitted = self.total - len(self._head) - len(tail)
        if not omitted:
            text = (bytes(self._head) + tail).decode("utf-8", "replace")
            return cap(text, limit=limit)
        limit = max(limit, _MIN_ROOM)
        room = limit - len(marker(omitted=self.total, total=self.total, unit="bytes"))
        last = tail.decode("utf-8", "replace")[-(room // 3) :]
        first = self._head.decode("utf-8", "replace")[: room - room // 3]
        kept = len(first.encode("utf-8", "replace")) + len(last.encode("utf-8", "replace"))
        middle = marker(omitted=max(self.total - kept, omitted), total=self.total, unit="bytes")
        return Capped(text=first + middle + last, truncated=True)


CONTEXT_LINES = 3
_MAX_PRODUCT = 1_000_000
"""Largest product of old and new line counts for which the changed part is compared line by line."""
_HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def diff_text(before: str, after: str, *, name: str) -> str:
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
        body = _replacing_hunk(old_part, new_part, lead=start - first, trail=end - after_end)
    shifted = [_shift_hunk(line, by=first) for line in body]
    header = [f"--- a/{name}\n" if before else "--- /dev/null\n", f"+++ b/{name}\n"]
    return "".join(_end_line(line) for line in header + shifted)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _common(old: list[str], new: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _replacing_hunk(old: list[str], new: list[str], *, lead: int, trail: int) -> list[str]:
    head = f"@@ -{1 if old else 0},{len(old)} +{1 if new else 0},{len(new)} @@\n"
    removed = [f"-{line}" for line in old[lead : len(old) - trail]]
    added = [f"+{line}" for line in new[lead : len(new) - trail]]
    last = [f" {line}" for line in old[len(old) - trail :]] if trail else []
    return [head, *(f" {line}" for line in old[:lead]), *removed, *added, *last]


def _shift_hunk(line: str, *, by: int) -> str:
    found = _HUNK.match(line) if by else None
    if found is None:
        return line
    old, old_count, new, new_count = found.groups()
    rest = line[found.end() :]
    return f"@@ -{int(old) + by}{old_count or ''} +{int(new) + by}{new_count or ''} @@{rest}"


def _end_line(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"

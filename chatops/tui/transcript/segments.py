"""Splits a growing Markdown text into segments, so that only the last one is drawn again.

A cut depends on complete lines only, never on how the text arrived: any chunking gives the same segments. Cuts are made
before a line at column 0 after a blank line, around top-level code fences, before headings, and between items of long
lists. A segment is therefore also a block of its own in CommonMark (sections 2 to 5).
"""

import re
from dataclasses import dataclass

_FENCE = re.compile(r" *(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_BULLET = re.compile(r" {0,3}[-*+](?:\s|$)")
_NUMBER = re.compile(r" {0,3}(\d{1,9})[.)](?:\s|$)")
_LONG_LIST = 40
"""Lines after which a list is cut before its next top-level item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownSegment:
    """A finished segment. `gap`: an empty line precedes it unless it is the first."""

    source: str
    gap: bool = True


class MarkdownSegmenter:
    """Splits text that is fed in chunks. `closed` holds the finished segments, `tail` the open one."""

    def __init__(self) -> None:
        self.closed: list[MarkdownSegment] = []
        self._buffer = ""
        self._scanned = 0
        """End of the complete lines of the buffer that have been scanned."""
        self._gap = True
        self._reset()

    def _reset(self) -> None:
        self._lines = 0
        self._blank = False
        self._list = False
        self._quote = False
        self._first_number: int | None = None
        self._fence = ""
        self._fence_is_block = False

    @property
    def tail(self) -> str:
        """The open segment, including an incomplete last line."""
        return self._buffer

    @property
    def tail_gap(self) -> bool:
        """True if an empty line precedes the open segment."""
        return self._gap

    @property
    def tail_is_code(self) -> bool:
        """True if the open segment is a top-level code block."""
        return self._fence_is_block and bool(self._fence)

    def feed(self, text: str) -> None:
        """Add `text`, closing what can be closed."""
        self._buffer += text
        end = self._buffer.rfind("\n") + 1
        while self._scanned < end:
            start = self._scanned
            stop = self._buffer.index("\n", start) + 1
            self._scanned = stop
            self._line(self._buffer[start : stop - 1].rstrip("\r"), start, stop)
            if self._scanned == 0:
                # A cut has removed the start of the buffer, up to this line or further.
                end = self._buffer.rfind("\n") + 1

    def close(self) -> None:
        """Close the last segment, because no more text comes."""
        if self._buffer and not self._buffer.endswith("\n"):
            self.feed("\n")
        self._cut(len(self._buffer), gap=True)

    def _line(self, line: str, start: int, stop: int) -> None:
        if self._fence:
            self._in_fence(line, stop)
            return
        if not line.strip():
            self._blank = True
            return
        fence = _FENCE.match(line)
        indent = len(line) - len(line.lstrip(" "))
        if fence is not None and indent > 3 and not self._list:
            fence = None
        if self._lines and (gap := self._cut_before(line, indent=indent, fence=fence is not None)) is not None:
            self._cut(start, gap=gap)
            return  # The line is scanned again as the first one of the next segment.
        self._start_or_continue(line)
        if fence is not None:
            self._fence = fence[1]
            self._fence_is_block = self._lines == 1 and not self._list and not self._quote

    def _start_or_continue(self, line: str) -> None:
        number = _NUMBER.match(line)
        if self._lines == 0:
            self._quote = line.lstrip().startswith(">")
        if not self._list and (number is not None or _BULLET.match(line)):
            self._list = True
            self._first_number = int(number[1]) if number is not None else None
        self._lines += 1
        self._blank = False

    def _cut_before(self, line: str, *, indent: int, fence: bool) -> bool | None:
        """Return None for no cut before this line, else True if an empty line belongs between the segments."""
        if fence and indent <= 3 and not self._list and not self._quote:
            return True
        if indent:
            return None
        if _HEADING.match(line):
            return True
        number = _NUMBER.match(line)
        if not self._list or (number is None and not _BULLET.match(line)):
            return True if self._blank else None
        if self._lines < _LONG_LIST or (number is not None) != (self._first_number is not None):
            return None
        if number is None or int(number[1]) > (self._first_number or 0):
            return False
        return None  # Every item has the same number: only the whole list can be numbered.

    def _in_fence(self, line: str, stop: int) -> None:
        self._lines += 1
        self._blank = False
        mark = line.strip()
        if len(mark) >= len(self._fence) and set(mark) == {self._fence[0]}:
            self._fence = ""
            if self._fence_is_block:
                self._cut(stop, gap=True)

    def _cut(self, at: int, *, gap: bool) -> None:
        source, self._buffer = self._buffer[:at], self._buffer[at:]
        if source.strip():
            self.closed.append(MarkdownSegment(source=source, gap=self._gap))
            self._gap = gap
        self._scanned = 0
        self._reset()

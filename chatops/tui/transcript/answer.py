"""Draws an answer while it grows.

The text is split into segments (`MarkdownSegmenter`). Finished ones are drawn when they come into view. The open one is
drawn again at each change; if it is long, only its end.

The Markdown parser and pygments are imported after the first paint. Until then text is drawn plain.
"""

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import overload

from rich.text import Text
from textual.strip import Strip

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.tui.theme import PLAIN, BlockTheme
from chatops.tui.transcript.lines import GUTTER, PROSE, prefixed, strips_of, styled, wrap

_LONGEST_PARSED = 16_000
"""Longer Markdown (in characters) is shown as its source, because parsing is not linear."""
_OPENING_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)")
"""A fence and the language after it, of a segment that is a code block."""
MAX_LINES = 3_000
"""Maximum drawn lines kept of one answer, roughly 5 MB. A single longer segment is kept in full."""
_MAX_TAIL_LINES, _MAX_TAIL_CHARS = 60, 6_000
"""Lines and characters of the end that is drawn of a longer open segment, until it is finished."""
_FENCE = re.compile(r" *(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_BULLET = re.compile(r" {0,3}[-*+](?:\s|$)")
_NUMBER = re.compile(r" {0,3}(\d{1,9})[.)](?:\s|$)")
_MAX_INDENT = 3
"""Spaces before a fence outside of a list. A line with more is indented code (CommonMark 4.4)."""
_LONG_LIST_LINES = 40
"""Lines after which a list is cut before its next top-level item."""


@frozen_dataclass
class MarkdownSegment:
    """A finished segment. `gap`: an empty line precedes it unless it is the first."""

    source: str
    gap: bool = True


class MarkdownSegmenter:
    """Splits a growing text, so that only its end is drawn again: `closed` are finished segments, `tail` is open.

    A cut depends on complete lines only, never on how the text arrived: any chunking gives the same segments. Cuts are
    made before a line at column 0 after a blank line, around top-level code fences, before headings, and between items
    of long lists. A segment is therefore also a block of its own in CommonMark (sections 2 to 5).
    """

    def __init__(self) -> None:
        self.closed: list[MarkdownSegment] = []
        self.tail = ""
        """The open segment, including an incomplete last line."""
        self.tail_gap = True
        """True if an empty line precedes the open segment."""
        self._scanned = 0
        """End of the lines of `tail` that have been scanned, all of them complete."""
        self._open = _OpenSegment()
        """State of `tail` after these lines."""

    @property
    def fence(self) -> str:
        """The fence of the code that the open segment ends in; empty outside of code."""
        return self._open.fence

    @property
    def tail_is_code(self) -> bool:
        """True if the open segment is a top-level code block."""
        return self._open.is_code_block and bool(self._open.fence)

    def feed(self, text: str) -> None:
        """Add `text`, closing what can be closed."""
        self.tail += text
        while stop := self.tail.find("\n", self._scanned) + 1:
            start, line = self._scanned, self.tail[self._scanned : stop - 1].rstrip("\r")
            match self._open.read(line):
                case None:
                    self._scanned = stop
                case _End.AFTER:
                    self._cut(stop, gap=True)
                case _End.BEFORE | _End.BEFORE_IN_LIST as end:
                    # The line is scanned again as the first one of the next segment.
                    self._cut(start, gap=end is _End.BEFORE)

    def close(self) -> None:
        """Close the last segment, because no more text comes."""
        if self.tail and not self.tail.endswith("\n"):
            self.feed("\n")
        self._cut(len(self.tail), gap=True)

    def _cut(self, at: int, *, gap: bool) -> None:
        """Close the segment up to the index `at` of `tail`. `gap`: an empty line belongs before the next one."""
        source, self.tail = self.tail[:at], self.tail[at:]
        if source.strip():
            self.closed.append(MarkdownSegment(source=source, gap=self.tail_gap))
            self.tail_gap = gap
        self._scanned, self._open = 0, _OpenSegment()


class _End(Enum):
    """Place where a segment ends, relative to the line that has shown it."""

    BEFORE = "before"
    BEFORE_IN_LIST = "before in list"
    """Before the line, which is the next item of the same list: no empty line belongs between the two."""
    AFTER = "after"


@dataclass(eq=False, slots=True)
class _OpenSegment:
    """Kind of a segment, and its end, as far as its lines have shown them."""

    lines: int = 0
    """Number of its lines; outside of code, empty ones do not count."""
    after_blank: bool = False
    """True if the last line was empty."""
    in_list: bool = False
    in_quote: bool = False
    """True if the segment is a quotation, which code fences do not end."""
    first_number: int | None = None
    """The number of the first item of a numbered list; None outside of one."""
    fence: str = ""
    """The fence of the code that the segment is in; empty outside of code."""
    is_code_block: bool = False
    """True if the segment is one top-level code block."""

    def read(self, line: str) -> _End | None:
        """Add a line, unless the segment ends before it. Return where it ends; None if it may go on."""
        if self.fence:
            return self._read_code(line)
        if not line.strip():
            self.after_blank = True
            return None
        indent = len(line) - len(line.lstrip(" "))
        fence = _FENCE.match(line) if indent <= _MAX_INDENT or self.in_list else None
        end = self._end_before(line, indent=indent, is_fence=fence is not None) if self.lines else None
        if end is not None:
            return end
        self._take(line)
        if fence is not None:
            self.fence, self.is_code_block = fence[1], self.lines == 1
        return None

    def _end_before(self, line: str, *, indent: int, is_fence: bool) -> _End | None:
        """Return how the segment ends before a line outside of code; None if it goes on. `indent` is in columns."""
        if is_fence and indent <= _MAX_INDENT and not self.in_list and not self.in_quote:
            return _End.BEFORE
        if indent:
            return None
        if _HEADING.match(line):
            return _End.BEFORE
        number = _NUMBER.match(line)
        is_item = number is not None or _BULLET.match(line) is not None
        if not self.in_list or not is_item:
            return _End.BEFORE if self.after_blank else None
        if self.lines < _LONG_LIST_LINES or (number is not None) != (self.first_number is not None):
            return None
        # If every item has the same number, only the whole list can be numbered.
        is_next_item = number is None or int(number[1]) > (self.first_number or 0)
        return _End.BEFORE_IN_LIST if is_next_item else None

    def _take(self, line: str) -> None:
        """Count a line, and note what it says of the segment's kind."""
        if self.lines == 0:
            self.in_quote = line.lstrip().startswith(">")
        number = _NUMBER.match(line)
        is_item = number is not None or _BULLET.match(line) is not None
        if is_item and not self.in_list:
            self.in_list = True
            self.first_number = int(number[1]) if number is not None else None
        self.lines += 1
        self.after_blank = False

    def _read_code(self, line: str) -> _End | None:
        """Count a line of code, which a closing fence ends, and with it a segment that is one code block."""
        self.lines += 1
        self.after_blank = False
        mark = line.strip()
        if len(mark) < len(self.fence) or set(mark) != {self.fence[0]}:
            return None
        self.fence = ""
        return _End.AFTER if self.is_code_block else None


_TABLE_ROW = re.compile(r" {0,3}\|")
_DELIMITERS = re.compile(r"[ |:-]*")
"""The row after the heading of a table, complete or not."""
_UNDERLINE = re.compile(r" {0,3}(?:-+|=+) *")
"""A line that makes a heading of the line before it. It is usually the start of a list or a rule."""
_TICKS = re.compile(r"`+")
_OPEN_BOLD = re.compile(r"(?<![\w*\\`])\*\*(?!\s)(?:(?!\*\*).)*$")
"""Bold text that is not closed, up to the end of its line."""


def complete_end(source: str, *, fence: str = "") -> str:
    """Return Markdown that is being written as it will probably be, so that no sign is drawn first and then goes.

    Code and bold text of the last line are closed, and a table is one from its first row on. `fence` is that of code
    in which the source ends: of a last line that begins the closing fence, nothing is drawn then.
    """
    before, newline, last = source.rpartition("\n")
    if fence:
        return before + newline if set(last.strip()) == {fence[0]} else source
    last = "" if _UNDERLINE.fullmatch(last) or last.strip() == "|" else _close_inline(last)
    paragraph_start = before.rfind("\n\n") + 2 if "\n\n" in before else 0
    lines = (before[paragraph_start:] + newline + last).rstrip("\n").split("\n")
    heading = len(lines)
    while heading and _TABLE_ROW.match(lines[heading - 1]):
        heading -= 1
    if len(lines) - heading in (1, 2):
        # A table's heading, alone or with a begun row of delimiters: without all of these it would be drawn as prose.
        delimiters = "".join(lines[heading + 1 :]).rstrip()
        columns, begun = (row.strip().strip("|").count("|") + 1 for row in (lines[heading], delimiters))
        is_begun = begun < columns or "-" not in delimiters[-4:]
        if is_begun and _DELIMITERS.fullmatch(delimiters):
            return before[:paragraph_start] + "\n".join([*lines[: heading + 1], "|" + "---|" * columns])
    return before + newline + last


def _close_inline(line: str) -> str:
    """Return a line with its code or bold text closed, and without signs at its end that have no text yet."""
    opened, start = "", 0
    """The ticks of code that is open, empty if none is, and where the code begins."""
    for ticks in () if _FENCE.match(line) else _TICKS.finditer(line):
        if not opened:
            opened, start = ticks[0], ticks.end()
        elif ticks[0] == opened:
            opened = ""
    if opened:
        line = line + opened if line[start:].strip() else line[: start - len(opened)]
    bold = _OPEN_BOLD.search(line) if line.count("**") % 2 else None
    if bold is not None:
        text = bold[0].removeprefix("**").rstrip("* ")
        line = line[: bold.start()] + (f"**{text}**" if text else "")
    return line


_renderer: "list[ModuleType]" = []
"""The module of the Markdown renderer; empty until it is imported."""


def warm_up() -> None:
    """Import the Markdown renderer. Call it in a thread after the first paint; takes about 0.1 s once."""
    if not _renderer:
        from chatops.tui.transcript import markdown

        markdown.markdown_lines("*a*\n\n```python\nb = 1\n```\n", width=40, theme=PLAIN)
        _renderer.append(markdown)


def coloured(code: str, *, language: str, theme: BlockTheme) -> Text:
    """Return code (already sanitised) in syntax colours, once these are loaded."""
    if not _renderer or not language:
        return Text(code, theme.text, end="")
    text: Text = _renderer[0].highlight(code, language=language, theme=theme)
    return text


def is_warm() -> bool:
    """Return True if Markdown is rendered by now."""
    return bool(_renderer)


def _draw_markdown(source: str, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return a segment of Markdown as lines.

    A single code block may have any length. Other segments longer than `_LONGEST_PARSED` stay plain.
    """
    source = source.strip("\n")
    head, _, body = source.partition("\n")
    opening = _OPENING_FENCE.fullmatch(head.rstrip("\r"))
    if not _renderer or (len(source) > _LONGEST_PARSED and opening is None):
        return wrap(styled((source, theme.text)), width=min(width, PROSE))
    drawn: list[Text]
    if opening is None:
        drawn = _renderer[0].markdown_lines(source, width=width, theme=theme)
        return drawn
    fence, language = opening.groups()
    lines = body.split("\n")
    end = lines[-1].strip()
    if len(end) >= len(fence) and set(end) == {fence[0]}:
        lines.pop()
    drawn = _renderer[0].code_lines("\n".join(lines), language=language, width=width, theme=theme)
    return drawn


class SegmentLines(Sequence[Strip]):
    """The lines of all finished segments, as a sequence.

    `draw(number, gap)` returns the lines of a segment, the same number each time. `gap` is True if lines precede it.
    """

    def __init__(self, draw: Callable[[int, bool], list[Strip]]) -> None:
        self._draw = draw
        self._starts = [0]
        self._cache: OrderedDict[int, list[Strip]] = OrderedDict()
        """Drawn segments by number, the one used last at the end."""
        self.kept = 0
        """Number of lines held in memory."""

    @property
    def segments(self) -> int:
        """Number of segments."""
        return len(self._starts) - 1

    def add(self) -> None:
        """Draw the next segment and append it."""
        number = self.segments
        self._starts.append(self._starts[-1] + len(self._cached_lines(number)))

    def drop(self) -> None:
        """Drop all lines. They are drawn again when needed."""
        self._cache.clear()
        self.kept = 0

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, at: int) -> Strip: ...
    @overload
    def __getitem__(self, at: slice) -> list[Strip]: ...
    def __getitem__(self, at: int | slice) -> Strip | list[Strip]:
        """Return a line or a slice of lines, drawn again if they are not kept.

        Raises IndexError if there is no such line.
        """
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        number = bisect_right(self._starts, at) - 1
        lines, place = self._cached_lines(number), at - self._starts[number]
        # The segment may have fewer lines now, drawn by a Markdown renderer that has just been imported.
        return lines[place] if place < len(lines) else Strip([])

    def _cached_lines(self, number: int) -> list[Strip]:
        lines = self._cache.get(number)
        if lines is not None:
            self._cache.move_to_end(number)
            return lines
        lines = self._cache[number] = self._draw(number, self._starts[number] > 0)
        self.kept += len(lines)
        while self.kept > MAX_LINES and len(self._cache) > 1:
            _, far = self._cache.popitem(last=False)
            self.kept -= len(far)
        return lines


class AnswerDrawing:
    """The strips of one answer at one width. The finished result does not depend on how the text arrived."""

    def __init__(self, *, width: int, theme: BlockTheme) -> None:
        self._width = width
        self._theme = theme
        self._segmenter = MarkdownSegmenter()
        self._incomplete = False
        self._finished = SegmentLines(self._segment_strips)

    def extend(self, text: str) -> None:
        """Add text, without drawing it yet."""
        self._segmenter.feed(text)

    def close(self, *, incomplete: bool = False) -> None:
        """Mark the answer as complete. `incomplete`: show that it was cut off."""
        self._segmenter.close()
        self._incomplete = incomplete

    def finished(self) -> SegmentLines:
        """Return the lines that will not change any more. It is the same object each time and only grows."""
        # The mark of an answer that was cut off is one segment more.
        while self._finished.segments < len(self._segmenter.closed) + self._incomplete:
            self._finished.add()
        return self._finished

    def _segment_strips(self, number: int, gap: bool) -> list[Strip]:
        if number < len(self._segmenter.closed):
            segment = self._segmenter.closed[number]
            return self._draw(segment.source, gap=segment.gap and gap)
        mark = Text(f"  [cut off here{self._theme.symbols.ellipsis}]", self._theme.warn, end="")
        return self._strips([mark])

    def open_strips(self) -> list[Strip]:
        """Return the lines after `finished`."""
        source = self._segmenter.tail
        if not source.strip():
            return []
        end = complete_end(self._end_of(source), fence=self._segmenter.fence)
        return self._draw(end, gap=self._segmenter.tail_gap and bool(self._finished))

    def _end_of(self, source: str) -> str:
        """Return the last lines of a long open segment. A code block keeps its opening line."""
        if len(source) > _MAX_TAIL_CHARS or source.count("\n") > _MAX_TAIL_LINES:
            lines = source[-_MAX_TAIL_CHARS:].splitlines(keepends=True)[-_MAX_TAIL_LINES:]
            if self._segmenter.tail_is_code:
                lines.insert(0, source[: source.index("\n") + 1])
            return "".join(lines)
        return source

    def _draw(self, source: str, *, gap: bool) -> list[Strip]:
        lines = _draw_markdown(source, width=max(1, self._width - GUTTER), theme=self._theme)
        indent = Text(" " * GUTTER, end="")
        drawn = prefixed(lines, first=indent, rest=indent)
        return self._strips([Text(end=""), *drawn] if gap else drawn)

    def _strips(self, lines: list[Text]) -> list[Strip]:
        return strips_of(lines, width=self._width, base=self._theme.base)

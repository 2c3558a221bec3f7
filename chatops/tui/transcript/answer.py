"""Draws an answer while it grows.

The text is split into segments (`MarkdownSegmenter`). Finished ones are drawn when they come into view. The open one is
drawn again at each change; if it is long, only its end.

The Markdown parser and pygments are imported after the first paint. Until then text is drawn plain.
"""

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
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
        self._reset()

    def _reset(self) -> None:
        """Start a segment."""
        self._lines = 0
        """Number of its lines; outside of code, empty ones do not count."""
        self._after_blank = False
        """True if the last line was empty."""
        self._in_list = False
        self._in_quote = False
        """True if the segment is a quotation, which code fences do not end."""
        self._first_number: int | None = None
        """The number of the first item of a numbered list; None outside of one."""
        self._fence = ""
        """The fence of the code that it is in; empty outside of code."""
        self._fence_is_block = False
        """True if that code is all of the segment."""

    @property
    def fence(self) -> str:
        """The fence of the code that the open segment ends in; empty outside of code."""
        return self._fence

    @property
    def tail_is_code(self) -> bool:
        """True if the open segment is a top-level code block."""
        return self._fence_is_block and bool(self._fence)

    def feed(self, text: str) -> None:
        """Add `text`, closing what can be closed."""
        self.tail += text
        end = self.tail.rfind("\n") + 1
        while self._scanned < end:
            start = self._scanned
            stop = self.tail.index("\n", start) + 1
            self._scanned = stop
            self._read_line(self.tail[start : stop - 1].rstrip("\r"), start, stop)
            if self._scanned == 0:
                # A cut has removed the start of `tail`, up to this line or further.
                end = self.tail.rfind("\n") + 1

    def close(self) -> None:
        """Close the last segment, because no more text comes."""
        if self.tail and not self.tail.endswith("\n"):
            self.feed("\n")
        self._cut_lines(len(self.tail), gap=True)

    def _read_line(self, line: str, start: int, stop: int) -> None:
        """Read the line of `tail` from `start` to `stop`. Cut the segment before it if another one starts."""
        if self._fence:
            self._read_code_line(line, stop)
            return
        if not line.strip():
            self._after_blank = True
            return
        fence = _FENCE.match(line)
        indent = len(line) - len(line.lstrip(" "))
        if fence is not None and indent > 3 and not self._in_list:
            fence = None
        if self._lines and (gap := self._cut_before(line, indent=indent, fence=fence is not None)) is not None:
            self._cut_lines(start, gap=gap)
            return  # The line is scanned again as the first one of the next segment.
        self._start_or_continue(line)
        if fence is not None:
            self._fence = fence[1]
            self._fence_is_block = self._lines == 1

    def _start_or_continue(self, line: str) -> None:
        """Count a line of the segment, and note what it says of the segment's kind."""
        number = _NUMBER.match(line)
        if self._lines == 0:
            self._in_quote = line.lstrip().startswith(">")
        if not self._in_list and (number is not None or _BULLET.match(line)):
            self._in_list = True
            self._first_number = int(number[1]) if number is not None else None
        self._lines += 1
        self._after_blank = False

    def _cut_before(self, line: str, *, indent: int, fence: bool) -> bool | None:
        """Return None if no segment ends before this line, else True if an empty line belongs between the two.

        `indent` and `fence` say how far the line is indented, and if it is a code fence.
        """
        if fence and indent <= 3 and not self._in_list and not self._in_quote:
            return True
        if indent:
            return None
        if _HEADING.match(line):
            return True
        number = _NUMBER.match(line)
        if not self._in_list or (number is None and not _BULLET.match(line)):
            return True if self._after_blank else None
        if self._lines < _LONG_LIST_LINES or (number is not None) != (self._first_number is not None):
            return None
        if number is None or int(number[1]) > (self._first_number or 0):
            return False
        return None  # Every item has the same number: only the whole list can be numbered.

    def _read_code_line(self, line: str, stop: int) -> None:
        """Read a line of a fenced code block, which the end of the fence closes."""
        self._lines += 1
        self._after_blank = False
        mark = line.strip()
        if len(mark) >= len(self._fence) and set(mark) == {self._fence[0]}:
            self._fence = ""
            if self._fence_is_block:
                self._cut_lines(stop, gap=True)

    def _cut_lines(self, at: int, *, gap: bool) -> None:
        source, self.tail = self.tail[:at], self.tail[at:]
        if source.strip():
            self.closed.append(MarkdownSegment(source=source, gap=self.tail_gap))
            self.tail_gap = gap
        self._scanned = 0
        self._reset()


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
        if _DELIMITERS.fullmatch(delimiters) and (begun < columns or "-" not in delimiters[-4:]):
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
    if line.count("**") % 2 and (bold := _OPEN_BOLD.search(line)) is not None:
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

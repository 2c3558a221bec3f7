"""Turns styled text into `Strip`s: wrapping, cutting and padding, by cells and never by markup."""

import io
import re
from collections.abc import Iterable
from functools import cache

from rich.cells import cell_len, set_cell_size, split_graphemes
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from chatops.domain.sanitize import JOINED_EMOJI, sanitize

_STARTS_ELEMENT = re.compile(r"[\s\-*+#>|]|```|\d+[.)] ")
"""Start of a line that does not continue a paragraph: in a list, a heading, a quotation, a table, code."""
_MIN_FULL_LINE = 60
"""Characters from which on a line counts as broken because it was full, not because a new element starts."""
PROSE = 100
"""Maximum columns of prose, which longer lines would make hard to read. Code and tables may be wider."""
_WORD = re.compile(r"\s*\S+\s*")
GUTTER = 2
"""Columns kept free at the left of every block for its sign."""


def styled(*parts: tuple[str, Style], prose: bool = False) -> Text:
    """Return one text from several parts. Each is sanitised here; line feeds stay."""
    text = Text(end="", no_wrap=False, overflow="fold")
    for content, style in parts:
        text.append(sanitize(content, prose=prose), style)
    return text


def one_line(content: str) -> str:
    """Return `content` on a single line: runs of white space become one space, the rest is sanitised."""
    return sanitize(" ".join(content.split()), newlines=False)


def truncated(content: str, *, width: int, ellipsis: str) -> str:
    """Return `content` in at most `width` cells, with an ellipsis if it was cut."""
    if cell_len(content) <= width:
        return content
    if width <= cell_len(ellipsis):
        return set_cell_size(content, max(0, width))
    return set_cell_size(content, width - cell_len(ellipsis)).rstrip() + ellipsis


def short_line(content: str, *, width: int, ellipsis: str) -> str:
    """Return `content` on a single line of at most `width` cells, see `one_line` and `truncated`."""
    return truncated(one_line(content), width=width, ellipsis=ellipsis)


def wrap(text: Text, *, width: int) -> list[Text]:
    """Return `text` in lines of at most `width` cells (at least one line)."""
    width = max(1, width)
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        if cell_len(line.plain) <= width:
            lines.append(line)
        else:
            line.expand_tabs(8)
            lines.extend(line.divide(_word_breaks(line.plain, width)))
    for line in lines:
        line.rstrip()
    return lines


def _word_breaks(text: str, width: int) -> list[int]:
    """Return where to break `text`: before words, and within those that are longer than a line."""
    breaks: list[int] = []
    cells_used = 0
    """Cells of the present line that are taken by the words before."""
    for word in _WORD.finditer(text):
        begin, cells = word.start(), cell_len(word[0].rstrip())
        if cells > width - cells_used and begin:
            breaks.append(begin)
            cells_used = 0
        if cells > width:
            breaks += [word.start() + cut for cut in cuts(word[0].rstrip(), width)]
            begin = breaks[-1]
        cells_used += cell_len(text[begin : word.end()])
    return breaks


def cuts(text: str, width: int, *, before: str = "", after: str = "/") -> list[int]:
    """Return where to break a line of `text` into parts of at most `width` cells, without adding or dropping anything.

    It breaks after one of the characters in `after`, or before one in `before`, if the last one is in the second half.
    """
    found: list[int] = []
    start = 0
    if text.isascii():
        # Each character takes one cell.
        while len(text) - start > width:
            start = _best_break(text, start, start + width, before=before, after=after)
            found.append(start)
        return found
    cells_used = 0
    for begin, _, cells in split_graphemes(text)[0]:
        if cells_used + cells > width and begin > start:
            start = _best_break(text, start, begin, before=before, after=after)
            found.append(start)
            cells_used = cell_len(text[start:begin])
        cells_used += cells
    return found


def _best_break(text: str, start: int, end: int, *, before: str, after: str) -> int:
    """Return the best place between `start` and `end` for a break, see `cuts`; `end` if there is none."""
    half = start + (end - start) // 2
    places = (*(text.rfind(sign, half, end) + 1 for sign in after), *(text.rfind(sign, half, end) for sign in before))
    best = max(places)
    return best if best > half else end


def with_joined_paragraphs(text: str) -> str:
    """Return prose with each paragraph on one line. Short lines, lists, code and tables stay as they are."""
    lines: list[str] = []
    for line in text.split("\n"):
        if lines and len(lines[-1]) >= _MIN_FULL_LINE and line and not _STARTS_ELEMENT.match(line):
            lines[-1] = f"{lines[-1].rstrip()} {line}"
        else:
            lines.append(line)
    return "\n".join(lines)


def fold(text: Text, *, width: int) -> list[Text]:
    """Return `text` broken after a space or slash, else at `width` cells. Spaces are kept: they matter in code."""
    width = max(1, width)
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        lines.extend([line] if cell_len(line.plain) <= width else line.divide(cuts(line.plain, width, after="/ ")))
    return lines


def prefixed(lines: Iterable[Text], *, first: Text, rest: Text) -> list[Text]:
    """Return `lines` with `first` before the first one and `rest` before the others."""
    return [Text(end="").append_text(rest if index else first).append_text(line) for index, line in enumerate(lines)]


def indented(lines: Iterable[Text], *, columns: int) -> list[Text]:
    """Return `lines` with so many spaces before each."""
    indent = Text(" " * columns, end="")
    return prefixed(lines, first=indent, rest=indent)


def strips_of(lines: Iterable[Text], *, width: int, base: Style | None) -> list[Strip]:
    """Return lines as Strips, filled up to `width` in the style `base` if there is one.

    A line wider than `width` (a sign on a very narrow screen) is broken, never cut.
    """
    strips: list[Strip] = []
    for line in lines:
        fitting = [line] if cell_len(line.plain) <= width else fold(line, width=width)
        strips.extend(_strip_of(part, width=width, base=base) for part in fitting)
    return strips


def _strip_of(line: Text, *, width: int, base: Style | None) -> Strip:
    line.end = ""
    cells = cell_len(line.plain)
    segments = list(line.render(_console()))
    if "\u200d" in line.plain:
        segments = [part for segment in segments for part in _split_at_emoji(segment)]
    if base is None:
        return Strip(segments, cells)
    over_base = [Segment(text, base + style if style else base) for text, style, _ in segments]
    if cells < width:
        over_base.append(Segment(" " * (width - cells), base))
    return Strip(over_base, max(cells, width))


def _split_at_emoji(segment: Segment) -> Iterable[Segment]:
    """Return `segment` split so that each joined emoji is alone.

    Rich measures a joined emoji alone correctly, but cuts a text that contains one wrongly.
    """
    text, style, control = segment
    return [Segment(part, style, control) for part in re.split(JOINED_EMOJI, text) if part]


def padded(line: Text, *, width: int, style: Style) -> Text:
    """Return `line` filled up to `width` cells with `style` under all of it."""
    result = Text(end="", style=style)
    result.append_text(line)
    result.append(" " * max(0, width - cell_len(line.plain)))
    return result


def marked(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """Return `strip` with the characters of `span` in `style`. An end of -1 is that of the strip, as in Textual."""
    begin, end = span
    length = len(strip.text)
    end = length if end == -1 else min(end, length)
    if begin >= end:
        return strip
    left, right = strip.index_to_cell_position(begin), strip.index_to_cell_position(end)
    inside = strip.crop(left, right)
    inner = Strip([segment._replace(style=(segment.style or Style()) + style) for segment in inside])
    return Strip.join([strip.crop(0, left), inner, strip.crop(right)])


def with_sign(strip: Strip, sign: str, style: Style) -> Strip:
    """Return a line of a block with a sign in its gutter, and the rest of that if a text begins there."""
    rest = strip.crop(cell_len(sign), GUTTER).text
    return Strip.join([Strip([Segment(f"{sign}{rest}", style)], GUTTER), strip.crop(GUTTER)])


@cache
def _console() -> Console:
    """Return the console that Rich needs to render and wrap. It never writes."""
    return Console(file=io.StringIO(), width=80, color_system=None, legacy_windows=False, _environ={})

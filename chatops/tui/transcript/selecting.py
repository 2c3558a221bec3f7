"""Text selected with the mouse: its content and its style."""

from rich.style import Style
from textual.color import Color
from textual.css.styles import StylesBase
from textual.selection import Selection
from textual.strip import Strip

from chatops.tui.transcript.layout import Layout
from chatops.tui.transcript.lines import GUTTER


def selected_text(layout: Layout, selection: Selection) -> str:
    """Return the selected text of the drawn lines, without the gutter and trailing padding."""
    first = selection.start.y if selection.start is not None else 0
    last = min(selection.end.y if selection.end is not None else layout.height, layout.height - 1)
    lines = []
    for y in range(first, last + 1):
        strip, span = layout.line(y), selection.get_span(y)
        if span is None:
            continue
        text = strip.text if strip is not None else ""
        begin, end = span
        begin = max(begin, GUTTER) if text[:GUTTER].isspace() else begin
        lines.append(text[begin : len(text) if end == -1 else end].rstrip())
    return "\n".join(lines)


def selection_style(styles: StylesBase, *, behind: Color) -> Style:
    """Return the style for selected text: the theme's selection colours over the background `behind`.

    Many themes make the selection's foreground transparent. Rich has no transparent colour and would draw the text in
    its background colour, so such text becomes black or white, whichever contrasts more.
    """
    background = behind + styles.background
    foreground = background + (styles.color if styles.color.a else background.get_contrast_text(1.0))
    return Style(color=foreground.rich_color, bgcolor=background.rich_color, dim=False)


def marked(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """Return `strip` with the characters of `span` in the selection style."""
    begin, end = span
    length = len(strip.text)
    end = length if end == -1 else min(end, length)
    if begin >= end:
        return strip
    left, right = strip.index_to_cell_position(begin), strip.index_to_cell_position(end)
    inside = strip.crop(left, right)
    marked = Strip([segment._replace(style=(segment.style or Style()) + style) for segment in inside])
    return Strip.join([strip.crop(0, left), marked, strip.crop(right)])

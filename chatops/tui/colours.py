"""Rendering without colours (NO_COLOR, monochrome terminals): meaningful backgrounds become reverse video."""

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_STANDS_OUT = 0.3
"""Minimum difference in brightness (0 to 1) from the surroundings for a background to be meaningful."""


class WithoutColours(LineFilter):
    """Removes colours from drawn text. Keeps bold, dim, underline and reverse."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the same text without colours. `background` is the colour around it."""
        around = round(background.brightness, 2)
        return [
            Segment(text, None if style is None else _plain(style, around), control)
            for text, style, control in segments
        ]


@lru_cache(1024)
def _plain(style: Style, around: float) -> Style:
    reverse = bool(style.reverse)
    if style.bgcolor is not None and not style.bgcolor.is_default:
        stands_out = abs(Color.from_rich_color(style.bgcolor).brightness - around) >= _STANDS_OUT
        reverse = reverse != stands_out
    return Style(
        bold=style.bold,
        dim=style.dim,
        italic=style.italic,
        underline=style.underline,
        strike=style.strike,
        reverse=reverse or None,
        meta=style.meta or None,
    )

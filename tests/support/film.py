"""Draws screens of the terminal as SVG: one as a still, several as a film that shows one after the other.

A film is one file without scripts and without fonts of others. Who has asked for less motion sees its last screen.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.sax.saxutils import escape

from tests.support.emulator import Cell

Screen = list[list[Cell]]
_WIDTH, _HEIGHT, _SIZE = 8.4, 18, 14
"""Of a cell, and of its font, in pixels."""
_MARGIN = 12
_BACKGROUND, _FOREGROUND = "101318", "d7dce4"
"""What a cell without colours of its own gets: those of the dark theme."""
_STYLE = "font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"


def still(screen: Screen, *, title: str) -> str:
    """Return a picture of one screen."""
    colours = _Colours()
    drawn = "\n".join(_drawn(screen, colours))
    return _svg([f"<g>\n{drawn}\n</g>"], title=title, size=_size([screen]), style=colours.rules())


def film(screens: Sequence[Screen], *, title: str, seconds: float) -> str:
    """Return a film that shows each screen for so many seconds, again and again."""
    colours, count = _Colours(), len(screens)
    groups = []
    for number, screen in enumerate(screens):
        drawn = "\n".join(_drawn(screen, colours))
        last = " last" if number == count - 1 else ""
        groups.append(f'<g class="shot{last}" style="animation-delay:{number * seconds:g}s">\n{drawn}\n</g>')
    share = 100 / count
    style = (
        f".shot{{visibility:hidden;animation:shot {count * seconds:g}s step-end infinite}}"
        f"@keyframes shot{{0%{{visibility:visible}}{share:.4f}%{{visibility:hidden}}}}"
        "@media (prefers-reduced-motion:reduce){.shot{animation:none}.last{visibility:visible}}"
    )
    return _svg(groups, title=title, size=_size(screens), style=colours.rules() + style)


def _size(screens: Sequence[Screen]) -> tuple[float, float]:
    rows, columns = max(len(screen) for screen in screens), max(len(screen[0]) for screen in screens)
    return columns * _WIDTH + 2 * _MARGIN, rows * _HEIGHT + 2 * _MARGIN


def _svg(groups: Sequence[str], *, title: str, size: tuple[float, float], style: str) -> str:
    width, height = size
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>text{{{_STYLE};font-size:{_SIZE}px;white-space:pre}}.m{{font-weight:bold}}{style}</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#{_BACKGROUND}"/>',
            *groups,
            "</svg>\n",
        )
    )


class _Colours:
    """The colours of a picture, each with a short class name."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, colour: str) -> str:
        """Return the class for a colour."""
        return self._names.setdefault(colour, f"c{len(self._names)}")

    def rules(self) -> str:
        """Return the style rules of all classes."""
        return "".join(f".{name}{{fill:#{colour}}}" for colour, name in self._names.items())


def _drawn(screen: Screen, colours: _Colours) -> Iterator[str]:
    for number, row in enumerate(screen):
        y = _MARGIN + number * _HEIGHT
        yield from _backgrounds(row, y, colours)
        yield from _texts(row, y + _HEIGHT - 5, colours)


def _backgrounds(row: list[Cell], y: float, colours: _Colours) -> Iterator[str]:
    column = 0
    for colour, cells in groupby(row, key=lambda cell: _hex(cell.background, _BACKGROUND)):
        count = len([*cells])
        if colour != _BACKGROUND:
            at, width = _MARGIN + column * _WIDTH, count * _WIDTH
            yield f'<rect class="{colours.name(colour)}" x="{at:g}" y="{y:g}" width="{width:g}" height="{_HEIGHT}"/>'
        column += count


def _texts(row: list[Cell], y: float, colours: _Colours) -> Iterator[str]:
    """Yield the words of a row. Each is as wide as its cells, whatever font it is drawn in."""
    column = 0
    looks = groupby(row, key=lambda cell: (cell.text == " ", _hex(cell.foreground, _FOREGROUND), cell.marked))
    for (blank, colour, marked), run in looks:
        cells = [*run]
        text = "".join(cell.text for cell in cells)
        if not blank and text:
            at, width = _MARGIN + column * _WIDTH, len(cells) * _WIDTH
            classes = f"{colours.name(colour)} m" if marked else colours.name(colour)
            yield (
                f'<text class="{classes}" x="{at:g}" y="{y:g}" textLength="{width:g}"'
                f' lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'
            )
        column += len(cells)


def _hex(colour: str, default: str) -> str:
    return colour if len(colour) == 6 and all(digit in "0123456789abcdef" for digit in colour) else default

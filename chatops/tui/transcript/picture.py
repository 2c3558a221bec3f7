"""Images in the transcript: half blocks in the colours of a small raster, or a line that says what the image is.

A cell shows two pixels: the upper half block in the colour of the upper one, on the colour of the lower one. Only
terminals with many colours get them. In the same cells, a terminal that has the image draws it itself (`graphics`), if
the window is wide enough for all of it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from rich.color import Color
from rich.style import Style
from rich.text import Text

from chatops.domain.files import FileRef, shown_name
from chatops.tui.graphics import placeholder_rows
from chatops.tui.theme import BlockTheme

if TYPE_CHECKING:
    from chatops.tools.picture import Picture, Raster

PictureOf: TypeAlias = "Callable[[FileRef], Picture | None]"
"""Returns what is known of an image; None while nothing is."""
_HALF = "▀"
_MAX_SHOWN = 4
"""Images of one block that are shown. All of them are named."""
_OPAQUE = 255
_Colour = tuple[int, int, int]


def picture_lines(files: Iterable[FileRef], pictures: PictureOf, *, width: int, theme: BlockTheme) -> list[Text]:
    """Return the size of each image among `files`, and its preview if there is one."""
    images = [file for file in files if file.is_image][:_MAX_SHOWN]
    lines: list[Text] = []
    for file in images:
        if (picture := pictures(file)) is None:
            continue
        facts = [f"{picture.size[0]} × {picture.size[1]} pixels"] if picture.size is not None else []
        facts += [picture.problem] if picture.problem else []
        if facts:
            name = f"{shown_name(file.path)}: " if len(images) > 1 else ""
            lines.append(Text((name + ", ".join(facts))[:width], theme.muted, end=""))
        if (raster := picture.raster) is not None and picture.image_id and width >= raster.width:
            lines.extend(placeholder_rows(picture.image_id, columns=raster.width, rows=rows_of(raster)))
        elif raster is not None:
            lines.extend(_raster_lines(raster, width=width, behind=_background(theme)))
    return lines


def rows_of(raster: "Raster") -> int:
    """Return the lines that an image takes."""
    return -(-raster.height // 2)


def _background(theme: BlockTheme) -> _Colour:
    """Return the colour that shows through transparent pixels."""
    colour = theme.base.bgcolor if theme.base is not None else None
    if colour is None or colour.is_default:
        return (0, 0, 0) if theme.dark else (_OPAQUE,) * 3
    return tuple(colour.get_truecolor())  # type: ignore[return-value]


def _raster_lines(raster: "Raster", *, width: int, behind: _Colour) -> Iterator[Text]:
    """Yield the lines of a raster, made smaller if it is wider than `width`."""
    columns = max(1, min(raster.width, width))
    scale = raster.width / columns
    height = max(1, round(raster.height / scale))
    rows = [[_pixel(raster, x, y, scale=scale, behind=behind) for x in range(columns)] for y in range(height)]
    for y in range(0, height, 2):
        line = Text(end="", no_wrap=True)
        below = rows[y + 1] if y + 1 < height else [None] * columns
        for upper, lower in zip(rows[y], below, strict=True):
            back = None if lower is None else Color.from_rgb(*lower)
            line.append(_HALF, Style(color=Color.from_rgb(*upper), bgcolor=back))
        yield line


def _pixel(raster: "Raster", x: int, y: int, *, scale: float, behind: _Colour) -> _Colour:
    """Return the colour of a pixel of the scaled raster."""
    column, row = min(raster.width - 1, int(x * scale)), min(raster.height - 1, int(y * scale))
    at = 4 * (row * raster.width + column)
    *colour, alpha = raster.pixels[at : at + 4]
    red, green, blue = (
        (over * alpha + under * (_OPAQUE - alpha)) // _OPAQUE for over, under in zip(colour, behind, strict=True)
    )
    return red, green, blue

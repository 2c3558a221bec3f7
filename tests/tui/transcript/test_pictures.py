"""Images in the transcript: half blocks of a small raster, bounded and smaller in a narrow window, or a line."""

import json
from dataclasses import replace

import pytest
from rich.color import Color
from rich.style import Style
from textual.strip import Strip

from chatops.domain.files import FileRef
from chatops.domain.tools import Outcome
from chatops.tools.picture import Picture, Raster
from chatops.tui.theme import PLAIN
from chatops.tui.transcript.blocks import ToolCardBlock, UserBlock
from tests.support.transcript_blocks import card, render_block

IMAGE = FileRef(path="plot.png", size=1_200, digest="ab" * 32, type="image/png")
RED, BLUE = bytes((255, 0, 0, 255)), bytes((0, 0, 255, 255))
STRIPES = Raster(40, 24, b"".join((RED if y % 2 == 0 else BLUE) * 40 for y in range(24)))
PICTURE = Picture(size=(4_000, 2_400), raster=STRIPES)


def returned(*files: FileRef) -> ToolCardBlock:
    return replace(card("c", "", outcome=Outcome.SUCCESS, tool="plot", arguments="{}"), files=files)


def drawn(block: ToolCardBlock | UserBlock, picture: Picture | None, *, width: int = 60) -> list[Strip]:
    return render_block(block, width, PLAIN, pictures=lambda file: picture)


def rows(strips: list[Strip]) -> list[Strip]:
    return [strip for strip in strips if "▀" in strip.text]


@pytest.mark.parametrize("block", [returned(IMAGE), UserBlock(id="u", text="look", files=(IMAGE,))])
def test_two_rows_of_pixels_are_a_line_of_half_blocks(block: ToolCardBlock | UserBlock) -> None:
    strips = drawn(block, PICTURE)
    assert any("4000 × 2400 pixels" in strip.text for strip in strips)
    found = rows(strips)
    assert len(found) == 12
    for strip in found:
        (style,) = {segment.style for segment in strip if "▀" in segment.text and segment.style}
        assert strip.text.count("▀") == 40
        assert style.color == Color.from_rgb(255, 0, 0) and style.bgcolor == Color.from_rgb(0, 0, 255)


def test_the_card_of_an_image_that_was_read_names_it_once() -> None:
    read = replace(returned(IMAGE), tool="file_read", arguments=json.dumps({"path": f"docs/{IMAGE.path}"}))
    text = "\n".join(strip.text for strip in drawn(read, PICTURE))
    assert text.count(IMAGE.path) == 1 and f"{IMAGE.type}, {IMAGE.size:,} bytes" in text
    assert f"{IMAGE.path} ({IMAGE.type}" in "".join(strip.text for strip in drawn(returned(IMAGE), PICTURE))


@pytest.mark.parametrize("width", [1, 3, 8, 20, 43, 44, 200])
def test_a_narrow_window_gets_a_smaller_picture_of_the_same_shape(width: int) -> None:
    strips = drawn(returned(IMAGE), PICTURE, width=width)
    assert all(strip.cell_length <= max(width, 5) for strip in rows(strips))
    columns = max(strip.text.count("▀") for strip in rows(strips))
    assert len(rows(strips)) == max(1, -(-round(24 * columns / 40) // 2))


def test_an_image_that_the_terminal_has_is_cells_of_it_where_there_is_room() -> None:
    known = replace(PICTURE, image_id=0x123456)
    wide = drawn(returned(IMAGE), known)
    cells = [strip for strip in wide if "\U0010eeee" in strip.text]
    assert len(cells) == 12 and not rows(wide)
    assert all(strip.text.count("\U0010eeee") == 40 for strip in cells)
    assert len(wide) == len(drawn(returned(IMAGE), PICTURE)), "no line moves when an image is sent or deleted"
    assert rows(drawn(returned(IMAGE), known, width=40)), "half blocks where not all of it fits"


def test_what_is_behind_shows_through() -> None:
    glass = Picture(size=(2, 2), raster=Raster(1, 2, bytes((255, 255, 255, 128, 9, 9, 9, 0))))
    theme = replace(PLAIN, base=Style(bgcolor=Color.from_rgb(100, 0, 0)))
    (row,) = rows(render_block(returned(IMAGE), 40, theme, pictures=lambda file: glass))
    (style,) = {segment.style for segment in row if "▀" in segment.text and segment.style}
    assert style.color == Color.from_rgb(177, 128, 128) and style.bgcolor == Color.from_rgb(100, 0, 0)


def test_without_a_preview_a_line_says_size_and_reason() -> None:
    strips = drawn(returned(IMAGE), Picture(size=(60_000, 60_000), problem="too large to preview"))
    assert any("60000 × 60000 pixels, too large to preview" in strip.text for strip in strips)
    assert not rows(strips)


def test_files_that_are_no_images_and_images_not_looked_at_have_no_picture() -> None:
    asked: list[FileRef] = []
    text = FileRef(path="a.txt", size=3, digest="cd" * 32, type="text/plain")
    gone = FileRef(path="b.png", size=3, type="image/png", problem="not kept")
    strips = render_block(returned(text, gone), 60, PLAIN, pictures=lambda file: asked.append(file))
    assert not asked and not rows(strips)
    assert not rows(drawn(returned(IMAGE), None))


def test_of_many_images_the_first_four_are_shown_with_their_names() -> None:
    files = [replace(IMAGE, path=f"{number}.png") for number in range(9)]
    strips = drawn(returned(*files), PICTURE)
    assert len(rows(strips)) == 48
    assert sum(": 4000 × 2400 pixels" in strip.text for strip in strips) == 4

"""Which terminals are sent images, and how: by what they say of themselves, as data, in sequences of bounded length."""

import base64
import random
import re
import zlib

from chatops.tools.picture import Raster
from chatops.tui.graphics import Graphics, encode_pixels, placeholder_rows
from chatops.tui.transcript.lines import strips_of
from tests.support.cases import for_each
from tests.support.emulator import MARKS, Emulator


def told(*answers: str) -> tuple[Graphics, list[str]]:
    written: list[str] = []
    graphics = Graphics(written.append)
    for answer in answers:
        graphics.answered(answer)
    return graphics, written


@for_each("name", ["kitty(0.28.0)", "kitty(0.42.1)", "kitty(1.0.0)", "ghostty 1.0.0", "ghostty 1.3.0-main+abc"])
def test_a_terminal_that_calls_itself_kitty_or_ghostty_is_asked_and_shows_images_if_it_says_so(name: str) -> None:
    graphics, written = told(f"\x1bP>|{name}\x1b\\")
    assert len(written) == 1 and "a=q,t=d" in written[0] and not graphics.works
    graphics.answered("\x1b_Gi=1;OK\x1b\\")
    assert graphics.works


@for_each(
    "name",
    [
        "kitty(0.27.1)",
        "kitty",
        "kitty(x.y)",
        "WezTerm 20240203",
        "iTerm2 3.5.0",
        "Konsole 25.04",
        "tmux 3.5",
        "XTerm(390)",
    ],
)
def test_others_are_neither_asked_nor_believed(name: str) -> None:
    graphics, written = told(f"\x1bP>|{name}\x1b\\", "\x1b_Gi=1;OK\x1b\\")
    assert not written and not graphics.works


@for_each(
    "answer", ["\x1b_Gi=1;ENOTSUPPORTED:off\x1b\\", "\x1b_Gi=2;OK\x1b\\", "\x1b_Gi=1;OK", "\x1bP>|kitty(0.35.0)\x1b\\"]
)
def test_a_refusal_is_no_yes(answer: str) -> None:
    graphics, written = told("\x1bP>|kitty(0.35.0)\x1b\\", answer)
    assert not graphics.works and len(written) == 1


def test_an_image_is_sent_as_data_in_chunks_and_is_the_same_at_the_other_end() -> None:
    graphics, written = told()
    data = encode_pixels(Raster(64, 64, random.Random(1).randbytes(64 * 64 * 4)))
    number = graphics.send("a", data, size=(64, 64), cells=(8, 4))
    assert graphics.send("a", data, size=(64, 64), cells=(8, 4)) == number
    (text,) = written
    chunks = re.findall("\x1b_G([^;]*);([^\x1b]*)\x1b\\\\", text)
    assert len(chunks) > 2 and all(len(chunk) <= 4096 for _, chunk in chunks)
    assert "".join(chunk for _, chunk in chunks) == data
    terminal = Emulator(columns=20, rows=10, kitty=True)
    assert not terminal.feed(text.encode())
    assert terminal.images[number].cells == (8, 4)
    assert base64.b64encode(zlib.compress(terminal.images[number].pixels)).decode() == data
    terminal.feed(graphics.leave().encode())
    assert not terminal.images
    terminal.feed("".join(graphics.again()).encode())
    assert set(terminal.images) == {number}
    graphics.delete(["a"])
    terminal.feed(written[-1].encode())
    assert not terminal.images and not graphics.keys and not graphics.leave()


def test_cells_name_their_part_and_no_cut_takes_one_apart() -> None:
    rows = list(placeholder_rows(0x0A0B0C, columns=60, rows=12))
    assert [row.plain for row in rows] == [
        "".join(f"\U0010eeee{MARKS[y]}{MARKS[x]}" for x in range(60)) for y in range(12)
    ]
    (strip,) = strips_of(rows[:1], width=60, base=None)
    assert strip.cell_length == 60
    left, right = strip.divide([17, 60])
    assert left.text == rows[0].plain[: 3 * 17] and right.text == rows[0].plain[3 * 17 :]
    assert strip.crop(3, 5).text == rows[0].plain[9:15]
    (segment,) = strip.crop(3, 4)
    color = segment.style.color if segment.style is not None else None
    assert color is not None and color.get_truecolor() == (0x0A, 0x0B, 0x0C)

"""A frame with shorter style codes looks the same."""

import random

import pyte

from chatops.tui.output_writer import with_short_styles
from tests.support.cases import for_each

COLOURS = ["38;2;1;2;3;48;2;9;9;9", "38;2;4;5;6;48;2;9;9;9", "38;2;1;2;3", "48;5;17", "31"]
STYLES = [*COLOURS, "1;38;2;1;2;3;48;2;9;9;9", "3;38;2;1;2;3", "1;3;4", "7;97;104", "2;9;38;5;200"]


def screen(data: str) -> object:
    drawn = pyte.Screen(20, 6)
    pyte.Stream(drawn).feed(data)
    return [[drawn.buffer[row][column] for column in range(20)] for row in range(6)], drawn.cursor.x, drawn.cursor.attrs


@for_each("seed", range(20))
def test_what_is_drawn_is_the_same(seed: int) -> None:
    choose = random.Random(seed)

    def piece() -> str:
        words = choose.choice(["ab", " ", "[mm", "é"])
        match choose.randrange(4):
            case 0:
                return words
            case 1:
                return f"\x1b[{choose.randrange(1, 6)};{choose.randrange(1, 15)}H"
            case _:
                return f"\x1b[{choose.choice(STYLES)}m{words}\x1b[0m"

    rows = [f"\x1b[{row};1H" + "".join(piece() for _ in range(5)) for row in range(1, 6)]
    frame = "\r\n".join(rows) + "\x1b[3;3H\x1b[?25h"
    short = with_short_styles(frame)
    assert screen(short) == screen(frame)
    assert len(short) <= len(frame)


def test_only_what_differs_is_written() -> None:
    red, green = "\x1b[38;2;9;0;0;48;2;1;1;1m", "\x1b[38;2;0;9;0;48;2;1;1;1m"
    frame = f"{red}a\x1b[0m{green}b\x1b[0m{green}c\x1b[0m\r\n\x1b[2;1H{green}d\x1b[0m\x1b[4;4H"
    assert with_short_styles(frame) == f"{red}a\x1b[38;2;0;9;0mbc\x1b[2;1Hd\x1b[0m\x1b[4;4H"

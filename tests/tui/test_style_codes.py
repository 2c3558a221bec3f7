"""A frame with shorter style codes looks the same."""

import random

import pyte

from chatops.tui.output_writer import with_short_styles
from tests.support.cases import for_each

COLOURS = ["38;2;1;2;3;48;2;9;9;9", "38;2;4;5;6;48;2;9;9;9", "38;2;1;2;3", "48;5;17", "31"]
STYLES = [*COLOURS, "1;38;2;1;2;3;48;2;9;9;9", "3;38;2;1;2;3", "1;3;4", "7;97;104", "2;9;38;5;200"]


def screen(data: str) -> object:
    drawn = pyte.Screen(20, 12)  # Higher than what is drawn: the end of the last row would scroll it.
    pyte.Stream(drawn).feed(data.replace("\n", "\r\n"))
    return (
        [[drawn.buffer[row][column] for column in range(20)] for row in range(12)],
        drawn.cursor.x,
        drawn.cursor.attrs,
    )


@for_each("seed", range(40))
def test_what_is_drawn_is_the_same(seed: int) -> None:
    choose = random.Random(seed)

    def move() -> str:
        return f"\x1b[{choose.randrange(1, 6)};{choose.randrange(1, 15)}H"

    def piece() -> str:
        words = choose.choice(["ab", " ", "[mm", "é"])
        match choose.randrange(6):
            case 0:
                return words
            case 1:
                return move()
            case 2:
                return f"\x1b[{choose.choice(STYLES)}m{words}{move()}{words}\x1b[0m"
            case 3:
                return f"\x1b[{choose.choice(STYLES)}m{words}\x1b[0m{move()}"
            case _:
                return f"\x1b[{choose.choice(STYLES)}m{words}\x1b[0m"

    rows = [f"\x1b[{row};1H" + "".join(piece() for _ in range(5)) for row in range(1, 6)]
    frame = "\n".join(rows) + "\x1b[3;3H\x1b[?25h"
    short = with_short_styles(frame)
    assert screen(short) == screen(frame)
    assert len(short) <= len(frame)


def test_only_what_differs_is_written() -> None:
    red, green = "\x1b[38;2;9;0;0;48;2;1;1;1m", "\x1b[38;2;0;9;0;48;2;1;1;1m"
    frame = f"{red}a\x1b[0m{green}b\x1b[0m{green}c\x1b[0m\n\x1b[2;1H{green}d\x1b[0m\x1b[4;4H"
    assert with_short_styles(frame) == f"{red}a\x1b[38;2;0;9;0mbc\x1b[2;1Hd\x1b[0m\x1b[4;4H"


def test_a_row_that_goes_on_elsewhere_keeps_its_style() -> None:
    style = "\x1b[38;2;9;0;0;48;2;1;1;1m"
    frame = f"{style}a\x1b[1;9H \x1b[0m\x1b[1;9H\n\x1b[2;1H{style}b\x1b[0m\x1b[2;9H\n\x1b[3;1H{style}c\x1b[0m"
    assert with_short_styles(frame) == f"{style}a\x1b[1;9H \x1b[2;1Hb\x1b[3;1Hc\x1b[0m"


def test_an_attribute_ends_without_the_colours_being_repeated() -> None:
    colours = "38;2;9;0;0;48;2;1;1;1"
    frame = f"\x1b[1;3;{colours}ma\x1b[0m\x1b[3;{colours}mb\x1b[0m\x1b[1;2;{colours}mc\x1b[0m\x1b[2;{colours}md\x1b[0m"
    assert with_short_styles(frame) == f"\x1b[1;3;{colours}ma\x1b[22mb\x1b[23;1;2mc\x1b[22;2md\x1b[0m"

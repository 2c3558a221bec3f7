"""Formulas and keys stand as they are written, and headings of three levels differ."""

import pytest

from chatops.tui.theme import PLAIN
from chatops.tui.transcript.markdown import markdown_lines


@pytest.mark.parametrize(
    "text",
    [
        "Press <kbd>Ctrl</kbd>+<kbd>C</kbd>.",
        "Then $a_1*b*c_2$ holds.",
        "$$\\sum_i a_i * b_i * c \\\\ d$$",
        "It costs $5 or $6, not $7.",
        "An open $x_1 stays",
        "$" * 90,
    ],
)
def test_formulas_and_keys_are_shown_as_text(text: str) -> None:
    shown = " ".join(line.plain for line in markdown_lines(text, width=400, theme=PLAIN))
    assert shown == text


def test_markdown_beside_an_amount_of_money_is_still_drawn() -> None:
    (line,) = markdown_lines("It costs $5 *and* $6.", width=80, theme=PLAIN)
    assert line.plain == "It costs $5 and $6."


def test_the_first_three_levels_of_headings_differ() -> None:
    styles = {str(markdown_lines(f"{'#' * level} Title", width=80, theme=PLAIN)[0].spans[0].style) for level in (1, 2)}
    assert len(styles) == 2

"""Signs of Markdown: formulas and keys, headings, tasks, columns, changed and wrapped lines of code."""

from rich.style import Style

from chatops.tui.theme import PLAIN, theme_from
from chatops.tui.transcript.markdown import markdown_lines
from tests.support.cases import for_each


@for_each(
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
    levels = (1, 2, 3, 4)
    styles = {str(markdown_lines(f"{'#' * level} Title", width=80, theme=PLAIN)[0].spans[0].style) for level in levels}
    assert len(styles) == 4


def plain(source: str, *, width: int = 40) -> list[str]:
    return [line.plain.rstrip() for line in markdown_lines(source, width=width, theme=PLAIN)]


def test_tasks_are_boxes_and_other_brackets_stay() -> None:
    assert plain("- [ ] open\n- [x] done\n  - [X] inside\n- [y] text\n- [x]") == [
        "☐ open",
        "☑ done",
        "  ☑ inside",
        "• [y] text",
        "• [x]",
    ]
    assert plain("2. [x] done") == ["2. ☑ done"]


def test_columns_are_aligned_as_the_table_says() -> None:
    assert plain("|a|b|c|\n|:-|-:|:-:|\n|1|2|3|\n|long|long|long|")[2:] == ["1    │    2 │  3", "long │ long │ long"]


_WIDE = """
|Name|Responsibilities|Requirements|
|-|-|-|
|Authentication|Internationalization and authorization|Python and more|
|x|y|https://example.org/a/very/long/path/that/fits/into/no/column|
"""


def test_cells_of_a_table_break_between_words() -> None:
    for width in range(len("  Internationalization"), 100):
        words = {word.rstrip(":") for line in plain(_WIDE, width=width) for word in line.split()}
        assert words >= {"Authentication", "Internationalization", "authorization", "Responsibilities", "Python"}


def test_the_widest_columns_of_a_table_shrink_alike() -> None:
    cells = ("one " * 30, "two " * 30, "three")
    rows = plain(f"|a|b|c|\n|-|-|-|\n|{'|'.join(cells)}|", width=60)
    assert rows[2] == "one one one one one one  │ two two two two two two  │ three"


def test_a_wrapped_line_of_code_is_marked() -> None:
    assert plain("```\n" + "x" * 50 + "\n```") == ["  " + "x" * 37, "↪ " + "x" * 13]


def test_changed_lines_of_a_fenced_diff_stand_on_their_colours() -> None:
    theme = theme_from({}, dark=True)
    lines = markdown_lines("```diff\n--- a\n+++ b\n same\n-old\n+new\n```", width=20, theme=theme)
    backgrounds = [Style.parse(str(line.style)).bgcolor for line in lines]
    assert backgrounds[5] == theme.added.bgcolor
    assert backgrounds[4] == theme.removed.bgcolor
    assert set(backgrounds[:4]) == {theme.code.bgcolor}

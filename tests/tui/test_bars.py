"""Bars: their lengths, and that a share can be told without colours."""

import pytest

from chatops.tui.dialogs.text import Share, bar, stacked_bar


def drawn(*sizes: int, width: int = 20, free: int = 0) -> str:
    shares = [Share(letter, letter, size) for letter, size in zip("abcdef", sizes, strict=False)]
    return stacked_bar([*shares, Share("-", "free", free, free=True)], width=width).plain


@pytest.mark.parametrize(
    ("sizes", "free", "shown"),
    [
        ((50, 25), 25, "a█████████b▒▒▒▒─────"),
        ((1, 0, 999), 0, "ac▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒"),
        ((0, 0), 10, "────────────────────"),
        ((), 0, ""),
    ],
)
def test_a_stacked_bar_is_as_wide_as_it_may_be_and_names_what_is_not_empty(
    sizes: tuple[int, ...], free: int, shown: str
) -> None:
    assert drawn(*sizes, free=free) == shown


def test_a_bar_too_narrow_for_its_shares_is_left_out() -> None:
    assert drawn(1, 1, 1, width=2) == ""


def test_the_shares_are_told_apart_in_ascii() -> None:
    from chatops.domain.charset import SPELLED, register_spelling

    register_spelling()
    assert drawn(50, 25, free=25).encode("ascii", SPELLED) == b"a#########b####-----"


def test_the_least_that_is_not_nothing_has_a_cell() -> None:
    assert (bar(1, most=1000, width=10), bar(0, most=10, width=10), bar(10, most=10, width=10)) == ("█", "", "█" * 10)

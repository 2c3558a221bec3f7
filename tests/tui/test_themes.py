"""Our themes can be read, `auto` follows the terminal's background, and each role has a colour of its own."""

import itertools
from collections.abc import Iterator

import pytest
from rich.color import ColorSystem
from textual.color import Color
from textual.theme import Theme

from chatops.policy.registry import ROLE_COLOURS
from chatops.tui.colours import DARK, LIGHT, PALETTE, SIXTEEN, contrast, in_sixteen, role_colours
from chatops.tui.themes import AUTO
from tests.tui.app.support_app import stage

ROW = "block-cursor-blurred-background"
"""The background of the highlighted row of a list."""
BACKGROUNDS = ("raised", "diff-added", "diff-removed", "warning-muted", "error-muted", ROW)
WORDS = (
    "dim",
    "text-disabled",
    "text-primary",
    "text-secondary",
    "text-accent",
    "text-warning",
    "text-error",
    "text-success",
)
MARKS = ("diff-added-words", "diff-removed-words")
"""Backgrounds of words that stand in the colour of text."""


def backgrounds(theme: Theme) -> Iterator[str]:
    yield from (theme.background or "", theme.surface or "", theme.panel or "")
    yield from (theme.variables[name] for name in BACKGROUNDS)


def ratio(one: str, other: str) -> float:
    return contrast(Color.parse(one), Color.parse(other))


def test_sixteen_colours_keep_their_meanings_apart() -> None:
    for at, meanings in enumerate(((12, 11, 9, 2), (4, 3, 1, 2))):
        names = ("primary", "warning", "error", "success")
        shown = [Color.parse(SIXTEEN[name][at]).rich_color.downgrade(ColorSystem.STANDARD).number for name in names]
        assert tuple(shown) == meanings
        roles = [SIXTEEN[name][at] for name in ("blue", "cyan", "purple", "orange")]
        assert len({Color.parse(one).rich_color.downgrade(ColorSystem.STANDARD).number for one in roles}) == 4


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: str(theme.name))
def test_the_highlighted_row_is_seen_in_sixteen_colours(theme: Theme) -> None:
    shown = [theme.background or "", in_sixteen(theme).variables[ROW]]
    row = {Color.parse(colour).rich_color.downgrade(ColorSystem.STANDARD).number for colour in shown}
    assert len(row) == 2


def test_the_contrast_is_that_of_wcag() -> None:
    assert ratio("#000000", "#ffffff") == pytest.approx(21)
    assert ratio("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: str(theme.name))
def test_text_and_coloured_words_can_be_read_on_every_background(theme: Theme) -> None:
    for behind in (*backgrounds(theme), *(theme.variables[name] for name in MARKS)):
        assert ratio(theme.foreground or "", behind) >= 7, behind
    for behind, word in itertools.product(backgrounds(theme), WORDS):
        assert ratio(theme.variables[word], behind) >= 4.5, (word, behind)
    for behind, shades in itertools.product(backgrounds(theme), PALETTE.values()):
        assert ratio(shades[0 if theme.dark else 1], behind) >= 4.5, (shades, behind)


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: str(theme.name))
def test_a_role_has_the_colour_of_the_registry_made_readable_or_one_of_its_own(theme: Theme) -> None:
    behind = theme.background or ""
    given = [("coder", ""), ("writer", ""), ("judge", ""), ("night", "#111111"), ("day", "#f8f8f8"), ("mine", "pink")]
    found = role_colours(given, dark=theme.dark, background=behind)
    assert found["coder"].lower() == PALETTE["cyan"][0 if theme.dark else 1]
    assert found["mine"].lower() == PALETTE["pink"][0 if theme.dark else 1]
    assert len({found[name] for name in ("coder", "writer", "judge", "mine")}) == 4
    assert all(ratio(colour, behind) >= 4.5 for colour in found.values())


def test_every_colour_that_a_registry_may_name_has_its_shades() -> None:
    assert tuple(PALETTE) == ROLE_COLOURS
    assert PALETTE.keys().isdisjoint({"red", "green", "amber"}), "they have a meaning"


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("environ", "answer", "theme"),
    [
        ({}, "", DARK),
        ({"COLORFGBG": "0;15"}, "", LIGHT),
        ({"COLORFGBG": "15;0"}, "", DARK),
        ({"COLORFGBG": "15;default;0"}, "\x1b]11;rgb:ff/ff/f0\x07", LIGHT),
        ({"COLORFGBG": "0;15"}, "\x1b]11;rgb:1c1c/1c1c/1c1c\x1b\\", DARK),
        ({}, "\x1b]11;rgba:ffff/ffff/ffff/ffff\x1b\\", LIGHT),
        ({}, "\x1b]11;rgb:zz/0/0\x07", DARK),
        ({}, "\x1b]10;rgb:ffff/ffff/ffff\x07", DARK),
        ({}, "\x1b]11;?\x07", DARK),
    ],
)
async def test_auto_follows_the_terminal(
    environ: dict[str, str], answer: str, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLORFGBG", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    async with stage() as running:
        app = running.app
        app.themes.background_reported(answer)
        assert (app.themes.choice, app.theme) == (AUTO, theme.name)
        app.themes.use("nord")
        app.themes.background_reported("\x1b]11;rgb:0/0/0\x07")
        app.themes.background_reported("\x1b]11;rgb:f/f/f\x07")
        assert (app.themes.choice, app.theme) == ("nord", "nord"), "the user's choice stays"

"""The colours of our two themes and of roles, for terminals with many colours and with sixteen, and their contrast."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from textual.color import Color, ColorParseError
from textual.theme import Theme

_MIN_CONTRAST = 4.5
"""Minimum contrast ratio of coloured text (WCAG 2.2, 1.4.3)."""
_DARK, _LIGHT = 0, 1
"""Places of the colours for a dark and for a light background in the tables below."""

DARK = Theme(
    name="chatops-dark",
    primary="#7aa2f7",
    secondary="#bb9af7",
    accent="#7aa2f7",
    warning="#e0af68",
    error="#f7768e",
    success="#9ece6a",
    foreground="#d7dce4",
    background="#101318",
    surface="#171b22",
    panel="#1e242d",
    dark=True,
    variables={
        "dim": "#949eae",
        "line": "#3a4453",
        "raised": "#1e242d",
        "block-cursor-blurred-background": "#28344d",
        "diff-added": "#1d3326",
        "diff-removed": "#3a1f28",
        "diff-added-words": "#254a31",
        "diff-removed-words": "#542430",
        "warning-muted": "#2d2617",
        "error-muted": "#331a21",
    },
)
LIGHT = Theme(
    name="chatops-light",
    primary="#2957c4",
    secondary="#6b3fb5",
    accent="#2957c4",
    warning="#7d5100",
    error="#a81d35",
    success="#2a641e",
    foreground="#23272e",
    background="#fbfbf9",
    surface="#f1f1ee",
    panel="#e7e8e4",
    dark=False,
    variables={
        "dim": "#555e6b",
        "line": "#c3c7cd",
        "raised": "#e7e8e4",
        "block-cursor-blurred-background": "#d5ddf0",
        "diff-added": "#dcf2e0",
        "diff-removed": "#fbdfe3",
        "diff-added-words": "#bfe8c8",
        "diff-removed-words": "#f9cfd6",
        "warning-muted": "#f6ead0",
        "error-muted": "#fbe3e6",
    },
)

for _theme in (DARK, LIGHT):
    # Textual would derive these from the others, by rules that keep no contrast.
    _theme.variables |= {
        "text-primary": _theme.primary,
        "text-secondary": _theme.secondary or "",
        "text-accent": _theme.accent or "",
        "text-warning": _theme.warning or "",
        "text-error": _theme.error or "",
        "text-success": _theme.success or "",
        "text-muted": _theme.variables["dim"],
        "text-disabled": _theme.variables["dim"],
        "scrollbar": _theme.variables["line"],
        "scrollbar-hover": _theme.variables["dim"],
        "scrollbar-active": _theme.variables["dim"],
        "scrollbar-background": _theme.background or "",
        "scrollbar-background-hover": _theme.background or "",
        "scrollbar-background-active": _theme.background or "",
        "scrollbar-corner-color": _theme.background or "",
    }

PALETTE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "blue": ("#7aa2f7", "#2957c4"),
        "cyan": ("#2ac3de", "#0b6072"),
        "purple": ("#bb9af7", "#6b3fb5"),
        "teal": ("#73daca", "#0f655a"),
        "orange": ("#ff9e64", "#984000"),
        "pink": ("#f2a2d8", "#9c2777"),
    }
)
"""The colours of roles by name, on a dark and on a light background. None of them means success or failure."""
SIXTEEN: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "primary": ("#3b78ff", "#0037da"),
        "accent": ("#3b78ff", "#0037da"),
        "secondary": ("#b4009e", "#881798"),
        "warning": ("#f9f1a5", "#c19c00"),
        "error": ("#e74856", "#c50f1f"),
        "success": ("#16c60c", "#13a10e"),
        "blue": ("#3b78ff", "#0037da"),
        "cyan": ("#61d6d6", "#3a96dd"),
        "purple": ("#b4009e", "#881798"),
        "teal": ("#3a96dd", "#3a96dd"),
        "orange": ("#c19c00", "#c19c00"),
        "pink": ("#b4009e", "#b4009e"),
    }
)
"""Our colours on a terminal with sixteen, on dark and on light. Picked by hand: the nearest ones would all be grey."""
_DEFAULT_ROLE_COLOURS: Mapping[str, str] = MappingProxyType(
    {"assistant": "blue", "coder": "cyan", "researcher": "purple", "reviewer": "teal", "operator": "orange"}
)
"""The colour of each packaged role, for which no registry names another one."""


def in_sixteen(theme: Theme) -> Theme:
    """Return one of our themes in colours that a terminal with sixteen has."""
    names = ("primary", "secondary", "accent", "warning", "error", "success")
    colours = {name: SIXTEEN[name][_DARK if theme.dark else _LIGHT] for name in names}
    texts = {f"text-{name}": colour for name, colour in colours.items()}
    # The row of our own would become the background, white.
    row = {"block-cursor-blurred-background": "#808080" if theme.dark else "#c0c0c0"}
    return replace(theme, variables={**theme.variables, **texts, **row}, **colours)  # type: ignore[arg-type]


def role_colours(
    roles: Sequence[tuple[str, str]], *, dark: bool, background: str, sixteen: bool = False
) -> dict[str, str]:
    """Return a colour for each role, readable on `background`.

    `roles` are names with the colour that the registry gives them: a name of `PALETTE`, ``#rrggbb``, or nothing. A role
    without one gets its default colour, else one that no other role has while there are such.
    """
    shade = _DARK if dark else _LIGHT
    wanted = {name: colour or _DEFAULT_ROLE_COLOURS.get(name, "") for name, colour in roles}
    unused = itertools.cycle([name for name in PALETTE if name not in wanted.values()] or PALETTE)
    colours: dict[str, str] = {}
    for role, wanted_colour in wanted.items():
        colour = wanted_colour or next(unused)
        if sixteen and colour in PALETTE:
            colours[role] = SIXTEEN[colour][shade]
        else:
            rgb = PALETTE[colour][shade] if colour in PALETTE else colour
            colours[role] = _with_contrast(rgb, background=background)
    return colours


def _with_contrast(colour: str, *, background: str) -> str:
    """Return the colour, moved towards black or white until its contrast with the background is enough.

    A colour of the terminal stays as it is: what it looks like is not known.
    """
    try:
        wanted, behind = Color.parse(colour), Color.parse(background)
    except ColorParseError:
        return colour
    if wanted.ansi is not None or behind.ansi is not None:
        return colour
    black_or_white = behind.get_contrast_text(1.0)
    blends = (wanted.blend(black_or_white, tenths / 10) for tenths in range(11))
    return next((blend for blend in blends if contrast(blend, behind) >= _MIN_CONTRAST), black_or_white).hex


def contrast(first: Color, second: Color) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Color) -> float:
    """Return the relative luminance of a colour (WCAG 2.2), from 0 for black to 1 for white."""
    parts = []
    for value in colour.rgb:
        part = value / 255
        parts.append(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
    red, green, blue = parts
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

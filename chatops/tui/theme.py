"""Styles of drawn text, taken from the app's theme so that light and dark both work.

Without colours (NO_COLOR, monochrome terminals), meaningful backgrounds become reverse video.
"""

import codecs
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.segment import Segment
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.filter import LineFilter

from chatops.domain.frozen_dataclass import frozen_dataclass

if TYPE_CHECKING:
    from textual.app import App

_BOLD, _ITALIC, _STRIKE, _UNDERLINED = Style(bold=True), Style(italic=True), Style(strike=True), Style(underline=True)
_UNSTYLED = Style()
_FALLBACK_FOREGROUND = Color.parse("#e0e0e0")
_NO_ROLES: Mapping[str, str] = MappingProxyType({})
_MIN_DIFFERENCE = 0.3
"""Minimum difference in brightness (0 to 1) from the surroundings that makes a background meaningful.

With less, the plain background of a panel would be drawn in reverse video too.
"""


@frozen_dataclass
class Symbols:
    """Signs that support the words beside them. Each takes one cell, except the arrow and the boxes of `ASCII`.

    On a terminal without Unicode, `output_writer` substitutes an ASCII sign of the same width for each. `ASCII` has
    others where two substitutes could not be told apart, and beside text that a dialog shows character by character.
    """

    user: str = "▌"
    done: str = "✓"
    failed: str = "✗"
    waiting: str = "?"
    unsettled: str = "…"
    running: str = "»"
    unknown: str = "‼"
    folded: str = "▸"
    unfolded: str = "▾"
    selected: str = "❯"
    """Beside the first line of the selected block; `selected_more` stands beside the others."""
    selected_more: str = "┃"
    rule: str = "─"
    bar: str = "│"
    bullet: str = "•"
    ellipsis: str = "…"
    minus: str = "−"
    arrow: str = "→"
    dot: str = "·"
    quote: str = "▎"
    box: str = "☐"
    ticked: str = "☑"
    wrapped: str = "↪"
    """Before a continuation of a line of code."""
    risky: str = "▲"
    """Before a line of a command with a part to look at."""


UNICODE = Symbols()
ASCII = Symbols(
    running="*",
    selected_more=">",
    ellipsis="~",
    minus="-",
    arrow="->",
    dot="-",
    box="[ ]",
    ticked="[x]",
    risky="^",
)

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
"""The frames of a sign that moves, see `BlockTheme.spinner`."""


def symbols_for(encoding: str | None) -> Symbols:
    """Return the signs for a terminal with this encoding."""
    try:
        name = codecs.lookup(encoding or "ascii").name
    except LookupError:
        return ASCII
    return UNICODE if name.startswith("utf") else ASCII


@frozen_dataclass
class BlockTheme:
    """Styles by purpose: foregrounds over the transcript's background, except where a background is named."""

    text: Style
    muted: Style
    user: Style
    heading: Style
    link: Style
    good: Style
    warn: Style
    bad: Style
    code: Style
    """Code blocks, with their own background."""
    inline_code: Style
    user_text: Style = _UNSTYLED
    """Background of a message of the user."""
    added: Style = _UNSTYLED
    """Background of a line that a diff adds."""
    removed: Style = _UNSTYLED
    """Background of a line that a diff removes."""
    added_words: Style = _UNDERLINED
    """The words of an added line that differ from the line in whose place it stands."""
    removed_words: Style = _UNDERLINED
    roles: tuple[tuple[str, Style], ...] = ()
    """The colours of roles by name."""
    base: Style | None = None
    """Style under everything, up to the end of each line. Without it, lines end where their text ends."""
    dark: bool = True
    symbols: Symbols = UNICODE
    spinner: str = ""
    """The signs that follow each other beside what runs. Empty: nothing moves."""
    strong: Style = _BOLD
    emphasis: Style = _ITALIC
    strike: Style = _STRIKE

    def role(self, name: str) -> Style:
        """Return the style of a role's name and of what belongs to it."""
        return dict(self.roles).get(name, self.user)


def theme_from(
    variables: Mapping[str, str], *, dark: bool, symbols: Symbols = UNICODE, roles: Mapping[str, str] = _NO_ROLES
) -> BlockTheme:
    """Return a theme from Textual's CSS variables.

    A colour that is missing, or relative to another one, becomes the foreground. `roles` are the colours of roles by
    name.
    """
    foreground = _colour(variables, "foreground", _FALLBACK_FOREGROUND)
    background = _colour(variables, "background", Color.parse("#121212" if dark else "#e0e0e0"))
    panel = _colour(variables, "panel", background)
    # A colour that the terminal chooses (ANSI) cannot be blended with another one.
    is_ansi = foreground.ansi is not None or background.ansi is not None

    def style(name: str, *, bold: bool = False) -> Style:
        return Style(color=_colour(variables, name, foreground).rich_color, bold=bold or None)

    def background_of(name: str, *, tint: str, share: float) -> Style:
        """Return a background: of the theme, else `share` (0 to 1) of a tint over the background of everything."""
        if is_ansi:
            return Style()
        tinted = background.blend(_colour(variables, tint, foreground), share)
        return Style(bgcolor=_colour(variables, name, tinted).rich_color)

    words = _UNDERLINED if is_ansi else Style(color=foreground.rich_color)
    dim = _colour(variables, "dim", foreground.blend(background, 0.38))
    muted = Style(dim=True) if is_ansi else Style(color=dim.rich_color)
    code = Style() if is_ansi else Style(color=foreground.rich_color, bgcolor=background.blend(panel, 0.7).rich_color)
    return BlockTheme(
        text=Style(color=foreground.rich_color),
        muted=muted,
        user=style("text-primary", bold=True),
        heading=style("text-primary", bold=True),
        link=style("text-primary") + Style(underline=True),
        good=style("text-success"),
        warn=style("text-warning"),
        bad=style("text-error", bold=True),
        code=code,
        inline_code=style("text-accent"),
        user_text=background_of("raised", tint="foreground", share=0.08),
        added=background_of("diff-added", tint="success", share=0.15),
        removed=background_of("diff-removed", tint="error", share=0.15),
        added_words=words + background_of("diff-added-words", tint="success", share=0.35),
        removed_words=words + background_of("diff-removed-words", tint="error", share=0.35),
        dark=dark,
        symbols=symbols,
        roles=tuple((name, Style(color=Color.parse(colour).rich_color, bold=True)) for name, colour in roles.items()),
    )


def theme_of(app: "App[Any]", *, roles: Mapping[str, str] = _NO_ROLES) -> BlockTheme:
    """Return the styles of the theme that the app uses, with the signs that its terminal can show."""
    symbols = symbols_for(getattr(app, "charset", "utf-8"))
    return theme_from(app.theme_variables, dark=app.current_theme.dark, symbols=symbols, roles=roles)


PLAIN = BlockTheme(
    text=Style(),
    muted=Style(dim=True),
    user=Style(bold=True),
    heading=Style(bold=True),
    link=Style(underline=True),
    good=Style(),
    warn=Style(),
    bad=Style(bold=True),
    code=Style(),
    inline_code=Style(),
)
"""A theme without colours."""


def _colour(variables: Mapping[str, str], name: str, fallback: Color) -> Color:
    """Return the colour of a CSS variable; `fallback` if it is missing, or relative to another colour."""
    try:
        return Color.parse(variables.get(name, ""))
    except ColorParseError:
        return fallback


class WithoutColours(LineFilter):
    """Removes colours from drawn text. Keeps bold, dim, underline and reverse."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the same text without colours. `background` is the colour around it."""
        around = round(background.brightness, 2)
        return [
            Segment(text, None if style is None else _without_colours(style, around), control)
            for text, style, control in segments
        ]


@lru_cache(1024)
def _without_colours(style: Style, around: float) -> Style:
    """Return the style without colours. A background that stands out from the brightness `around` it is reversed."""
    reverse = bool(style.reverse)
    if style.bgcolor is not None and not style.bgcolor.is_default:
        stands_out = abs(Color.from_rich_color(style.bgcolor).brightness - around) >= _MIN_DIFFERENCE
        reverse = reverse != stands_out
    return Style(
        bold=style.bold,
        dim=style.dim,
        italic=style.italic,
        underline=style.underline,
        strike=style.strike,
        reverse=reverse or None,
        meta=style.meta or None,
    )

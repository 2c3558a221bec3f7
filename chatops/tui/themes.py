"""Themes: those of chatops, the user's own, the choice of one (`Themes`), and the colours of roles in it.

The user's own themes are `themes/NAME.yaml` in the config folder, with the fields of Textual's `Theme`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

from chatops.domain.errors import ConfigError

if TYPE_CHECKING:
    from textual.app import App

AUTO = "auto"
"""The choice of `DARK` or `LIGHT` by the terminal's background."""
_MIN_CONTRAST = 4.5
"""Minimum contrast ratio of coloured text (WCAG 2.2, 1.4.3)."""

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
        "diff-added": "#dcf2e0",
        "diff-removed": "#fbdfe3",
        "diff-added-words": "#bfe8c8",
        "diff-removed-words": "#f9cfd6",
        "warning-muted": "#f6ead0",
        "error-muted": "#fbe3e6",
    },
)
_THEME_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Pattern of a theme's name: no such name leads out of the folder."""
_VARIABLE_NAME = r"[a-z][a-z0-9-]{0,63}"
_SHARE = r" (?:100|\d\d?)%$"
_STYLES = frozenset({"none", "bold", "dim", "italic", "underline", "reverse", "strike"})
_MAX_USER_THEMES = 200
"""Maximum number of the user's themes listed."""
_COLOURS = (
    "primary",
    "secondary",
    "warning",
    "error",
    "success",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "boost",
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
_BACKGROUND_ANSWER = re.compile(r"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")


class Themes:
    """The choice of a theme, which may be `AUTO`, and the colours of roles in it."""

    def __init__(
        self,
        app: "App[Any]",
        *,
        environ: Mapping[str, str],
        colours: bool,
        sixteen: bool = False,
        folder: Path | None = None,
    ) -> None:
        """Register our themes. COLORFGBG of `environ` counts until the terminal answers; without it, AUTO is dark.

        Without `colours`, roles have none either; `sixteen` says that the terminal has no more. `folder` holds the
        user's own themes.
        """
        self._folder = folder
        self._sixteen = sixteen
        for theme in (DARK, LIGHT):
            app.register_theme(_in_sixteen(theme) if self._sixteen else theme)
        self._app = app
        # The last number of COLORFGBG is the background's: 7 and 15 are white.
        self._dark = environ.get("COLORFGBG", "").rpartition(";")[2] not in ("7", "15")
        """True if the terminal's background is dark, as far as it is known."""
        self.colours = colours
        self._role_choices: tuple[tuple[str, str], ...] = ()
        self._cached_role_colours: tuple[object, Mapping[str, str]] = (None, {})
        """The last result of `role_colours`, after the theme and the choices that it depends on."""
        self.choice = AUTO
        """The name that the user has chosen."""

    @property
    def many_colours(self) -> bool:
        """True if the terminal has more than sixteen colours."""
        return self.colours and not self._sixteen

    @property
    def names(self) -> tuple[str, ...]:
        """The themes that the user can choose: ours, the user's own, those of Textual."""
        ours = (AUTO, DARK.name, LIGHT.name)
        own = tuple(name for name in self._own_names() if name not in ours)
        return (*ours, *own, *sorted(self._app.available_themes.keys() - {*ours, *own}))

    def _own_names(self) -> tuple[str, ...]:
        return user_theme_names(self._folder) if self._folder is not None else ()

    def use(self, name: str) -> None:
        """Use a theme by name, or with AUTO the one of ours that fits the terminal. Raises ConfigError."""
        self._show(name)
        self.choice = name

    def preview(self, name: str) -> str:
        """Show a theme that is not chosen yet. Return the reason if that is not possible."""
        try:
            self._show(name)
        except ConfigError as error:
            return str(error)
        return ""

    def _show(self, name: str) -> None:
        if self._folder is not None and name not in (AUTO, DARK.name, LIGHT.name) and name in self._own_names():
            self._app.register_theme(read_user_theme(self._folder, name))
        self._app.theme = name if name != AUTO else DARK.name if self._dark else LIGHT.name

    def background_reported(self, answer: str) -> None:
        """Take the terminal's answer on the colour of its background into account."""
        dark = _is_dark_answer(answer)
        if dark is not None and dark != self._dark:
            self._dark = dark
            if self.choice == AUTO:
                self.use(AUTO)

    def name_roles(self, roles: Sequence[tuple[str, str]]) -> None:
        """Set the roles, with the colours that the registries give them; see `role_colours`."""
        self._role_choices = tuple(roles)

    @property
    def role_colours(self) -> Mapping[str, str]:
        """A colour for each role, readable in the theme in use."""
        known = (self._app.theme, self._role_choices)
        if self._cached_role_colours[0] != known:
            background = self._app.theme_variables.get("background", "")
            roles = self._role_choices if self.colours else ()
            dark = self._app.current_theme.dark
            colours = role_colours(roles, dark=dark, background=background, sixteen=self._sixteen)
            self._cached_role_colours = (known, colours)
        return self._cached_role_colours[1]


def _is_dark_answer(answer: str) -> bool | None:
    """Return True if a terminal's answer to OSC 11 names a dark background; None if it is no such answer."""
    found = _BACKGROUND_ANSWER.match(answer)
    if found is None:
        return None
    red, green, blue = (int(part, 16) / float(16 ** len(part) - 1) for part in found.groups())
    return bool(0.299 * red + 0.587 * green + 0.114 * blue < 0.5)


def _in_sixteen(theme: Theme) -> Theme:
    """Return one of our themes in colours that a terminal with sixteen has."""
    names = ("primary", "secondary", "accent", "warning", "error", "success")
    colours = {name: SIXTEEN[name][0 if theme.dark else 1] for name in names}
    texts = {f"text-{name}": colour for name, colour in colours.items()}
    return replace(theme, variables={**theme.variables, **texts}, **colours)  # type: ignore[arg-type]


def role_colours(
    roles: Sequence[tuple[str, str]], *, dark: bool, background: str, sixteen: bool = False
) -> dict[str, str]:
    """Return a colour for each role, readable on `background`.

    `roles` are names with the colour that the registry gives them: a name of `PALETTE`, ``#rrggbb``, or nothing. A role
    without one gets its usual colour, else one that no other role has.
    """
    wanted = {name: colour or _DEFAULT_ROLE_COLOURS.get(name, "") for name, colour in roles}
    free = [name for name in PALETTE if name not in wanted.values()] or list(PALETTE)
    found: dict[str, str] = {}
    for name, colour in wanted.items():
        if not colour:
            colour = free[0]
            free.append(free.pop(0))
        if sixteen and colour in PALETTE:
            found[name] = SIXTEEN[colour][0 if dark else 1]
            continue
        shades = PALETTE.get(colour)
        found[name] = _with_contrast(shades[0 if dark else 1] if shades is not None else colour, background=background)
    return found


def _with_contrast(colour: str, *, background: str) -> str:
    """Return the colour, moved towards black or white until its contrast with the background is enough."""
    try:
        wanted, under = Color.parse(colour), Color.parse(background)
    except ColorParseError:
        return colour
    if wanted.ansi is not None or under.ansi is not None:
        return colour
    away = under.get_contrast_text(1.0)
    for step in range(11):
        shade = wanted.blend(away, step / 10)
        if contrast(shade, under) >= _MIN_CONTRAST:
            return shade.hex
    return away.hex


def contrast(first: Color, second: Color) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Color) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in colour.rgb)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def user_theme_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the themes in the folder; none if it cannot be read."""
    try:
        names = sorted(file.stem for file in folder.glob("*.yaml"))
    except OSError:
        return ()
    return tuple(name for name in names if re.fullmatch(_THEME_NAME, name))[:_MAX_USER_THEMES]


def read_user_theme(folder: Path, name: str) -> Theme:
    """Read the theme of that name. Raises ConfigError, which names file and field."""
    if not re.fullmatch(_THEME_NAME, name):
        raise ConfigError(f"{name!r} cannot be the name of a theme. Use letters, digits, - and _.")
    from chatops.config.settings import read_members  # what reads YAML is not needed for themes of ours

    file = folder / f"{name}.yaml"
    try:
        return _theme_from(name, read_members(file))
    except ConfigError as error:
        problem = str(error)
    raise ConfigError(problem if problem.startswith(file.name) else f"{file.name}: {problem}")


def _theme_from(name: str, members: Mapping[str, object]) -> Theme:
    known = [field.name for field in fields(Theme)]
    for key in members:
        if key not in known:
            raise ConfigError(f"a theme has no field {key}. The fields are {', '.join(known[1:])}.")
    if members.get("name", name) != name:
        raise ConfigError("the name has to be that of the file. Leave it out.")
    if "primary" not in members:
        raise ConfigError('primary is missing, such as primary: "#7aa2f7".')
    variables = members.get("variables", {})
    if not isinstance(variables, dict):
        raise ConfigError('variables has to map names to colours, such as dim: "#949eae".')
    return Theme(
        name=name,
        **{key: _colour(key, members[key]) for key in _COLOURS if key in members},
        dark=_boolean("dark", members, default=True),
        ansi=_boolean("ansi", members, default=False),
        luminosity_spread=_fraction("luminosity_spread", members, default=0.15),
        text_alpha=_fraction("text_alpha", members, default=0.95),
        variables={str(key): _variable(str(key), value) for key, value in variables.items()},
    )


def _variable(key: str, value: object) -> str:
    """Return the value of a CSS variable. A value that the app's styles cannot use would end the app."""
    if not re.fullmatch(_VARIABLE_NAME, key):
        raise ConfigError(f"variables: {key!r} is not a valid name. Use small letters, digits and -.")
    if key.endswith("-style") and isinstance(value, str) and value and _STYLES.issuperset(value.split()):
        return value
    name, _, share = value.rpartition(" ") if isinstance(value, str) and re.search(_SHARE, value) else (value, "", "")
    _colour(f"variables: {key}", name)
    return f"{name} {share}".rstrip()


def _colour(key: str, value: object) -> str:
    try:
        Color.parse(value if isinstance(value, str) else "")
    except ColorParseError:
        raise ConfigError(f'{key} has to be a colour in quotes, such as "#7aa2f7", not {value!r}.') from None
    return str(value)


def _boolean(key: str, members: Mapping[str, object], *, default: bool) -> bool:
    value = members.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{key} has to be true or false, not {value!r}.")
    return value


def _fraction(key: str, members: Mapping[str, object], *, default: float) -> float:
    value = members.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"{key} has to be a number from 0 to 1, not {value!r}.")
    return float(value)

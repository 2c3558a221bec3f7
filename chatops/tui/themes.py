"""The choice of a theme (`Themes`): one of ours (`colours`), of the user's or of Textual's.

The user's own themes are ``themes/NAME.yaml`` in the config folder, with the fields of Textual's `Theme`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

from chatops.config.settings import read_members
from chatops.domain.errors import ConfigError
from chatops.tui.colours import DARK, LIGHT, in_sixteen, role_colours

if TYPE_CHECKING:
    from textual.app import App

AUTO = "auto"
"""The choice of `DARK` or `LIGHT` by the terminal's background."""
_BACKGROUND_ANSWER = re.compile(r"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
"""The answer of a terminal that is asked for its background (OSC 11): red, green and blue, each of 1 to 4 digits."""
_MIDDLE = 0.5
"""The brightness below which a background counts as dark."""
_THEME_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Pattern of a theme's name. Its file lies in the folder of themes, because the name has no slash and no dot."""
_VARIABLE_NAME = r"[a-z][a-z0-9-]{0,63}"
_SHARE = r" (?:100|\d\d?)%$"
"""The end of a colour that is mixed with what is behind it, such as ``$primary 50%``."""
_STYLES = frozenset({"none", "bold", "dim", "italic", "underline", "reverse", "strike"})
"""Words that the value of a variable may have whose name ends in ``-style``."""
_MAX_LISTED = 200
"""Maximum number of themes listed. More would slow every key in the list of themes."""
_COLOUR_FIELDS = (
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
        """Register our themes.

        COLORFGBG of `environ` tells the background until the terminal answers. Without it, the background counts as
        dark. `colours` is False for a terminal without any, on which roles have none either. `sixteen` is True for a
        terminal with sixteen colours. `folder` holds the user's own themes.
        """
        self._folder = folder
        self._sixteen = sixteen
        for theme in (DARK, LIGHT):
            app.register_theme(in_sixteen(theme) if self._sixteen else theme)
        self._app = app
        # The last number of COLORFGBG is the background's: 7 and 15 are white.
        _, _, background = environ.get("COLORFGBG", "").rpartition(";")
        self._dark = background not in ("7", "15")
        """True if the terminal's background is dark, as far as it is known."""
        self.colours = colours
        """False for a terminal without colours."""
        self._role_choices: tuple[tuple[str, str], ...] = ()
        """The roles, each with the colour that the registries give it; empty if none."""
        self._role_colours: Mapping[str, str] = {}
        """The last result of `role_colours`."""
        self._role_colours_from: object = None
        """The values that `_role_colours` was made from."""
        self.choice = AUTO
        """The name that the user has chosen."""

    @property
    def many_colours(self) -> bool:
        """True if the terminal has more than sixteen colours."""
        return self.colours and not self._sixteen

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the user can choose: AUTO, our themes, the user's own, those of Textual."""
        ours = (AUTO, DARK.name, LIGHT.name)
        users = tuple(name for name in self._user_names() if name not in ours)
        return (*ours, *users, *sorted(self._app.available_themes.keys() - {*ours, *users}))

    def _user_names(self) -> tuple[str, ...]:
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
        is_ours = name in (AUTO, DARK.name, LIGHT.name)
        if self._folder is not None and not is_ours and name in self._user_names():
            self._app.register_theme(read_user_theme(self._folder, name))
        if name == AUTO:
            name = DARK.name if self._dark else LIGHT.name
        self._app.theme = name

    def background_reported(self, answer: str) -> None:
        """Take the terminal's answer on the colour of its background into account."""
        brightness = _answered_brightness(answer)
        if brightness is not None and (brightness < _MIDDLE) != self._dark:
            self._dark = not self._dark
            if self.choice == AUTO:
                self.use(AUTO)

    def name_roles(self, roles: Sequence[tuple[str, str]]) -> None:
        """Set the roles, with the colours that the registries give them; see `role_colours`."""
        self._role_choices = tuple(roles)

    @property
    def role_colours(self) -> Mapping[str, str]:
        """A colour for each role, readable in the theme in use."""
        made_from = (self._app.theme, self._role_choices)
        if self._role_colours_from != made_from:
            self._role_colours = role_colours(
                self._role_choices if self.colours else (),
                dark=self._app.current_theme.dark,
                background=self._app.theme_variables.get("background", ""),
                sixteen=self._sixteen,
            )
            self._role_colours_from = made_from
        return self._role_colours


def _answered_brightness(answer: str) -> float | None:
    """Return how bright the background is, from 0 to 1, by an answer to OSC 11; None if it is no such answer."""
    match = _BACKGROUND_ANSWER.match(answer)
    if match is None:
        return None
    red, green, blue = (int(digits, 16) / float(16 ** len(digits) - 1) for digits in match.groups())
    # The brightness that eyes see in each of them (luma of ITU-R BT.601).
    return 0.299 * red + 0.587 * green + 0.114 * blue


def user_theme_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the themes in the folder; none if it cannot be read."""
    try:
        names = sorted(file.stem for file in folder.glob("*.yaml"))
    except OSError:
        return ()
    return tuple(name for name in names if re.fullmatch(_THEME_NAME, name))[:_MAX_LISTED]


def read_user_theme(folder: Path, name: str) -> Theme:
    """Read the theme of that name. Raises ConfigError, which names file and field."""
    if not re.fullmatch(_THEME_NAME, name):
        raise ConfigError(f"{name!r} cannot be the name of a theme. Use letters, digits, - and _.")
    file = folder / f"{name}.yaml"
    try:
        return _theme_from(name, read_members(file))
    except ConfigError as error:
        problem = str(error)
    raise ConfigError(problem if problem.startswith(file.name) else f"{file.name}: {problem}")


def _theme_from(name: str, members: Mapping[str, object]) -> Theme:
    """Return the theme with the fields `members`, as the file has them. Raises ConfigError."""
    name_field, *other_fields = (field.name for field in fields(Theme))
    for key in members:
        if key not in (name_field, *other_fields):
            raise ConfigError(f"a theme has no field {key}. The fields are {', '.join(other_fields)}.")
    if members.get("name", name) != name:
        raise ConfigError("the name has to be that of the file. Leave it out.")
    if "primary" not in members:
        raise ConfigError('primary is missing, such as primary: "#7aa2f7".')
    variables = members.get("variables", {})
    if not isinstance(variables, dict):
        raise ConfigError('variables has to map names to colours, such as dim: "#949eae".')
    return Theme(
        name=name,
        **{key: _check_colour(key, members[key]) for key in _COLOUR_FIELDS if key in members},
        dark=_boolean("dark", members, default=True),
        ansi=_boolean("ansi", members, default=False),
        luminosity_spread=_fraction("luminosity_spread", members, default=0.15),
        text_alpha=_fraction("text_alpha", members, default=0.95),
        variables={str(key): _check_variable(str(key), value) for key, value in variables.items()},
    )


def _check_variable(key: str, value: object) -> str:
    """Return the value of a CSS variable: a colour, maybe with a share, or some words for a style.

    Raises ConfigError if the app's styles cannot use it, because that would end the app.
    """
    if not re.fullmatch(_VARIABLE_NAME, key):
        raise ConfigError(f"variables: {key!r} is not a valid name. Use small letters, digits and -.")
    if key.endswith("-style") and isinstance(value, str) and value and _STYLES.issuperset(value.split()):
        return value
    colour, _, share = value.rpartition(" ") if isinstance(value, str) and re.search(_SHARE, value) else (value, "", "")
    return f"{_check_colour(f'variables: {key}', colour)} {share}".rstrip()


def _check_colour(key: str, value: object) -> str:
    """Return the value of the field `key`. Raises ConfigError if it is no colour."""
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

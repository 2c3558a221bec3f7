"""The user's own themes: ``themes/NAME.yaml`` in the config folder, with the fields of Textual's `Theme`."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from textual.color import Color, ColorParseError
from textual.theme import Theme

from chatops.domain.errors import ConfigError

_THEME_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Pattern of a theme's name: no such name leads out of the folder."""
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
    from chatops.config.settings import read_members  # what reads YAML is not needed for themes of ours

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
    """Return the value of a CSS variable. Raises ConfigError if the app's styles cannot use it: that would end the app.

    It is a colour, maybe with a share, or some words for a style.
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

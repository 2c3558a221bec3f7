"""The user's own themes: `themes/NAME.yaml` in the config folder, with the fields of Textual's `Theme`."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from textual.color import Color, ColorParseError
from textual.theme import Theme

from chatops.config.settings import read_members
from chatops.domain.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Names of themes. None of them leads out of the folder."""
_VARIABLE = re.compile(r"[a-z][a-z0-9-]{0,63}")
_PERCENT = re.compile(r" (?:100|\d\d?)%$")
_STYLES = frozenset({"none", "bold", "dim", "italic", "underline", "reverse", "strike"})
_MOST = 200
"""Maximum number of themes listed."""
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


def user_theme_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the themes in the folder; none if it cannot be read."""
    try:
        names = sorted(file.stem for file in folder.glob("*.yaml"))
    except OSError:
        return ()
    return tuple(name for name in names if _NAME.fullmatch(name))[:_MOST]


def read_user_theme(folder: Path, name: str) -> Theme:
    """Read the theme of that name. Raises ConfigError, which names file and field."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of a theme. Use letters, digits, - and _.")
    file = folder / f"{name}.yaml"
    try:
        return _theme(name, read_members(file))
    except ConfigError as error:
        problem = str(error)
    raise ConfigError(problem if problem.startswith(file.name) else f"{file.name}: {problem}")


def _theme(name: str, members: Mapping[str, object]) -> Theme:
    known = [one.name for one in fields(Theme)]
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
        luminosity_spread=_share("luminosity_spread", members, default=0.15),
        text_alpha=_share("text_alpha", members, default=0.95),
        variables={str(key): _variable(str(key), value) for key, value in variables.items()},
    )


def _variable(key: str, value: object) -> str:
    """Return the value of a CSS variable. A value that the app's styles cannot use would end the app."""
    if not _VARIABLE.fullmatch(key):
        raise ConfigError(f"variables: {key!r} is not a valid name. Use small letters, digits and -.")
    if key.endswith("-style") and isinstance(value, str) and value and _STYLES.issuperset(value.split()):
        return value
    name, _, share = value.rpartition(" ") if isinstance(value, str) and _PERCENT.search(value) else (value, "", "")
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


def _share(key: str, members: Mapping[str, object], *, default: float) -> float:
    value = members.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"{key} has to be a number from 0 to 1, not {value!r}.")
    return float(value)

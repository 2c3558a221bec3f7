"""`settings.yaml` in the config folder: the user's display settings.

No setting decides rights, so the file is read leniently: a value that cannot be used is reported and ignored, and
unknown keys are kept. A change rewrites one line, so that comments and order stay.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from chatops.config.paths import write_private
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass

_MAX_BYTES = 1024 * 1024
"""Maximum number of bytes of the file that are read."""
_THEME_LINE = r"(?m)^theme[ \t]*:[^\r\n]*"
_PLAIN_NAME = r"(?!(?:true|false|null|yes|off)$)[a-z][a-z0-9-]{2,}"
"""Names that need no quotes in YAML."""


@frozen_dataclass
class UserSettings:
    """The settings, as far as the file is usable."""

    theme: str = ""
    """Name of the theme; empty for the default."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The keys that the user chose, by the id of what they do."""
    favourite_roles: tuple[str, ...] = ()
    """The roles that shift+Tab goes through; empty for all roles."""
    notifications: bool = True
    """False to write no notification, bell or window title while the terminal is not focused."""
    turn_cost: bool = False
    """True to show tokens and cost after each turn."""
    reduced_motion: bool = False
    """True to show only the seconds of what runs, in words: no sign moves, no bar grows. Notices stay until a key."""
    problem: str = ""
    """Reasons why parts of the file are not used, a sentence or two each; empty if all is used."""


def load_settings(path: Path) -> UserSettings:
    """Read the settings. Never raises; without a file they are the defaults."""
    try:
        members = read_members(path)
    except ConfigError as error:
        return UserSettings(problem=f"{error} It is not used.")
    problems: list[str] = []
    theme = members.get("theme", "")
    if not isinstance(theme, str):
        theme = ""
        problems.append("the theme has to be a name. It is not used.")
    keys = _keys_by_id(members.get("keys") or {})
    if keys is None:
        problems.append("keys has to map ids to keys, such as role: ctrl+e. The default keys are used.")
    roles = members.get("favourite_roles") or []
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        roles = []
        problems.append("favourite_roles has to be a list of names. It is not used.")
    flags = {}
    # A user who has written such a key has most likely meant the quiet choice: a value that is no bool counts as that.
    for name, subject, default, quiet in (
        ("notifications", "They are", True, False),
        ("turn_cost", "It is", False, False),
        ("reduced_motion", "It is", False, True),
    ):
        flag = members.get(name, default)
        if not isinstance(flag, bool):
            flag = quiet
            problems.append(f"{name} has to be true or false. {subject} {'on' if quiet else 'off'}.")
        flags[name] = flag
    return UserSettings(
        theme=theme,
        keys=keys or {},
        favourite_roles=tuple(map(str, roles)),
        **flags,
        problem=" ".join(f"{path.name}: {problem}" for problem in problems),
    )


def _keys_by_id(value: object) -> dict[str, tuple[str, ...]] | None:
    """Return the keys by id, from texts with commas or lists; None if the value is of another form."""
    if not isinstance(value, dict):
        return None
    by_id = {}
    for id, keys in value.items():
        listed = keys.split(",") if isinstance(keys, str) else keys
        if not isinstance(id, str) or not isinstance(listed, list) or not all(isinstance(key, str) for key in listed):
            return None
        by_id[id] = tuple(key.strip() for key in listed)
    return by_id


def store_theme(path: Path, name: str) -> None:
    """Write the theme into the file and leave everything else as it is. Raises ConfigError."""
    try:
        text = _read_text(path)
        members = _parse_members(path, text)
        line = f"theme: {name if re.fullmatch(_PLAIN_NAME, name) else json.dumps(name)}"
        if "theme" in members:
            changed = re.sub(_THEME_LINE, lambda _: line, text, count=1)
        else:
            changed = f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"
        # A value of several lines, or a key in quotes, is not what the line says.
        if _parse_members(path, changed) != {**members, "theme": name}:
            raise ConfigError(f"{path.name} is written in a way that cannot be changed line by line.")
        write_private(path, changed.encode())
    except ConfigError as error:
        advice = error.advice or f"Write it there yourself: theme: {json.dumps(name)}"
        raise ConfigError(f"The theme holds until chatops ends. {error}", advice=advice) from None


def read_members(path: Path) -> dict[str, object]:
    """Return the keys of a YAML file with their values; none if there is no file. Raises ConfigError."""
    return _parse_members(path, _read_text(path))


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read: {error.strerror or error}.") from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path.name} is larger than {_MAX_BYTES} bytes.")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path.name} is not UTF-8 text.") from None


def _parse_members(path: Path, text: str) -> dict[str, object]:
    if all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines()):
        return {}
    # Import the YAML parser only if there is something to parse: this runs before the first paint.
    from chatops.config.document import MalformedFileError
    from chatops.config.yaml_document import parse_yaml

    try:
        value = parse_yaml(text.removeprefix("\ufeff")).value
    except MalformedFileError as error:
        line, _ = error.place
        raise ConfigError(f"{path.name}, line {line}: {error.why}.") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path.name}, line 1: expected keys with values, such as NAME: VALUE.")
    return dict(value)

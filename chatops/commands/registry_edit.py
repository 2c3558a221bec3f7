"""Change the user's registry file: only the part that a command is about, checked before it replaces anything."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from chatops.config.document import Json, parse
from chatops.config.paths import Paths, packaged_registry, write_private
from chatops.config.registry import Loaded
from chatops.config.registry_read import read_registry
from chatops.domain.errors import ConfigError
from chatops.policy.registry import Registry

BOM = "\ufeff"
"""Some editors begin a file with it."""


def file_to_edit(loaded: Loaded, paths: Paths) -> Path:
    """Return the file in force if the user named or has one, else the user's own."""
    return paths.registry if loaded.path == packaged_registry() else loaded.path


def line_for_role(tools: Sequence[str], *, registry: Registry, target: Path) -> str:
    """Return the line for the registry at `target` that gives the default role `tools`, or say that it has them."""
    role = registry.role(registry.default_role)
    if role is None or role.tools is None:
        return f"Role {registry.default_role} lists no tools, so it gets them all." if role else ""
    if set(tools) <= set(role.tools):
        return f"Role {role.name} lists {', '.join(tools)}."
    line = json.dumps([*role.tools, *(tool for tool in tools if tool not in role.tools)])
    first = "" if target.exists() else f"copy {packaged_registry()} to {target}, and "
    return f'For role {role.name}: {first}write in {target}, "roles", "{role.name}": "tools": {line}'


def check_edit(target: Path, edit: Callable[[str, dict[str, Json]], str]) -> None:
    """Raise ConfigError if `edit_registry` would."""
    _edited(target, edit)


def edit_registry(target: Path, edit: Callable[[str, dict[str, Json]], str]) -> None:
    """Write what `edit` makes of the text of the registry at `target`, which it gets with its value.

    A missing file starts as a copy of the packaged one. Raises ConfigError, also for a result that cannot be read.
    """
    write_private(target.resolve(), _edited(target, edit))


def _edited(target: Path, edit: Callable[[str, dict[str, Json]], str]) -> bytes:
    source = target if target.exists() else packaged_registry()
    try:
        # Not as text: that would make each line end with a line feed.
        written = source.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source} cannot be read: {error}.", advice="chatops registry check says more.") from error
    text = written.removeprefix(BOM)
    read_registry(text.encode(), source=str(source))
    value = parse(text).value
    assert isinstance(value, dict), "read_registry has checked it"
    try:
        data = (written[: -len(text)] + edit(text, value)).encode()
    except UnicodeEncodeError as error:
        raise ConfigError("A name is not valid UTF-8.", advice="Nothing was written.") from error
    read_registry(data, source=str(target))
    return data

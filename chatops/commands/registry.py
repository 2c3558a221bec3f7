"""``chatops registry``: check a registry file, print its JSON Schema, and migrate one of an older version.

Other commands change the user's file from here: only the part that they are about, checked before it replaces anything.
"""

import json
import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from chatops.config.document import Json, parse
from chatops.config.paths import SITE_REGISTRY, Paths, find_paths, packaged_registry, write_new_private, write_private
from chatops.config.registry import Loaded, load_registry
from chatops.config.registry_read import ALWAYS_THERE, MAX_BYTES, json_schema, read_registry
from chatops.domain.errors import ConfigError
from chatops.domain.wording import plural
from chatops.headless.screen import screen
from chatops.policy.registry import Registry
from chatops.wiring.checks import unusable_models, warnings_about
from chatops.wiring.stored import workspace_of

BOM = "\ufeff"
"""Some editors begin a file with it."""


def run(arguments: Namespace) -> int:
    """Run the action.

    ``check`` and ``migrate``: 0 if the file can be used (warnings are printed), 2 if not. ``schema``: always 0.
    """
    if arguments.action == "schema":
        screen().line(json.dumps(json_schema(), indent=2))
        return 0
    if arguments.action == "migrate":
        return _migrate(Path(arguments.path).expanduser(), arguments.output)
    path = _path_to_check(arguments)
    try:
        registry = read_registry(_read_file(path), source=str(path), site=path == SITE_REGISTRY)
    except ConfigError as error:
        if arguments.output_format == "json":
            screen().json({"path": str(path), "ok": False, "error": str(error), "advice": error.advice})
            return 2
        raise
    found_here = warnings_about(registry, file=path, paths=find_paths(os.environ), environ=os.environ)
    warnings = (*(warning.text for warning in registry.warnings), *found_here)
    _print_registry(registry, warnings, path, arguments.output_format)
    return 0


def _migrate(path: Path, output: str | None) -> int:
    """Print the file as version 3, or write it to `output`. What the user has to know goes to stderr."""
    from chatops.config.migrate import migrate

    view = screen()
    done = migrate(_read_file(path), source=str(path))
    if output is None:
        view.answer(done.text)
    else:
        target = Path(output).expanduser()
        write_new_private(target, done.text.encode())
        view.say(f"Written to {target}.")
    for note in done.notes:
        view.say(note)
    return 0


def _path_to_check(arguments: Namespace) -> Path:
    """Return the named file, or the one that would be in force."""
    if arguments.path is not None:
        return Path(arguments.path).expanduser()
    named = getattr(arguments, "registry", None)
    workspace_of(None)  # Raises for a current folder that is gone.
    return load_registry(path=Path(named) if named else None, paths=find_paths(os.environ), env=os.environ).path


def _read_file(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is not a plain file.", advice="Name a registry file.")
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", advice="Name a registry file.") from error


def _print_registry(registry: Registry, warnings: tuple[str, ...], path: Path, output: str) -> None:
    view, unusable = screen(), unusable_models(registry)
    if output == "json":
        view.json({"path": str(path), "ok": True, "warnings": list(warnings), "unusable_models": list(unusable)})
        return
    for warning in warnings:
        view.answer(f"warning: {warning}")
    counts = (plural(len(registry.models), "model"), plural(len(registry.roles), "role"))
    cannot_answer = f"It is valid, but these models cannot answer: {', '.join(unusable)}."
    usable = cannot_answer if unusable else "It can be used."
    view.answer(f"{path}: {', '.join((*counts, plural(len(warnings), 'warning')))}. {usable}")
    built_in = [name for name in ALWAYS_THERE if registry.model(name) is None]
    if built_in:
        view.say(f"Models beside those of the file: {', '.join(built_in)} (built in).")


def file_to_edit(loaded: Loaded, paths: Paths) -> Path:
    """Return the file in force if the user named or has one, else the user's own."""
    return paths.registry if loaded.path == packaged_registry() else loaded.path


def line_for_role(tools: Sequence[str], *, registry: Registry, target: Path) -> str:
    """Return a sentence: what to write in the registry at `target` so that the default role has `tools`."""
    role = registry.role(registry.default_role)
    if role is None:
        return ""
    if role.tools is None:
        return f"Role {role.name} lists no tools, so it gets them all."
    if set(tools) <= set(role.tools):
        return f"Role {role.name} lists {', '.join(tools)}."
    line = json.dumps([*role.tools, *(tool for tool in tools if tool not in role.tools)])
    first = "" if target.exists() else f"copy {packaged_registry()} to {target}, and "
    return f'For role {role.name}: {first}write in {target}, "roles", "{role.name}": "tools": {line}'


def edit_registry(target: Path, edit: Callable[[str, dict[str, Json]], str]) -> None:
    """Write what `edit` makes of the text of the registry at `target`, which it gets with its value.

    A missing file starts as a copy of the packaged one. Raises ConfigError, also for a result that cannot be read.
    """
    write_private(target.resolve(), edited_registry(target, edit))


def edited_registry(target: Path, edit: Callable[[str, dict[str, Json]], str]) -> bytes:
    """Return what `edit_registry` would write, once it is read as a check. Raises ConfigError."""
    source = target if target.exists() else packaged_registry()
    try:
        # Not as text: that would make each line end with a line feed.
        written = source.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source} cannot be read: {error}.", advice="chatops registry check says more.") from error
    text = written.removeprefix(BOM)
    mark = written[: len(written) - len(text)]
    read_registry(text.encode(), source=str(source))
    value = parse(text).value
    assert isinstance(value, dict), "read_registry has checked it"
    try:
        data = (mark + edit(text, value)).encode()
    except UnicodeEncodeError as error:
        raise ConfigError("A name is not valid UTF-8.", advice="Nothing was written.") from error
    read_registry(data, source=str(target))
    return data

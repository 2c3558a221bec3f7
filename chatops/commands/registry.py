"""``chatops registry``: check a registry file, print its JSON Schema, and migrate one of an older version."""

import json
import os
from argparse import Namespace
from pathlib import Path

from chatops.commands.context import screen
from chatops.config.paths import SITE_REGISTRY, find_paths, write_new_private
from chatops.config.registry import load_registry
from chatops.config.registry_read import ALWAYS_THERE, MAX_BYTES, json_schema, read_registry
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError
from chatops.domain.wording import plural
from chatops.policy.registry import Registry
from chatops.wiring.checks import concerns_of, unusable_models
from chatops.wiring.options import workspace_of


def run(arguments: Namespace) -> int:
    """Run the action.

    ``check`` and ``migrate``: 0 if the file can be used (warnings are printed), 2 if not. ``schema``: always 0.
    """
    if arguments.action == "schema":
        screen().line(json.dumps(json_schema(), indent=2))
        return 0
    if arguments.action == "migrate":
        return _migrate(Path(arguments.path).expanduser(), arguments.output)
    path = _path(arguments)
    try:
        registry = read_registry(_read(path), source=str(path), site=path == SITE_REGISTRY)
    except ConfigError as error:
        if arguments.output_format == "json":
            screen().json({"path": str(path), "ok": False, "error": str(error), "advice": error.advice})
            return 2
        raise
    concerns = concerns_of(registry, file=path, paths=find_paths(os.environ), environ=os.environ)
    _print(registry, (*(warning.text for warning in registry.warnings), *concerns), path, arguments.output_format)
    return 0


def _migrate(path: Path, output: str | None) -> int:
    """Print the file as version 3, or write it to `output`. What the user has to know goes to stderr."""
    from chatops.config.migrate import migrate

    view = screen()
    done = migrate(_read(path), source=str(path))
    if output is None:
        view.answer(done.text)
    else:
        target = Path(output).expanduser()
        write_new_private(target, done.text.encode())
        view.say(f"Written to {target}.")
    for note in done.notes:
        view.say(note)
    return 0


def _path(arguments: Namespace) -> Path:
    """Return the named file, or the one that would be in force."""
    if arguments.path is not None:
        return Path(arguments.path).expanduser()
    named = getattr(arguments, "registry", None)
    workspace_of(None)
    return load_registry(path=Path(named) if named else None, paths=find_paths(os.environ), env=os.environ).path


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is not a plain file.", advice="Name a registry file.")
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", advice="Name a registry file.") from error


def _print(registry: Registry, warnings: tuple[str, ...], path: Path, output: str) -> None:
    view = screen()
    if output == "json":
        found: JsonValue = {
            "path": str(path),
            "ok": True,
            "warnings": list(warnings),
            "unusable_models": list(unusable_models(registry)),
        }
        view.json(found)
        return
    for warning in warnings:
        view.answer(f"warning: {warning}")
    counts = (plural(len(registry.models), "model"), plural(len(registry.roles), "role"))
    unusable = ", ".join(unusable_models(registry))
    usable = f"It is valid, but these models cannot answer: {unusable}." if unusable else "It can be used."
    view.answer(f"{path}: {', '.join((*counts, plural(len(warnings), 'warning')))}. {usable}")
    built_in = [name for name in ALWAYS_THERE if registry.model(name) is None]
    if built_in:
        view.say(f"Models beside those of the file: {', '.join(built_in)} (built in).")

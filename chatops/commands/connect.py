"""``chatops connect URL``: ask an endpoint for its models, add one to the user's registry, make it the default.

A key stays in its environment variable, of which only the name is written, or the user types it when the server asks
for one. Then it is stored in the keyring or in a file of its own. It is sent to that host only.
"""

import asyncio
import os
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from getpass import getpass
from pathlib import Path
from urllib.parse import quote

from chatops.commands.application import with_app
from chatops.commands.registry import edit_registry, file_to_edit
from chatops.config.document import Json, with_value
from chatops.config.paths import Paths, write_private
from chatops.config.registry_read import BUILT_IN_MODELS
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.wording import plural
from chatops.headless.screen import Screen, at_words, screen
from chatops.models.discover import KeyRefusedError, Probe, details, probe
from chatops.models.hosts import host_and_port, split_url
from chatops.models.keys import store_in_keyring
from chatops.models.served import ServedModel
from chatops.policy.registry import HostType
from chatops.toolkit.counting import count_work, shown_by
from chatops.wiring.app import App
from chatops.wiring.rows import unknown_name

MAX_KEY_PROMPTS = 3
"""Prompts for a key, until the command gives up."""
MAX_LISTED = 40
"""Models that the picker lists, about a screen. Any other can be named with --model."""
RESERVED_NAMES = frozenset(BUILT_IN_MODELS)
"""Names that mean a model of chatops's own in every registry."""
CREDENTIAL_KEYS = frozenset({"api_key", "api_key_env", "api_key_file", "api_key_command", "api_key_keyring", "headers"})
"""Keys of an entry that hold or name what only one server may see."""


def run(arguments: Namespace) -> int:
    """Connect to an endpoint. Exit code 0 if a model was stored; nothing is written unless the endpoint answered."""

    async def work(opened: App) -> int:
        view = screen()
        host_type = HostType(arguments.host_type) if arguments.host_type else None
        url, key = require_public_url(arguments.url), _key_from_variable(arguments.key_env)
        endpoint, typed = await _ask_endpoint(url, key, host_type=host_type, view=view)
        key = typed or key
        model = pick_model(endpoint, wanted=arguments.model, view=view)
        entry: dict[str, Json] = {
            "type": "openai",
            "host_type": endpoint.host_type.value,
            "api_url": endpoint.base_url,
            "model_name": model,
        }
        with shown_by(view.show_progress), count_work("asking the server about the model"):
            stated = await details(endpoint, model, key=key)
        entry |= _stated_limits(stated)
        if arguments.key_env:
            entry["api_key_env"] = arguments.key_env
        elif typed:
            place = await asyncio.to_thread(
                store_key, typed, server=host_and_port(endpoint.base_url), paths=opened.paths
            )
            entry |= place
            view.say(f"The key is in {place.get('api_key_file', 'the keyring')}.")
        target = file_to_edit(opened.loaded, opened.paths)
        name = write_model(target, entry, name=arguments.name)
        opened.store.set_setting("default_model", name)
        view.answer(f"{name}: {model} at {endpoint.base_url}")
        lines = [_describe_limits(stated, endpoint.host_type, entry=name)]
        if others := len(endpoint.names) - (model in endpoint.names):
            lines.append(f"The server has {plural(others, 'other model')}: /model in the chat, or --model {name}/NAME.")
        lines.append(f"Written to {target}, and now your default model. Try it: chatops -p 'hello'")
        view.say(at_words("\n".join(lines), view.err))
        return 0

    return with_app(arguments, work)


async def _ask_endpoint(url: str, key: str, *, host_type: HostType | None, view: Screen) -> tuple[Probe, str]:
    """Ask the endpoint for its models. Returns also the key that the user had to type; empty without one.

    On a terminal, the user is asked for a key at most `MAX_KEY_PROMPTS` times, unless one was given.
    """
    prompts_left = 0 if key or not (sys.stdin.isatty() and sys.stderr.isatty()) else MAX_KEY_PROMPTS
    typed = ""
    while True:
        try:
            with shown_by(view.show_progress), count_work("asking the server for its models"):
                return await probe(url, key=typed or key, host_type=host_type), typed
        except KeyRefusedError as refused:
            if not prompts_left:
                raise
            if typed:
                view.say(f"{refused} Try again.")
        prompts_left -= 1
        typed = ask_for_key(url)


def require_public_url(url: str) -> str:
    """Return `url` if it contains no key or password, because a registry is not secret. Raises ConfigError."""
    parts = split_url(url)
    if parts.username or parts.password or parts.query:
        raise ConfigError(
            "The address has a user, password or query in it, which may be a secret.",
            advice="Give the plain address, and the key with --key-env VARIABLE.",
        )
    return url


def _stated_limits(model: ServedModel) -> dict[str, Json]:
    """Return the limits that the server states for a model, as keys of the registry."""
    stated: dict[str, Json] = {"context_window": model.context_window, "max_output_tokens": model.max_output_tokens}
    if model.price is not None:
        stated["price"] = {name: value for name, value in asdict(model.price).items() if value is not None}
    return {name: value for name, value in stated.items() if value is not None}


def _describe_limits(model: ServedModel, host_type: HostType, *, entry: str) -> str:
    """Return one line about the limits that were written to `entry`."""
    window = f"{model.context_window:,} tokens" if model.context_window is not None else "unknown"
    advice = "" if model.context_window is not None else f" (context_window of {entry} in the registry sets it)"
    parts = [f"context window {window}{advice}"]
    if model.max_output_tokens is not None:
        parts.append(f"answers up to {model.max_output_tokens:,} tokens")
    if model.price is not None:
        parts.append(f"{model.price.input:g} in, {model.price.output:g} out per million tokens")
    if host_type is HostType.OLLAMA and model.context_window is not None:
        parts.append("if Ollama runs it with less (num_ctx, OLLAMA_CONTEXT_LENGTH), lower context_window")
    return f"From the server: {'; '.join(parts)}."


def pick_model(found: Probe, *, wanted: str | None, view: Screen) -> str:
    """Return the model to store: the wanted one, the only one, or the one that the user picks.

    Models that do not chat are not offered. One that is named explicitly is taken.
    """
    models = found.names
    if wanted is not None:
        if found.models and wanted not in (listed := [model.name for model in found.models]):
            raise unknown_name("model", wanted, listed)
        return wanted
    if not models:
        kind = "only embedding models" if found.models else "no models"
        raise ChatopsError(f"The endpoint lists {kind}.", advice="Name one yourself: --model ID")
    if len(models) == 1:
        return models[0]
    return _ask_for_model(models, view)


def _ask_for_model(models: Sequence[str], view: Screen) -> str:
    """Return the model that the user picks. Raises ChatopsError if none is picked."""
    listing = [f"{number:>3}  {name}" for number, name in enumerate(models[:MAX_LISTED], start=1)]
    if len(models) > MAX_LISTED:
        listing.append(f"     and {len(models) - MAX_LISTED} more")
    view.say("\n".join(listing))
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(f"The endpoint has {len(models)} models.", advice="Name one of them: --model ID")
    view.say("Which one? Number or name:")
    answer = sys.stdin.readline().strip()
    if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= min(len(models), MAX_LISTED):
        return models[int(answer) - 1]
    if answer in models:
        return answer
    if not answer:
        raise ChatopsError("Nothing was picked, and nothing was written.", advice="Run it again, or use --model ID.")
    raise unknown_name("model", answer, models)


def write_model(target: Path, entry: dict[str, Json], *, name: str | None) -> str:
    """Write `entry` under `models` of the registry at `target`, and return its name there.

    Everything else stays as it is written, comments too. Credentials of an entry stay only if its address does;
    `api_key_env` never does: `entry` has it if it was given again. A missing file starts as a copy of the packaged one.
    The result is checked before it replaces anything.
    """
    chosen = ""

    def edit(text: str, value: dict[str, Json]) -> str:
        nonlocal chosen
        models = value.get("models", {})
        assert isinstance(models, dict), "the registry has been read"
        chosen = name or _entry_name(entry, models)
        if name in RESERVED_NAMES:
            raise ConfigError(
                f"A model cannot be called {name!r}: that is one of chatops.", advice="Choose another --name."
            )
        before = models.get(chosen)
        old = before if isinstance(before, dict) else {}
        if old.get("api_url") != entry["api_url"]:
            dropped = CREDENTIAL_KEYS
        else:
            # An entry names one place of its key.
            dropped = CREDENTIAL_KEYS - {"headers"} if CREDENTIAL_KEYS & entry.keys() else frozenset({"api_key_env"})
        staying = {key: value for key, value in old.items() if key not in dropped}
        return with_value(text, ("models", chosen), {**staying, **entry})

    edit_registry(target, edit)
    return chosen


def _entry_name(entry: dict[str, Json], models: dict[str, Json]) -> str:
    """Return a short name made from the model's. The same model at the same address keeps the name it has."""
    for name, other in models.items():
        if isinstance(other, dict) and all(other.get(key) == entry[key] for key in ("api_url", "model_name")):
            return name
    tail = str(entry["model_name"]).rpartition("/")[2].lower()
    base = re.sub(r"[^a-z0-9_-]+", "-", tail).strip("-") or "model"
    number, name = 1, base
    while name in models or name in RESERVED_NAMES:
        number += 1
        name = f"{base}-{number}"
    return name


def ask_for_key(url: str) -> str:
    """Return the key that the user types, which is not shown. Raises ChatopsError without one."""
    try:
        key = getpass(f"{host_and_port(url)} requires a key. Key (not shown): ", sys.stderr).strip()
    except (EOFError, KeyboardInterrupt):
        key = ""
    if not key:
        raise ChatopsError(
            "No key was given, and nothing was written.", advice="Run it again, or name a variable: --key-env VARIABLE"
        )
    return key


def store_key(key: str, *, server: str, paths: Paths) -> dict[str, Json]:
    """Store a key for `server` in the keyring, else in a file that only the user can read; return where.

    Raises ConfigError.
    """
    entry = f"chatops/{server}"
    if store_in_keyring(key, entry=entry):
        return {"api_key_keyring": entry}
    host, _, port = server.rpartition(":")
    file = paths.config / "keys" / f"{quote(host, safe='')}_{port}"
    write_private(file, f"{key}\n".encode())
    return {"api_key_file": str(file)}


def _key_from_variable(variable: str | None) -> str:
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"{variable} is not set.", advice=f"Set it first: export {variable}=…")
    return key

"""``chatops models list|prices``: configured models, whether their servers answer, and what they cost."""

import asyncio
from argparse import Namespace

from chatops.commands.application import open_app, with_app
from chatops.commands.context import show_list
from chatops.config.extras import not_installed
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError
from chatops.headless.json_values import plain
from chatops.models.hosts import host_and_port
from chatops.models.memory import TaskScore, known_price, memory_of, prices_available, refresh_prices
from chatops.policy.registry import ModelSpec, Price
from chatops.wiring.app import App
from chatops.wiring.model_reach import ModelReach, Reachability, probe_model

_STATUS_WORDS = {
    Reachability.THERE: "ready",
    Reachability.UNLISTED: "not on its server",
    Reachability.SILENT: "no answer",
    Reachability.REFUSED: "key refused",
    Reachability.KEYLESS: "no key",
    Reachability.ABSENT: "not available here",
}
"""Words of the column STATUS. What it means and what to do is printed below the table."""
_REACHABLE = {
    Reachability.THERE: True,
    Reachability.UNLISTED: True,
    Reachability.SILENT: False,
    Reachability.REFUSED: True,
    Reachability.KEYLESS: False,
    Reachability.ABSENT: None,
}
"""The same for scripts: whether the server can be reached, whatever models it has; None without a server to ask."""


def run(arguments: Namespace) -> int:
    """List the models or their prices.

    For the list, all servers are asked at once, for a few seconds at most. No answer is not an error here.
    """
    if arguments.action == "prices":
        return _prices(arguments)

    async def work(opened: App) -> int:
        if arguments.offline:
            specs = opened.rights.models()
            configured = [(spec.name, str(spec.type), spec.model_name) for spec in specs]
            return show_list(
                arguments, [_configured_json(spec, opened) for spec in specs], ("NAME", "TYPE", "MODEL"), configured
            )
        require = opened.limits.sandbox().require
        reached = await asyncio.gather(*(probe_model(spec, require=require) for spec in opened.rights.models()))
        default = opened.rights.default_model()
        rows = [
            (
                f"{'*' if model.spec.name == default else ' '} {model.spec.name}",
                str(model.spec.type),
                model.spec.model_name,
                host_and_port(model.spec.api_url) if model.spec.api_url else "-",
                f"{score.done} of {score.of}" if (score := _score(model.spec, opened)) is not None else "-",
                _STATUS_WORDS[model.reachability],
            )
            for model in reached
        ]
        problems = (f"{model.spec.name}: {_problem(model)}" for model in reached if not model.usable)
        return show_list(
            arguments,
            [_reached_json(model, opened) for model in reached],
            ("  NAME", "TYPE", "MODEL", "SERVER", "TASKS", "STATUS"),
            rows,
            notes=(*problems, "* is your default. Another one: chatops connect URL, or /model in the chat."),
        )

    return with_app(arguments, work)


def _prices(arguments: Namespace) -> int:
    with open_app(arguments) as opened:
        if arguments.refresh:
            if not prices_available():
                raise ConfigError(f"There is nothing to refresh: {not_installed('prices')}.")
            refresh_prices()
        priced = [(spec, *_price(spec, opened, again=arguments.refresh)) for spec in opened.rights.models()]
        rows = [(spec.name, *_price_columns(price), source) for spec, price, source in priced]
        notes = ["Per million tokens; known prices are in US dollars. A price in the registry takes precedence."]
        if not prices_available():
            notes.append(f"Prices of public providers are not known: {not_installed('prices')}.")
        values = [{"name": spec.name, "price": plain(price), "from": source} for spec, price, source in priced]
        return show_list(arguments, values, ("MODEL", "INPUT", "OUTPUT", "CACHED INPUT", "FROM"), rows, notes=notes)


def _score(spec: ModelSpec, opened: App) -> TaskScore | None:
    """Return how the model did the tasks of ``doctor --tasks``; None if it was not asked."""
    memory = memory_of(spec, opened.settings)
    return memory.score() if memory is not None else None


def _price(spec: ModelSpec, opened: App, *, again: bool) -> tuple[Price | None, str]:
    """Return the price of a model and its source. With `again`, look up a known price anew."""
    if spec.price is not None:
        return spec.price, "registry"
    memory = memory_of(spec, opened.settings)
    price = None if memory is None else known_price(spec, memory, again=again)
    return price, "-" if price is None else "genai-prices"


def _price_columns(price: Price | None) -> tuple[str, str, str]:
    if price is None:
        return "-", "-", "-"
    cached = price.input if price.cached_input is None else price.cached_input
    return f"{price.input:g}", f"{price.output:g}", f"{cached:g}"


def _problem(model: ModelReach) -> str:
    return f"{model.text} {model.advice}".strip()


def _configured_json(spec: ModelSpec, opened: App) -> dict[str, JsonValue]:
    """Return what is known of a model without its server."""
    score = _score(spec, opened)
    return {
        "name": spec.name,
        "label": spec.label,
        "type": str(spec.type),
        "host_type": spec.host_type.value,
        "model_name": spec.model_name,
        "server": host_and_port(spec.api_url) if spec.api_url else None,
        "default": spec.name == opened.rights.default_model(),
        "tasks": {"done": score.done, "of": score.of} if score is not None else None,
    }


def _reached_json(model: ModelReach, opened: App) -> JsonValue:
    """Return `_configured_json` and what the server answered. `status` is a sentence, not the word of the column."""
    return {
        **_configured_json(model.spec, opened),
        "reachable": _REACHABLE[model.reachability],
        "status": _problem(model),
        "available": list(model.available),
    }

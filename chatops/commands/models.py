"""``chatops models list|prices``: configured models, whether their servers answer, and what they cost."""

import asyncio
from argparse import Namespace
from typing import assert_never

from chatops.commands.application import app, with_app
from chatops.commands.context import show_list
from chatops.config.extras import not_installed
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError
from chatops.headless.screen import screen, table
from chatops.models.hosts import host_and_port
from chatops.models.memory import TaskScore, known_price, memory_of, prices_available, refresh_prices
from chatops.policy.registry import ModelSpec, Price
from chatops.wiring.app import App
from chatops.wiring.doctor import ModelReach, Reachability, probe_model

_SHORT = {
    Reachability.THERE: "ready",
    Reachability.UNLISTED: "not on its server",
    Reachability.SILENT: "no answer",
    Reachability.REFUSED: "key refused",
    Reachability.KEYLESS: "no key",
    Reachability.ABSENT: "not available here",
}
"""Status in the table. What it means and what to do is printed below the table."""


def run(arguments: Namespace) -> int:
    """List the models or their prices.

    For the list, all servers are asked at once, for a few seconds at most. No answer is not an error here.
    """

    if arguments.action == "prices":
        return _prices(arguments)

    async def work(opened: App) -> int:
        if arguments.offline:
            configured = [(spec.name, str(spec.type), spec.model_name) for spec in opened.rights.models()]
            screen().answer(table(("NAME", "TYPE", "MODEL"), configured))
            return 0
        require = opened.limits.sandbox().require
        found = await asyncio.gather(*(probe_model(spec, require=require) for spec in opened.rights.models()))
        default = opened.rights.default_model()
        rows = [
            (
                f"{'*' if model.spec.name == default else ' '} {model.spec.name}",
                str(model.spec.type),
                model.spec.model_name,
                host_and_port(model.spec.api_url) if model.spec.api_url else "-",
                f"{score.done} of {score.of}" if (score := _score(model.spec, opened)) is not None else "-",
                _SHORT[model.reachability],
            )
            for model in found
        ]
        problems = (f"{model.spec.name}: {_status(model)}" for model in found if not model.usable)
        return show_list(
            arguments,
            [_json(model, default, _score(model.spec, opened)) for model in found],
            ("  NAME", "TYPE", "MODEL", "SERVER", "TASKS", "STATUS"),
            rows,
            notes=(*problems, "* is your default. Another one: chatops connect URL, or /model in the chat."),
        )

    return with_app(arguments, work)


def _prices(arguments: Namespace) -> int:
    with app(arguments) as opened:
        if arguments.refresh:
            if not prices_available():
                raise ConfigError(f"There is nothing to refresh: {not_installed('prices')}.")
            refresh_prices()
        found = [(spec, *_price(spec, opened, again=arguments.refresh)) for spec in opened.rights.models()]
        rows = [
            (spec.name, *(("-", "-", "-") if price is None else _columns(price)), source)
            for spec, price, source in found
        ]
        notes = ["Per million tokens; known prices are in US dollars. A price in the registry takes precedence."]
        if not prices_available():
            notes.append(f"Prices of public providers are not known: {not_installed('prices')}.")
        values = [{"name": spec.name, "price": _price_json(price), "from": source} for spec, price, source in found]
        return show_list(arguments, values, ("MODEL", "INPUT", "OUTPUT", "CACHED INPUT", "FROM"), rows, notes=notes)


def _score(spec: ModelSpec, opened: App) -> TaskScore | None:
    """Return how the model did the tasks of ``doctor --tasks``; None if it was not asked."""
    memory = memory_of(spec, opened.settings) if spec.has_server else None
    return memory.score() if memory is not None else None


def _price(spec: ModelSpec, opened: App, *, again: bool) -> tuple[Price | None, str]:
    """Return the price of a model and its source."""
    if spec.price is not None:
        return spec.price, "registry"
    memory = memory_of(spec, opened.settings) if spec.has_server else None
    price = None if memory is None else known_price(spec, memory, again=again)
    return price, "-" if price is None else "genai-prices"


def _columns(price: Price) -> tuple[str, str, str]:
    cached = price.input if price.cached_input is None else price.cached_input
    return f"{price.input:g}", f"{price.output:g}", f"{cached:g}"


def _price_json(price: Price | None) -> JsonValue:
    if price is None:
        return None
    return {"input": price.input, "output": price.output, "cached_input": price.cached_input}


def _reachable(one: ModelReach) -> bool | None:
    """Return True if the server can be reached, whatever models it has; None if there is no server to ask."""
    match one.reachability:
        case Reachability.THERE | Reachability.UNLISTED | Reachability.REFUSED:
            return True
        case Reachability.SILENT | Reachability.KEYLESS:
            return False
        case Reachability.ABSENT:
            return None
        case never:
            assert_never(never)


def _status(one: ModelReach) -> str:
    return f"{one.text} {one.advice}".strip()


def _json(one: ModelReach, default: str, score: TaskScore | None) -> JsonValue:
    return {
        "name": one.spec.name,
        "label": one.spec.label,
        "type": str(one.spec.type),
        "host_type": one.spec.host_type.value,
        "model_name": one.spec.model_name,
        "server": host_and_port(one.spec.api_url) if one.spec.api_url else None,
        "default": one.spec.name == default,
        "reachable": _reachable(one),
        "status": _status(one),
        "available": list(one.available),
        "tasks": {"done": score.done, "of": score.of} if score is not None else None,
    }

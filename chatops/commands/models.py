"""``chatops models list``: configured models, and whether their keys are set and their servers answer."""

import asyncio
from argparse import Namespace
from typing import assert_never

from chatops.commands.context import screen, with_app
from chatops.domain.canonical import JsonValue
from chatops.headless.reach import Reach, Reachability, reach
from chatops.headless.screen import table
from chatops.models.hosts import host_and_port
from chatops.wiring.app import App

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
    """List the models. All servers are asked at once, for a few seconds at most. No answer is not an error here."""

    async def work(opened: App) -> int:
        if arguments.offline:
            configured = [(spec.name, spec.type.value, spec.model_name) for spec in opened.rights.models()]
            screen().answer(table(("NAME", "TYPE", "MODEL"), configured))
            return 0
        found = await asyncio.gather(*(reach(spec) for spec in opened.rights.models()))
        default = opened.rights.default_model()
        view = screen()
        if arguments.output_format == "json":
            view.json([_json(one, default) for one in found])
            return 0
        rows = [
            (
                f"{'*' if one.spec.name == default else ' '} {one.spec.name}",
                one.spec.type.value,
                one.spec.model_name,
                host_and_port(one.spec.api_url) if one.spec.api_url else "-",
                _SHORT[one.reachability],
            )
            for one in found
        ]
        view.answer(table(("  NAME", "TYPE", "MODEL", "SERVER", "STATUS"), rows))
        for one in found:
            if not one.usable:
                view.say(f"{one.spec.name}: {_status(one)}")
        view.say("* is your default. Another one: chatops connect URL, or /model in the chat.")
        return 0

    return with_app(arguments, work, via="headless")


def _reachable(one: Reach) -> bool | None:
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


def _status(one: Reach) -> str:
    return f"{one.text} {one.advice}".strip()


def _json(one: Reach, default: str) -> JsonValue:
    return {
        "name": one.spec.name,
        "label": one.spec.label,
        "type": one.spec.type.value,
        "host_type": one.spec.host_type.value,
        "model_name": one.spec.model_name,
        "server": host_and_port(one.spec.api_url) if one.spec.api_url else None,
        "default": one.spec.name == default,
        "reachable": _reachable(one),
        "status": _status(one),
        "available": list(one.available),
    }

"""``chatops tools list``: the tools there are, and what a role may do with them."""

from argparse import Namespace

from chatops.commands.context import app, check_role, screen
from chatops.commands.table import table
from chatops.domain.canonical import JsonValue
from chatops.domain.rights import Verdict
from chatops.domain.tools import ToolSpec
from chatops.headless.formats import dumps
from chatops.policy.grant import Grant
from chatops.policy.resolve import effective_verdict
from chatops.wiring import App


def run(arguments: Namespace) -> int:
    """All tools with their verdict in the named role, or the default one; denied ones with the layer that denies."""
    with app(arguments, via="headless") as opened:
        role = arguments.role or opened.loaded.registry.default_role
        check_role(opened, role)
        grant = opened.grant_for(role)
        view = screen()
        found = [(spec, *_standing(opened, grant, spec)) for spec in opened.catalog.specs]
        if arguments.output_format == "json":
            values: list[JsonValue] = [
                {
                    "tool": spec.name,
                    "verdict": verdict.value,
                    "reason": reason,
                    "min_access": spec.min_access.word,
                    "read_only": spec.read_only,
                    "source": spec.source,
                    "description": spec.description,
                }
                for spec, verdict, reason in found
            ]
            view.line(dumps(values, indent=2))
            return 0
        rows = [
            (spec.name, verdict.value, spec.min_access.word, reason or spec.description)
            for spec, verdict, reason in found
        ]
        view.answer(table(("TOOL", "VERDICT", "FROM LEVEL", "ABOUT"), rows))
        view.say(f"For role {role} at access level {grant.level.word}.")
        for tool, reason in opened.catalog.absent.items():
            view.say(f"{tool} is not offered: {reason}")
    return 0


def _standing(opened: App, grant: Grant, spec: ToolSpec) -> tuple[Verdict, str]:
    """The verdict, and for a denied tool why."""
    permitted = grant.permits(spec.name)
    if permitted.verdict is Verdict.DENY:
        return Verdict.DENY, f"denied by {permitted.reason}"
    return effective_verdict(spec, registries=opened.loaded.registries), ""

"""``chatops policy``: the verdict on a call and the layer that gave it; all grants, with their source."""

from argparse import Namespace

from chatops.commands.context import app, check_role, screen, with_app
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError
from chatops.headless.json_values import plain
from chatops.headless.screen import table
from chatops.policy.patterns import show_rule
from chatops.wiring.app import App
from chatops.wiring.explain import Explained, explain_call

VIA = "headless"
EVERY_SESSION = 1_000_000


def run(arguments: Namespace) -> int:
    """Run ``explain`` or ``list``."""
    if arguments.action == "explain":
        return with_app(arguments, lambda opened: _explain(opened, arguments), via=VIA)
    with app(arguments, via=VIA) as opened:
        return _list(opened, arguments)


async def _explain(opened: App, arguments: Namespace) -> int:
    role = arguments.role or opened.loaded.registry.default_role
    check_role(opened, role)
    found = await explain_call(opened, opened.grant_for(role), arguments.tool, arguments.call)
    view = screen()
    if arguments.output_format == "json":
        view.json(_json(arguments.tool, role, found))
        return 0
    view.answer("\n".join(found.lines))
    for remark in found.remarks:
        view.say(remark)
    return 0


def _json(tool: str, role: str, found: Explained) -> JsonValue:
    return {
        "tool": tool,
        "role": role,
        "verdict": found.deciding.verdict.value,
        "reason": found.deciding.reason,
        "answered_by": found.deciding.answered_by or None,
        "layers": [{"verdict": one.verdict.value, "reason": one.reason} for one in found.layers],
        "problems": [plain(problem) for problem in found.problems],
    }


def _list(opened: App, arguments: Namespace) -> int:
    """Print the remembered grants of all sessions, then the answers that the configuration gives each role."""
    rows: list[tuple[str, str, str]] = []
    for info in opened.store.sessions(limit=EVERY_SESSION):
        rows += [
            (grant.role, show_rule(grant.tool, grant.pattern), f"session {info.id}, given on {grant.source_call}")
            for grant in opened.store.grants(info.id)
        ]
    for role in opened.rights.roles():
        try:
            answers = opened.grant_for(role).answers
        except ConfigError:
            continue
        rows += [(role, show_rule(answer.tool, answer.pattern), answer.source) for answer in answers]
    view = screen()
    if arguments.output_format == "json":
        found: list[JsonValue] = [{"role": role, "rule": rule, "source": source} for role, rule, source in rows]
        view.json(found)
    elif rows:
        view.answer(table(("ROLE", "RULE", "SOURCE"), rows))
    else:
        view.say("Nothing is granted: every gated call asks.")
    return 0

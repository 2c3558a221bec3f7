"""``chatops policy``: the verdict on a call and the layer that gave it; remembered rules, with their source."""

import os
from argparse import Namespace

from chatops.commands.context import Stored, app, check_role, screen, stored, with_app
from chatops.config.paths import path_of
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError
from chatops.headless.json_values import plain
from chatops.headless.screen import table, when
from chatops.policy.patterns import show_rule
from chatops.store.base import RuleRow
from chatops.wiring.app import App
from chatops.wiring.explain import Explained, explain_call
from chatops.wiring.stored import Storage
from chatops.wiring.words import describe_rule

VIA = "headless"


def run(arguments: Namespace) -> int:
    """Run ``explain``, ``list`` or ``revoke``."""
    if arguments.action == "revoke":
        with stored(arguments, storage=Storage.NEEDED) as opened_store:
            return _revoke(opened_store, arguments.id)
    if arguments.action == "explain":
        return with_app(arguments, lambda opened: _explain(opened, arguments), via=VIA)
    with app(arguments, via=VIA) as opened:
        return _list(opened, arguments)


async def _explain(opened: App, arguments: Namespace) -> int:
    role = arguments.role or opened.loaded.registry.default_role
    check_role(opened, role)
    rules = tuple(row.rule for row in opened.rules(None))
    found = await explain_call(opened, opened.grant_for(role), arguments.tool, arguments.call, remembered=rules)
    view = screen()
    if arguments.output_format == "json":
        view.json(_json(arguments.tool, role, found))
        return 0
    view.answer("\n".join(found.lines))
    for notice in found.notices:
        view.say(notice)
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
    """Print the user's remembered rules, then the answers that the configuration gives each role."""
    remembered = opened.store.rules(uid=opened.principal.uid)
    configured: list[tuple[str, str, str]] = []
    for role in opened.rights.roles():
        try:
            answers = opened.grant_for(role).answers
        except ConfigError:
            continue
        configured += [(role, show_rule(answer.tool, answer.pattern), answer.source) for answer in answers]
    view = screen()
    if arguments.output_format == "json":
        found: list[JsonValue] = [_rule_json(row) for row in remembered]
        found += [{"role": role, "rule": rule, "source": source} for role, rule, source in configured]
        view.json(found)
    elif remembered or configured:
        rows = [_cells(row) for row in remembered]
        rows += [("-", role, "", "", "", "", rule, source) for role, rule, source in configured]
        view.answer(table(("ID", "ROLE", "SCOPE", "MADE", "USES", "LAST USED", "RULE", "SOURCE"), rows))
    else:
        view.say("No rule allows anything: every gated call asks.")
    return 0


def _cells(row: RuleRow) -> tuple[str, ...]:
    rule = row.rule
    scope = f"{rule.scope.value} {path_of(rule.folder)}" if rule.folder else rule.scope.value
    used = when(row.used_at) if row.used_at is not None else "never"
    pattern = show_rule(rule.tool, rule.pattern)
    return (rule.id, rule.role, scope, when(row.made_at), str(row.uses), used, pattern, f"call {rule.source_call}")


def _rule_json(row: RuleRow) -> JsonValue:
    rule = row.rule
    return {
        "id": rule.id,
        "role": rule.role,
        "rule": show_rule(rule.tool, rule.pattern),
        "source": f"call {rule.source_call}",
        "scope": rule.scope.value,
        "folder": path_of(rule.folder) or None,
        "made_at": row.made_at,
        "uses": row.uses,
        "used_at": row.used_at,
    }


def _revoke(opened: Stored, rule_id: str) -> int:
    """Revoke a rule of this user. A running turn asks again from its next call on."""
    found = next((row for row in opened.store.rules(uid=os.getuid()) if row.rule.id == rule_id), None)
    if found is None or not opened.store.revoke_rule(rule_id):
        raise ConfigError(f"There is no rule {rule_id!r}.", advice="chatops policy list shows them.")
    screen().say(f"Revoked rule {rule_id}: {': '.join(describe_rule(found)[:2])}.")
    return 0

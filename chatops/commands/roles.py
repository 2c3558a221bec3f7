"""``chatops roles``: what each role may do, for the user, here; and the source of each part of its prompt."""

from argparse import Namespace

from chatops.commands.context import app, check_role, screen, with_app
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError
from chatops.domain.tools import Verdict
from chatops.headless.screen import table
from chatops.policy.grant import Grant
from chatops.policy.patterns import show_rule
from chatops.policy.prompt import PromptLayer
from chatops.wiring.app import App

VIA = "headless"


def run(arguments: Namespace) -> int:
    """Run ``list`` or ``show``."""
    if arguments.action == "show":
        return with_app(arguments, lambda opened: _show(opened, arguments), via=VIA)
    with app(arguments, via=VIA) as opened:
        return _list(opened, arguments.output_format)


def tool_verdicts(grant: Grant) -> dict[str, Verdict]:
    """Return the tools on offer under `grant`, each with the verdict on its calls."""
    return {spec.name: grant.judge_tool(spec.name).verdict for spec in grant.tools}


def _list(opened: App, output: str) -> int:
    rows: list[tuple[str, str, str]] = []
    values: list[JsonValue] = []
    for name in opened.rights.roles():
        try:
            grant = opened.grant_for(name)
        except ConfigError as error:
            rows.append((name, "-", str(error)))
            values.append({"role": name, "error": str(error)})
            continue
        verdicts = tool_verdicts(grant)
        tools = ", ".join(f"{tool} ({verdict.value})" for tool, verdict in verdicts.items())
        rows.append((name, grant.models[0].name, tools or "no tools"))
        values.append(
            {
                "role": name,
                "level": grant.level.word,
                "models": [model.name for model in grant.models],
                "tools": {tool: verdict.value for tool, verdict in verdicts.items()},
                "max_rounds": grant.max_rounds,
                "default": name == opened.loaded.registry.default_role,
            }
        )
    view = screen()
    if output == "json":
        view.json(values)
        return 0
    view.answer(table(("ROLE", "MODEL", "TOOLS"), rows))
    view.say(f"Your access level here: {opened.rights.level.word}.")
    return 0


async def _show(opened: App, arguments: Namespace) -> int:
    name = arguments.role or opened.loaded.registry.default_role
    check_role(opened, name)
    grant = opened.grant_for(name)
    session = await opened.open_session(None, attended=False)
    layers = session.prompt_layers()
    view = screen()
    if arguments.output_format == "json":
        view.json(_json(opened, grant, layers))
    else:
        view.answer(_text(opened, grant, layers))
    return 0


def _text(opened: App, grant: Grant, layers: tuple[PromptLayer, ...]) -> str:
    verdicts = tool_verdicts(grant)
    lines = [
        f"Role:         {grant.role}",
        f"Access level: {grant.level.word}",
        f"Models:       {', '.join(model.name for model in grant.models)}",
        f"Max rounds:   {grant.max_rounds}",
        *(["Turns:        contained, on a copy of the workspace"] if grant.contain and grant.may_contain else []),
        f"Tools:        {', '.join(f'{tool} ({verdict.value})' for tool, verdict in verdicts.items()) or 'none'}",
    ]
    lines += [f"Not offered:  {notice}" for notice in opened.rights.withheld(grant.role)]
    lines += [f"Allowed:      {show_rule(one.tool, one.pattern)} ({one.source})" for one in grant.answers]
    for layer in grant.layers:
        stricter = [f"{rule.verdict.value} {show_rule(rule.tool, rule.pattern)}" for rule in layer.rules]
        lines.append(f"Layer:        {layer.name}: {', '.join(stricter)}; else {layer.default.value}")
    lines += ["", "System prompt, in this order:"]
    for part in layers:
        lines += ["", f"[{part.name}] from {part.source}", part.text.strip() or "(empty)"]
    return "\n".join(lines)


def _json(opened: App, grant: Grant, layers: tuple[PromptLayer, ...]) -> JsonValue:
    return {
        "role": grant.role,
        "level": grant.level.word,
        "models": [model.name for model in grant.models],
        "max_rounds": grant.max_rounds,
        "contain": grant.contain and grant.may_contain,
        "tools": {tool: verdict.value for tool, verdict in tool_verdicts(grant).items()},
        "withheld": list(opened.rights.withheld(grant.role)),
        "answers": [
            {"rule": show_rule(answer.tool, answer.pattern), "source": answer.source} for answer in grant.answers
        ],
        "prompt": [{"name": part.name, "source": part.source, "text": part.text} for part in layers],
    }

"""``chatops roles``, ``tools`` and ``policy``: what may be done here, by whom, and why.

`roles` shows what each role may do, and the source of each part of its prompt; `tools` the tools, what a role may do
with them, and the problems of an own one; `policy` the verdict on a call, the layer that gave it, and the rules
(``policy test`` and ``replay``: `policy_cases`, `policy_replay`).
"""

import os
import shlex
import sys
from argparse import Namespace
from pathlib import Path

from chatops.commands.application import open_app, with_app
from chatops.commands.context import Stored, confirm, open_stored, options, show_list
from chatops.commands.registry import file_to_edit, line_for_role
from chatops.config.document import dotted_path
from chatops.config.folder_identity import path_of
from chatops.config.own_tools import OwnToolsTrust
from chatops.config.paths import Paths, find_paths
from chatops.config.registry import load_registry
from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import ToolSpec, Verdict, tool_name
from chatops.domain.wording import plural
from chatops.engine.signature import parameters
from chatops.headless.json_values import fields_json, plain
from chatops.headless.screen import screen, table, when
from chatops.policy.budget import LIMIT_NAMES, NO_BUDGET
from chatops.policy.grant import Grant, rule_of
from chatops.policy.prompt import PromptLayer
from chatops.policy.rule_syntax import show_rule
from chatops.policy.summary import rights_in_words
from chatops.policy.verdicts import Judgement
from chatops.store.base import RuleRow
from chatops.wiring.app import App
from chatops.wiring.explain import Explanation, explain_call, rights_matrix
from chatops.wiring.rows import describe_rule, unknown_name
from chatops.wiring.stored import Storage
from chatops.wiring.toolbox import OwnTools, load_file, name_fault


@frozen_dataclass
class _JudgedTool:
    """A tool with its verdict in a role."""

    spec: ToolSpec
    verdict: Verdict
    denial: str = ""
    """The layer that denies it, in words; empty if none does."""

    @property
    def json(self) -> dict[str, JsonValue]:
        """The tool for scripts."""
        fields = fields_json(self.spec, "min_access", "read_only", "source", "description")
        return {"tool": self.spec.name, "verdict": self.verdict.value, "reason": self.denial, **fields}


def roles(arguments: Namespace) -> int:
    """Run ``list`` or ``show``."""
    if arguments.action == "show":
        return with_app(arguments, lambda opened: _show_role(opened, arguments))
    with open_app(arguments) as opened:
        return _list_roles(opened, arguments)


def _grant_for(opened: App, arguments: Namespace) -> Grant:
    """Return what the named or default role may do. Raises ConfigError if there is no such role."""
    return opened.grant_for(arguments.role or opened.loaded.registry.default_role)


def _verdicts(grant: Grant) -> dict[str, Verdict]:
    """Return the tools on offer under `grant`, each with the verdict on its calls."""
    return {spec.name: grant.judge_tool(spec.name).verdict for spec in grant.tools}


def _list_roles(opened: App, arguments: Namespace) -> int:
    rows: list[tuple[str, str, str]] = []
    values: list[JsonValue] = []
    for name in opened.rights.roles():
        try:
            grant = opened.grant_for(name)
        except ConfigError as error:
            rows.append((name, "-", str(error)))
            values.append({"role": name, "error": str(error)})
            continue
        verdicts = _verdicts(grant)
        rights = rights_in_words(grant)
        rows.append((name, grant.models[0].name, " · ".join(rights)))
        values.append(
            {
                "role": name,
                "level": grant.level.word,
                "models": [model.name for model in grant.models],
                "rights": list(rights),
                "tools": {tool: verdict.value for tool, verdict in verdicts.items()},
                "max_rounds": grant.max_rounds,
                "default": name == opened.loaded.registry.default_role,
            }
        )
    notes = (f"Your access level here: {opened.rights.level.word}.",)
    return show_list(arguments, values, ("ROLE", "MODEL", "MAY"), rows, notes=notes)


async def _show_role(opened: App, arguments: Namespace) -> int:
    grant = _grant_for(opened, arguments)
    layers = (await opened.open_session(None, attended=False)).prompt_layers()
    view = screen()
    if arguments.output_format == "json":
        view.json(_role_json(opened, grant, layers))
    else:
        view.answer(_role_text(opened, grant, layers))
    return 0


def _role_text(opened: App, grant: Grant, layers: tuple[PromptLayer, ...]) -> str:
    verdicts = _verdicts(grant)
    lines = [
        f"Role:         {grant.role}",
        f"Access level: {grant.level.word}",
        f"Models:       {', '.join(model.name for model in grant.models)}",
        f"Max rounds:   {grant.max_rounds}",
        *([f"Budget:       {grant.budget} a turn, then it asks"] if grant.budget != NO_BUDGET else []),
        f"May:          {' · '.join(rights_in_words(grant))}",
        *(["Turns:        contained, on a copy of the workspace"] if grant.contain and grant.may_contain else []),
        f"Tools:        {', '.join(f'{tool} ({verdict.value})' for tool, verdict in verdicts.items()) or 'none'}",
    ]
    lines += [f"Not offered:  {notice}" for notice in opened.rights.withheld(grant.role)]
    lines += [f"Allowed:      {show_rule(answer.tool, answer.pattern)} ({answer.source})" for answer in grant.answers]
    for layer in grant.layers:
        stricter = [f"{rule.verdict.value} {show_rule(rule.tool, rule.pattern)}" for rule in layer.rules]
        lines.append(f"Layer:        {layer.name}: {', '.join(stricter)}; else {layer.default.value}")
    lines += ["", "System prompt, in this order:"]
    for part in layers:
        lines += ["", f"[{part.name}] from {part.source}", part.text.strip() or "(empty)"]
    return "\n".join(lines)


def _role_json(opened: App, grant: Grant, layers: tuple[PromptLayer, ...]) -> JsonValue:
    return {
        "role": grant.role,
        "level": grant.level.word,
        "models": [model.name for model in grant.models],
        "max_rounds": grant.max_rounds,
        "budget": {limit: grant.budget.of(limit) for limit in LIMIT_NAMES},
        "contain": grant.contain and grant.may_contain,
        "rights": list(rights_in_words(grant)),
        "tools": {tool: verdict.value for tool, verdict in _verdicts(grant).items()},
        "withheld": list(opened.rights.withheld(grant.role)),
        "answers": [
            {"rule": show_rule(answer.tool, answer.pattern), "source": answer.source} for answer in grant.answers
        ],
        "prompt": [{"name": part.name, "source": part.source, "text": part.text} for part in layers],
    }


def tools(arguments: Namespace) -> int:
    """Print all tools with their verdict in the named or default role; denied ones with the layer that denies."""
    if arguments.action == "check":
        return _check_file(Path(arguments.file).expanduser(), arguments)
    with open_app(arguments) as opened:
        grant = _grant_for(opened, arguments)
        if arguments.action == "show":
            _show_tool(opened, grant, tool_name(arguments.tool), arguments.output_format)
            return 0
        judged = [_judge_tool(grant, spec) for spec in opened.catalog.specs]
        rows = [
            (tool.spec.name, tool.verdict.value, tool.spec.min_access.word, tool.denial or tool.spec.description)
            for tool in judged
        ]
        lacks = [f"{tool} is not offered: {reason}" for tool, reason in opened.catalog.unavailable.items()]
        return show_list(
            arguments,
            [tool.json for tool in judged],
            ("TOOL", "VERDICT", "FROM LEVEL", "ABOUT"),
            rows,
            notes=(f"For role {grant.role} at access level {grant.level.word}.", *lacks),
        )


def _check_file(file: Path, arguments: Namespace) -> int:
    """Run a file and print its tools and problems. Exit code 0, or 1 if there are problems or the user says no.

    A file that sessions load already runs without a question.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror}.", advice="Name a Python file with functions under @tool."
        ) from None
    paths = find_paths(os.environ)
    if not (arguments.yes or _is_trusted(file.resolve(), data, paths) or _confirm_run(file)):
        screen().say("Nothing was run.")
        return 1
    loaded = load_file(data, file.resolve())
    problems, view = _problems_of(loaded), screen()
    if arguments.output_format == "json":
        tools = [
            {**_JudgedTool(spec=tool.spec, verdict=tool.spec.verdict).json, "schema": json_or_text(tool.spec.schema)}
            for tool in loaded.tools
        ]
        view.json({"tools": list[JsonValue](tools), "problems": list[JsonValue](problems)})
        return 1 if problems else 0
    for tool in loaded.tools:
        _print_description(tool.spec)
        view.answer(f"\nFrom level {tool.spec.min_access.word}; verdict {tool.spec.verdict.value}.\n")
    for problem in problems:
        view.say(problem)
    if problems:
        view.say("It has problems.")
        return 1
    view.say(f"It can be used. {_how_to_load(file.resolve(), data, paths)}")
    registry = load_registry(path=options(arguments).registry, paths=paths, env=os.environ)
    names, target = [tool.spec.name for tool in loaded.tools], file_to_edit(registry, paths)
    view.say(line_for_role(names, registry=registry.registry, target=target))
    return 0


def _problems_of(loaded: OwnTools) -> list[str]:
    """Return why tools of a file cannot be used, or not well."""
    specs = [tool.spec for tool in loaded.tools]
    faults = (name_fault(spec.name, taken=()) for spec in specs)
    missing = (
        f"{spec.name} has no docstring, so no model knows what it is for." for spec in specs if not spec.description
    )
    return [*loaded.notices, *filter(None, faults), *missing]


def _how_to_load(file: Path, data: bytes, paths: Paths) -> str:
    if file.parent != paths.tools.resolve():
        return f"Copy it to {paths.tools}"
    if _is_trusted(file, data, paths):
        return "You trust it, so every session loads it."
    return f"The chat asks before it loads it; for scripts: chatops trust {shlex.quote(str(paths.tools))}"


def _is_trusted(file: Path, data: bytes, paths: Paths) -> bool:
    """Return True if sessions load this file, with this content."""
    trust = OwnToolsTrust(paths.tools, folder=paths.trust)
    listed = any((item.path, item.data) == (file.name, data) for item in trust.in_force.own_tools)
    return listed and file.parent == paths.tools.resolve()


def _confirm_run(file: Path) -> bool:
    """Ask on a terminal. Raises ConfigError without one."""
    what = f"To check it, {file} has to be run: as you, outside the sandbox."
    if not sys.stdin.isatty():
        again = f"chatops tools check {shlex.quote(str(file))} --yes"
        raise ConfigError(what, advice=f"Look at it, then: {again}")
    return confirm(f"{what} Type yes to run it:")


def _print_description(spec: ToolSpec) -> None:
    rows = [
        (parameter.name, parameter.type, "" if parameter.required else "optional", parameter.about)
        for parameter in parameters(spec)
    ]
    listing = table(("ARGUMENT", "TYPE", "", "ABOUT"), rows) if rows else "No arguments."
    screen().answer("\n".join([f"{spec.name}: {spec.description.strip()}", "", listing]))


def _show_tool(opened: App, grant: Grant, name: str, output: str) -> None:
    """Print one tool. Raises ConfigError for a tool that does not exist."""
    spec = next((spec for spec in opened.catalog.specs if spec.name == name), None)
    if spec is None:
        raise unknown_name("tool", name, [spec.name for spec in opened.catalog.specs])
    judged, view = _judge_tool(grant, spec), screen()
    if output == "json":
        view.json({**judged.json, "schema": json_or_text(spec.schema)})
        return
    _print_description(spec)
    view.answer(f"\nFrom level {spec.min_access.word}; source: {spec.source}.")
    view.answer(f"Role {grant.role}, level {grant.level.word}: {judged.denial or judged.verdict.value}.")


def _judge_tool(grant: Grant, spec: ToolSpec) -> _JudgedTool:
    judged = grant.judge_tool(spec.name)
    denial = f"denied by {judged.reason}" if judged.verdict is Verdict.DENY else ""
    return _JudgedTool(spec=spec, verdict=judged.verdict, denial=denial)


def policy(arguments: Namespace) -> int:
    """Run ``explain``, ``matrix``, ``list`` or ``revoke``."""
    if arguments.action == "revoke":
        with open_stored(arguments, storage=Storage.NEEDED) as opened_store:
            return _revoke(opened_store, arguments.id)
    if arguments.action == "explain":
        return with_app(arguments, lambda opened: _explain(opened, arguments))
    with open_app(arguments) as opened:
        return _matrix(opened, arguments) if arguments.action == "matrix" else _list_rules(opened, arguments)


def _matrix(opened: App, arguments: Namespace) -> int:
    rules = tuple(row.rule for row in opened.rules(None))
    matrix = rights_matrix(opened, _grant_for(opened, arguments), remembered=rules)
    rows: list[tuple[str, ...]] = []
    values: list[JsonValue] = []
    for tool in matrix.tools:
        by_role = {role: matrix.judged(tool, role) for role in matrix.grants}
        verdicts = {role: judged.verdict.value if judged else "error" for role, judged in by_role.items()}
        sound = {role: judged for role, judged in by_role.items() if judged}
        why = {role: {"layer": judged.reason, **_place_json(opened, judged)} for role, judged in sound.items()}
        rows.append((tool, *verdicts.values()))
        values.append({"tool": tool, "verdicts": dict(verdicts), "why": dict(why)})
    notes = [f"Your access level here: {matrix.level}. Why: chatops policy explain --role ROLE TOOL"]
    notes += [f"{plural(matrix.left_out, 'more role')} left out: chatops roles list"] if matrix.left_out else []
    return show_list(arguments, values, ("TOOL", *matrix.grants), rows, notes=notes)


async def _explain(opened: App, arguments: Namespace) -> int:
    grant = _grant_for(opened, arguments)
    rules = tuple(row.rule for row in opened.rules(None))
    explained = await explain_call(opened, grant, arguments.tool, arguments.call, remembered=rules)
    view = screen()
    if arguments.output_format == "json":
        view.json(_explained_json(opened, arguments.tool, grant.role, explained))
        return 0
    view.answer("\n".join(explained.lines))
    for notice in explained.notices:
        view.say(notice)
    return 0


def _place_json(opened: App, judged: Judgement) -> dict[str, JsonValue]:
    """Return the rule about arguments that gave a verdict, and where it or its layer stands."""
    file, line = opened.loaded.place(judged.key)
    key = dotted_path(judged.key[1:]) or None
    return {"rule": rule_of(judged) or None, "file": file or None, "line": line, "key": key}


def _explained_json(opened: App, tool: str, role: str, explained: Explanation) -> JsonValue:
    return {
        "tool": tool,
        "role": role,
        "verdict": explained.deciding.verdict.value,
        "reason": explained.deciding.reason,
        "answered_by": explained.deciding.answered_by or None,
        **_place_json(opened, explained.deciding),
        "layers": [
            {"verdict": layer.verdict.value, "reason": layer.reason, **_place_json(opened, layer)}
            for layer in explained.layers
        ],
        "problems": [plain(problem) for problem in explained.problems],
    }


def _list_rules(opened: App, arguments: Namespace) -> int:
    """Print the user's remembered rules, then the answers that the configuration gives each role."""
    remembered = opened.store.rules(uid=opened.principal.uid)
    configured: list[tuple[str, str, str]] = []
    for role in opened.rights.roles():
        try:
            answers = opened.grant_for(role).answers
        except ConfigError:
            continue
        configured += [(role, show_rule(answer.tool, answer.pattern), answer.source) for answer in answers]
    values: list[JsonValue] = [_rule_json(row) for row in remembered]
    values += [{"role": role, "rule": rule, "source": source} for role, rule, source in configured]
    rows = [_rule_cells(row) for row in remembered]
    rows += [("-", role, "", "", "", "", rule, source) for role, rule, source in configured]
    header = ("ID", "ROLE", "SCOPE", "MADE", "USES", "LAST USED", "RULE", "SOURCE")
    return show_list(arguments, values, header, rows, empty="No rule allows anything: every gated call asks.")


def _rule_cells(row: RuleRow) -> tuple[str, ...]:
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
    row = next((row for row in opened.store.rules(uid=os.getuid()) if row.rule.id == rule_id), None)
    if row is None or not opened.store.revoke_rule(rule_id):
        raise ConfigError(f"There is no rule {rule_id!r}.", advice="chatops policy list shows them.")
    screen().say(f"Revoked rule {rule_id}: {': '.join(describe_rule(row)[:2])}.")
    return 0

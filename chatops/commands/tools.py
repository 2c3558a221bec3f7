"""``chatops tools list|show|check``: the tools, what a role may do with them, and the problems of an own one."""

import os
import shlex
import sys
from argparse import Namespace
from pathlib import Path

from chatops.commands.context import app, check_role, confirm, options, screen
from chatops.commands.registry import file_to_edit, line_for_role
from chatops.config.paths import Paths, find_paths
from chatops.config.registry import load_registry
from chatops.config.trust import OwnToolsTrust
from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.errors import ConfigError
from chatops.domain.tools import ToolSpec, Verdict, tool_name
from chatops.engine.signature import parameters
from chatops.headless.screen import table
from chatops.policy.grant import Grant
from chatops.wiring.app import App
from chatops.wiring.toolbox import load_file, name_fault
from chatops.wiring.words import unknown


def run(arguments: Namespace) -> int:
    """Print all tools with their verdict in the named or default role; denied ones with the layer that denies."""
    if arguments.action == "check":
        return _check(Path(arguments.file).expanduser(), arguments)
    with app(arguments, via="headless") as opened:
        role = arguments.role or opened.loaded.registry.default_role
        check_role(opened, role)
        grant = opened.grant_for(role)
        view = screen()
        if arguments.action == "show":
            _show(opened, grant, tool_name(arguments.tool), arguments.output_format)
            return 0
        found = [(spec, *_standing(grant, spec)) for spec in opened.catalog.specs]
        if arguments.output_format == "json":
            view.json([_json(spec, verdict, reason) for spec, verdict, reason in found])
            return 0
        rows = [
            (spec.name, verdict.value, spec.min_access.word, reason or spec.description)
            for spec, verdict, reason in found
        ]
        view.answer(table(("TOOL", "VERDICT", "FROM LEVEL", "ABOUT"), rows))
        view.say(f"For role {role} at access level {grant.level.word}.")
        for tool, reason in opened.catalog.unavailable.items():
            view.say(f"{tool} is not offered: {reason}")
    return 0


def _check(file: Path, arguments: Namespace) -> int:
    """Run a file and print its tools and problems. Exit code 0, or 1 if there are problems or the user says no."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror}.", advice="Name a Python file with functions under @tool."
        ) from None
    paths = find_paths(os.environ)
    if not (arguments.yes or _trusted(file.resolve(), data, paths) or _confirmed(file)):
        screen().say("Nothing was run.")
        return 1
    found = load_file(data, file.resolve())
    problems = list(found.notices)
    problems += [fault for tool in found.tools if (fault := name_fault(tool.spec.name, taken=()))]
    problems += [
        f"{tool.spec.name} has no docstring, so no model knows what it is for."
        for tool in found.tools
        if not tool.spec.description
    ]
    view = screen()
    if arguments.output_format == "json":
        tools = [
            {**_json(one.spec, one.spec.verdict, ""), "schema": json_or_text(one.spec.schema)} for one in found.tools
        ]
        view.json({"tools": list[JsonValue](tools), "problems": list[JsonValue](problems)})
        return 1 if problems else 0
    for tool in found.tools:
        _describe(tool.spec)
        view.answer(f"\nFrom level {tool.spec.min_access.word}; verdict {tool.spec.verdict.value}.\n")
    for problem in problems:
        view.say(problem)
    if problems:
        view.say("It has problems.")
        return 1
    view.say(f"It can be used. {_how_to_load(file.resolve(), data, paths)}")
    loaded = load_registry(path=options(arguments, via="headless").registry, paths=paths, env=os.environ)
    target = file_to_edit(loaded, paths)
    view.say(line_for_role([tool.spec.name for tool in found.tools], registry=loaded.registry, target=target))
    return 0


def _how_to_load(file: Path, data: bytes, paths: Paths) -> str:
    """Return what is left to do until chatops loads the file."""
    if file.parent != paths.tools.resolve():
        return f"Copy it to {paths.tools}"
    if _trusted(file, data, paths):
        return "You trust it, so every session loads it."
    return f"The chat asks before it loads it; for scripts: chatops trust {shlex.quote(str(paths.tools))}"


def _trusted(file: Path, data: bytes, paths: Paths) -> bool:
    """Return True if sessions load this file, with this content."""
    trust = OwnToolsTrust(paths.tools, folder=paths.trust)
    listed = any((item.path, item.data) == (file.name, data) for item in trust.in_force.own_tools)
    return listed and file.parent == paths.tools.resolve()


def _confirmed(file: Path) -> bool:
    """Ask on a terminal. Raises ConfigError without one."""
    what = f"To check it, {file} has to be run: as you, outside the sandbox."
    if not sys.stdin.isatty():
        again = f"chatops tools check {shlex.quote(str(file))} --yes"
        raise ConfigError(what, advice=f"Look at it, then: {again}")
    return confirm(f"{what} Type yes to run it:")


def _describe(spec: ToolSpec) -> None:
    """Print name, description and arguments of a tool."""
    rows = [(one.name, one.type, "" if one.required else "optional", one.about) for one in parameters(spec)]
    listing = table(("ARGUMENT", "TYPE", "", "ABOUT"), rows) if rows else "No arguments."
    screen().answer("\n".join([f"{spec.name}: {spec.description.strip()}", "", listing]))


def _show(opened: App, grant: Grant, name: str, output: str) -> None:
    """Print one tool. Raises ConfigError for a tool that does not exist."""
    spec = next((one for one in opened.catalog.specs if one.name == name), None)
    if spec is None:
        raise unknown("tool", name, [one.name for one in opened.catalog.specs])
    verdict, reason = _standing(grant, spec)
    view = screen()
    if output == "json":
        view.json({**_json(spec, verdict, reason), "schema": json_or_text(spec.schema)})
        return
    _describe(spec)
    view.answer(f"\nFrom level {spec.min_access.word}; source: {spec.source}.")
    view.answer(f"Role {grant.role}, level {grant.level.word}: {reason or verdict.value}.")


def _json(spec: ToolSpec, verdict: Verdict, reason: str) -> dict[str, JsonValue]:
    return {
        "tool": spec.name,
        "verdict": verdict.value,
        "reason": reason,
        "min_access": spec.min_access.word,
        "read_only": spec.read_only,
        "source": spec.source,
        "description": spec.description,
    }


def _standing(grant: Grant, spec: ToolSpec) -> tuple[Verdict, str]:
    """Return the verdict, and for a denied tool the reason."""
    judged = grant.judge_tool(spec.name)
    return judged.verdict, f"denied by {judged.reason}" if judged.verdict is Verdict.DENY else ""

"""``chatops mcp list|add|remove|login|check``: the MCP servers of the registry."""

import shutil
from argparse import Namespace

from chatops.commands.context import app, screen, with_app
from chatops.commands.registry_edit import edit_registry, file_to_edit, line_for_role
from chatops.config.document import Json, with_value
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError
from chatops.domain.sanitize import reveal
from chatops.headless.screen import table
from chatops.mcp.server import ServerState, ServerStatus
from chatops.wiring.app import App
from chatops.wiring.servers import LOGIN, status_lines
from chatops.wiring.words import unknown

_KEYS = ("mcp_servers", "mcpServers")


def run(arguments: Namespace) -> int:
    """List, add, remove or check servers, or log in at one. Only `login` and `check` connect to one."""
    match arguments.action:
        case "add":
            return _add(arguments)
        case "remove":
            return _remove(arguments)
        case "login":
            return _login(arguments)
        case "check":
            return _check(arguments)
        case _:
            return _list(arguments)


def _list(arguments: Namespace) -> int:
    with app(arguments, via="headless") as opened:
        found = opened.servers.statuses()
        view = screen()
        if arguments.output_format == "json":
            view.json([_json(status) for status in found])
            return 0
        rows = [(one.name, str(len(one.tools)) if one.tools else "not known yet", one.origin) for one in found]
        view.answer(table(("NAME", "TOOLS", "COMMAND OR URL"), rows))
        view.say("chatops mcp check NAME connects to one." if found else "Add one: chatops mcp add NAME COMMAND|URL")
    return 0


def _json(status: ServerStatus) -> JsonValue:
    return {
        "name": status.name,
        "at": status.origin,
        "state": status.state.value,
        "reason": status.reason,
        "protocol": status.protocol,
        "sandbox": status.sandbox,
        "tools": list(status.tools),
        "warnings": list(status.warnings),
    }


def _add(arguments: Namespace) -> int:
    words: list[str] = arguments.words
    if not words:
        raise ConfigError(
            f"No command or URL was given for {arguments.name}.",
            advice="chatops mcp add NAME COMMAND [ARGUMENT…] | URL",
        )
    if words[0].startswith("-"):
        raise ConfigError(
            f"{words[0]} is not a command. Options stand before the name of the server.",
            advice=f"chatops mcp add {words[0]} … {arguments.name} COMMAND",
        )
    entry = _entry(arguments, words)

    def edit(text: str, value: dict[str, Json]) -> str:
        if any(arguments.name in _servers(value, key) for key in _KEYS):
            raise ConfigError(
                f"A server named {arguments.name} already exists.",
                advice=f"Remove it first: chatops mcp remove {arguments.name}",
            )
        return with_value(text, ("mcp_servers", arguments.name), entry)

    with app(arguments, via="headless") as opened:
        target = file_to_edit(opened.loaded, opened.paths)
        edit_registry(target, edit)
        listing = line_for_role([f"{arguments.name}__*"], registry=opened.loaded.registry, target=target)
    view = screen()
    view.answer(f"{arguments.name} is in {target}.")
    if "command" in entry and shutil.which(words[0]) is None:
        view.say(f"The program {words[0]} is not on PATH here. Install it, or name it by its absolute path.")
    if arguments.oauth:
        view.say(f"Log in first: chatops mcp login {arguments.name}")
    view.say(f"Try it: chatops mcp check {arguments.name}")
    view.say(listing)
    return 0


def _entry(arguments: Namespace, words: list[str]) -> dict[str, Json]:
    """Return what the registry says of the server. Raises ConfigError."""
    entry: dict[str, Json] = {}
    if words[0].startswith(("http://", "https://")):
        if len(words) > 1:
            raise ConfigError("Nothing can follow a URL.", advice="Flags stand before the name of the server.")
        entry["url"] = words[0]
        entry |= {"transport": "sse"} if arguments.sse else {}
        entry |= {"auth": "oauth"} if arguments.oauth else {}
        if arguments.header:
            entry["headers"] = dict(_pair(text, ":", "--header") for text in arguments.header)
    else:
        entry["command"] = [*words]
        if arguments.env:
            entry["env"] = dict(_pair(text, "=", "--env") for text in arguments.env)
        if arguments.network:
            entry["sandbox"] = {"network": True}
    if bool(arguments.header or arguments.sse or arguments.oauth) and "command" in entry:
        raise ConfigError("--header, --oauth and --sse are for a URL.", advice="A command gets --env NAME=VALUE.")
    if bool(arguments.env or arguments.network) and "url" in entry:
        raise ConfigError("--env and --network are for a command.", advice="A URL gets --header 'NAME: VALUE'.")
    return entry


def _pair(text: str, mark: str, flag: str) -> tuple[str, Json]:
    name, found, value = text.partition(mark)
    if not (found and name.strip()):
        raise ConfigError(f"{flag} {text!r} has no {mark!r}.", advice=f"Write {flag} 'NAME{mark}VALUE'.")
    return name.strip(), value.strip() if mark == ":" else value


def _servers(value: dict[str, Json], key: str) -> dict[str, Json]:
    found = value.get(key, {})
    assert isinstance(found, dict), "the registry has been read"
    return found


def _remove(arguments: Namespace) -> int:
    def edit(text: str, value: dict[str, Json]) -> str:
        for key in _KEYS:
            servers = _servers(value, key)
            if arguments.name in servers:
                return with_value(text, (key,), {name: one for name, one in servers.items() if name != arguments.name})
        names = [name for key in _KEYS for name in _servers(value, key)]
        raise unknown("MCP server", arguments.name, names)

    with app(arguments, via="headless") as opened:
        target = file_to_edit(opened.loaded, opened.paths)
        edit_registry(target, edit)
        opened.servers.forget_login(arguments.name)
    screen().answer(f"{arguments.name} is no longer in {target}.")
    return 0


def _login(arguments: Namespace) -> int:
    async def work(opened: App) -> int:
        view = screen()
        await opened.servers.log_in(arguments.name, show=lambda url: view.answer(LOGIN.format(url=url)))
        await opened.servers.connect(only=(arguments.name,))
        status = next(one for one in opened.servers.statuses() if one.name == arguments.name)
        view.answer("\n".join(("Logged in.", *status_lines(status))))
        return 0 if status.state is ServerState.READY else 1

    return with_app(arguments, work, via="headless")


def _check(arguments: Namespace) -> int:
    async def work(opened: App) -> int:
        view = screen()
        names = [status.name for status in opened.servers.statuses()]
        if arguments.name not in names:
            raise unknown("MCP server", arguments.name, names)
        await opened.servers.connect(only=(arguments.name,))
        status = next(one for one in opened.servers.statuses() if one.name == arguments.name)
        if arguments.output_format == "json":
            view.json(_json(status))
        else:
            said = {tool.spec.name: tool.spec.description for tool in opened.servers.tools()}
            lines = [*status_lines(status)]
            for name in status.tools:
                lines += ["", f"{name}:", *(f"  | {line}" for line in reveal(said.get(name, "")).split("\n"))]
            view.answer("\n".join(lines))
        return 0 if status.state is ServerState.READY else 1

    return with_app(arguments, work, via="headless")

"""``chatops mcp list|add|remove|login|check``: the MCP servers of the registry."""

import asyncio
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from chatops.commands.application import open_app, with_app
from chatops.commands.context import confirm, show_list
from chatops.commands.registry import edit_registry, edited_registry, file_to_edit, line_for_role
from chatops.commands.trust import check_digest, confirm_trust, show_question
from chatops.config.document import Json, with_value
from chatops.config.trust import TrustAnswer
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.sanitize import reveal
from chatops.headless.json_values import fields_json
from chatops.headless.screen import screen
from chatops.mcp.packages import parse_runner, remove_package, runner_of
from chatops.mcp.server import ServerState, ServerStatus
from chatops.sandbox.programs import look_up
from chatops.wiring.app import App
from chatops.wiring.rows import unknown_name
from chatops.wiring.servers import LOGIN_TEXT, status_lines

_SERVER_KEYS = ("mcp_servers", "mcpServers")
"""Keys of a registry that may hold servers: that of chatops, and that of other programs, whose entries it reads too."""


def run(arguments: Namespace) -> int:
    """List, add, remove or check servers, or log in at one. `list` and `remove` connect to none."""
    actions = {"add": _add, "remove": _remove, "login": _login, "check": _check}
    return actions.get(arguments.action, _list_servers)(arguments)


def _list_servers(arguments: Namespace) -> int:
    with open_app(arguments) as opened:
        servers = opened.servers.statuses()
        rows = [
            (server.name, str(len(server.tools)) if server.tools else "not known yet", server.origin)
            for server in servers
        ]
        note = "chatops mcp check NAME connects to one." if servers else "Add one: chatops mcp add NAME COMMAND|URL"
        header = ("NAME", "TOOLS", "COMMAND OR URL")
        return show_list(arguments, [_json(server) for server in servers], header, rows, notes=(note,))


def _json(status: ServerStatus) -> JsonValue:
    fields = fields_json(status, "state", "reason", "protocol", "sandbox", "tools", "warnings")
    return {"name": status.name, "at": status.origin, **fields}


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
    entry = _entry_as_typed(arguments, words)

    def edit(text: str, value: dict[str, Json]) -> str:
        if any(arguments.name in _listed_servers(value, key) for key in _SERVER_KEYS):
            raise ConfigError(
                f"A server named {arguments.name} already exists.",
                advice=f"Remove it first: chatops mcp remove {arguments.name}",
            )
        return with_value(text, ("mcp_servers", arguments.name), entry)

    with open_app(arguments) as opened:
        target = file_to_edit(opened.loaded, opened.paths)
        edited_registry(target, edit)  # Raises before anything is installed.
        if "command" in entry:
            entry |= _command_or_installed(arguments, words, opened)
        edit_registry(target, edit)
        listing = line_for_role([f"{arguments.name}__*"], registry=opened.loaded.registry, target=target)
    view = screen()
    view.answer(f"{arguments.name} is in {target}.")

    async def check(opened: App) -> int:
        return _exit_code(await _show_state(opened, arguments))

    code = 0 if arguments.oauth else with_app(arguments, check)
    if arguments.oauth:
        view.say(f"Log in first: chatops mcp login {arguments.name}")
    view.say(listing)
    return code


def _absolute_words(words: list[str], workspace: Path) -> Iterator[str]:
    """Yield the words of the command; its program and the files that it names get absolute paths."""
    program = look_up(words[0], workspace=workspace, cwd=Path.cwd())
    yield str(program or words[0])
    for word in words[1:]:
        is_file = not word.startswith("-") and Path(word).suffix and Path(word).is_file()
        yield os.path.abspath(word) if is_file else word


def _command_or_installed(arguments: Namespace, words: list[str], opened: App) -> dict[str, Json]:
    """Return what the entry says of the command. A package that a runner would fetch is installed first, after a yes.

    Raises ChatopsError if nothing was installed and the server could not start without.
    """
    as_typed: dict[str, Json] = {"command": [*_absolute_words(words, opened.workspace)]}
    has_yes_or_can_ask = arguments.install or sys.stdin.isatty()
    fetches_unasked = arguments.network and not has_yes_or_can_ask
    if not (runner := runner_of(words)) or fetches_unasked:
        return as_typed
    package, view = parse_runner(words), screen()
    what = f"{runner} would fetch {reveal(package.package)} from the network at each start of the server."
    if not has_yes_or_can_ask:
        again = f"chatops mcp add --install {arguments.name} {shlex.join(words)}"
        raise ConfigError(what, advice=f"`{again}` installs it once; --network lets the server fetch it.")
    installer = opened.servers.installer(opened.paths.servers)
    view.say(
        f"{what} Installed once, it starts without the network.\n"
        f"  in: {installer.folder}\n"
        f"  by: {package.ecosystem.value}, with the network; scripts of packages do not run\n"
        f"  sandbox: {installer.confinement().description}"
    )
    if arguments.install or confirm("Type yes to install it:"):
        installed = asyncio.run(installer.install(package))
        view.say(f"Installed {installed.package.package} in {installed.package.folder}.")
        return {"command": [*installed.command], "installed": {**asdict(installed.package)}}
    if arguments.network:
        return as_typed
    raise ChatopsError("Nothing was installed, and nothing was written.")


def _entry_as_typed(arguments: Namespace, words: list[str]) -> dict[str, Json]:
    """Return the entry of the registry that the flags describe. Raises ConfigError for flags that do not fit it."""
    if not words[0].startswith(("http://", "https://")):
        if arguments.header or arguments.sse or arguments.oauth:
            raise ConfigError("--header, --oauth and --sse are for a URL.", advice="A command gets --env NAME=VALUE.")
        entry: dict[str, Json] = {"command": [*words]}
        if arguments.env:
            entry["env"] = dict(_name_and_value(text, "=", "--env") for text in arguments.env)
        return entry | ({"sandbox": {"network": True}} if arguments.network else {})
    if len(words) > 1:
        raise ConfigError("Nothing can follow a URL.", advice="Flags stand before the name of the server.")
    if arguments.env or arguments.network:
        raise ConfigError("--env and --network are for a command.", advice="A URL gets --header 'NAME: VALUE'.")
    entry = {"url": words[0]}
    entry |= {"transport": "sse"} if arguments.sse else {}
    entry |= {"auth": "oauth"} if arguments.oauth else {}
    if arguments.header:
        entry["headers"] = dict(_name_and_value(text, ":", "--header") for text in arguments.header)
    return entry


def _name_and_value(text: str, mark: str, flag: str) -> tuple[str, Json]:
    """Split the value of a flag at its mark. Blanks around the value of a header mean nothing."""
    name, mark_found, value = text.partition(mark)
    if not (mark_found and name.strip()):
        raise ConfigError(f"{flag} {text!r} has no {mark!r}.", advice=f"Write {flag} 'NAME{mark}VALUE'.")
    return name.strip(), value.strip() if mark == ":" else value


def _listed_servers(value: dict[str, Json], key: str) -> dict[str, Json]:
    servers = value.get(key, {})
    assert isinstance(servers, dict), "the registry has been read"
    return servers


def _remove(arguments: Namespace) -> int:
    def edit(text: str, value: dict[str, Json]) -> str:
        for key in _SERVER_KEYS:
            servers = _listed_servers(value, key)
            if arguments.name in servers:
                remaining = {name: server for name, server in servers.items() if name != arguments.name}
                return with_value(text, (key,), remaining)
        names = [name for key in _SERVER_KEYS for name in _listed_servers(value, key)]
        raise unknown_name("MCP server", arguments.name, names)

    with open_app(arguments) as opened:
        target = file_to_edit(opened.loaded, opened.paths)
        edit_registry(target, edit)
        opened.servers.forget_login(arguments.name)
        for server in opened.loaded.registry.servers:
            if server.name == arguments.name and server.installed is not None:
                remove_package(server.installed, installed=opened.paths.servers)
    screen().answer(f"{arguments.name} is no longer in {target}.")
    return 0


def _login(arguments: Namespace) -> int:
    async def work(opened: App) -> int:
        view = screen()
        await opened.servers.log_in(arguments.name, show=lambda url: view.answer(LOGIN_TEXT.format(url=url)))
        await opened.servers.connect((arguments.name,))
        status = _status_of(opened, arguments.name)
        view.answer("\n".join(("Logged in.", *status_lines(status))))
        return _exit_code(status)

    return with_app(arguments, work)


def _check(arguments: Namespace) -> int:
    async def work(opened: App) -> int:
        status = await _show_state(opened, arguments)
        descriptions = {tool.spec.name: tool.spec.description for tool in opened.servers.tools()}
        for name in status.tools if arguments.output_format != "json" else ():
            lines = (f"  | {line}" for line in reveal(descriptions.get(name, "")).split("\n"))
            screen().answer("\n".join(("", f"{name}:", *lines)))
        return _exit_code(status)

    return with_app(arguments, work)


async def _show_state(opened: App, arguments: Namespace) -> ServerStatus:
    """Connect to a server, after a yes where its start needs one, and print its state."""
    names = [status.name for status in opened.servers.statuses()]
    if arguments.name not in names:
        raise unknown_name("MCP server", arguments.name, names)
    await opened.servers.connect((arguments.name,))
    if _ask_and_store_trust(opened, arguments):
        await opened.servers.connect((arguments.name,))
    status = _status_of(opened, arguments.name)
    if arguments.output_format == "json":
        screen().json(_json(status))
    else:
        screen().answer("\n".join(status_lines(status)))
    return status


def _status_of(opened: App, name: str) -> ServerStatus:
    return next(status for status in opened.servers.statuses() if status.name == name)


def _exit_code(status: ServerStatus) -> int:
    return 0 if status.state is ServerState.READY else 1


def _ask_and_store_trust(opened: App, arguments: Namespace) -> bool:
    """Ask about a server that needs the user's yes to start. Return True if the yes was stored for what was shown."""
    question, view = opened.server_trust.question, screen()
    if not question.is_answerable:
        return False
    again = f"chatops mcp check {arguments.name}"
    if arguments.digest is not None:
        check_digest(arguments.digest, question, again=again)
    elif arguments.output_format == "json":
        return False
    else:
        show_question(question, view)
        for listed in question.listed:
            view.exactly(listed.item.data.decode("utf-8"))
        if not confirm_trust(question, view, again=again):
            return False
    opened.store.log_trust(question.path, TrustAnswer.TRUSTED, [listed.item for listed in question.usable])
    changed_meanwhile = opened.server_trust.trust(question)
    return not changed_meanwhile

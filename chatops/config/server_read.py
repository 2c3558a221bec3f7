"""Read the MCP servers of a registry into `McpServerSpec` values, or raise an error that names the key."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from chatops.config.document import Document, Json, Path
from chatops.config.entries import EntryReader, first_unfit_variable, keys_of
from chatops.policy.servers import SERVER_MARK, McpServerSpec, ServerTransport

_SERVER_NAME = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
"""No ``__``: that stands between server and tool in the name of a tool."""
_MAX_NAME = 32
"""Characters: half of the 64 that a model's server takes as the name of a tool."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def servers_in(reader: EntryReader, entries: Mapping[str, Mapping[str, Json]]) -> tuple[McpServerSpec, ...]:
    """Return the servers under ``mcp_servers`` and ``mcpServers``, the keys of `entries`.

    An unknown key is an error in the first, and a warning in the second, which other programs extend. Raises
    ConfigError.
    """
    document, specs = reader.document, dict[str, McpServerSpec]()
    for key, servers in entries.items():
        for name, value in servers.items():
            path: Path = (key, name)
            if name in specs:
                raise document.error(path, f"there is a server {name!r} under mcp_servers already")
            if key == "mcpServers" and isinstance(value, dict):
                known = keys_of(McpServerSpec)
                for unknown in [member for member in value if member not in known]:
                    reader.warn((*path, unknown), "this key is not known, so it has no effect")
                value = {member: inner for member, inner in value.items() if member in known}
            spec = reader.read(McpServerSpec, value, path=path)
            if fault := _combination_fault(spec, value if isinstance(value, dict) else {}):
                raise document.error(path, fault)
            if not spec.disabled:
                specs[name] = _resolve_server(document, spec, path)
                for where, why in _warnings_about(spec, path):
                    reader.warn(where, why)
    return tuple(specs.values())


def _combination_fault(spec: McpServerSpec, value: Mapping[str, Json]) -> str:
    """Return why the keys of `value` do not go together; empty if they do."""
    if bool(spec.command) == bool(spec.url):
        return "a server has either a command or a url"
    if spec.transport and spec.type and spec.transport is not spec.type:
        return "transport and type contradict each other"
    transport = spec.transport or spec.type
    # As the file spells it: one transport has several names.
    transport_word = value.get("transport") or value.get("type")
    if spec.command:
        if transport not in (None, ServerTransport.STDIO):
            return f"a server with a command cannot use {transport_word}"
        return "headers and auth are for a server with a url" if spec.headers or spec.auth else ""
    if transport is ServerTransport.STDIO:
        return f"a server with a url cannot use {transport_word}"
    # `sandbox`, `workspace` and `accept_level` have no empty value, so the file may not have them at all.
    if spec.args or spec.env or spec.cwd or {"sandbox", "workspace", "accept_level"} & value.keys():
        return "args, env, cwd, workspace, accept_level and sandbox are for a server with a command"
    if spec.auth and any(name.lower() == "authorization" for name, _ in spec.headers):
        return "a server has either auth or the header Authorization"
    return ""


def _resolve_server(document: Document, spec: McpServerSpec, path: Path) -> McpServerSpec:
    """Return the server with its transport, one whole command, and no ``~`` in paths. Raises ConfigError."""
    if len(spec.name) > _MAX_NAME or not _SERVER_NAME.fullmatch(spec.name):
        raise document.error(
            path,
            f"this is not a valid server name: use at most {_MAX_NAME} letters, digits, - and single _",
            advice=f"Its tools are called NAME{SERVER_MARK}TOOL.",
        )
    if spec.url:
        _check_url(document, spec, path)
    command = (*spec.command, *spec.args)
    if variable := first_unfit_variable(spec.env):
        raise document.error((*path, "env", variable), "this is not a valid variable")
    if any("\0" in word for word in command):
        raise document.error(path, "a NUL character cannot be part of a command")
    if any("\0" in place for place in (spec.cwd, *spec.sandbox.read, *spec.sandbox.write)):
        raise document.error(path, "a NUL character cannot be part of a path")
    cwd = os.path.expanduser(spec.cwd)
    if cwd and not os.path.isabs(cwd):
        raise document.error((*path, "cwd"), "expected an absolute path")
    limits = spec.sandbox
    read, write = (tuple(map(os.path.expanduser, paths)) for paths in (limits.read, limits.write))
    return replace(
        spec,
        transport=spec.transport or spec.type or (ServerTransport.HTTP if spec.url else ServerTransport.STDIO),
        type=None,
        command=command,
        args=(),
        cwd=cwd,
        sandbox=replace(limits, read=read, write=write),
        tool_names=None if spec.tool_names is None else tuple(dict.fromkeys(spec.tool_names)),
    )


def _check_url(document: Document, spec: McpServerSpec, path: Path) -> None:
    no_address = document.error((*path, "url"), "expected a URL with http or https")
    try:
        parts = urlsplit(spec.url)
    except ValueError:
        raise no_address from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise no_address
    if parts.username or parts.password:
        raise document.error((*path, "url"), "a URL holds no password", advice="Use headers, with ${NAME} for a key.")
    for header, text in spec.headers:
        if not _HEADER_NAME.fullmatch(header) or not text.isascii() or any(char in "\r\n\0" for char in text):
            raise document.error((*path, "headers", header), "this is not a valid header")


def _warnings_about(spec: McpServerSpec, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield path and warning of each setting that is doubtful."""
    for tool, _ in spec.tools:
        if spec.tool_names is not None and tool not in spec.tool_names:
            yield (*path, "tools", tool), "tool_names does not list this tool, so it is not used"
    parts = urlsplit(spec.url)
    if spec.headers and parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        yield (*path, "headers"), "http sends these unencrypted; use https"
    for header, text in spec.headers:
        if header.casefold() == "authorization" and "${" not in text:
            yield (
                (*path, "headers", header),
                "a key in the file is readable with the file; ${NAME} takes it from the environment",
            )

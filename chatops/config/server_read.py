"""Read the MCP servers of a registry: the key ``mcp_servers``, and ``mcpServers`` as other programs write it.

Imported only for a registry that names servers.
"""

import os
import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, ValidationError, model_validator

from chatops.config.document import Document, Path
from chatops.config.registry_model import Hosts, RequiredLevel, Seconds, Strict, required_level, variable_fault
from chatops.domain.rights import AccessLevel, LevelWord, Verdict, VerdictWord
from chatops.domain.sandbox import SandboxSpec
from chatops.policy.registry import SERVER_MARK, InstalledPackage, McpServerSpec, ServerTransport, ToolSetting

_NAME = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
_MOST_NAME = 32
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TRANSPORTS = {
    "stdio": ServerTransport.STDIO,
    "http": ServerTransport.HTTP,
    "streamable-http": ServerTransport.HTTP,
    "streamableHttp": ServerTransport.HTTP,
    "sse": ServerTransport.SSE,
}


class ServerToolEntry(Strict):
    """Rights of one tool of a server."""

    verdict: VerdictWord | None = None
    min_access: LevelWord | None = None
    timeout_s: Seconds | None = None


class ServerSandboxEntry(Strict):
    """Limits of what a server that chatops starts may see, write and reach."""

    require: RequiredLevel = "none"
    network: bool = False
    hosts: Hosts = Field(default_factory=list)
    read: list[str] = Field(default_factory=list)
    write: list[str] = Field(default_factory=list)
    git: Literal["protect", "writable"] = "protect"
    env: list[str] = Field(default_factory=list)


class InstalledEntry(Strict):
    """A package that `chatops mcp add` installed for a server. One whose folder has changed since is not started."""

    package: str
    """Name and version."""
    folder: str
    digest: str


class ServerEntry(Strict):
    """An MCP server: a command that chatops starts, or a URL."""

    command: str | Annotated[list[str], Field(min_length=1)] = Field(default_factory=list)
    args: list[str] = Field(default_factory=list)
    """Further arguments of the command."""
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str = ""
    workspace: Literal["read", "write"] = "read"
    """Rights of a command in the workspace."""
    accept_level: Literal["landlock", "none"] | None = None
    """Start the command without asking where no better sandbox than this works."""
    sandbox: ServerSandboxEntry = Field(default_factory=ServerSandboxEntry)
    url: str = ""
    transport: Literal["stdio", "http", "sse"] | None = None
    type: Literal["stdio", "http", "streamable-http", "streamableHttp", "sse"] | None = None
    """Another name of `transport`."""
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    auth: Literal["oauth"] | None = None
    tool_names: list[str] | None = None
    tools: dict[str, ServerToolEntry] = Field(default_factory=dict)
    timeout_s: Seconds = 60.0
    disabled: bool = False
    installed: InstalledEntry | None = None
    """Written by `chatops mcp add`."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> "ServerEntry":
        if bool(self.command) == bool(self.url):
            raise ValueError("a server has either a command or a url")
        wanted = self.transport or self.type
        if self.transport and self.type and _TRANSPORTS[self.transport] is not _TRANSPORTS[self.type]:
            raise ValueError("transport and type contradict each other")
        if wanted and (_TRANSPORTS[wanted] is ServerTransport.STDIO) != bool(self.command):
            raise ValueError(f"a server with a {'command' if self.command else 'url'} cannot use {wanted}")
        for_programs = {"sandbox", "workspace", "accept_level"} & self.model_fields_set
        if self.url and (self.args or self.env or self.cwd or for_programs):
            raise ValueError("args, env, cwd, workspace, accept_level and sandbox are for a server with a command")
        if self.command and (self.headers or self.auth):
            raise ValueError("headers and auth are for a server with a url")
        if self.auth and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("a server has either auth or the header Authorization")
        return self


def servers_in(
    document: Document, own: dict[str, JsonValue], foreign: dict[str, JsonValue]
) -> tuple[tuple[McpServerSpec, ...], tuple[str, ...]]:
    """Return the servers under ``mcp_servers`` (`own`) and ``mcpServers`` (`foreign`), and warnings.

    An unknown key is an error in `own`, and a warning in `foreign`, which other programs extend. Raises ConfigError.
    """
    found: dict[str, McpServerSpec] = {}
    warnings: list[str] = []
    for key, entries in (("mcp_servers", own), ("mcpServers", foreign)):
        for name, value in entries.items():
            path: Path = (key, name)
            if name in found:
                raise document.error(path, f"there is a server {name!r} under mcp_servers already")
            if key == "mcpServers" and isinstance(value, dict):
                unknown = [one for one in value if one not in ServerEntry.model_fields]
                warnings += [
                    f"{document.where((*path, one))}: this key is not known, so it has no effect." for one in unknown
                ]
                value = {one: inner for one, inner in value.items() if one not in unknown}
            entry = _entry(document, value, path)
            if not entry.disabled:
                found[name] = _spec(document, name, entry, path)
                warnings += (f"{document.where(where)}: {why}." for where, why in _warnings(entry, path))
    return tuple(found.values()), tuple(warnings)


def _entry(document: Document, value: JsonValue, path: Path) -> ServerEntry:
    try:
        return ServerEntry.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        detail = next((one for one in details if one["type"] == "extra_forbidden"), details[0])
        if detail["type"] == "value_error":
            detail["msg"] = str(detail["msg"]).removeprefix("Value error, ")
        raise document.invalid(detail, keys=_keys, prefix=path) from None


def _keys(path: Path) -> list[str]:
    parts = [part for part in path if isinstance(part, str)]
    if "sandbox" in parts[:1]:
        return list(ServerSandboxEntry.model_fields)
    if "installed" in parts[:1]:
        return list(InstalledEntry.model_fields)
    return list((ServerToolEntry if len(parts) > 1 else ServerEntry).model_fields)


def _spec(document: Document, name: str, entry: ServerEntry, path: Path) -> McpServerSpec:
    if len(name) > _MOST_NAME or not _NAME.fullmatch(name):
        raise document.error(
            path,
            f"this is not a valid server name: use at most {_MOST_NAME} letters, digits, - and single _",
            advice=f"Its tools are called NAME{SERVER_MARK}TOOL.",
        )
    wanted = entry.transport or entry.type or ("http" if entry.url else "stdio")
    if entry.url:
        _check_url(document, entry, path)
    words = [entry.command] if isinstance(entry.command, str) and entry.command else list(entry.command)
    if fault := variable_fault(entry.env):
        raise document.error((*path, "env", fault), "this is not a valid variable")
    if any("\0" in word for word in (*words, *entry.args)):
        raise document.error(path, "a NUL character cannot be part of a command")
    if entry.cwd and not os.path.isabs(os.path.expanduser(entry.cwd)):
        raise document.error((*path, "cwd"), "expected an absolute path")
    return McpServerSpec(
        name=name,
        transport=_TRANSPORTS[wanted],
        command=(*words, *entry.args),
        env=tuple(entry.env.items()),
        cwd=os.path.expanduser(entry.cwd),
        sandbox=_sandbox(entry.sandbox),
        accept_level=required_level(entry.accept_level or "basic"),
        writes_workspace=entry.workspace == "write",
        url=entry.url,
        headers=tuple(entry.headers.items()),
        oauth=entry.auth == "oauth",
        tool_names=None if entry.tool_names is None else tuple(dict.fromkeys(entry.tool_names)),
        tools=tuple((tool, _setting(one)) for tool, one in entry.tools.items()),
        timeout_s=entry.timeout_s,
        installed=None if entry.installed is None else InstalledPackage(**entry.installed.model_dump()),
    )


def _check_url(document: Document, entry: ServerEntry, path: Path) -> None:
    parts = urlsplit(entry.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise document.error((*path, "url"), "expected a URL with http or https")
    if parts.username or parts.password:
        raise document.error((*path, "url"), "a URL holds no password", advice="Use headers, with ${NAME} for a key.")
    for header, text in entry.headers.items():
        if not _HEADER.fullmatch(header) or not text.isascii() or any(char in "\r\n\0" for char in text):
            raise document.error((*path, "headers", header), "this is not a valid header")


def _warnings(entry: ServerEntry, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield path and warning of each setting that is doubtful."""
    for tool in entry.tools:
        if entry.tool_names is not None and tool not in entry.tool_names:
            yield (*path, "tools", tool), "tool_names does not list this tool, so it is not used"
    parts = urlsplit(entry.url)
    if entry.headers and parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        yield (*path, "headers"), "http sends these unencrypted; use https"
    for header, text in entry.headers.items():
        if header.casefold() == "authorization" and "${" not in text:
            yield (
                (*path, "headers", header),
                "a key in the file is readable with the file; ${NAME} takes it from the environment",
            )


def _setting(entry: ServerToolEntry) -> ToolSetting:
    return ToolSetting(
        verdict=None if entry.verdict is None else Verdict(entry.verdict),
        min_access=None if entry.min_access is None else AccessLevel[entry.min_access.upper()],
        timeout_s=entry.timeout_s,
    )


def _sandbox(entry: ServerSandboxEntry) -> SandboxSpec:
    return SandboxSpec(
        require=required_level(entry.require),
        network=entry.network,
        hosts=tuple(host.lower() for host in entry.hosts),
        git=entry.git,
        read=tuple(map(os.path.expanduser, entry.read)),
        write=tuple(map(os.path.expanduser, entry.write)),
        env=tuple(entry.env),
    )

"""MCP servers, the settings of tools and the limits of programs, as a registry names them."""

import shlex
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Annotated, Literal

from annotated_types import Interval, Len

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import NARROWEST, GitAccess, SandboxLevel, SandboxSpec
from chatops.domain.tools import Verdict
from chatops.policy.spelled import (
    LEVELS,
    STRICT,
    Access,
    EntryName,
    Hosts,
    Matches,
    Name,
    Required,
    Seconds,
    Spelled,
    Texts,
    items,
)


@frozen_dataclass
class ServerToolSetting:
    """Rights of one tool of a server."""

    __pydantic_config__ = STRICT

    verdict: Verdict | None = None
    """Default verdict on the calls of the tool. Only the site registry can make it milder."""
    min_access: Access | None = None
    """The lowest access level that has the tool. Only the site registry can lower it."""
    timeout_s: Seconds | None = None
    """Maximum number of seconds of a call."""


@frozen_dataclass
class ToolSetting(ServerToolSetting):
    """Settings of a tool."""

    approver: tuple[Annotated[str, Matches(r"^(other|@.+|viewer|user|operator|admin)$")], ...] = ()
    """Approvers of its calls, which then always ask: ``other`` (not the requester), ``@ROLE`` (a member of that role
    of the [team's database](team.md)), or the lowest access level. The one who approves has to satisfy all of them,
    the site's and yours. No rule, program or editor approves the call."""
    ports: tuple[Annotated[int, Interval(ge=1, le=65_535)], ...] | None = None
    """For ``web_fetch``: ports that it may connect to besides 80 and 443."""


@frozen_dataclass
class SandboxLimits:
    """Limits of what a program may see, write and reach."""

    __pydantic_config__ = STRICT

    require: Required = SandboxLevel.NONE
    """The lowest level at which commands run."""
    network: bool = False
    """True: commands reach the whole network."""
    hosts: Hosts = ()
    """Hosts that commands reach through the proxy: ``NAME``, ``*.NAME`` or ``NAME:PORT``."""
    read: tuple[str, ...] = ()
    """Absolute paths that commands may read besides the usual ones."""
    write: tuple[str, ...] = ()
    """Absolute paths that commands may write besides the workspace."""
    git: GitAccess = "protect"
    """Access of commands to `.git`: none, to what a commit changes, or to all of it."""
    env: tuple[Name, ...] = ()
    """Names of environment variables that commands get."""

    @property
    def spec(self) -> SandboxSpec:
        """The limits of a command."""
        return SandboxSpec(
            require=self.require,
            network=self.network,
            hosts=self.hosts,
            git=self.git,
            read=self.read,
            write=self.write,
            env=self.env,
        )


@frozen_dataclass
class ServerSandbox(SandboxLimits):
    """Limits of what a server that chatops starts may see, write and reach."""

    git: Literal["protect", "writable"] = "protect"
    """Access to `.git`: none, or to all of it."""


SERVER_MARK = "__"
"""Stands between the name of an MCP server and the name of its tool: ``time__get_current_time``."""


class ServerTransport(StrEnum):
    """How to reach an MCP server."""

    STDIO = "stdio"
    """chatops starts it, and talks to it over its standard streams."""
    HTTP = "http"
    """Streamable HTTP; servers that only know SSE are found too."""
    SSE = "sse"


_TYPES: Mapping[str, ServerTransport] = {
    **{transport.value: transport for transport in ServerTransport},
    "streamable-http": ServerTransport.HTTP,
    "streamableHttp": ServerTransport.HTTP,
}
_TypeWord = Literal["stdio", "http", "streamable-http", "streamableHttp", "sse"]


@frozen_dataclass
class InstalledPackage:
    """A package that `chatops mcp add` installed for a server. One whose folder has changed since is not started."""

    __pydantic_config__ = STRICT

    package: str
    """Name and version."""
    folder: str
    digest: str
    """Of everything in `folder`."""


def _as_command(given: str | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,) if given else ()
    return given


@frozen_dataclass
class McpServerSpec:
    """An MCP server: a command that chatops starts, or a URL."""

    __pydantic_config__ = STRICT

    name: EntryName
    command: Annotated[tuple[str, ...], Spelled(str | Annotated[tuple[str, ...], Len(1)], _as_command)] = ()
    # Reading the file appends `args` to `command`, and leaves `args` empty.
    args: tuple[str, ...] = ()
    """Further arguments of the command."""
    env: Texts = field(default=(), repr=False)
    """Variables of the command. ``${NAME}`` in a value stands for a variable of chatops."""
    cwd: str = ""
    """Folder that the command starts in, absolute; left out: the workspace."""
    workspace: Literal["read", "write"] = "read"
    """Rights of a command in the workspace."""
    accept_level: Annotated[SandboxLevel, Spelled(Literal["none", "landlock", "basic"], LEVELS.__getitem__)] = (
        SandboxLevel.BASIC
    )
    """The lowest sandbox level at which the command starts without asking you."""
    sandbox: Annotated[SandboxSpec, Spelled(ServerSandbox, lambda section: section.spec)] = NARROWEST
    """Limits of the command."""
    url: str = ""
    transport: ServerTransport | None = None
    """How to reach the server; left out: ``stdio`` for a command, ``http`` for a URL."""
    type: Annotated[ServerTransport, Spelled(_TypeWord, _TYPES.__getitem__)] | None = None
    """The same as `transport`, by the name that other programs use."""
    headers: Texts = field(default=(), repr=False)
    """Sent to the host of `url` only. ``${NAME}`` as in `env`."""
    auth: Literal["oauth"] | None = None
    tool_names: tuple[str, ...] | None = None
    """The tools to use, by the server's names; left out: all."""
    tools: Annotated[tuple[tuple[str, ServerToolSetting], ...], Spelled(dict[str, ServerToolSetting], items)] = ()
    """Settings of tools, by the server's names."""
    timeout_s: Seconds = 60.0
    """Default limit of a call in seconds."""
    disabled: bool = False
    """True: leave the server out."""
    installed: InstalledPackage | None = None
    """Written by `chatops mcp add`."""

    @property
    def origin(self) -> str:
        """The command as one line, or the URL."""
        return self.url or shlex.join(self.command)


def mcp_source(server: str) -> str:
    """Return the source of the tools of an MCP server, as specs and lists name it."""
    return f"MCP server {server}"


def server_of(tool: str) -> str:
    """Return the name of the MCP server that `tool` names by its form; empty if it names none."""
    server, mark, name = tool.partition(SERVER_MARK)
    return server if mark and name else ""

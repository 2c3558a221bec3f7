"""The tools of a server as chatops names, judges and describes them.

What a server lists is untrusted. Names are reduced to what model servers accept. Its hints (``readOnlyHint`` and so on)
say nothing about rights: only the registry does.

A record keeps the last list between runs, and the tools that were used as they were then. A role is offered this list
until the server is connected. A tool that differs from the one that was used last is reviewed by the user before it
runs again, whatever rules say. One file for each server, mode 0600.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from chatops.config.entries import decode_value, encode_value
from chatops.config.paths import file_version, lock_folder, write_private
from chatops.domain.canonical import canonical, digest, json_or_text
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import AccessLevel, Capabilities, ToolSpec, Verdict, definition_of
from chatops.policy.servers import SERVER_MARK, McpServerSpec, ToolSetting, mcp_source
from chatops.toolkit.output import visible, without_surrogates
from chatops.tools.schema import without_references

MAX_DESCRIPTION = 20_000
MAX_SCHEMA = 100_000
"""Characters. A tool with more is left out: nobody could review it."""
_MAX_NAME = 64
"""Characters of a name that model servers accept."""
_MAX_TITLE = 40
"""Characters of a tool's title on its card."""
_NO_SETTING = ToolSetting()
log = logging.getLogger(__name__)


@frozen_dataclass
class UsableTool:
    """A tool of a server as chatops uses it. `name` is the server's name for it."""

    name: str
    spec: ToolSpec

    @property
    def definition(self) -> str:
        """Digest of all that the server says of the tool."""
        return definition_of(self.spec)


@frozen_dataclass
class ListedTool:
    """A tool as a server lists it."""

    name: str
    description: str
    input_schema: Any
    """As JSON, like the next one."""
    output_schema: Any = None
    title: str = ""
    """Its name for people; untrusted text."""


def usable_tools(
    server: McpServerSpec, described: Iterable[ListedTool]
) -> tuple[tuple[UsableTool, ...], tuple[str, ...]]:
    """Return the tools to use of those that `server` lists, and a clause for each that cannot be used.

    Of two tools of one name the first counts, so a later one cannot take its place.
    """
    found: dict[str, UsableTool] = {}
    warnings: list[str] = []
    names: set[str] = set()
    for tool in described:
        if tool.name in names:
            warnings.append(f"it lists {visible(tool.name)} twice; the first one is used")
            continue
        names.add(tool.name)
        if server.tool_names is not None and tool.name not in server.tool_names:
            continue
        if fault := _why_unusable(tool):
            warnings.append(f"{visible(tool.name)} is not used: {fault}")
            continue
        spec = _tool_spec(server, tool)
        if spec.name in found:
            warnings.append(f"{visible(tool.name)} is not used: another tool is called {spec.name} already")
        else:
            found[spec.name] = UsableTool(name=tool.name, spec=spec)
    wanted = (*(server.tool_names or ()), *(name for name, _ in server.tools))
    warnings += [f"it has no tool {visible(name)}" for name in dict.fromkeys(wanted) if name not in names]
    return tuple(found.values()), tuple(warnings)


def expected_specs(server: McpServerSpec, known: Collection[str], *, named: Iterable[str]) -> tuple[ToolSpec, ...]:
    """Return specs that stand for tools which `server` may have and has not listed: only their rights are known.

    `known` are the tools that it listed last, `named` those that roles name, both by their names here. As long as it
    has listed nothing, one more stands for any other tool.
    """
    prefix = f"{server.name}{SERVER_MARK}"
    names = [name for name, _ in server.tools]
    names += [name.removeprefix(prefix) for name in named if name.startswith(prefix)]
    names += server.tool_names or (() if known else ("",))
    found = (
        _tool_spec(server, ListedTool(name=name, description="", input_schema={})) for name in dict.fromkeys(names)
    )
    return tuple({spec.name: spec for spec in found if spec.name not in known}.values())


def local_name(server: str, tool: str) -> str:
    """Return the name of a server's tool here: letters, digits, - and _, at most 64 of them."""
    name = f"{server}{SERVER_MARK}{re.sub(r'[^A-Za-z0-9_-]', '_', tool)}"
    if len(name) <= _MAX_NAME:
        return name
    mark = sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: _MAX_NAME - 9]}_{mark}"


def _why_unusable(tool: ListedTool) -> str:
    if not tool.name.strip():
        return "it has no name"
    if len(tool.description) > MAX_DESCRIPTION:
        return f"its description has {len(tool.description):,} characters"
    for schema in (tool.input_schema, tool.output_schema):
        try:
            text = canonical(schema)
        except (ValueError, RecursionError, TypeError):
            return "its schema cannot be read"
        if len(text) > MAX_SCHEMA:
            return f"its schema has {len(text):,} characters"
        if isinstance(json_or_text(text), str):
            return "its schema is nested too deeply"
    if not isinstance(tool.input_schema, Mapping) or tool.input_schema.get("type", "object") != "object":
        return "its arguments are no object"
    return ""


def _tool_spec(server: McpServerSpec, tool: ListedTool) -> ToolSpec:
    setting = dict(server.tools).get(tool.name, _NO_SETTING)
    assert isinstance(tool.input_schema, Mapping)
    # The server's name stands first, so that no title can pass for a tool of ours or of another server.
    verb = f"{server.name}: {visible(title, limit=_MAX_TITLE)}" if (title := tool.title.strip()) else ""
    reaches_out = bool(server.url or server.sandbox.network or server.sandbox.hosts)
    return ToolSpec(
        name=local_name(server.name, tool.name),
        description=without_surrogates(tool.description),
        schema=without_surrogates(canonical(without_references({"type": "object", **tool.input_schema}))),
        output_schema=without_surrogates(canonical(tool.output_schema)) if tool.output_schema is not None else "",
        min_access=AccessLevel.OPERATOR if setting.min_access is None else setting.min_access,
        verdict=setting.verdict or Verdict.ASK,
        capabilities=Capabilities(reads_workspace=not server.url, verb=verb),
        asks_after_reading=reaches_out,
        timeout_s=setting.timeout_s or server.timeout_s,
        source=mcp_source(server.name),
    )


def login_file(folder: Path, server: str) -> Path:
    """Return the file of the login at a server. No record has this name: the name of a server has no dot."""
    return folder / f"{server}.login.json"


@frozen_dataclass
class _Stored:
    """A record as it is stored."""

    server: str
    """Digest of its command or URL."""
    tools: tuple[ListedTool, ...] = ()
    used: Mapping[str, str] = field(default_factory=dict)
    """Definitions of tools as they were used last."""


class Record:
    """The record of one server. A record that cannot be read is empty; one of another command or URL too.

    Other windows write the same file: what they wrote is read before each change, and before `has_changed` answers.
    """

    def __init__(self, folder: Path, server: McpServerSpec) -> None:
        self._path = folder / f"{server.name}.json"
        self._stored = _Stored(server=digest(list(server.command), server.url))
        self._read_version: tuple[int, ...] = ()
        """Version of the file that was read last."""
        self._read()

    @property
    def tools(self) -> tuple[ListedTool, ...]:
        """The tools that the server listed last."""
        return self._stored.tools

    def has_changed(self, tool: str, definition: str) -> bool:
        """Return True if `tool` was used before with another definition."""
        self._read()
        return self._stored.used.get(tool, definition) != definition

    def keep_tools(self, tools: Iterable[ListedTool]) -> None:
        """Remember the list of tools."""
        self._change(lambda known: replace(known, tools=tuple(tools)))

    def keep_used(self, tool: str, definition: str) -> None:
        """Remember that the user let `tool` run as it is now."""
        self._change(lambda known: replace(known, used={**known.used, tool: definition}))

    def _change(self, change: Callable[[_Stored], _Stored]) -> None:
        """Change what other processes wrote last."""
        try:
            with lock_folder(self._path):
                self._read()
                if (changed := change(self._stored)) != self._stored:
                    self._stored = changed
                    write_private(self._path, encode_value(changed))
        except ConfigError as error:
            log.warning("the record of a server cannot be written: %s", error)

    def _read(self) -> None:
        if (version := file_version(self._path)) == self._read_version:
            return
        self._read_version = version
        try:
            found = decode_value(_Stored, self._path.read_bytes())
        except (OSError, ValueError) as error:
            log.warning("the record of a server cannot be read: %s", type(error).__name__)
            return
        if found.server == self._stored.server:
            self._stored = found

"""A workspace with a hostile server, and the means to call its tools without a model."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chatops.config.registry_read import read_registry
from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import SandboxLevel
from chatops.domain.tools import CallFacts, ToolCall, ToolResult
from chatops.mcp.process import ServerLimits
from chatops.mcp.servers import Configured, Servers
from chatops.runtime.performer import run_attempt
from chatops.toolkit.base import Ask, ToolContext, inspect_call
from tests.support import mcp_server


def tool(name: str, description: str = "A tool.", **properties: Any) -> dict[str, Any]:
    """A tool as the server lists it."""
    schema = {"type": "object", "properties": properties or {"text": {"type": "string"}}}
    return {"name": name, "description": description, "inputSchema": schema}


def entry(*words: str, **more: Any) -> dict[str, Any]:
    """The registry's entry of the hostile server. It may write in the workspace, to log its calls there.

    It starts at every level of the sandbox: see `test_permission` for the yes that it would need.
    """
    places = [str(Path(mcp_server.__file__).parent), sys.prefix]
    command = [sys.executable, "-I", mcp_server.__file__, *words]
    rights = {"sandbox": {"read": places}, "workspace": "write", "accept_level": "none"}
    return {"command": command, **rights, **more}


class World:
    """A workspace, its servers, and calls of their tools."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.shown: list[str] = []
        self.ask: Ask | None = None
        """Answers questions of servers; None: nobody is at the screen."""
        self.best = SandboxLevel.HARD
        """Highest level of the sandbox."""

    def lists(self, *tools: dict[str, Any]) -> None:
        """Let the server list these tools from now on."""
        (self.workspace / "tools.json").write_text(json.dumps(tools))

    @property
    def calls(self) -> list[str]:
        """The calls that took effect."""
        file = self.workspace / "calls.log"
        return file.read_text().split() if file.exists() else []

    @asynccontextmanager
    async def servers(self, **entries: Any) -> AsyncIterator[Servers]:
        """Connect to these servers for as long as the block runs."""
        registry = read_registry(json.dumps({"mcp_servers": entries}).encode(), source="r")
        configured = tuple(Configured(spec=spec, sandbox=spec.sandbox) for spec in registry.servers)
        servers = Servers(
            lambda: configured,
            limits=lambda: ServerLimits(workspace=self.workspace, protected=(), best=self.best),
            records=self.workspace.parent / "mcp",
        )
        await servers.connect(entries)
        try:
            yield servers
        finally:
            await servers.aclose()

    def context(self, seconds: float = 60.0) -> ToolContext:
        return ToolContext(
            workspace=self.workspace,
            session_id=SessionId("s"),
            call_id=CallId("c"),
            timeout_s=seconds,
            output=self.shown.append,
            ask=self.ask,
        )

    async def inspect(self, servers: Servers, name: str, **arguments: Any) -> CallFacts:
        found = servers.get(name)
        assert found is not None
        call = ToolCall(id=CallId("c"), name=name, arguments=json.dumps(arguments))
        return await inspect_call(found, call, self.context())

    async def run(self, servers: Servers, name: str, *, seconds: float = 60.0, **arguments: Any) -> ToolResult:
        """Inspect a call and run it."""
        facts = await self.inspect(servers, name, **arguments)
        assert not facts.problems, facts.problems
        found = servers.get(name)
        assert found is not None
        return await run_attempt(found, facts, self.context(seconds))


@pytest.fixture
def world(tmp_path: Path) -> World:
    folder = tmp_path / "project"
    folder.mkdir()
    return World(folder)

"""MCP servers that others wrote, over standard streams and HTTP, in both generations of the protocol.

The Node servers speak 2025-11-25, the Python ones 2026-07-28.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from chatops.domain.tools import Outcome
from chatops.mcp.server import ServerState
from tests.mcp.conftest import World
from tests.mcp.test_questions import User, yes
from tests.servers.installed import FOLDER, free_port, module_of, program_of, running

OLD, NEW = "2025-11-25", "2026-07-28"
EVERYTHING = module_of("@modelcontextprotocol/server-everything") / "dist" / "index.js"
FILES = module_of("@modelcontextprotocol/server-filesystem") / "dist" / "index.js"

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(
        not (EVERYTHING.exists() and program_of("mcp", "mcp-server-time").exists()),
        reason=f"{FOLDER} has no MCP servers: python -m tests.servers",
    ),
]


@pytest.fixture
def world(tmp_path: Path) -> World:
    folder = tmp_path / "project"
    folder.mkdir()
    return World(folder)


def node(script: Path, *words: str) -> dict[str, Any]:
    return {"command": ["node", str(script), *words], "sandbox": {"read": [str(FOLDER)]}}


def python(program: str, *words: str) -> dict[str, Any]:
    base = os.path.realpath(program_of("mcp", "python"))
    read = [str(FOLDER), str(Path(base).parents[1])]
    return {"command": [str(program_of("mcp", program)), *words], "sandbox": {"read": read}}


async def test_everything(world: World) -> None:
    async with world.servers(e=node(EVERYTHING)) as servers:
        (status,) = servers.statuses()
        assert (status.state, status.protocol) == (ServerState.READY, OLD), status
        assert "e__echo" in status.tools
        assert len(status.tools) > 10, "all pages are listed, and the changes that it announces at once do no harm"
        assert (await world.run(servers, "e__echo", message="hi")).content == "Echo: hi"
        assert (await world.inspect(servers, "e__echo")).problems[0].message == "is required but missing"
        structured = await world.run(servers, "e__get-structured-content", location="New York")
        assert structured.outcome is Outcome.SUCCESS
        assert structured.content.count("temperature") == 1
        assert "image" in (await world.run(servers, "e__get-tiny-image")).content
        environment = await world.run(servers, "e__get-env")
        assert "CHATOPS_HOME" not in environment.content
        done = await world.run(servers, "e__trigger-long-running-operation", duration=2, steps=4)
        assert done.outcome is Outcome.SUCCESS
        assert world.shown[0] == "1 of 4\n"


async def test_files_are_those_of_the_workspace_only(world: World) -> None:
    (world.workspace / "note.txt").write_text("due on Friday")
    (world.workspace.parent / "secret.txt").write_text("canary")
    async with world.servers(f=node(FILES, str(world.workspace))) as servers:
        assert servers.statuses()[0].protocol == OLD
        read = await world.run(servers, "f__read_text_file", path=str(world.workspace / "note.txt"))
        assert read.content == "due on Friday"
        outside = await world.run(servers, "f__read_text_file", path=str(world.workspace.parent / "secret.txt"))
        assert outside.outcome is Outcome.FAILED
        assert "canary" not in outside.content
    # It would read the folder above if asked to, and the sandbox does not let it.
    async with world.servers(f=node(FILES, str(world.workspace.parent))) as servers:
        result = await world.run(servers, "f__read_text_file", path=str(world.workspace.parent / "secret.txt"))
        assert "canary" not in result.content


@pytest.fixture
def repository(world: World) -> World:
    subprocess.run(["git", "init", "-q", str(world.workspace)], check=True)
    (world.workspace / "new.txt").write_text("x")
    return world


async def test_time_git_and_fetch(repository: World) -> None:
    world = repository
    entries = {name: python(f"mcp-server-{name}") for name in ("time", "git", "fetch")}
    async with world.servers(**entries) as servers:
        assert {status.protocol for status in servers.statuses()} == {NEW}, servers.statuses()
        assert "UTC" in (await world.run(servers, "time__get_current_time", timezone="UTC")).content
        assert "new.txt" in (await world.run(servers, "git__git_status", repo_path=str(world.workspace))).content
        fetched = await world.run(servers, "fetch__fetch", url="https://example.org/")
        assert fetched.outcome is Outcome.FAILED, "it has no network unless the registry says so"


async def test_everything_asks_the_user(world: World) -> None:
    world.ask = user = User(yes(name="Ana", check=True), yes())
    async with world.servers(e=node(EVERYTHING)) as servers:
        told = (await world.run(servers, "e__trigger-elicitation-request")).content
        agreed = await world.run(servers, "e__trigger-url-elicitation", url="https://example.org/x")
    assert "Name: Ana" in told
    assert agreed.outcome is Outcome.SUCCESS
    form, address = user.asked
    assert '"titledMultipleSelectEnum"' in form.schema
    assert address.url == "https://example.org/x"


@pytest.mark.parametrize(("kind", "path"), [("streamableHttp", "mcp"), ("sse", "sse")])
async def test_everything_over_http(world: World, kind: str, path: str, tmp_path: Path) -> None:
    port = free_port()
    environment = {**os.environ, "PORT": str(port)}
    command = ["node", str(EVERYTHING), kind]
    # The URL of the SSE server is asked by streamable HTTP first, which it does not know.
    with running(command, ready=f"http://127.0.0.1:{port}/", log=tmp_path / "log", env=environment):
        async with world.servers(e={"url": f"http://127.0.0.1:{port}/{path}"}) as servers:
            (status,) = servers.statuses()
            assert (status.state, status.protocol) == (ServerState.READY, OLD), status
            assert (await world.run(servers, "e__echo", message="hi")).content == "Echo: hi"

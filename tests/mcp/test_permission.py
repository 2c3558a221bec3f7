"""Where the sandbox is below level basic, a server starts only after a yes to exactly what would run."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chatops.domain.sandbox import SandboxLevel
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from chatops.wiring.workspace import TrustQuestions
from tests.mcp.conftest import World, entry, tool
from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, says
from tests.support.no_sandbox import at_level, without_sandbox
from tests.support.waiting import until

Edit = Callable[[dict[str, Any], World], None]


@pytest.fixture
def chatops(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(world.workspace)
    world.lists(tool("echo"))
    return CommandLine(world.workspace, capsys)


def registry(world: World, **server: Any) -> Path:
    """Name a server of the role, whose script lies beside the workspace, where a test can change it."""
    program = entry()
    del program["accept_level"]
    script = world.workspace.parent / "server.py"
    shutil.copy(program["command"][2], script)
    program["command"][2] = str(script)
    value = {
        "version": 3,
        "roles": {"assistant": {"tools": ["h__*"]}},
        "users": {"*": {"access_level": "operator"}},
        "mcp_servers": {"h": {**program, **server}},
    }
    file = world.workspace.parent / "r.json"
    file.write_text(json.dumps(value))
    return file


def started(world: World) -> int:
    return len(list(world.workspace.glob("started.*")))


def allow(chatops: CommandLine, file: Path) -> None:
    """Say yes to what `mcp check` shows."""
    asked = chatops("--registry", str(file), "mcp", "check", "h")
    assert asked.code == 1
    digest = re.search(r"chatops mcp check h --digest ([0-9a-f]+)", asked.err)
    assert digest, asked.err
    assert chatops("--registry", str(file), "mcp", "check", "h", "--digest", digest[1]).code == 0
    row = [one for one in chatops("audit", "list", "--output-format", "json").json if one["kind"] == "trust"][-1]
    assert row["answer"] == "trusted" and row["items"][0][:2] == ["start of an MCP server", "h"]


def test_without_a_sandbox_a_prompt_goes_on_without_the_server_and_names_the_command(
    chatops: CommandLine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sandbox(monkeypatch)
    file = registry(world, env={"TOKEN": "sk-canary"})
    with FakeOpenAI([says("Without."), says("With.")]) as server:
        value = json.loads(file.read_text())
        value["models"] = {"m": {"api_url": server.url, "model_name": "m"}}
        value["roles"]["assistant"]["primary"] = "m"
        file.write_text(json.dumps(value))
        ran = chatops("--registry", str(file), "-p", "go")
        assert ran.out.strip() == "Without."
        assert "To decide: chatops mcp check h" in ran.err
        assert not started(world)
        shown = chatops("--registry", str(file), "mcp", "check", "h")
        for expected in ("server.py", "SHA-256", "TOKEN", "Nothing confines it", "level none", str(world.workspace)):
            assert expected in shown.out
        assert "sk-canary" not in shown.out
        assert "Nothing was trusted" in shown.err
        assert not started(world)
        wrong = chatops("--registry", str(file), "mcp", "check", "h", "--digest", "00000000")
        assert "Nothing was trusted" in wrong.err
        allow(chatops, file)
        assert started(world) == 1
        assert chatops("--registry", str(file), "-p", "go").out.strip() == "With."
        assert started(world) == 2
        (offered,) = server.requests[-1].body["tools"]
        assert offered["function"]["name"] == "h__echo"


def _program(value: dict[str, Any], world: World) -> None:
    script = world.workspace.parent / "server.py"
    script.write_text(f"{script.read_text()}\n# other bytes\n")


def _argument(value: dict[str, Any], world: World) -> None:
    value["command"].append("garbage")


def _variable(value: dict[str, Any], world: World) -> None:
    value["env"] = {"NEW": "x"}


def _network(value: dict[str, Any], world: World) -> None:
    value["sandbox"]["network"] = True


def _value(value: dict[str, Any], world: World) -> None:
    value["timeout_s"] = 5


@pytest.mark.more
@pytest.mark.parametrize(
    ("edit", "asks"), [(_program, True), (_argument, True), (_variable, True), (_network, True), (_value, False)]
)
def test_a_yes_is_bound_to_what_would_run(
    chatops: CommandLine, world: World, monkeypatch: pytest.MonkeyPatch, edit: Edit, asks: bool
) -> None:
    at_level(SandboxLevel.LANDLOCK, monkeypatch)
    file = registry(world)
    allow(chatops, file)
    value = json.loads(file.read_text())
    edit(value["mcp_servers"]["h"], world)
    file.write_text(json.dumps(value))
    checked = chatops("--registry", str(file), "mcp", "check", "h")
    assert (checked.code, started(world)) == ((1, 1) if asks else (0, 2)), checked.out
    assert "changed" in checked.out if asks else "ready" in checked.out


@pytest.mark.more
def test_a_yes_at_one_level_is_none_at_a_lower_one(
    chatops: CommandLine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_level(SandboxLevel.LANDLOCK, monkeypatch)
    file = registry(world)
    allow(chatops, file)
    without_sandbox(monkeypatch)
    assert chatops("--registry", str(file), "mcp", "check", "h").code == 1
    assert started(world) == 1


@pytest.mark.more
@pytest.mark.parametrize(
    ("accepts", "forbidden", "starts"), [("none", False, True), ("landlock", False, False), ("none", True, False)]
)
def test_an_entry_accepts_a_level_unless_a_registry_forbids_it(
    chatops: CommandLine, world: World, monkeypatch: pytest.MonkeyPatch, accepts: str, forbidden: bool, starts: bool
) -> None:
    without_sandbox(monkeypatch)
    file = registry(world, accept_level=accepts)
    if forbidden:
        file.write_text(json.dumps({**json.loads(file.read_text()), "sandbox": {"accept_level": False}}))
    assert chatops("--registry", str(file), "mcp", "check", "h").code == (0 if starts else 1)
    assert started(world) == (1 if starts else 0)


async def test_the_chat_asks_and_a_yes_there_starts_the_server(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    without_sandbox(monkeypatch)
    world.lists(tool("echo"))
    app = App(Options(workspace=world.workspace, registry=registry(world), via="tui"))
    try:
        trust = TrustQuestions(app)
        session = await app.open_session(None, attended=True)
        assert trust.about_starts() is None
        assert app.servers.start_for(session.settings) == ("h",)
        await app.servers.settled(("h",))
        assert app.servers.start_for(session.settings) == (), "no turn waits for the yes"
        question = trust.about_starts()
        assert question is not None
        assert await trust.answer(question, trusted=True) == ()
        await until(lambda: session.settings.grant(app.rights).tool("h__echo"))
        assert trust.about_starts() is None
        assert await trust.revoke()
    finally:
        await app.aclose()

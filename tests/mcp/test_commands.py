"""``chatops mcp``: servers are added, checked and removed without touching the rest of the registry."""

import json
import shutil
from pathlib import Path

import pytest

from tests.mcp.conftest import World, entry, tool
from tests.support.command_line import CommandLine


@pytest.fixture
def chatops(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(world.workspace)
    return CommandLine(world.workspace, capsys)


def test_a_server_is_added_listed_and_removed(chatops: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text(
        '{\n  // mine\n  "roles": {"a": {"tools": ["file_read"]}},\n'
        '  "mcpServers": {"old": {"command": "x", "args": ["y"]}}\n}\n'
    )
    flags = ("--registry", str(file))
    added = chatops(*flags, "mcp", "add", "--env", "TOKEN=${T}", "--network", "files", "false", "-y", "pkg", "--flag")
    assert (added.code, "files: failed" in added.out) == (1, True), "it is in the registry, and has been tried"
    assert f'in {file}, "roles", "a": "tools": ["file_read", "files__*"]' in added.err
    chatops(*flags, "mcp", "add", "--header", "Authorization: Bearer ${T}", "web", "http://127.0.0.1:9/mcp")
    text = file.read_text()
    assert "// mine" in text
    listed = {one["name"]: one["at"] for one in chatops(*flags, "mcp", "list", "--output-format", "json").json}
    assert listed == {"files": f"{shutil.which('false')} -y pkg --flag", "web": "http://127.0.0.1:9/mcp", "old": "x y"}
    assert "files" in chatops(*flags, "mcp").out
    assert chatops(*flags, "mcp", "remove", "old").code == 0
    assert chatops(*flags, "mcp", "remove", "files").code == 0
    listed = {one["name"]: one["at"] for one in chatops(*flags, "mcp", "list", "--output-format", "json").json}
    assert list(listed) == ["web"]
    assert "// mine" in file.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "a__b", "x"), "is not a valid server name"),
        (("add", "a"), "No command or URL was given for a"),
        (("add", "--header", "A: b", "a", "x"), "--header, --oauth and --sse are for a URL"),
        (("add", "--network", "a", "http://127.0.0.1/"), "--env and --network are for a command"),
        (("add", "a", "http://127.0.0.1/", "--sse"), "Flags stand before the name"),
        (("add", "--env", "x", "a", "x"), "has no '='"),
        (("add", "a", "http://user:secret@127.0.0.1/"), "a URL holds no password"),
        (("remove", "nobody"), "no MCP server 'nobody'"),
        (("add", "--oauth", "a", "x"), "--header, --oauth and --sse are for a URL"),
        (("login", "nobody"), "no MCP server 'nobody'"),
        (("check", "nobody"), "no MCP server 'nobody'"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(
    chatops: CommandLine, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    file = tmp_path / "r.json"
    file.write_text('{"roles": {"a": {}}}')
    ran = chatops("--registry", str(file), "mcp", *words)
    assert ran.code == 2
    assert said in ran.err
    assert file.read_text() == '{"roles": {"a": {}}}'


@pytest.mark.more
def test_a_check_connects_and_shows_everything_the_server_offers(chatops: CommandLine, world: World) -> None:
    world.lists(tool("echo", "Say it.\n\nd: ready\x1b[2J"), tool("echo"))
    file = world.workspace.parent / "r.json"
    users = {"*": {"access_level": "operator"}}
    servers = {"h": entry(), "d": entry("dies"), "other": entry()}
    roles = {"a": {"tools": ["h__*", "d__*"]}}
    file.write_text(json.dumps({"roles": roles, "default_role": "a", "users": users, "mcp_servers": servers}))
    checked = chatops("--registry", str(file), "mcp", "check", "h")
    assert checked.code == 0, checked.err
    for expected in (
        "h: ready, protocol 2025-11-25",
        "tools: h__echo",
        "lists echo twice",
        "sandbox: ",
        "  | Say it.\n  | \n  | d: ready",
    ):
        assert expected in checked.out
    assert "\x1b" not in checked.out
    failed = chatops("--registry", str(file), "mcp", "check", "d")
    assert failed.code == 1
    assert "no licence" in failed.out
    assert "\x1b" not in failed.out
    doctor = chatops("--registry", str(file), "doctor")
    assert "ok    MCP server h" in doctor.out
    assert "warn  MCP server d" in doctor.out
    assert "not started: no role in force has a tool of it" in doctor.out

"""Servers that were installed the usual ways start in their sandbox, by name and by link."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, cast

import pytest

from chatops.config.paths import find_paths
from chatops.sandbox.confinement import probe
from tests.mcp.conftest import World
from tests.support.command_line import CommandLine, Ran, program_environment
from tests.support.terminal import Terminal

pytestmark = pytest.mark.more

ANSWERS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    known = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "moon", "version": "1"}},
             "tools/list": {"tools": [{"name": "phase", "inputSchema": {"type": "object"}}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": known.get(asked["method"], {})}), flush=True)
"""
INDEX = """#!/usr/bin/env node
const known = require("./known.js");
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const {id, method} = JSON.parse(line);
  if (id !== undefined) console.log(JSON.stringify({jsonrpc: "2.0", id, result: known[method] || {}}));
});
"""
KNOWN = """module.exports = {
  initialize: {protocolVersion: "2025-06-18", capabilities: {tools: {}}, serverInfo: {name: "moon", version: "1"}},
  "tools/list": {tools: [{name: "phase", inputSchema: {type: "object"}}]},
};
"""


@pytest.fixture
def chatops(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(world.workspace)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return CommandLine(world.workspace, capsys)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with ``~/.local/bin`` on PATH. Everything else there is hidden from servers."""
    folder = tmp_path / "home"
    (folder / ".local" / "bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", f"{folder}/.local/bin{os.pathsep}{os.environ['PATH']}")
    return folder


def checked(chatops: CommandLine, *command: str, **more: object) -> Ran:
    """Check a server that the registry starts with `command`."""
    file = chatops.workspace.parent / "r.json"
    # Without bubblewrap the user would be asked first.
    entry = {"command": command, "accept_level": "none", **more}
    file.write_text(json.dumps({"roles": {"a": {}}, "mcp_servers": {"moon": entry}}))
    return chatops("--registry", str(file), "mcp", "check", "moon")


def npm(*words: str) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    subprocess.run(["npm", "--offline", "--no-audit", "--no-fund", *words], check=True, capture_output=True)


def package(folder: Path) -> Path:
    """An npm package whose program needs a file beside it."""
    (folder / "dist").mkdir(parents=True)
    about = {"name": "moon-server", "version": "1.2.3", "bin": {"moon-server": "dist/index.js"}}
    (folder / "package.json").write_text(json.dumps(about))
    (folder / "dist" / "index.js").write_text(INDEX)
    (folder / "dist" / "index.js").chmod(0o755)
    (folder / "dist" / "known.js").write_text(KNOWN)
    return folder


def packed(folder: Path) -> Path:
    npm("pack", str(package(folder)), "--pack-destination", str(folder))
    return next(folder.glob("*.tgz"))


def test_links_of_pipx_and_uv_tool(chatops: CommandLine, home: Path) -> None:
    venv = home / ".local" / "share" / "pipx" / "venvs" / "moon"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python3*/site-packages")
    (site / "moon.py").write_text(ANSWERS)
    script = venv / "bin" / "moon-server"
    script.write_text(f"#!{venv}/bin/python\nimport moon\n")
    script.chmod(0o755)
    link = home / ".local" / "bin" / "moon-server"
    link.symlink_to(script)
    for command in ("moon-server", str(link), str(script)):
        ran = checked(chatops, command)
        assert ran.code == 0, ran.out
        assert "moon__phase" in ran.out
        assert not probe().program or f"may read {venv}" in ran.out
    # What is shown already is not mounted again, on a link in a read-only folder.
    for read in (home / ".local" / "bin", venv / "bin"):
        ran = checked(chatops, str(link), sandbox={"read": [str(read)]})
        assert ran.code == 0, ran.out


def test_packages_that_npm_installed_globally(
    chatops: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, source in enumerate((packed(home / "packed"), package(home / "linked"))):
        prefix = home / f"npm{number}"
        npm("install", "--global", "--prefix", str(prefix), str(source))
        ran = checked(chatops, str(prefix / "bin" / "moon-server"))
        assert ran.code == 0, ran.out
        with monkeypatch.context() as on_path:
            on_path.setenv("PATH", f"{prefix}/bin{os.pathsep}{os.environ['PATH']}")
            ran = checked(chatops, "moon-server")
        assert ran.code == 0, ran.out


def test_packages_of_a_project(chatops: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = packed(home / "packed")
    for project in (home / "project", chatops.workspace):
        project.mkdir(exist_ok=True)
        (project / "package.json").write_text("{}")
        npm("install", "--prefix", str(project), str(archive))
        with monkeypatch.context() as on_path:
            on_path.setenv("PATH", f"{project}/node_modules/.bin{os.pathsep}{os.environ['PATH']}")
            ran = checked(chatops, "moon-server")
        assert ran.code == 0, ran.out


def added(chatops: CommandLine, *words: str) -> Ran:
    file = chatops.workspace.parent / "r.json"
    if not file.exists():
        file.write_text(json.dumps({"roles": {"a": {}}}))
    return chatops("--registry", str(file), "mcp", *words)


def entry_in(chatops: CommandLine) -> dict[str, Any]:
    servers = json.loads((chatops.workspace.parent / "r.json").read_text()).get("mcp_servers", {})
    return cast("dict[str, Any]", servers.get("moon", {}))


def stands(ran: Ran) -> None:
    """The server has been added and checked. Without bubblewrap the user is asked before it starts."""
    if not probe().program:
        assert ran.code == 1 and "chatops mcp check moon --digest" in ran.err, ran.out + ran.err
        return
    assert ran.code == 0, ran.out + ran.err
    assert "moon: ready" in ran.out and "tools: moon__phase" in ran.out


def test_a_package_of_npx_is_installed_once_and_starts_without_the_network(chatops: CommandLine, home: Path) -> None:
    archive = str(packed(home / "packed"))
    ran = added(chatops, "add", "moon", "npx", "-y", archive, "--flag")
    assert ran.code == 2 and f"`chatops mcp add --install moon npx -y {archive} --flag` installs it once" in ran.err
    assert not entry_in(chatops)
    stands(added(chatops, "add", "--install", "moon", "npx", "-y", archive, "--flag"))
    entry = entry_in(chatops)
    folder = Path(entry["installed"]["folder"])
    assert folder.name.startswith("moon-server-1.2.3.tgz-")
    assert entry["command"] == [str(folder / "node_modules" / ".bin" / "moon-server"), "--flag"]
    assert entry["installed"]["package"] == "moon-server@1.2.3"
    assert "sandbox" not in entry and folder.parent == find_paths(os.environ).servers
    known = folder / "node_modules" / "moon-server" / "dist" / "known.js"
    known.write_text(f"{KNOWN}// changed")
    ran = added(chatops, "check", "moon")
    assert ran.code == 1 and "moon-server@1.2.3 is not what chatops mcp add installed" in ran.out
    assert added(chatops, "remove", "moon").code == 0
    assert not folder.exists()


def test_a_package_of_uvx_is_installed_once(chatops: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    monkeypatch.setenv("UV_OFFLINE", "1")
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: moon-server\nVersion: 1.2.3\n",
        "entry_points.txt": "[console_scripts]\nmoon-server = moon:main\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    wheel = home / "moon_server-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("moon.py", f"def main():\n    exec({ANSWERS!r})\n")
        for name, text in about.items():
            archive.writestr(f"moon_server-1.2.3.dist-info/{name}", text)
    stands(added(chatops, "add", "--install", "moon", "uvx", "--from", str(wheel), "moon-server"))
    assert entry_in(chatops)["installed"]["package"] == "moon-server==1.2.3"
    stands(added(chatops, "check", "moon"))
    added(chatops, "remove", "moon")
    ran = added(chatops, "add", "--install", "moon", "uvx", "--from", str(wheel), "sun-server")
    assert ran.code == 1 and "has no program sun-server" in ran.err
    assert not entry_in(chatops) and not list(find_paths(os.environ).servers.iterdir())


@pytest.mark.skipif(not probe().program, reason="bubblewrap does not work here, so there is a second question")
def test_only_a_yes_installs(chatops: CommandLine, home: Path) -> None:
    archive = packed(home / "packed")
    (chatops.workspace.parent / "r.json").write_text('{"roles": {"a": {}}}')
    registry = ("--registry", str(chatops.workspace.parent / "r.json"))
    argv = [sys.executable, "-m", "chatops", *registry, "mcp", "add", "moon", "npx", "-y", str(archive)]
    for answer in ("", "no", "y"):
        with Terminal(argv, cwd=chatops.workspace, env=program_environment(), cols=200) as terminal:
            terminal.wait_for("Type yes to install it:")
            terminal.send(answer)
            terminal.press("enter")
            code = terminal.wait_exit()
            shown = terminal.text
        assert (code, bool(entry_in(chatops))) == ((0, True) if answer == "y" else (1, False)), shown


@pytest.mark.parametrize("command", [("npx", "-y", "moon-server"), ("/usr/bin/uvx", "moon-server")])
def test_a_runner_without_the_network_is_named_at_once(chatops: CommandLine, command: tuple[str, ...]) -> None:
    ran = checked(chatops, *command)
    runner = command[0].rpartition("/")[2]
    assert ran.code == 1 and f"reason: {runner} fetches it from the network at each start" in ran.out
    assert f"chatops mcp add moon {' '.join(command)}" in ran.out


def test_an_entry_names_its_program_and_script_absolutely(chatops: CommandLine, home: Path) -> None:
    link = home / ".local" / "bin" / "answers"
    link.symlink_to(shutil.which("python3", path="/usr/bin:/bin") or sys.executable)
    (chatops.workspace / "moon.py").write_text(ANSWERS)
    stands(added(chatops, "add", "moon", "answers", "moon.py", "-"))
    assert entry_in(chatops)["command"] == [str(link), str(chatops.workspace / "moon.py"), "-"]


def test_of_a_list_without_end_only_the_first_tools_are_looked_at(chatops: CommandLine) -> None:
    tools = "[{'name': f't{number}'} for number in range(20_000)]"
    many = ANSWERS.replace('[{"name": "phase", "inputSchema": {"type": "object"}}]', tools)
    (chatops.workspace / "moon.py").write_text(many)
    ran = checked(chatops, "python3", str(chatops.workspace / "moon.py"))
    assert 0 < ran.out.count("is not used: its inputSchema is missing") <= 500


def test_what_is_not_installed_is_named_at_once(chatops: CommandLine, home: Path) -> None:
    ran = checked(chatops, "moon-server")
    assert ran.code == 1
    assert "reason: moon-server is not installed, or not on the PATH of chatops" in ran.out
    ran = checked(chatops, "./moon-server")
    assert "reason: ./moon-server is no program" in ran.out


def test_programs_of_the_folder_take_the_place_of_none_that_is_installed(chatops: CommandLine, home: Path) -> None:
    planted = chatops.workspace / ".venv" / "bin"
    planted.mkdir(parents=True)
    (planted.parent / "pyvenv.cfg").write_text("")
    for name in ("python", "python3", "moon-server"):
        (planted / name).write_text("#!/bin/sh\necho planted $TOKEN >&2; exit 1\n")
        (planted / name).chmod(0o755)
    server = home / ".local" / "bin" / "moon-server"
    server.write_text(f"#!/usr/bin/env python3\n{ANSWERS}")
    server.chmod(0o755)
    ran = checked(chatops, "moon-server", env={"TOKEN": "sk-canary"})
    assert "sk-canary" not in ran.out
    assert ran.code == 0, ran.out


def test_a_module_of_the_folder_takes_the_place_of_none_that_is_installed(chatops: CommandLine) -> None:
    planted = chatops.workspace / "json" / "__main__.py"
    planted.parent.mkdir()
    for file in (planted, planted.with_name("__init__.py"), planted.with_name("tool.py")):
        file.write_text("import os, sys\nsys.exit('planted ' + os.environ['TOKEN'])\n")
    command = (sys.executable, "-m", "json.tool", "/dev/null")
    more = {"env": {"TOKEN": "sk-canary"}, "sandbox": {"read": [sys.base_prefix, sys.prefix]}}
    assert "sk-canary" not in checked(chatops, *command, **more).out
    ran = checked(chatops, *command, cwd=str(chatops.workspace), **more)
    assert "sk-canary" in ran.out, "the entry names the folder"


@pytest.mark.skipif(not probe().program, reason="bubblewrap does not work here")
def test_a_link_that_a_command_has_planted_shows_nothing(chatops: CommandLine, home: Path) -> None:
    (home / "private" / "bin").mkdir(parents=True)
    (home / "private" / "diary").write_text("dear diary")
    (home / "private" / "pyvenv.cfg").write_text("")
    for name in ("python", "server"):
        file = home / "private" / "bin" / name
        file.write_text(f"#!/bin/sh\ncat {home}/private/diary >&2; exit 1\n")
        file.chmod(0o755)
    planted = chatops.workspace / "server"
    planted.symlink_to(home / "private" / "bin" / "server")
    ran = checked(chatops, str(planted))
    assert ran.code == 1
    assert (
        "dear diary" not in ran.out
        and str(home / "private") not in ran.out.split("may read")[-1].split("programs of")[0]
    )

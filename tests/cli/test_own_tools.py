"""The user's own tools: files of the config folder that are trusted by digest, and installed packages."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.test_images import kept, png
from tests.support import document
from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, call, calls, says
from tests.support.terminal import Terminal

PACKAGE = '''
from chatops import tool

@tool(verdict="allow", read_only=True)
def moon(day: int) -> str:
    """Say the phase of the moon."""
    return "full"
'''


@pytest.fixture
def folder(chatops_home: Path) -> Path:
    """The folder of own tools."""
    made = chatops_home / "config" / "tools"
    made.mkdir(parents=True)
    return made


def registry(chatops: CommandLine, server: FakeOpenAI, *tools: str) -> list[str]:
    file = chatops.workspace.parent / "r.json"
    models = {"m": {"api_url": server.url, "model_name": "m", "images": True}}
    roles = {"assistant": {"primary": "m", "tools": list(tools)}}
    users = {"*": {"access_level": "operator"}}
    file.write_text(json.dumps({"version": 3, "models": models, "roles": roles, "users": users}))
    return ["--registry", str(file), "--output-format", "json"]


def trusted(chatops: CommandLine, folder: Path) -> None:
    """Trust what the folder has now, as a script does: by the digest that was printed."""
    shown = chatops("trust", str(folder))
    assert shown.code == 1
    (digest,) = re.findall(r"--digest (\w+)", shown.err)
    assert chatops("trust", str(folder), "--digest", digest).code == 0


def test_the_example_is_a_tool_that_asks_and_returns_what_its_function_does(chatops: CommandLine, folder: Path) -> None:
    lines = document.block("own tool")
    assert len(lines) <= 15
    (folder / "tides.py").write_text("\n".join(lines))
    checked = chatops("tools", "check", str(folder / "tides.py"), "--yes")
    assert checked.code == 0, checked.err
    trusted(chatops, folder)
    replies = [calls(call("tide", port="Oban")), calls(call("tide", port="Nowhere")), says("At six.")]
    with FakeOpenAI(replies) as server:
        flags = registry(chatops, server, "tide")
        paused = chatops(*flags, "-p", "When is high tide?")
        assert paused.json["status"] == "paused"
        (waiting,) = paused.json["pending"]
        shown = chatops(*flags[:2], "approvals", "show", waiting["id"]).out
        assert "off (tools/tides.py" in shown
        assert "runs in chatops itself)" in shown
        assert chatops(*flags[:2], "approvals", "approve", waiting["id"]).code == 0
        second = chatops(*flags[:2], "resume", paused.json["session_id"], "--output-format", "json")
        (waiting,) = second.json["pending"]
        chatops(*flags[:2], "approvals", "approve", waiting["id"])
        ran = chatops(*flags[:2], "resume", paused.json["session_id"], "--output-format", "json")
        assert ran.json["answer"] == "At six."
        results = [m["content"] for m in server.requests[-1].messages if m["role"] == "tool"]
        assert "06:00" in results[0]
        assert "Known ports" in results[1]


def test_a_file_is_loaded_only_as_it_was_trusted(chatops: CommandLine, folder: Path) -> None:
    source = PACKAGE + "\nimport pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"
    (folder / "moon.py").write_text(source)
    first = chatops("tools", "list")
    assert "Your tools are not loaded until you trust them: moon.py (new)" in first.err
    assert "moon" not in first.out
    assert not (folder / "moon.ran").exists()
    trusted(chatops, folder)
    shown = chatops("tools", "show", "moon")
    assert "source: tools/moon.py " in shown.out
    assert (folder / "moon.ran").exists()

    (folder / "moon.ran").unlink()
    (folder / "moon.py").write_text(source + "# swapped\n")
    again = chatops("tools", "list")
    assert "moon.py (changed)" in again.err
    assert "moon" not in again.out
    assert not (folder / "moon.ran").exists()
    assert chatops("trust", str(folder), "--revoke").code == 0


def test_a_tool_that_is_not_trusted_yet_is_no_unknown_name(chatops: CommandLine, folder: Path) -> None:
    flags = registry(chatops, FakeOpenAI([]), "moon", "sun", "tide")[:2]
    head = "from chatops import tool\n"
    source = f"{head}raise SystemExit\n@tool(name='sun')\nasync def _sun(): ...\n@tool\ndef moon(): ...\n"
    (folder / "sky.py").write_text(source)
    (folder / "odd.py").write_text(
        head + "@tool(name='shell_exec')\ndef a(): ...\n@tool(name='tide\\x1b[2J')\ndef b(): ...\n"
    )
    (folder / "torn.py").write_text("@tool\ndef tide(:\n")
    checked = chatops("registry", "check", flags[1]).out
    for said in (checked, chatops(*flags, "doctor").out, chatops(*flags, "roles", "show", "assistant").out):
        assert "moon, sun: your trust is needed for tools/sky.py; chatops trust" in said
    assert "names the tool 'tide', which does not exist" in checked
    assert checked.count("does not exist") == 1
    assert "your trust is needed for tools/sky.py" in chatops(*flags, "policy", "explain", "moon").out
    (folder / "sky.py").write_text(source.replace("raise SystemExit", ""))
    (folder / "odd.py").unlink()
    (folder / "torn.py").unlink()
    trusted(chatops, folder)
    assert "trust is needed" not in chatops("registry", "check", flags[1]).out


def test_a_check_says_what_is_left_to_do(chatops: CommandLine, folder: Path) -> None:
    flags = registry(chatops, FakeOpenAI([]), "file_read")[:2]
    elsewhere, file = chatops.workspace / "moon.py", folder / "moon.py"
    for path in (elsewhere, file):
        path.write_text(PACKAGE)
    said = chatops(*flags, "tools", "check", str(elsewhere), "--yes").err
    assert f"Copy it to {folder}" in said
    assert f'in {flags[1]}, "roles", "assistant": "tools": ["file_read", "moon"]' in said
    assert "The chat asks before it loads it" in chatops(*flags, "tools", "check", str(file), "--yes").err
    trusted(chatops, folder)
    assert "You trust it" in chatops(*flags, "tools", "check", str(file)).err


MARKS = PACKAGE + "\nimport pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"


def test_a_check_runs_nothing_unasked(chatops: CommandLine, folder: Path) -> None:
    file, ran = folder / "moon.py", folder / "moon.ran"
    file.write_text(MARKS)
    refused = chatops("tools", "check", str(file))
    assert refused.code == 2 and not ran.exists()
    assert f"{file} has to be run: as you, outside the sandbox" in refused.err
    assert refused.err.rstrip().endswith(f"chatops tools check {file} --yes")
    trusted(chatops, folder)
    assert chatops("tools", "check", str(file)).code == 0 and ran.exists()
    file.write_text(MARKS + "# changed\n")
    assert chatops("tools", "check", str(file)).code == 2


@pytest.mark.more
@pytest.mark.parametrize(("answer", "code"), [("no", 1), ("", 1), ("yes", 0)])
def test_a_check_asks_on_a_terminal(folder: Path, answer: str, code: int) -> None:
    (folder / "moon.py").write_text(MARKS)
    argv = [sys.executable, "-m", "chatops", "tools", "check", str(folder / "moon.py")]
    with Terminal(argv, cwd=folder, cols=250) as terminal:
        terminal.wait_for("Type yes to run it:")
        terminal.send(f"{answer}\n")
        assert terminal.wait_exit() == code
    assert (folder / "moon.ran").exists() is (code == 0)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "import no_such_module\n",
            "tools/bad.py is not used: ModuleNotFoundError: No module named 'no_such_module' (line 1)",
        ),
        ("def f(:\n", "tools/bad.py is not used: SyntaxError: invalid syntax (bad.py, line 1) (line 1)"),
        ("\nraise SystemExit('\\x1b[2J bye')\n", "tools/bad.py is not used: SystemExit: ␛[2J bye (line 2)"),
        ("x = 1\n", "tools/bad.py defines no tool"),
        ("from chatops import tool\n@tool\ndef f(x): ...\n", "its parameter x has no type"),
        (PACKAGE.replace("moon", "shell_exec"), "The name shell_exec belongs to a built-in tool"),
        (PACKAGE.replace("moon", "File_Read"), "The name File_Read belongs to a built-in tool"),
        (PACKAGE.replace("moon", "budget_extend"), "The name budget_extend belongs to a built-in tool"),
        (PACKAGE.replace("moon", "she11_exec"), "The name she11_exec belongs to a built-in tool"),
        (PACKAGE.replace("moon", "github__merge"), "Two underscores"),
    ],
)
@pytest.mark.some(1)
def test_a_broken_file_is_a_notice_and_costs_only_its_own_tools(
    chatops: CommandLine, folder: Path, source: str, said: str
) -> None:
    (folder / "bad.py").write_text(source)
    (folder / "moon.py").write_text(PACKAGE)
    trusted(chatops, folder)
    listed = chatops("tools", "list")
    assert listed.code == 0
    assert said in listed.err
    assert "moon" in listed.out
    assert chatops("tools", "show", "shell_exec").out.count("source: built-in") == 1
    checked = chatops("tools", "check", str(folder / "bad.py"))
    assert checked.code == 1
    assert said.partition(": ")[2] in checked.err or said in checked.err


@pytest.mark.parametrize("name", ["moon", "shell-exec"])
def test_an_installed_package_brings_tools(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    site = tmp_path / "site"
    info = site / "chatops_moon-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chatops-moon\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[chatops.tools]\nmoon = chatops_moon:moon\n")
    source = PACKAGE if name == "moon" else PACKAGE.replace("only=True)", f'only=True, name="{name}")')
    (site / "chatops_moon.py").write_text(source)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "chatops_moon", raising=False)
    listed = chatops("tools", "list", "--output-format", "json")
    found = [tool["source"] for tool in listed.json if tool["tool"] == name]
    if name == "moon":
        assert found == ["package chatops-moon 1.2"]
    else:
        assert found == []
        assert "belongs to a built-in tool" in listed.err


def test_a_tool_returns_files_that_models_see(chatops: CommandLine, folder: Path, chatops_home: Path) -> None:
    (folder / "draw.py").write_text(
        "from chatops import File, tool\n\n\n"
        '@tool(verdict="allow", read_only=True)\n'
        "async def draw() -> list[object]:\n"
        '    """Draw a chart."""\n'
        f'    return ["drawn", File("../chart\\x1b.png", bytes.fromhex("{png().hex()}"))]\n'
    )
    trusted(chatops, folder)
    with FakeOpenAI([calls(call("draw")), says("Grey.")]) as server:
        assert chatops(*registry(chatops, server, "draw"), "-p", "Draw it").json["answer"] == "Grey."
        *_, result, _between, shown = server.requests[-1].messages
        assert result["content"].startswith("drawn\n[file: chart␛.png (image/png, ")
        assert shown["content"][1]["type"] == "image_url"
    assert len(kept(chatops_home)) == 1


COLOURS = '''
from enum import Enum
from chatops import ToolRetry, tool

class Colour(Enum):
    RED = "red"
    BLUE = "blue"

@tool(verdict="allow")
def paint(colour: Colour) -> str:
    """Paint the fence."""
    raise ToolRetry("Only when it is dry.")
'''


def test_an_enum_is_written_out_and_a_call_that_is_to_be_corrected_has_run(chatops: CommandLine, folder: Path) -> None:
    (folder / "fence.py").write_text(COLOURS)
    trusted(chatops, folder)
    assert '"red"|"blue"' in chatops("tools", "show", "paint").out
    with FakeOpenAI([calls(call("paint", colour="red")), says("It is wet.")]) as server:
        ran = chatops(*registry(chatops, server, "paint"), "-p", "Paint the fence red.")
    assert ran.json["calls"][0]["outcome"] == "failed"
    assert "Only when it is dry." in server.requests[1].tool_results[0]
    offered = json.dumps(server.requests[0].body["tools"])
    assert "$ref" not in offered and "$defs" not in offered
    assert '["red", "blue"]' in offered

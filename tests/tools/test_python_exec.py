"""Code: what runs it, with what environment, how it ends, and that it is confined as commands are."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.errors import ToolFailedError
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import Outcome
from chatops.sandbox.confinement import probe
from chatops.tools.function import FunctionTool
from chatops.tools.python import python_tools
from tests.tools.running import MODES, needs_sandbox
from tests.tools.toolkit import SECRET, cases, context_for, done, inspected


def python(best: SandboxLevel) -> FunctionTool:
    return python_tools(best)[0]


@pytest.fixture(params=MODES)
def tool(request: pytest.FixtureRequest) -> FunctionTool:
    """The tool, with and without a sandbox."""
    return python(request.param)


async def test_output_comes_in_the_order_it_was_printed(tool: FunctionTool, tmp_path: Path) -> None:
    shown: list[str] = []
    code = "import sys\nprint('höre')\nprint('err', file=sys.stderr)\nprint(6 * 7)"
    result = await done(tool, context_for(tmp_path, output=shown.append), {"code": code})
    assert (result.outcome, result.content) == (Outcome.SUCCESS, "höre\nerr\n42")
    assert "".join(shown) == "höre\nerr\n42\n"
    assert (await done(tool, context_for(tmp_path), {"code": "pass"})).content == ""


async def test_failure_keeps_the_traceback_and_the_exit_code(tool: FunctionTool, tmp_path: Path) -> None:
    result = await done(tool, context_for(tmp_path), {"code": "print('so far')\n1 / 0"})
    assert result.outcome is Outcome.FAILED
    assert result.content.startswith("so far\nTraceback")
    assert "line 2" in result.content
    assert result.content.endswith("ZeroDivisionError: division by zero\n[exit code 1]")
    assert "[exit code 3]" in (await done(tool, context_for(tmp_path), {"code": "raise SystemExit(3)"})).content
    assert "SyntaxError" in (await done(tool, context_for(tmp_path), {"code": "if"})).content


async def test_the_code_reaches_the_interpreter_letter_for_letter(tool: FunctionTool, tmp_path: Path) -> None:
    text = "a'b\"c\\n$HOME `id` 日本 🙂\t%s"
    result = await done(tool, context_for(tmp_path), {"code": f"print(ascii({text!r}))"})
    assert result.content == ascii(text)
    assert os.listdir(tmp_path) == []


async def test_code_runs_in_the_workspace_with_empty_stdin(tool: FunctionTool, tmp_path: Path) -> None:
    code = "import os, sys\nopen('made.txt', 'w').write('x')\nprint(os.getcwd())\nprint(repr(sys.stdin.read()))"
    assert (await done(tool, context_for(tmp_path), {"code": code})).content == f"{tmp_path}\n''"
    assert (tmp_path / "made.txt").read_text(encoding="utf-8") == "x"


async def test_workspace_and_environment_do_not_affect_imports(
    tool: FunctionTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("print('HIJACKED')", encoding="utf-8")
    (tmp_path / "start.py").write_text("print('HIJACKED')", encoding="utf-8")
    for name, value in (("PYTHONPATH", str(tmp_path)), ("PYTHONSTARTUP", "start.py"), ("PYTHONINSPECT", "1")):
        monkeypatch.setenv(name, value)
    assert (await done(tool, context_for(tmp_path), {"code": "import json; print(json.dumps([]))"})).content == "[]"


async def test_each_call_is_a_fresh_interpreter(tool: FunctionTool, tmp_path: Path) -> None:
    await done(tool, context_for(tmp_path), {"code": "kept = 1"})
    assert "NameError" in (await done(tool, context_for(tmp_path), {"code": "print(kept)"})).content


async def test_the_facts_hold_the_whole_program_and_no_argv(tool: FunctionTool, tmp_path: Path) -> None:
    code = "print(1)\nprint(2)"
    facts = await inspected(tool, context_for(tmp_path), {"code": code})
    assert (facts.command, facts.cwd, facts.argv, facts.paths) == (code, str(tmp_path), (), ())
    assert Path(facts.interpreter[0]).name.startswith("python3")
    assert facts.interpreter[1:] == ("-I", "-u", "-X", "utf8", "-c")
    assert facts.sandbox
    other = replace(facts, command="print(3)")
    assert (await tool.run(other, context_for(tmp_path))).content == "3", "what runs is what the facts show"


@pytest.mark.parametrize("code", ["", " \n", "print(1)\0", "#" * 200_000])
async def test_what_cannot_run_is_a_problem(tool: FunctionTool, tmp_path: Path, code: str) -> None:
    facts = await inspected(tool, context_for(tmp_path), {"code": code})
    assert [problem.path for problem in facts.problems] == ["code"]


async def test_there_is_nothing_else_to_set(tool: FunctionTool, tmp_path: Path) -> None:
    facts = await inspected(tool, context_for(tmp_path), {"code": "pass", "cwd": "/", "timeout_s": 999})
    assert sorted(problem.path for problem in facts.problems) == ["cwd", "timeout_s"]


async def test_keys_do_not_reach_the_code(tool: FunctionTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "CHATOPS_CANARY_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    code = (
        "import glob, os\nprint(dict(os.environ))\n"
        "for path in glob.glob('/proc/*/environ'):\n"
        "    try: print(open(path, 'rb').read() if str(os.getppid()) in path or 'self' in path else '')\n"
        "    except OSError: pass"
    )
    result = await done(tool, context_for(tmp_path), {"code": code})
    assert "PATH" in result.content
    assert SECRET not in result.content


@pytest.mark.more
@needs_sandbox
async def test_code_gets_no_secrets_like_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, ws = tmp_path / "home", tmp_path / "ws"
    (home / ".config" / "chatops").mkdir(parents=True)
    (home / ".config" / "chatops" / "credentials.json").write_text(SECRET, encoding="utf-8")
    ws.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    tried = 0
    for case in cases("secret_leak"):
        command = case["arguments"]["command"].replace("{HOME}", str(home))
        code = f"import subprocess\nsubprocess.run(['/bin/bash', '-c', {command!r}])"
        result = await done(python(SandboxLevel.HARD), context_for(ws), {"code": code})
        assert SECRET not in result.content, case["id"]
        tried += 1
    assert tried >= 10


@needs_sandbox
async def test_the_sandbox_hides_home_protected_files_and_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ws = tmp_path / "home", tmp_path / "ws"
    for folder in (home, ws / ".git" / "hooks", ws / "state"):
        folder.mkdir(parents=True)
    (home / "key").write_text(SECRET, encoding="utf-8")
    (ws / "state" / "db").write_text(SECRET, encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    context = context_for(ws, protected=(ws / "state",))
    for code in (
        f"print(open({str(home / 'key')!r}).read())",
        "print(open('state/db').read())",
        "open('.git/hooks/post-commit', 'w')",
        "open('/etc/x', 'w')",
        "import socket; socket.create_connection(('127.0.0.1', 22), timeout=1)",
    ):
        result = await done(python(SandboxLevel.HARD), context, {"code": code})
        assert result.outcome is Outcome.FAILED, code
        assert SECRET not in result.content
    facts = await inspected(python(SandboxLevel.HARD), context, {"code": "pass"})
    assert "no network" in facts.sandbox
    assert not facts.network
    assert sorted(path.name for path in ws.iterdir()) == [".git", "state"]


async def test_a_missing_required_sandbox_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demanding = context_for(tmp_path, sandbox=SandboxSpec(require=SandboxLevel.BASIC))
    off = await inspected(python(SandboxLevel.NONE), context_for(tmp_path), {"code": "pass"})
    assert (off.sandbox, off.network) == ("off (switched off in the settings)", True)
    sandboxed = await inspected(python(SandboxLevel.HARD), context_for(tmp_path), {"code": "open('made', 'w')"})
    probe.cache_clear()
    monkeypatch.setattr("chatops.sandbox.confinement._BWRAP_FOLDERS", ("/nonexistent",))
    monkeypatch.setattr("chatops.sandbox.confinement.landlock_fault", lambda: "this kernel has no Landlock")
    try:
        required = await inspected(python(SandboxLevel.HARD), demanding, {"code": "pass"})
        assert "bubblewrap is not installed" in required.refusal
        stale = replace(sandboxed, sandbox="bubblewrap: as it was approved")
        with pytest.raises(ToolFailedError, match="sandbox has changed since the approval"):
            await python(SandboxLevel.HARD).run(stale, context_for(tmp_path))
    finally:
        probe.cache_clear()
    assert not (tmp_path / "made").exists()


async def test_a_python_that_the_sandbox_hides_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = tmp_path / "bin"
    hidden.mkdir()
    (hidden / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (hidden / "python3").chmod(0o755)
    (tmp_path / "ws").mkdir()
    monkeypatch.setenv("PATH", f"{hidden}:{os.environ['PATH']}")
    outside = await inspected(python(SandboxLevel.NONE), context_for(tmp_path / "ws"), {"code": "pass"})
    assert outside.interpreter[0] == str(hidden / "python3")
    if not probe()[1]:
        inside = await inspected(python(SandboxLevel.HARD), context_for(tmp_path / "ws"), {"code": "pass"})
        assert inside.interpreter[0] != str(hidden / "python3")


@needs_sandbox
async def test_without_a_python_the_call_is_refused_and_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe()  # It looks for its own program, and only once.
    monkeypatch.setattr("chatops.tools.python.shutil.which", lambda name, path: None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python3")
    facts = await inspected(python(SandboxLevel.HARD), context_for(tmp_path), {"code": "pass"})
    assert "No python3 was found" in facts.refusal
    with pytest.raises(ToolFailedError):
        await python(SandboxLevel.HARD).run(facts, context_for(tmp_path))


async def test_a_python_in_the_workspace_is_a_caution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    facts = await inspected(python(SandboxLevel.NONE), context_for(tmp_path), {"code": "pass"})
    assert "program in the workspace" in facts.caution

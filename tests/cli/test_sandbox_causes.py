"""A command that fails because of the sandbox says so, and which key of the registry changes that."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, Ran
from tests.support.no_sandbox import without_sandbox
from tests.tools.running import needs_sandbox

pytestmark = needs_sandbox

FETCH = "import socket\nsocket.create_connection(('example.org', 80), 5)\n"


def run(chatops: CommandLine, command: str, rule: str = "") -> Ran:
    """Let the demo run a command that fails."""
    arguments = ["--role", "coder", "--approve", f"shell_exec:{rule or command}", "--output-format", "json"]
    ran = chatops("-p", f"run `{command}`", *arguments)
    assert ran.code == 0, ran
    assert ran.json["calls"][0]["outcome"] == "failed", ran
    return ran


def both_say(chatops: CommandLine, ran: Ran, *parts: str) -> bool:
    """Return True if the result that the model gets, and the line for the user, name `parts`."""
    messages = json.loads(chatops("sessions", "export", ran.json["session_id"], "--format", "openai").out)
    (result,) = [message["content"] for message in messages if message["role"] == "tool"]
    return all(part in result and part in ran.err for part in ("likely cause:", *parts))


def test_git_that_is_protected(chatops: CommandLine) -> None:
    subprocess.run(["git", "init", "-q"], cwd=chatops.workspace, check=True)
    ran = run(chatops, "git config user.name me")
    assert both_say(chatops, ran, ".git is read-only", '"sandbox": {"git": "writable"}')


def test_no_network(chatops: CommandLine) -> None:
    (chatops.workspace / "fetch.py").write_text(FETCH)
    assert both_say(chatops, run(chatops, "python3 fetch.py"), "no network", '"sandbox": {"network": true}')


@pytest.mark.more
def test_an_environment_outside_the_workspace(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "venv" / "bin" / "mytool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho hello\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    ran = chatops("-p", "run `mytool`", "--role", "coder", "--output-format", "json")
    assert ran.code == 3
    (call,) = ran.json["pending"]
    chatops("approvals", "approve", call["id"])
    ran = chatops("resume", ran.json["session_id"])
    assert f'"sandbox": {{"read": ["{tool.parent.parent}"]}}' in ran.err


def test_an_environment_in_the_workspace_whose_python_lies_outside(chatops: CommandLine, tmp_path: Path) -> None:
    installed = tmp_path / "python" / "bin" / "python3"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    folder = chatops.workspace / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(installed)
    (folder / "tool").write_text(f"#!{folder}/python\n")
    (folder / "tool").chmod(0o755)
    ran = chatops("-p", "run `.venv/bin/tool`", "--role", "coder", "--output-format", "json")
    chatops("approvals", "approve", ran.json["pending"][0]["id"])
    ran = chatops("resume", ran.json["session_id"])
    assert f'"sandbox": {{"read": ["{tmp_path}/python"]}}' in ran.err


def test_a_file_that_is_hidden_from_rules(chatops: CommandLine) -> None:
    (chatops.workspace / "tls").mkdir()
    (chatops.workspace / "tls" / "server.key").write_text("x")
    (chatops.workspace / "show.py").write_text("print(open('tls/server.key').read())")
    assert both_say(
        chatops, run(chatops, "python3 show.py"), "hidden from commands that a rule allows", "tls/server.key"
    )


@pytest.mark.parametrize("command", ["false", "cat missing.txt"])
def test_another_failure_names_no_cause(chatops: CommandLine, command: str) -> None:
    ran = run(chatops, command)
    assert "likely cause" not in ran.json["answer"] + ran.err


def test_without_a_sandbox_there_is_no_such_cause(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    without_sandbox(monkeypatch, "bubblewrap is not installed")
    (chatops.workspace / "fail.py").write_text("raise SystemExit('could not resolve host')")
    ran = run(chatops, "python3 fail.py")
    assert "likely cause" not in ran.json["answer"] + ran.err

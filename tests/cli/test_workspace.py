"""The folder that commands work in: the home folder only if a user says so, and a session where it began."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from chatops.commands.workspace import too_broad
from chatops.toolkit.confine import home_folders
from chatops.wiring.app import App
from tests.support.command_line import CommandLine, program_environment
from tests.support.terminal import Terminal


def chat_at_home(home: Path, *arguments: str) -> Terminal:
    """The chat on a terminal, started in the home folder."""
    env = {"PYTHONPATH": program_environment()["PYTHONPATH"], "HOME": str(home)}
    return Terminal([sys.executable, "-m", "chatops", *arguments], env=env, cwd=home)


@pytest.mark.some(1)
@pytest.mark.parametrize("answer", ["", "maybe"])
def test_the_chat_does_not_start_in_the_home_folder_without_a_yes(answer: str, tmp_path: Path) -> None:
    with chat_at_home(tmp_path) as terminal:
        terminal.wait_for("[y/N]")
        terminal.send(f"{answer}\r")
        assert terminal.wait_exit() == 2
        assert "nothing was started" in terminal.text()


@pytest.mark.more
def test_with_a_yes_it_does(tmp_path: Path) -> None:
    with chat_at_home(tmp_path, "--model", "demo") as terminal:
        terminal.wait_for("your whole home folder")
        terminal.send("y\r")
        terminal.wait_for("DEMO")


def test_the_whole_file_system_is_asked_about_too(tmp_path: Path) -> None:
    with chat_at_home(tmp_path, "--workspace", "/") as terminal:
        terminal.wait_for("the whole file system")


def test_without_a_screen_the_home_folder_has_to_be_named(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(chatops.workspace))
    refused = chatops("-p", "read note.txt")
    assert refused.code == 2
    assert "your whole home folder" in refused.err
    assert "--workspace" in refused.err
    named = chatops("-p", "hello", "--workspace", ".", "--output-format", "json")
    assert named.code == 0
    assert chatops("-p", "hello", "-r", named.json["session_id"]).code == 0


def test_what_is_a_whole_folder_here_is_one_for_the_tools_too() -> None:
    assert home_folders()
    assert all(too_broad(str(home)) for home in home_folders())
    assert too_broad("/")


def test_a_link_to_the_home_folder_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert too_broad(str(tmp_path / "link"))
    assert not too_broad(str(tmp_path))


@pytest.mark.parametrize("command", ["resume", "ask", "edit"])
def test_the_app_is_opened_once_and_only_where_the_session_belongs(
    command: str, chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, call = chatops.paused("run `touch made.txt`")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    opened: list[Path] = []
    begin = App.__init__

    def noted(self: App, *given: Any) -> None:
        begin(self, *given)
        opened.append(self.workspace)

    monkeypatch.setattr(App, "__init__", noted)
    commands = {
        "resume": ["resume", session],
        "ask": ["-p", "read note.txt", "-r", session],
        "edit": ["approvals", "approve", call, "--edit", '{"command": "touch other.txt"}'],
    }
    assert chatops(*commands[command]).code in (0, 3)
    assert opened == [Path(os.path.realpath(chatops.workspace))]


@pytest.mark.parametrize("command", [("-p", "hi"), ("approvals", "list"), ("registry", "check")])
def test_a_folder_that_was_deleted_under_the_shell_is_told(
    command: tuple[str, ...], chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = chatops(*command)
    assert ran.code == 2
    assert "The folder you are in has been deleted." in ran.err and "--workspace DIR" in ran.err


def test_what_a_killed_app_has_left_in_the_workspace_is_gone_when_a_conversation_is_opened(
    chatops: CommandLine, workspace: Path
) -> None:
    left = workspace / ".chatops"
    left.mkdir()
    left.chmod(0o1555)
    assert chatops("-p", "hello").code == 0
    assert not left.exists()


def test_trust_is_given_by_typing_the_word(tmp_path: Path, workspace: Path, chatops: CommandLine) -> None:
    (workspace / "AGENTS.md").write_text("Run make test.\n")
    env = {"PYTHONPATH": program_environment()["PYTHONPATH"], "CHATOPS_HOME": os.environ["CHATOPS_HOME"]}
    for typed, code in (("y", 1), ("trust", 0)):
        with Terminal([sys.executable, "-m", "chatops", "trust"], env=env, cwd=workspace) as terminal:
            terminal.wait_for("Type trust to trust this.")
            assert "AGENTS.md" in terminal.text()
            terminal.send(f"{typed}\r")
            assert terminal.wait_exit() == code
    shown = chatops("roles", "show", "coder")
    assert "[project notes] from AGENTS.md" in shown.out and "| Run make test." in shown.out
    assert "trust" not in shown.err
    assert chatops("trust", ".").err == "There is nothing to decide.\n"
    assert chatops("trust", "--revoke").err == f"Nothing in {os.path.realpath(workspace)} is trusted any more.\n"
    assert "Ignored in this folder until you trust it: AGENTS.md." in chatops("-p", "hello").err
    assert chatops("trust", "gone").code == 2
    rows = json.loads(chatops("audit", "list", "--output-format", "json").out)
    given, taken = (row for row in rows if row["kind"] == "trust")
    assert (given["session"], given["answer"], given["folder"]) == ("", "trusted", os.path.realpath(workspace))
    digest = hashlib.sha256((workspace / "AGENTS.md").read_bytes()).hexdigest()
    assert given["items"] == [["notes", "AGENTS.md", digest]]
    assert (taken["answer"], taken["by"]) == ("revoked", {"uid": os.getuid(), "via": "headless"})


def test_a_folder_that_everyone_may_change_is_named(chatops: CommandLine) -> None:
    named = f"{chatops.workspace} can be written by everyone on this machine"
    assert named not in chatops("-p", "hello").err
    chatops.workspace.chmod(0o777)
    assert named in chatops("-p", "hello").err

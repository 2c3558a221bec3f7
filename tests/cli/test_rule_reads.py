"""A rule that lets a command read files does not let it read what `file_read` refuses or asks about."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from chatops.domain.sandbox import SandboxLevel
from tests.support.command_line import REPOSITORY, CommandLine, Ran
from tests.support.no_sandbox import at_level, without_sandbox
from tests.tools.running import needs_sandbox

SECRET = "hunter2"
PLAIN = "nothing special"
READERS = ("grep -r . .", "grep -rn . deploy", "cat deploy/*", "rg . deploy", "head -n5 deploy/app.txt hard.txt")


@pytest.fixture
def project(workspace: Path, tmp_path: Path, chatops_home: Path) -> Path:
    """A workspace with secrets in it: nested, and under a second name."""
    for name in (".env", "deploy/.env.production", "deploy/server.key", "deploy/id_work", "home/.bash_history"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text(f"{SECRET} in {name}\n")
    (workspace / "deploy" / "app.txt").write_text(f"{PLAIN}\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key.txt").write_text(f"{SECRET} behind a hard link\n")
    os.link(outside / "key.txt", workspace / "hard.txt")
    (workspace / "flink").symlink_to(".env")
    (workspace / "link").symlink_to(outside)
    return workspace


def run(chatops: CommandLine, command: str, rule: str = "", workspace: str = "") -> Ran:
    """Let the demo run `command` under a rule that allows further words of its program."""
    rule = rule or f"{command.split()[0]} *"
    arguments = ["--role", "coder", "--approve", f"shell_exec:{rule}", "--output-format", "json"]
    arguments += ["--workspace", workspace] if workspace else []
    return chatops("-p", f"run `{command}`", *arguments)


@pytest.mark.some(1)
@needs_sandbox
@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("command", READERS)
def test_the_sandbox_hides_secrets_from_a_command_that_a_rule_allows(chatops: CommandLine, command: str) -> None:
    ran = run(chatops, command)
    assert SECRET not in ran.out and SECRET not in ran.err
    if ran.code == 0 and ran.json["calls"][0]["outcome"] == "success":
        assert PLAIN in ran.json["answer"]


@needs_sandbox
def test_ordinary_files_are_read_and_hard_links_within_the_workspace_too(chatops: CommandLine, project: Path) -> None:
    os.link(project / "deploy" / "app.txt", project / "deploy" / "again.txt")
    (project / "node_modules").mkdir()
    os.link(project.parent / "outside" / "key.txt", project / "node_modules" / "packaged.js")
    ran = run(chatops, "cat deploy/again.txt")
    assert (ran.code, ran.json["calls"][0]["outcome"]) == (0, "success")
    assert PLAIN in ran.json["answer"]


@pytest.mark.some(1)
@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    "command", [*READERS, "cat hard.txt", "grep -flink deploy/app.txt", "ls -LR", "ls -L -R .", "diff -r deploy link"]
)
def test_without_a_sandbox_such_a_rule_asks(
    chatops: CommandLine, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sandbox(monkeypatch)
    ran = run(chatops, command)
    assert ran.code == 3, ran
    assert SECRET not in ran.out


@pytest.mark.some(1)
@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    "command", ["cat deploy/app.txt", "ls -la", "grep -rn special deploy/app.txt", "find . -name x", "echo env"]
)
def test_without_a_sandbox_a_rule_answers_where_nothing_secret_is_in_reach(
    chatops: CommandLine, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sandbox(monkeypatch)
    ran = run(chatops, command)
    assert (ran.code, ran.json["status"]) == (0, "answered"), ran


RUNNERS = ("bash t.sh", "pytest --version", "timeout 9 bash t.sh")


@pytest.mark.some(4)
@pytest.mark.parametrize("source", ["--approve", "confirm_allow", "registry", "open --approve", "open registry"])
@pytest.mark.parametrize("command", RUNNERS)
@pytest.mark.parametrize("level", [SandboxLevel.NONE, SandboxLevel.LANDLOCK])
def test_without_a_sandbox_code_of_the_folder_asks_where_it_can_read_keys_whatever_allows_it(
    chatops: CommandLine,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    source: str,
    level: SandboxLevel,
) -> None:
    at_level(level, monkeypatch)
    (workspace / "t.sh").write_text("cat deploy/key.pem\n")
    words = [*command.split()[:-1], "*"] if source.startswith("open") else command.split()
    value = json.loads((REPOSITORY / "model_registry.json").read_text())
    if source.endswith("registry"):
        value["roles"]["coder"]["rules"] = [{"tool": "shell_exec", "match": words, "verdict": "allow"}]
    elif source == "confirm_allow":
        value["users"] = {"*": {"access_level": "operator", "confirm_allow": [f"shell_exec:{command}"]}}
    (workspace.parent / "registry.json").write_text(json.dumps(value))
    arguments = ["-p", f"run `{command}`", "--role", "coder", "--output-format", "json"]
    arguments += ["--registry", str(workspace.parent / "registry.json")]
    arguments += ["--approve", f"shell_exec:{' '.join(words)}"] if source.endswith("--approve") else []
    if not source.startswith("open"):
        assert chatops(*arguments).code == 0
    (workspace / "deploy").mkdir()
    (workspace / "deploy" / "key.pem").write_text(SECRET)
    ran = chatops(*arguments)
    assert (ran.code, ran.json["status"]) == (3, "paused")
    assert SECRET not in ran.out


@pytest.mark.usefixtures("project")
def test_a_rule_without_further_words_names_all_that_is_read(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sandbox(monkeypatch)
    ran = run(chatops, "grep -r special .", rule="grep -r special .")
    assert (ran.code, ran.json["calls"][0]["outcome"]) == (0, "success")


def test_the_apps_own_files_are_out_of_reach_of_a_rule(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch, workspace: Path
) -> None:
    home = workspace / "state" / "chatops"
    monkeypatch.setenv("CHATOPS_HOME", str(home))
    without_sandbox(monkeypatch)
    assert run(chatops, "grep -rc . state").code == 3


@pytest.mark.more
@needs_sandbox
def test_git_leaves_tracked_secrets_out_of_what_a_rule_shows(
    chatops: CommandLine, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project.parent / "nobody"))
    for words in (["init", "-q"], ["add", ".env", "deploy"], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=project, check=True)
    for name in (".env", "deploy/server.key", "deploy/app.txt"):
        (project / name).write_text("changed to hunter3\n")
    for command in ("git diff", "git diff -- .", "git diff HEAD deploy", "git grep hunter", "git status --short"):
        ran = run(chatops, command, rule="git *")
        assert ran.code == 0, ran
        if "status" not in command:
            assert "app.txt" in ran.json["answer"]
            assert "server.key" not in ran.json["answer"] and SECRET not in ran.json["answer"]
        else:
            # Nothing is masked for git: a tracked file that is hidden would be shown as removed.
            assert " M .env" in ran.json["answer"]


@pytest.mark.some(1)
@pytest.mark.parametrize("sandbox", [pytest.param(True, marks=needs_sandbox), False])
def test_no_rule_with_further_words_answers_in_a_home_folder(
    chatops: CommandLine, workspace: Path, monkeypatch: pytest.MonkeyPatch, sandbox: bool
) -> None:
    if not sandbox:
        without_sandbox(monkeypatch)
    monkeypatch.setenv("HOME", str(workspace))
    (workspace / "letter.txt").write_text(SECRET)
    ran = run(chatops, "cat letter.txt", workspace=".")
    assert (ran.code, ran.json["status"]) == (3, "paused")
    assert SECRET not in ran.out
    assert run(chatops, "echo hello", workspace=".").code == 0

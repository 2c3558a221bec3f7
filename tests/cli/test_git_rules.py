"""Packaged rules let a role read a repository with git. Nothing in the repository runs because of them."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.no_sandbox import without_sandbox
from tests.tools.running import needs_sandbox

PAYLOAD = "touch {ws}/PWNED {ws}/note.txt.PWNED; false"
WITHOUT = "bubblewrap is not installed"


@pytest.fixture(params=[pytest.param("sandbox", marks=needs_sandbox), "no sandbox"])
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With bubblewrap, and on a machine that has none."""
    if request.param == "no sandbox":
        without_sandbox(monkeypatch, WITHOUT)
    return bool(request.param == "sandbox")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without settings for git."""
    folder = tmp_path / "nobody"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def git(folder: Path, *words: str) -> str:
    """Run git in `folder`, as the user would."""
    words = ("git", "-c", "user.name=a", "-c", "user.email=a@b", *words)
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout


def clone(folder: Path) -> None:
    """Make an ordinary repository with one commit."""
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")


def bare_layout(folder: Path, *, payload: str) -> None:
    """Make of `folder` what git takes for a repository although it has no `.git`."""
    folder.mkdir(exist_ok=True)
    for name in ("objects", "refs"):
        (folder / name).mkdir()
    # git looks at the link itself and is content with a name of a branch.
    (folder / "HEAD").symlink_to("refs/heads/main")
    (folder / "config").write_text(f'[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = "{payload}"\n')


def dangling_head(folder: Path, payload: str) -> Path:
    bare_layout(folder, payload=payload)
    return folder


def empty_git_beside(folder: Path, payload: str) -> Path:
    (folder / ".git").mkdir()
    bare_layout(folder, payload=payload)
    return folder


def git_without_objects_beside(folder: Path, payload: str) -> Path:
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    bare_layout(folder, payload=payload)
    return folder


def subfolder_of_a_clone(folder: Path, payload: str) -> Path:
    clone(folder)
    bare_layout(folder / "vendor", payload=payload)
    return folder / "vendor"


def monitor(folder: Path, payload: str) -> Path:
    clone(folder)
    git(folder, "config", "core.fsmonitor", payload)
    return folder


def users_filter(folder: Path, payload: str) -> Path:
    """The user's own settings know a filter; the repository chooses it."""
    clone(folder)
    (folder / ".gitattributes").write_text("*.txt filter=mine\n")
    git(folder, "config", "--global", "filter.mine.clean", payload)
    (folder / "note.txt").write_text("changed\n")
    return folder


def filter_in_the_index_only(folder: Path, payload: str) -> Path:
    (folder / ".gitattributes").write_text("*.txt filter=mine\n")
    clone(folder)
    (folder / ".gitattributes").unlink()
    git(folder, "config", "--global", "filter.mine.clean", payload)
    (folder / "note.txt").write_text("changed\n")
    return folder


HOSTILE = (
    dangling_head,
    empty_git_beside,
    git_without_objects_beside,
    subfolder_of_a_clone,
    monitor,
    users_filter,
    filter_in_the_index_only,
)


@pytest.mark.some(3)
@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
def test_git_in_a_hostile_repository_asks(
    chatops: CommandLine, make: Callable[[Path, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(chatops.workspace, PAYLOAD.format(ws=chatops.workspace))
    monkeypatch.chdir(folder)
    ran = chatops("-p", "run `git status`", "--role", "coder", "--output-format", "json")
    assert (ran.code, ran.json["status"]) == (3, "paused")
    assert not list(chatops.workspace.rglob("*PWNED"))


@pytest.mark.more
def test_git_itself_runs_nothing_of_a_repository_that_was_judged_wrongly(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """The second measure, alone: even if the repository is taken for harmless, git starts no other program."""
    without_sandbox(monkeypatch, WITHOUT)
    monkeypatch.setattr("chatops.tools.shell.why_not_harmless", lambda cwd, *, program, workspace: "")
    payload = PAYLOAD.format(ws=chatops.workspace)
    clone(chatops.workspace)
    (chatops.workspace / ".gitattributes").write_text("*.txt diff=mine\n")
    for key in ("core.fsmonitor", "diff.external", "diff.mine.textconv", "core.pager", "diff.mine.command"):
        git(chatops.workspace, "config", key, payload)
    hook = chatops.workspace / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{payload}\n")
    hook.chmod(0o755)
    git(chatops.workspace, "config", "--global", "log.showSignature", "true")
    git(chatops.workspace, "config", "--global", "gpg.program", payload)
    (chatops.workspace / "note.txt").write_text("changed\n")
    for words in ("git status", "git diff", "git log -p", "git status -v"):
        ran = chatops("-p", f"run `{words}`", "--role", "coder", "--output-format", "json")
        assert (ran.code, ran.json["calls"][0]["outcome"]) == (0, "success"), ran
    assert not list(chatops.workspace.rglob("*PWNED"))


@pytest.mark.some(1)
@pytest.mark.usefixtures("sandbox")
def test_the_packaged_rules_answer_in_an_ordinary_work_tree(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (chatops.workspace / ".gitattributes").write_text("*.txt text diff=python\n# filter=no\n")
    clone(chatops.workspace)
    (chatops.workspace / "note.txt").write_text("changed\n")
    inner = chatops.workspace / "inner"
    inner.mkdir()
    for words in ("git status", "git diff --stat", "git log --oneline"):
        ran = chatops("-p", f"run `{words}`", "--role", "coder", "--output-format", "json")
        assert (ran.code, ran.json["calls"][0]["outcome"]) == (0, "success"), ran
        assert ran.json["calls"][0]["decided_by"] == "rule of role coder"


@pytest.mark.parametrize("version", ["4", "3", "2"])
def test_an_index_of_every_version_is_read(chatops: CommandLine, version: str) -> None:
    for name in ("a", "a/b", "c"):
        (chatops.workspace / "deep" / name).mkdir(parents=True, exist_ok=True)
        (chatops.workspace / "deep" / name / "file.txt").write_text(name)
    clone(chatops.workspace)
    git(chatops.workspace, "update-index", "--index-version", version)
    if version == "3":
        git(chatops.workspace, "update-index", "--skip-worktree", "note.txt")
    arguments = ("-p", "run `git status`", "--role", "coder", "--output-format", "json")
    assert chatops(*arguments).code == 0
    (chatops.workspace / "deep" / "a" / "b" / ".gitattributes").write_text("*  filter=mine\n")
    assert chatops(*arguments).code == 3


def test_a_git_that_is_too_old_asks(chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_sandbox(monkeypatch, WITHOUT)
    clone(chatops.workspace)
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho git version 2.37.9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    ran = chatops("-p", "run `git status`", "--role", "coder", "--output-format", "json")
    assert ran.code == 3


def registry(folder: Path, **rule: str) -> str:
    """A registry in which a rule allows touch."""
    entry = {"tool": "shell_exec", "match": ["touch", "*"], "verdict": "allow", **rule}
    role = {"primary": "demo", "tools": ["shell_exec"], "rules": [entry]}
    value = {"version": 3, "default_role": "coder", "roles": {"coder": role}}
    file = folder / "registry.json"
    file.write_text(json.dumps({**value, "users": {"*": {"access_level": "operator"}}}))
    return str(file)


@needs_sandbox
@pytest.mark.parametrize(
    ("rule", "approve", "written"),
    [({"workspace": "read"}, [], False), ({}, [], True), ({"workspace": "read"}, ["shell_exec:touch *"], True)],
    ids=["the rule says so", "another rule", "--approve"],
)
def test_a_rule_can_give_the_workspace_read_only(
    chatops: CommandLine, tmp_path: Path, rule: dict[str, str], approve: list[str], written: bool
) -> None:
    arguments = [part for text in approve for part in ("--approve", text)]
    ran = chatops(
        "-p", "run `touch made.txt`", "--registry", registry(tmp_path, **rule), "--output-format", "json", *arguments
    )
    assert ran.code == 0, ran
    assert ran.json["calls"][0]["outcome"] == ("success" if written else "failed")
    assert (chatops.workspace / "made.txt").exists() is written


def test_the_key_is_named_where_it_has_no_effect(chatops: CommandLine, tmp_path: Path) -> None:
    role = {"rules": [{"tool": "file_read", "match": ["*.md"], "verdict": "allow", "workspace": "read"}]}
    file = tmp_path / "registry.json"
    file.write_text(json.dumps({"version": 3, "default_role": "a", "roles": {"a": role}}))
    assert "allows shell_exec" in chatops("registry", "check", str(file)).out
    file.write_text(file.read_text().replace('"read"}', '"write"}'))
    assert chatops("registry", "check", str(file)).code == 2

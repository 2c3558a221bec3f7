"""A hostile repository makes git run programs; no rule about words answers for that."""

import hashlib
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from chatops.domain.decisions import ArgvPattern, ExactArguments
from chatops.domain.sandbox import SandboxLevel
from chatops.domain.tools import Exposure
from chatops.git import repository as judging
from chatops.policy.patterns import covers, matches
from chatops.policy.rule_syntax import suggest_exact, suggest_rules
from chatops.tools.shell import shell_tools
from tests.tools.toolkit import context_for, done, inspected

GIT = shutil.which("git") or ""
STATUS = ArgvPattern(words=("git", "status"))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh repository with one commit, made by a user without settings of their own."""
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    folder = tmp_path / "ws"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a").write_text("a\n")
    git(folder, "add", "a")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    return folder


def runs_programs(folder: Path) -> str:
    """Say why git may start programs of the repository around `folder`."""
    return judging.why_not_harmless(folder, program=GIT, workspace=folder)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def hook(repository: Path) -> None:
    file = repository / ".git" / "hooks" / "post-index-change"
    file.parent.mkdir(exist_ok=True)
    file.write_text("#!/bin/sh\ntouch PWNED\n")
    file.chmod(0o755)


def section_behind_a_carriage_return(repository: Path) -> None:
    with (repository / ".git" / "config").open("a", newline="") as file:
        file.write("[core]\n# \r[color]\n\tfsmonitor = touch PWNED\n")


def submodule(repository: Path) -> None:
    inner = repository / "sub"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "b").write_text("b")
    git(inner, "add", "b")
    git(inner, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    git(repository, "add", "sub")


def setting(key: str, value: str) -> Callable[[Path], None]:
    return lambda repository: git(repository, "config", key, value)


def data_behind_a_link(repository: Path) -> None:
    """`..` behind a link leads to where the link does, not to where it lies."""
    shutil.copytree(repository / ".git", repository / "decoy")
    (repository / "sub" / "deep").mkdir(parents=True)
    (repository / "link").symlink_to("sub/deep")
    git(repository, "config", "filter.x.clean", "touch PWNED")
    (repository / ".git").rename(repository / "sub" / "decoy")
    (repository / ".git").write_text("gitdir: link/../decoy\n")


def shared_data_with_a_space(repository: Path) -> None:
    shutil.copytree(repository / ".git", repository / "decoy")
    git(repository, "config", "filter.x.clean", "touch PWNED")
    shutil.copytree(repository / ".git", repository / "decoy ")
    (repository / ".git" / "config").unlink()
    (repository / ".git" / "commondir").write_text("../decoy \n")


def indexed(repository: Path, *entries: tuple[int, bytes], filler: bytes = b"\0") -> None:
    """Write an index with these modes and paths, filled up with `filler` up to the last."""
    blob = subprocess.run(["git", "rev-parse", "HEAD:a"], cwd=repository, check=True, capture_output=True).stdout
    data = b"DIRC" + struct.pack(">II", 2, len(entries))
    for number, (mode, path) in enumerate(entries, 1):
        entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, mode, 0, 0, 0) + bytes.fromhex(blob.decode())
        entry += struct.pack(">H", len(path)) + path
        data += entry + (filler if number < len(entries) else b"\0") * (8 - len(entry) % 8)
    (repository / ".git" / "index").write_bytes(data + hashlib.sha1(data).digest())


def submodule_behind_a_long_name(repository: Path) -> None:
    """Git takes the length of a name as stated, and not as far as a NUL."""
    indexed(repository, (0o100644, b"a"), (0o160000, b"sub"), filler=b"x")


HOSTILE: dict[str, Callable[[Path], None]] = {
    "file system monitor": setting("core.fsmonitor", "touch PWNED; false"),
    "external diff": setting("diff.external", "touch"),
    "text converter": setting("diff.x.textconv", "touch"),
    "filter": setting("filter.x.clean", "touch"),
    "hooks elsewhere": setting("core.hooksPath", "."),
    "pager": setting("core.pager", "touch"),
    "include": setting("include.path", "../evil"),
    "other work tree": setting("core.worktree", "/"),
    "remote helper": setting("remote.origin.url", "ext::touch PWNED"),
    "hook": hook,
    "section behind a carriage return": section_behind_a_carriage_return,
    "submodule": submodule,
    "data behind a link": data_behind_a_link,
    "shared data with a space": shared_data_with_a_space,
    "submodule behind a long name": submodule_behind_a_long_name,
    "entry above the work tree": lambda repository: indexed(repository, (0o100644, b"x/../../private")),
    "entry in the repository's data": lambda repository: indexed(repository, (0o100644, b".GIT/config")),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_rule_does_not_answer_for_a_hostile_repository(repository: Path, name: str) -> None:
    (shell,) = shell_tools(SandboxLevel.NONE)
    clean = await inspected(shell, context_for(repository), {"command": "git status"})
    assert matches(STATUS, clean) and not clean.caution
    HOSTILE[name](repository)
    facts = await inspected(shell, context_for(repository), {"command": "git status"})
    assert "git" in facts.caution
    assert not matches(STATUS, facts)
    assert not matches(ArgvPattern(words=("git", "*")), facts)
    # What a user denies by its words stays denied, and what is granted then is exactly this command.
    assert covers(STATUS, facts)
    assert suggest_exact("shell_exec", facts) == suggest_rules("shell_exec", facts)[-1]
    assert suggest_exact("shell_exec", facts) == ExactArguments(arguments=facts.arguments)
    assert not (repository / "PWNED").exists()


def test_ordinary_settings_are_no_danger(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "https://example.org/a.git")
    git(repository, "config", "branch.main.remote", "origin")
    git(repository, "config", "branch.main.merge", "refs/heads/main")
    git(repository, "config", "user.email", "a@b")
    git(repository, "config", "color.ui", "false")
    git(repository, "config", "branch.sha256.remote", "origin")
    assert runs_programs(repository) == ""
    (repository / "inner").mkdir()
    assert runs_programs(repository / "inner") == ""


def test_another_working_tree_obeys_the_first_ones_settings(repository: Path) -> None:
    other = repository.parent / "other"
    git(repository, "worktree", "add", "-q", str(other))
    assert runs_programs(other) == ""
    git(repository, "config", "core.fsmonitor", "touch PWNED")
    assert "core.fsmonitor" in runs_programs(other)


def test_only_a_plain_work_tree_is_harmless(repository: Path, tmp_path: Path) -> None:
    assert "not in a work tree" in runs_programs(tmp_path)
    bare = tmp_path / "bare"
    git(tmp_path, "init", "-q", "--bare", str(bare))
    assert "bare repository" in runs_programs(bare)
    (repository / ".git" / "config").unlink()
    os.mkfifo(repository / ".git" / "config")
    assert "cannot be read" in runs_programs(repository)
    link = tmp_path / "link"
    link.mkdir()
    (link / ".git").symlink_to(repository / ".git")
    assert "neither a folder nor a file" in runs_programs(link)


def commondir(folder: Path, private: Path) -> None:
    git(folder, "init", "-q")
    (folder / ".git" / "commondir").write_text(f"{private / '.git'}\n")


def alternates(folder: Path, private: Path) -> None:
    git(folder, "init", "-q")
    (folder / ".git" / "objects" / "info" / "alternates").write_text(f"{private / '.git' / 'objects'}\n")


def linked_objects(folder: Path, private: Path) -> None:
    git(folder, "init", "-q")
    (folder / ".git" / "objects" / "pack").rmdir()
    (folder / ".git" / "objects" / "pack").symlink_to(private / ".git" / "objects" / "pack")


@pytest.mark.parametrize(
    "lead",
    [
        lambda folder, private: (folder / ".git").write_text(f"gitdir: {private / '.git'}\n"),
        commondir,
        alternates,
        linked_objects,
    ],
    ids=["gitdir", "commondir", "alternates", "linked objects"],
)
def test_a_workspace_cannot_lead_git_to_another_repository(
    repository: Path, tmp_path: Path, lead: Callable[[Path, Path], None]
) -> None:
    folder = tmp_path / "packed"
    folder.mkdir()
    lead(folder, repository)
    assert (
        "of another repository" in runs_programs(folder)
        or "elsewhere" in runs_programs(folder)
        or "outside the workspace" in runs_programs(folder)
    )


@pytest.mark.parametrize(("url", "answered"), [("https://example.org/a", True), ("https://a:b@example.org/a", False)])
async def test_a_rule_does_not_show_the_password_of_a_remote(repository: Path, url: str, answered: bool) -> None:
    git(repository, "remote", "add", "origin", url)
    for mode in (SandboxLevel.NONE, SandboxLevel.HARD):
        (shell,) = shell_tools(mode)
        facts = await inspected(shell, context_for(repository), {"command": "git remote -v"})
        assert matches(ArgvPattern(words=("git", "remote", "*")), facts) is answered


@pytest.mark.parametrize("place", ["ws/private", "outside"])
async def test_a_search_by_rule_does_not_follow_a_link_in_place_of_a_folder(
    repository: Path, tmp_path: Path, place: str
) -> None:
    (repository / "d" / "e").mkdir(parents=True)
    (repository / "d" / "e" / "f").write_text("here\n")
    git(repository, "add", "d")
    (repository / "d").rename(tmp_path / place)
    (tmp_path / place / "e" / "f").write_text("token\n")
    (repository / "d").symlink_to(tmp_path / place)
    (shell,) = shell_tools(SandboxLevel.NONE)
    context = context_for(repository, exposure=Exposure.MASKED)
    assert "token" not in (await done(shell, context, {"command": "git grep token"})).content


async def test_a_program_in_the_workspace_is_a_caution(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository / "bin"
    folder.mkdir()
    for name in ("cat", "pytest"):
        (folder / name).write_text("#!/bin/sh\ntouch PWNED\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    (shell,) = shell_tools(SandboxLevel.NONE)
    facts = await inspected(shell, context_for(repository), {"command": "cat a"})
    assert "program in the workspace" in facts.caution
    assert not matches(ArgvPattern(words=("cat", "*")), facts)
    # pytest runs what the workspace holds wherever it lies, so its place changes nothing.
    facts = await inspected(shell, context_for(repository), {"command": "pytest -q"})
    assert matches(ArgvPattern(words=("pytest", "*")), facts)

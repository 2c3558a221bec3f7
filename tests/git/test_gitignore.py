"""Ignored files are those that git itself ignores, also under hostile rules."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatops.git.ignore import GitIgnore
from chatops.tools.files import file_list
from chatops.tools.search import file_search
from tests.tools.toolkit import context_for, done

RULES = {
    ".gitignore": "*.log\n!keep.log\nbuild/\n/top.txt\na/**/z\n# c\n\\#name\nlogs/**\n!logs/keep\n**/deep*x*y\n"
    "[z-a]q\n\\\n",
    "a/.gitignore": "!x.log\n/only\n",
}
FILES = (
    *("x.log", "keep.log", "#name", "[z-a]q", "top.txt", "build/f", "src/build/f", "src/ok", "src/deepaxby"),
    *("a/x.log", "a/only", "a/b/only", "a/top.txt", "a/z", "a/b/z", "logs/keep", "logs/other"),
)


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """A tree with rules at two levels."""
    for name, text in {**dict.fromkeys(FILES, "needle"), **RULES}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def walk(root: Path, rules: GitIgnore, folder: str = "") -> Iterator[str]:
    for entry in os.scandir(root / folder):
        path = f"{folder}{entry.name}"
        if not rules.ignores(f"{path}/" if entry.is_dir() else path):
            yield from walk(root, rules, f"{path}/") if entry.is_dir() else (path,)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_ignores_the_same_files(ws: Path) -> None:
    subprocess.run(["git", "init", "-q", ws], check=True)
    asked = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"], cwd=ws, capture_output=True, text=True, check=True
    )
    found = {path for path in walk(ws, GitIgnore(ws)) if not path.startswith(".git/")}
    assert found == set(asked.stdout.split("\0")) - {""}


def test_no_rules_are_read_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder/below").mkdir(parents=True)
    (tmp_path / "folder/below/.gitignore").write_text("*\n")
    (tmp_path / "link").symlink_to("folder")
    rules = GitIgnore(tmp_path)
    assert rules.ignores("folder/below/x") and not rules.ignores("link/below/x")


async def test_a_search_leaves_out_what_is_ignored_unless_the_folder_is_named(ws: Path) -> None:
    everywhere = (await done(file_search, context_for(ws), {"pattern": "needle"})).content
    assert "src/ok:1: needle" in everywhere and "build/f" not in everywhere
    assert "ignored by .gitignore were not searched]" in everywhere
    named = (await done(file_search, context_for(ws), {"pattern": "needle", "path": "src/build"})).content
    assert named == "src/build/f:1: needle"
    single = (await done(file_search, context_for(ws), {"pattern": "needle", "path": "x.log"})).content
    assert single == "x.log:1: needle"


async def test_a_list_marks_what_is_ignored_unless_the_folder_is_named(ws: Path) -> None:
    listed = (await done(file_list, context_for(ws), {})).content.splitlines()
    assert "build/ (ignored)" in listed and "x.log 6 bytes (ignored)" in listed
    assert "a/" in listed and "keep.log 6 bytes" in listed
    assert (await done(file_list, context_for(ws), {"path": "build"})).content == "f 6 bytes"
    assert "only 6 bytes (ignored)" in (await done(file_list, context_for(ws), {"path": "a"})).content.splitlines()


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "rule", ["*a*a*a*a*a*a*b", "**/*a*a*a*b", "*a*b", "**/**/*a*b", "[" * 2_000, "*/" * 500, "a" * 90_000]
)
def test_a_rule_cannot_hold_up_the_program(ws: Path, rule: str) -> None:
    (ws / ".gitignore").write_text(f"{rule}\n" * 1_000, encoding="utf-8")
    rules = GitIgnore(ws)
    start = time.process_time()
    assert not rules.ignores("a" * 255)
    assert not rules.ignores("/".join(["a" * 200] * 40))
    assert not rules.ignores("a/" * 400 + "a")
    assert time.process_time() - start < 10


def test_a_pipe_or_a_link_in_place_of_the_rules_is_no_rule(ws: Path) -> None:
    (ws / ".gitignore").unlink()
    os.mkfifo(ws / ".gitignore")
    (ws / "src/.gitignore").symlink_to(ws / "a/.gitignore")
    assert not GitIgnore(ws).ignores("x.log")
    assert not GitIgnore(ws).ignores("src/only")

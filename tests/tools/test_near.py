"""A model that names what is not there is told what is, by name and place, and never by content."""

import os
from pathlib import Path
from typing import Any

import pytest

from chatops.tools.files import file_edit, file_list, file_read
from chatops.tools.search import file_search
from tests.tools.toolkit import context_for, inspected


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with files at several depths, hidden ones, a secret, and a link out."""
    folder = tmp_path / "ws"
    for name in ("docs/notes.txt", "src/app/main.py", ".hidden/secret.txt", "id_rsa", "README.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("content\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "far.txt").write_text("content\n")
    (folder / "link").symlink_to(tmp_path / "outside")
    return folder


@pytest.mark.parametrize(
    ("tool", "arguments", "hint"),
    [
        (file_read, {"path": "notes.txt"}, "; there is docs/notes.txt"),
        (file_read, {"path": "README.txt"}, "; there is README.md"),
        (file_edit, {"path": "main.py", "old": "a", "new": "b"}, "; there is src/app/main.py"),
        (file_list, {"path": "app"}, "; there is src/app"),
        (file_search, {"pattern": "x", "path": "main.py"}, "; there is src/app/main.py"),
        (file_read, {"path": "secret.txt"}, ""),
        (file_read, {"path": "id_rs"}, ""),
        (file_read, {"path": "far.txt"}, ""),
        (file_read, {"path": "nowhere.bin"}, ""),
    ],
)
async def test_paths_that_are_like_a_missing_one_are_named(
    workspace: Path, tool: Any, arguments: dict[str, str], hint: str
) -> None:
    [problem] = (await inspected(tool, context_for(workspace), arguments)).problems
    assert problem.message.partition("; there is")[2] == hint.partition("; there is")[2]
    assert problem.message.startswith("no such")


async def test_a_hint_shows_a_hostile_name_harmlessly_and_ends_in_a_large_folder(workspace: Path) -> None:
    (workspace / "a\x1b[2Jb").mkdir()
    (workspace / "a\x1b[2Jb" / "wanted").write_text("")
    for number in range(5_000):
        os.symlink("nowhere", workspace / "docs" / f"{number:04}")
    [problem] = (await inspected(file_read, context_for(workspace), {"path": "wanted"})).problems
    assert "\x1b" not in problem.message
    [problem] = (await inspected(file_read, context_for(workspace), {"path": "main.py"})).problems
    assert problem.message.startswith("no such file")


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("    print('x')", "line 2 has the same words with other white space, and begins with '\\t'"),
        ("\tdef f():\n\tprint('x')", "line 1 has the same words with other white space, and is not indented"),
        ("2: \tprint('x')", "without the line numbers it does"),
        ("   1\tdef f():\n   2\t\tprint('x')\n", "without the line numbers it does"),
        ("something else", "read the file again"),
        ("  \n ", "read the file again"),
    ],
)
async def test_an_edit_that_nearly_occurs_is_told_why_it_does_not(tmp_path: Path, old: str, hint: str) -> None:
    (tmp_path / "a.py").write_text("def f():\n\tprint('x')\n")
    facts = await inspected(file_edit, context_for(tmp_path), {"path": "a.py", "old": old, "new": "new"})
    [problem] = facts.problems
    assert problem.message == f"does not occur in the file; {hint}"

"""Files that a command is known to load are part of its approval: a change of one asks again."""

import hashlib
import os
from pathlib import Path

import pytest

from chatops.toolkit import confine
from chatops.toolkit.base import ToolContext
from chatops.tools.loaded_files import loaded_files
from tests.tools.toolkit import context_for


def loaded(command: str, workspace: Path, *, cwd: str = ".") -> dict[str, str]:
    """Paths in the workspace, and their digests."""
    found = loaded_files(command, words=(), cwd=workspace / cwd, context=context_for(workspace))
    pairs = (entry.rpartition(" ") for entry in found)
    return {os.path.relpath(path, workspace): digest for path, _, digest in pairs}


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "command", "expected"),
    [
        ({"Makefile": "include a.mk\nx:\n\tpython tools/b.py\n", "a.mk": "", "tools/b.py": ""}, "make x", "all"),
        ({"sub/Makefile": "", "sub/GNUmakefile": ""}, "make -C sub", "all"),
        ({"sub/Makefile": ""}, "cd sub && make", "all"),
        ({"package.json": '{"scripts": {"t": "node t/run.mjs && ls"}}', "t/run.mjs": ""}, "npm test", "all"),
        ({"pyproject.toml": "", "conftest.py": "", "tests/unit/conftest.py": ""}, "pytest -q", "all"),
        ({"conftest.py": "", "tests/conftest.py": ""}, "uv run pytest tests", "all"),
        ({"justfile": "import 'lib/more'\n", "lib/more": ""}, "just x", "all"),
        ({"go.sh": ". lib/common.sh\n", "lib/common.sh": ""}, "bash go.sh", ["go.sh"]),
        ({"go.sh": ". ./common.sh\n", "common.sh": ""}, "sudo timeout 5 bash go.sh", "all"),
        ({".git/config": "", ".git/hooks/pre-commit": ""}, "git commit -m x", "all"),
        ({"Makefile": "", "conftest.py": ""}, "git status && cat a", []),
    ],
)  # fmt: skip
def test_files_that_a_command_loads(
    files: dict[str, str], command: str, expected: str | list[str], tmp_path: Path
) -> None:
    put(tmp_path, files)
    assert set(loaded(command, tmp_path)) >= set(files if expected == "all" else expected)
    if not expected:
        assert loaded(command, tmp_path) == {}


@pytest.mark.parametrize("change", ["content", "include", "link", "added", "outside"])
def test_each_change_changes_the_digest(change: str, tmp_path: Path) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "out"
    put(workspace, {"real.mk": "include a.mk\n", "a.mk": "x:\n", "other.mk": "include a.mk\n"})
    put(outside, {"far.mk": "y:\n"})
    (workspace / "Makefile").symlink_to(outside / "far.mk" if change == "outside" else "real.mk")
    before = loaded("make", workspace)
    assert before
    match change:
        case "content":
            (workspace / "real.mk").write_text("z:\n")
        case "include":
            (workspace / "a.mk").write_text("z:\n")
        case "link":
            (workspace / "Makefile").unlink()
            (workspace / "Makefile").symlink_to("other.mk")
        case "added":
            (workspace / "GNUmakefile").write_text("z:\n")
        case "outside":
            (outside / "far.mk").write_text("longer:\n")
    assert loaded("make", workspace) != before


def test_links_in_a_circle_and_huge_folders_end(tmp_path: Path) -> None:
    put(tmp_path, {"a.mk": "include b.mk a.mk\n", "b.mk": "include a.mk\n", "Makefile": "include a.mk\n"})
    (tmp_path / "GNUmakefile").symlink_to("GNUmakefile")
    os.mkfifo(tmp_path / "makefile")
    assert set(loaded("make", tmp_path)) == {"a.mk", "b.mk", "Makefile"}
    put(tmp_path, {f"inc{number}.mk": "" for number in range(100)})
    (tmp_path / "Makefile").write_text("include " + " ".join(f"inc{number}.mk" for number in range(100)))
    assert len(loaded("make", tmp_path)) <= 60


@pytest.mark.more
def test_a_file_replaced_by_a_link_meanwhile_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = tmp_path / "workspace"
    put(tmp_path, {"workspace/Makefile": "x:\n\ttrue\n", "outside.txt": "secret"})
    found = confine.locate

    def replaced(raw: str, *, context: ToolContext) -> confine.ResolvedPath:
        place = found(raw, context=context)
        if place.path.name == "Makefile":
            place.path.unlink()
            place.path.symlink_to(tmp_path / "outside.txt")
        return place

    monkeypatch.setattr("chatops.tools.loaded_files.locate", replaced)
    digests = loaded("make", workspace)
    assert list(digests) == ["Makefile"]
    assert hashlib.sha256(b"secret").hexdigest() not in digests.values()

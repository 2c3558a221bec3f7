"""A folder and a registry in which a call asks that runs no program: it needs no sandbox."""

import json
from pathlib import Path

import pytest

REGISTRY = {
    "version": 3,
    "roles": {
        "assistant": {"primary": "demo", "tools": ["file_read", "file_edit", "shell_exec", "scratch_write"]},
        "reader": {"primary": "demo", "tools": ["file_read"]},
    },
    "users": {"*": {"access_level": "operator"}},
    "tools": {"scratch_write": {"verdict": "ask"}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "note.txt").write_text("The invoice is due on Friday.\n")
    return workspace


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The registry, which every program of the test uses."""
    file = tmp_path / "registry.json"
    file.write_text(json.dumps(REGISTRY))
    monkeypatch.setenv("CHATOPS_REGISTRY", str(file))
    return file

"""A user's folder with `chatops` on the path."""

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty workspace."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return workspace


@pytest.fixture
def path_with_chatops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """PATH with this interpreter's chatops in front, whether or not it is installed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "chatops"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m chatops "$@"\n')
    program.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    return path

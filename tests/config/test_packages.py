"""Folders in which entry points of installed packages are looked for."""

import sys
from pathlib import Path

import pytest

from chatops.config.extras import ENGINES, installed_entries


def package(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[{ENGINES}]\n{name} = {name}:engine\n")


def test_no_package_of_the_current_folder_counts_and_the_first_of_two_versions_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, first, second = tmp_path / "workspace", tmp_path / "first", tmp_path / "second"
    package(workspace, "evil", "1.0")
    package(workspace / "below", "evil", "1.1")
    package(first, "parrot", "2.0")
    package(second, "parrot", "1.0")
    monkeypatch.chdir(workspace)
    monkeypatch.setattr(sys, "path", ["", ".", "below", str(first), str(second)])
    found = [(entry.name, entry.dist.version) for entry in installed_entries(ENGINES) if entry.dist is not None]
    assert found == [("parrot", "2.0")]

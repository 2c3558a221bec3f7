"""One server for the tests that leave its store as it is, and one for each of the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.served import Served, serving


@pytest.fixture
def served(chatops_home: Path, tmp_path: Path) -> Iterator[Served]:
    """A server over an empty store."""
    workspace = tmp_path / "project"
    workspace.mkdir()
    (workspace / "note.txt").write_text("The invoice is due on Friday.\n")
    with serving(chatops_home, workspace) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that several tests attack."""
    base = tmp_path_factory.mktemp("shared")
    workspace, home = base / "project", base / "home"
    workspace.mkdir()
    home.mkdir()
    (workspace / "note.txt").write_text("The invoice is due on Friday.\n")
    with serving(home, workspace) as running:
        yield running

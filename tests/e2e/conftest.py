"""An installation for each test, and what starts programs."""

from pathlib import Path

import pytest

from tests.e2e.fork_server import ForkServer, shared
from tests.e2e.installation import Installation


@pytest.fixture
def installation(tmp_path: Path, chatops_home: Path) -> Installation:
    """An empty workspace but for `note.txt`, nothing configured."""
    return Installation.with_note(tmp_path / "project", chatops_home)


@pytest.fixture(scope="session")
def fork_server() -> ForkServer:
    """The launcher of the program."""
    return shared()

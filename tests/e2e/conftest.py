"""A desk for each test, and what starts programs."""

from pathlib import Path

import pytest

from tests.e2e.desk import Desk
from tests.e2e.zygote import Zygote, shared


@pytest.fixture
def desk(tmp_path: Path, chatops_home: Path) -> Desk:
    """An empty workspace but for `note.txt`, nothing configured."""
    return Desk.with_note(tmp_path / "project", chatops_home)


@pytest.fixture(scope="session")
def zygote() -> Zygote:
    """What starts the program."""
    return shared()

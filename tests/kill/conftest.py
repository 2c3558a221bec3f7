"""A desk for each test, and what starts programs for each module."""

from pathlib import Path

import pytest

from tests.e2e.desk import Desk
from tests.e2e.zygote import Zygote, shared

TOOL = "tests.kill.note_tool"


@pytest.fixture
def desk(tmp_path: Path, chatops_home: Path) -> Desk:
    """An empty workspace but for `note.txt`, nothing configured."""
    return Desk.with_note(tmp_path / "project", chatops_home)


@pytest.fixture(scope="module")
def zygote() -> Zygote:
    """What starts the program, with a tool of somebody's own."""
    return shared(TOOL)

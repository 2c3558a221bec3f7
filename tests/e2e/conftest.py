"""A desk for each test, and what starts programs for each module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.desk import Desk
from tests.e2e.zygote import Zygote


@pytest.fixture
def desk(tmp_path: Path, chatops_home: Path) -> Desk:
    """An empty workspace but for `note.txt`, nothing configured."""
    return Desk.with_note(tmp_path / "project", chatops_home)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    """What starts the program for this module."""
    with Zygote() as started:
        yield started

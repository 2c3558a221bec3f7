"""An installation for each test."""

from pathlib import Path

import pytest

from tests.e2e.installation import Installation


@pytest.fixture
def installation(tmp_path: Path, chatops_home: Path) -> Installation:
    """An empty workspace but for `note.txt`, nothing configured."""
    return Installation.with_note(tmp_path / "project", chatops_home)

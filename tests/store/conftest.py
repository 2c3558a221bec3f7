"""Place of a test's store."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """In folders that are not there yet, one of them with an awkward name."""
    return tmp_path / "a folder #%?" / "deeper" / "chatops.db"

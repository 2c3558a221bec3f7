"""An installation for each test, and what starts programs for each module."""

import pytest

from tests.e2e.conftest import installation
from tests.e2e.fork_server import ForkServer, shared

__all__ = ["installation"]

TOOL = "tests.kill.note_tool"


@pytest.fixture(scope="module")
def fork_server() -> ForkServer:
    """The launcher of the program, with a user's own tool."""
    return shared(TOOL)

"""An installation for each test, and a tool of somebody's own."""

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import installation
from tests.support.forking import ForkServer

__all__ = ["installation"]


@pytest.fixture(scope="module")
def own_tool() -> Iterator[None]:
    """Give each program a tool of somebody's own."""
    with ForkServer(load="tests.kill.note_tool").forking():
        yield

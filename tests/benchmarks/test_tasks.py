"""Small tasks get done in as many rounds as they did: a tool's description or feedback that gets worse shows here."""

import pytest

from tests.benchmarks.tasks import recorded, score

pytestmark = pytest.mark.more


def test_tasks_are_done_as_before() -> None:
    """After an intended change: ``python -m tests.benchmarks.tasks --write``."""
    assert score() == recorded()

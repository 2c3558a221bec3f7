"""A desk whose registry is in force, and where its store is."""

from pathlib import Path

import pytest

from tests.e2e.desk import Desk
from tests.faults.doors import Provider, patient_registry


@pytest.fixture
def desk(desk: Desk, provider: Provider) -> Desk:
    """The desk, its registry pointing at the provider."""
    desk.use(patient_registry(provider.server.url))
    return desk


@pytest.fixture
def path(desk: Desk) -> Path:
    return desk.home / "data" / "chatops.db"

"""An installation whose registry is in force, and where its store is."""

from pathlib import Path

import pytest

from tests.e2e.installation import Installation
from tests.faults.entry_points import Provider, patient_registry


@pytest.fixture
def installation(installation: Installation, provider: Provider) -> Installation:
    """The installation, its registry pointing at the provider."""
    installation.use(patient_registry(provider.server.url))
    return installation


@pytest.fixture
def path(installation: Installation) -> Path:
    return installation.home / "data" / "chatops.db"

"""The two entry points, and a provider behind them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import installation
from tests.e2e.installation import Installation
from tests.faults.entry_points import FaultyChat, Pipe, Provider, patient_registry
from tests.faults.stage import Stage

__all__ = ["installation"]


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A strict server under the test's command."""
    with Provider() as running:
        yield running


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Both entry points, open over many faults. `stranger` asks for a model that is missing; `hasty` waits for 2 s."""
    others: dict[str, dict[str, Any]] = {
        "stranger": {"model_name": "gone-model"},
        "hasty": {"timeout_s": {"connect": 5, "first_token": 60, "idle": 2}},
    }
    with Stage.open(tmp_path_factory.mktemp("stage"), others=others) as opened:
        yield opened


@pytest.fixture
def pipe(installation: Installation, provider: Provider) -> Pipe:
    """The program without a terminal."""
    installation.use(patient_registry(provider.server.url))
    return Pipe(installation, provider)


@pytest.fixture
def chat(installation: Installation, provider: Provider) -> Iterator[FaultyChat]:
    """The chat on a terminal, as coder."""
    installation.use(patient_registry(provider.server.url))
    with installation.open("--role", "coder") as terminal:
        terminal.ready("coder")
        yield FaultyChat(installation, provider, terminal)

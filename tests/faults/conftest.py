"""The two doors, and a provider behind them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.desk import Desk
from tests.e2e.zygote import Zygote, shared
from tests.faults.doors import FaultyChat, Pipe, Provider, patient_registry
from tests.faults.stage import Stage


@pytest.fixture
def desk(tmp_path: Path, chatops_home: Path) -> Desk:
    """An empty workspace but for `note.txt`, nothing configured."""
    return Desk.with_note(tmp_path / "project", chatops_home)


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A strict server under the test's command."""
    with Provider() as running:
        yield running


@pytest.fixture(scope="session")
def zygote() -> Zygote:
    """What starts the program."""
    return shared()


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Iterator[Stage]:
    """Both doors, kept open over many faults. `stranger` asks for a model that is not there; `hasty` waits for 2 s."""
    others: dict[str, dict[str, Any]] = {
        "stranger": {"model_name": "gone-model"},
        "hasty": {"timeout_s": {"connect": 5, "first_token": 60, "idle": 2}},
    }
    with Stage.open(tmp_path_factory.mktemp("stage"), zygote, others=others) as opened:
        yield opened


@pytest.fixture
def pipe(desk: Desk, provider: Provider, zygote: Zygote) -> Pipe:
    """The program without a terminal."""
    desk.use(patient_registry(provider.server.url))
    return Pipe(desk, provider, zygote)


@pytest.fixture
def chat(desk: Desk, provider: Provider) -> Iterator[FaultyChat]:
    """The chat on a terminal, as coder."""
    desk.use(patient_registry(provider.server.url))
    with desk.open("--role", "coder") as terminal:
        terminal.ready("coder")
        yield FaultyChat(desk, provider, terminal)

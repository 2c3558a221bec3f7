"""A user's registry with a scripted server behind it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_openai import Completion, FakeOpenAI, says


class Stage:
    """Makes scripted servers and the registry that leads to them."""

    def __init__(self, base: Path, home: Path, stack: ExitStack) -> None:
        self.workspace = base / "project"
        self.workspace.mkdir()
        self.registry = home / "config" / "model_registry.json"
        self.registry.parent.mkdir(parents=True, exist_ok=True)
        self._stack = stack

    def plays(self, *replies: Completion, **keys: Any) -> FakeOpenAI:
        """A server that gives these replies to the model ``default``, and a registry with further `keys`."""
        server = self._stack.enter_context(FakeOpenAI(list(replies)))
        models = {"fake": {"type": "openai", "api_url": server.url, "model_name": "m", "api_key": "none"}}
        value = {"version": 3, "models": models, "roles": {"assistant": {"primary": "fake"}}, **keys}
        value.setdefault("users", {"*": {"access_level": "operator"}})
        self.registry.write_text(json.dumps(value))
        return server


@pytest.fixture
def stage(tmp_path: Path, chatops_home: Path) -> Iterator[Stage]:
    """An empty stage."""
    with ExitStack() as stack:
        yield Stage(tmp_path, chatops_home, stack)


def answers(result: object) -> Completion:
    """A final answer in its envelope."""
    return says(json.dumps({"success": True, "result": result, "reasoning": "done"}))

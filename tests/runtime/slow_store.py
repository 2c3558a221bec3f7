"""Store whose commits can be held back."""

import threading

import pytest

from chatops.engine.effects import TurnStep
from chatops.wiring.app import App
from tests.support.waiting import PATIENCE


class SlowStore:
    """Holds back commit number `at` of an app until `go_on` is set."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch, *, at: int) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self._left = at
        self._commit = app.store.commit
        monkeypatch.setattr(app.store, "commit", self)

    def __call__(self, step: TurnStep, lease: str) -> None:
        self._left -= 1
        if self._left == 0:
            self.begun.set()
            assert self.go_on.wait(PATIENCE)
        self._commit(step, lease)

"""The README's tour, line by line: first in a shell, then, in the same folder, on a real terminal."""

import os
import shlex
import time
from pathlib import Path

import pytest

from tests.e2e.installation import ChatTerminal
from tests.readme.shell import follow
from tests.support import document
from tests.support.document import Action
from tests.support.waiting import PATIENCE

READING = 0.7
"""Seconds that a user looks before doing anything."""


class User:
    """Does what the left column of the table says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._terminal: ChatTerminal | None = None

    def do(self, action: Action) -> None:
        """One action, after a look at the screen."""
        if action.verb in {"send", "type", "press"}:
            time.sleep(READING)
        match action.verb:
            case "start":
                self.close()
                self._terminal = ChatTerminal(shlex.split(action.object), env=_for_programs(), cwd=self._folder)
            case "send":
                self._on_screen.send(action.object)
                self._on_screen.press("enter")
            case "type":
                self._on_screen.send(action.object)
            case "press" if len(action.object) == 1:
                self._on_screen.decide(action.object)
            case "press":
                self._on_screen.press(action.object)
            case "kill":
                self._on_screen.kill9()
            case other:
                raise AssertionError(f"The tour has an action {other!r} that no test knows")

    def sees(self, text: str) -> None:
        """Wait until it is on the screen."""
        self._on_screen.wait_for(text)

    def close(self) -> None:
        """Leave no program behind."""
        if self._terminal is not None:
            self._terminal.close()

    @property
    def _on_screen(self) -> ChatTerminal:
        assert self._terminal is not None, "The tour starts nothing"
        return self._terminal


def test_the_tour_holds_line_by_line(folder: Path, path_with_chatops: str) -> None:
    follow("tour: script", folder)
    assert (folder / "log.txt").read_text() == "once\n"
    _on_the_screen(folder)
    _wait_until_written(folder / "log.txt", "once\ntwice\n")


def _on_the_screen(folder: Path) -> None:
    user = User(folder)
    try:
        for row in document.rows("tour: screen"):
            for action in row.actions:
                user.do(action)
            for text in row.shown:
                user.sees(text)
        _wait_until_written(folder / "log.txt", "once\ntwice\n")
    finally:
        user.close()


def _wait_until_written(path: Path, text: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while path.read_text() != text:
        if time.monotonic() > deadline:
            pytest.fail(f"{path.name} holds {path.read_text()!r} and not {text!r}")
        time.sleep(0.05)


def _for_programs() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "PYTHONPATH")}

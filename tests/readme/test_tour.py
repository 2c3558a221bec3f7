"""The README's tour, line by line: first in a shell, then, in the same folder, on a real terminal."""

import os
import re
import shlex
import time
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from tests.e2e.installation import PAUSES, ChatTerminal
from tests.readme.shell import follow
from tests.support import document
from tests.support.document import Action
from tests.support.film import Screen, film
from tests.support.waiting import PATIENCE

FILM = document.README.parent / ".github" / "tour.svg"
LARGEST_FILM = 500_000
"""Bytes."""
COLUMNS, ROWS = 96, 32
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
                self._terminal = ChatTerminal(
                    shlex.split(action.object), env=_for_programs(), cwd=self._folder, cols=COLUMNS, rows=ROWS
                )
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

    def look(self) -> Screen:
        """Return the screen once it is at rest, and a dialog takes keys."""
        self._on_screen.wait_gone(PAUSES)
        self._on_screen.wait_quiet(0.5)
        return self._on_screen.cells()

    def close(self) -> None:
        """Leave no program behind."""
        if self._terminal is not None:
            self._terminal.close()

    @property
    def _on_screen(self) -> ChatTerminal:
        assert self._terminal is not None, "The tour starts nothing"
        return self._terminal


def test_the_tour_holds_line_by_line(folder: Path, path_with_chatops: str) -> None:
    shots = play(folder)
    drawn = film(shots, title="The tour", seconds=3)
    assert len(drawn.encode()) < LARGEST_FILM
    kept = FILM.read_text(encoding="utf-8")
    assert kept.count('<g class="shot') == len(shots), "After a change of the tour: python -m tests.readme.picture"
    words = re.sub(r"<[^>]*>", "", kept)
    for row in document.rows("tour: screen"):
        for text in row.shown:
            assert all(word in words for word in escape(text).split()), text


def play(folder: Path) -> list[Screen]:
    """Take the whole tour. Return the screen after each row that shows one."""
    follow("tour: script", folder)
    assert (folder / "log.txt").read_text() == "once\n"
    user, shots = User(folder), []
    try:
        for row in document.rows("tour: screen"):
            for action in row.actions:
                user.do(action)
            for text in row.shown:
                user.sees(text)
            if row.shown:
                shots.append(user.look())
        _wait_until_written(folder / "log.txt", "once\ntwice\n")
    finally:
        user.close()
    return shots


def _wait_until_written(path: Path, text: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while path.read_text() != text:
        if time.monotonic() > deadline:
            pytest.fail(f"{path.name} holds {path.read_text()!r} and not {text!r}")
        time.sleep(0.05)


def _for_programs() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "PYTHONPATH")} | {"COLORTERM": "truecolor"}

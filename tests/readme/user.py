"""A user who takes the steps of a page: tables of what they do and what the screen shows then."""

import os
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.installation import PAUSES, ChatTerminal, dialog_of
from tests.support.document import Action, Row
from tests.support.film import Screen

READING = 0.7
"""Seconds that a user looks before doing anything."""
COLUMNS, ROWS = 96, 32


class User:
    """Does what the left column of a table says, on a terminal of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._terminal: ChatTerminal | None = None

    def take(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Screen]]:
        """Take the steps, and yield the screen after each one that shows something."""
        for row in rows:
            for action in row.actions:
                self._do(action)
            for text in row.shown:
                self._on_screen.wait_for(text)
            if row.shown:
                yield row, self._look()

    def close(self) -> None:
        """Leave no program behind."""
        if self._terminal is not None:
            self._terminal.close()

    def _do(self, action: Action) -> None:
        if action.verb in {"send", "type", "press"}:
            time.sleep(READING)
        match action.verb:
            case "start":
                self.close()
                names = {name: os.environ[name] for name in ("PATH", "PYTHONPATH")}
                self._terminal = ChatTerminal(
                    shlex.split(action.object),
                    env=names | {"COLORTERM": "truecolor"},
                    cwd=self._folder,
                    cols=COLUMNS,
                    rows=ROWS,
                )
            case "send":
                # An answer is on the screen a moment before its turn is over.
                self._on_screen.wait_gone("Enter queues")
                self._on_screen.send(action.object)
                self._on_screen.press("enter")
            case "type":
                self._on_screen.send(action.object)
            case "press" if len(action.object) == 1:
                self._on_screen.decide(action.object, self._offer(action.object))
            case "press":
                self._on_screen.press(action.object)
            case "kill":
                self._on_screen.kill9()
            case other:
                raise AssertionError(f"A page has an action {other!r} that no test knows")

    def _offer(self, key: str) -> str:
        """Wait until the dialog offers a key; what it says of the key."""
        offer = re.compile(rf"(?m)(?:^|  ){key} \w+")
        shown = self._on_screen.wait_until(
            lambda text: bool(offer.search(dialog_of(text))), what=f"{key} to be offered"
        )
        found = offer.search(dialog_of(shown))
        assert found is not None
        return found[0].strip()

    def _look(self) -> Screen:
        """Return the screen once it is at rest, and a dialog takes keys."""
        self._on_screen.wait_gone(PAUSES)
        self._on_screen.wait_quiet(0.5)
        return self._on_screen.cells()

    @property
    def _on_screen(self) -> ChatTerminal:
        assert self._terminal is not None, "The page starts nothing"
        return self._terminal


@contextmanager
def user_in(folder: Path) -> Iterator[User]:
    """A user in a folder, whose program is closed at the end."""
    user = User(folder)
    try:
        yield user
    finally:
        user.close()


def renamed(shot: Screen, place: str, name: str) -> Screen:
    """Return a screen with another name of a folder, as long as its own: the text has been laid out."""
    assert len(place) == len(name)
    rows = []
    for row in shot:
        text = "".join(cell.text or " " for cell in row).replace(place, name)
        rows.append([cell.with_text(text[x]) if cell.text else cell for x, cell in enumerate(row)])
    return rows

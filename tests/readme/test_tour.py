"""The README's tour, line by line: first in a shell, then, in the same folder, on a real terminal."""

import re
import time
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from tests.readme.shell import follow
from tests.readme.user import user_in
from tests.support import document
from tests.support.film import Screen, film
from tests.support.waiting import PATIENCE

FILM = document.README.parent / ".github" / "tour.svg"
LARGEST_FILM = 500_000
"""Bytes."""


def test_the_tour_holds_line_by_line(folder: Path, path_with_chatops: str) -> None:
    shots = play(folder)
    assert len(film(shots, title="The tour", seconds=3).encode()) < LARGEST_FILM
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
    with user_in(folder) as user:
        shots = [shot for _, shot in user.take(document.rows("tour: screen"))]
        _wait_until_written(folder / "log.txt", "once\ntwice\n")
    return shots


def _wait_until_written(path: Path, text: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while path.read_text() != text:
        if time.monotonic() > deadline:
            pytest.fail(f"{path.name} holds {path.read_text()!r} and not {text!r}")
        time.sleep(0.05)

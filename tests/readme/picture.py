"""Draws the README's film, and its still, from the running program: `python -m tests.readme.picture`."""

import os
import sys
import tempfile
from pathlib import Path

from tests.readme.test_tour import FILM, play
from tests.readme.user import renamed
from tests.support.film import Screen, film, still

STILL = FILM.with_name("screen.svg")
HOME = "/home/ada/clerks"
"""Shown in the place of the temporary folder, and as long as its name, for the text has been laid out."""
TITLE = "chatops: a role that asks before a command, kill -9, and the same question again"
SECONDS = 3.5
"""For each screen of the film."""


def draw() -> None:
    """Take the tour of the README, and keep what is on the screen after each step."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="tmp") as place:
        folder, programs = Path(place) / "invoices", Path(place) / "bin"
        folder.mkdir()
        programs.mkdir()
        (programs / "chatops").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m chatops "$@"\n')
        (programs / "chatops").chmod(0o755)
        # The dialog names folders of programs; those of this machine are nobody's business.
        os.environ |= {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": os.getcwd(), "CHATOPS_HOME": f"{place}/home"}
        shots = [renamed(shot, place, HOME) for shot in play(folder)]
    waiting = next(shot for shot in shots if "Approve Shell?" in _text(shot))
    STILL.write_text(still(waiting, title=TITLE), encoding="utf-8")
    FILM.write_text(film(shots, title=TITLE, seconds=SECONDS), encoding="utf-8")


def _text(shot: Screen) -> str:
    return "\n".join("".join(cell.text for cell in row) for row in shot)


if __name__ == "__main__":
    draw()

"""Target of kills: a workspace with count_for_user effects, and a strict server that can be made to wait.

The message ``effect 7 by edit`` makes the model ask for one call, whose effect is a line 7 in a file, and then say
``finished 7.``.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.e2e.installation import registry
from tests.support.fake_openai import Call, FakeOpenAI, Hang, Raw, Reply, SeenRequest, call, calls, says, sse
from tests.support.fake_openai import delta as piece

KINDS = ("shell", "edit", "write", "note")
REPEATABLE = frozenset({"file_edit", "file_write"})
"""Tools that can look whether they have taken effect."""
MINE = "mine now\n"
"""Content that the user writes over a written file: a second run would restore the first content."""
TAKES_S = 0.1
"""Seconds that a command takes before its effect, and again after it."""


class LeaseRow(StrEnum):
    """Place in a reply at which the server stops, once."""

    NOWHERE = "nowhere"
    SILENT = "silent"
    """Before the first byte."""
    TEXT = "text"
    """In the text before the call."""
    ANSWER = "answer"
    """In the text after the call."""


class Scene:
    """The server and the workspace."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.hold = LeaseRow.NOWHERE
        self.holding = threading.Event()
        """The server has stopped where it was told to."""
        self.server = FakeOpenAI(self._reply)
        (workspace / "log.txt").write_text("end\n")

    @contextmanager
    def playing(self) -> Iterator["Scene"]:
        """The server answers within this block."""
        with self.server:
            yield self

    def registry(self) -> dict[str, Any]:
        """The installation's registry, in which a coder may change things in every way that can be counted."""
        whole = registry(self.server.url)
        whole["roles"]["coder"]["tools"] = ["shell_exec", "file_edit", "file_write", "note_down"]
        return whole

    def count(self, number: int, kind: str) -> int:
        """Return how often the effect occurred."""
        if kind == "write":
            file = self._written(number)
            return int(file.exists() and file.read_text() != MINE)
        name = {"shell": "effects.txt", "edit": "log.txt", "note": "notes.txt"}[kind]
        file = self.workspace / name
        return file.read_text().split().count(str(number)) if file.exists() else 0

    def replace_written(self, number: int) -> bool:
        """Put something else in the place of what was written, if it was."""
        file = self._written(number)
        if not file.exists():
            return False
        file.write_text(MINE)
        return True

    def started(self, number: int) -> bool:
        """Return True if the slow command or function has started."""
        return (self.workspace / f"started-{number}").exists()

    def _written(self, number: int) -> Path:
        return self.workspace / f"written-{number}.txt"

    def _reply(self, request: SeenRequest) -> Reply:
        asked = re.fullmatch(r"effect (\d+) by (\w+)", request.last_user)
        if asked is None:
            return says("Yes?")
        last = max(place for place, message in enumerate(request.messages) if message["role"] == "user")
        if any(message["role"] == "tool" for message in request.messages[last:]):
            if self._holds(LeaseRow.ANSWER):
                return _cut_off("Nearly ")
            return says(f"finished {asked[1]}.", pieces=6)
        if self._holds(LeaseRow.SILENT):
            return Raw(bare=True, steps=(Hang(),))
        if self._holds(LeaseRow.TEXT):
            return _cut_off("I will do ")
        return calls(_call(int(asked[1]), asked[2]), text="I will do that.")

    def _holds(self, where: LeaseRow) -> bool:
        if self.hold is not where:
            return False
        self.hold = LeaseRow.NOWHERE
        self.holding.set()
        return True


def _cut_off(text: str) -> Raw:
    return Raw(steps=(sse(piece("", role="assistant"), piece(text), piece("it "), done=False), Hang()))


def _call(number: int, kind: str) -> Call:
    match kind:
        case "shell":
            rest = f"sleep {TAKES_S}"
            return call("shell_exec", command=f"touch started-{number}; {rest}; echo {number} >> effects.txt; {rest}")
        case "edit":
            # The text to replace is there again afterwards: a second run would find it.
            return call("file_edit", path="log.txt", old="end", new=f"{number}\nend")
        case "write":
            return call("file_write", path=f"written-{number}.txt", content=f"{number}\n")
        case "note":
            return call("note_down", text=str(number))
        case _:
            raise ValueError(kind)

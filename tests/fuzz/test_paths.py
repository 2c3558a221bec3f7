"""File tools, attachments and ``/undo`` while folders and files turn into links: nothing outside is read or changed."""

import asyncio
import itertools
import json
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from chatops.config.paths import opened
from chatops.contained import applying
from chatops.contained.folder import exchange
from chatops.contained.freezing import read_frozen
from chatops.contained.turns import ContainedTurns
from chatops.domain.errors import ToolFailedError
from chatops.domain.ids import CallId
from chatops.domain.tools import ToolCall
from chatops.runtime.performer import run_attempt
from chatops.toolkit.base import inspect_call
from chatops.tools.attach import attached_files
from chatops.tools.catalog import CatalogSettings, builtin_catalog
from tests.fuzz.bounded import hold
from tests.tools.toolkit import CANARY, context_for

ARGUMENTS: dict[str, dict[str, str]] = {
    "file_read": {},
    "file_list": {},
    "file_search": {"pattern": "."},
    "file_write": {"content": "mine\n"},
    "file_edit": {"old": "in", "new": "out"},
    "attach": {},
    "undo": {},
}
PATHS = [
    "a",
    "a/f",
    "a/d",
    "a/d/g",
    "a/d/new",
    "a/new/n",
    "b/f",
    "l/f",
    "l/d/g",
    "a/k",
    "a/l/g",
    ".",
    "a/only-outsid",
    "g",
]
QUICK = st.sampled_from([name for name in ARGUMENTS for _ in range(1 if name in ("file_search", "undo") else 6)])
CALLS = st.lists(st.tuples(QUICK, st.sampled_from(PATHS)), min_size=5, max_size=40)
ONLY = "only-outside"
SWAPS = {
    ".": [("a", "l"), ("b", "l"), ("a", "b")],
    "a": [("d", "l"), ("f", "k"), ("f", "d"), ("d", "b")],
    "a/d": [("g", "k")],
}
"""By folder, entries that trade places. The folder is known by its descriptor, wherever it is by then."""


class Race:
    """A workspace with links out of it, and what lies outside under the same names."""

    def __init__(self, base: Path) -> None:
        self.workspace, self.outside, self.data = base / "ws", base / "outside", base / "data"
        for top, text in (
            (self.workspace / "a", "inside\n"),
            (self.workspace / "b", "inside\n"),
            (self.outside, CANARY),
        ):
            (top / "d").mkdir(parents=True)
            (top / "f").write_text(text)
            (top / "d/g").write_text(text)
        for name in (ONLY, f"d/{ONLY}"):
            (self.outside / name).write_text(CANARY)
        for link, target in {"l": ".", "a/l": "d", "a/b": "d", "a/k": "f", "a/d/k": "d/g"}.items():
            (self.workspace / link).symlink_to(self.outside / target)
        self.before = self.found()

    def found(self) -> dict[str, tuple[int, bytes]]:
        """What lies outside: modes and content."""
        paths = sorted(self.outside.rglob("*"))
        return {str(path): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"") for path in paths}

    @contextmanager
    def running(self, chance: random.Random) -> Iterator[None]:
        """Let another thread swap entries for as long as the block runs."""
        ended = threading.Event()

        def swap(folders: dict[str, int]) -> None:
            while not ended.is_set():
                folder = chance.choice(list(SWAPS))
                one, other = chance.choice(SWAPS[folder])
                for _ in range(chance.choice([1, 2, 2, 2])):
                    with suppress(FileNotFoundError):
                        exchange(folders[folder], one, other)

        with ExitStack() as stack:
            folders = {name: stack.enter_context(opened(self.workspace / name)) for name in SWAPS}
            thread = threading.Thread(target=swap, args=(folders,))
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join()


def test_nothing_outside_is_read_or_changed_while_folders_turn_into_links(tmp_path: Path) -> None:
    numbers = itertools.count()
    catalog = builtin_catalog(CatalogSettings(scratch_dir=tmp_path / "scratch"))

    async def done(race: Race, name: str, path: str) -> str:
        context = context_for(race.workspace, kept=race.data / "kept")
        if name == "attach":
            found = attached_files(f"@{path}", context=context)
            return "".join(file.text + file.ref.problem for file in found)
        if name == "undo":
            return undone(race)
        call = ToolCall(
            id=CallId(f"s.1.{next(numbers)}.1"), name=name, arguments=json.dumps({"path": path} | ARGUMENTS[name])
        )
        context = replace(context, call_id=call.id)
        tool = catalog.get(name)
        assert tool is not None
        facts = await inspect_call(tool, call, context)
        assert "could not be inspected" not in facts.refusal, facts
        if facts.problems or facts.refusal:
            return repr(facts.problems)
        return f"{facts.diff} {(await run_attempt(tool, facts, context)).content}"

    def undone(race: Race) -> str:
        turns = ContainedTurns(race.data)
        found = turns.undo_list(race.workspace, session_id="s", turns=["s.1"], calls={})
        folder = turns.folder(found.name or "none")
        with suppress(OSError, ToolFailedError):
            return repr((found.cannot, applying.apply(folder, read_frozen(folder), None, undo=1)))
        return repr(found.cannot)

    def check(calls: list[tuple[str, str]]) -> None:
        race = Race((tmp_path / str(next(numbers))).resolve())

        async def play() -> None:
            for name, path in calls:
                text = await done(race, name, path)
                assert CANARY not in text and ONLY not in text, (name, path, text)

        with race.running(random.Random(len(calls))):
            asyncio.run(play())
        assert race.found() == race.before

    every = [(name, path) for name in ARGUMENTS for path in PATHS if name != "file_search" or path == "."]
    hold(check, CALLS, kept=[every, every[::-1]], few=15)

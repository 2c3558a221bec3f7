"""Long work is counted where it is done, and whoever wraps it gets the numbers, in threads and from processes too."""

import os
import threading
from pathlib import Path

import pytest

from chatops.domain.progress import DUE_S, Progress
from chatops.sandbox.isolated import Limits, run_isolated
from chatops.toolkit import counting
from chatops.toolkit.counting import count_work, counts_from, shown_by
from chatops.toolkit.threads import in_thread
from chatops.tools.knowledge_index import search_documents


def progress(done: int, total: int, *, took: float) -> str:
    at = Progress(what="working", done=done, total=total, unit="file", since=0.0, counted_since=0.0)
    return at.words(took)


def test_the_rest_is_a_guess_and_what_cannot_be_measured_shows_its_seconds() -> None:
    assert progress(3, 0, took=75) == "1 min 15 s" and not progress(3, 0, took=0.9)
    assert progress(0, 4_000, took=9) == "0 of 4,000 files"
    assert progress(1, 1, took=9) == "1 of 1 file"
    assert progress(1_000, 4_000, took=1) == "1,000 of 4,000 files", "too early for a guess"
    assert progress(1_000, 4_000, took=7) == "1,000 of 4,000 files · about 20 s left"
    assert progress(1_000, 4_000, took=100) == "1,000 of 4,000 files · about 5 min left"
    assert progress(3_900, 4_000, took=7) == "3,900 of 4,000 files · a few seconds left"
    assert progress(4_100, 4_000, took=7) == "4,100 of 4,000 files", "a copy may hold more than was counted"


def test_nothing_is_due_before_work_has_taken_a_moment() -> None:
    at = Progress(what="working", done=1, total=2, unit="file", since=0.0, counted_since=0.0)
    assert not at.is_due(DUE_S - 0.01) and at.is_due(DUE_S)
    assert at.bar(40) == ("█████", "─────") and at.bar(0) == ("", "")


async def test_values_reach_the_receiver_from_a_thread_at_most_ten_a_second_and_none_at_the_end() -> None:
    shown: list[Progress | None] = []

    def work() -> None:
        with count_work("counting", unit="step") as counter:
            counter.expect(100_000)
            for _ in range(100_000):
                counter.add()
        counter.add()

    with shown_by(shown.append):
        await in_thread(work)
    work()
    values = [one for one in shown if one is not None]
    assert shown[-1] is None and shown.count(None) == 1
    assert (values[0].what, values[0].done, values[0].total) == ("counting", 0, 0)
    assert len(values) < 1_000, "a hundred seconds are enough for these steps on any machine"


def test_an_isolated_process_counts_into_the_receiver_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_PAUSE_S", 0.0)
    folder = tmp_path / "documents"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.md").write_text(f"tide tables {number}\n")
    shown: list[Progress | None] = []
    arguments = {"folders": [str(folder)], "protected": [], "words": ["tide"], "max_hits": 3, "seconds": 20.0}
    for _ in range(2):
        with shown_by(shown.append), count_work("reading documents", unit="document") as counter:
            index = str(tmp_path / "index.sqlite")
            found = run_isolated(search_documents, limits=Limits(), counter=counter, index=index, **arguments)
        assert isinstance(found, dict) and found["files"] == 30 and found["left"] == 0
    totals = [one.total for one in shown if one is not None]
    assert totals.count(0) == 2 and set(totals) <= {0, 30}, "the second search reads nothing again"
    assert all(one is None or one.what == "reading documents" for one in shown)


def test_only_small_numbers_are_read_from_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_PAUSE_S", 0.0)
    shown: list[Progress | None] = []
    reader, writer = os.pipe()
    lines = b"1 2\nx 3\n-1 5\n4 \n" + b"9" * 5000 + b" 1\n\x1b[2J 1\n" + b"12345678901 3\n2 2\n3 3"

    def write() -> None:
        os.write(writer, lines)
        os.close(writer)

    threading.Thread(target=write).start()
    counts_from(reader, counting.Counter(shown.append, "reading", unit="file", total=0))
    os.close(reader)
    assert [(one.done, one.total) for one in shown if one is not None] == [(1, 2), (2, 2)]

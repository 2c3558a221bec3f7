"""The printed summary of a run over all faults is true."""

import re
from pathlib import Path

from tests.faults.__main__ import is_well, lines
from tests.faults.catalogue import IDS, NOT_HERE, SILENT, STORAGE

_TESTS = Path(__file__).resolve().parents[1]
_MARK = re.compile(r"mark\.fault\(([^)]*)\)")
_ID = re.compile(r"[A-G]\d\d")


def test_only_known_faults_are_marked_and_few_are_left_out() -> None:
    marked = {
        fault
        for file in _TESTS.rglob("test_*.py")
        for mark in _MARK.findall(file.read_text("utf-8"))
        for fault in _ID.findall(mark)
    }
    known = set(IDS)
    assert marked <= known
    assert set(NOT_HERE) <= known
    assert set(STORAGE) <= marked
    assert not SILENT & set(NOT_HERE)
    assert len(NOT_HERE) <= len(known) // 20


def test_a_fault_passes_only_if_a_test_of_it_passed_and_none_failed() -> None:
    found = {
        "passed": {"A01": ["one"], "A02": ["two"]},
        "failed": {"A02": ["three"]},
        "skipped": {"A03": ["four"]},
        "figures": {"effects": [0, 2]},
    }
    report = lines(found)
    assert report[0] == "faults passed: 1 of 141 (0.7 %)"
    assert "effects: 0 of 2" in report
    assert "  A02 not passed: failed in three" in report
    assert "  A03 not passed: skipped in four" in report
    assert "  A04 not passed: no test of it was run" in report
    assert not is_well(found)


def test_all_is_well_when_all_that_can_pass_has_and_nothing_bad_was_counted() -> None:
    passed = {fault: ["one"] for fault in IDS if fault not in NOT_HERE}
    found = {"passed": passed, "failed": {}, "skipped": {}, "figures": {"effects": [0, 2]}}
    assert is_well(found)
    found["figures"] = {"effects": [1, 2]}
    assert not is_well(found)

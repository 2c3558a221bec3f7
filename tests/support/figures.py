"""Figures that a whole run of tests adds up: which faults passed, and how often something bad happened.

A test says which faults it proves with ``@pytest.mark.fault("A01", "A02")`` (a case of a parametrized one with
``pytest.param(..., marks=pytest.mark.fault("A01"))``), and counts with the fixture `figure`:

    figure("effects > 1", bad=0, of=1)

Both travel with pytest's own reports, so that they survive being run in several processes. `python -m tests.faults`
adds them up and prints them.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import pytest

FAULT, FIGURE = "fault", "figure"


class Count(Protocol):
    """Counts `bad` of `of` under a name; the same name may be counted in many tests."""

    def __call__(self, name: str, *, bad: int, of: int) -> None:
        """Add to a figure."""
        ...


def faults_of(item: pytest.Item) -> list[str]:
    """The ids of the faults that a test is marked with."""
    return [str(fault) for mark in item.iter_markers(FAULT) for fault in mark.args]


class Tally:
    """A pytest plugin that writes what a run adds up to into a file of JSON: for each fault the tests that passed and
    that did not, and each figure with its number of bad cases and of all."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.passed: dict[str, list[str]] = {}
        self.failed: dict[str, list[str]] = {}
        self.skipped: dict[str, list[str]] = {}
        self.bad: Counter[str] = Counter()
        self.of: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test is over."""
        faults = [str(value) for name, value in report.user_properties if name == FAULT]
        if report.failed:
            self._note(self.failed, faults, report.nodeid)
        elif report.skipped:
            self._note(self.skipped, faults, report.nodeid)
        elif report.when == "call":
            self._note(self.passed, faults, report.nodeid)
        if report.when == "teardown":
            for name, value in report.user_properties:
                if name == FIGURE:
                    figure, bad, of = json.loads(str(value))
                    self.bad[figure] += bad
                    self.of[figure] += of

    def pytest_sessionfinish(self) -> None:
        """The run is over."""
        figures = {name: [self.bad[name], self.of[name]] for name in self.of}
        whole = {"passed": self.passed, "failed": self.failed, "skipped": self.skipped, "figures": figures}
        self._file.write_text(json.dumps(whole))

    def _note(self, where: dict[str, list[str]], faults: Iterable[str], test: str) -> None:
        for fault in faults:
            where.setdefault(fault, []).append(test)

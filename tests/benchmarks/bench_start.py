"""The CPU time that short commands take, as a ratio to the least that is possible, on this machine in one run:
``pytest -s -m bench tests/benchmarks/bench_start.py``. Not collected by default.
"""

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.bench

RUNS = 7
MOST_OF_BARE = 5.5
"""Times `python -c pass` that --version may take; the aim is 5."""
MOST_OF_VERSION = 2.5
"""Times --version that a list from the store may take."""


def cpu_of(command: list[str], environment: dict[str, str]) -> float:
    """Seconds of CPU time that a program takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_commands_that_only_read_cost_little_more_than_the_version(tmp_path: Path) -> None:
    environment = {**os.environ, "CHATOPS_HOME": str(tmp_path / "home")}
    program = [str(Path(sys.executable).parent / "chatops"), "--workspace", str(tmp_path)]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "chatops --version": [*program, "--version"],
        "chatops sessions list": [*program, "sessions", "list"],
        "chatops approvals list": [*program, "approvals", "list"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(2 * RUNS):
        for name, command in commands.items():
            times[name].append(cpu_of(command, environment))
    bare, version, *lists = (statistics.median(taken) for taken in times.values())
    print("\n" + ", ".join(f"{name} {statistics.median(taken) * 1e3:.0f} ms" for name, taken in times.items()))
    assert version < bare * MOST_OF_BARE
    assert all(taken < version * MOST_OF_VERSION for taken in lists)

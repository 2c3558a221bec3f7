"""Time that a sandbox level adds to a command: ``pytest -s -m bench tests/benchmarks/bench_sandbox.py``.

Not collected by default. `true` is run by the tool at each level in a workspace of 100 files, beside a direct spawn of
`true`. The time of processors says more
on a busy machine. Nothing here fails by time.
"""

import asyncio
import resource
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.sandbox.confinement import landlock_fault, probe
from chatops.tools.shell import shell_tools
from tests.tools.toolkit import context_for, inspected

pytestmark = pytest.mark.bench

RUNS = 60
WORKING = [
    *([(SandboxLevel.HARD, SandboxSpec()), (SandboxLevel.HARD, SandboxSpec(git="commit"))] if probe().program else []),
    *([(SandboxLevel.HARD, SandboxSpec(hosts=("example.org",)))] if probe().program else []),
    *([(SandboxLevel.LANDLOCK, SandboxSpec())] if not landlock_fault() else []),
    (SandboxLevel.NONE, SandboxSpec()),
]


@pytest.mark.parametrize(("level", "spec"), WORKING, ids=lambda one: getattr(one, "word", ""))
def test_the_time_that_a_level_adds(level: SandboxLevel, spec: SandboxSpec, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for number in range(100):
        (tmp_path / f"{number}.txt").write_text("text")
    (tool,) = shell_tools(level)
    context = context_for(tmp_path, sandbox=spec)

    async def called() -> list[float]:
        facts = await inspected(tool, context, {"command": "true"})
        seconds = []
        for _ in range(RUNS):
            began = time.perf_counter()
            await tool.run(facts, context)
            seconds.append(time.perf_counter() - began)
        return seconds

    before = used()
    direct = statistics.median(spawned() for _ in range(RUNS))
    between = used()
    median = statistics.median(asyncio.run(called()))
    worked, direct_worked = ((used() - between) / RUNS, (between - before) / RUNS)
    what = f"git {spec.git}, hosts {len(spec.hosts)}"
    print(
        f"\n{level.word} ({what}): {1000 * median:.1f} ms, {1000 * (median - direct):.1f} ms more than a direct spawn;"
        f" processor time {1000 * worked:.1f} ms, {1000 * (worked - direct_worked):.1f} ms more"
    )


def spawned() -> float:
    """Seconds of a direct spawn."""
    began = time.perf_counter()
    subprocess.run(["/usr/bin/true"], check=True)
    return time.perf_counter() - began


def used() -> float:
    """Seconds of processor time of this process and of those below it that have ended."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )

"""Helpers for tests of tools that start programs: with and without a sandbox, and remaining processes."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatops.domain.sandbox import SandboxLevel
from chatops.sandbox.confinement import probe
from tests.support.waiting import until

SANDBOXED = not probe()[1]
needs_sandbox = pytest.mark.skipif(not SANDBOXED, reason=f"no sandbox here: {probe()[1]}")
MODES = [pytest.param(SandboxLevel.HARD, marks=needs_sandbox), SandboxLevel.NONE]


def marked() -> Iterator[str]:
    """A number that only one test's processes sleep for; whatever is left of them ends with the test."""
    number = f"{600 + time.monotonic_ns() % 10**9 / 10**9:.9f}"
    yield number
    for pid in sleepers(number):
        os.kill(pid, signal.SIGKILL)


def sleepers(mark: str) -> list[int]:
    """Living processes whose command line names `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                if "\nState:\tZ" not in (entry / "status").read_text(encoding="utf-8"):
                    found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


async def none_left(mark: str) -> bool:
    """Return True once all processes of that mark are gone; False if some stay."""
    try:
        await until(lambda: not sleepers(mark))
    except TimeoutError:
        return False
    return True

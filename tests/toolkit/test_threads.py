"""Threads nobody waits for: results and errors come back, and what never returns does not hold the program's end."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chatops.toolkit.threads import DaemonThreadExecutor, EscapedError, in_thread
from tests.support.waiting import PATIENCE

HANGS = """
import asyncio, threading
from chatops.toolkit.threads import DaemonThreadExecutor

entered = threading.Event()

def hang():
    entered.set()
    threading.Event().wait()

async def main():
    asyncio.get_running_loop().set_default_executor(DaemonThreadExecutor())
    running = asyncio.ensure_future(asyncio.to_thread(hang))
    while not entered.is_set():
        await asyncio.sleep(0.01)
    running.cancel()

asyncio.run(main())
print("over")
"""


def test_a_loops_own_threads_do_not_hold_the_end_of_the_program() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "over\n"), ran.stderr


async def test_results_and_errors_come_back() -> None:
    asyncio.get_running_loop().set_default_executor(DaemonThreadExecutor())
    assert await asyncio.gather(*(asyncio.to_thread(pow, 2, power) for power in range(100))) == [
        2**n for n in range(100)
    ]
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(divmod, 1, 0)
    with pytest.raises(EscapedError, match="SystemExit: 3"):
        await asyncio.to_thread(sys.exit, 3)


async def test_calls_that_hang_hold_no_other_call() -> None:
    go_on = threading.Event()
    for _ in range(2):
        hanging = [asyncio.ensure_future(in_thread(go_on.wait)) for _ in range(8)]
        assert await in_thread(pow, 2, 3) == 8
        go_on.set()
        await asyncio.gather(*hanging)
        go_on.clear()

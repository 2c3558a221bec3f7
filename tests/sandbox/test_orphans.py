"""Processes that have outlived their app are found by what their environment says, and only they are stopped.

So are the folders that it has left.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chatops.domain.ids import CallId
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.sandbox.confinement import landlock_fault
from chatops.sandbox.orphans import CALL_VARIABLE, StoppedProcesses, attempt_name, stop_orphans
from chatops.sandbox.supervisor import signal_all
from chatops.tools.shell import shell_tools
from tests.support.command_line import program_environment
from tests.support.processes import running
from tests.support.waiting import until
from tests.tools.running import needs_sandbox
from tests.tools.toolkit import context_for, done

Start = Callable[..., subprocess.Popen[str]]
SLEEP = "import sys, time; print('up', flush=True); time.sleep(600)"
FORKS = """
import os, sys, time
for _ in range(2):
    if not os.fork():
        os.setsid()
        os.execve(sys.executable, [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"], {})
time.sleep(600)
"""
"""A parent that says whose it is, and two children that have left its session and say nothing."""


@pytest.fixture
def call() -> CallId:
    """A call of this test alone."""
    return CallId(f"test-{secrets.token_hex(4)}.1.1.1")


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python with one more variable, and waits until all it starts are up."""
    with ExitStack() as started:

        def begin(code: str, mark: str, ups: int = 1) -> subprocess.Popen[str]:
            env = {**os.environ, **({CALL_VARIABLE: mark} if mark else {})}
            process = started.enter_context(
                subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
            )
            started.callback(process.kill)
            assert process.stdout is not None
            for _ in range(ups):
                assert process.stdout.readline() == "up\n"
            return process

        yield begin


def test_orphans_of_an_attempt_are_stopped_and_counted(call: CallId, start: Start) -> None:
    left = [start(SLEEP, f"{attempt_name(call, 2)}/{number}") for number in "ab"]
    assert stop_orphans(call, 2) == StoppedProcesses(count=2)
    assert [process.wait() for process in left] == [-9, -9]
    assert stop_orphans(call, 2) == StoppedProcesses()


def test_descendants_are_stopped_whatever_their_environment(call: CallId, start: Start) -> None:
    parent = start(FORKS, f"{attempt_name(call, 1)}/x", ups=2)
    with open(f"/proc/{parent.pid}/task/{parent.pid}/children") as handle:
        children = [int(word) for word in handle.read().split()]
    assert len(children) == 2
    assert stop_orphans(call, 1).count == 3
    assert not any(map(running, children))


def test_other_processes_are_not_touched(call: CallId, start: Start) -> None:
    others = [
        start(SLEEP, ""),
        start(SLEEP, f"{attempt_name(call, 11)}/x"),
        start(SLEEP, f"{attempt_name(CallId(call + '0'), 1)}/x"),
        start(SLEEP, f"other/{attempt_name(call, 1)}/x"),
    ]
    assert stop_orphans(call, 1) == StoppedProcesses()
    assert all(process.poll() is None for process in others)


def test_a_reused_process_id_is_not_signalled(start: Start) -> None:
    other = start(SLEEP, "")
    looks = iter([{other.pid}, set[int]()])
    assert signal_all(lambda: next(looks), signal.SIGKILL) == set()
    assert other.poll() is None
    assert signal_all(lambda: {other.pid}, signal.SIGKILL) == {other.pid}
    assert other.wait() == -signal.SIGKILL


DYING = """
import asyncio, sys
from pathlib import Path
from tests.sandbox.test_orphans import SandboxLevel, ran
asyncio.run(ran(SandboxLevel[sys.argv[1]], Path.cwd(), "touch started; sleep 600"))
"""


async def ran(level: SandboxLevel, workspace: Path, command: str) -> None:
    (shell,) = shell_tools(level)
    await done(shell, context_for(workspace, sandbox=SandboxSpec(git="commit")), {"command": command})


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(SandboxLevel.HARD, marks=needs_sandbox),
        pytest.param(SandboxLevel.LANDLOCK, marks=pytest.mark.skipif(bool(landlock_fault()), reason=landlock_fault())),
    ],
)
def test_the_temporary_folder_of_a_killed_app_is_removed_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: SandboxLevel
) -> None:
    workspace = tmp_path / "ws"
    subprocess.run(["git", "init", "-q", workspace], check=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = program_environment() | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", DYING, level.name], cwd=workspace, env=environment) as dying:
        asyncio.run(until((workspace / "started").exists))
        asyncio.run(ran(level, workspace, "true"))
        assert len(list(tmp_path.glob("chatops-run-*"))) == 1, "it is in use"
        dying.kill()
    asyncio.run(ran(level, workspace, "true"))
    assert not list(tmp_path.glob("chatops-run-*"))

"""Crash recovery: what a dead process left of a call is found, stopped where that is allowed, and deleted."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.ids import CallId, SessionId, TurnId
from chatops.domain.tools import Interruption, Processes
from chatops.engine.effects import RunTool
from chatops.engine.state import TurnState, new_turn
from chatops.engine.turn import start
from chatops.engine.view import pending_calls
from chatops.runtime.crash_recovery import CrashRecovery
from chatops.runtime.services import WorkerThread
from chatops.sandbox.orphans import CALL_VARIABLE, attempt_name
from chatops.store.base import Holder
from chatops.store.process_identity import is_alive, this_process
from chatops.store.store import Store
from chatops.store.tool_outputs import Outputs
from tests.engine.world import World, grant, raw, reply

HERE = this_process()
DEAD = replace(HERE, pid=2**22 + 7, pid_started="1")
STARTED_AT = 1_790_000_000.0


class Scene:
    """A store with a call that another process was running, and a live process of that call."""

    def __init__(self, folder: Path) -> None:
        self._session = SessionId(f"20261121-101512-{secrets.token_hex(3)}")
        self._folder = folder
        self.call = CallId(f"{self._session}.1.1.1")
        self._worker = WorkerThread()
        self.outputs = Outputs(folder / "running")
        environment = {**os.environ, CALL_VARIABLE: f"{attempt_name(self.call, 1)}/x"}
        code = "print('up', flush=True); import time; time.sleep(600)"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()
        self._worker.close()
        self._store.close()

    async def left_by(self, process: Holder) -> tuple[CrashRecovery, TurnState]:
        """Return the recovery to test, and the turn as `process` stored it."""
        self._store = Store(
            self._folder / "chatops.db",
            process=lambda: process,
            clock=lambda: STARTED_AT,
            new_id=lambda now: self._session,
        )
        self._store.create_session(workspace="/ws", role="coder", persona="")
        turn = TurnId(f"{self._session}.1")
        first = start(new_turn(turn, self._session, grant=grant()), "run it")
        world = World.after(first)
        world.drain(reply(raw("run")))
        assert len(pending_calls(world.state)) == 1
        world.decide(0, Approved())
        world.perform(0)
        assert isinstance(world.flying[-1], RunTool)
        for step in world.steps:
            self._store.commit(step)
        return CrashRecovery(self._store, self._worker, self.outputs, HERE), self._store.load_turn(turn)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """See `Scene`."""
    made = Scene(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("by", "processes", "lives"),
    [
        (DEAD, Processes.STOPPED, False),
        (replace(DEAD, boot_id="another boot"), Processes.RESTARTED, True),
        (replace(DEAD, machine="another machine"), Processes.OTHER_MACHINE, True),
        (replace(HERE, pid=os.getppid(), pid_started=""), Processes.ELSEWHERE, True),
        (HERE, Processes.STOPPED, False),
        (replace(HERE, pid_started="1"), Processes.STOPPED, False),
    ],
    ids=[
        "dead",
        "before the last start",
        "on another machine",
        "alive",
        "this very process",
        "another process has its number now",
    ],
)
async def test_only_orphans_of_a_dead_process_of_this_boot_are_stopped(
    by: Holder, processes: Processes, lives: bool, scene: Scene
) -> None:
    assert is_alive(by) == (by == HERE or processes is Processes.ELSEWHERE)
    aftermath, state = await scene.left_by(by)
    (found,) = await aftermath.interruptions(state)
    count = 0 if processes in {Processes.RESTARTED, Processes.OTHER_MACHINE} else 1
    assert found == Interruption(call_id=scene.call, attempt=1, started_at=STARTED_AT, processes=processes, count=count)
    assert (scene.process.poll() is None) == lives


async def test_finding_no_process_of_a_suspended_owner_proves_nothing(scene: Scene) -> None:
    """The owner may be suspended between storing the intent and starting the tool."""
    scene.process.kill()
    scene.process.wait()
    aftermath, state = await scene.left_by(replace(HERE, pid=os.getppid(), pid_started=""))
    (found,) = await aftermath.interruptions(state)
    assert (found.processes, found.count) == (Processes.ELSEWHERE, 0)


async def test_output_so_far_is_read_and_deleted_once_it_is_stored(scene: Scene) -> None:
    aftermath, state = await scene.left_by(DEAD)
    settled = CallId(f"{state.session_id}.1.1.9")
    for call, text in ((scene.call, "half a line"), (settled, "has its result")):
        scene.outputs.keeping(call, 1, print)(text)
    found = await aftermath.interruptions(state)
    assert [one.output for one in found] == ["half a line"]
    assert scene.outputs.read(settled, 1) == ""
    assert scene.outputs.read(scene.call, 1) == "half a line", "it is not stored yet"
    aftermath.clear(state, found)
    assert scene.outputs.read(scene.call, 1) == ""


async def test_without_a_journal_row_nothing_is_claimed_or_stopped(scene: Scene) -> None:
    aftermath, state = await scene.left_by(DEAD)
    (found,) = await aftermath.interruptions(replace(state, turn_id=TurnId("unheard-of.1")))
    assert (found.started_at, found.processes) == (None, Processes.UNSEEN)
    assert scene.process.poll() is None


async def test_a_turn_without_running_calls_needs_no_recovery(scene: Scene) -> None:
    aftermath, state = await scene.left_by(DEAD)
    over = replace(state, phase=World.begin().state.phase)
    assert await aftermath.interruptions(over) == ()
    assert scene.process.poll() is None

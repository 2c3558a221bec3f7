"""The program is killed (D01 to D12), a task of it cancelled (D21), or the power fails (D22).

There is one death in each phase of a turn at each entry point; the tier of kills has hundreds at random, see
`tests.kill.test_matrix`, and of power failures in `tests/store/test_power_loss.py`.
"""

import os
import random
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from chatops.config.failpoints import NAMES, OTHER_NAMES
from chatops.domain.decisions import Approved
from chatops.domain.messages import NoticeMessage
from tests.e2e.installation import APPROVE, Installation
from tests.kill.at_screen import approve_elsewhere, gone_on_with
from tests.kill.conftest import own_tool
from tests.kill.ledger import read
from tests.kill.play import of_phase, play
from tests.kill.scene import Scene
from tests.kill.stage import KILLED, Stage
from tests.kill.strikes import SCREEN, SHELL, EntryPoint, Moment, Phase, Strike
from tests.kill.verdict import Case, after_the_kill, in_the_end
from tests.support.figures import Count

__all__ = ["own_tool"]
pytestmark = pytest.mark.usefixtures("own_tool")


@pytest.fixture
def stage(installation: Installation) -> Iterator[Stage]:
    """A workspace in which effects can be counted."""
    with Scene(installation.workspace).playing() as scene:
        installation.use(scene.registry())
        yield Stage(installation, scene)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """When, at which entry point, and what was to take effect."""

    entry_point: EntryPoint
    phase: Phase
    kind: str
    point: str = ""
    moment: Moment | None = None
    delay_s: float = 0.0


def at_screen(phase: Phase, kind: str, point: str = "", moment: Moment | None = None, delay_s: float = 0.0) -> Death:
    """In the chat on a terminal."""
    return Death(entry_point=EntryPoint.SCREEN, phase=phase, kind=kind, point=point, moment=moment, delay_s=delay_s)


def at_shell(phase: Phase, kind: str, point: str = "", moment: Moment | None = None, delay_s: float = 0.0) -> Death:
    """Without a terminal."""
    return Death(entry_point=EntryPoint.SHELL, phase=phase, kind=kind, point=point, moment=moment, delay_s=delay_s)


DEATHS = (
    at_screen(Phase.TYPED, "note", moment=Moment.TYPED, delay_s=1.1),
    at_screen(Phase.TYPED, "note", point="in_commit:7", moment=Moment.KEPT),
    at_screen(Phase.ASKED, "edit", moment=Moment.ASKED),
    at_screen(Phase.STREAMING, "shell", moment=Moment.TEXT),
    at_screen(Phase.PROPOSED, "note", point="in_commit:2"),
    at_screen(Phase.WAITING, "write", moment=Moment.DIALOG),
    at_screen(Phase.APPROVED, "shell", point="after_commit:3"),
    at_screen(Phase.RUNNING, "shell", moment=Moment.STARTED, delay_s=0.15),
    at_screen(Phase.RETURNED, "note", point="after_tool:1"),
    at_screen(Phase.RECORDED, "edit", point="after_commit:5"),
    at_screen(Phase.CONCLUDING, "shell", moment=Moment.ANSWER),
    at_screen(Phase.DONE, "note", moment=Moment.OVER),
    at_shell(Phase.TYPED, "note", point="after_create:1"),
    at_shell(Phase.ASKED, "edit", moment=Moment.ASKED),
    at_shell(Phase.STREAMING, "shell", moment=Moment.TEXT),
    at_shell(Phase.PROPOSED, "note", point="after_model:1"),
    at_shell(Phase.WAITING, "write", point="after_commit:2"),
    at_shell(Phase.APPROVED, "shell", point="decision_found:1"),
    at_shell(Phase.RUNNING, "write", point="before_rename:1"),
    at_shell(Phase.RUNNING, "note", moment=Moment.STARTED, delay_s=0.15),
    at_shell(Phase.RETURNED, "edit", point="after_tool:1"),
    at_shell(Phase.RECORDED, "shell", point="after_publish:4"),
    at_shell(Phase.CONCLUDING, "shell", moment=Moment.ANSWER),
    at_shell(Phase.DONE, "note", point="after_commit:5"),
)
CASES = [
    pytest.param(one, marks=of_phase(one.phase), id=f"{one.entry_point}-P{one.phase.value}-{one.point or one.moment}")
    for one in DEATHS
]


@pytest.mark.more
@pytest.mark.parametrize("death", CASES)
def test_after_a_kill_it_is_told_gone_on_with_and_takes_effect_once(death: Death, stage: Stage, figure: Count) -> None:
    wanted = Strike(phase=death.phase, point=death.point, moment=death.moment, delay_s=death.delay_s)
    case = play(stage, death.entry_point, wanted, number=1, kind=death.kind, chance=random.Random(1))
    assert case.killed
    case.add_to(figure)
    assert case.faults == []
    assert_well(stage)


def test_who_continues_after_a_kill_while_the_reply_streams_is_told_that_it_is_sent_again(stage: Stage) -> None:
    wanted = Strike(phase=Phase.STREAMING, moment=Moment.TEXT)
    assert play(stage, EntryPoint.SHELL, wanted, number=1, kind="note", chance=random.Random(1)).killed
    with stage.installation.store() as store:
        (session,) = store.sessions()
        texts = [one.text for one in store.history(session.id) if isinstance(one, NoticeMessage)]
    assert [text for text in texts if "The request is sent again" in text], texts


def assert_well(stage: Stage) -> None:
    """The session continues with a strict server."""
    ran = stage.run("-p", "still there?", "-c")
    assert (ran.code, ran.out) == (0, "Yes?\n"), ran.err
    assert stage.scene.server.violations == []


def test_there_is_no_named_place_at_which_nothing_is_killed() -> None:
    places = {
        place.partition(":")[0]
        for entry_point in (SCREEN, SHELL)
        for struck in entry_point.values()
        for place in struck[0]
    }
    # A message is kept in one case of the matrix only, what comes after a first death is struck below, contained
    # turns in tests/cli/test_contained.py, undoing in tests/runtime/test_undo.py, saving late in
    # tests/store/test_late_file.py, starting jobs in tests/cli/test_jobs.py,
    # children in tests/cli/test_delegation.py, a copy in tests/store/test_copying.py (tier postgres).
    elsewhere = {"sending_kept", "after_reconcile", "contained", "kept", "undo_listed", "in_late_save"}
    elsewhere |= {"before_job_start", "job_started", "child_created", "child_started", "in_store_copy"}
    assert places | elsewhere == {*NAMES, *OTHER_NAMES}


@pytest.mark.more
@pytest.mark.fault("D07")
@pytest.mark.parametrize("first", ["before_rename:1", "after_rename:1"])
def test_killed_again_while_it_is_found_out_what_came_of_a_call_that_is_found_out_anew(
    first: str, stage: Stage
) -> None:
    assert stage.run("-p", "effect 1 by edit", "--role", "coder").code == 3
    assert approve_elsewhere(stage).ended().code == 0
    with stage.installation.store() as store:
        (session,) = store.sessions()
    for place in (first, "after_reconcile:1"):
        assert stage.command("resume", session.id, point=place).ended().code == KILLED
    assert "finished 1." in stage.run("resume", session.id).out
    assert stage.scene.count(1, "edit") == 1
    assert_well(stage)


@pytest.mark.more
@pytest.mark.fault("D12")
def test_killed_while_a_decision_is_posted_the_same_call_waits_and_runs_once_when_approved(stage: Stage) -> None:
    assert stage.run("-p", "effect 1 by shell", "--role", "coder").code == 3
    before = shown(stage)
    assert approve_elsewhere(stage, point="in_posting:1").ended().code == KILLED
    assert shown(stage) == before
    assert re.search(r"Digest: +[0-9a-f]{64}", before)
    assert approve_elsewhere(stage).ended().code == 0
    assert stage.scene.count(1, "shell") == 0
    with stage.installation.store() as store:
        (session,) = store.sessions()
    assert "finished 1." in stage.run("resume", session.id).out
    assert stage.scene.count(1, "shell") == 1
    assert_well(stage)


def shown(stage: Stage) -> str:
    """Return the output of `approvals show` for the pending call."""
    with stage.installation.store() as store:
        (waiting,) = store.pending_calls()
    assert waiting.decided is None
    return stage.run("approvals", "show", waiting.pending.call.id).out


@pytest.mark.some(1)
@pytest.mark.fault("D21")
@pytest.mark.parametrize("way", ["ctrl+q", "SIGTERM"])
def test_leaving_while_a_decision_is_on_its_way_to_the_disk_stores_it_whole(way: str, stage: Stage) -> None:
    case = Case(strike=Strike(phase=Phase.APPROVED), kind="shell", number=1)
    with stage.chat() as chat:
        chat.ready("coder")
        chat.say(case.message)
        chat.dialog()
        with closing(sqlite3.connect(stage.file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            chat.press("a")
            # The keys to decide with are gone: it is on its way to the disk, which is not to be had now.
            chat.wait_gone(APPROVE)
            if way == "ctrl+q":
                # Once the decision is stored the turn runs, and only a second key quits.
                chat.press(way)
                chat.press(way)
            else:
                os.kill(chat.pid, signal.SIGTERM)
            assert stage.scene.count(1, "shell") == 0
            before = read(stage.file)
            other.execute("ROLLBACK")
        chat.wait_exit()
        assert before is not None
        after_the_kill(stage, case, before, chat.text())
    with stage.installation.store() as store:
        assert [row.decision for row in store.decisions()] == [Approved()]
    requests = len(stage.scene.server.requests) - 1
    gone_on_with(stage, case)
    in_the_end(stage, case, requests)
    assert case.faults == []
    assert_well(stage)


@pytest.mark.more
@pytest.mark.fault("D22")
def test_after_a_power_failure_the_last_acknowledged_state_is_there_and_is_gone_on_with(
    stage: Stage, tmp_path: Path
) -> None:
    with stage.installation.store() as other:
        # As long as another connection is open, what is committed stays in the log.
        assert other.sessions() == []
        assert stage.run("-p", "effect 1 by edit", "--role", "coder").code == 3
        before = shown(stage)
        file, log = (Path(f"{stage.file}{suffix}").read_bytes() for suffix in ("", "-wal"))
    data = tmp_path / "after" / "data"
    data.mkdir(mode=0o700, parents=True)
    (data / stage.file.name).write_bytes(file)
    # Of the next commit only this much had come to the disk.
    (data / f"{stage.file.name}-wal").write_bytes(log + log[32:1056])
    after = Stage(Installation(stage.installation.workspace, data.parent), stage.scene)
    after.installation.flags = stage.installation.flags
    listed = after.run("sessions", "list").out
    assert "waiting for your approval of file_edit" in listed
    assert shown(after) == before
    assert approve_elsewhere(after).ended().code == 0
    assert "finished 1." in after.run("resume", listed.split("\n")[1].split()[0]).out
    assert stage.scene.count(1, "edit") == 1
    assert_well(after)

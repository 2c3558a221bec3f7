"""A home folder that is copied, put back from a backup or moved while a call may run: one word lets it run once."""

import os
import subprocess
from pathlib import Path

import pytest

from chatops.store.identity import file_identity
from tests.e2e.installation import EFFECT, Installation
from tests.faults.entry_points import Pipe, patient_registry
from tests.support.command_line import Ran
from tests.support.fake_openai import call, calls

KILLED = -9
OTHER_COPY = "it may have run in the other copy"


def at(home: Path, pipe: Pipe, *arguments: str) -> Ran:
    return pipe.run(*arguments, env={"CHATOPS_HOME": str(home)})


def waits(home: Path, pipe: Pipe, session: str) -> str:
    """Check that the session's only call asks when resumed in this home, and why."""
    ran = at(home, pipe, "resume", session, "--output-format", "json")
    assert ran.code == 3, ran.err
    (pending,) = ran.json["pending"]
    return str(pending["why"])


def copied(home: Path, to: Path) -> Path:
    subprocess.run(["cp", "-a", str(home), str(to)], check=True)
    return to


@pytest.mark.more
def test_an_approval_runs_a_call_in_its_own_home_and_asks_in_every_copy(
    installation: Installation, pipe: Pipe, tmp_path: Path
) -> None:
    ran = pipe.ask("run it", calls(call("shell_exec", command=EFFECT)), more=("--output-format", "json"))
    assert ran.code == 3
    session, call_id = ran.json["session_id"], ran.json["pending"][0]["id"]
    assert pipe.run("approvals", "approve", call_id).code == 0
    posted = copied(installation.home, tmp_path / "posted")
    assert pipe.run("resume", session, env={"CHATOPS_FAILPOINT": "after_inspect:1"}).code == KILLED
    taken = copied(installation.home, tmp_path / "taken")
    backup = copied(installation.home, tmp_path / "backup")
    moved = tmp_path / "moved"
    os.rename(installation.home, moved)

    # That somebody has looked at it makes it no less a copy.
    assert at(posted, pipe, "approvals", "list").code == 0
    assert OTHER_COPY in waits(posted, pipe, session)
    assert installation.count == 0
    assert at(moved, pipe, "resume", session).code == 0
    assert installation.count == 1
    assert OTHER_COPY in waits(taken, pipe, session)
    assert OTHER_COPY in waits(copied(backup, installation.home), pipe, session)
    assert installation.count == 1

    shown = at(taken, pipe, "approvals", "show", call_id)
    assert "This store was copied or moved: the call may have run in the other copy." in shown.out
    assert at(taken, pipe, "approvals", "approve", call_id).code == 0
    assert at(taken, pipe, "resume", session).code == 0
    assert installation.count == 2, "a new decision of the user counts"


def test_a_call_that_a_rule_permits_asks_in_the_copy(installation: Installation, pipe: Pipe, tmp_path: Path) -> None:
    registry = patient_registry(pipe.provider.server.url)
    registry["roles"]["coder"]["tools"] = ["file_read", "scratch_write"]
    installation.use(registry)
    pipe.provider.script(calls(call("file_read", path="note.txt"), call("scratch_write", text="a note")))
    assert pipe.run("-p", "note it", env={"CHATOPS_FAILPOINT": "before_tool:1"}).code == KILLED
    (listed,) = pipe.run("sessions", "list", "--output-format", "json").json
    copy = copied(installation.home, tmp_path / "copy")
    assert pipe.run("resume", listed["id"]).code == 0
    assert OTHER_COPY in waits(copy, pipe, listed["id"])


def test_a_file_that_is_made_again_under_the_same_number_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    first = file_identity(path)
    if first is None or not first.generation:
        pytest.skip("this file system does not tell the generation of an inode")
    path.unlink()
    path.touch()
    again = file_identity(path)
    assert again is not None
    assert not first.may_be(str(again))

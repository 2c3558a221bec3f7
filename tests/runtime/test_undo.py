"""Undo: the session goes on in a copy, and one question puts back what the turns have changed, also over kills."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.canonical import canonical
from chatops.domain.decisions import Approved, Rejected
from chatops.domain.errors import ChatopsError
from chatops.domain.events import TurnStatus
from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import NoticeMessage, ToolMessage, UserMessage
from chatops.domain.tools import Outcome
from chatops.policy.sandbox import parse_change
from chatops.runtime.session import Session
from chatops.runtime.user_actions import UndoResult, calls_with_effects
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.runtime.demo_session import demo_session, settled, users
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
KILLED = -9


async def say(session: Session, text: str) -> None:
    """Send a message and approve all that it asks."""
    await session.submit(text)
    while await settled(session) is TurnStatus.PAUSED:
        await approve(session)


async def approve(session: Session) -> None:
    await session.settle()
    for pending in session.pending:
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())


def opener(session: Session, number: int) -> UserMessage:
    return [m for m in session.snapshot().messages if isinstance(m, UserMessage)][number]


async def reopened(app: App, done: UndoResult) -> Session:
    session = await app.open_session(done.session_id, attended=True)
    await session.resume()
    await settled(session)
    return session


async def test_the_last_turn_is_taken_back_in_a_copy_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    async with demo_session(tmp_path) as (app, session, _events):
        await say(session, "write two to a.txt")
        await say(session, "write three to a.txt then run `touch made`")
        done = await session.actions.undo(opener(session, 1).id)
        assert done.asks
        assert done.cannot == ("shell_exec (touch made)",)
        assert (tmp_path / "a.txt").read_text() == "three"
        copy = await reopened(app, done)
        assert not [one for one in copy.snapshot().messages if isinstance(one, NoticeMessage)]
        (pending,) = copy.pending
        review = copy.contained_changes(pending.call.arguments)
        assert [one.title for one in review.changes] == ["change a.txt"]
        assert "Not taken back:" in review.notes
        await approve(copy)
        assert await settled(copy) is TurnStatus.ANSWERED
        assert (tmp_path / "a.txt").read_text() == "two"
        assert users(copy) == ["write two to a.txt"]
        assert users(session) == ["write two to a.txt", "write three to a.txt then run `touch made`"]
        # From the copy, back to before the first message, which was said in the original.
        first = await copy.actions.undo(opener(copy, 0).id)
        again = await reopened(app, first)
        await approve(again)
        await settled(again)
        assert (tmp_path / "a.txt").read_text() == "one"
        assert users(again) == []


async def test_what_the_user_has_taken_away_stays_away_in_the_copy(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (app, session, _events):
        await say(session, "hello")
        await session.revoke_tool("shell_exec")
        for change in ("network on", "hosts +example.org", "require hard"):
            await session.change_sandbox(parse_change(change))
        done = await session.actions.undo(opener(session, 0).id)
        copy = await app.open_session(done.session_id, attended=True)
        assert copy.grant().tool("shell_exec") is None
        assert [str(change) for change in copy.settings.sandbox] == ["require hard"]
        await copy.aclose()


async def test_denied_it_changes_nothing_and_without_files_it_asks_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    async with demo_session(tmp_path) as (app, session, _events):
        await say(session, "list .")
        await say(session, "write two to a.txt")
        copy = await reopened(app, await session.actions.undo(opener(session, 1).id))
        (pending,) = copy.pending
        await copy.decide(pending.call.id, digest=pending.digest, decision=Rejected(reason=""))
        assert await settled(copy) is TurnStatus.ANSWERED
        assert (tmp_path / "a.txt").read_text() == "two"
        done = await copy.actions.undo(opener(copy, 0).id)
        assert not done.asks


async def test_an_edit_between_preview_and_approval_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("one")
    async with demo_session(tmp_path) as (app, session, _events):
        await say(session, "write two to b.txt then write two to a.txt")
        copy = await reopened(app, await session.actions.undo(opener(session, 0).id))
        (tmp_path / "b.txt").write_text("mine")
        review = copy.contained_changes(copy.pending[0].call.arguments)
        assert [(one.path, one.conflict) for one in review.changes] == [
            ("b.txt", "changed in the workspace since"), ("a.txt", ""),
        ]  # fmt: skip
        await approve(copy)
        await settled(copy)
        assert (tmp_path / "b.txt").read_text() == "mine"


async def test_a_role_that_may_not_write_takes_nothing_back(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    async with demo_session(tmp_path) as (_app, session, _events):
        await say(session, "write two to a.txt")
        await session.switch_role("researcher")
        with pytest.raises(ChatopsError, match="role researcher may not write files"):
            await session.actions.undo(opener(session, 0).id)
        assert (tmp_path / "a.txt").read_text() == "two"
        await session.switch_role("coder")
        assert (await session.actions.undo(opener(session, 0).id)).asks


async def test_while_a_turn_runs_or_for_another_message_it_is_refused(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _events):
        await say(session, "list .")
        await session.submit("list .")
        if session.snapshot().status is TurnStatus.RUNNING:
            with pytest.raises(ChatopsError, match="a turn is running"):
                await session.actions.undo(opener(session, 0).id)
        await settled(session)
        with pytest.raises(ChatopsError, match="not in this session"):
            await session.actions.undo(opener(session, 0).id.__class__("other.m1"))


_POINTS = (
    ("write", "kept"),
    ("write", "before_rename"),
    ("write", "after_rename"),
    ("undo", "undo_listed"),
    ("undo", "in_commit"),
    ("approve", "before_tool"),
    *(("approve", f"contained:{number}") for number in range(1, 8)),
)


@pytest.mark.more
@pytest.mark.parametrize(("phase", "point"), _POINTS)
def test_a_kill_at_each_step_leaves_one_of_the_two_states(tmp_path: Path, phase: str, point: str) -> None:
    """After the kill the same steps are done again, and in the end the file is as it was before the turn."""
    place = tmp_path / "ws"
    place.mkdir()
    (place / "a.txt").write_text("one")
    for name in ("write", "undo", "approve"):
        killed = name == phase
        code = act(place, name, point if killed else "")
        assert code == (KILLED if killed else 0), (name, code)
        assert (place / "a.txt").read_text() in ("one", "two")
        if killed:
            assert act(place, name, "") == 0
    assert (place / "a.txt").read_text() == "one"
    assert os.listdir(place) == ["a.txt"]


def act(place: Path, name: str, point: str) -> int:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if point:
        environment["CHATOPS_FAILPOINT"] = point if ":" in point else f"{point}:1"
    command = [sys.executable, "-m", "tests.runtime.test_undo", str(place), name]
    return subprocess.run(command, env=environment, cwd=place.parent, timeout=PATIENCE, check=False).returncode


async def _act(place: Path, name: str) -> None:
    app = App(Options(workspace=place, role="coder"))
    try:
        known = sorted(app.store.sessions(workspace=str(place)), key=lambda info: info.created_at)
        if name == "write":
            session = await app.open_session(known[0].id if known else None, attended=True)
            if known and session.unfinished:
                await session.resume()
                while await settled(session) is TurnStatus.PAUSED:
                    await approve(session)
            else:
                await say(session, "write two to a.txt")
        elif name == "undo":
            session = await app.open_session(known[0].id, attended=True)
            await session.actions.undo(opener(session, 0).id)
        else:
            (undecided,) = {app.store.load_turn(turn).session_id for turn in app.store.unfinished_turns()}
            session = await app.open_session(undecided, attended=True)
            await session.resume()
            await settled(session)
            await approve(session)
            await settled(session)
            assert session.snapshot().status is TurnStatus.ANSWERED
    finally:
        await app.aclose()


if __name__ == "__main__":
    asyncio.run(_act(Path(sys.argv[1]), sys.argv[2]))


@pytest.mark.more
def test_what_is_not_taken_back_is_named_without_json() -> None:
    arguments = canonical({"command": "git commit -m x\x1b[2J"})
    call = ToolMessage(
        id=MessageId("s.1.m3"), call_id=CallId("s.1.1.1"), tool="shell_exec", arguments=arguments,
        outcome=Outcome.SUCCESS, content="",
    )  # fmt: skip
    (named,) = calls_with_effects([call]).values()
    assert named.startswith("shell_exec (git commit -m x") and "{" not in named and "\x1b" not in named
    task = replace(call, tool="delegate", arguments=canonical({"role": "writer", "task": "Write it."}))
    assert list(calls_with_effects([task]).values()) == ["delegate (writer, Write it.)"]

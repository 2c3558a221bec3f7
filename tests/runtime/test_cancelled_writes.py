"""Cancelling or closing during a commit (fault D21): the step is stored completely, and memory follows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved, Rejected
from chatops.domain.events import TurnStatus
from chatops.domain.messages import UserMessage
from chatops.engine.view import turn_status
from chatops.runtime import runner
from chatops.runtime.session import Session
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.runtime.slow_store import SlowStore
from tests.store.storekit import problems
from tests.support.waiting import PATIENCE, until

EFFECT = "printf x >> count.txt"
STEPS = 6
"""Commits of a turn with one approved call, whose first inspection is stored with the reply."""


@asynccontextmanager
async def opened(workspace: Path) -> AsyncIterator[App]:
    app = App(Options(workspace=workspace, role="coder"))
    try:
        yield app
    finally:
        await app.aclose()


async def decided(session: Session) -> TurnStatus | None:
    """Return the status of the turn once it is paused or over, after approving every call."""
    await session.settle()
    while session.pending:
        (pending,) = session.pending
        assert not pending.outcome_unknown
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await session.settle()
    return session.snapshot().status


async def test_cancelling_the_sender_during_a_commit_does_not_stop_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as app:
        session = await app.open_session(None, attended=True)
        slow = SlowStore(app, monkeypatch, at=1)
        sending = asyncio.create_task(session.submit(f"run `{EFFECT}`"))
        assert await asyncio.to_thread(slow.begun.wait, PATIENCE)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        slow.go_on.set()
        await until(lambda: session.state is not None)
        assert await decided(session) is TurnStatus.ANSWERED
        assert session.state is not None
        assert session.state == app.store.load_turn(session.state.turn_id)
        assert await session.submit("and again") is True
        await session.settle()
        said = [message.text for message in session.snapshot().messages if isinstance(message, UserMessage)]
        assert said == [f"run `{EFFECT}`", "and again"]
    assert (tmp_path / "count.txt").read_text() == "x"


@pytest.mark.some(1)
@pytest.mark.parametrize("number", range(1, STEPS + 1))
async def test_closing_during_a_commit_resumes_from_the_committed_step(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "INSPECTION_S", PATIENCE)
    async with opened(tmp_path) as app:
        session = await app.open_session(None, attended=True)
        slow = SlowStore(app, monkeypatch, at=number)
        turn = asyncio.create_task(send(session))
        assert await asyncio.to_thread(slow.begun.wait, PATIENCE)
        closing = asyncio.create_task(session.aclose())
        await asyncio.sleep(0)
        turn.cancel()
        slow.go_on.set()
        await closing
        await asyncio.gather(turn, return_exceptions=True)
        (info,) = app.store.sessions()
        assert info.last_turn is not None
        assert app.store.load_turn(info.last_turn).seq == number - 1
    async with opened(tmp_path) as app:
        session = await app.open_session(info.id, attended=True)
        await session.resume()
        await session.settle()
        outcome_unknown = any(pending.outcome_unknown for pending in session.pending)
        assert outcome_unknown == (number == STEPS - 2), "only what was started may have run"
        if not outcome_unknown:
            await decided(session)
            assert turn_status(app.store.load_turn(info.last_turn)) is TurnStatus.ANSWERED
            assert (tmp_path / "count.txt").read_text() == "x"
        assert problems(app.store) == []


async def send(session: Session) -> None:
    await session.submit(f"run `{EFFECT}`")
    await decided(session)


async def test_a_decision_is_answered_although_the_session_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as app:
        session = await app.open_session(None, attended=True)
        await session.submit(f"run `{EFFECT}`")
        await session.settle()
        (pending,) = session.pending
        slow = SlowStore(app, monkeypatch, at=1)
        first, second = (
            asyncio.create_task(session.decide(pending.call.id, digest=pending.digest, decision=decision))
            for decision in (Approved(), Rejected())
        )
        assert await asyncio.to_thread(slow.begun.wait, PATIENCE)
        closing = asyncio.create_task(session.aclose())
        await asyncio.sleep(0)
        slow.go_on.set()
        await closing
        async with asyncio.timeout(PATIENCE):
            # A denial counts over an approval that the turn has not taken yet.
            assert (await first, await second) == (False, True)
        assert not (tmp_path / "count.txt").exists()

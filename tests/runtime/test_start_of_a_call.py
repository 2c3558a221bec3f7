"""Right before a tool starts, the lease is checked. The tool starts only if it is still held; the call always ends."""

import asyncio
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.errors import NotSavedError, StoreError
from chatops.domain.events import Notice, ToolFinished, TurnStatus
from chatops.domain.tools import Outcome
from chatops.runtime.session import Session
from tests.runtime.demo_session import demo_session, settled
from tests.support.waiting import PATIENCE


async def approve(session: Session) -> None:
    """Approve the pending call."""
    await session.settle()
    (pending,) = session.pending
    await session.decide(pending.call.id, digest=pending.digest, decision=Approved())


async def test_a_call_does_not_start_if_the_lease_cannot_be_read(tmp_path: Path) -> None:
    async def cannot_tell() -> bool:
        raise StoreError("The disk could not be read.")

    async with demo_session(tmp_path) as (_, session, events):
        session._turns.performer._holds_lease = cannot_tell
        await session.submit("run `touch made.txt`")
        await approve(session)
        async with asyncio.timeout(PATIENCE):
            assert await settled(session) is TurnStatus.ANSWERED
        (ended,) = (event for event in events if isinstance(event, ToolFinished))
        assert ended.outcome is Outcome.FAILED
        assert ended.content == "Not run: the session store could not be read. The disk could not be read."
        assert not (tmp_path / "made.txt").exists()


async def test_a_call_waits_for_a_store_that_is_away_and_then_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatops.runtime.services.SINK_TIMEOUT_S", 0.01)
    faults = ["The database cannot be reached.", "It starts."]

    async def is_away_twice() -> bool:
        if faults:
            raise NotSavedError(faults.pop(0))
        return True

    async with demo_session(tmp_path) as (_, session, events):
        session._turns.performer._holds_lease = is_away_twice
        await session.submit("run `touch made.txt`")
        await approve(session)
        async with asyncio.timeout(PATIENCE):
            assert await settled(session) is TurnStatus.ANSWERED
        (ended,) = (event for event in events if isinstance(event, ToolFinished))
        assert ended.outcome is Outcome.SUCCESS
        assert (tmp_path / "made.txt").exists()
        notices = [event.text for event in events if isinstance(event, Notice) and "waits" in event.text]
        assert notices == [f"{ended.id} waits. The database cannot be reached."]


async def test_a_turn_stopped_before_its_call_starts_is_over(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never_answers() -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    async with demo_session(tmp_path) as (_, session, events):
        session._turns.performer._holds_lease = never_answers
        await session.submit("run `touch made.txt`")
        await approve(session)
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
            assert await session.cancel()
            assert await settled(session) is TurnStatus.CANCELLED
        (ended,) = (event for event in events if isinstance(event, ToolFinished))
        assert (ended.outcome, ended.content) == (Outcome.INTERRUPTED, "Not run: the user stopped the turn.")
        assert not (tmp_path / "made.txt").exists()

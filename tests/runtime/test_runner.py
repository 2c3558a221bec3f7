"""The runner: inputs during a handover that is withdrawn, a lost session, and notices about unsaved steps."""

import asyncio
from pathlib import Path

import pytest

from chatops.domain.errors import ConflictError, NotSavedError
from chatops.domain.events import Notice, TurnStatus
from chatops.engine.inputs import CancelTurn
from tests.runtime.demo_session import demo_session, settled


async def test_inputs_during_a_handover_are_taken_if_the_request_is_withdrawn(
    tmp_path: Path,
) -> None:
    async with demo_session(tmp_path) as (_, session, _told):
        runner = session._runner
        coming = asyncio.create_task(runner.quiesce())
        await asyncio.sleep(0)
        await session.submit("run `touch one`")
        await coming
        runner.deliver(CancelTurn())
        assert await runner.take(CancelTurn()) is False, "the caller is not kept waiting"
        runner.continue_here()
        assert await settled(session) is TurnStatus.CANCELLED
        assert not (tmp_path / "one").exists()


async def test_a_session_lost_to_another_process_is_not_retried(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, events):
        await session.submit("hello")
        await settled(session)
        session._runner._on_conflict(ConflictError("It went on elsewhere."))
        before = len(events)
        assert await session.retry() is False
        assert isinstance(session.blocked_by, ConflictError)
        assert events[before:] == []


@pytest.mark.parametrize(
    ("why", "says_so"),
    [("Disk full: this is not.", False), ("Not saved: it is locked.", True), ("Not saving: it is read-only.", True)],
)
async def test_a_notice_says_once_that_something_is_not_saved(why: str, says_so: bool, tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, events):
        session._runner.report_unsaved(NotSavedError(why, says_so=says_so))
        (notice,) = (event for event in events if isinstance(event, Notice))
        assert notice.text.count("Not sav") == 1
        assert notice.text.endswith(why)

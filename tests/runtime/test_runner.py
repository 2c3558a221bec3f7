"""The one way in, where another process asks for the conversation and then does not want it any more."""

import asyncio
from pathlib import Path

import pytest

from chatops.domain.errors import ConflictError, NotSavedError
from chatops.domain.events import Notice, TurnStatus
from chatops.engine.inputs import CancelTurn
from tests.runtime.talk import settled, talking


async def test_what_comes_in_while_a_step_is_left_to_another_process_is_taken_if_it_goes_on_here(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path) as (_, session, _told):
        runner = session._runner
        coming = asyncio.create_task(runner.quiesce())
        await asyncio.sleep(0)
        await session.submit("run `touch one`")
        await coming
        runner.deliver(CancelTurn())
        assert await runner.take(CancelTurn()) is False, "whoever waits is not kept waiting"
        runner.continue_here()
        assert await settled(session) is TurnStatus.CANCELLED
        assert not (tmp_path / "one").exists()


async def test_what_another_process_went_on_with_is_not_said_to_be_saved_here(tmp_path: Path) -> None:
    async with talking(tmp_path) as (_, session, told):
        await session.submit("hello")
        await settled(session)
        session._runner._lost(ConflictError("It went on elsewhere."))
        before = len(told)
        assert await session.retry() is False
        assert isinstance(session.blocked_by, ConflictError)
        assert told[before:] == []


@pytest.mark.parametrize(
    ("why", "says_so"),
    [("Disk full: this is not.", False), ("Not saved: it is locked.", True), ("Not saving: it is read-only.", True)],
)
async def test_that_something_is_not_saved_is_said_once(why: str, says_so: bool, tmp_path: Path) -> None:
    async with talking(tmp_path) as (_, session, told):
        session._runner.report_unsaved(NotSavedError(why, says_so=says_so))
        (notice,) = (event for event in told if isinstance(event, Notice))
        assert notice.text.count("Not sav") == 1
        assert notice.text.endswith(why)

"""The runner: what one commit stores, inputs during a handover that is withdrawn, a lost session, unsaved steps."""

import asyncio
from pathlib import Path

import pytest

from chatops.domain.decisions import RememberedRule
from chatops.domain.errors import ConflictError, NotSavedError
from chatops.domain.events import Notice, ToolStarted, TurnStatus
from chatops.domain.messages import AssistantMessage, ToolMessage
from chatops.domain.tools import CallFacts, Outcome, ToolCall
from chatops.engine.effects import InspectCall, RunTool, TurnStep
from chatops.engine.inputs import CancelTurn
from chatops.runtime import runner
from chatops.runtime.session import Session
from chatops.toolkit.base import Tool
from chatops.wiring.app import App
from tests.runtime.demo_session import demo_session, settled
from tests.runtime.slow_store import SlowStore
from tests.support.waiting import PATIENCE, until


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


def steps_of_replies(app: App, monkeypatch: pytest.MonkeyPatch) -> list[TurnStep]:
    """Return a list that gets each step with a model's message when it is committed."""
    commit, steps = app.store.commit, list[TurnStep]()

    def keep(step: TurnStep, lease: str) -> None:
        steps.extend([step] if any(isinstance(one, AssistantMessage) for one in step.messages) else [])
        commit(step, lease)

    monkeypatch.setattr(app.store, "commit", keep)
    return steps


def hold_inspections(session: Session, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Let no inspection end before the second event is set; the first one says that one has begun."""
    performer, begun, go_on = session._turns.performer, asyncio.Event(), asyncio.Event()
    find = performer._find_facts

    async def wait(tool: Tool, effect: InspectCall) -> CallFacts:
        begun.set()
        await go_on.wait()
        return await find(tool, effect)

    monkeypatch.setattr(performer, "_find_facts", wait)
    return begun, go_on


@pytest.mark.parametrize("waits_s", [PATIENCE, 0.0])
async def test_a_reply_is_stored_with_the_start_of_its_call_if_the_inspection_ends_soon(
    waits_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "INSPECTION_S", waits_s)
    async with demo_session(tmp_path) as (app, session, _told):
        steps = steps_of_replies(app, monkeypatch)
        await session.submit("list .")
        assert await settled(session) is TurnStatus.ANSWERED
        starts = [any(isinstance(effect, RunTool) for effect in step.effects) for step in steps]
        assert starts == [waits_s > 0, False]
        assert session.state is not None
        journal = app.store.journal(session.state.turn_id)
        assert [(row.attempt, row.outcome) for row in journal] == [(1, Outcome.SUCCESS)]


async def test_an_input_that_comes_before_the_inspection_is_taken_after_the_reply_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "INSPECTION_S", PATIENCE)
    async with demo_session(tmp_path) as (app, session, events):
        begun, _ = hold_inspections(session, monkeypatch)
        await session.submit("list .")
        await begun.wait()
        assert await session.cancel()
        assert await settled(session) is TurnStatus.CANCELLED
        _, reply, result = app.store.history(session.session_id)
        assert isinstance(reply, AssistantMessage) and not reply.incomplete
        assert isinstance(result, ToolMessage) and result.call_id == reply.calls[0].id
        assert not any(isinstance(event, ToolStarted) for event in events)


async def test_no_call_starts_whose_reply_waits_while_another_process_asks_for_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "INSPECTION_S", PATIENCE)
    async with demo_session(tmp_path) as (app, session, events):
        begun, go_on = hold_inspections(session, monkeypatch)
        await session.submit("list .")
        await begun.wait()
        coming = asyncio.create_task(session._runner.quiesce())
        await asyncio.sleep(0)
        go_on.set()
        await coming
        assert isinstance(app.store.history(session.session_id)[-1], AssistantMessage)
        assert not any(isinstance(event, ToolStarted) for event in events)
        session._runner.continue_here()
        assert await settled(session) is TurnStatus.ANSWERED
        assert sum(isinstance(event, ToolStarted) for event in events) == 1


@pytest.mark.parametrize("fails", [False, True])
async def test_what_ends_while_a_commit_takes_its_time_is_stored_in_one_step(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "INSPECTION_S", PATIENCE)
    monkeypatch.setattr(runner, "RETRY_S", 0.01)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)

    async def no_rules(call: ToolCall) -> tuple[RememberedRule, ...]:
        return ()

    async with demo_session(tmp_path) as (app, session, _told):
        # They are read in the thread of the commit, which is held.
        monkeypatch.setattr(session._turns.performer, "_read_rules", no_rules)
        slow, starts = SlowStore(app, monkeypatch, at=2), list[int]()

        def count(step: TurnStep, lease: str) -> None:
            starts.append(sum(isinstance(effect, RunTool) for effect in step.effects))
            if fails and starts[-1] == 2 and starts.count(2) == 1:
                raise NotSavedError("The disk is full.")
            slow(step, lease)

        monkeypatch.setattr(app.store, "commit", count)
        await session.submit("list . and read a and read b")
        await until(lambda: len(session._runner._inbox) == 2)
        slow.go_on.set()
        await until(lambda: session.snapshot().status is TurnStatus.ANSWERED)
        assert [number for number in starts if number] == [1, 2, *([2] if fails else [])]
        assert session.state is not None
        journal = app.store.journal(session.state.turn_id)
        assert [(row.attempt, row.outcome) for row in journal] == [(1, Outcome.SUCCESS)] * 3


async def test_a_reply_that_was_stored_without_a_word_is_recognised_whichever_inspection_ends_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "INSPECTION_S", PATIENCE)
    monkeypatch.setattr(runner, "RETRY_S", 0.01)
    (tmp_path / "a").write_text("a")
    async with demo_session(tmp_path) as (app, session, _told):
        performer, commit = session._turns.performer, app.store.commit
        find, lost, inspected = performer._find_facts, list[TurnStep](), list[str]()

        async def find_in_turn(tool: Tool, effect: InspectCall) -> CallFacts:
            # The first call is inspected first, and last when both are inspected again.
            reads = effect.call.name == "file_read"
            await until(lambda: bool(lost) if reads else not lost or inspected.count("file_read") == 2)
            inspected.append(effect.call.name)
            return await find(tool, effect)

        def lose_once(step: TurnStep, lease: str) -> None:
            commit(step, lease)
            if not lost and step.messages and any(isinstance(effect, RunTool) for effect in step.effects):
                lost.append(step)
                raise NotSavedError("The connection is lost.")

        monkeypatch.setattr(performer, "_find_facts", find_in_turn)
        monkeypatch.setattr(app.store, "commit", lose_once)
        await session.submit("list . and read a")
        await until(lambda: session.snapshot().status is TurnStatus.ANSWERED)
        assert lost and session.blocked_by is None and session.state is not None
        journal = app.store.journal(session.state.turn_id)
        assert [(row.attempt, row.outcome) for row in journal] == [(1, Outcome.SUCCESS)] * 2

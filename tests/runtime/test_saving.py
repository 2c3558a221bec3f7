"""Sessions whose store cannot be written: messages continue in memory, nothing is approved or run, nothing is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved, Rejected
from chatops.domain.errors import NotSavedError, StoreError
from chatops.domain.events import Notice, TurnStatus
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from chatops.domain.tools import Outcome
from chatops.engine.effects import TurnStep
from chatops.engine.state import Finished
from chatops.runtime import runner
from chatops.runtime.session import Session
from chatops.store.store import Store
from chatops.wiring.app import App
from tests.runtime.demo_session import demo_session, settled, users
from tests.runtime.slow_store import SlowStore
from tests.store.storekit import problems
from tests.support.waiting import PATIENCE, until


def fill_up(app: App) -> None:
    """Keep the file from growing, which SQLite reports like a full disk."""
    store = app.store
    assert isinstance(store, Store)
    store._rows.one("PRAGMA max_page_count = 1")


def shut(app: App) -> None:
    """Make the store read-only."""
    store = app.store
    assert isinstance(store, Store)
    store._rows.one("PRAGMA query_only = 1")


def make_room(app: App) -> None:
    store = app.store
    assert isinstance(store, Store)
    store._rows.one("PRAGMA max_page_count = 1000000")
    store._rows.one("PRAGMA query_only = 0")


def stored(app: App, session: Session) -> list[Message]:
    return [m for m in app.store.history(session.session_id) if isinstance(m, UserMessage | AssistantMessage)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry nothing automatically unless a test wants it."""
    monkeypatch.setattr(runner, "RETRY_S", 3600.0)


@pytest.mark.more
async def test_messages_continue_in_memory_and_are_stored_in_order_later(tmp_path: Path) -> None:
    long = "word " * 4000
    async with demo_session(tmp_path) as (app, session, events):
        await session.submit("hello")
        assert await settled(session) is TurnStatus.ANSWERED
        before = stored(app, session)
        fill_up(app)
        for text in (f"one {long}", f"two {long}"):
            assert await session.submit(text)
            assert await settled(session) is TurnStatus.ANSWERED
        assert session.unsaved.startswith("Disk full: this turn is not saved.")
        assert session.snapshot().concern == session.unsaved
        assert len(users(session)) == 3
        assert stored(app, session) == before
        # Said once, however often it is tried.
        with pytest.raises(NotSavedError):
            await session.retry()
        assert len([event for event in events if isinstance(event, Notice) and "Not saved" in event.text]) == 1
        make_room(app)
        assert await session.retry()
        assert session.unsaved == ""
        seen = [m for m in session.snapshot().messages if isinstance(m, UserMessage | AssistantMessage)]
        assert stored(app, session) == seen
        assert problems(app.store) == []
        assert await session.submit("three")
        assert await settled(session) is TurnStatus.ANSWERED
        assert len(users(session)) == 4


@pytest.mark.more
async def test_a_queued_message_is_sent_once_after_everything_before_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with demo_session(tmp_path) as (app, session, _):
        await session.submit("run `touch one`")
        assert await settled(session) is TurnStatus.PAUSED
        assert not await session.submit("and this")
        assert not await session.submit("and that")
        (pending,) = session.pending
        commit, full = app.store.commit, False

        def commit_until_full(step: TurnStep, lease: str) -> None:
            nonlocal full
            commit(step, lease)
            # The result of the call is the last thing that there is room for.
            if step.results and not full:
                full = True
                shut(app)

        monkeypatch.setattr(app.store, "commit", commit_until_full)
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        assert await settled(session) is TurnStatus.ANSWERED
        await until(lambda: session.queue._waits_for_store or len(users(session)) > 1)
        assert users(session) == ["run `touch one`"]
        assert session.snapshot().queued == ("and this", "and that")
        make_room(app)
        assert await session.retry()
        await until(lambda: not session.snapshot().queued and session.snapshot().status is TurnStatus.ANSWERED)
        assert users(session) == ["run `touch one`", "and this", "and that"]
        assert [m.text for m in stored(app, session) if isinstance(m, UserMessage)] == users(session)
        assert app.store.queued_messages(session.session_id) == ()


async def test_a_message_is_stored_after_the_steps_that_wait(tmp_path: Path) -> None:
    """Before it is known that saving works again: the turn that waits has the number that the store would give."""
    async with demo_session(tmp_path) as (app, session, _told):
        await session.submit("hello")
        assert await settled(session) is TurnStatus.ANSWERED
        shut(app)
        assert await session.submit("one")
        assert await settled(session) is TurnStatus.ANSWERED
        make_room(app)
        assert await session.submit("two")
        assert await settled(session) is TurnStatus.ANSWERED
        assert users(session) == ["hello", "one", "two"]
        assert [m.text for m in stored(app, session) if isinstance(m, UserMessage)] == users(session)
        assert session.blocked_by is None


async def test_saving_is_retried_automatically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RETRY_S", 0.01)
    async with demo_session(tmp_path) as (app, session, events):
        await session.submit("hello")
        await settled(session)
        fill_up(app)
        await session.submit("and " * 4000)
        await settled(session)
        assert session.unsaved
        make_room(app)
        await until(lambda: session.unsaved == "")
        assert len(stored(app, session)) == 4
        assert any(isinstance(event, Notice) and "Saving works again" in event.text for event in events)


async def test_a_decision_that_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (app, session, _):
        await session.submit("run `touch one`")
        assert await settled(session) is TurnStatus.PAUSED
        (pending,) = session.pending
        shut(app)
        for decision in (Approved(), Rejected()):
            with pytest.raises(NotSavedError, match="cannot be written"):
                await session.decide(pending.call.id, digest=pending.digest, decision=decision)
        assert session.pending == (pending,)
        make_room(app)
        assert await session.retry()
        await settled(session)
        # An answer that was refused is none: it is not taken later either.
        assert session.pending == (pending,)
        assert not (tmp_path / "one").exists()
        assert app.store.decisions() == []
        assert await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        assert await settled(session) is TurnStatus.ANSWERED
        assert (tmp_path / "one").exists()
        assert len(app.store.decisions()) == 1


async def test_a_permitted_call_does_not_run_before_its_intent_is_stored(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("x")
    async with demo_session(tmp_path) as (app, session, _):
        await session.submit("hello")
        await settled(session)
        shut(app)
        await session.submit("search there")
        await session.settle()
        assert session.state is not None
        if isinstance(session.state.phase, Finished):
            pytest.fail("the demo proposed no call")
        make_room(app)
        assert await session.retry()
        assert await settled(session) is TurnStatus.ANSWERED
        assert session.state is not None
        assert [row.outcome is not None for row in app.store.journal(session.state.turn_id)] == [True]


async def test_a_result_that_cannot_be_stored_is_kept_and_the_call_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with demo_session(tmp_path) as (app, session, _):
        await session.submit("run `echo x >> one`")
        await settled(session)
        (pending,) = session.pending
        commit = app.store.commit
        full = True

        def refuse_results(step: TurnStep, lease: str) -> None:
            if full and step.results:
                raise NotSavedError("Disk full: this is not saved.", advice="Make room.", reason="disk full")
            commit(step, lease)

        monkeypatch.setattr(app.store, "commit", refuse_results)
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await until(lambda: bool(session.unsaved))
        assert session.snapshot().status is TurnStatus.RUNNING
        full = False
        assert await session.retry()
        assert await settled(session) is TurnStatus.ANSWERED
        assert (tmp_path / "one").read_text() == "x\n"


@asynccontextmanager
async def with_an_unsaved_result(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, *, is_lost: bool = False
) -> AsyncIterator[tuple[App, Session]]:
    """A call has run and its result could not be stored; the next step can be.

    With `is_lost` it was stored, and the database was lost before it said so.
    """
    async with demo_session(workspace) as (app, session, _):
        await session.submit("run `echo x >> one`")
        await settled(session)
        (pending,) = session.pending
        commit, troubles = app.store.commit, [NotSavedError("Disk full.", advice="Make room.", reason="disk full")]

        def refuse_one_result(step: TurnStep, lease: str) -> None:
            if troubles and step.results:
                if is_lost:
                    commit(step, lease)
                raise troubles.pop()
            commit(step, lease)

        monkeypatch.setattr(app.store, "commit", refuse_one_result)
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await until(lambda: bool(session.unsaved))
        yield app, session


def outcomes(app: App, session: Session) -> list[Outcome]:
    return [m.outcome for m in app.store.history(session.session_id) if isinstance(m, ToolMessage)]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_an_unsaved_result_is_stored_before_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    async with with_an_unsaved_result(tmp_path, monkeypatch, is_lost=is_lost) as (app, session):
        assert await session.cancel()
        async with asyncio.timeout(PATIENCE):
            await until(lambda: session.snapshot().status is TurnStatus.CANCELLED)
        assert outcomes(app, session) == [Outcome.SUCCESS]


async def test_an_unsaved_result_is_stored_before_a_handover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with with_an_unsaved_result(tmp_path, monkeypatch) as (app, session):
        await session._runner.quiesce()
        assert outcomes(app, session) == [Outcome.SUCCESS]


async def test_any_other_storage_error_stops_the_turn_until_a_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(step: TurnStep, lease: str) -> None:
        raise StoreError("the store is broken")

    async with demo_session(tmp_path) as (app, session, events):
        await session.submit("run `touch one`")
        await settled(session)
        (pending,) = session.pending
        with monkeypatch.context() as context:
            context.setattr(app.store, "commit", broken)
            assert await session.cancel() is False
            with pytest.raises(StoreError, match="broken"):
                await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        assert str(session.blocked_by) == "the store is broken"
        assert any(isinstance(event, Notice) and "Not saved" in event.text for event in events)
        assert await session.retry()
        assert session.blocked_by is None
        assert session.pending == (pending,)


async def test_a_first_message_that_cannot_be_stored_is_refused_with_a_lasting_reason(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (app, session, _):
        shut(app)
        with pytest.raises(NotSavedError):
            await session.submit("hello")
        assert session.unsaved.startswith("Home is read-only: this turn is not saved.")
        make_room(app)
        assert await session.retry()
        assert session.unsaved == ""
        assert await session.submit("hello")
        assert await settled(session) is TurnStatus.ANSWERED


async def test_a_role_switch_is_stored_after_the_steps_that_wait(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (app, session, _):
        await session.submit("hello")
        await settled(session)
        fill_up(app)
        await session.submit("and " * 4000)
        await settled(session)
        with pytest.raises(NotSavedError):
            await session.switch_role("researcher")
        make_room(app)
        await session.switch_role("coder")
        kinds = [message.kind for message in app.store.history(session.session_id)]
        assert kinds == ["user", "assistant", "user", "assistant", "role_switch"]


@pytest.mark.more
async def test_a_retry_after_a_cancelled_one_stores_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with demo_session(tmp_path) as (app, session, _):
        await session.submit("hello")
        await settled(session)
        fill_up(app)
        for text in ("one " * 4000, "two " * 4000):
            assert await session.submit(text)
            await settled(session)
        make_room(app)
        slow = SlowStore(app, monkeypatch, at=1)
        saving = asyncio.create_task(session.retry())
        assert await asyncio.to_thread(slow.begun.wait, PATIENCE)
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        slow.go_on.set()
        assert await session.retry()
        assert len(stored(app, session)) == 6
        assert session.blocked_by is None
        assert problems(app.store) == []

"""Two processes and one session: its owner, the handover, and that nothing is done twice."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved, Rejected
from chatops.domain.errors import ConflictError, SessionHeldError, StoreError
from chatops.domain.events import CallProposed, Event, Notice, ToolStarted, TurnStatus
from chatops.domain.ids import CallId, SessionId, TurnId, child_session
from chatops.domain.messages import ToolMessage, UserMessage
from chatops.domain.tools import Outcome
from chatops.engine.inputs import DecideCall
from chatops.engine.workflow.state import RunFinished, RunResult
from chatops.policy.workflow import StepSpec, WorkflowSpec
from chatops.runtime.services import Services
from chatops.runtime.session import Session, open_session, owned
from chatops.runtime.session_follower import LeaseRequestState, SessionFollower, follow_session
from chatops.runtime.view import SessionView
from chatops.runtime.workflow import new_run, open_run
from chatops.store.base import Holder, SessionInfo
from chatops.store.process_identity import is_alive, this_process
from chatops.store.store import Store
from chatops.tui.screens.open_session import OpenSession
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.support.fake_openai import FakeOpenAI, call, calls, says
from tests.support.waiting import until
from tests.support.workflows import answer

SECOND = replace(this_process(), pid=2_000_000_000, boot_id="", pid_started="")
"""Another process of this machine, as far as the store knows."""


class Window:
    """A process: an app of its own that acts as `holder`."""

    def __init__(self, workspace: Path, holder: Holder, registry: Path | None) -> None:
        self.app = App(Options(workspace=workspace, role="coder", registry=registry))
        known = (this_process(), SECOND)
        self.app.__dict__["store"] = Store(
            self.app.paths.store, process=lambda: holder, alive=lambda one: one in known or is_alive(one)
        )
        self.services: Services = replace(self.app._services(attended=True), holder=holder)
        self.events: list[Event] = []

    async def open(self, of: SessionView | None = None) -> Session:
        session = await open_session(
            self.services, of.session_id if of is not None else None, role="" if of else "coder", default_role="coder"
        )
        session.subscribe(lambda published: self.events.append(published.event))
        self.app.open_sessions.add(session)
        return session

    async def read(self, of: SessionView) -> SessionFollower:
        reader = await follow_session(self.services, of.session_id)
        self.app.open_sessions.add(reader)
        return reader


@asynccontextmanager
async def two_windows(workspace: Path, registry: Path | None = None) -> AsyncIterator[tuple[Window, Window]]:
    first, second = Window(workspace, this_process(), registry), Window(workspace, SECOND, registry)
    try:
        yield first, second
    finally:
        await second.app.aclose()
        await first.app.aclose()


async def at_work(window: Window) -> tuple[Session, CallId]:
    """Return a session with a running call, which ends when a file `go` exists and writes an x to `one`."""
    session = await window.open()
    await session.submit("run `until test -e go; do sleep 0.05; done; printf x >> one`")
    await session.settle()
    (pending,) = session.pending
    await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
    return session, pending.call.id


def said(session: SessionView) -> list[str]:
    return [m.text for m in session.snapshot().messages if isinstance(m, UserMessage)]


async def test_a_follower_sees_messages_and_calls_and_cannot_send(tmp_path: Path) -> None:
    async with two_windows(tmp_path) as (first, second):
        session = await first.open()
        await session.submit("list .")
        await session.settle()
        with pytest.raises(SessionHeldError, match=f"pid {this_process().pid}, since "):
            await second.open(session)
        reader = await second.read(session)
        assert (said(reader), reader.request_state) == (["list ."], LeaseRequestState.HELD)
        changes: list[None] = []
        reader.on_change(lambda: changes.append(None))
        await session.submit("run `touch one`")
        await until(lambda: bool(reader.pending))
        assert said(reader) == ["list .", "run `touch one`"]
        assert changes
        with pytest.raises(SessionHeldError, match=r"The message was not sent: .*open elsewhere"):
            await owned(reader, "The message was not sent").submit("x")
        assert not await reader.cancel()


async def test_a_follower_adds_up_earlier_turns_only_once(
    tmp_path: Path,
) -> None:
    async with two_windows(tmp_path) as (first, second):
        session = await first.open()
        for text in ("list .", "run `touch one`"):
            await session.submit(text)
            await session.settle()
        reader = await second.read(session)
        assert reader.snapshot().usage == session.snapshot().usage
        (pending,) = session.pending
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await session.settle()
        await until(lambda: reader.snapshot().status is TurnStatus.ANSWERED)
        assert reader.snapshot().usage == session.snapshot().usage
        await session.submit("list .")
        await session.settle()
        await until(lambda: said(reader)[2:] == ["list ."] and reader.snapshot().status is TurnStatus.ANSWERED)
        assert reader.snapshot().usage == session.snapshot().usage


async def test_a_follower_sees_a_role_switch_after_the_followed_turn(
    tmp_path: Path,
) -> None:
    async with two_windows(tmp_path) as (first, second):
        session = await first.open()
        await session.submit("list .")
        await session.settle()
        reader = await second.read(session)
        await session.switch_role("researcher")
        await until(lambda: reader.snapshot().role == "researcher")
        seen, there = reader.snapshot(), session.snapshot()
        assert [one.kind for one in seen.messages][-2:] == ["assistant", "role_switch"]
        assert (seen.messages, reader.grant()) == (there.messages, session.grant())


async def test_a_follower_survives_failed_reads_and_failed_drawing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles: list[Exception] = [ZeroDivisionError(), StoreError("not now")]

    def fails() -> None:
        if troubles:
            raise troubles.pop()

    async with two_windows(tmp_path) as (first, second):
        session = await first.open()
        await session.submit("hello")
        await session.settle()
        reader = await second.read(session)
        look = second.app.store.session

        def looked(wanted: SessionId) -> SessionInfo:
            fails()
            return look(wanted)

        monkeypatch.setattr(second.app.store, "session", looked)
        reader.on_change(fails)
        await session.submit("and again")
        await until(lambda: not troubles)
        await session.settle()
        await session.submit("and once more")
        await session.settle()
        await until(lambda: said(reader) == said(session))


async def test_a_follower_may_decide_and_the_first_decision_counts(tmp_path: Path) -> None:
    async with two_windows(tmp_path) as (first, second):
        session = await first.open()
        await session.submit("run `touch one`")
        await session.settle()
        reader = await second.read(session)
        (pending,) = reader.pending
        assert await reader.decide(pending.call.id, digest=pending.digest, decision=Rejected(reason="no"))
        await until(lambda: session.snapshot().status is TurnStatus.ANSWERED)
        assert not await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        answer = await session.decision_on(pending.call.id)
        assert answer is not None and isinstance(answer.decision, Rejected)
        await until(lambda: reader.snapshot().status is TurnStatus.ANSWERED)
        assert not await reader.decide(pending.call.id, digest=pending.digest, decision=Approved())
        assert not (tmp_path / "one").exists()


async def test_an_idle_owner_hands_over_at_once_with_its_pending_call(tmp_path: Path) -> None:
    async with two_windows(tmp_path) as (first, second):
        session = await first.open()
        await session.submit("run `touch one`")
        await session.settle()
        reader = await second.read(session)
        before = reader.pending
        await reader.take_over()
        await until(lambda: reader.request_state is LeaseRequestState.GRANTED)
        await until(lambda: isinstance(session.taken_over, ConflictError))
        assert any(isinstance(event, Notice) and f"pid {SECOND.pid}" in event.text for event in first.events)
        with pytest.raises(ConflictError):
            await session.submit("and this")
        reader.stop()
        taken = await second.open(reader)
        await taken.resume()
        assert taken.pending == before
        back = await first.read(session)
        assert back.lease is not None and back.lease.holder == SECOND
        (pending,) = taken.pending
        await taken.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await taken.settle()
        assert (tmp_path / "one").exists()


async def test_a_follower_tells_a_call_that_runs_from_one_whose_process_died(tmp_path: Path) -> None:
    async with two_windows(tmp_path) as (first, second):
        session, call_id = await at_work(first)
        reader = await second.read(session)
        await until(lambda: [event.id for event in reader.events() if isinstance(event, ToolStarted)] == [call_id])
        await session.aclose()
        await until(lambda: reader.lease is None)
        loaded = await second.open(session)
        for view in (reader, loaded):
            kinds = [type(event) for event in view.events() if event.id == call_id]
            assert kinds == [CallProposed], "it was started, and does not run"


async def test_a_decided_turn_counts_as_executed_while_a_process_is_started_for_it(tmp_path: Path) -> None:
    go = threading.Event()
    async with two_windows(tmp_path) as (first, second):
        session = await first.open()
        await session.submit("run `touch one`")
        await session.settle()
        second.services = replace(second.services, start_job=lambda session_id: f"started {go.wait()}")
        reader = await second.read(session)
        await session.aclose()
        await until(lambda: reader.lease is None)
        shown = OpenSession(session=reader, workspace=second.app.workspace, follower=reader)  # type: ignore[arg-type]
        assert not shown.elsewhere(reader.snapshot())
        (pending,) = reader.pending
        deciding = asyncio.create_task(reader.decide(pending.call.id, digest=pending.digest, decision=Approved()))
        await until(lambda: shown.elsewhere(reader.snapshot()))
        assert reader.snapshot().status is TurnStatus.PAUSED, "no process has taken the decision"
        go.set()
        assert await deciding
        assert not shown.elsewhere(reader.snapshot()), "none was started"


async def test_handover_waits_for_a_running_tool_and_keeps_its_result(tmp_path: Path) -> None:
    async with two_windows(tmp_path) as (first, second):
        session, call_id = await at_work(first)
        reader = await second.read(session)
        await reader.take_over()
        await until(lambda: session.wanted_by == SECOND)
        assert reader.request_state is LeaseRequestState.REQUESTED
        assert session.taken_over is None
        (tmp_path / "go").touch()
        await until(lambda: reader.request_state is LeaseRequestState.GRANTED)
        reader.stop()
        taken = await second.open(reader)
        await taken.resume()
        await taken.settle()
        assert taken.snapshot().status is TurnStatus.ANSWERED
        results = [m.outcome for m in taken.snapshot().messages if isinstance(m, ToolMessage)]
        assert results == [Outcome.SUCCESS]
        assert (tmp_path / "one").read_text() == "x"
        assert [row.attempt for row in second.app.store.journal(turn_of(call_id))] == [1]


async def test_an_owner_whose_lease_was_seized_can_store_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatops.runtime.session_follower.ANSWER_S", 0.1)
    async with two_windows(tmp_path) as (first, second):
        session = await first.open()
        await session.submit("run `printf x >> one; sleep 60`")
        await session.settle()
        (pending,) = session.pending
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await until((tmp_path / "one").exists)
        reader = await second.read(session)
        await reader.take_over()
        await until(lambda: reader.request_state is LeaseRequestState.OVERDUE)
        await reader.take_over()
        assert reader.request_state is LeaseRequestState.GRANTED
        reader.stop()
        taken = await second.open(reader)
        await taken.resume()
        (again,) = taken.pending
        assert again.call.id == pending.call.id
        assert again.reason.value == "outcome_unknown"
        await until(lambda: session.taken_over is not None)
        await taken.decide(again.call.id, digest=again.digest, decision=Rejected())
        await taken.settle()
        assert (tmp_path / "one").read_text() == "x"


@pytest.mark.parametrize("left", [False, True])
async def test_a_call_does_not_start_after_the_lease_is_lost(
    left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner may be suspended right after storing the intent; the other process may have left again."""
    monkeypatch.setattr("chatops.runtime.lease.LEASE_S", 0.0)
    async with two_windows(tmp_path) as (first, second):
        session = await first.open()
        await session.submit("run `printf x >> one`")
        await session.settle()
        (pending,) = session.pending

        def taken(place: str) -> None:
            if place == "before_tool":
                second.app.store.seize_lease(session.session_id, SECOND, of=this_process(), ttl_s=30)
                if left:
                    second.app.store.release_lease(session.session_id, SECOND)

        monkeypatch.setattr("chatops.runtime.performer.reach", taken)
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await until(lambda: session.taken_over is not None)
        assert not (tmp_path / "one").exists()
        other = await second.open(session)
        await other.resume()
        (again,) = other.pending
        assert again.reason.value == "outcome_unknown"


async def test_closing_a_follower_withdraws_its_request(tmp_path: Path) -> None:
    async with two_windows(tmp_path) as (first, second):
        session, _ = await at_work(first)
        reader = await second.read(session)
        await reader.take_over()
        await until(lambda: session.wanted_by == SECOND)
        await reader.aclose()
        await until(lambda: session.wanted_by is None)
        (tmp_path / "go").touch()
        await until(lambda: session.snapshot().status is TurnStatus.ANSWERED)
        lease = first.app.store.lease(session.session_id)
        assert lease is not None and (lease.holder, lease.requested_by) == (this_process(), None)


async def test_closing_a_follower_releases_a_lease_that_it_did_not_use(tmp_path: Path) -> None:
    async with two_windows(tmp_path) as (first, second):
        session = await first.open()
        await session.submit("hello")
        await session.settle()
        reader = await second.read(session)
        await session.aclose()
        await until(lambda: reader.request_state is LeaseRequestState.FREE)
        await reader.take_over()
        assert reader.request_state is LeaseRequestState.GRANTED
        await reader.aclose()
        assert first.app.store.lease(session.session_id) is None


async def reopened(first: Window) -> tuple[Session, CallId]:
    """Return a session that was left while a call waited and has been opened again, with that call."""
    session = await first.open()
    await session.submit("run `printf x >> one`")
    await session.settle()
    await session.aclose()
    again = await first.open(session)
    await again.resume()
    (pending,) = again.pending
    return again, pending.call.id


async def test_a_decision_of_another_window_continues_a_session_that_was_reopened(tmp_path: Path) -> None:
    async with two_windows(tmp_path) as (first, second):
        session, call_id = await reopened(first)
        reader = await second.read(session)
        (pending,) = reader.pending
        told: list[Event] = []
        reader.subscribe(lambda published: told.append(published.event))
        assert await reader.decide(call_id, digest=pending.digest, decision=Approved())
        assert reader.pending == ()
        assert [one.text.split(".")[0] for one in told if isinstance(one, Notice)] == ["Your decision counts"]
        await until(lambda: session.snapshot().status is TurnStatus.ANSWERED)
        assert (tmp_path / "one").read_text() == "x"


async def test_a_denial_starts_nothing_even_if_another_window_has_just_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatops.runtime.turns.WATCH_S", 3600)
    async with two_windows(tmp_path) as (first, second):
        session, call_id = await reopened(first)
        (pending,) = session.pending
        approved = DecideCall(call_id=call_id, digest=pending.digest, decision=Approved(), by=second.services.by)
        assert second.app.store.post_decision(approved)
        assert await session.decide(call_id, digest=pending.digest, decision=Rejected())
        await session.settle()
        assert [row.decision for row in first.app.store.decisions()] == [Rejected()]
        assert first.app.store.journal(turn_of(call_id)) == []
        assert not (tmp_path / "one").exists()


async def test_a_later_request_of_another_process_is_not_withdrawn(tmp_path: Path) -> None:
    third = replace(SECOND, pid=SECOND.pid + 1)
    async with two_windows(tmp_path) as (first, second):
        session = await first.open()
        await session.submit("hello")
        await session.settle()
        # Asked for where nobody listens, so that it is not handed over meanwhile.
        await session._turns.lease.release()
        first.app.store.acquire_lease(session.session_id, this_process(), ttl_s=30)
        reader = await second.read(session)
        await reader.take_over()
        assert reader.request_state is LeaseRequestState.REQUESTED
        second.app.store.request_lease(session.session_id, third)
        await reader.aclose()
        lease = first.app.store.lease(session.session_id)
        assert lease is not None and lease.requested_by == third


async def test_a_later_request_of_another_process_voids_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner answers the other process. It must not be overruled, because that would lose what runs there."""
    third = replace(SECOND, pid=SECOND.pid + 1)
    async with two_windows(tmp_path) as (first, second):
        session, _ = await at_work(first)
        reader = await second.read(session)
        notices: list[str] = []
        reader.subscribe(lambda published: notices.extend(_notices(published.event)))
        await reader.take_over()
        await until(lambda: session.wanted_by == SECOND)
        assert notices == []
        second.app.store.request_lease(session.session_id, third)
        await until(lambda: reader.lease is not None and reader.lease.requested_by == third)
        monkeypatch.setattr("chatops.runtime.session_follower.ANSWER_S", 0.0)
        assert reader.request_state is LeaseRequestState.HELD
        assert len(notices) == 1 and f"pid {third.pid}) has requested this session since" in notices[0]
        await reader.take_over()
        await until(lambda: session.wanted_by == SECOND)
        (tmp_path / "go").touch()
        await until(lambda: reader.request_state is LeaseRequestState.GRANTED)
        assert (tmp_path / "one").read_text() == "x"
        assert len(notices) == 1


def _notices(event: Event) -> list[str]:
    return [event.text] if isinstance(event, Notice) else []


async def test_a_run_continues_in_the_process_that_took_it_over(tmp_path: Path) -> None:
    replies = [calls(call("shell_exec", command="printf x >> one")), answer("made"), answer("shipped")]
    steps = (
        StepSpec(name="make", system_prompt="Make it.", tools=("shell_exec",)),
        StepSpec(name="ship", system_prompt="Ship it.", tools=()),
    )
    async with FakeOpenAI(replies) as server:
        registry = tmp_path / "registry.json"
        model = {"type": "openai", "api_url": server.url, "model_name": "m"}
        roles = {"coder": {"primary": "fake", "tools": ["shell_exec"]}}
        users = {"*": {"access_level": "operator"}}
        registry.write_text(json.dumps({"version": 3, "models": {"fake": model}, "roles": roles, "users": users}))
        async with two_windows(tmp_path, registry) as (first, second):
            spec = WorkflowSpec(name="flow", steps=steps, source="a test")
            run = await new_run(first.services, spec, query="go", role="coder")
            await run.resume()
            await run.settle()
            reader = await second.read(run.session)
            assert reader.run is not None and len(reader.pending) == 1
            await reader.take_over()
            await until(lambda: reader.request_state is LeaseRequestState.GRANTED)
            await until(lambda: run.session.taken_over is not None)
            assert run.blocked_by is not None
            reader.stop()
            taken = await open_run(second.services, run.run_id, default_role="coder")
            await taken.resume()
            (pending,) = taken.session.pending
            assert pending == reader.pending[0]
            await taken.session.decide(pending.call.id, digest=pending.digest, decision=Approved())
            await until(lambda: taken.over)
            assert isinstance(taken.state.phase, RunFinished) and taken.state.phase.result is RunResult.ANSWERED
            assert not run.over
            await taken.aclose()
            await run.aclose()
        assert server.violations == []
    assert (tmp_path / "one").read_text() == "x"


def turn_of(call_id: str) -> TurnId:
    return TurnId(call_id.rsplit(".", 2)[0])


async def test_a_child_that_was_taken_over_asks_in_one_window_and_its_caller_gets_its_result(tmp_path: Path) -> None:
    command = call("shell_exec", command="printf x >> one")
    replies = [calls(call("delegate", role="runner", task="go")), calls(command), says("made"), says("all done")]
    async with FakeOpenAI(replies) as server:
        registry = tmp_path / "registry.json"
        model = {"type": "openai", "api_url": server.url, "model_name": "m"}
        tools = {"coder": ["shell_exec", "delegate"], "runner": ["shell_exec"]}
        roles = {name: {"primary": "fake", "tools": of_role} for name, of_role in tools.items()}
        users = {"*": {"access_level": "operator"}}
        registry.write_text(json.dumps({"version": 3, "models": {"fake": model}, "roles": roles, "users": users}))
        async with two_windows(tmp_path, registry) as (first, second):
            session = await first.open()
            await session.submit("go")
            await until(lambda: bool(session.pending))
            (asked,) = session.pending
            reader = await follow_session(second.services, child_session(CallId(f"{session.session_id}.1.1.1")))
            await reader.take_over()
            await until(lambda: reader.request_state is LeaseRequestState.GRANTED)
            await until(lambda: not session.pending)
            reader.stop()
            taken = await second.open(reader)
            await taken.resume()
            assert [one.call for one in taken.pending] == [asked.call]
            assert await taken.decide(asked.call.id, digest=asked.digest, decision=Approved())
            await taken.settle()
            assert session.snapshot().status is TurnStatus.RUNNING
            await session.settle()
            assert session.snapshot().status is TurnStatus.ANSWERED and (tmp_path / "one").read_text() == "x"
            assert "made" in [m.content for m in session.snapshot().messages if isinstance(m, ToolMessage)]

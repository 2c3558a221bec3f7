"""Workflow runs with a real store, the real tools and a scripted server: one session, many turns."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chatops.domain.decisions import Approved, Rejected
from chatops.domain.errors import AlreadyDecidedError, SessionBusyError, StoreError
from chatops.domain.events import Event, Notice, TurnStatus
from chatops.domain.ids import SessionId
from chatops.domain.messages import Message, ToolMessage, UserMessage
from chatops.domain.tools import Outcome
from chatops.engine.view import turn_status
from chatops.engine.workflow.effects import WorkflowStep
from chatops.engine.workflow.inputs import Accept, CancelRun, ReviewStep, Skip, StopRun, TryAgain
from chatops.engine.workflow.state import ReviewReason, RunFinished, RunningStep, RunResult
from chatops.policy.workflow import OnFail, StepSpec, WorkflowSpec
from chatops.runtime.workflow import WorkflowRun
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.support.fake_openai import Completion, FakeOpenAI, Hang, SeenRequest, call, calls, says
from tests.support.waiting import until
from tests.support.workflows import answer, gave_up


def step(name: str, **more: Any) -> StepSpec:
    return StepSpec(name=name, system_prompt=f"Do {name}.", **{"tools": (), **more})


def flow(*steps: StepSpec) -> WorkflowSpec:
    return WorkflowSpec(name="flow", steps=steps, source="a test")


def registry(url: str, *, tools: list[str]) -> str:
    model = {"type": "openai", "api_url": url, "model_name": "m", "timeout_s": {"connect": 5, "first_token": 60}}
    roles = {
        "coder": {"primary": "fake", "tools": tools, "system_append": "You are a coder."},
        "reader": {"primary": "fake", "tools": ["file_read"], "system_append": "You are a reader."},
    }
    users = {"*": {"access_level": "operator"}}
    return json.dumps(
        {"version": 3, "default_role": "coder", "models": {"fake": model}, "roles": roles, "users": users}
    )


class Bench:
    """A workspace, a registry for a server, and apps that open runs one after the other."""

    def __init__(self, folder: Path, url: str) -> None:
        self.workspace = folder / "project"
        self.workspace.mkdir()
        self.file = folder / "registry.json"
        self.url = url
        self.permit("file_read", "shell_exec", "file_write")
        self.events: list[Event] = []

    def permit(self, *tools: str) -> None:
        """Set the tools of role coder."""
        self.file.write_text(registry(self.url, tools=list(tools)))

    @asynccontextmanager
    async def app(self, via: str = "tui") -> AsyncIterator[App]:
        app = App(Options(registry=self.file, workspace=self.workspace, via=via))
        try:
            yield app
        finally:
            await app.aclose()

    @asynccontextmanager
    async def run(
        self, spec: WorkflowSpec, query: str = "build it", *, attended: bool = False
    ) -> AsyncIterator[WorkflowRun]:
        """Start a run and wait until it is idle."""
        async with self.app() as app:
            run = await app.new_run(spec, query, attended=attended)
            yield await self.settled(run)

    @asynccontextmanager
    async def again(self, run_id: SessionId) -> AsyncIterator[WorkflowRun]:
        """The same run in another process."""
        async with self.app() as app:
            yield await self.settled(await app.open_run(run_id, attended=False))

    async def settled(self, run: WorkflowRun) -> WorkflowRun:
        """Resume a run, wait until it is idle, and return it."""
        run.session.subscribe(lambda published: self.events.append(published.event))
        await run.resume()
        await run.settle()
        return run


@asynccontextmanager
async def bench(
    folder: Path, replies: list[Completion] | Callable[[SeenRequest], Completion]
) -> AsyncIterator[tuple[Bench, FakeOpenAI]]:
    async with FakeOpenAI(replies) as server:
        yield Bench(folder, server.url), server
        assert server.violations == []


def result(run: WorkflowRun) -> RunResult | None:
    return run.state.phase.result if isinstance(run.state.phase, RunFinished) else None


def outcomes(messages: tuple[Message, ...]) -> list[Outcome]:
    return [message.outcome for message in messages if isinstance(message, ToolMessage)]


def was_stopped_by(other: App) -> str:
    place = ", ".join(part for part in (other.principal.host, other.principal.tty.removeprefix("/dev/")) if part)
    who = re.escape(f"stopped by {other.principal} on {place}")
    return rf"^Step a was {who} at \d\d:\d\d:\d\d; the first review counts\.$"


async def decide(run: WorkflowRun, decision: Approved | Rejected) -> None:
    (pending,) = run.session.pending
    assert await run.session.decide(pending.call.id, digest=pending.digest, decision=decision)
    await run.settle()


async def test_each_step_is_a_turn_with_its_own_tools_and_earlier_results(tmp_path: Path) -> None:
    spec = flow(step("find", tools=("file_read",)), step("make", role="reader", tools=None))
    async with bench(tmp_path, [answer("a db"), answer("made")]) as (at, server), at.run(spec, "a service") as run:
        assert result(run) is RunResult.ANSWERED
        first, second = server.requests
        assert first.tool_names == second.tool_names == ["file_read"]
        assert "Do find." in first.system
        assert first.system.endswith("You are a coder.")
        assert second.system.endswith("You are a reader.")
        assert first.body["temperature"] == 0.1
        assert [m["role"] for m in second.messages] == ["system", "user"]
        assert "a service" in second.last_user
        assert "a db" in second.last_user
        snapshot = run.session.snapshot()
        assert len(snapshot.messages) == 4
        assert snapshot.title == "flow: a service"
        assert snapshot.usage is not None and snapshot.usage.input_tokens == 22
        kinds = [type(event).__name__ for event in at.events]
        assert kinds[0] == "WorkflowStarted"
        assert kinds[-1] == "WorkflowFinished"


async def test_a_failed_step_is_retried_with_its_first_attempt_in_view(tmp_path: Path) -> None:
    replies = [gave_up("no key"), answer(1), answer(2)]
    async with bench(tmp_path, replies) as (at, server), at.run(flow(step("a"), step("b"))) as run:
        assert result(run) is RunResult.ANSWERED
        assert [record.status for record in run.state.attempts] == [
            TurnStatus.FAILED,
            TurnStatus.ANSWERED,
            TurnStatus.ANSWERED,
        ]
        assert "no key" in server.requests[1].last_user
        assert [m["role"] for m in server.requests[1].messages] == ["system", "user", "assistant", "user"]
        async with at.app() as app:
            for record in run.state.attempts:
                loaded = app.store.load_turn(record.turn_id)
                assert len(loaded.history) == (2 if record.attempt == 2 else 0)


async def test_an_approved_call_that_the_role_has_lost_does_not_run(
    tmp_path: Path,
) -> None:
    spec = flow(step("a", tools=("shell_exec",)))
    replies = [calls(call("shell_exec", command="touch made")), answer("not made")]
    async with bench(tmp_path, replies) as (at, server):
        async with at.run(spec) as run:
            kept = run.run_id
        at.permit("file_read")
        async with at.again(kept) as run:
            if run.session.pending:
                await decide(run, Approved())
            assert outcomes(run.session.snapshot().messages) == [Outcome.DENIED]
        assert not (at.workspace / "made").exists()
        assert server.requests[-1].tool_names == []


async def test_a_resumed_run_keeps_the_tools_of_its_step(tmp_path: Path) -> None:
    """The grant is computed again for the step, not for a chat in the same role."""
    spec = flow(step("a", tools=("shell_exec",)))
    replies = [
        calls(call("shell_exec", command="touch made")),
        calls(call("file_write", path="x", content="x")),
        answer("made"),
    ]
    async with bench(tmp_path, replies) as (at, server):
        async with at.run(spec) as run:
            kept = run.run_id
        async with at.again(kept) as run:
            await decide(run, Approved())
            assert result(run) is RunResult.ANSWERED
            assert outcomes(run.session.snapshot().messages) == [Outcome.SUCCESS, Outcome.DENIED]
        assert all(request.tool_names == ["shell_exec"] for request in server.requests)
        assert not (at.workspace / "x").exists()


async def test_messages_typed_during_a_run_are_sent_as_chat_after_it(tmp_path: Path) -> None:
    spec = flow(step("a", tools=("shell_exec",)), step("b"))
    replies = [calls(call("shell_exec", command="true")), answer(1), answer(2), says("You are welcome.")]
    async with bench(tmp_path, replies) as (at, server), at.run(spec, attended=True) as run:
        assert await run.session.submit("thank you") is False
        assert run.session.snapshot().queued == ("thank you",)
        await decide(run, Approved())
        await until(lambda: len(server.requests) == 4 and run.session.snapshot().status is TurnStatus.ANSWERED)
        said = [m.text for m in run.session.snapshot().messages if isinstance(m, UserMessage)]
        assert said[-1] == "thank you"
        assert not any(isinstance(event, Notice) for event in at.events)
        assert server.requests[-1].tool_names == ["file_read", "file_write", "shell_exec"]
        assert "Do b." not in server.requests[-1].system
        # The whole run is what this chat has behind it.
        assert [m["role"] for m in server.requests[-1].messages].count("user") == 3


async def test_settings_cannot_change_during_a_run(tmp_path: Path) -> None:
    spec = flow(step("a", tools=("shell_exec",)))
    async with (
        bench(tmp_path, [calls(call("shell_exec", command="true")), answer(1)]) as (at, _),
        at.run(spec) as run,
    ):
        with pytest.raises(SessionBusyError, match="flow"):
            await run.session.switch_role("reader")
        with pytest.raises(SessionBusyError):
            await run.session.pin_model("demo")
        await decide(run, Approved())
        await run.session.switch_role("reader")
        assert run.session.grant().role == "reader"


async def test_an_accepted_review_starts_the_next_step(tmp_path: Path) -> None:
    spec = flow(step("a", review=True), step("b"))
    async with bench(tmp_path, [answer(1), answer(2), answer(3)]) as (at, server), at.run(spec) as run:
        asked = run.pending_review
        assert asked is not None and asked.reason is ReviewReason.REVIEW
        assert not await run.review(Accept(), step=0, attempt=2)
        assert await run.review(TryAgain(told="shorter"), step=0, attempt=1)
        await run.settle()
        assert "shorter" in server.requests[1].last_user
        assert await run.review(Accept(), step=0, attempt=2)
        await run.settle()
        assert result(run) is RunResult.ANSWERED


@pytest.mark.parametrize(("word", "ends"), [(Skip(), RunResult.ANSWERED), (StopRun(), RunResult.FAILED)])
async def test_a_step_that_failed_can_be_skipped_or_end_the_run(
    tmp_path: Path, word: Skip | StopRun, ends: RunResult
) -> None:
    spec = flow(step("a", on_fail=OnFail.ASK, may_skip=True, max_attempts=1), step("b"))
    async with (
        bench(tmp_path, [gave_up("no key"), answer(2)]) as (at, _),
        at.run(spec) as run,
    ):
        asked = run.pending_review
        assert asked is not None and asked.reason is ReviewReason.FAILED
        assert await run.review(word, step=0, attempt=1)
        await run.settle()
        assert result(run) is ends


@pytest.mark.more
async def test_posted_reviews_are_taken_while_the_run_is_open(tmp_path: Path) -> None:
    spec = flow(step("a", review=True), step("b", review=True))
    async with bench(tmp_path, [answer(1), answer(2)]) as (at, _), at.run(spec) as run, at.app() as other:
        word = ReviewStep(step=0, attempt=1, review=Accept(), by=other.principal)
        assert other.store.post_review(run.run_id, word)
        await until(lambda: run.pending_review is not None and run.pending_review.step == 1)
        assert other.store.post_review(run.run_id, CancelRun(by=other.principal))
        await until(lambda: run.over)
        assert result(run) is RunResult.CANCELLED


async def test_a_review_posted_just_before_is_the_one_that_counts(tmp_path: Path) -> None:
    spec = flow(step("a", review=True), step("b"))
    async with bench(tmp_path, [answer(1), answer(2)]) as (at, _), at.run(spec) as run, at.app("headless") as other:
        word = ReviewStep(step=0, attempt=1, review=StopRun(), by=other.principal)
        assert other.store.post_review(run.run_id, word)
        with pytest.raises(AlreadyDecidedError, match=was_stopped_by(other)):
            await run.review(Accept(), step=0, attempt=1)
        await run.settle()
        assert result(run) is RunResult.FAILED


@pytest.mark.parametrize("here", ["review", "cancel"])
async def test_of_two_simultaneous_reviews_the_first_one_counts(
    here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = flow(step("a", review=True), step("b"))
    async with bench(tmp_path, [answer(1), answer(2)]) as (at, _), at.app("headless") as other, at.app() as app:
        run = await at.settled(await app.new_run(spec, "build it", attended=False))
        commit, by = app.store.commit_run, other.principal
        word = ReviewStep(step=0, attempt=1, review=StopRun(), by=by) if here == "review" else CancelRun(by=by)

        def commit_after_the_other(to_store: WorkflowStep, lease: str) -> None:
            monkeypatch.undo()
            assert other.store.post_review(run.run_id, word)
            commit(to_store, lease)

        monkeypatch.setattr(app.store, "commit_run", commit_after_the_other)
        if here == "review":
            with pytest.raises(AlreadyDecidedError, match=was_stopped_by(other)):
                await run.review(Accept(), step=0, attempt=1)
        else:
            assert not await run.cancel()
        await run.settle()
        assert result(run) is (RunResult.FAILED if here == "review" else RunResult.CANCELLED)
        assert other.store.posted_reviews(run.run_id) == []


async def test_a_review_posted_while_no_process_owned_the_run_is_taken_first(tmp_path: Path) -> None:
    spec = flow(step("a", review=True), step("b"))
    async with bench(tmp_path, [answer(1), answer(2)]) as (at, _):
        async with at.run(spec) as run:
            kept = run.run_id
        async with at.app() as other:
            assert other.store.post_review(kept, ReviewStep(step=0, attempt=1, review=Accept(), by=other.principal))
        async with at.again(kept) as run:
            assert result(run) is RunResult.ANSWERED


async def test_cancelling_a_run_ends_its_paused_turn(tmp_path: Path) -> None:
    spec = flow(step("a", tools=("shell_exec",)), step("b"))
    async with (
        bench(tmp_path, [calls(call("shell_exec", command="touch made"))]) as (at, _),
        at.run(spec) as run,
    ):
        assert await run.cancel()
        assert not await run.cancel()
        await run.settle()
        assert result(run) is RunResult.CANCELLED
        assert run.session.pending == ()
        assert run.session.snapshot().status is TurnStatus.CANCELLED
        async with at.app() as app:
            assert app.store.pending_calls() == []


async def test_cancelling_a_run_stops_its_model_call(tmp_path: Path) -> None:
    async with bench(tmp_path, [Completion(text="x", wait=Hang())]) as (at, server), at.app() as app:
        run = await app.new_run(flow(step("a")), "q", attended=False)
        await run.resume()
        await server.arrived()
        await run.cancel()
        await run.settle()
        assert result(run) is RunResult.CANCELLED
        assert await server.requests[0].left()


async def test_the_turn_of_an_ended_run_is_cancelled_on_resume(tmp_path: Path) -> None:
    """As after a kill between the two commits: the run is over, its turn is still paused."""
    spec = flow(step("a", tools=("shell_exec",)))
    async with bench(tmp_path, [calls(call("shell_exec", command="touch made"))]) as (at, _):
        async with at.app() as app:
            run = await app.new_run(spec, "q", attended=False)
            await run.resume()
            await run.settle()
            stop, run.session.stop_turn = run.session.stop_turn, _nothing  # type: ignore[method-assign]
            await run.cancel()
            assert stop is not None
        async with at.again(run.run_id) as run:
            assert run.session.pending == ()
            assert run.session.snapshot().status is TurnStatus.CANCELLED
        assert not (at.workspace / "made").exists()


async def _nothing() -> None:
    """Do nothing, as if killed before that."""


async def test_a_stopped_turn_asks_for_a_review_and_is_not_a_failed_attempt(tmp_path: Path) -> None:
    spec = flow(step("a", tools=("shell_exec",)))
    replies = [Completion(text="x", wait=Hang()), answer("done")]
    async with bench(tmp_path, replies) as (at, server), at.app() as app:
        run = await app.new_run(spec, "q", attended=False)
        await run.resume()
        await server.arrived()
        assert await run.session.cancel()
        await run.settle()
        assert run.pending_review is not None and run.pending_review.reason is ReviewReason.STOPPED
        await run.review(TryAgain(), step=0, attempt=1)
        await run.settle()
        assert result(run) is RunResult.ANSWERED


async def test_a_missing_role_blocks_the_run_without_using_an_attempt(tmp_path: Path) -> None:
    spec = flow(step("a", tools=("shell_exec",)), step("b", role="reader"))
    replies = [calls(call("shell_exec", command="true")), answer(1), answer(2)]
    async with bench(tmp_path, replies) as (at, _), at.run(spec) as run:
        whole = at.file.read_text()
        at.file.write_text(whole.replace('"reader"', '"writer"'))
        await decide(run, Approved())
        assert run.blocked_by is not None
        assert "reader" in str(run.blocked_by)
        assert isinstance(run.state.phase, RunningStep)
        assert any(isinstance(event, Notice) and "is blocked" in event.text for event in at.events)
        at.file.write_text(whole)
        assert await run.retry()
        await run.settle()
        assert result(run) is RunResult.ANSWERED
        assert [record.attempt for record in run.state.attempts] == [1, 1]


async def test_a_run_step_that_cannot_be_stored_can_be_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = flow(step("a", tools=("shell_exec",)), step("b"))
    replies = [calls(call("shell_exec", command="true")), answer(1), answer(2)]
    async with bench(tmp_path, replies) as (at, server), at.app() as app:
        run = await app.new_run(spec, "q", attended=False)
        await run.resume()
        await run.settle()
        before = run.state
        with monkeypatch.context() as broken:
            broken.setattr(app.store, "commit_run", _full)
            await decide(run, Approved())
            assert run.state is before
            assert str(run.blocked_by) == "the disk is full"
            with pytest.raises(StoreError):
                await run.cancel()
        assert await run.retry()
        await run.settle()
        assert result(run) is RunResult.ANSWERED
        assert len(server.requests) == 3


def _full(step: object, lease: str) -> None:
    raise StoreError("the disk is full")


async def test_a_run_opened_as_a_session_starts_no_turn(tmp_path: Path) -> None:
    spec = flow(step("a", review=True), step("b"))
    async with bench(tmp_path, [answer(1)]) as (at, server):
        async with at.run(spec) as run:
            kept = run.run_id
        async with at.app() as app:
            session = await app.open_session(kept, attended=True)
            await session.resume()
            assert await session.submit("hello") is False
            state = session.state
            assert state is not None and turn_status(state) is TurnStatus.ANSWERED
            assert len(server.requests) == 1

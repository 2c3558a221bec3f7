"""Attempts of a call: there is a result in any case, even if the tool is stopped, does not stop or fails."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from chatops.domain.decisions import Answer, AnswerAction, ServerQuestion
from chatops.domain.ids import CallId
from chatops.domain.tools import CallFacts, Outcome, ToolResult
from chatops.engine.inputs import QuestionInput, QuestionWithdrawnInput
from chatops.runtime.performer import Questions, run_attempt
from chatops.toolkit.base import ToolContext
from chatops.tools.function import FunctionTool, tool
from tests.support.waiting import PATIENCE
from tests.tools.toolkit import context_for

Body = Callable[[ToolContext], Awaitable[str]]
NO_ARGUMENTS = CallFacts(arguments="{}")


def made(body: Body, *, read_only: bool = False) -> FunctionTool:
    """A tool that does `body`."""

    @tool(read_only=read_only)
    async def work(context: ToolContext) -> str:
        """Work."""
        return await body(context)

    return work


async def stopped(body: Body, workspace: Path, *, read_only: bool = False) -> ToolResult:
    """Return the result of `body` when it is stopped half-way."""
    begun = asyncio.Event()

    async def with_word(context: ToolContext) -> str:
        begun.set()
        return await body(context)

    running = asyncio.ensure_future(
        run_attempt(made(with_word, read_only=read_only), NO_ARGUMENTS, context_for(workspace))
    )
    await begun.wait()
    running.cancel()
    return await running


async def says_and_waits(context: ToolContext) -> str:
    context.output("half way\n")
    await asyncio.Event().wait()
    return ""


async def will_not_stop(context: ToolContext) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        # The end of the test's loop cancels once more.
        await asyncio.Event().wait()
    return ""


async def finishes_nevertheless(context: ToolContext) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "done after all"
    return ""


async def test_a_stopped_call_returns_its_output_so_far(tmp_path: Path) -> None:
    result = await stopped(says_and_waits, tmp_path)
    assert result.outcome is Outcome.INTERRUPTED
    assert result.content == "Stopped by the user while it ran.\nOutput so far:\nhalf way\n"
    assert result.facts.so_far == len("half way\n")


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_tool_that_does_not_stop_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    monkeypatch.setattr("chatops.runtime.performer.STOP_S", 0.05)
    result = await stopped(will_not_stop, tmp_path, read_only=read_only)
    assert result.outcome is (Outcome.INTERRUPTED if read_only else Outcome.UNKNOWN)
    assert ("It is not known whether it took effect." in result.content) is not read_only


async def test_a_tool_that_finishes_although_cancelled_keeps_its_result(tmp_path: Path) -> None:
    assert (await stopped(finishes_nevertheless, tmp_path)).content == "done after all"


async def test_the_outcome_of_a_thread_that_keeps_running_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatops.tools.function._GRACE_S", 0.05)
    entered, leave = threading.Event(), threading.Event()

    @tool()
    def change() -> str:
        """Change something slowly."""
        entered.set()
        leave.wait(PATIENCE)
        return "done"

    running = asyncio.ensure_future(run_attempt(change, NO_ARGUMENTS, context_for(tmp_path)))
    await asyncio.to_thread(entered.wait, PATIENCE)
    running.cancel()
    result = await running
    leave.set()
    assert result.outcome is Outcome.UNKNOWN
    assert result.content == "Stopped by the user while it ran. It is not known whether it took effect."


async def test_the_time_limit_is_enforced_by_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatops.runtime.performer.GRACE_S", 0.0)
    result = await run_attempt(made(says_and_waits), NO_ARGUMENTS, context_for(tmp_path, timeout_s=0.05))
    assert result.outcome is Outcome.UNKNOWN
    assert "Stopped after 0 s" in result.content
    assert result.content.endswith("Output so far:\nhalf way\n")


async def test_the_time_in_which_a_call_waits_for_the_user_is_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("chatops.runtime.performer.time", SimpleNamespace(monotonic=lambda: now))
    asked: asyncio.Queue[QuestionInput | QuestionWithdrawnInput] = asyncio.Queue()
    questions = Questions(asked.put_nowait)
    call = CallId("s.1.1.1")
    for number, answered_after in ((1, 40.0), (2, 2.5)):
        ask = questions.ask_function(call, number)
        waiting = asyncio.ensure_future(ask(ServerQuestion(server="h", message="?", schema="{}")))
        await asked.get()
        now += answered_after
        questions.answer(call, f"{call}.{number}.q1", Answer(action=AnswerAction.DECLINE))
        await waiting
    assert questions.forget_wait(call) == 42.5
    assert questions.forget_wait(call) == 0.0

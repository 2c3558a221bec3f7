"""A function becomes a tool: schema, description, injection, results, failures."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from chatops.domain.errors import ToolFailedError, ToolRetryError
from chatops.domain.tools import AccessLevel, CallFacts, Outcome, Verdict
from chatops.toolkit.base import Tool, ToolContext
from chatops.tools.function import tool
from tests.support.waiting import PATIENCE
from tests.tools.toolkit import context_for, done, inspected


@tool()
def repeat(
    text: Annotated[str, Field(description="What to say.")],
    context: ToolContext,
    times: int = 1,
) -> str:
    """Say a text
    several times.

    This is for people who read the code.
    """
    return f"{context.session_id}:{text * times}"


def test_the_signature_is_the_schema_and_the_first_paragraph_the_description() -> None:
    assert repeat.spec.name == "repeat"
    assert repeat.spec.description == "Say a text several times."
    assert json.loads(repeat.spec.schema) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "text": {"type": "string", "description": "What to say."},
            "times": {"type": "integer", "default": 1},
        },
        "required": ["text"],
    }


def test_a_tool_without_rights_gets_the_cautious_defaults() -> None:
    spec = repeat.spec
    assert (spec.min_access, spec.verdict) == (AccessLevel.OPERATOR, Verdict.ASK)
    assert not (spec.read_only or spec.idempotent or spec.reconcilable)


async def test_the_context_is_passed_in_and_cannot_be_given_by_a_model(tmp_path: Path) -> None:
    context = context_for(tmp_path)
    assert (await done(repeat, context, {"text": "a", "times": 3})).content == "s1:aaa"
    facts = await inspected(repeat, context, {"text": "a", "context": {}})
    assert [problem.path for problem in facts.problems] == ["context"]


async def test_a_call_with_problems_never_runs(tmp_path: Path) -> None:
    facts = await inspected(repeat, context_for(tmp_path), "{}")
    with pytest.raises(ToolFailedError):
        await repeat.run(facts, context_for(tmp_path))


@pytest.mark.fault("G07")
async def test_results_of_any_kind_become_bounded_text(tmp_path: Path) -> None:
    context = context_for(tmp_path, max_output_chars=1_000)
    results: list[object] = [None, "", "  ", "x" * 5_000, b"text", b"\0\1", {"a": [1]}, "a\udc00b", 5_000_000 * "y"]
    results.append(b"z" * 5_000_000)

    @tool()
    def give(index: int) -> object:
        """Give a result."""
        return results[index]

    contents = [(await done(give, context, {"index": index})).content for index in range(len(results))]
    assert contents[:3] == [""] * 3
    assert "of 5,000 characters left out" in contents[3]
    assert contents[4:8] == ["text", "[binary, 2 bytes]", '{"a": [1]}', "a?b"]
    assert all(len(content) <= 1_000 for content in contents)


@pytest.mark.fault("G07")
async def test_an_exception_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    @tool()
    def fail(kind: str) -> str:
        """Fail."""
        raise {
            "timeout": TimeoutError(),
            "retry": ToolRetryError("Say it otherwise."),
            "long": ValueError("z" * 9_999),
        }[kind]

    context = context_for(tmp_path)
    with pytest.raises(ToolFailedError, match="Tool execution failed: TimeoutError"):
        await done(fail, context, {"kind": "timeout"})
    with pytest.raises(ToolRetryError, match="otherwise"):
        await done(fail, context, {"kind": "retry"})
    with pytest.raises(ToolFailedError) as caught:
        await done(fail, context, {"kind": "long"})
    assert len(str(caught.value)) < 500


class Outcry(BaseException):
    """Not an ordinary exception."""


ENDS = {"exit": SystemExit(3), "outcry": Outcry("no"), "cancelled": asyncio.CancelledError(), "stop": StopIteration(1)}


@pytest.mark.fault("G07")
@pytest.mark.parametrize("kind", ENDS)
async def test_exits_and_interrupts_in_a_function_fail_only_the_call(tmp_path: Path, kind: str) -> None:
    @tool()
    def leave(kind: str) -> str:
        """Leave."""
        raise ENDS[kind]

    @tool()
    async def leave_soon(kind: str) -> str:
        """Leave."""
        await asyncio.sleep(0)
        raise ENDS[kind]

    for one in (leave, leave_soon):
        with pytest.raises(ToolFailedError, match="Tool execution failed: "):
            await done(one, context_for(tmp_path), {"kind": kind})


def test_a_function_that_never_returns_does_not_delay_the_exit(tmp_path: Path) -> None:
    program = """
import asyncio, sys, threading
from pathlib import Path
from chatops.tools.function import tool
from tests.tools.toolkit import context_for, done

entered = threading.Event()

@tool(read_only=True)
def hang() -> str:
    "Hang."
    entered.set()
    threading.Event().wait()

async def main():
    running = asyncio.ensure_future(done(hang, context_for(Path(sys.argv[1])), {}))
    while not entered.is_set():
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

asyncio.run(main())
print("over")
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE,
    )
    assert (ran.returncode, ran.stdout) == (0, "over\n"), ran.stderr


@pytest.mark.fault("G09")
async def test_errors_about_values_do_not_show_the_values(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "sk-secret-1234"

    class Account(BaseModel):
        key: int

    @tool()
    def settle() -> str:
        """Settle."""
        return str(Account.model_validate({"key": secret}))

    with pytest.raises(ToolFailedError, match="ValidationError: key: Input should be a valid integer") as caught:
        await done(settle, context_for(tmp_path), {})
    assert "running settle failed" in caplog.text
    assert "sk-secret" not in caplog.text + str(caught.value)


@pytest.mark.fault("G09")
async def test_the_log_lists_all_problems_without_the_values(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    wrong: dict[str, object] = {"text": 1, **{f"extra{number}": "sk-secret-1234" for number in range(50)}}
    facts = await inspected(repeat, context_for(tmp_path), wrong)
    assert len(facts.problems) == 8
    assert "extra49: Extra inputs are not permitted" in caplog.text
    assert "sk-secret" not in caplog.text


async def test_an_inspector_that_fails_refuses(tmp_path: Path) -> None:
    def broken(arguments: object, facts: CallFacts, context: ToolContext) -> CallFacts:
        raise OSError("disk on fire")

    @tool(inspect=broken)
    def harmless() -> str:
        """Nothing."""
        return "ran"

    facts = await inspected(harmless, context_for(tmp_path), {})
    assert "disk on fire" in facts.refusal
    with pytest.raises(ToolFailedError):
        await harmless.run(facts, context_for(tmp_path))


async def test_a_cancelled_change_in_a_thread_has_ended_when_the_cancellation_is_through(tmp_path: Path) -> None:
    entered, leave, ended = threading.Event(), threading.Event(), threading.Event()

    @tool()
    def change() -> str:
        """Change something slowly."""
        entered.set()
        leave.wait(PATIENCE)
        ended.set()
        return "done"

    running = asyncio.ensure_future(done(change, context_for(tmp_path), {}))
    await asyncio.to_thread(entered.wait, PATIENCE)
    running.cancel()
    asyncio.get_running_loop().call_later(0.05, leave.set)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_async_functions_and_other_outcomes(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def late(number: int) -> str:
        """Wait."""
        await asyncio.sleep(0)
        return str(number + 1)

    as_protocol: Tool = late
    result = await done(as_protocol, context_for(tmp_path), '{"number":"41"}')
    assert (result.outcome, result.content) == (Outcome.SUCCESS, "42")
    assert (await late.reconcile(CallFacts(arguments="{}"), context_for(tmp_path))).repeat is False

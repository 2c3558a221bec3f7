"""One attempt of a call: the tool runs within its time, stops when it is told to, and always has a result.

A tool that does not stop is left to itself: neither the turn nor the end of the program waits for it.
"""

import asyncio
import logging
import time
from dataclasses import replace

from chatops.domain.errors import ToolError, ToolRetry
from chatops.domain.tools import CallFacts, Outcome, ToolResult, ToolSpec
from chatops.tools.base import Tool, ToolContext
from chatops.tools.output import cap

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""How much longer than its own limit a tool may take before the runtime stops it."""
STOP_S = 1.8
"""How long a tool that was told to stop is waited for."""
STOPPED = "Stopped by the person while it ran."
_SO_FAR = 4_000
"""Characters of the output of a call that was stopped."""


async def attempt(tool: Tool, facts: CallFacts, context: ToolContext) -> ToolResult:
    """Run `tool`. Never raises; told to stop by cancellation, it still gives what came of it."""
    heard = _Heard(context)
    began = time.monotonic()
    work = asyncio.ensure_future(tool.run(facts, replace(context, output=heard.take)))
    told_to_stop = False
    try:
        await asyncio.wait({work}, timeout=context.timeout_s + GRACE_S)
    except asyncio.CancelledError:
        told_to_stop = True
    if work.done():
        return _result(tool.spec, work)
    work.cancel()
    try:
        await asyncio.wait({work}, timeout=STOP_S)
    except asyncio.CancelledError:
        told_to_stop = True
    if _has_ended_by_itself(work):
        return _result(tool.spec, work)
    work.add_done_callback(_forget)
    if not work.done():
        log.warning("%s does not stop; nobody waits for it any more", tool.spec.name)
    stopped = STOPPED if told_to_stop else f"Stopped after {time.monotonic() - began:.0f} s: it took too long."
    outcome = Outcome.INTERRUPTED if told_to_stop else Outcome.FAILED
    if not (tool.spec.read_only or tool.spec.idempotent or (told_to_stop and work.done() and work.cancelled())):
        # It may go on, as a thread does, or was half way through when its time was over.
        outcome, stopped = Outcome.UNKNOWN, f"{stopped} Nothing tells whether it took effect."
    so_far = heard.text()
    return ToolResult(outcome=outcome, content=f"{stopped}\nOutput so far:\n{so_far}" if so_far else stopped)


class _Heard:
    """Passes output on, and keeps the last of it."""

    def __init__(self, context: ToolContext) -> None:
        self._show = context.output
        self._last = ""

    def take(self, text: str) -> None:
        self._last = (self._last + text)[-2 * _SO_FAR :]
        self._show(text)

    def text(self) -> str:
        return cap(self._last, limit=_SO_FAR).text if self._last.strip() else ""


def _has_ended_by_itself(work: "asyncio.Future[ToolResult]") -> bool:
    return work.done() and not work.cancelled() and work.exception() is None


def _forget(work: "asyncio.Future[ToolResult]") -> None:
    """What it came to after all is of no use to anybody."""
    if not work.cancelled() and (error := work.exception()) is not None:
        log.info("a tool that was stopped ended with %s", type(error).__name__)


def _result(spec: ToolSpec, work: "asyncio.Future[ToolResult]") -> ToolResult:
    try:
        return work.result()
    except asyncio.CancelledError:
        return ToolResult(outcome=Outcome.FAILED, content="Tool execution failed: it was cancelled from inside.")
    except ToolRetry as error:
        return ToolResult(outcome=Outcome.INVALID, content=describe(error))
    except ToolError as error:
        return ToolResult(outcome=Outcome.FAILED, content=describe(error))
    except Exception as error:
        log.exception("%s failed", spec.name)
        return ToolResult(outcome=Outcome.FAILED, content=f"Tool execution failed: {describe(error)}")


def describe(error: BaseException) -> str:
    """An error in one line that is never empty."""
    text = " ".join(str(error).split())
    return text if text else type(error).__name__

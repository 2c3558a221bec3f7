"""One attempt of a call: run the tool within its time limit, stop it on request, and always return a result.

A tool that does not stop is abandoned: neither the turn nor the end of the program waits for it.
"""

import asyncio
import logging
import time
from dataclasses import replace

from chatops.domain.errors import ToolError, ToolRetryError
from chatops.domain.tools import CallFacts, Outcome, ToolResult, ToolSpec
from chatops.tools.base import Tool, ToolContext
from chatops.tools.output import cap

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""Seconds that a tool may take beyond its own limit before the runtime stops it."""
STOP_S = 1.8
"""Seconds to wait for a tool after it was told to stop."""
STOPPED = "Stopped by the person while it ran."
_SO_FAR = 4_000
"""Characters of output kept in the result of a stopped call."""


async def attempt(tool: Tool, facts: CallFacts, context: ToolContext) -> ToolResult:
    """Run `tool` and return its result. Never raises.

    If cancelled, it stops the tool and returns the result all the same, with the output so far.
    """
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
        # The tool may still be running, as a thread does, or was half-way when its time was over.
        outcome, stopped = Outcome.UNKNOWN, f"{stopped} Nothing tells whether it took effect."
    so_far = heard.text()
    return ToolResult(outcome=outcome, content=f"{stopped}\nOutput so far:\n{so_far}" if so_far else stopped)


class _Heard:
    """Passes output on and keeps the end of it."""

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
    """Log how an abandoned tool ended; its result is not used."""
    if not work.cancelled() and (error := work.exception()) is not None:
        log.info("a tool that was stopped ended with %s", type(error).__name__)


def _result(spec: ToolSpec, work: "asyncio.Future[ToolResult]") -> ToolResult:
    try:
        return work.result()
    except asyncio.CancelledError:
        return ToolResult(outcome=Outcome.FAILED, content="Tool execution failed: it was cancelled from inside.")
    except ToolRetryError as error:
        return ToolResult(outcome=Outcome.INVALID, content=describe(error))
    except ToolError as error:
        return ToolResult(outcome=Outcome.FAILED, content=describe(error))
    except Exception as error:
        log.exception("%s failed", spec.name)
        return ToolResult(outcome=Outcome.FAILED, content=f"Tool execution failed: {describe(error)}")


def describe(error: BaseException) -> str:
    """Return an error as one line that is never empty."""
    text = " ".join(str(error).split())
    return text if text else type(error).__name__

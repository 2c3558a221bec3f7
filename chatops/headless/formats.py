"""The three output formats. A reporter follows the events of a turn and prints its result."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, assert_never

from chatops.domain.canonical import MOST_NESTED, JsonValue
from chatops.domain.endings import ending_of
from chatops.domain.events import CallDecided, Notice, Published, Status, ToolFinished, ToolStarted, TurnStatus
from chatops.engine.state import TurnState
from chatops.engine.workflow.state import WorkflowState
from chatops.headless.report import Report, as_json
from chatops.headless.screen import Screen
from chatops.headless.stream import Tree

SHOWN_ARGUMENTS = 200
"""Most characters of a call's arguments in a progress line."""


class OutputFormat(StrEnum):
    """Format of stdout."""

    TEXT = "text"
    JSON = "json"
    STREAM_JSON = "stream-json"


class Reporter(Protocol):
    """Prints a turn."""

    def resumed(self, state: TurnState) -> None:
        """Handle that a stored turn is resumed."""
        ...

    def event(self, published: Published) -> None:
        """Handle an event."""
        ...

    def finished(self, result: Report) -> None:
        """Print the result of a turn that is paused or over."""
        ...

    def broke(self, reason: str) -> None:
        """Handle that no result will follow, for `reason`."""
        ...


class Text:
    """The answer on stdout, once it is complete; progress on stderr."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def resumed(self, state: TurnState) -> None:
        """Print nothing."""

    def event(self, published: Published) -> None:
        """Print tools, decisions and notices as they happen, one line each, to stderr."""
        progress(self._screen, published)

    def finished(self, result: Report) -> None:
        """Print the answer, if there is one. It goes to stderr if the turn failed or was stopped."""
        if result.answer and result.status in (TurnStatus.ANSWERED, TurnStatus.LIMIT):
            self._screen.answer(result.answer)
        elif result.answer:
            self._screen.say(result.answer)

    def broke(self, reason: str) -> None:
        """Print nothing: every format reports the reason on stderr."""


class Json:
    """One JSON object at the end."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def resumed(self, state: TurnState) -> None:
        """Print nothing."""

    def event(self, published: Published) -> None:
        """Print progress to stderr, as in text format."""
        progress(self._screen, published)

    def finished(self, result: Report) -> None:
        """Print the documented object."""
        self._screen.line(dumps(as_json(result), indent=2))

    def broke(self, reason: str) -> None:
        """Print nothing: there is no turn to describe."""


class StreamJson:
    """One JSON line per event."""

    def __init__(self, screen: Screen, *, clock: Callable[[], float] = time.time) -> None:
        self._screen = screen
        self._clock = clock
        self._tree = Tree()

    def resumed(self, state: TurnState) -> None:
        """Open the nodes of the stored turn again."""
        self._write(self._tree.resumed(state, self._clock()))

    def resumed_run(self, run: WorkflowState) -> None:
        """Open the nodes of a stored workflow run again."""
        self._write(self._tree.resumed_run(run, self._clock()))

    def event(self, published: Published) -> None:
        """Print the lines of an event."""
        self._write(self._tree.lines(published))

    def finished(self, result: Report) -> None:
        """Close all open nodes, except for a paused turn, whose nodes a later command continues."""
        if result.status != TurnStatus.PAUSED:
            self.broke(result.detail or f"the turn ended: {result.status}")

    def broke(self, reason: str) -> None:
        """Close all open nodes with ``error``."""
        self._write(self._tree.close(self._clock(), reason=reason))

    def _write(self, lines: list[dict[str, JsonValue]]) -> None:
        for line in lines:
            self._screen.line(dumps(line))


def reporter(kind: OutputFormat, screen: Screen) -> Reporter:
    """Return the reporter for a format."""
    match kind:
        case OutputFormat.TEXT:
            return Text(screen)
        case OutputFormat.JSON:
            return Json(screen)
        case OutputFormat.STREAM_JSON:
            return StreamJson(screen)
    assert_never(kind)


def dumps(value: JsonValue, *, indent: int | None = None) -> str:
    """Return JSON that is safe on any stream and any terminal: ASCII only, never ``NaN``.

    A value that JSON cannot hold (a number out of range, endless nesting) is left out instead of failing the command.
    """
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except (ValueError, RecursionError):
        return json.dumps(_holdable(value, MOST_NESTED), indent=indent, allow_nan=False)


def _holdable(value: JsonValue, levels: int) -> JsonValue:
    """Return `value` with null for parts that JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence):
        return value
    if levels == 0:
        return None
    if isinstance(value, Mapping):
        return {name: _holdable(one, levels - 1) for name, one in value.items()}
    return [_holdable(one, levels - 1) for one in value]


def progress(screen: Screen, published: Published) -> None:
    """Print the events that a user at the terminal wants to see while waiting."""
    match published.event:
        case ToolStarted(tool=tool, arguments=arguments, decided_by=by, sandbox=sandbox):
            shown = arguments if len(arguments) <= SHOWN_ARGUMENTS else f"{arguments[:SHOWN_ARGUMENTS]}…"
            unconfined = f"; sandbox: {sandbox}" if sandbox.startswith("off") else ""
            screen.say(f"running {tool} {shown}" + (f" ({by})" if by else "") + unconfined)
        case ToolFinished(tool=tool, outcome=outcome, status=Status.ERROR, content=content):
            ending = ending_of(tool, content)
            cause = ending.cause and f"likely cause: {ending.cause}"
            told = [ending.how or content.strip().partition("\n")[0], ending.stopped, cause]
            screen.say(": ".join((tool, outcome.value, ", ".join(filter(None, told)))).removesuffix(": "))
        case ToolFinished(tool=tool, content=content, truncated=truncated):
            told = [ending_of(tool, content).stopped, "result shortened" if truncated else ""]
            if any(told):
                screen.say(f"{tool}: {', '.join(filter(None, told))}")
        case CallDecided(id=call, by=by, decision=decision):
            screen.say(f"{call}: {decision.kind} by {by}" if by.is_person else f"{call}: {decision.kind}, nobody asked")
        case Notice(text=text, advice=advice):
            screen.say(f"{text} {advice}".strip())
        case _:
            return

"""The three output formats for runs of workflows."""

import json
import time
from collections.abc import Callable
from typing import Protocol, assert_never

from chatops.domain.canonical import json_or_text
from chatops.domain.events import Published, TurnStatus
from chatops.domain.fields import as_fields
from chatops.engine.state import Finished, TurnState
from chatops.engine.workflow.state import WorkflowState
from chatops.headless.formats import OutputFormat, StreamJson, dumps
from chatops.headless.progress import Progress
from chatops.headless.run_report import RunReport, run_json
from chatops.headless.screen import Screen


class RunReporter(Protocol):
    """Prints a run."""

    def resumed(self, run: WorkflowState, turn: TurnState | None) -> None:
        """The run was stored and goes on, with the turn that it waits for if that was begun."""
        ...

    def event(self, published: Published) -> None:
        """Something happened."""
        ...

    def finished(self, result: RunReport) -> None:
        """Nothing more happens without a person."""
        ...

    def broke(self, reason: str) -> None:
        """No result will come."""
        ...


class RunText:
    """The answer on stdout, progress on stderr unless only the result is wanted."""

    def __init__(self, screen: Screen, progress: Progress | None) -> None:
        self._screen = screen
        self._progress = progress

    def resumed(self, run: WorkflowState, turn: TurnState | None) -> None:
        """Takes up the count."""
        if self._progress is not None:
            self._progress.resumed(run)

    def event(self, published: Published) -> None:
        """A line on stderr, or none."""
        if self._progress is not None:
            self._progress.event(published)

    def finished(self, result: RunReport) -> None:
        """The last result, if the run has one: fields as lines, text as it is."""
        if result.status == TurnStatus.ANSWERED and result.answer:
            self._screen.answer(as_fields(result.answer))

    def broke(self, reason: str) -> None:
        """Nothing: the reason is told on stderr in any format."""


class RunJson(RunText):
    """One object at the end, progress as in text."""

    def finished(self, result: RunReport) -> None:
        """The documented object."""
        self._screen.line(dumps(run_json(result), indent=2))


class RunStream:
    """One line per event: the tree of workflow, step, turn and round."""

    def __init__(self, screen: Screen, *, clock: Callable[[], float] = time.time) -> None:
        self._stream = StreamJson(screen, clock=clock)

    def resumed(self, run: WorkflowState, turn: TurnState | None) -> None:
        """Opens the nodes of the stored run again."""
        self._stream.resumed_run(run)
        if turn is not None and not isinstance(turn.phase, Finished):
            self._stream.resumed(turn)

    def event(self, published: Published) -> None:
        """The event's line or lines."""
        self._stream.event(published)

    def finished(self, result: RunReport) -> None:
        """What a paused run has open stays open, it goes on later; any other run leaves nothing open."""
        if result.status != TurnStatus.PAUSED:
            self._stream.broke(result.detail or f"the run ended: {result.status}")

    def broke(self, reason: str) -> None:
        """Closes all that is open with ``error``."""
        self._stream.broke(reason)


def run_reporter(
    kind: OutputFormat, screen: Screen, *, summary: bool, turn: Callable[[], TurnState | None]
) -> RunReporter:
    """The reporter for a format. `summary`: only the result is wanted; `turn` gives the turn under way."""
    progress = None if summary else Progress(screen, turn=turn)
    match kind:
        case OutputFormat.TEXT:
            return RunText(screen, progress)
        case OutputFormat.JSON:
            return RunJson(screen, progress)
        case OutputFormat.STREAM_JSON:
            return RunStream(screen)
    assert_never(kind)


def readable(answer: str) -> str:
    """A result that a person is to accept, exactly: an object or a list over several lines, anything else as it is."""
    value = json_or_text(answer) if answer[:1] in ("{", "[") else answer
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)

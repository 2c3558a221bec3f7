"""The three output formats for workflow runs."""

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
        """Handle that a stored run is resumed; `turn` is the turn that it waits for, if that was started."""
        ...

    def event(self, published: Published) -> None:
        """Handle an event."""
        ...

    def finished(self, result: RunReport) -> None:
        """Print the result; nothing more happens without the user."""
        ...

    def broke(self, reason: str) -> None:
        """Handle that no result will follow, for `reason`."""
        ...


class RunText:
    """The answer on stdout; progress on stderr unless only the result is wanted."""

    def __init__(self, screen: Screen, progress: Progress | None) -> None:
        self._screen = screen
        self._progress = progress

    def resumed(self, run: WorkflowState, turn: TurnState | None) -> None:
        """Restore the progress counts."""
        if self._progress is not None:
            self._progress.resumed(run)

    def event(self, published: Published) -> None:
        """Print a line to stderr, or nothing."""
        if self._progress is not None:
            self._progress.event(published)

    def finished(self, result: RunReport) -> None:
        """Print the last result, if the run has one: fields as lines, text unchanged."""
        if result.status == TurnStatus.ANSWERED and result.answer:
            self._screen.answer(as_fields(result.answer))

    def broke(self, reason: str) -> None:
        """Print nothing: every format reports the reason on stderr."""


class RunJson(RunText):
    """One JSON object at the end; progress as in text format."""

    def finished(self, result: RunReport) -> None:
        """Print the documented object."""
        self._screen.line(dumps(run_json(result), indent=2))


class RunStream:
    """One JSON line per event: the tree of workflow, step, turn and round."""

    def __init__(self, screen: Screen, *, clock: Callable[[], float] = time.time) -> None:
        self._stream = StreamJson(screen, clock=clock)

    def resumed(self, run: WorkflowState, turn: TurnState | None) -> None:
        """Open the nodes of the stored run again."""
        self._stream.resumed_run(run)
        if turn is not None and not isinstance(turn.phase, Finished):
            self._stream.resumed(turn)

    def event(self, published: Published) -> None:
        """Print the lines of an event."""
        self._stream.event(published)

    def finished(self, result: RunReport) -> None:
        """Close all open nodes, except for a paused run, whose nodes a later command continues."""
        if result.status != TurnStatus.PAUSED:
            self._stream.broke(result.detail or f"the run ended: {result.status}")

    def broke(self, reason: str) -> None:
        """Close all open nodes with ``error``."""
        self._stream.broke(reason)


def run_reporter(
    kind: OutputFormat, screen: Screen, *, summary: bool, turn: Callable[[], TurnState | None]
) -> RunReporter:
    """Return the reporter for a format. `summary`: print only the result. `turn` returns the current turn."""
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
    """Return a result for review without loss: an object or list as indented JSON, anything else unchanged."""
    value = json_or_text(answer) if answer[:1] in ("{", "[") else answer
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)

"""The three output formats. A reporter follows the events of a turn or a workflow run and prints its result."""

import time
from collections.abc import Callable
from enum import StrEnum

from chatops.domain.endings import Ending
from chatops.domain.events import (
    AnswerRefused,
    CallDecided,
    CallProgressed,
    CallProposed,
    CallStreamed,
    Event,
    GateChecked,
    Notice,
    Published,
    ReviewRequested,
    RoundClosed,
    RoundStarted,
    Status,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStatus,
    WorkflowFinished,
    WorkflowStarted,
)
from chatops.domain.messages import Usage, total
from chatops.domain.progress import Progress
from chatops.domain.tools import BUDGET_EXTEND, ResultFacts
from chatops.domain.wording import as_fields, cut
from chatops.engine.replay import replay_turn
from chatops.engine.state import TurnState
from chatops.engine.validations import ValidationStatus, validation_states
from chatops.engine.workflow.progress import opening_events
from chatops.engine.workflow.state import ReviewReason, RunFinished, WorkflowState
from chatops.headless.event_tree import EventLine, Tree
from chatops.headless.json_values import dumps
from chatops.headless.report import RunReport, TurnReport, as_json
from chatops.headless.screen import Screen

MAX_SHOWN = 200
"""Maximum number of characters of a call's arguments, or of a reason, in a progress line."""


class OutputFormat(StrEnum):
    """Format of stdout."""

    TEXT = "text"
    JSON = "json"
    STREAM_JSON = "stream-json"


class TextReport:
    """Prints the answer on stdout, once it is complete, and progress on stderr."""

    def __init__(self, screen: Screen, progress: "ProgressPrinter | None") -> None:
        self._screen = screen
        self._progress = progress

    def resumed(self, turn: TurnState | None, *, run: WorkflowState | None = None) -> None:
        """Handle that a stored turn or run is resumed. `turn` is that of a run, if it was started."""
        if self._progress is not None and run is not None:
            self._progress.resumed(run)

    def event(self, published: Published) -> None:
        """Print a line to stderr, or nothing."""
        _show_wait(self._screen, published.event)
        if self._progress is not None:
            self._progress.event(published)

    def finished(self, result: TurnReport | RunReport) -> None:
        """Print the answer, if there is one.

        The answer of a turn that failed or was stopped goes to stderr. The object that a run ends with is printed as
        lines, one for each field.
        """
        if not result.answer:
            return
        if isinstance(result, RunReport):
            if result.status is TurnStatus.ANSWERED:
                self._screen.answer(as_fields(result.answer))
        elif result.status.has_answer:
            self._screen.answer(result.answer)
        else:
            self._screen.say(result.answer)

    def broken_off(self, reason: str) -> None:
        """Handle that no result will follow. Print nothing: every format reports the reason on stderr."""


class JsonReport(TextReport):
    """One JSON object at the end; progress as in text format."""

    def finished(self, result: TurnReport | RunReport) -> None:
        """Print the documented object."""
        self._screen.json(as_json(result))


class StreamJson:
    """One JSON line per event: the tree of workflow, step, turn and round."""

    def __init__(self, screen: Screen, *, clock: Callable[[], float] = time.time) -> None:
        self._screen = screen
        self._clock = clock
        self._tree = Tree()

    def resumed(self, turn: TurnState | None, *, run: WorkflowState | None = None) -> None:
        """Open the nodes of what is stored again."""
        events = (*(opening_events(run) if run is not None else ()), *(replay_turn(turn) if turn is not None else ()))
        self._write(self._tree.resumed(events, self._clock()))

    def event(self, published: Published) -> None:
        """Print the lines of an event."""
        _show_wait(self._screen, published.event)
        if not isinstance(published.event, CallProgressed | CallStreamed):
            self._write(self._tree.lines(published))

    def finished(self, result: TurnReport | RunReport) -> None:
        """Close all open nodes, unless it is paused: a later command continues those."""
        if result.status is not TurnStatus.PAUSED:
            what = "run" if isinstance(result, RunReport) else "turn"
            self.broken_off(result.detail or f"the {what} ended: {result.status}")

    def broken_off(self, reason: str) -> None:
        """Close all open nodes with ``error``."""
        self._write(self._tree.close(self._clock(), reason=reason))

    def _write(self, lines: list[EventLine]) -> None:
        for line in lines:
            self._screen.line(dumps(line))


Reporter = TextReport | StreamJson
"""Prints a turn or a workflow run."""


def _show_wait(screen: Screen, event: Event) -> None:
    """Show on the terminal what the turn waits for: a reply of the model, or long work of a call."""
    match event:
        case RoundStarted():
            now = time.monotonic()
            what = "waiting for the model"
            screen.show_progress(Progress(what=what, done=0, total=0, unit="", since=now, counted_since=now))
        case CallProgressed(progress=progress):
            screen.show_progress(progress)
        case CallProposed() | RoundClosed() | TurnFinished():
            screen.show_progress(None)
        case _:
            pass


def reporter(
    kind: OutputFormat,
    screen: Screen,
    *,
    summary: bool = False,
    turn: Callable[[], TurnState | None] = lambda: None,
) -> Reporter:
    """Return the reporter for a format.

    `summary`: print the result without progress. `turn` returns the current turn of a run.
    """
    progress = None if summary else ProgressPrinter(screen, turn=turn)
    match kind:
        case OutputFormat.TEXT:
            return TextReport(screen, progress)
        case OutputFormat.JSON:
            return JsonReport(screen, progress)
        case OutputFormat.STREAM_JSON:
            return StreamJson(screen)


class ProgressPrinter:
    """Prints tools, decisions and notices as they happen, one line each.

    For a run, its progress too: ``step 2/3 configure: iteration 4/10, validations 1 passed, 1 failing, 1,234 tokens``.
    """

    def __init__(self, screen: Screen, *, turn: Callable[[], TurnState | None]) -> None:
        """`turn` returns the current turn as committed."""
        self._screen = screen
        self._turn = turn
        self._steps: tuple[str, ...] = ()
        self._step_label = ""
        self._spent: Usage | None = None
        """Usage of the turns that are over; None if no server has reported any."""

    def resumed(self, run: WorkflowState) -> None:
        """Restore steps and token counts of a stored run that is resumed."""
        self._steps = tuple(step.name for step in run.spec.steps)
        for record in run.attempts:
            self._spent = total(self._spent, record.usage)
        if not isinstance(run.phase, RunFinished):
            self._enter_step(run.phase.step)

    def event(self, published: Published) -> None:
        """Print one line for an event, or nothing."""
        match published.event:
            case WorkflowStarted(workflow=workflow, steps=steps, id=run_id):
                self._steps = steps
                self._screen.say(f"workflow {workflow}: {', '.join(steps)} (run {run_id})")
            case StepStarted(step=step, attempt=attempt, attempts=attempts):
                self._enter_step(step)
                self._say_of_step(f"attempt {attempt}" + (f" of {attempts}" if attempt <= attempts else ""))
            case RoundStarted():
                self._say_round()
            case AnswerRefused(why=why):
                self._say_of_step(f"the answer is not accepted: {short_line(why)}")
            case GateChecked(gate=gate, status=status, detail=detail):
                word = "passed" if status is Status.SUCCESS else f"did not pass: {short_line(detail)}"
                self._say_of_step(f"gate {gate} {word}")
            case StepFinished(result=result, detail=detail):
                self._say_of_step(result.value + (f": {short_line(detail)}" if detail else ""))
            case ReviewRequested(reason=reason):
                unanswered = reason == ReviewReason.UNANSWERED
                self._say_of_step("failed: no model answered" if unanswered else f"needs your review ({reason})")
            case WorkflowFinished(result=result):
                self._screen.say(f"workflow {result}, {tokens(self._spent)}")
            case ToolFinished(tool=tool, facts=ResultFacts(problems=problems)) if problems:
                found = "; ".join(f"{problem.path}: {problem.message}" for problem in problems)
                self._screen.say(f"{tool}: failed: {short_line(found)}")
            case TurnFinished(usage=usage):
                self._spent = total(self._spent, usage)
            case event:
                if line := _tool_line(event):
                    self._screen.say(line)

    def _enter_step(self, step: int) -> None:
        self._step_label = f"step {step + 1}/{len(self._steps)} {self._steps[step]}"

    def _say_of_step(self, text: str) -> None:
        self._screen.say(f"{self._step_label}: {text}")

    def _say_round(self) -> None:
        turn = self._turn()
        if turn is None or turn.contract is None or not self._step_label:
            return
        number, limit = turn.counters.rounds + 1, turn.grant.max_rounds
        # After the last round the model is called once more, to answer without tools.
        parts = [f"iteration {number}/{limit}" if number <= limit else "closing call"]
        statuses = [validation.status for validation in validation_states(turn.contract, turn.messages, turn.grant)]
        if statuses:
            passed, never = statuses.count(ValidationStatus.PASSED), statuses.count(ValidationStatus.NEVER)
            parts.append(f"validations {passed} passed, {len(statuses) - passed - never} failing, {never} not called")
        spent = total(self._spent, turn.usage)
        self._say_of_step(", ".join([*parts, tokens(spent)]))


def _tool_line(event: Event) -> str:
    """Return the line about an event that a user at the terminal wants to see; empty if there is none."""
    match event:
        case ToolStarted(tool=tool, arguments=arguments, decided_by=by, sandbox=sandbox, sandboxed=sandboxed):
            shown = cut(arguments, most=MAX_SHOWN)
            unconfined = f"; sandbox: {sandbox}" if sandbox and not sandboxed else ""
            return f"running {tool} {shown}" + (f" ({by})" if by else "") + unconfined
        case ToolFinished(tool=tool, status=Status.ERROR) if tool == BUDGET_EXTEND:
            return ""  # The end of the turn says it.
        case ToolFinished(tool=tool, outcome=outcome, status=Status.ERROR, content=content):
            ending = event.facts.ending or Ending()
            cause = ending.cause and f"likely cause: {ending.cause}"
            parts = [ending.in_words or content.strip().partition("\n")[0], ending.further_words, cause]
            return ": ".join((tool, outcome.value, ", ".join(filter(None, parts)))).removesuffix(": ")
        case ToolFinished(tool=tool, truncated=truncated):
            ending = event.facts.ending or Ending()
            parts = [ending.further_words, "result shortened" if truncated else ""]
            return f"{tool}: {', '.join(filter(None, parts))}" if any(parts) else ""
        case CallDecided(id=call, by=by, decision=decision):
            return f"{call}: {decision.kind} by {by}" if by.is_person else f"{call}: {decision.kind} without asking"
        case Notice(text=text, advice=advice):
            return f"{text} {advice}".strip()
        case _:
            return ""


def tokens(usage: Usage | None) -> str:
    """Return the number of tokens spent, in words."""
    return "no tokens counted" if usage is None else f"{usage.input_tokens + usage.output_tokens:,} tokens"


def short_line(text: str) -> str:
    """Return the beginning of a text, on one line."""
    return cut(" ".join(text.split()), most=MAX_SHOWN)

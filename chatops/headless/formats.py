"""The three output formats. A reporter follows the events of a turn or a workflow run and prints its result."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from chatops.domain.canonical import JsonValue
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
    ReasoningDelta,
    ReviewRequested,
    RoundClosed,
    RoundStarted,
    Status,
    StepFinished,
    StepStarted,
    TextDelta,
    ThoughtFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnPaused,
    TurnStarted,
    TurnStatus,
    WorkflowFinished,
    WorkflowStarted,
    event_type,
)
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import Usage, total
from chatops.domain.progress import Progress
from chatops.domain.tools import BUDGET_EXTEND, Outcome, ResultFacts
from chatops.domain.wording import as_fields, cut
from chatops.engine.replay import replay_turn
from chatops.engine.state import TurnState
from chatops.engine.validations import ValidationStatus, validation_states
from chatops.engine.workflow.progress import opening_events
from chatops.engine.workflow.state import RunFinished, WorkflowState
from chatops.headless.json_values import dumps, plain
from chatops.headless.report import RunReport, TurnReport, as_json
from chatops.headless.screen import Screen

MAX_SHOWN = 200
"""Maximum number of characters of a call's arguments, or of a reason, in a progress line."""
EventLine = dict[str, JsonValue]

_CLOSED_BY: Mapping[type[Event], type[Event]] = {
    WorkflowStarted: WorkflowFinished,
    StepStarted: StepFinished,
    TurnStarted: TurnFinished,
    RoundStarted: RoundClosed,
    CallProposed: ToolFinished,
    TextDelta: ThoughtFinished,
    ReasoningDelta: ThoughtFinished,
}
"""Events that open a node of the tree, each with the one that closes it."""
_CLOSING = frozenset(_CLOSED_BY.values())


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
                self._say_of_step(f"needs your review ({reason})")
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


@frozen_dataclass
class _OpenNode:
    parent_id: str
    at: float
    """Seconds since the epoch."""
    closed_by: type[Event]


class Tree:
    """Converts events to lines of stream-json, which form a tree in which every opened node is closed.

    A line has `type`, `id`, `parent_id` and `at`. The line that opens a node has ``status: "started"``. The line that
    closes it has ``success`` or ``error``, `started_at` and `duration_ms`.
    """

    def __init__(self) -> None:
        self._open: dict[str, _OpenNode] = {}
        self._cut_short: set[str] = set()
        """Nodes that were closed because an enclosing node ended."""
        self._step = ""
        """Id of the current attempt at a step, which is the parent of its turns."""

    def lines(self, published: Published) -> list[EventLine]:
        """Return the lines for one event. A node that this stream has already opened is not opened again."""
        event, at = published.event, published.at
        line = {**_event_line(event, at), **self._fields_in_tree(event)}
        if (closed_by := _CLOSED_BY.get(type(event))) is not None:
            is_open = event.id in self._open
            if not is_open:
                self._open[event.id] = _OpenNode(parent_id=str(line["parent_id"]), at=at, closed_by=closed_by)
            # The first delta of a thought opens it. A delta without text only tells that.
            if isinstance(event, TextDelta | ReasoningDelta):
                line = {**line, "status": Status.STARTED.value} if not is_open else line
                return [line] if event.text or not is_open else []
            # The node is open already if the turn or run was resumed.
            return [] if is_open and "status" in line else [line]
        if event.id in self._cut_short:
            # A cancelled run ends before its turn does. The turn's node was closed with it, so skip the late event.
            return []
        if type(event) in _CLOSING:
            opened: list[EventLine] = []
            if isinstance(event, ThoughtFinished) and event.id not in self._open:
                # The thought ends without text: there are only calls, or a failure.
                opened = self.lines(Published(at=at, event=TextDelta(id=event.id, parent_id=event.parent_id, text="")))
            inside = [node for node in self._open if self._is_inside(node, event.id)]
            self._cut_short.update(inside)
            inner = [self._error_line(node, at, "the node around it ended first") for node in reversed(inside)]
            return [*opened, *inner, self._close_node(line, event.id, at)]
        return [line]

    def _fields_in_tree(self, event: Event) -> EventLine:
        """Return the fields in which a line differs from its event.

        The turns of a run are children of its steps. The result of a gate has its own id, because it is not the end of
        the turn that ran the gate's command.
        """
        match event:
            case StepStarted():
                self._step = event.id
            case StepFinished():
                self._step = ""
            case TurnStarted() | TurnPaused() | TurnFinished() if self._step:
                return {"parent_id": self._step}
            case GateChecked():
                return {"id": f"{event.id}.gate"}
            case _:
                pass
        return {}

    def resumed(self, events: Iterable[Event], at: float) -> list[EventLine]:
        """Return the lines that open again what the events of a stored turn or run leave open.

        So this stream is a complete tree. What is over was closed by the previous stream.
        """
        stored = list(events)
        over = {event.id for event in stored if type(event) in _CLOSING}
        still_open = [event for event in stored if type(event) in _CLOSED_BY and event.id not in over]
        lines = [line for event in still_open for line in self.lines(Published(at=at, event=event))]
        return [{**line, "resumed": True} for line in lines]

    def close(self, at: float, *, reason: str) -> list[EventLine]:
        """Return closing lines with ``error`` for all open nodes, innermost first."""
        return [self._error_line(node, at, reason) for node in reversed(list(self._open))]

    def _is_inside(self, node: str, ancestor: str) -> bool:
        parent = self._open[node].parent_id
        while parent != ancestor:
            if parent not in self._open:
                return False
            parent = self._open[parent].parent_id
        return True

    def _error_line(self, node_id: str, at: float, reason: str) -> EventLine:
        node = self._open[node_id]
        kind = node.closed_by
        line: EventLine = {"type": _type_name(kind), "id": node_id, "parent_id": node.parent_id, "at": at}
        line |= {"status": Status.ERROR.value, "detail": reason}
        if kind is ToolFinished:
            line["outcome"] = Outcome.INTERRUPTED.value
        return self._close_node(line, node_id, at)

    def _close_node(self, line: EventLine, node_id: str, at: float) -> EventLine:
        node = self._open.pop(node_id, None)
        started = min(node.at, at) if node else at
        duration = line.get("duration_ms") or round(max(0.0, at - started) * 1000)
        return {**line, "started_at": started, "duration_ms": duration}


def _event_line(event: Event, at: float) -> EventLine:
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    head: EventLine = {"type": _type_name(type(event)), "id": event.id, "parent_id": event.parent_id, "at": at}
    # The facts of a result are for UIs of ours: what scripts need of them has keys of its own.
    shown = {name: value for name, value in fields.items() if name not in head and not isinstance(value, ResultFacts)}
    return head | {name: plain(value, name=name) for name, value in shown.items()}


def _type_name(kind: type[Event]) -> str:
    return event_type(kind)  # type: ignore[arg-type]  # typeshed doubts that a union of classes is hashable

"""stream-json: events as JSON lines that form a tree in which every opened node is closed.

A line has `type`, `id`, `parent_id` and `at`. The line that opens a node has ``status: "started"``. The line that
closes it has ``success`` or ``error``, `started_at` and `duration_ms`.
"""

import dataclasses
from collections.abc import Mapping

from chatops.domain.canonical import JsonValue
from chatops.domain.events import (
    CallProposed,
    Event,
    Published,
    ReasoningDelta,
    RoundClosed,
    RoundStarted,
    TextDelta,
    ThoughtFinished,
    ToolFinished,
    TurnFinished,
    TurnPaused,
    TurnStarted,
    event_type,
)
from chatops.domain.messages import UserMessage
from chatops.domain.run_events import GateChecked, StepFinished, StepStarted, WorkflowFinished, WorkflowStarted
from chatops.domain.status import Status
from chatops.domain.tools import Outcome, ResultFacts
from chatops.engine.state import InRound, Settled, Stopping, TurnState
from chatops.engine.workflow.progress import opened
from chatops.engine.workflow.state import WorkflowState
from chatops.headless.json_values import plain

EventLine = dict[str, JsonValue]

OPENING = (WorkflowStarted, StepStarted, TurnStarted, RoundStarted, CallProposed, TextDelta, ReasoningDelta)
CLOSING = (WorkflowFinished, StepFinished, TurnFinished, RoundClosed, ToolFinished, ThoughtFinished)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    parent_id: str
    at: float
    closes_as: type[Event]


class Tree:
    """Converts events to lines and keeps track of the open nodes."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._cut_short: set[str] = set()
        """Nodes that were closed because an enclosing node ended."""
        self._step = ""
        """Id of the current attempt at a step, which is the parent of its turns."""

    def lines(self, published: Published) -> list[EventLine]:
        """Return the lines for one event. A node that this stream has already opened is not opened again."""
        event, at = published.event, published.at
        line = {**_line(event, at), **self._place(event)}
        if isinstance(event, OPENING):
            known = event.id in self._open
            if not known:
                self._open[event.id] = _Open(parent_id=str(line["parent_id"]), at=at, closes_as=_closing(event))
            if isinstance(event, TextDelta | ReasoningDelta):
                line = {**line, "status": Status.STARTED.value} if not known else line
                return [line] if event.text or not known else []
            return [] if known and "status" in line else [line]
        if event.id in self._cut_short:
            # A cancelled run ends before its turn does. The turn's node was closed with it, so skip the late event.
            return []
        if isinstance(event, CLOSING):
            opened = self._wordless(event, at)
            inner = self._close_inside(event.id, at, "the node around it ended first")
            return [*opened, *inner, self._timed(line, event.id, at)]
        return [line]

    def _place(self, event: Event) -> EventLine:
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

    def resumed_run(self, run: WorkflowState, at: float) -> list[EventLine]:
        """Return the lines that open a stored run and its current attempt again."""
        lines = [line for event in opened(run) for line in self.lines(Published(at=at, event=event))]
        return [{**line, "resumed": True} for line in lines]

    def resumed(self, state: TurnState, at: float) -> list[EventLine]:
        """Return the lines that open the nodes of a stored turn again, so that this stream is a complete tree.

        A call that has its result was closed by the previous stream and is not opened again.
        """
        text = next((m.text for m in state.messages if isinstance(m, UserMessage)), "")
        model = state.grant.models[0].name
        events: list[Event] = [
            TurnStarted(id=state.turn_id, parent_id=state.session_id, text=text, role=state.grant.role, model=model)
        ]
        if isinstance(state.phase, InRound | Stopping):
            round_ = state.phase.round_id
            events.append(RoundStarted(id=round_, parent_id=state.turn_id, model=state.phase.model))
            events.extend(
                CallProposed(id=one.call.id, parent_id=round_, tool=one.call.name, arguments=one.call.arguments)
                for one in state.phase.calls
                if not isinstance(one.status, Settled)
            )
        lines = [line for event in events for line in self.lines(Published(at=at, event=event))]
        return [{**line, "resumed": True} for line in lines]

    def close(self, at: float, *, reason: str) -> list[EventLine]:
        """Return closing lines with ``error`` for all open nodes, innermost first."""
        return [self._closed_by_us(node, at, reason) for node in reversed(list(self._open))]

    def _wordless(self, event: Event, at: float) -> list[EventLine]:
        """Return the opening line of a thought that ends without text (only calls, or a failure)."""
        if not isinstance(event, ThoughtFinished) or event.id in self._open:
            return []
        return self.lines(Published(at=at, event=TextDelta(id=event.id, parent_id=event.parent_id, text="")))

    def _close_inside(self, node_id: str, at: float, reason: str) -> list[EventLine]:
        inside = [node for node in self._open if self._is_inside(node, node_id)]
        self._cut_short.update(inside)
        return [self._closed_by_us(node, at, reason) for node in reversed(inside)]

    def _is_inside(self, node: str, ancestor: str) -> bool:
        parent = self._open[node].parent_id
        while parent != ancestor:
            if parent not in self._open:
                return False
            parent = self._open[parent].parent_id
        return True

    def _closed_by_us(self, node_id: str, at: float, reason: str) -> EventLine:
        node = self._open[node_id]
        kind = node.closes_as
        line: EventLine = {"type": _name(kind), "id": node_id, "parent_id": node.parent_id, "at": at}
        line |= {"status": Status.ERROR.value, "detail": reason}
        if kind is ToolFinished:
            line["outcome"] = Outcome.INTERRUPTED.value
        return self._timed(line, node_id, at)

    def _timed(self, line: EventLine, node_id: str, at: float) -> EventLine:
        node = self._open.pop(node_id, None)
        started = min(node.at, at) if node else at
        measured = line.get("duration_ms")
        duration = measured if measured else round(max(0.0, at - started) * 1000)
        return {**line, "started_at": started, "duration_ms": duration}


def _closing(event: Event) -> type[Event]:
    closings: Mapping[type[Event], type[Event]] = {
        WorkflowStarted: WorkflowFinished,
        StepStarted: StepFinished,
        TurnStarted: TurnFinished,
        RoundStarted: RoundClosed,
        CallProposed: ToolFinished,
        TextDelta: ThoughtFinished,
        ReasoningDelta: ThoughtFinished,
    }
    return closings[type(event)]


def _line(event: Event, at: float) -> EventLine:
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    head: EventLine = {"type": _name(type(event)), "id": event.id, "parent_id": event.parent_id, "at": at}
    # The facts of a result are for UIs of ours: what scripts need of them has keys of its own.
    shown = {name: value for name, value in fields.items() if name not in head and not isinstance(value, ResultFacts)}
    return head | {name: plain(value, name=name) for name, value in shown.items()}


def _name(kind: type[Event]) -> str:
    return event_type(kind)  # type: ignore[arg-type]  # typeshed doubts that a union of classes is hashable

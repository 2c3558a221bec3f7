"""Events as lines of stream-json, which form a tree of workflow, step, turn and round."""

import dataclasses
from collections.abc import Iterable, Mapping

from chatops.domain.canonical import JsonValue
from chatops.domain.events import (
    CallProposed,
    Event,
    GateChecked,
    Published,
    ReasoningDelta,
    RoundClosed,
    RoundStarted,
    Status,
    StepFinished,
    StepStarted,
    TextDelta,
    ThoughtFinished,
    ToolFinished,
    TurnFinished,
    TurnPaused,
    TurnStarted,
    WorkflowFinished,
    WorkflowStarted,
    event_type,
)
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import Outcome, ResultFacts
from chatops.headless.json_values import plain

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
            return _opening_lines(event, line, is_open=is_open)
        if event.id in self._cut_short:
            # A cancelled run ends before its turn does. The turn's node was closed with it, so skip the late event.
            return []
        return self._closing_lines(event, line, at) if type(event) in _CLOSING else [line]

    def _closing_lines(self, event: Event, line: EventLine, at: float) -> list[EventLine]:
        """Return the line that closes a node, after those that close what is open inside."""
        opened: list[EventLine] = []
        if isinstance(event, ThoughtFinished) and event.id not in self._open:
            # The thought ends without text: there are only calls, or a failure.
            opened = self.lines(Published(at=at, event=TextDelta(id=event.id, parent_id=event.parent_id, text="")))
        inside = [node for node in self._open if self._is_inside(node, event.id)]
        self._cut_short.update(inside)
        inner = [self._error_line(node, at, "the node around it ended first") for node in reversed(inside)]
        return [*opened, *inner, self._close_node(line, event.id, at)]

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


def _opening_lines(event: Event, line: EventLine, *, is_open: bool) -> list[EventLine]:
    """Return the line of an event that opens a node, if it tells something: its node may be open already."""
    if isinstance(event, TextDelta | ReasoningDelta):
        # The first delta of a thought opens it. A delta without text only tells that.
        if not is_open:
            return [{**line, "status": Status.STARTED.value}]
        return [line] if event.text else []
    # The node is open already if the turn or run was resumed.
    return [] if is_open and "status" in line else [line]


def _event_line(event: Event, at: float) -> EventLine:
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    head: EventLine = {"type": _type_name(type(event)), "id": event.id, "parent_id": event.parent_id, "at": at}
    # The facts of a result are for UIs of ours: what scripts need of them has keys of its own.
    shown = {name: value for name, value in fields.items() if name not in head and not isinstance(value, ResultFacts)}
    return head | {name: plain(value, name=name) for name, value in shown.items()}


def _type_name(kind: type[Event]) -> str:
    return event_type(kind)  # type: ignore[arg-type]  # typeshed doubts that a union of classes is hashable

"""stream-json is one closed tree: whatever opens is closed, with times, also after a failure."""

import io
import json
from dataclasses import replace
from typing import Any

from chatops.domain.decisions import Approved, Principal
from chatops.domain.events import (
    ApprovalRequested,
    CallDecided,
    CallProgressed,
    CallProposed,
    CallStreamed,
    Event,
    Notice,
    Published,
    RoundClosed,
    RoundStarted,
    Status,
    TextDelta,
    ThoughtFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnPaused,
    TurnStarted,
    TurnStatus,
)
from chatops.domain.ids import thought_id
from chatops.domain.progress import Progress
from chatops.domain.tools import Outcome, ToolResult
from chatops.engine.state import Settled
from chatops.engine.view import pending_calls
from chatops.headless.formats import StreamJson
from chatops.headless.report import report
from chatops.headless.screen import Screen
from tests.support.turns import CALL, ROUND, SESSION, TURN, USAGE, finished, paused

THOUGHT = thought_id(ROUND)
BEGIN: tuple[Event, ...] = (
    TurnStarted(id=TURN, parent_id=SESSION, text="read a", role="coder", model="demo"),
    RoundStarted(id=ROUND, parent_id=TURN, model="demo"),
    TextDelta(id=THOUGHT, parent_id=ROUND, text="I "),
    TextDelta(id=THOUGHT, parent_id=ROUND, text="read"),
)
SAID = ThoughtFinished(id=THOUGHT, parent_id=ROUND, status=Status.SUCCESS, text="I read", usage=USAGE, duration_ms=40)
CALLED: tuple[Event, ...] = (
    CallProposed(id=CALL, parent_id=ROUND, tool="file_read", arguments='{"path":"a"}'),
    ToolStarted(id=CALL, parent_id=ROUND, tool="file_read", arguments='{"path":"a"}', attempt=1, decided_by="policy"),
)
DONE = ToolFinished(
    id=CALL, parent_id=ROUND, status=Status.SUCCESS, tool="file_read", arguments="{}", outcome=Outcome.SUCCESS,
    content="text",
)  # fmt: skip
END: tuple[Event, ...] = (
    RoundClosed(id=ROUND, parent_id=TURN, status=Status.SUCCESS, model="demo", usage=USAGE),
    TurnFinished(
        id=TURN, parent_id=SESSION, status=Status.SUCCESS, result=TurnStatus.ANSWERED, answer="I read", usage=USAGE
    ),
)


class Recorder:
    """A reporter whose lines can be read back."""

    def __init__(self) -> None:
        self._out = io.StringIO()
        self.reporter = StreamJson(Screen(out=self._out, err=io.StringIO()), clock=lambda: 99.0)

    def play(self, *events: Event) -> None:
        for number, event in enumerate(events):
            self.reporter.event(Published(at=10.0 + number, event=event))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def text(self) -> str:
        return self._out.getvalue()


def assert_closed_tree(lines: list[dict[str, Any]]) -> None:
    """Every node is opened once, closed once, inside an open parent."""
    opened: dict[str, bool] = {SESSION: True}
    for line in lines:
        assert {"type", "id", "parent_id", "at"} <= set(line)
        assert opened.get(line["parent_id"]), f"{line['type']} has no open parent"
        match line.get("status"):
            case "started":
                assert line["id"] not in opened, f"{line['id']} is opened twice"
                opened[line["id"]] = True
            case "success" | "error":
                assert opened.get(line["id"]), f"{line['id']} is closed and was not open"
                assert line["started_at"] <= line["at"]
                assert line["duration_ms"] >= 0
                opened[line["id"]] = False
    assert [node for node, is_open in opened.items() if is_open] == [SESSION]


def test_a_whole_turn_is_a_closed_tree_of_events_named_in_snake_case() -> None:
    stream = Recorder()
    stream.play(*BEGIN, TextDelta(id=THOUGHT, parent_id=ROUND, text=""), SAID, *CALLED, DONE, *END)
    stream.reporter.finished(report(finished()))
    assert_closed_tree(stream.lines)
    assert [line["type"] for line in stream.lines] == [
        "turn_started", "round_started", "text_delta", "text_delta", "thought_finished", "call_proposed",
        "tool_started", "tool_finished", "round_closed", "turn_finished",
    ]  # fmt: skip


def test_usage_and_times_are_on_the_closing_lines_and_arguments_are_objects() -> None:
    stream = Recorder()
    stream.play(*BEGIN, SAID, *CALLED, DONE, *END)
    by_type = {line["type"]: line for line in stream.lines}
    assert by_type["round_closed"]["usage"]["input_tokens"] == USAGE.input_tokens
    assert by_type["round_closed"]["started_at"] == 11.0
    assert by_type["round_closed"]["duration_ms"] == 7000
    assert by_type["thought_finished"]["duration_ms"] == 40
    assert by_type["call_proposed"]["arguments"] == {"path": "a"}


def test_a_failure_in_the_middle_leaves_nothing_open() -> None:
    stream = Recorder()
    stream.play(*BEGIN, SAID, *CALLED)
    stream.reporter.broken_off("the disk is full")
    lines = stream.lines
    assert_closed_tree(lines)
    assert [(line["type"], line["status"]) for line in lines[-3:]] == [
        ("tool_finished", "error"),
        ("round_closed", "error"),
        ("turn_finished", "error"),
    ]
    assert lines[-1]["detail"] == "the disk is full"


def test_a_parent_that_ends_first_closes_what_is_inside_it() -> None:
    stream = Recorder()
    stream.play(*BEGIN, *CALLED, *END)
    assert_closed_tree(stream.lines)


def test_a_thought_that_ends_without_a_word_is_opened_too() -> None:
    stream = Recorder()
    failed = ThoughtFinished(id=THOUGHT, parent_id=ROUND, status=Status.ERROR, text="", error="refused")
    stream.play(*BEGIN[:2], failed, *END)
    assert_closed_tree(stream.lines)
    assert stream.lines[2]["status"] == "started"


def test_progress_is_no_line() -> None:
    out = io.StringIO()
    at = Progress(what="copying", done=1, total=2, unit="file", since=0.0, counted_since=0.0)
    report = StreamJson(Screen(out=out, err=io.StringIO()))
    report.event(Published(at=0, event=CallProgressed(id=CALL, parent_id=ROUND, progress=at)))
    report.event(Published(at=0, event=CallStreamed(id=THOUGHT, parent_id=ROUND, characters=9)))
    assert not out.getvalue()


def test_a_notice_neither_opens_nor_closes() -> None:
    stream = Recorder()
    stream.play(*BEGIN, Notice(id="n1", parent_id=TURN, text="careful", level="error"), SAID, *END)
    assert_closed_tree(stream.lines)


def test_a_paused_turn_stays_open_and_the_resumed_stream_is_a_closed_tree_of_its_own() -> None:
    state = paused()
    (pending,) = pending_calls(state)
    first = Recorder()
    first.play(
        *BEGIN,
        SAID,
        CALLED[0],
        ApprovalRequested(id=CALL, parent_id=ROUND, pending=pending),
        TurnPaused(id=TURN, parent_id=SESSION, pending=(pending,)),
    )
    first.reporter.finished(report(state))
    assert first.lines[-1]["type"] == "turn_paused"
    assert first.lines[-1]["pending"][0]["why"] == "tool default of shell_exec"

    second = Recorder()
    second.reporter.resumed(state)
    principal = Principal(uid=1000, via="approvals")
    second.play(CallDecided(id=CALL, parent_id=ROUND, decision=Approved(), by=principal), CALLED[1], DONE, *END)
    assert_closed_tree(second.lines)
    assert [line["type"] for line in second.lines][:3] == ["turn_started", "round_started", "call_proposed"]
    assert all(line["resumed"] for line in second.lines[:3])


def test_the_repairs_of_a_call_are_part_of_what_is_asked() -> None:
    (pending,) = pending_calls(paused())
    repaired = replace(pending, facts=replace(pending.facts, repairs=("a brace was added",)))
    stream = Recorder()
    stream.play(*BEGIN, SAID, CALLED[0], ApprovalRequested(id=CALL, parent_id=ROUND, pending=repaired))
    assert stream.lines[-1]["type"] == "approval_requested"
    assert stream.lines[-1]["pending"]["facts"]["repairs"] == ["a brace was added"]


def test_a_call_that_has_its_result_is_not_opened_again() -> None:
    done = Settled(result=ToolResult(outcome=Outcome.SUCCESS, content="text"), arguments="{}")
    stream = Recorder()
    stream.reporter.resumed(paused(others=(done,)))
    stream.reporter.broken_off("stopped")
    assert_closed_tree(stream.lines)
    assert {line["id"] for line in stream.lines if line["type"] == "tool_finished"} == {CALL}


def test_hostile_text_stays_on_its_line_and_is_ascii() -> None:
    stream = Recorder()
    stream.play(*BEGIN[:2], TextDelta(id=THOUGHT, parent_id=ROUND, text="a\nb\x1b[2J\u2028\ud800"))
    raw = stream.text
    assert raw.isascii()
    assert "\x1b" not in raw
    assert stream.lines[-1]["text"] == "a\nb\x1b[2J\u2028\ud800"

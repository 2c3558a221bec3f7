"""The object of --output-format json says what happened, with every documented key."""

import json
from dataclasses import replace
from typing import Any

from chatops.domain.errors import StoreError
from chatops.domain.events import TurnStatus
from chatops.domain.ids import call_id
from chatops.domain.messages import Usage
from chatops.domain.model import FailureKind
from chatops.domain.tools import CallFacts, Outcome, ToolResult, Verdict
from chatops.engine.state import (
    AwaitingModel,
    CallStatus,
    Deferred,
    Inspecting,
    Permitted,
    Rechecking,
    Reconciling,
    Settled,
    Started,
)
from chatops.headless.json_values import arguments_value
from chatops.headless.report import as_json, report
from tests.support.cases import for_each
from tests.support.turns import CALL, ROUND, SESSION, TURN, asked, finished, grant, paused, tool_message, turn

KEYS = {
    "session_id", "turn_id", "role", "model", "status", "answer", "calls", "usage", "rounds", "files", "pending",
}  # fmt: skip


def test_an_answered_turn_has_every_documented_key() -> None:
    state = finished(messages=(tool_message("file_read", '{"path":"README.md"}'),))
    value = as_json(report(state))
    assert set(value) == KEYS
    assert value["session_id"] == SESSION
    assert value["turn_id"] == TURN
    assert (value["role"], value["model"], value["status"]) == ("coder", "demo", "answered")
    assert value["answer"] == "The answer"
    assert value["calls"] == [
        {
            "id": CALL,
            "tool": "file_read",
            "arguments": {"path": "README.md"},
            "verdict": "ask",
            "decided_by": "uid 1000 via tui",
            "outcome": "success",
            "duration_ms": 5,
        }
    ]
    usage = {"input_tokens": 12, "output_tokens": 7, "reasoning_tokens": 2, "cost": 0.5}
    assert value["usage"] == usage
    assert value["rounds"] == [{"model": "demo", "finish_reason": "stop", "usage": usage}]
    assert value["files"] == []
    assert value["pending"] == []
    json.dumps(value)


@for_each(
    ("result", "failure", "reason"),
    [
        (TurnStatus.FAILED, FailureKind.UNREACHABLE, "unreachable"),
        (TurnStatus.LIMIT, FailureKind.OUT_OF_TOKENS, "out_of_tokens"),
        (TurnStatus.LIMIT, None, "limit"),
        (TurnStatus.FAILED, None, "no_answer"),
        (TurnStatus.CANCELLED, None, "stopped"),
    ],
)
def test_a_turn_without_an_answer_says_why_in_a_word_and_in_sentences(
    result: TurnStatus, failure: FailureKind | None, reason: str
) -> None:
    state = finished(result, answer="", detail="No.", advice="Try again.")
    state = replace(state, rounds=(replace(state.rounds[0], failure=failure),))
    value = as_json(report(state))
    assert value["error"] == {"reason": reason, "message": "No.", "advice": "Try again."}
    assert set(value) == {*KEYS, "error"}


def test_unknown_usage_is_null_and_not_zero() -> None:
    value = as_json(report(turn(AwaitingModel(round_id=ROUND, under=grant()))))
    assert value["usage"] == {"input_tokens": None, "output_tokens": None, "reasoning_tokens": None, "cost": None}


def test_cached_tokens_are_listed_where_the_server_reports_them() -> None:
    state = finished(messages=())
    state = replace(state, usage=Usage(input_tokens=12, output_tokens=7, cached_tokens=8))
    usage = {"input_tokens": 12, "output_tokens": 7, "reasoning_tokens": 0, "cost": None, "cached_tokens": 8}
    assert as_json(report(state))["usage"] == usage


def test_a_turn_left_running_counts_as_cancelled() -> None:
    assert report(turn(AwaitingModel(round_id=ROUND, under=grant()))).status == "cancelled"


def test_a_paused_turn_lists_what_waits_and_why() -> None:
    value = as_json(report(paused()))
    assert value["status"] == "paused"
    assert value["pending"] == [
        {
            "id": CALL,
            "tool": "shell_exec",
            "arguments": {"command": "git push"},
            "why": "tool default of shell_exec",
        }
    ]
    (call,) = report(paused()).calls
    assert (call.id, call.outcome) == (CALL, None)


FACTS = CallFacts(arguments='{"path":"a"}')
BY: dict[str, Any] = {"facts": FACTS, "digest": "d", "verdict": Verdict.ALLOW, "decided_by": "policy"}


@for_each(
    ("status", "verdict", "decided_by"),
    [
        (Inspecting(), None, None),
        (Deferred(), None, None),
        (Permitted(**BY), "allow", "policy"),
        (Rechecking(**BY), "allow", "policy"),
        (Started(**BY, attempt=1), "allow", "policy"),
        (Reconciling(**BY, attempt=1), "allow", "policy"),
        (Settled(result=ToolResult(outcome=Outcome.SUCCESS, content=""), arguments="{}"), None, None),
    ],
)
def test_a_call_says_its_verdict_as_soon_as_there_is_one(
    status: CallStatus, verdict: str | None, decided_by: str | None
) -> None:
    value: Any = as_json(report(paused(others=(status,))))
    waiting, other = value["calls"]
    assert (waiting["verdict"], waiting["decided_by"]) == ("ask", None)
    assert (other["verdict"], other["decided_by"]) == (verdict, decided_by)


def test_what_cannot_be_stored_is_a_failure_unless_the_turn_is_over() -> None:
    error = StoreError("The disk is full.", advice="Make room.")
    stuck = report(asked(), blocked_by=error)
    assert (stuck.status, stuck.detail, stuck.advice) == ("failed", "Not saved: The disk is full.", "Make room.")
    assert report(finished(), blocked_by=error).status == "answered"


def test_files_are_those_that_successful_calls_of_this_turn_changed() -> None:
    state = finished(
        messages=(
            tool_message("file_write", '{"path":"a.txt","content":"x"}', call=call_id(ROUND, 1)),
            tool_message("file_edit", '{"path":"/w/sub/../b.txt","old":"x","new":"y"}', call=call_id(ROUND, 2)),
            tool_message("file_edit", '{"path":"./a.txt","old":"x","new":"y"}', call=call_id(ROUND, 3)),
            tool_message("file_write", '{"path":"no.txt"}', outcome=Outcome.DENIED, call=call_id(ROUND, 4)),
            tool_message("file_read", '{"path":"read.txt"}', call=call_id(ROUND, 5)),
            tool_message("file_write", '{"path":"/elsewhere/c"}', call=call_id(ROUND, 6)),
        )
    )
    assert report(state, workspace="/w").files == ("a.txt", "b.txt", "/elsewhere/c")


def test_arguments_that_are_no_object_stay_text() -> None:
    state = finished(messages=(tool_message("file_read", '{"path": ', outcome=Outcome.INVALID),))
    assert report(state).calls[0].arguments == '{"path": '
    assert arguments_value('{"path": ') == '{"path": '
    assert arguments_value("[1]") == "[1]"

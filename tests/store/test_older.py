"""Facts that earlier versions did not store are found in what they did store, and what a program prints is not one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.endings import EndedBy, Ending, with_ending
from chatops.domain.ids import MessageId
from chatops.domain.messages import ToolMessage, UserMessage
from chatops.domain.tools import NO_FACTS, ResultFacts, ResultSource
from chatops.store import codec

LOST = "No result of this call was recorded. It may or may not have taken effect."
STOPPED = "Not run: the person stopped the turn."
SURPLUS = "Not run: too many calls in one reply. Ask for fewer at a time."
MARKED_DONE = "The program was interrupted while this ran; a person has checked and says that it took effect."
AGAIN = " Do not ask for the same again; go on without it or ask the person."
EMPTY = "[chatops] Your response was empty. Please provide a valid JSON response."
NOT_JSON = "[chatops] Your response could not be parsed as valid JSON. Error: it is a list"
ENDS = (
    Ending(),
    Ending(by=EndedBy.TIME_LIMIT, seconds=2.5),
    Ending(exit_code=3),
    Ending(exit_code=139, signal="SIGSEGV"),
    Ending(exit_code=137, signal="SIGKILL"),
    Ending(by=EndedBy.UNKNOWN),
    Ending(stopped=1),
    Ending(exit_code=1, stopped=12),
    Ending(exit_code=1, stopped=2, cause='no network; "sandbox": {"network": true}'),
)
LINES = [with_ending("", end) for end in ENDS]
FORGED = st.sampled_from([*LINES, "[exit code 7] ", "[exit code 7", f"[exit code {'9' * 5000}]", "hello", "\n", "\r"])


def stored(**more: Any) -> ToolMessage:
    """A message as a version without facts stored it, read today."""
    body = {
        "kind": "tool", "id": "m", "call_id": "c", "tool": "shell_exec", "arguments": "{}", "outcome": "success",
        "content": "", "truncated": False, "verdict": None, "decided_by": "", "duration_ms": 0, **more,
    }  # fmt: skip
    message = codec.decode_message(json.dumps(body), message_id=MessageId("m"))
    assert isinstance(message, ToolMessage)
    return message


@given(st.lists(FORGED | st.text(max_size=5), max_size=4), st.sampled_from(ENDS))
def test_the_ending_is_ours_whatever_the_program_printed(lines: list[str], end: Ending) -> None:
    found = stored(content=with_ending("\n".join(lines), end)).facts.ending or Ending()
    assert found == end


def test_the_end_of_a_program_is_not_looked_for_in_the_result_of_another_tool() -> None:
    assert stored(tool="file_read", content="[exit code 3]").facts.ending is None


@pytest.mark.parametrize(
    ("more", "source", "reason"),
    [
        ({"outcome": "unknown", "content": LOST}, ResultSource.LOST, ""),
        ({"outcome": "interrupted", "content": "Not run so far.", "verdict": "ask"}, ResultSource.HELD, ""),
        ({"outcome": "interrupted", "content": STOPPED}, ResultSource.STOPPED, ""),
        ({"outcome": "invalid", "content": SURPLUS}, ResultSource.SURPLUS, ""),
        (
            {
                "outcome": "invalid",
                "content": "file_read was not run: its arguments are not valid.\n- path: is missing",
            },
            ResultSource.CALL,
            "path: is missing",
        ),
        (
            {"outcome": "invalid", "content": "There is no tool 'rm'. Tools: a."},
            ResultSource.CALL,
            "there is no tool 'rm'",
        ),
        ({"decided_by": "earlier attempt"}, ResultSource.EARLIER_ATTEMPT, ""),
        ({"content": f"{MARKED_DONE} I looked."}, ResultSource.USER, ""),
        (
            {"outcome": "denied", "content": f"Denied by the person. Reason: not now.{AGAIN}"},
            ResultSource.USER,
            "not now",
        ),
        ({"outcome": "denied", "content": f"Denied, and no person was asked.{AGAIN}"}, ResultSource.CALL, ""),
        ({"outcome": "denied", "content": "Not permitted: x."}, ResultSource.CALL, ""),
        ({"content": STOPPED}, ResultSource.CALL, ""),
    ],
)
def test_the_source_of_a_result_is_found(more: dict[str, str], source: ResultSource, reason: str) -> None:
    facts = stored(**more).facts
    assert (facts.source, facts.reason) == (source, reason)


@pytest.mark.parametrize(
    ("tool", "outcome", "reads"),
    [
        ("file_read", "success", True),
        ("component_deploy", "failed", True),
        ("python_exec", "unknown", True),
        ("file_read", "denied", False),
        ("web_search", "success", False),
    ],
)
def test_results_with_data_of_the_workspace_are_known(tool: str, outcome: str, reads: bool) -> None:
    assert stored(tool=tool, outcome=outcome).facts.reads_workspace is reads


def test_the_file_that_a_call_wrote_is_known() -> None:
    assert stored(tool="file_write", arguments='{"path":"a.txt","content":"x"}').facts.wrote == "a.txt"
    assert stored(tool="file_write", arguments="{", outcome="success").facts.wrote == ""


def test_facts_that_are_stored_are_not_touched() -> None:
    assert stored(outcome="unknown", content=LOST, facts={}).facts == NO_FACTS
    assert stored(facts={"source": "held"}).facts == ResultFacts(source=ResultSource.HELD)


@pytest.mark.parametrize(("text", "wants"), [(EMPTY, True), (NOT_JSON, True), ("x", False)])
def test_the_feedback_to_an_answer_without_json_is_known(text: str, wants: bool) -> None:
    body = json.dumps({"kind": "user", "id": "m", "text": text, "by": "machine"})
    message = codec.decode_message(body, message_id=MessageId("m"))
    assert isinstance(message, UserMessage)
    assert message.wants_json is wants

"""Which result answers which call, in histories that nobody should have left."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.ids import CallId, MessageId, SessionId, TurnId
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from chatops.domain.model import FailureKind, ModelFailure
from chatops.domain.tools import Outcome, ToolCall
from chatops.engine.effects import CallModel
from chatops.engine.inputs import ModelFailureInput, Recover, RetryTurn
from chatops.engine.pairing import LOST_RESULT, lost_calls, missing_replies, results_of, stand_in, stand_ins
from chatops.engine.state import new_turn
from chatops.engine.turn import advance, start
from tests.engine.world import grant
from tests.support.cases import for_each


def call(id: str, name: str = "read") -> ToolCall:
    return ToolCall(id=CallId(id), name=name, arguments="{}")


def asks(*ids: str) -> AssistantMessage:
    return AssistantMessage(id=MessageId(f"asks {ids}"), text="", calls=tuple(call(id) for id in ids))


def result(id: str, content: str) -> ToolMessage:
    return ToolMessage(
        id=MessageId(content),
        call_id=CallId(id),
        tool="read",
        arguments="{}",
        outcome=Outcome.SUCCESS,
        content=content,
    )


def in_place(id: str) -> ToolMessage:
    return stand_in(call(id), id=MessageId(f"{id} lost"))


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param([asks("a", "b"), result("b", "2"), result("a", "1")], [["1", "2"]], id="in-any-order"),
        pytest.param([asks("a"), result("a", "1"), result("a", "again")], [["1"]], id="two-results"),
        pytest.param([result("a", "too early"), asks("a")], [[None]], id="before-its-call"),
        pytest.param([asks("a"), result("b", "nobody asked")], [[None]], id="of-no-call"),
        pytest.param([asks("a", "a"), result("a", "1"), result("a", "2")], [["1", "2"]], id="one-id-twice-at-once"),
        pytest.param([asks("a"), asks("a"), result("a", "2")], [[None], ["2"]], id="one-id-in-two-turns"),
        pytest.param(
            [asks("a"), result("a", "1"), asks("a"), result("a", "2"), result("a", "3")],
            [["1"], ["2"]],
            id="each",
        ),
        pytest.param([asks("a"), asks("a"), result("a", "2"), in_place("a")], [[LOST_RESULT], ["2"]], id="mended"),
        pytest.param([asks("a"), asks("a"), result("a", "2"), result("a", "3")], [[None], ["2"]], id="not-mended"),
    ],
)
def test_results_answer_calls_before_them(messages: list[Message], expected: list[list[str | None]]) -> None:
    found = results_of(messages).values()
    assert [[None if one is None else one.content for one in results] for results in found] == expected


@given(st.lists(st.sampled_from([asks("a"), asks("a", "b"), result("a", "1"), result("b", "2"), in_place("a")])))
def test_lost_calls_are_found_alike_whether_or_not_the_history_continues_the_last_one(messages: list[Message]) -> None:
    continued = [lost_calls(messages[:count]) for count in range(len(messages) + 1)]
    for count, lost in enumerate(continued):
        open_calls = [results.count(None) for results in results_of(messages[:count]).values()]
        assert len(lost) == sum(open_calls)


@pytest.mark.parametrize(
    "messages", [[asks("a", "b"), result("a", "1")], [asks("a"), asks("a"), result("a", "2")], [asks("a", "a")]]
)
def test_what_stands_in_for_lost_results_leaves_none_open(messages: list[Message]) -> None:
    assert lost_calls(messages)
    assert lost_calls([*messages, *stand_ins(messages)]) == ()


def test_a_turn_stores_what_its_history_lacks_before_a_model_is_asked_and_only_once() -> None:
    history = (UserMessage(id=MessageId("u"), text="go"), asks("a", "b"), result("b", "2"))
    step = start(
        new_turn(TurnId("s.2"), SessionId("s"), grant=grant(), parent_id=history[-1].id, history=history),
        "still there?",
    )
    assert [(m.call_id, m.outcome, m.content) for m in step.messages if isinstance(m, ToolMessage)] == [
        ("a", Outcome.UNKNOWN, LOST_RESULT)
    ]
    (asked,) = (effect for effect in step.effects if isinstance(effect, CallModel))
    assert lost_calls(asked.request.messages) == ()
    failed = ModelFailureInput(round_id=asked.round_id, failure=ModelFailure(kind=FailureKind.REFUSED, message="boom"))
    over = advance(step.state, failed)
    again = advance(over.state, RetryTurn(grant=grant()))
    assert any(isinstance(effect, CallModel) for effect in again.effects)
    assert not any(isinstance(m, ToolMessage) for m in again.messages)


def user(id: str) -> UserMessage:
    return UserMessage(id=MessageId(id), text=id)


def says(text: str) -> AssistantMessage:
    return AssistantMessage(id=MessageId(f"says {text}"), text=text)


@for_each(
    ("messages", "places"),
    [
        ([user("1"), says("hi"), user("2")], []),
        ([user("1"), user("2"), user("3"), says("hi")], [1, 2]),
        ([user("1"), says(" "), user("2")], [2]),
        ([user("1"), asks("a"), result("a", "x"), user("2")], [3]),
        ([user("1"), asks("a"), result("a", "x"), says("so"), user("2")], []),
        ([says("hi"), user("1")], []),
    ],
)
def test_messages_after_no_reply_are_found(messages: list[Message], places: list[int]) -> None:
    assert sorted(missing_replies(messages)) == places


def test_a_turn_that_is_taken_up_stores_what_its_history_lacks() -> None:
    begun = start(new_turn(TurnId("s.2"), SessionId("s"), grant=grant()), "still there?")
    step = advance(replace(begun.state, history=(user("go"), asks("a"))), Recover(grant=grant()))
    assert [m.call_id for m in step.messages if isinstance(m, ToolMessage)] == ["a"]
    (asked,) = (effect for effect in step.effects if isinstance(effect, CallModel))
    assert lost_calls(asked.request.messages) == ()

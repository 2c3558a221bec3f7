"""Parts left out of a request: decided once, and the same in every later request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.files import FileRef
from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import (
    AssistantMessage,
    AttachedFile,
    Message,
    NoticeMessage,
    SummaryMessage,
    ToolMessage,
    UserMessage,
)
from chatops.domain.model import ModelTarget
from chatops.domain.tools import Outcome, ToolCall
from chatops.engine.transcript import fit_messages, input_budget, place_notes, start_at_summary, without_private

MODEL = ModelTarget(name="m", context_window=8_000)
SIZES = st.lists(
    st.tuples(st.integers(0, 4_000), st.lists(st.integers(0, 9_000), max_size=3), st.integers(0, 4_000)), max_size=12
)


def requests_of(turns: list[tuple[int, list[int], int]]) -> list[list[Message]]:
    """The messages of every request of a conversation: per turn a question, results and an answer of these sizes."""
    messages: list[Message] = []
    requests = []

    def id_() -> MessageId:
        return MessageId(f"m{len(messages)}")

    for asked, results, answered in turns:
        messages.append(UserMessage(id=id_(), text="q" * asked))
        requests.append(list(messages))
        if results:
            calls = tuple(ToolCall(id=CallId(f"{id_()}.{n}"), name="t", arguments="{}") for n in range(len(results)))
            messages.append(AssistantMessage(id=id_(), text="", calls=calls))
            for call, size in zip(calls, results, strict=True):
                messages.append(
                    ToolMessage(
                        id=id_(), call_id=call.id, tool="t", arguments="{}", outcome=Outcome.SUCCESS, content="r" * size
                    )
                )
            requests.append(list(messages))
        messages.append(AssistantMessage(id=id_(), text="a" * answered))
    return requests


def test_images_that_are_not_sent_are_not_counted() -> None:
    image = FileRef(path="plot.png", type="image/png")
    asked = [UserMessage(id=MessageId("m1"), text="look", files=(AttachedFile(ref=image, text=""),))]
    seen, named = (
        fit_messages(asked, system="", tools=(), model=ModelTarget(name="m", sees_images=sees)).tokens
        for sees in (True, False)
    )
    assert named < 100 < 1_000 < seen


@given(SIZES)
def test_each_request_begins_with_the_one_before_unless_something_gave_way(
    turns: list[tuple[int, list[int], int]],
) -> None:
    before: tuple[Message, ...] = ()
    elided = 0
    for messages in requests_of(turns):
        fitted = fit_messages(messages, system="s", tools=(), model=MODEL)
        assert len(fitted.messages) == len(messages)
        if not fitted.given_up:
            unchanged = sum(old == new for old, new in zip(before, fitted.messages, strict=False))
            # A result that was shortened is left out later without being given up a second time.
            assert unchanged == len(before) or fitted.elided == elided > 0
        assert fitted.elided == elided + len(fitted.given_up)
        before, elided = fitted.messages, fitted.elided


@given(SIZES)
def test_a_request_is_fitted_alike_whether_or_not_it_continues_the_last_one(
    turns: list[tuple[int, list[int], int]],
) -> None:
    requests = requests_of(turns)
    continued = [fit_messages(messages, system="s", tools=(), model=MODEL) for messages in requests]
    for messages, fitted in zip(requests, continued, strict=True):
        fit_messages((), system="another", tools=(), model=MODEL)
        assert fit_messages(messages, system="s", tools=(), model=MODEL) == fitted


@given(SIZES)
def test_only_results_give_way_and_only_for_want_of_room(turns: list[tuple[int, list[int], int]]) -> None:
    for messages in requests_of(turns):
        fitted = fit_messages(messages, system="s", tools=(), model=MODEL)
        changed = [new for old, new in zip(messages, fitted.messages, strict=True) if old != new]
        assert all(isinstance(message, ToolMessage) for message in changed)
        if fitted.tokens > input_budget(MODEL):
            assert all(len(m.content) <= 600 for m in fitted.messages if isinstance(m, ToolMessage))


def test_a_result_that_was_answered_is_left_out_before_one_that_was_not() -> None:
    messages = requests_of([(10, [12_000], 10), (10, [12_000], 10)])[-1]
    fitted = fit_messages(messages, system="s", tools=(), model=MODEL)
    old, new = (m for m in fitted.messages if isinstance(m, ToolMessage))
    assert old.content.startswith("[result of t left out")
    assert len(new.content) == 12_000


@given(SIZES)
def test_no_result_gets_larger_where_it_is_to_make_room(turns: list[tuple[int, list[int], int]]) -> None:
    for messages in requests_of(turns):
        fitted = fit_messages(messages, system="s", tools=(), model=MODEL)
        for message, sent in zip(messages, fitted.messages, strict=True):
            if isinstance(message, ToolMessage) and isinstance(sent, ToolMessage):
                assert len(sent.content) <= len(message.content)


def test_a_result_that_would_not_get_smaller_stays_as_it_is() -> None:
    messages = requests_of([(40_000, [420], 0)])[1]
    fitted = fit_messages(messages, system="s", tools=(), model=MODEL)
    assert (fitted.messages, fitted.elided, fitted.given_up) == (tuple(messages), 0, ())


@pytest.mark.parametrize("odd", ["private", "note", "summary"])
def test_what_comes_after_plain_messages_is_looked_at(odd: str) -> None:
    plain: tuple[Message, ...] = tuple(UserMessage(id=MessageId(f"s.{number}.m1"), text="hello") for number in range(3))
    assert without_private(start_at_summary(place_notes(plain))) == plain
    kinds: dict[str, Message] = {
        "private": UserMessage(id=MessageId("s.9.m1"), text="!!ls", private=True),
        "note": NoticeMessage(id=MessageId("s.9.m1"), text="Time has passed.", for_model=True),
        "summary": SummaryMessage(id=MessageId("s.9.m1"), text="They said hello.", replaces=3),
    }
    sent = without_private(start_at_summary(place_notes((*plain, kinds[odd]))))
    if odd == "private":
        assert sent == plain
    else:
        assert kinds[odd] not in sent
        assert sent != plain
    assert without_private(start_at_summary(place_notes(plain))) == plain

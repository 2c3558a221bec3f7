"""Cards of calls that were not run as written say why. Surplus calls share a card."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from chatops.domain.events import CallProposed, Event, Published, Status, ToolFinished
from chatops.domain.ids import CallId, MessageId, RoundId, SessionId
from chatops.domain.messages import AssistantMessage, Message, NoticeMessage, ToolMessage, UserMessage
from chatops.domain.model import ModelReply
from chatops.domain.tools import Outcome, RawCall, ResultFacts, ResultSource, ToolCall
from chatops.engine import feedback
from chatops.engine.inputs import ModelReplyInput
from chatops.engine.replay import replay
from chatops.engine.state import AwaitingModel
from chatops.tui.theme import PLAIN
from chatops.tui.transcript.blocks import Block, Put, ToolCardBlock
from chatops.tui.transcript.card import card_lines
from chatops.tui.transcript.projector import Projector
from tests.support.runs import Played, flow, step

ROUND = RoundId("s.1.1")
READ = ToolCall(id=CallId("s.1.1.1"), name="file_read", arguments="{}")

SURPLUS = ResultFacts(source=ResultSource.SURPLUS)


def opened(messages: Sequence[Message]) -> list[Block]:
    return Projector().load(replay(messages, None, session_id=SessionId("s"), role="", model=""))


def result(call: ToolCall, content: str) -> ToolMessage:
    return ToolMessage(
        id=MessageId(f"{call.id}.m"),
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        outcome=Outcome.INVALID,
        content=content,
    )


def headline(reason: str, content: str = "text for the model") -> str:
    said = AssistantMessage(id=MessageId("s.1.m2"), text="", calls=(READ,))
    ended = replace(result(READ, content), facts=ResultFacts(reason=reason))
    (card,) = opened([said, ended])
    assert isinstance(card, ToolCardBlock)
    return " ".join(" ".join(line.plain for line in card_lines(card, width=90, theme=PLAIN, expanded=False)).split())


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("there is no tool 'rm'", "not run: there is no tool 'rm'"),
        ("path: is missing.", "not run: path: is missing"),
        ("", "not run: invalid call"),
        ("\x1b[2J\u202eboo", "not run:"),
    ],
)
def test_a_call_that_could_not_run_says_why(reason: str, shown: str) -> None:
    assert shown in headline(reason)
    assert "\x1b" not in headline(reason)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (RawCall(name="rm", arguments="{}"), "there is no tool 'rm'"),
        (RawCall(name="", arguments="", problem="it was cut off."), "it was cut off."),
        (RawCall(name="look", arguments="{}", problem="it was cut off."), "it was cut off."),
    ],
)
def test_the_engine_gives_the_reason_as_a_fact(call: RawCall, reason: str) -> None:
    played = Played(flow(step("find"))).begin()
    assert played.turn is not None and isinstance(played.turn.phase, AwaitingModel)
    reply = ModelReply(text="", calls=(call,), finish_reason="stop")
    played._turn_took(ModelReplyInput(round_id=played.turn.phase.round_id, reply=reply))
    (ended,) = (one for one in played.messages if isinstance(one, ToolMessage))
    assert (ended.outcome, ended.facts.reason) == (Outcome.INVALID, reason)


def test_surplus_calls_share_a_card_live_and_stored() -> None:
    asked = tuple(ToolCall(id=CallId(f"{ROUND}.{n}"), name="file_read", arguments="{}") for n in range(1, 201))
    events: list[Event] = []
    for call in asked:
        events.append(CallProposed(id=call.id, parent_id=ROUND, tool=call.name, arguments=call.arguments))
        if int(call.id.rpartition(".")[2]) > 64:
            events.append(
                ToolFinished(
                    id=call.id,
                    parent_id=ROUND,
                    status=Status.ERROR,
                    tool=call.name,
                    arguments=call.arguments,
                    outcome=Outcome.INVALID,
                    content=feedback.TOO_MANY,
                    facts=SURPLUS,
                )
            )
    projector = Projector()
    projector.feed_all(Published(at=0, event=event) for event in events)
    stored: list[Message] = [AssistantMessage(id=MessageId("s.1.m2"), text="", calls=asked)]
    stored += [replace(result(call, feedback.TOO_MANY), facts=SURPLUS) for call in asked[64:]]
    assert list(projector.blocks.values()) == opened(stored)
    *single, rest = projector.blocks.values()
    assert len(single) == 64
    assert isinstance(rest, ToolCardBlock)
    assert (rest.tool, rest.outcome) == ("136 more calls", Outcome.INVALID)


def test_two_calls_with_one_id_keep_a_card_each() -> None:
    twice = [AssistantMessage(id=MessageId(f"s.{n}.m2"), text="", calls=(READ,)) for n in (1, 2)]
    blocks = opened([twice[0], twice[1], result(READ, "two")])
    assert len({block.id for block in blocks}) == 2
    assert [block.outcome for block in blocks if isinstance(block, ToolCardBlock)] == [None, Outcome.INVALID]


@pytest.mark.parametrize(
    ("path", "is_left_out"), [("b.txt", True), ("./b.txt", True), ("/work/b.txt", True), ("a.txt", False)]
)
def test_a_call_of_a_contained_turn_whose_file_was_not_chosen_says_so(path: str, is_left_out: bool) -> None:
    write = ToolCall(id=CallId("s.1.1.1"), name="file_write", arguments=f'{{"content":"x","path":"{path}"}}')
    messages: list[Message] = [
        UserMessage(id=MessageId("s.1.m1"), text="write it"),
        AssistantMessage(id=MessageId("s.1.m2"), text="", calls=(write,)),
        replace(result(write, "Written."), outcome=Outcome.SUCCESS),
        NoticeMessage(id=MessageId("s.1.m3"), text="Applied.", not_chosen=("b.txt",)),
    ]
    card, notice = opened(messages)
    assert isinstance(card, ToolCardBlock)
    line = card_lines(card, width=90, theme=PLAIN, expanded=False)[0].plain
    assert line.split()[0] == ("−" if is_left_out else "✓") and line.endswith("left out") is is_left_out
    *before, applied = replay(messages, None, session_id=SessionId("s"), role="", model="")
    watched = Projector()
    watched.load(before)
    assert (
        watched.feed(Published(at=0.0, event=applied))
        == [Put(block=block) for block in (card, notice)][not is_left_out :]
    )

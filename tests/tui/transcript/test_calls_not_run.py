"""Cards of calls that were not run as written say why. Surplus calls share a card."""

from dataclasses import replace

import pytest

from chatops.domain.events import CallProposed, Event, Published, Status, ToolFinished
from chatops.domain.ids import CallId, MessageId, RoundId
from chatops.domain.messages import AssistantMessage, Message, ToolMessage
from chatops.domain.tools import Outcome, Problem, ResultFacts, ResultSource, ToolCall
from chatops.engine import feedback
from chatops.tui.theme import PLAIN
from chatops.tui.transcript.blocks import ToolCardBlock
from chatops.tui.transcript.card import card_lines
from chatops.tui.transcript.projector import Projector
from chatops.tui.transcript.stored_blocks import stored_blocks

ROUND = RoundId("s.1.1")
READ = ToolCall(id=CallId("s.1.1.1"), name="file_read", arguments="{}")

SURPLUS = ResultFacts(source=ResultSource.SURPLUS)


def result(call: ToolCall, content: str) -> ToolMessage:
    return ToolMessage(
        id=MessageId(f"{call.id}.m"),
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        outcome=Outcome.INVALID,
        content=content,
    )


def headline(content: str) -> str:
    said = AssistantMessage(id=MessageId("s.1.m2"), text="", calls=(READ,))
    (card,) = stored_blocks([said, result(READ, content)], (), {})
    assert isinstance(card, ToolCardBlock)
    return " ".join(" ".join(line.plain for line in card_lines(card, width=90, theme=PLAIN, expanded=False)).split())


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (feedback.unknown_tool("rm", ["file_read"]), "not run: there is no tool 'rm'"),
        (
            feedback.invalid(READ, [Problem(path="path", message="is missing")], None),
            "not run: path: is missing",
        ),
        (
            f"file_read was not run: {'the reply hit the length limit inside this call'}. Write it again.",
            "not run: the reply hit the length limit inside this call",
        ),
        (feedback.nameless("it was cut off", ["file_read"]), "not run: it was cut off"),
        (feedback.REPEATED, "not run: you have made this very call"),
        ("", "not run: invalid call"),
        ("\x1b[2J\u202eboo", "not run:"),
    ],
)
def test_a_call_that_could_not_run_says_why(message: str, shown: str) -> None:
    assert shown in headline(message)
    assert "\x1b" not in headline(message)


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
    assert list(projector.blocks.values()) == list(stored_blocks(stored, (), {}))
    *single, rest = projector.blocks.values()
    assert len(single) == 64
    assert isinstance(rest, ToolCardBlock)
    assert (rest.tool, rest.outcome) == ("136 more calls", Outcome.INVALID)


def test_two_calls_with_one_id_keep_a_card_each() -> None:
    twice = [AssistantMessage(id=MessageId(f"s.{n}.m2"), text="", calls=(READ,)) for n in (1, 2)]
    blocks = list(stored_blocks([twice[0], twice[1], result(READ, "two")], (), {}))
    assert len({block.id for block in blocks}) == 2
    assert [block.outcome for block in blocks if isinstance(block, ToolCardBlock)] == [None, Outcome.INVALID]

"""Which result answers which call, and which message has no reply: one rule for everything that reads a history.

A history may come from an older crash, a damaged file or a fork in the middle of a round. Then a call may have no
result or several, and an id may have been given twice. What a model is sent, what is shown and what is exported agree.
"""

from collections.abc import Mapping, Sequence

from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from chatops.domain.tools import Outcome, ToolCall

LOST = "No result of this call was recorded. It may or may not have taken effect."
"""The content of a result that stands in the place of one that was lost."""
NO_REPLY = "[There was no reply.]"
"""What the model is told to have said where it has said nothing: some servers want speakers to take turns."""

Results = tuple[ToolMessage | None, ...]
"""The results of the calls of one message, in call order; None where there is none."""


def results_of(messages: Sequence[Message]) -> Mapping[int, Results]:
    """By place in `messages`, for each message that calls.

    A result answers a call of the latest message before it that has its id: the first such call that has no result
    yet. A second result, and one that nothing before it asked for, answer nothing. Only what stands in for a lost
    result may also answer an older message.
    """
    found: dict[int, list[ToolMessage | None]] = {}
    asked: dict[CallId, list[tuple[int, int]]] = {}
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and message.calls:
            found[place] = [None] * len(message.calls)
            for index, call in enumerate(message.calls):
                asked.setdefault(call.id, []).append((place, index))
        elif isinstance(message, ToolMessage) and (calls := asked.get(message.call_id)):
            latest = calls[-1][0]
            may_answer = calls if stands_in(message) else [one for one in calls if one[0] == latest]
            for at, index in may_answer:
                if found[at][index] is None:
                    found[at][index] = message
                    break
    return {place: tuple(results) for place, results in found.items()}


def lost_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls that have no result, in order."""
    lost = []
    for place, results in results_of(messages).items():
        message = messages[place]
        if isinstance(message, AssistantMessage):
            lost += [call for call, result in zip(message.calls, results, strict=True) if result is None]
    return tuple(lost)


def after_no_reply(messages: Sequence[Message]) -> frozenset[int]:
    """The places of messages of the user since whose last one the model has said nothing, called though it may have:
    a turn that failed or was stopped leaves it so."""
    places = []
    waiting = False
    for place, message in enumerate(messages):
        match message:
            case UserMessage():
                if waiting:
                    places.append(place)
                waiting = True
            case AssistantMessage(calls=(), text=text) if text.strip():
                waiting = False
            case _:
                pass
    return frozenset(places)


def stand_ins(messages: Sequence[Message]) -> tuple[ToolMessage, ...]:
    """Results for the calls that have none, to be shown as long as none are stored."""
    return tuple(stand_in(call, id=MessageId(f"{call.id}.lost")) for call in lost_calls(messages))


def stand_in(call: ToolCall, *, id: MessageId) -> ToolMessage:
    """A result for a call whose own was lost."""
    return ToolMessage(
        id=id, call_id=call.id, tool=call.name, arguments=call.arguments, outcome=Outcome.UNKNOWN, content=LOST
    )


def stands_in(message: ToolMessage) -> bool:
    """Whether it was written because the result of a call had been lost."""
    return message.outcome is Outcome.UNKNOWN and message.content == LOST

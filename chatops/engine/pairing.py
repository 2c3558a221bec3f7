"""Pairing of calls and results, and detection of messages without a reply: one rule for every reader of a history.

A history may come from an older crash, a damaged file or a fork in the middle of a round. Then a call may have no
result or several, and an id may occur twice. Model requests, the UI and exports use this module, so that they agree.
"""

from collections.abc import Mapping, Sequence

from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from chatops.domain.tools import Outcome, ResultFacts, ResultSource, ToolCall, Verdict

LOST_RESULT = "No result of this call was recorded. It may or may not have taken effect."
"""Content of the result that stands in for one that was not recorded."""
HELD_RESULT = (
    "Not run so far. This call is pending, and it can be neither approved nor run here, because nothing can be saved. "
    "Continue without its result."
)
"""Content of the result of a call that never started, in a copy of its session. Where the copy is kept, nothing can be
saved, so nobody can decide on the call there.
"""
NO_REPLY = "[There was no reply.]"
"""Text of a stand-in for a missing reply of the model. Some servers require that speakers alternate."""
RESULTS_RECEIVED = "[The results of the tool calls were received.]"
"""Text of the model between tool results and a user message. Some servers refuse one directly after the other."""

_last_complete: list[tuple[Message, ...]] = [()]
"""The last history without lost calls, as a cache: each request of a session continues the one before. If
sessions take turns it is of no use, but never wrong: a history is compared with it message by message.
"""

Results = tuple[ToolMessage | None, ...]
"""The results of the calls of one message, in call order; None for a call without a result."""


def results_of(messages: Sequence[Message]) -> Mapping[int, Results]:
    """Return the results for each message that has calls, by its index in `messages`.

    A result answers a call with its id in the latest message before it that has such a call: the first one that has no
    result yet. A second result answers nothing, nor does a result that no earlier message asked for. Only a stand-in
    for a lost result may also answer an older message: it is stored once the loss is noticed, when a later message may
    have used the id again.
    """
    results: dict[int, list[ToolMessage | None]] = {}
    places_by_id: dict[CallId, list[tuple[int, int]]] = {}
    """The calls with an id: the index of the message, and that of the call in it."""
    for message_index, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and message.calls:
            results[message_index] = [None] * len(message.calls)
            for call_index, call in enumerate(message.calls):
                places_by_id.setdefault(call.id, []).append((message_index, call_index))
        elif isinstance(message, ToolMessage) and (places := places_by_id.get(message.call_id)):
            if len(places) > 1 and not is_stand_in(message):
                latest_message = places[-1][0]
                places = [place for place in places if place[0] == latest_message]
            for of_message, call_index in places:
                if results[of_message][call_index] is None:
                    results[of_message][call_index] = message
                    break
    return {message_index: tuple(of_calls) for message_index, of_calls in results.items()}


def lost_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls without a result, in order.

    Once all calls of a history have one, no later message changes that. Only what follows is looked at then.
    """
    messages, known = tuple(messages), _last_complete[0]
    rest = messages[len(known) :] if messages[: len(known)] == known else messages
    lost = []
    for index, results in results_of(rest).items():
        message = rest[index]
        if isinstance(message, AssistantMessage):
            lost += [call for call, result in zip(message.calls, results, strict=True) if result is None]
    if not lost:
        _last_complete[0] = messages
    return tuple(lost)


def missing_replies(messages: Sequence[Message]) -> Mapping[int, str]:
    """Map the index of each user message that needs words of the model before it to these words.

    A message with calls alone is not a reply. A turn that failed or was stopped leaves such a gap. So does the
    reserved last request of a turn, in which a user message after the results asks for the answer.
    """
    words: dict[int, str] = {}
    waiting = called = False
    for index, message in enumerate(messages):
        match message:
            case UserMessage():
                if waiting:
                    words[index] = RESULTS_RECEIVED if called else NO_REPLY
                waiting, called = True, False
            case AssistantMessage(calls=(), text=text) if text.strip():
                waiting = False
            case AssistantMessage(calls=calls) if calls:
                called = True
            case _:
                pass
    return words


def stand_ins(messages: Sequence[Message]) -> tuple[ToolMessage, ...]:
    """Return results for the calls that have none, to be shown until some are stored."""
    return tuple(stand_in(call, id=MessageId(f"{call.id}.lost")) for call in lost_calls(messages))


def stand_in(call: ToolCall, *, id: MessageId) -> ToolMessage:
    """Return a result for a call whose own result was lost."""
    return ToolMessage(
        id=id,
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        outcome=Outcome.UNKNOWN,
        content=LOST_RESULT,
        facts=ResultFacts(source=ResultSource.LOST, reads_workspace=True),
    )


def is_stand_in(message: ToolMessage) -> bool:
    """Return True if `message` is a stand-in for a lost result."""
    return message.facts.source is ResultSource.LOST


def held_result(call: ToolCall) -> ToolMessage:
    """Return the result of a call that never started, for a copy in which it can be neither approved nor run."""
    return ToolMessage(
        id=MessageId(f"{call.id}.held"),
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        outcome=Outcome.INTERRUPTED,
        content=HELD_RESULT,
        verdict=Verdict.ASK,
        facts=ResultFacts(source=ResultSource.HELD),
    )

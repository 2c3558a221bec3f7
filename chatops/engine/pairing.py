"""Pairing of calls and results, and detection of messages without a reply: one rule for every reader of a history.

A history may come from an older crash, a damaged file or a fork in the middle of a round. Then a call may have no
result or several, and an id may occur twice. Model requests, the UI and exports use this module, so that they agree.
"""

from collections.abc import Mapping, Sequence

from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from chatops.domain.tools import Outcome, ResultFacts, ResultSource, ToolCall, Verdict

LOST_RESULT = "No result of this call was recorded. It may or may not have taken effect."
"""Content of a stand-in for a lost result."""
HELD_RESULT = (
    "Not run so far. This call is pending, and it can be neither approved nor run here, because nothing can be saved. "
    "Continue without its result."
)
"""Content of the result that a call which never started has in a copy that cannot be saved."""
NO_REPLY = "[There was no reply.]"
"""Text of a stand-in for a missing reply of the model. Some servers require that speakers alternate."""
RESULTS_RECEIVED = "[The results of the tool calls were received.]"
"""Text of the model between tool results and a user message. Some servers refuse one directly after the other."""

_last_complete: list[tuple[Message, ...]] = [()]
"""The last history without lost calls, as a cache: each request of a session continues the one before."""

Results = tuple[ToolMessage | None, ...]
"""The results of the calls of one message, in call order; None for a call without a result."""


def results_of(messages: Sequence[Message]) -> Mapping[int, Results]:
    """Return the results for each message that has calls, by its index in `messages`.

    A result answers a call with its id in the latest message before it that has such a call: the first one that has no
    result yet. A second result answers nothing, nor does a result that no earlier message asked for. Only a stand-in
    for a lost result may also answer an older message.
    """
    found: dict[int, list[ToolMessage | None]] = {}
    asked: dict[CallId, list[tuple[int, int]]] = {}
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and message.calls:
            found[place] = [None] * len(message.calls)
            for index, call in enumerate(message.calls):
                asked.setdefault(call.id, []).append((place, index))
        elif isinstance(message, ToolMessage) and (calls := asked.get(message.call_id)):
            if len(calls) > 1 and not is_stand_in(message):
                latest = calls[-1][0]
                calls = [call for call in calls if call[0] == latest]
            for at, index in calls:
                if found[at][index] is None:
                    found[at][index] = message
                    break
    return {place: tuple(results) for place, results in found.items()}


def lost_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls without a result, in order.

    Once all calls of a history have one, no later message changes that. Only what follows is looked at then.
    """
    messages, known = tuple(messages), _last_complete[0]
    rest = messages[len(known) :] if messages[: len(known)] == known else messages
    lost = []
    for place, results in results_of(rest).items():
        message = rest[place]
        if isinstance(message, AssistantMessage):
            lost += [call for call, result in zip(message.calls, results, strict=True) if result is None]
    if not lost:
        _last_complete[0] = messages
    return tuple(lost)


def missing_replies(messages: Sequence[Message]) -> Mapping[int, str]:
    """Map the index of each user message that needs words of the model before it to these words.

    A message with calls alone is not a reply. A turn that failed or was stopped leaves such a gap, and so does one that
    is asked to close.
    """
    places: dict[int, str] = {}
    waiting = called = False
    for place, message in enumerate(messages):
        match message:
            case UserMessage():
                if waiting:
                    places[place] = RESULTS_RECEIVED if called else NO_REPLY
                waiting, called = True, False
            case AssistantMessage(calls=(), text=text) if text.strip():
                waiting = False
            case AssistantMessage(calls=calls) if calls:
                called = True
            case _:
                pass
    return places


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

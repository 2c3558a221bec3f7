"""The end of a child turn as the result of the call that has delegated."""

from collections.abc import Sequence

from chatops.domain.events import TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import AssistantMessage, Message, NoticeMessage, Usage
from chatops.domain.tools import Outcome, ResultFacts, ToolResult
from chatops.domain.usage import total
from chatops.engine.delegation import spent_by
from chatops.engine.state import Finished, TurnState
from chatops.engine.view import answer_so_far, any_read_workspace, turn_status
from chatops.toolkit.output import cap

_MAX_ANSWER_CHARS = 16_000
"""Characters of an answer that the caller gets; head and tail are kept."""


@frozen_dataclass
class _End:
    """End of a child turn."""

    status: TurnStatus
    answer: str
    detail: str
    usage: Usage | None
    duration_ms: int = 0


def child_result(
    role: str, turn: TurnState | None, messages: Sequence[Message], *, caller: TurnState | None
) -> ToolResult:
    """Return the end of a child turn for the model of the `caller`. `turn` is None if only its messages are left.

    A notice for the child's model after its last reply, as on the changes that were applied, goes to the caller.
    """
    replies = [message for message in messages if isinstance(message, AssistantMessage)]
    rest = messages[messages.index(replies[-1]) + 1 :] if replies else ()
    end = _end_of_turn(turn, caller) if turn is not None else _end_by_messages(replies, rest)
    if end.status.has_answer:
        outcome, text = Outcome.SUCCESS, end.answer or f"[{role} gave no answer]"
    else:
        outcome = Outcome.INTERRUPTED if end.status is TurnStatus.CANCELLED else Outcome.FAILED
        so_far = f"\nSo far:\n{end.answer}" if end.answer else ""
        text = f"{role} did not finish: {end.detail or end.status.value}{so_far}"
    notices = (message for message in rest if isinstance(message, NoticeMessage) and message.for_model)
    text = "\n\n".join([text, *(f"[{message.to_model or message.text}]" for message in notices)])
    capped = cap(text, limit=_MAX_ANSWER_CHARS)
    return ToolResult(
        outcome=outcome,
        content=capped.text,
        truncated=capped.truncated,
        duration_ms=end.duration_ms,
        facts=ResultFacts(reads_workspace=any_read_workspace(messages), usage=end.usage),
    )


def _end_of_turn(turn: TurnState, caller: TurnState | None) -> _End:
    spent = spent_by(turn, caller)
    return _End(
        status=turn_status(turn),
        answer=answer_so_far(turn),
        detail=turn.phase.detail if isinstance(turn.phase, Finished) else "",
        usage=spent.usage,
        duration_ms=spent.duration_ms,
    )


def _end_by_messages(replies: Sequence[AssistantMessage], rest: Sequence[Message]) -> _End:
    """Return the end as the messages of the turn tell it; `rest` are those after its last reply."""
    ended = all(isinstance(message, NoticeMessage) for message in rest)
    answered = bool(replies) and ended and not replies[-1].incomplete
    return _End(
        status=TurnStatus.ANSWERED if answered else TurnStatus.FAILED,
        answer=next((reply.text for reply in reversed(replies) if reply.text.strip()), ""),
        detail="its turn ended without an answer",
        usage=total(*(reply.usage for reply in replies)),
    )

"""Blocks out of what is stored, and the pieces that events make in the same way."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from chatops.domain.endings import Ending, ending_of
from chatops.domain.events import Notice, PendingCall, TurnStatus
from chatops.domain.ids import CallId
from chatops.domain.messages import (
    AssistantMessage,
    Message,
    NoticeMessage,
    RoleSwitchMessage,
    Speaker,
    ToolMessage,
    UserMessage,
)
from chatops.domain.tools import Outcome
from chatops.engine import acceptance, feedback
from chatops.engine.pairing import Results, results_of
from chatops.tui.blocks.model import (
    AnswerBlock,
    Block,
    CardStatus,
    NoticeBlock,
    ReasoningBlock,
    RoleDividerBlock,
    ToolCardBlock,
    UserBlock,
)
from chatops.tui.blocks.steps import TurnHead, end_of_attempt, head_alone, laid_out, opening_of, refused_of

_REASONS = tuple(feedback.denied("\0", by_person=by_person).split("\0") for by_person in (True, False))
"""What stands before and after the reason for a denial."""


def stored_blocks(
    messages: Sequence[Message], pending: Sequence[PendingCall], heads: Mapping[str, TurnHead]
) -> Iterable[Block]:
    """The blocks of a conversation, each card with its result, its question, or neither.

    `heads`: the turns of the run of a workflow, if the conversation is one.
    """
    results = results_of(messages)
    asked = {one.call.id: one for one in pending}
    drawn: Counter[str] = Counter()
    turn, led, said = "", False, set[str]()
    for place, message in enumerate(messages):
        match message:
            case UserMessage() if turn_of(message) != turn:
                yield from _ended(turn, heads, said)
                turn, led, said = turn_of(message), message.by is Speaker.MACHINE, set()
                yield _opened(message, heads.get(turn))
            case UserMessage(by=Speaker.MACHINE):
                yield refused_of(message.id, message.text)
            case UserMessage():
                yield UserBlock(id=f"{turn}.user", text=message.text)
            case AssistantMessage():
                cards = _cards(message, results.get(place, ()), asked, drawn)
                yield from _said(message, cards, led=led)
            case ToolMessage():
                continue  # Drawn with the message that asked for it.
            case RoleSwitchMessage():
                yield divider_of(message)
            case NoticeMessage():
                said.add(message.text)
                yield notice_of(message)
            case _ as never:
                assert_never(never)
    yield from _ended(turn, heads, said)


def _opened(message: UserMessage, head: TurnHead | None) -> Block:
    """A person's message; in a run, the line at which an attempt begins."""
    turn = turn_of(message)
    if message.by is Speaker.PERSON:
        return UserBlock(id=f"{turn}.user", text=message.text)
    return opening_of(turn, head or head_alone(message.text), message.text)


def _ended(turn: str, heads: Mapping[str, TurnHead], said: set[str]) -> Iterator[Block]:
    """What stands under a turn of a run."""
    head = heads.get(turn)
    if head is None:
        return
    if head.status is not None and (end := end_of_attempt(turn, head, head.status, head.detail, frozenset(said))):
        yield end
    if head.after is not None:
        yield head.after


def _said(message: AssistantMessage, cards: Iterable[Block], *, led: bool) -> Iterable[Block]:
    if message.reasoning.strip():
        yield ReasoningBlock(id=f"{message.id}.reasoning", text=message.reasoning)
    if message.text.strip():
        text = laid_out(message.text) if led else message.text
        yield AnswerBlock(id=message.id, text=text, incomplete=message.incomplete)
    yield from cards


def _cards(
    message: AssistantMessage, results: Results, asked: Mapping[CallId, PendingCall], drawn: Counter[str]
) -> Iterator[Block]:
    surplus: list[CallId] = []
    for call, result in zip(message.calls, results, strict=True):
        if result is not None and is_surplus(result.outcome, result.content):
            surplus.append(call.id)
            continue
        drawn[call.id] += 1
        # Ids of stored calls repeat only where a store was damaged; those of blocks must not.
        card_id = call.id if drawn[call.id] == 1 else f"{call.id}#{drawn[call.id]}"
        card = ToolCardBlock(id=card_id, tool=call.name, arguments=call.arguments)
        if result is not None:
            yield settled_card(
                card_id,
                tool=result.tool,
                arguments=result.arguments,
                outcome=result.outcome,
                content=result.content.removeprefix(feedback.edited(result.arguments, "")),
                truncated=result.truncated,
                duration_ms=result.duration_ms,
                decided_by=result.decided_by,
            )
        elif (one := asked.get(call.id)) is not None:
            yield asked_card(card, one)
        else:
            yield card
    if surplus:
        yield surplus_card(surplus[0].rpartition(".")[0], len(surplus))


def is_surplus(outcome: Outcome | None, content: str) -> bool:
    """Whether a call was one of too many in its reply, which nobody has looked at: they share one card."""
    return outcome is Outcome.INVALID and content == feedback.TOO_MANY


def surplus_card(round_id: str, count: int) -> ToolCardBlock:
    """The card of `count` calls that were too many."""
    return settled_card(
        f"{round_id}.surplus",
        tool=f"{count} more call{'s' if count > 1 else ''}",
        arguments="",
        outcome=Outcome.INVALID,
        content=feedback.TOO_MANY,
        truncated=False,
        duration_ms=0,
        decided_by="",
    )


def asked_card(card: ToolCardBlock, pending: PendingCall) -> ToolCardBlock:
    """A card that waits for a person."""
    interruption = pending.interruption
    return replace(
        card,
        tool=pending.call.name,
        arguments=pending.facts.arguments,
        status=CardStatus.UNKNOWN_WAITING if pending.in_doubt else CardStatus.WAITING,
        why=pending.why,
        decided_by="",
        output=interruption.output if interruption is not None else "",
    )


def settled_card(
    card_id: str,
    *,
    tool: str,
    arguments: str,
    outcome: Outcome,
    content: str,
    truncated: bool,
    duration_ms: int,
    decided_by: str,
) -> ToolCardBlock:
    """A card with its result."""
    told = content.removesuffix(f"\n\n{acceptance.GUIDANCE}")
    ending = ending_of(tool, told)
    return ToolCardBlock(
        id=card_id,
        tool=tool,
        arguments=arguments,
        status=CardStatus.SETTLED,
        outcome=outcome,
        output=content,
        truncated=truncated,
        duration_ms=duration_ms,
        decided_by=decided_by,
        reason=ending.how if outcome is Outcome.FAILED else _reason(content, outcome),
        also=_also(told, outcome, ending),
    )


def _reason(content: str, outcome: Outcome) -> str:
    """Why it did not run. A person's reason is taken out of what the model is told; policy's is the text itself."""
    if outcome is Outcome.INTERRUPTED:
        return "stopped" if content == feedback.STOPPED else ""
    if outcome is Outcome.INVALID:
        return _what_is_wrong(content)
    if outcome is not Outcome.DENIED:
        return ""
    for before, after in _REASONS:
        if content.startswith(before) and content.endswith(after):
            return content[len(before) : len(content) - len(after)]
    return "" if content == feedback.denied("") else content


def _also(content: str, outcome: Outcome, ending: Ending) -> str:
    """What was stopped behind it, the one sentence that a failure is, or that a person has given this outcome."""
    if outcome is Outcome.SUCCESS and content.startswith(feedback.MARKED_DONE):
        return "marked as done"
    if outcome is Outcome.FAILED and not ending.how and "\n" not in content:
        return content
    if outcome not in (Outcome.SUCCESS, Outcome.FAILED):
        return ""
    return ", ".join(filter(None, (ending.stopped, ending.cause and f"likely cause: {ending.cause}")))


def _what_is_wrong(content: str) -> str:
    """The first thing that the model is told of, without what it is to do about it."""
    first, _, rest = content.partition("\n")
    listed = rest.partition("\n")[0].removeprefix("- ") if rest.startswith("- ") else ""
    said = (listed or first.rpartition("ot run: ")[2]).partition(". ")[0].rstrip(".")
    return said[:1].lower() + said[1:]


def divider_of(switch: RoleSwitchMessage) -> RoleDividerBlock:
    """The line of a role switch."""
    return RoleDividerBlock(
        id=switch.id,
        before=switch.before,
        after=switch.after,
        model=switch.model,
        added=switch.added,
        removed=switch.removed,
        suspended=switch.suspended,
    )


def turn_of(message: Message) -> str:
    """The turn a message belongs to."""
    return message.id.rpartition(".m")[0] or message.id


def end_of_turn(turn: str, status: TurnStatus, detail: str, advice: str, said: frozenset[str]) -> NoticeBlock | None:
    """The line under a turn that was stopped or ran into a limit, unless one of the notices `said` in it says why; a
    failure has a notice of its own."""
    match status:
        case TurnStatus.CANCELLED:
            return NoticeBlock(id=f"{turn}.end", text=detail or "Stopped.", advice=advice)
        case TurnStatus.LIMIT if detail not in said:
            return NoticeBlock(id=f"{turn}.end", text=detail or "A limit was reached.", advice=advice, level="warning")
        case _:
            return None


def notice_of(notice: Notice | NoticeMessage) -> NoticeBlock:
    """A notice, told or stored; both carry the same id."""
    return NoticeBlock(id=notice.id, text=notice.text, advice=notice.advice, level=notice.level)

"""Blocks made from stored messages, and the parts that live events share with them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from chatops.domain.endings import SO_FAR, EndedBy, Ending, without_ending
from chatops.domain.events import Notice, PendingCall, StepStarted, TurnStatus
from chatops.domain.ids import CallId, turn_of
from chatops.domain.messages import (
    AssistantMessage,
    Message,
    NoticeMessage,
    RoleSwitchMessage,
    Speaker,
    SummaryMessage,
    ToolMessage,
    UserMessage,
)
from chatops.domain.tools import (
    BUILT_IN_TOOLS,
    CONTAINED_APPLY,
    CallEnd,
    Outcome,
    ResultSource,
    changed_lines,
    tool_name,
)
from chatops.domain.wording import as_fields, plural
from chatops.engine import feedback
from chatops.engine.pairing import Results, is_held, results_of
from chatops.engine.workflow.state import (
    AttemptRecord,
    CheckingGate,
    RunFinished,
    RunningStep,
    RunResult,
    WorkflowState,
)
from chatops.tui.transcript.blocks import (
    AnswerBlock,
    Block,
    CardEnd,
    CardStatus,
    NoticeBlock,
    ReasoningBlock,
    StepBlock,
    ToolCardBlock,
    UserBlock,
)

_OURS = "[chatops] "
_LONGEST_ANSWER = 100_000
"""Characters. A longer answer is shown as it was written instead of as fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTurn:
    """A turn of a run: its step and attempt, how it ended, and what follows it."""

    title: str = ""
    """Empty for the turn of a gate, which is named by its own message."""
    status: TurnStatus | None = None
    """None while the turn is not over."""
    detail: str = ""
    noticed: bool = False
    """True if a notice of the turn gives `detail` already."""
    after: NoticeBlock | None = None


def run_turns_of(run: WorkflowState) -> dict[str, RunTurn]:
    """Return the head of every turn of a run, by turn id."""
    run_turns: dict[str, RunTurn] = {record.turn_id: _recorded(run, record) for record in run.attempts}
    phase = run.phase
    if isinstance(phase, RunningStep):
        run_turns[phase.turn_id] = RunTurn(title=_title(run, phase.step, phase.attempt))
    elif isinstance(phase, CheckingGate):
        run_turns[phase.turn_id] = RunTurn()
    for number in range(1, run.turns + 1):
        # A turn that was running when the run was cancelled is in no record.
        run_turns.setdefault(f"{run.session_id}.{number}", RunTurn(title=_title(run, len(run.outputs), 1)))
    if isinstance(phase, RunFinished) and run.turns:
        last = f"{run.session_id}.{run.turns}"
        run_turns[last] = replace(run_turns[last], after=run_end_block(run.session_id, phase.result, phase.detail))
    return run_turns


def run_turn_of(event: StepStarted) -> RunTurn:
    """Return the head of the turn with which an attempt starts."""
    return RunTurn(title=_named(event.step, event.name, event.attempt, event.attempts))


def unknown_run_turn(text: str) -> RunTurn:
    """Return the head of a turn whose run is not known here, as in a copy of its session."""
    return RunTurn() if text.startswith(_OURS) else RunTurn(title="Workflow step")


def step_block(turn: str, head: RunTurn, text: str) -> StepBlock:
    """Return the line that starts a turn. `text` is the message that opens it."""
    if head.title:
        return StepBlock(id=f"{turn}.user", title=head.title, text=text)
    return StepBlock(id=f"{turn}.user", title=text.removeprefix(_OURS))


def refused_answer_block(block_id: str, reason: str) -> NoticeBlock:
    """Return the notice for a refused answer, with what the model was told."""
    text = f"Answer not accepted. The model was told: {reason.removeprefix(_OURS)}"
    return NoticeBlock(id=block_id, text=text, level="warning")


def attempt_end_block(
    turn: str, head: RunTurn, status: TurnStatus, detail: str, *, noticed: bool
) -> NoticeBlock | None:
    """Return the line under an attempt that was not accepted; None if a notice gives the reason already."""
    match status:
        case TurnStatus.CANCELLED:
            return NoticeBlock(id=f"{turn}.end", text=detail or "Stopped.")
        case TurnStatus.FAILED | TurnStatus.LIMIT if head.title and not noticed:
            return NoticeBlock(id=f"{turn}.end", text=f"Attempt failed. {detail}".rstrip(), level="warning")
        case _:
            return None


def run_end_block(run_id: str, result: str, detail: str) -> NoticeBlock:
    """Return the line under a run."""
    advice = "/workflow show STEP shows the answer of a step."
    block = NoticeBlock(id=f"{run_id}.run", text=f"Run ended: {result}. {detail}".rstrip(), advice=advice)
    return replace(block, level="error") if result == RunResult.FAILED else block


def json_as_fields(text: str) -> str:
    """Return an answer that is one JSON value as a code block with a line per field, any other as it is."""
    if len(text) > _LONGEST_ANSWER or (fields := as_fields(text)) == text:
        return text
    # Longer than any in the text, so that nothing in it ends the block.
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`+", fields))])
    return f"{fence}\n{fields}\n{fence}"


def _recorded(run: WorkflowState, record: AttemptRecord) -> RunTurn:
    title = "" if record.gate else _title(run, record.step, record.attempt)
    return RunTurn(title=title, status=record.status, detail=record.detail, noticed=record.noticed)


def _title(run: WorkflowState, step: int, attempt: int) -> str:
    step = min(step, len(run.spec.steps) - 1)
    spec = run.spec.step(step)
    return _named(step, spec.name, attempt, spec.max_attempts)


def _named(step: int, name: str, attempt: int, attempts: int) -> str:
    of = f" of {attempts}" if attempt <= attempts else ""
    return f"Step {step + 1}: {name}" + (f", attempt {attempt}{of}" if attempt > 1 else "")


def stored_blocks(
    messages: Sequence[Message], pending: Sequence[PendingCall], run_turns: Mapping[str, RunTurn], *, role: str = ""
) -> Iterable[Block]:
    """Yield the blocks of a session, each card with its result, its pending request, or neither.

    `run_turns` are the turns of the workflow run if the session is one. `role` is the role in force now.
    """
    role = next((message.before for message in messages if isinstance(message, RoleSwitchMessage)), role)
    results = results_of(messages)
    asked = {call.call.id: call for call in pending}
    drawn: Counter[str] = Counter()
    turn, in_run, own = "", False, False
    divider: RoleSwitchMessage | None = None
    for place, message in enumerate(messages):
        if isinstance(message, UserMessage):
            own = message.by is Speaker.COMMAND
        match message:
            case UserMessage() if parent_turn(message) != turn:
                yield from _ended(turn, run_turns)
                turn, in_run = parent_turn(message), message.by is Speaker.MACHINE
                yield _opened(message, run_turns.get(turn), role)
            case UserMessage(by=Speaker.MACHINE):
                yield refused_answer_block(message.id, message.text)
            case UserMessage():
                files = tuple(file.ref for file in message.files)
                yield UserBlock(id=message.id, text=message.text, files=files, role=role)
            case AssistantMessage():
                cards = _cards(message, results.get(place, ()), asked, drawn, own=own)
                yield from _reply(message, cards, in_run=in_run)
            case ToolMessage():
                continue  # Drawn with the message that requested the call.
            case RoleSwitchMessage():
                role = message.after
                divider = role_divider(message, after=divider)
                following = next(iter(messages[place + 1 : place + 2]), None)
                if divider is not None and not isinstance(following, RoleSwitchMessage):
                    yield divider
                    divider = None
            case SummaryMessage():
                yield NoticeBlock(id=message.id, text=message.notice, advice="", level="info")
            case NoticeMessage():
                yield notice_block(message)
            case _ as never:
                assert_never(never)
    yield from _ended(turn, run_turns)


def _opened(message: UserMessage, head: RunTurn | None, role: str) -> Block:
    """Return the block of a user's message. In a run, it is the line that starts an attempt."""
    turn = parent_turn(message)
    if message.by is not Speaker.MACHINE:
        files = tuple(file.ref for file in message.files)
        return UserBlock(id=f"{turn}.user", text=message.text, files=files, role=role)
    return step_block(turn, head or unknown_run_turn(message.text), message.text)


def _ended(turn: str, run_turns: Mapping[str, RunTurn]) -> Iterator[Block]:
    """Yield the blocks at the end of a turn of a run."""
    head = run_turns.get(turn)
    if head is None:
        return
    if head.status is not None:
        end = attempt_end_block(turn, head, head.status, head.detail, noticed=head.noticed)
        if end is not None:
            yield end
    if head.after is not None:
        yield head.after


def _reply(message: AssistantMessage, cards: Iterable[Block], *, in_run: bool) -> Iterable[Block]:
    if message.reasoning.strip():
        yield ReasoningBlock(id=f"{message.id}.reasoning", text=message.reasoning)
    if message.text.strip():
        text = json_as_fields(message.text) if in_run else message.text
        yield AnswerBlock(id=message.id, text=text, incomplete=message.incomplete)
    yield from cards


def _cards(
    message: AssistantMessage,
    results: Results,
    asked: Mapping[CallId, PendingCall],
    drawn: Counter[str],
    *,
    own: bool,
) -> Iterator[Block]:
    surplus: list[CallId] = []
    for call, result in zip(message.calls, results, strict=True):
        if result is not None and result.facts.source is ResultSource.SURPLUS:
            surplus.append(call.id)
            continue
        drawn[call.id] += 1
        # Ids of stored calls repeat only if a store was damaged. Block ids must be unique.
        card_id = call.id if drawn[call.id] == 1 else f"{call.id}#{drawn[call.id]}"
        card = ToolCardBlock(id=card_id, tool=call.name, arguments=call.arguments, own=own)
        if result is not None and is_held(result):
            yield replace(card, status=CardStatus.HELD)
        elif result is not None:
            done = finished_card(card_id, _without_edit_note(result))
            yield replace(done, own=True) if own else done
        elif (waiting := asked.get(call.id)) is not None:
            yield pending_card(card, waiting)
        else:
            yield card
    if surplus:
        yield surplus_card(surplus[0].rpartition(".")[0], len(surplus))


def _without_edit_note(result: ToolMessage) -> ToolMessage:
    for ran in (True, False):
        note = feedback.edited(result.arguments, "", ran=ran)
        if result.content.startswith(note):
            return replace(result, content=result.content.removeprefix(note))
    return result


def surplus_card(round_id: str, count: int) -> ToolCardBlock:
    """Return the shared card of `count` calls that were too many for a reply and were not looked at."""
    end = CallEnd(tool=plural(count, "more call"), arguments="", outcome=Outcome.INVALID, content=feedback.TOO_MANY)
    return finished_card(f"{round_id}.surplus", end)


def pending_card(card: ToolCardBlock, pending: PendingCall) -> ToolCardBlock:
    """Return a card that waits for the user's decision."""
    interruption = pending.interruption
    added, removed = changed_lines(pending.facts.diff)
    return replace(
        card,
        tool=pending.call.name,
        arguments=pending.facts.arguments,
        paths=_changed_paths(pending),
        status=CardStatus.UNKNOWN_WAITING if pending.outcome_unknown else CardStatus.WAITING,
        asks_because=pending.why,
        decided_by="",
        output=interruption.output if interruption is not None else "",
        diff=pending.facts.diff,
        added=added,
        removed=removed,
    )


def _changed_paths(pending: PendingCall) -> tuple[str, ...]:
    if pending.call.name != CONTAINED_APPLY:
        return ()
    return tuple(map(pending.facts.relative, pending.facts.paths))


def finished_card(card_id: str, call: CallEnd) -> ToolCardBlock:
    """Return a card with its result."""
    facts = call.facts
    return ToolCardBlock(
        id=card_id,
        tool=call.tool,
        arguments=call.arguments,
        status=CardStatus.SETTLED,
        outcome=call.outcome,
        output="no output" if call.content == feedback.EMPTY_RESULT else call.content,
        truncated=call.truncated,
        duration_ms=call.duration_ms,
        decided_by=call.decided_by,
        end=_end_of(call),
        imported=facts.source is ResultSource.IMPORTED,
        diff=facts.diff,
        added=facts.added,
        removed=facts.removed,
        count=facts.count,
        files=facts.files,
    )


def _end_of(call: CallEnd) -> CardEnd:
    text = call.content.removesuffix(f"\n\n{feedback.GUIDANCE}")
    ending = call.facts.ending or Ending()
    failed = call.outcome is Outcome.FAILED
    ran = failed or call.outcome is Outcome.SUCCESS
    by_user = call.outcome is Outcome.SUCCESS and call.facts.source is ResultSource.USER
    return CardEnd(
        ended_because=ending.how if failed else _reason_not_run(call),
        timed_out=failed and ending.by is EndedBy.TIME_LIMIT,
        aftermath="marked as done" if by_user else ending.also if ran else "",
        error_line=text if failed and not ending.how and "\n" not in text else "",
        likely_cause=ending.cause if ran else "",
        tail=_output_of_program(text, call),
    )


def _output_of_program(content: str, call: CallEnd) -> str:
    """Return what a program has put out, or the text of another tool's failure; empty if neither is known."""
    outcome, facts = call.outcome, call.facts
    known = BUILT_IN_TOOLS.get(tool_name(call.tool))
    runs = facts.ending is not None or (known is not None and known.runs_anything)
    if outcome in (Outcome.INTERRUPTED, Outcome.UNKNOWN):
        return content.partition(SO_FAR)[2]
    if outcome is Outcome.SUCCESS and (not runs or content == feedback.EMPTY_RESULT):
        return ""
    if outcome not in (Outcome.SUCCESS, Outcome.FAILED) or (not runs and "\n" not in content):
        return ""
    return without_ending(content, facts.ending or Ending())


def _reason_not_run(call: CallEnd) -> str:
    """Return why a call did not run; empty if nothing is known. Policy's reason is the text for the model."""
    facts = call.facts
    match call.outcome:
        case Outcome.INTERRUPTED:
            return "stopped" if facts.source is ResultSource.STOPPED else ""
        case Outcome.INVALID:
            return facts.reason.rstrip(".")
        case Outcome.DENIED:
            return facts.reason if facts.source is ResultSource.USER else call.content
        case _:
            return ""


def role_divider(switch: RoleSwitchMessage, *, after: Block | None = None) -> RoleSwitchMessage | None:
    """Return the line of a role switch. If the block before it, `after`, is such a line, it replaces that one.

    None if both together lead back to the role and the tools before the first.
    """
    if not isinstance(after, RoleSwitchMessage):
        return switch
    divider = replace(
        switch,
        id=after.id,
        before=after.before,
        added=_net(after.added, switch.added, switch.removed, after.removed),
        removed=_net(after.removed, switch.removed, switch.added, after.added),
    )
    back = switch.before != switch.after == after.before and not (divider.added or divider.removed)
    return None if back and not divider.suspended else divider


def _net(earlier: Sequence[str], later: Sequence[str], undone: Sequence[str], undoes: Sequence[str]) -> tuple[str, ...]:
    """Return the tools of one side after two changes: those of the first that the second kept, and its own new ones."""
    kept = [name for name in earlier if name not in undone]
    return (*kept, *(name for name in later if name not in undoes and name not in kept))


def parent_turn(message: Message) -> str:
    """Return the id of a message's turn, or its own id if it belongs to none."""
    return turn_of(message.id) or message.id


def turn_end_block(turn: str, status: TurnStatus, detail: str, advice: str, *, noticed: bool) -> NoticeBlock | None:
    """Return the line under a turn that was stopped or reached a limit; None if a notice gives the reason already.

    A failed turn always has a notice.
    """
    match status:
        case TurnStatus.CANCELLED:
            return NoticeBlock(id=f"{turn}.end", text=detail or "Stopped.", advice=advice)
        case TurnStatus.LIMIT if not noticed:
            return NoticeBlock(id=f"{turn}.end", text=detail or "A limit was reached.", advice=advice, level="warning")
        case _:
            return None


def notice_block(notice: Notice | NoticeMessage) -> NoticeBlock:
    """Return the block of a live or stored notice. Both carry the same id."""
    return NoticeBlock(id=notice.id, text=notice.text, advice=notice.advice, level=notice.level)

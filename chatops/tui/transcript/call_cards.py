"""Makes the card of a tool call: while it waits for the user, and with its result."""

from dataclasses import replace

from chatops.domain.endings import EndedBy, Ending, without_ending
from chatops.domain.events import PendingCall
from chatops.domain.tools import (
    BUILT_IN_TOOLS,
    CONTAINED_APPLY,
    CallEnd,
    Outcome,
    ResultSource,
    changed_lines,
    tool_name,
)
from chatops.domain.wording import plural
from chatops.engine import feedback
from chatops.tui.transcript.blocks import CardEnd, CardStatus, ToolCardBlock

_NORMAL = Ending()


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


def finished_card(card_id: str, call: CallEnd, *, own: bool = False) -> ToolCardBlock:
    """Return a card with its result. `own`: the user has typed the command."""
    facts = call.facts
    return ToolCardBlock(
        id=card_id,
        tool=call.tool,
        arguments=call.arguments,
        status=CardStatus.SETTLED,
        outcome=call.outcome,
        output=call.content,
        truncated=call.truncated,
        duration_ms=call.duration_ms,
        decided_by=call.decided_by,
        own=own,
        end=_end_of(call),
        imported=facts.source is ResultSource.IMPORTED,
        diff=facts.diff,
        added=facts.added,
        removed=facts.removed,
        count=facts.count,
        files=facts.files,
    )


def _end_of(call: CallEnd) -> CardEnd:
    ending = call.facts.ending or _NORMAL
    failed = call.outcome is Outcome.FAILED
    ran = failed or call.outcome is Outcome.SUCCESS
    by_user = call.outcome is Outcome.SUCCESS and call.facts.source is ResultSource.USER
    return CardEnd(
        ended_because=ending.how if failed else _reason_not_run(call),
        timed_out=failed and ending.by is EndedBy.TIME_LIMIT,
        aftermath="marked as done" if by_user else ending.also if ran else "",
        error_line=call.content if failed and not ending.how and "\n" not in call.content else "",
        likely_cause=ending.cause if ran else "",
        tail=_output_of_program(call),
    )


def _output_of_program(call: CallEnd) -> str:
    """Return what a program has put out, or the text of another tool's failure; empty if neither is known."""
    content, facts = call.content, call.facts
    known = BUILT_IN_TOOLS.get(tool_name(call.tool))
    runs = facts.ending is not None or (known is not None and known.runs_anything)
    match call.outcome:
        case Outcome.INTERRUPTED | Outcome.UNKNOWN:
            return content[len(content) - facts.so_far :]
        case Outcome.SUCCESS | Outcome.FAILED if runs or (call.outcome is Outcome.FAILED and "\n" in content):
            return without_ending(content, facts.ending or _NORMAL)
        case _:
            return ""


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

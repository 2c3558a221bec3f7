"""The blocks of a transcript as values, the cards of calls, and the operations that change a list of blocks.

Blocks hold unsanitised text. The code that draws a block sanitises it. Ids are unique within a transcript.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Literal

from chatops.domain.endings import EndedBy, Ending, without_ending
from chatops.domain.events import PendingCall
from chatops.domain.files import FileRef
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import RoleSwitchMessage
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


class CardStatus(StrEnum):
    """The state of a tool call, as far as the user needs to know it."""

    UNSETTLED = "unsettled"
    """It has no result and no request yet: it is checked, queued or about to run."""
    WAITING = "waiting"
    """It waits for the user's approval."""
    HELD = "held"
    """It never started and is still pending, but this copy of the session cannot be saved: no decision is possible."""
    UNKNOWN_WAITING = "unknown_waiting"
    """It was started once, its outcome is unknown, and the user has to decide."""
    PERMITTED = "permitted"
    """It may run and waits for earlier calls of its round. `decided_by` says who or what allowed it."""
    RUNNING = "running"
    SETTLED = "settled"
    """It has its result, see `outcome`."""


@frozen_dataclass
class UserBlock:
    """A message by the user."""

    id: str
    text: str
    files: tuple[FileRef, ...] = ()
    role: str = ""
    """The role that answers it."""


@frozen_dataclass
class AnswerBlock:
    """Text of the model; `open` while more may come."""

    id: str
    text: str
    open: bool = False
    incomplete: bool = False
    """The answer was cut off."""


@frozen_dataclass
class ReasoningBlock:
    """Reasoning of the model; one line until it is opened."""

    id: str
    text: str
    open: bool = False


@frozen_dataclass
class EndDetails:
    """What a card says of the end of its call, besides the outcome."""

    ended_because: str = ""
    """The reason why it did not run, or what ended it. Empty if it ended by itself, or if nothing more is known."""
    timed_out: bool = False
    """True if its time limit ended it: then `ended_because` gives the time."""
    aftermath: str = ""
    """What was stopped afterwards, or "marked as done"."""
    error_line: str = ""
    """The failure, if it is a single sentence."""
    likely_cause: str = ""
    """The likely cause of a failure in the sandbox."""
    tail: str = ""
    """The part of the output to show in a folded card: its end if a program put it out, else its beginning."""


@frozen_dataclass
class ToolCardBlock:
    """A tool call and its result; one line until it is opened."""

    id: str
    tool: str
    arguments: str
    """As the model wrote them, or as they ran."""
    paths: tuple[str, ...] = ()
    """Changed files of a contained turn, relative to the workspace."""
    status: CardStatus = CardStatus.UNSETTLED
    outcome: Outcome | None = None
    output: str = ""
    """The result, or the last output while the call runs."""
    truncated: bool = False
    duration_ms: int = 0
    decided_by: str = ""
    own: bool = False
    """True for a command that the user has typed: it needed no approval by anyone else."""
    asks_because: str = ""
    """The reason why the call needs an approval."""
    end: EndDetails = EndDetails()
    imported: bool = False
    """True if the result is of an imported session: the call never ran here."""
    diff: str = ""
    """Unified diff of what it changes, or has changed. Its end may be missing."""
    added: int = 0
    """Number of lines that it adds to a file."""
    removed: int = 0
    count: int | None = None
    """Number of lines, entries or matches that it found."""
    files: tuple[FileRef, ...] = ()
    """Files that the call returned."""
    left_out: bool = False
    """True if the user did not choose to apply what it has changed in the copy of a contained turn."""
    started_at: float = field(default=0.0, compare=False)
    """Time of its start, as `time.time()` counts; 0 if it is not running or the time is not known."""


@frozen_dataclass
class NoticeBlock:
    """Something the user has to know, with the next step."""

    id: str
    text: str
    advice: str = ""
    level: Literal["info", "warning", "error"] = "info"
    retry: bool = False
    """True if R retries the turn that ended with this error."""


@frozen_dataclass
class StepBlock:
    """The line that starts a turn of a workflow run. Opened, it shows the message to the model."""

    id: str
    title: str
    text: str = ""


Block = UserBlock | AnswerBlock | ReasoningBlock | ToolCardBlock | RoleSwitchMessage | NoticeBlock | StepBlock


@frozen_dataclass
class Put:
    """Show `block` in place of the one that has its id. A new one stands at the end, or before the block `before`."""

    block: Block
    before: str = ""


@frozen_dataclass
class Extend:
    """Add `text` to an open answer or reasoning."""

    id: str
    text: str


@frozen_dataclass
class Remove:
    """Remove the block."""

    id: str


Op = Put | Extend | Remove


def changes(before: Mapping[str, Block], after: Sequence[Block]) -> list[Op]:
    """Return the operations that turn a transcript of `before` into `after`. Blocks in both keep their order."""
    wanted = {block.id for block in after}
    ops: list[Op] = [Remove(id=key) for key in before if key not in wanted]
    following = ""
    for block in reversed(after):
        if before.get(block.id) != block:
            ops.append(Put(block=block, before=following))
        following = block.id
    return ops


_UNKNOWN_ENDING = Ending()
"""For a call of which no program's ending is known."""


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
        end=_end_details(call),
        imported=facts.source is ResultSource.IMPORTED,
        diff=facts.diff,
        added=facts.added,
        removed=facts.removed,
        count=facts.count,
        files=facts.files,
    )


def _end_details(call: CallEnd) -> EndDetails:
    ending = call.facts.ending or _UNKNOWN_ENDING
    failed = call.outcome is Outcome.FAILED
    ran = failed or call.outcome is Outcome.SUCCESS
    by_user = call.outcome is Outcome.SUCCESS and call.facts.source is ResultSource.USER
    return EndDetails(
        ended_because=ending.in_words if failed else _reason_not_run(call),
        timed_out=failed and ending.by is EndedBy.TIME_LIMIT,
        aftermath="marked as done" if by_user else ending.further_words if ran else "",
        error_line=call.content if failed and not ending.in_words and "\n" not in call.content else "",
        likely_cause=ending.cause if ran else "",
        tail=_tail_of(call),
    )


def _tail_of(call: CallEnd) -> str:
    """Return `EndDetails.tail`: a program's output or another tool's failure; empty if neither is known."""
    content, facts = call.content, call.facts
    tool = BUILT_IN_TOOLS.get(tool_name(call.tool))
    is_program = facts.ending is not None or (tool is not None and tool.runs_anything)
    is_long_failure = call.outcome is Outcome.FAILED and "\n" in content
    match call.outcome:
        case Outcome.INTERRUPTED | Outcome.UNKNOWN:
            return content[len(content) - facts.so_far :]
        case Outcome.SUCCESS | Outcome.FAILED if is_program or is_long_failure:
            return without_ending(content, facts.ending or _UNKNOWN_ENDING)
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

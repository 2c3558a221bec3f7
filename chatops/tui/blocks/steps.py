"""What the turns of a workflow's run look like in a transcript, told and stored alike."""

import re
from dataclasses import dataclass, replace

from chatops.domain.events import StepStarted, TurnStatus
from chatops.domain.fields import as_fields
from chatops.engine.workflow.state import (
    AttemptRecord,
    CheckingGate,
    RunFinished,
    RunningStep,
    RunResult,
    WorkflowState,
)
from chatops.tui.blocks.model import NoticeBlock, StepBlock

_OURS = "[chatops] "
_LONGEST_ANSWER = 100_000
"""Characters of an answer that is laid out anew; a longer one is shown as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnHead:
    """A turn of a run: which step and attempt it is, how it ended, and what follows it."""

    title: str = ""
    """Empty for the turn of a gate, which is named by its own message."""
    status: TurnStatus | None = None
    """None while it is not over."""
    detail: str = ""
    after: NoticeBlock | None = None


def heads_of(run: WorkflowState) -> dict[str, TurnHead]:
    """Every turn of a run by its id."""
    heads: dict[str, TurnHead] = {one.turn_id: _recorded(run, one) for one in run.attempts}
    phase = run.phase
    if isinstance(phase, RunningStep):
        heads[phase.turn_id] = TurnHead(title=_title(run, phase.step, phase.attempt))
    elif isinstance(phase, CheckingGate):
        heads[phase.turn_id] = TurnHead()
    for number in range(1, run.turns + 1):
        # A turn that was under way when the run was cancelled is in no record.
        heads.setdefault(f"{run.session_id}.{number}", TurnHead(title=_title(run, len(run.outputs), 1)))
    if isinstance(phase, RunFinished) and run.turns:
        last = f"{run.session_id}.{run.turns}"
        heads[last] = replace(heads[last], after=end_of_run(run.session_id, phase.result, phase.detail))
    return heads


def head_of(event: StepStarted) -> TurnHead:
    """The turn that an attempt begins as."""
    return TurnHead(title=_named(event.step, event.name, event.attempt, event.attempts))


def head_alone(text: str) -> TurnHead:
    """A turn of a run that is not known here, as in a copy of its conversation."""
    return TurnHead() if text.startswith(_OURS) else TurnHead(title="A step of a workflow")


def opening_of(turn: str, head: TurnHead, text: str) -> StepBlock:
    """The line at which the turn begins; `text` is the message that opens it."""
    if head.title:
        return StepBlock(id=f"{turn}.user", title=head.title, text=text)
    return StepBlock(id=f"{turn}.user", title=text.removeprefix(_OURS))


def refused_of(block_id: str, told: str) -> NoticeBlock:
    """What the model was told about an answer that was not accepted."""
    text = f"The answer is not accepted. The model is told: {told.removeprefix(_OURS)}"
    return NoticeBlock(id=block_id, text=text, level="warning")


def end_of_attempt(
    turn: str, head: TurnHead, status: TurnStatus, detail: str, said: frozenset[str]
) -> NoticeBlock | None:
    """The line under an attempt that was not accepted, unless one of the notices `said` in its turn says why."""
    match status:
        case TurnStatus.CANCELLED:
            return NoticeBlock(id=f"{turn}.end", text=detail or "Stopped.")
        case TurnStatus.FAILED | TurnStatus.LIMIT if head.title and detail not in said:
            return NoticeBlock(id=f"{turn}.end", text=f"The attempt has failed. {detail}".rstrip(), level="warning")
        case _:
            return None


def end_of_run(run_id: str, result: str, detail: str) -> NoticeBlock:
    """The line under a run."""
    advice = "/workflow show STEP shows what a step gave."
    block = NoticeBlock(id=f"{run_id}.run", text=f"The run has ended: {result}. {detail}".rstrip(), advice=advice)
    return replace(block, level="error") if result == RunResult.FAILED else block


def laid_out(text: str) -> str:
    """An answer that is one JSON value with its fields as lines, in a code block; anything else as it is."""
    if len(text) > _LONGEST_ANSWER or (fields := as_fields(text)) == text:
        return text
    # Longer than any in the text, so that nothing in it ends the block.
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`+", fields))])
    return f"{fence}\n{fields}\n{fence}"


def _recorded(run: WorkflowState, record: AttemptRecord) -> TurnHead:
    title = "" if record.gate else _title(run, record.step, record.attempt)
    return TurnHead(title=title, status=record.status, detail=record.detail)


def _title(run: WorkflowState, step: int, attempt: int) -> str:
    step = min(step, len(run.spec.steps) - 1)
    spec = run.spec.step(step)
    return _named(step, spec.name, attempt, spec.max_attempts)


def _named(step: int, name: str, attempt: int, attempts: int) -> str:
    of = f" of {attempts}" if attempt <= attempts else ""
    return f"Step {step + 1}: {name}" + (f", attempt {attempt}{of}" if attempt > 1 else "")

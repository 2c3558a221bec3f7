"""Blocks for the turns of a workflow run, the same for live events and stored runs."""

import re
from dataclasses import dataclass, replace

from chatops.domain.events import TurnStatus
from chatops.domain.run_events import StepStarted
from chatops.domain.wording import as_fields
from chatops.engine.workflow.state import (
    AttemptRecord,
    CheckingGate,
    RunFinished,
    RunningStep,
    RunResult,
    WorkflowState,
)
from chatops.tui.transcript.blocks import NoticeBlock, StepBlock

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
    run_turns: dict[str, RunTurn] = {one.turn_id: _recorded(run, one) for one in run.attempts}
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

"""The state machine of a workflow run: `start_run` creates it, `advance_run` is the only way its state changes.

It asks for turns and processes how they ended. `advance_run` is total: an input that no longer applies (a turn that the
run does not wait for, a review of another attempt) gives the same state and nothing else. `TRANSITIONS` lists the
phases and the inputs that leave them. The diagram in `ARCHITECTURE.md` is generated from it.

A failure uses up one attempt. A turn stopped by the user does not: the run then waits for the user. Nor does a turn
that no model could answer: the run waits until the user continues it, and the same attempt is repeated.
"""

from dataclasses import replace

from chatops.domain.events import StepResult, TurnStatus
from chatops.domain.ids import SessionId
from chatops.domain.messages import ToolMessage
from chatops.domain.model import OTHER_MODEL_MAY_HELP, FailureKind
from chatops.domain.tools import Outcome
from chatops.engine.sequence import done_calls
from chatops.engine.state import Finished, TurnState
from chatops.engine.view import failure_of
from chatops.engine.workflow import progress, texts
from chatops.engine.workflow.effects import StopTurn, WorkflowStep
from chatops.engine.workflow.inputs import (
    Accept,
    CancelRun,
    ReviewStep,
    Skip,
    StopRun,
    TryAgain,
    TurnEndInput,
    WorkflowInput,
)
from chatops.engine.workflow.progress import RunDraft
from chatops.engine.workflow.state import (
    AwaitingReview,
    CheckingGate,
    ReviewReason,
    RunFinished,
    RunningStep,
    RunResult,
    StepOutput,
    WorkflowState,
)
from chatops.policy.workflow import OnFail, WorkflowSpec

TRANSITIONS: tuple[tuple[str, str, str], ...] = (
    ("[*]", "start_run", "running_step"),
    ("running_step", "TurnEndInput, answered, a gate has a command", "checking_gate"),
    ("running_step", "TurnEndInput, answered, another step follows", "running_step"),
    ("running_step", "TurnEndInput, failed, an attempt is left", "running_step"),
    ("running_step", "TurnEndInput, a review by the user is due", "awaiting_review"),
    ("running_step", "TurnEndInput, last step or failure", "run_finished"),
    ("running_step", "CancelRun", "run_finished"),
    ("checking_gate", "TurnEndInput, passed, another command follows", "checking_gate"),
    ("checking_gate", "TurnEndInput, passed or not, a step or an attempt follows", "running_step"),
    ("checking_gate", "TurnEndInput, a review by the user is due", "awaiting_review"),
    ("checking_gate", "TurnEndInput, last step or failure", "run_finished"),
    ("checking_gate", "CancelRun", "run_finished"),
    ("awaiting_review", "ReviewStep, accept, skip or try again", "running_step"),
    ("awaiting_review", "ReviewStep, stop, or nothing follows", "run_finished"),
    ("awaiting_review", "CancelRun", "run_finished"),
    ("run_finished", "no other input", "[*]"),
)
"""(phase, input, next phase). Source of the diagram in ARCHITECTURE.md; a test compares it with `advance_run`."""

_OVER = (TurnStatus.ANSWERED, TurnStatus.LIMIT, TurnStatus.FAILED, TurnStatus.CANCELLED)
_CANNOT_RUN = (Outcome.DENIED, Outcome.INVALID)
"""Outcomes of a gate's command that cannot run or is denied. No further attempt of the model changes that."""


def start_run(*, session_id: SessionId, spec: WorkflowSpec, query: str, role: str, model: str = "") -> WorkflowStep:
    """Start a run: ask for its first turn.

    Raises ValueError for a workflow without steps.
    """
    if not spec.steps:
        raise ValueError(f"workflow {spec.name} has no steps")
    # The phase is a placeholder: the first attempt replaces it before the step is made.
    blank = WorkflowState(
        session_id=session_id,
        seq=-1,
        spec=spec,
        query=query,
        role=role,
        model=model,
        phase=RunFinished(result=RunResult.CANCELLED, answer=""),
    )
    run = RunDraft(blank)
    progress.open_run(run)
    progress.attempt(run, 0, 1)
    return run.step()


def advance_run(state: WorkflowState, event: WorkflowInput) -> WorkflowStep:
    """Return the step that `event` causes in `state`. Pure and total."""
    run = RunDraft(state)
    match state.phase, event:
        case RunningStep() as phase, TurnEndInput() if phase.turn_id == event.turn_id and event.status in _OVER:
            _attempt_ended(run, phase, event)
        case CheckingGate() as phase, TurnEndInput() if phase.turn_id == event.turn_id and event.status in _OVER:
            _gate_ended(run, phase, event)
        case AwaitingReview() as phase, ReviewStep() if (phase.step, phase.attempt) == (event.step, event.attempt):
            _reviewed(run, phase, event)
        case (RunningStep() | CheckingGate()) as phase, CancelRun():
            progress.record_cancelled(run, phase)
            run.effects.append(StopTurn(turn_id=phase.turn_id))
            _cancelled(run, phase)
        case AwaitingReview() as phase, CancelRun():
            _cancelled(run, phase)
        case _:
            pass
    step = run.step()
    if isinstance(event, TurnEndInput) or step.state is state:
        return step
    return replace(step, word=event)


def _attempt_ended(run: RunDraft, phase: RunningStep, ended: TurnEndInput) -> None:
    progress.record(run, phase, ended)
    known = run.state.done
    run.state = replace(run.state, done=(*known, *(call for call in ended.done if call not in known)))
    match ended.status:
        case TurnStatus.ANSWERED:
            _check_gates(run, phase.step, phase.attempt, ended.answer, after=-1)
        case TurnStatus.CANCELLED:
            _stopped(run, phase)
        case _ if ended.unanswered is not None:
            why = texts.shortened(f"{ended.detail} {ended.advice}".strip())
            progress.wait(run, phase.step, phase.attempt, ReviewReason.UNANSWERED, detail=why)
        case _:
            detail = texts.shortened(ended.detail or "The turn ended without an answer.")
            told = texts.failed(run.state, detail)
            _failed(run, phase.step, phase.attempt, detail, told=told, hopeless=ended.over_budget)


def _gate_ended(run: RunDraft, phase: CheckingGate, ended: TurnEndInput) -> None:
    gate = progress.command_gate(run.state, phase)
    progress.record(run, phase, ended, gate=gate.name)
    if ended.status is TurnStatus.CANCELLED:
        _stopped(run, phase)
        return
    passed = ended.status is TurnStatus.ANSWERED
    detail = texts.shortened(ended.detail)
    progress.publish_gate(run, phase, gate, passed=passed, detail=detail)
    if passed:
        _check_gates(run, phase.step, phase.attempt, phase.answer, after=phase.gate)
        return
    hopeless = ended.outcome in _CANNOT_RUN
    head = f"Gate {gate.name} {'could not run' if hopeless else 'did not pass'}"
    told = texts.gate_failed(run.state, gate.name, gate.command, detail)
    _failed(run, phase.step, phase.attempt, f"{head}: {detail}", told=told, hopeless=hopeless)


def _check_gates(run: RunDraft, step: int, attempt: int, answer: str, *, after: int) -> None:
    """Run the next command gate after the gate `after`. Without one, ask for a review or accept the answer."""
    following = progress.next_command(run, step, after)
    if following is not None:
        progress.run_gate(run, step, attempt, following, answer)
    elif run.state.spec.step(step).review:
        progress.wait(run, step, attempt, ReviewReason.REVIEW, answer=answer)
    else:
        _accepted(run, step, attempt, answer)


def _accepted(run: RunDraft, step: int, attempt: int, answer: str) -> None:
    progress.close_attempt(run, step, attempt, StepResult.ACCEPTED, answer=answer)
    _go_on(run, StepOutput(step=step, text=answer))


def _failed(run: RunDraft, step: int, attempt: int, detail: str, *, told: str, hopeless: bool = False) -> None:
    """Record a failed attempt, and repeat the step if it has attempts left.

    An extra attempt that the user asked for is not repeated.
    """
    spec = run.state.spec.step(step)
    run.state = replace(run.state, told=told)
    if attempt < spec.max_attempts and not hopeless:
        progress.close_attempt(run, step, attempt, StepResult.REPEATED, detail=detail)
        progress.attempt(run, step, attempt + 1)
        return
    match spec.on_fail:
        case OnFail.ASK:
            progress.wait(run, step, attempt, ReviewReason.FAILED, detail=detail)
        case OnFail.GO_ON:
            progress.close_attempt(run, step, attempt, StepResult.FAILED, detail=detail)
            _go_on(run, StepOutput(step=step, text="", failed=True, detail=detail))
        case OnFail.STOP:
            progress.close_attempt(run, step, attempt, StepResult.FAILED, detail=detail)
            progress.finish(run, RunResult.FAILED, detail=f"Step {spec.name} failed: {detail}")


def _stopped(run: RunDraft, phase: RunningStep | CheckingGate) -> None:
    progress.wait(run, phase.step, phase.attempt, ReviewReason.STOPPED, detail="The user stopped it.")


def _reviewed(run: RunDraft, phase: AwaitingReview, event: ReviewStep) -> None:
    spec = run.state.spec.step(phase.step)
    match event.review:
        case Accept() if phase.reason is ReviewReason.REVIEW:
            _accepted(run, phase.step, phase.attempt, phase.answer)
        case TryAgain(told=told) if phase.reason is ReviewReason.UNANSWERED:
            if told.strip():
                run.state = replace(run.state, told=texts.refused(told, run.state.told))
            progress.attempt(run, phase.step, phase.attempt)
        case TryAgain(told=told):
            before = run.state.told if phase.reason is ReviewReason.FAILED else ""
            run.state = replace(run.state, told=texts.refused(told, before))
            progress.close_attempt(run, phase.step, phase.attempt, StepResult.REPEATED, detail=told or phase.detail)
            progress.attempt(run, phase.step, phase.attempt + 1)
        case Skip() if spec.may_skip and phase.reason is not ReviewReason.REVIEW:
            progress.close_attempt(run, phase.step, phase.attempt, StepResult.SKIPPED, detail=phase.detail)
            _go_on(run, StepOutput(step=phase.step, text="", skipped=True, detail=phase.detail))
        case StopRun():
            progress.close_attempt(run, phase.step, phase.attempt, StepResult.FAILED, detail=phase.detail)
            detail = f"The user stopped the run at step {spec.name}."
            if phase.reason is not ReviewReason.STOPPED:
                detail = f"{detail} {phase.detail}".strip()
            progress.finish(run, RunResult.FAILED, detail=detail)
        case _:
            pass


def _cancelled(run: RunDraft, phase: RunningStep | CheckingGate | AwaitingReview) -> None:
    progress.close_attempt(run, phase.step, phase.attempt, StepResult.CANCELLED)
    progress.finish(run, RunResult.CANCELLED, detail="Cancelled by the user.")


def _go_on(run: RunDraft, output: StepOutput) -> None:
    """Continue with the next step, or end the run with the last result."""
    run.state = replace(run.state, outputs=(*run.state.outputs, output), done=(), told="")
    if output.step + 1 < len(run.state.spec.steps):
        progress.attempt(run, output.step + 1, 1)
    elif any(progress.has_result(output) for output in run.state.outputs):
        progress.finish(run, RunResult.ANSWERED)
    else:
        progress.finish(run, RunResult.FAILED)


NOT_OF_THE_STEP = OTHER_MODEL_MAY_HELP - {FailureKind.BROKEN_STREAM}
"""Failure kinds that concern the server and not the request."""


def turn_ended(state: TurnState) -> TurnEndInput | None:
    """Return the TurnEndInput for a turn of the run; None while the turn is not over."""
    phase = state.phase
    if not isinstance(phase, Finished):
        return None
    return TurnEndInput(
        turn_id=state.turn_id,
        status=phase.result,
        answer=phase.answer,
        detail=phase.detail,
        advice=phase.advice,
        noticed=phase.noticed,
        rounds=state.counters.rounds,
        usage=state.usage,
        done=done_calls(state) if state.contract is not None else (),
        outcome=_outcome(state) if state.gate is not None else None,
        over_budget=state.spending.denied,
        unanswered=kind if (kind := failure_of(state)) in NOT_OF_THE_STEP else None,
    )


def _outcome(state: TurnState) -> Outcome | None:
    results = [m.outcome for m in state.messages if isinstance(m, ToolMessage)]
    return results[-1] if results else None

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
from chatops.engine.state import Finished, TurnState
from chatops.engine.step_limits import done_calls
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

_CANNOT_RUN = (Outcome.DENIED, Outcome.INVALID)
"""Outcomes of a gate's command that cannot run or is denied. No further attempt of the model changes that."""
SERVER_FAILURES = OTHER_MODEL_MAY_HELP - {FailureKind.BROKEN_STREAM}
"""Failure kinds that concern the server and not the request, so they use up no attempt."""


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
    run.events += progress.opening_events(run.state)
    progress.start_attempt(run, 0, 1)
    return run.step()


def advance_run(state: WorkflowState, run_input: WorkflowInput) -> WorkflowStep:
    """Return the step that `run_input` causes in `state`. Pure and total."""
    run = RunDraft(state)
    match state.phase, run_input:
        case _, TurnEndInput(status=TurnStatus.RUNNING | TurnStatus.PAUSED):
            pass
        case RunningStep() as phase, TurnEndInput() if phase.turn_id == run_input.turn_id:
            _handle_attempt_end(run, phase, run_input)
        case CheckingGate() as phase, TurnEndInput() if phase.turn_id == run_input.turn_id:
            _handle_gate_end(run, phase, run_input)
        case AwaitingReview() as phase, ReviewStep() if _is_of_attempt(run_input, phase):
            _apply_review(run, phase, run_input)
        case (RunningStep() | CheckingGate()) as phase, CancelRun():
            progress.record_cancelled(run, phase)
            run.effects.append(StopTurn(turn_id=phase.turn_id))
            _finish_cancelled(run, phase)
        case AwaitingReview() as phase, CancelRun():
            _finish_cancelled(run, phase)
        case _:
            pass
    step = run.step()
    if isinstance(run_input, TurnEndInput) or step.state is state:
        return step
    return replace(step, user_input=run_input)


def _handle_attempt_end(run: RunDraft, phase: RunningStep, ended: TurnEndInput) -> None:
    progress.record_turn(run, phase, ended)
    known = run.state.done
    run.state = replace(run.state, done=(*known, *(call for call in ended.done if call not in known)))
    match ended.status:
        case TurnStatus.ANSWERED:
            _check_gates(run, phase.step, phase.attempt, ended.answer, first=0)
        case TurnStatus.CANCELLED:
            _ask_after_stop(run, phase)
        case _ if ended.unanswered is not None:
            why = texts.cut_middle(f"{ended.detail} {ended.advice}".strip())
            progress.request_review(run, phase.step, phase.attempt, ReviewReason.UNANSWERED, detail=why)
        case _:
            detail = texts.cut_middle(ended.detail or "The turn ended without an answer.")
            for_model = texts.failure_text(run.state, detail)
            _fail_attempt(run, phase.step, phase.attempt, detail, for_model=for_model, hopeless=ended.over_budget)


def _handle_gate_end(run: RunDraft, phase: CheckingGate, ended: TurnEndInput) -> None:
    gate = progress.command_gate(run.state, phase)
    progress.record_turn(run, phase, ended, gate=gate.name)
    if ended.status is TurnStatus.CANCELLED:
        _ask_after_stop(run, phase)
        return
    passed = ended.status is TurnStatus.ANSWERED
    detail = texts.cut_middle(ended.detail)
    progress.publish_gate(run, phase, gate, passed=passed, detail=detail)
    if passed:
        _check_gates(run, phase.step, phase.attempt, phase.answer, first=phase.gate + 1)
        return
    hopeless = ended.outcome in _CANNOT_RUN
    head = f"Gate {gate.name} {'could not run' if hopeless else 'did not pass'}"
    for_model = texts.gate_failure_text(run.state, gate, detail)
    _fail_attempt(run, phase.step, phase.attempt, f"{head}: {detail}", for_model=for_model, hopeless=hopeless)


def _check_gates(run: RunDraft, step: int, attempt: int, answer: str, *, first: int) -> None:
    """Run the next command gate from index `first` on. Without one, ask for a review or accept the answer."""
    gate = progress.next_command_gate(run, step, first)
    if gate is not None:
        progress.start_gate_turn(run, step, attempt, gate, answer)
    elif run.state.spec.step(step).review:
        progress.request_review(run, step, attempt, ReviewReason.REVIEW, answer=answer)
    else:
        _accept_answer(run, step, attempt, answer)


def _accept_answer(run: RunDraft, step: int, attempt: int, answer: str) -> None:
    progress.close_attempt(run, step, attempt, StepResult.ACCEPTED, answer=answer)
    _continue_run(run, StepOutput(step=step, text=answer))


def _fail_attempt(run: RunDraft, step: int, attempt: int, detail: str, *, for_model: str, hopeless: bool) -> None:
    """Record a failed attempt, and repeat the step if it has attempts left, unless that would be `hopeless`.

    `detail` says for the user why it failed, and `for_model` says it in the next attempt. An extra attempt that the
    user asked for has a number above `max_attempts`, so it is not repeated.
    """
    spec = run.state.spec.step(step)
    run.state = replace(run.state, told=for_model)
    if attempt < spec.max_attempts and not hopeless:
        progress.close_attempt(run, step, attempt, StepResult.REPEATED, detail=detail)
        progress.start_attempt(run, step, attempt + 1)
        return
    match spec.on_fail:
        case OnFail.ASK:
            progress.request_review(run, step, attempt, ReviewReason.FAILED, detail=detail)
        case OnFail.GO_ON:
            progress.close_attempt(run, step, attempt, StepResult.FAILED, detail=detail)
            _continue_run(run, StepOutput(step=step, text="", failed=True, detail=detail))
        case OnFail.STOP:
            progress.close_attempt(run, step, attempt, StepResult.FAILED, detail=detail)
            progress.finish_run(run, RunResult.FAILED, detail=f"Step {spec.name} failed: {detail}")


def _ask_after_stop(run: RunDraft, phase: RunningStep | CheckingGate) -> None:
    progress.request_review(run, phase.step, phase.attempt, ReviewReason.STOPPED, detail="The user stopped it.")


def _is_of_attempt(review: ReviewStep, phase: AwaitingReview) -> bool:
    return (phase.step, phase.attempt) == (review.step, review.attempt)


def _apply_review(run: RunDraft, phase: AwaitingReview, review_input: ReviewStep) -> None:
    spec = run.state.spec.step(phase.step)
    match review_input.review:
        case Accept() if phase.reason is ReviewReason.REVIEW:
            _accept_answer(run, phase.step, phase.attempt, phase.answer)
        case TryAgain(told=text) if phase.reason is ReviewReason.UNANSWERED:
            # No model has seen the attempt, so it keeps its number.
            if text.strip():
                run.state = replace(run.state, told=texts.review_text(text, run.state.told))
            progress.start_attempt(run, phase.step, phase.attempt)
        case TryAgain(told=text):
            before = run.state.told if phase.reason is ReviewReason.FAILED else ""
            run.state = replace(run.state, told=texts.review_text(text, before))
            progress.close_attempt(run, phase.step, phase.attempt, StepResult.REPEATED, detail=text or phase.detail)
            progress.start_attempt(run, phase.step, phase.attempt + 1)
        case Skip() if spec.may_skip and phase.reason is not ReviewReason.REVIEW:
            progress.close_attempt(run, phase.step, phase.attempt, StepResult.SKIPPED, detail=phase.detail)
            _continue_run(run, StepOutput(step=phase.step, text="", skipped=True, detail=phase.detail))
        case StopRun():
            progress.close_attempt(run, phase.step, phase.attempt, StepResult.FAILED, detail=phase.detail)
            detail = f"The user stopped the run at step {spec.name}."
            if phase.reason is not ReviewReason.STOPPED:
                detail = f"{detail} {phase.detail}".strip()
            progress.finish_run(run, RunResult.FAILED, detail=detail)
        case _:
            pass


def _finish_cancelled(run: RunDraft, phase: RunningStep | CheckingGate | AwaitingReview) -> None:
    progress.close_attempt(run, phase.step, phase.attempt, StepResult.CANCELLED)
    progress.finish_run(run, RunResult.CANCELLED, detail="Cancelled by the user.")


def _continue_run(run: RunDraft, output: StepOutput) -> None:
    """Continue with the next step, or end the run with the last result."""
    # The next step may repeat the calls of this one, and is not told why attempts of this one failed.
    run.state = replace(run.state, outputs=(*run.state.outputs, output), done=(), told="")
    if output.step + 1 < len(run.state.spec.steps):
        progress.start_attempt(run, output.step + 1, 1)
    elif any(progress.has_result(output) for output in run.state.outputs):
        progress.finish_run(run, RunResult.ANSWERED)
    else:
        progress.finish_run(run, RunResult.FAILED)


def turn_end_input(state: TurnState) -> TurnEndInput | None:
    """Return the input that reports the end of a turn of the run; None while the turn is not over."""
    phase = state.phase
    if not isinstance(phase, Finished):
        return None
    outcomes = [message.outcome for message in state.messages if isinstance(message, ToolMessage)]
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
        outcome=next(reversed(outcomes), None) if state.gate is not None else None,
        over_budget=state.spending.denied,
        unanswered=kind if (kind := failure_of(state)) in SERVER_FAILURES else None,
    )

"""The JSON object that `--output-format json` prints of a workflow run, built from the run and its turns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.errors import ChatopsError
from chatops.domain.events import PendingCall, TurnStatus
from chatops.domain.usage import Usage, total
from chatops.engine.state import TurnState
from chatops.engine.unanswered import failure_of
from chatops.engine.view import pending_calls
from chatops.engine.workflow.progress import failed_steps
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
from chatops.headless.report import CallReport, calls_json, error_json, pending_json, report, usage_json


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One step of the workflow."""

    name: str
    status: str
    """``pending`` (not started), ``running``, ``paused`` (a call is pending), ``review`` (the user is asked),
    ``answered``, ``failed``, ``skipped`` or ``cancelled``.
    """
    attempts: int = 0
    """Attempts started so far."""
    iterations: int = 0
    """Model calls of all attempts."""
    output: str = ""
    """The accepted result, as the run stores it."""
    has_schema: bool = False
    detail: str = ""
    """Why there is no result, or why the last attempt was not accepted."""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """State of a run, for scripts."""

    session_id: str
    workflow: str
    query: str
    role: str
    status: str
    """``answered``, ``paused`` (for approval or review), ``limit``, ``failed``, ``cancelled`` or ``running``."""
    answer: str
    steps: tuple[StepReport, ...]
    calls: tuple[CallReport, ...]
    usage: Usage | None
    files: tuple[str, ...]
    pending: tuple[PendingCall, ...]
    review: AwaitingReview | None
    failed_steps: tuple[str, ...] = ()
    """Names of the steps without a result: failed, or skipped by the user."""
    reason: str = ""
    """Why there is no answer, as one word; empty if there is one, or if the run is paused or continues."""
    detail: str = ""
    advice: str = ""


def run_report(
    run: WorkflowState, turns: Sequence[TurnState], *, workspace: str = "", trouble: ChatopsError | None = None
) -> RunReport:
    """Report a run and its turns as they are stored.

    `trouble` is the error that keeps the run from continuing.
    """
    told = [report(turn, workspace=workspace) for turn in turns]
    phase = run.phase
    present = _present(run, turns)
    pending = pending_calls(present) if present is not None else ()
    return RunReport(
        session_id=run.session_id,
        workflow=run.spec.name,
        query=run.query,
        role=run.role,
        status=_status(run, paused=bool(pending), trouble=trouble),
        answer=phase.answer if isinstance(phase, RunFinished) else "",
        steps=tuple(_step(run, index, turns, paused=bool(pending)) for index in range(len(run.spec.steps))),
        calls=tuple(call for one in told for call in one.calls),
        usage=total(*(turn.usage for turn in turns)),
        files=tuple(dict.fromkeys(file for one in told for file in one.files)),
        pending=pending,
        review=phase if isinstance(phase, AwaitingReview) else None,
        failed_steps=failed_steps(run),
        reason=_reason(run, turns, trouble),
        detail=_detail(run, trouble),
        advice=trouble.advice if trouble is not None else "",
    )


def run_json(value: RunReport) -> dict[str, JsonValue]:
    """Return the documented object. Every key except ``error`` is always present; values may be null."""
    return {
        "session_id": value.session_id,
        "workflow": value.workflow,
        "query": value.query,
        "role": value.role,
        "status": value.status,
        "answer": value.answer,
        "detail": value.detail,
        "steps": [
            {
                "name": one.name,
                "status": one.status,
                "attempts": one.attempts,
                "iterations": one.iterations,
                "output": output_value(one) if one.status == TurnStatus.ANSWERED else None,
                "detail": one.detail,
                "usage": usage_json(one.usage),
            }
            for one in value.steps
        ],
        "failed_steps": list(value.failed_steps),
        "calls": calls_json(value.calls),
        "usage": usage_json(value.usage),
        "files": list(value.files),
        "pending": [pending_json(one) for one in value.pending],
        "review": None if value.review is None else _review_json(value, value.review),
        **error_json(value.reason, detail=value.detail, advice=value.advice),
    }


def output_value(step: StepReport) -> JsonValue:
    """Return a step's result as the value that it encodes: with a schema always, otherwise an object or list."""
    if not step.has_schema and step.output[:1] not in ("{", "["):
        return step.output
    return json_or_text(step.output)


def _review_json(value: RunReport, review: AwaitingReview) -> dict[str, JsonValue]:
    return {
        "step": value.steps[review.step].name,
        "attempt": review.attempt,
        "reason": review.reason.value,
        "answer": review.answer,
        "detail": review.detail,
    }


def _status(run: WorkflowState, *, paused: bool, trouble: ChatopsError | None) -> str:
    match run.phase:
        case RunFinished(result=RunResult.FAILED):
            last = run.attempts[-1].status if run.attempts else TurnStatus.FAILED
            return (TurnStatus.LIMIT if last is TurnStatus.LIMIT else TurnStatus.FAILED).value
        case RunFinished(result=result):
            return result.value
        case AwaitingReview(reason=ReviewReason.UNANSWERED):
            return TurnStatus.FAILED.value
        case AwaitingReview():
            return TurnStatus.PAUSED.value
        case RunningStep() | CheckingGate():
            if paused:
                return TurnStatus.PAUSED.value
            return (TurnStatus.FAILED if trouble is not None else TurnStatus.RUNNING).value
        case never:
            assert_never(never)


def _detail(run: WorkflowState, trouble: ChatopsError | None) -> str:
    """Return why the run is over, or why it does not continue."""
    match run.phase:
        case RunFinished(detail=detail) | AwaitingReview(reason=ReviewReason.UNANSWERED, detail=detail):
            return detail
        case _:
            return str(trouble or "")


def _reason(run: WorkflowState, turns: Sequence[TurnState], trouble: ChatopsError | None) -> str:
    match run.phase:
        case RunFinished(result=RunResult.ANSWERED):
            return ""
        case RunFinished(result=RunResult.CANCELLED):
            return "cancelled"
        case RunFinished():
            return "limit" if run.attempts and run.attempts[-1].status is TurnStatus.LIMIT else "step_failed"
        case AwaitingReview(reason=ReviewReason.UNANSWERED):
            failure = failure_of(turns[-1]) if turns else None
            return failure.value if failure is not None else ReviewReason.UNANSWERED.value
        case AwaitingReview():
            return ""
        case _:
            return "not_going_on" if trouble is not None else ""


def _present(run: WorkflowState, turns: Sequence[TurnState]) -> TurnState | None:
    """Return the turn that the run waits for, if it was started and the run has not recorded its end."""
    phase = run.phase
    if not isinstance(phase, RunningStep | CheckingGate):
        return None
    return next((turn for turn in turns if turn.turn_id == phase.turn_id), None)


def _step(run: WorkflowState, index: int, turns: Sequence[TurnState], *, paused: bool) -> StepReport:
    phase = run.phase
    made = [one for one in run.attempts if one.step == index]
    ids = {one.turn_id for one in made}
    attempts = [one.attempt for one in made]
    if not isinstance(phase, RunFinished) and phase.step == index:
        attempts.append(phase.attempt)
        ids.update({phase.turn_id} if isinstance(phase, RunningStep | CheckingGate) else ())
    mine = [turn for turn in turns if turn.turn_id in ids]
    known = StepReport(
        name=run.spec.step(index).name,
        status="pending",
        attempts=max(attempts, default=0),
        iterations=sum(turn.counters.requests for turn in mine),
        has_schema=bool(run.spec.step(index).output_schema),
        detail=made[-1].detail if made else "",
        usage=total(*(turn.usage for turn in mine)),
    )
    output = next((one for one in run.outputs if one.step == index), None)
    if output is not None:
        return _over(known, output)
    match phase:
        case RunFinished(result=result) if index == len(run.outputs):
            # The run ended at this step, which has no result.
            return replace(known, status=result.value)
        case AwaitingReview(step=step, detail=detail) if step == index:
            return replace(known, status="review", detail=detail)
        case RunningStep(step=step) | CheckingGate(step=step) if step == index:
            return replace(known, status=TurnStatus.PAUSED.value if paused else TurnStatus.RUNNING.value)
        case _:
            return known


def _over(known: StepReport, output: StepOutput) -> StepReport:
    if output.skipped:
        return replace(known, status="skipped", detail=output.detail)
    if output.failed:
        return replace(known, status=TurnStatus.FAILED.value, detail=output.detail)
    return replace(known, status=TurnStatus.ANSWERED.value, output=output.text, detail="")

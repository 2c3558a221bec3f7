"""Results of turns and workflow runs for scripts, built from the stored state, and their documented JSON form."""

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.errors import ChatopsError, unsaved_sentence
from chatops.domain.events import PendingCall, TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import MessageId
from chatops.domain.messages import AssistantMessage, ToolMessage, Usage, total
from chatops.domain.tools import Outcome, Verdict
from chatops.engine.pairing import is_stand_in
from chatops.engine.state import (
    AwaitingDecision,
    CallState,
    Deferred,
    Finished,
    InRound,
    Inspecting,
    Permitted,
    Rechecking,
    Reconciling,
    RoundRecord,
    Settled,
    Started,
    Stopping,
    TurnState,
)
from chatops.engine.view import answer_so_far, failure_of, pending_calls, result_message, settled_so_far, turn_status
from chatops.engine.workflow.progress import failed_steps
from chatops.engine.workflow.state import (
    AwaitingReview,
    CheckingGate,
    ReviewReason,
    RunFinished,
    RunningStep,
    RunResult,
    WorkflowState,
)
from chatops.engine.workflow.view import StepView, present_turn, run_view
from chatops.headless.json_values import fields_json
from chatops.headless.pending import pending_json

NOT_SAVED = "not_saved"
"""`reason` of a turn that failed because nothing could be stored."""


@frozen_dataclass
class CallReport:
    """One call of the turn."""

    id: str
    tool: str
    arguments: str
    verdict: Verdict | None = None
    """None until the call was judged."""
    decided_by: str | None = None
    outcome: Outcome | None = None
    """None until the call is over."""
    duration_ms: int = 0


@frozen_dataclass
class Report:
    """Result of a turn or of a workflow run."""

    session_id: str
    role: str
    status: TurnStatus
    """A run that waits for a review is paused, too, but has failed if no model answered."""
    answer: str
    calls: tuple[CallReport, ...]
    usage: Usage | None
    files: tuple[str, ...]
    pending: tuple[PendingCall, ...]
    reason: str = ""
    """Reason that there is no answer, as one word; empty if there is one, or still may be one."""
    detail: str = ""
    advice: str = ""


@frozen_dataclass
class TurnReport(Report):
    """Result of a turn, which is never ``running``."""

    turn_id: str
    model: str
    rounds: tuple[RoundRecord, ...]


@frozen_dataclass
class RunReport(Report):
    """State of a workflow run."""

    workflow: str
    query: str
    steps: tuple[StepView, ...]
    reasonings: tuple[str, ...]
    """For each step the reason that the model gives for its answer."""
    review: AwaitingReview | None
    failed_steps: tuple[str, ...] = ()
    """Names of the steps without a result: failed, or skipped by the user."""


def report(state: TurnState, *, workspace: str = "", blocked_by: ChatopsError | None = None) -> TurnReport:
    """Report a turn that is paused or over. A turn that was left running counts as cancelled.

    `blocked_by` is the storage error that blocks the next step: a turn that is not over has failed then.
    """
    status = turn_status(state)
    calls = _call_reports(state)
    detail, advice = "", ""
    if isinstance(state.phase, Finished):
        detail, advice = state.phase.detail, state.phase.advice
    elif blocked_by is not None:
        status, detail, advice = TurnStatus.FAILED, unsaved_sentence(blocked_by), blocked_by.advice
    elif status is TurnStatus.RUNNING:
        status = TurnStatus.CANCELLED
    return TurnReport(
        session_id=state.session_id,
        turn_id=state.turn_id,
        role=state.grant.role,
        model=state.rounds[-1].model if state.rounds else state.grant.models[0].name,
        status=status,
        answer=answer_so_far(state),
        calls=calls,
        usage=state.usage,
        rounds=state.rounds,
        files=_changed_files(state, workspace),
        pending=pending_calls(state),
        reason=_turn_reason(state, status, blocked_by),
        detail=detail,
        advice=advice,
    )


def _turn_reason(state: TurnState, status: TurnStatus, blocked_by: ChatopsError | None) -> str:
    failure = failure_of(state)
    match status:
        case TurnStatus.ANSWERED | TurnStatus.PAUSED:
            return ""
        case _ if failure is not None:
            return failure.value
        case TurnStatus.LIMIT:
            return "limit"
        case TurnStatus.FAILED if blocked_by is not None and not isinstance(state.phase, Finished):
            return NOT_SAVED
        case TurnStatus.FAILED:
            return "no_answer"
        case _:
            return "stopped"


def _call_reports(state: TurnState) -> tuple[CallReport, ...]:
    results = (message for message in state.messages if isinstance(message, ToolMessage))
    # A placeholder for the lost result of an earlier turn is not a call of this turn.
    finished = (_call_report(message) for message in results if not is_stand_in(message))
    phase = state.phase
    current: Sequence[CallState] = phase.calls if isinstance(phase, InRound | Stopping) else ()
    return (*finished, *map(_current_report, current))


def _call_report(message: ToolMessage) -> CallReport:
    return CallReport(
        id=message.call_id,
        tool=message.tool,
        arguments=message.arguments,
        verdict=message.verdict,
        decided_by=message.decided_by or None,
        outcome=message.outcome,
        duration_ms=message.duration_ms,
    )


def _current_report(state: CallState) -> CallReport:
    proposed = CallReport(id=state.call.id, tool=state.call.name, arguments=state.call.arguments)
    match state.status:
        case Inspecting() | Deferred():
            return proposed
        case AwaitingDecision(facts=facts):
            return replace(proposed, arguments=facts.arguments, verdict=Verdict.ASK)
        case Permitted() | Rechecking() | Started() | Reconciling() as status:
            return replace(
                proposed,
                arguments=status.facts.arguments,
                verdict=status.verdict,
                decided_by=status.decided_by or None,
            )
        case Settled() as status:
            return _call_report(result_message(MessageId(state.call.id), state.call, status))
        case status:
            assert_never(status)


def _changed_files(state: TurnState, workspace: str) -> tuple[str, ...]:
    """Return each changed file once, in order; paths in the workspace are relative to it."""
    messages = (*state.messages, *settled_so_far(state))
    written = (message.facts.wrote for message in messages if isinstance(message, ToolMessage))
    return tuple(dict.fromkeys(_path_in_workspace(path, workspace) for path in written if path))


def _path_in_workspace(path: str, workspace: str) -> str:
    normal = os.path.normpath(path)
    if not workspace or not os.path.isabs(normal):
        return normal
    relative = os.path.relpath(normal, workspace)
    return normal if relative == ".." or relative.startswith("../") else relative


def run_report(
    run: WorkflowState, turns: Sequence[TurnState], *, workspace: str = "", blocked_by: ChatopsError | None = None
) -> RunReport:
    """Report a run and its turns as they are stored.

    `blocked_by` is the error that keeps the run from continuing.
    """
    reports = [report(turn, workspace=workspace) for turn in turns]
    phase = run.phase
    present = present_turn(phase, turns)
    pending = pending_calls(present) if present is not None else ()
    return RunReport(
        session_id=run.session_id,
        workflow=run.spec.name,
        query=run.query,
        role=run.role,
        status=_run_status(run, paused=bool(pending), blocked_by=blocked_by),
        answer=phase.answer if isinstance(phase, RunFinished) else "",
        steps=run_view(run, turns).steps,
        reasonings=tuple(reasoning_of(run, index, turns) for index in range(len(run.spec.steps))),
        calls=tuple(call for turn in reports for call in turn.calls),
        usage=total(*(turn.usage for turn in turns)),
        files=tuple(dict.fromkeys(file for turn in reports for file in turn.files)),
        pending=pending,
        review=phase if isinstance(phase, AwaitingReview) else None,
        failed_steps=failed_steps(run),
        reason=_run_reason(run, turns, blocked_by),
        detail=_run_detail(run, blocked_by),
        advice=blocked_by.advice if blocked_by is not None else "",
    )


def _run_status(run: WorkflowState, *, paused: bool, blocked_by: ChatopsError | None) -> TurnStatus:
    match run.phase:
        case RunFinished(result=RunResult.FAILED):
            last = run.attempts[-1].status if run.attempts else TurnStatus.FAILED
            return TurnStatus.LIMIT if last is TurnStatus.LIMIT else TurnStatus.FAILED
        case RunFinished(result=result):
            return TurnStatus(result.value)
        case AwaitingReview(reason=ReviewReason.UNANSWERED):
            return TurnStatus.FAILED
        case AwaitingReview():
            return TurnStatus.PAUSED
        case RunningStep() | CheckingGate():
            if paused:
                return TurnStatus.PAUSED
            return TurnStatus.FAILED if blocked_by is not None else TurnStatus.RUNNING
        case never:
            assert_never(never)


def _run_detail(run: WorkflowState, blocked_by: ChatopsError | None) -> str:
    """Return why the run is over, or why it does not continue."""
    match run.phase:
        case RunFinished(detail=detail) | AwaitingReview(reason=ReviewReason.UNANSWERED, detail=detail):
            return detail
        case _:
            return str(blocked_by or "")


def _run_reason(run: WorkflowState, turns: Sequence[TurnState], blocked_by: ChatopsError | None) -> str:
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
            return "not_going_on" if blocked_by is not None else ""


def reasoning_of(run: WorkflowState, step: int, turns: Sequence[TurnState]) -> str:
    """Return what the model says of the last answer to a step; empty if it says nothing, or there is no answer."""
    # Of the attempts at the step, without the turns in which a gate ran.
    turn_ids = [attempt.turn_id for attempt in run.attempts if attempt.step == step and not attempt.gate]
    turn = next((turn for turn in turns if turn_ids and turn.turn_id == turn_ids[-1]), None)
    if turn is None or turn_status(turn) is not TurnStatus.ANSWERED:
        return ""
    from chatops.tools.answers import read_answer  # slow to import, and only runs need it

    texts = (message.text for message in reversed(turn.messages) if isinstance(message, AssistantMessage))
    # Beside a result. In an object without one, `reasoning` may be a part of the answer itself.
    answer = json_or_text(read_answer(next(texts, ""), schema="").value)
    reasoning = answer.get("reasoning") if isinstance(answer, Mapping) and "result" in answer else None
    return reasoning if isinstance(reasoning, str) else ""


def as_json(value: TurnReport | RunReport) -> dict[str, JsonValue]:
    """Return the documented object. Every key except ``error`` is always present; values may be null."""
    error: JsonValue = {"reason": value.reason, "message": value.detail, "advice": value.advice}
    members = _turn_json(value) if isinstance(value, TurnReport) else _run_json(value)
    return {**members, "error": error} if value.reason else members


def _turn_json(value: TurnReport) -> dict[str, JsonValue]:
    return {
        **fields_json(value, "session_id", "turn_id", "role", "model", "status", "answer", "calls", "usage"),
        "rounds": [fields_json(round, "model", "finish_reason", "usage") for round in value.rounds],
        "files": list(value.files),
        "pending": [pending_json(call) for call in value.pending],
    }


def _run_json(value: RunReport) -> dict[str, JsonValue]:
    reviewed: JsonValue = None
    if (review := value.review) is not None:
        step = value.steps[review.step].name
        reviewed = {"step": step, **fields_json(review, "attempt", "reason", "answer", "detail")}
    return {
        **fields_json(value, "session_id", "workflow", "query", "role", "status", "answer", "detail"),
        "steps": [
            {
                **fields_json(step, "name", "status"),
                "attempts": step.attempt,
                "iterations": step.requests,
                "output": output_value(step) if step.status == TurnStatus.ANSWERED else None,
                "reasoning": reasoning,
                **fields_json(step, "detail", "usage"),
            }
            for step, reasoning in zip(value.steps, value.reasonings, strict=True)
        ],
        **fields_json(value, "failed_steps", "calls", "usage", "files"),
        "pending": [pending_json(call) for call in value.pending],
        "review": reviewed,
    }


def output_value(step: StepView) -> JsonValue:
    """Return a step's result as the value that it encodes: with a schema always, otherwise an object or list."""
    if not step.has_schema and step.output[:1] not in ("{", "["):
        return step.output
    return json_or_text(step.output)

"""The objects that `--output-format json` prints: the documented form of the results in `report`."""

from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.events import TurnStatus
from chatops.engine.workflow.state import AwaitingReview
from chatops.headless.json_values import arguments_value, usage_json
from chatops.headless.pending import pending_json
from chatops.headless.report import CallReport, RunReport, StepSummary, TurnReport


def as_json(value: TurnReport | RunReport) -> dict[str, JsonValue]:
    """Return the documented object. Every key except ``error`` is always present; values may be null."""
    error: JsonValue = {"reason": value.reason, "message": value.detail, "advice": value.advice}
    members = _turn_json(value) if isinstance(value, TurnReport) else _run_json(value)
    return {**members, "error": error} if value.reason else members


def _turn_json(value: TurnReport) -> dict[str, JsonValue]:
    return {
        "session_id": value.session_id,
        "turn_id": value.turn_id,
        "role": value.role,
        "model": value.model,
        "status": value.status.value,
        "answer": value.answer,
        "calls": [_call_json(one) for one in value.calls],
        "usage": usage_json(value.usage),
        "rounds": [
            {"model": one.model, "finish_reason": one.finish_reason, "usage": usage_json(one.usage)}
            for one in value.rounds
        ],
        "files": list(value.files),
        "pending": [pending_json(one) for one in value.pending],
    }


def _run_json(value: RunReport) -> dict[str, JsonValue]:
    return {
        "session_id": value.session_id,
        "workflow": value.workflow,
        "query": value.query,
        "role": value.role,
        "status": value.status.value,
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
        "calls": [_call_json(one) for one in value.calls],
        "usage": usage_json(value.usage),
        "files": list(value.files),
        "pending": [pending_json(one) for one in value.pending],
        "review": None if value.review is None else _review_json(value, value.review),
    }


def _call_json(call: CallReport) -> JsonValue:
    return {
        "id": call.id,
        "tool": call.tool,
        "arguments": arguments_value(call.arguments),
        "verdict": call.verdict or None,
        "decided_by": call.decided_by or None,
        "outcome": call.outcome or None,
        "duration_ms": call.duration_ms,
    }


def _review_json(value: RunReport, review: AwaitingReview) -> JsonValue:
    return {
        "step": value.steps[review.step].name,
        "attempt": review.attempt,
        "reason": review.reason.value,
        "answer": review.answer,
        "detail": review.detail,
    }


def output_value(step: StepSummary) -> JsonValue:
    """Return a step's result as the value that it encodes: with a schema always, otherwise an object or list."""
    if not step.has_schema and step.output[:1] not in ("{", "["):
        return step.output
    return json_or_text(step.output)

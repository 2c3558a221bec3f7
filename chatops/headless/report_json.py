"""The objects that `--output-format json` prints: the documented form of the results in `report`."""

from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.events import TurnStatus
from chatops.engine.workflow.state import AwaitingReview
from chatops.headless.json_values import plain
from chatops.headless.pending import pending_json
from chatops.headless.report import RunReport, StepSummary, TurnReport


def as_json(value: TurnReport | RunReport) -> dict[str, JsonValue]:
    """Return the documented object. Every key except ``error`` is always present; values may be null."""
    error: JsonValue = {"reason": value.reason, "message": value.detail, "advice": value.advice}
    members = _turn_json(value) if isinstance(value, TurnReport) else _run_json(value)
    return {**members, "error": error} if value.reason else members


def _turn_json(value: TurnReport) -> dict[str, JsonValue]:
    return {
        **_members(value, "session_id", "turn_id", "role", "model", "status", "answer", "calls", "usage"),
        "rounds": [_members(one, "model", "finish_reason", "usage") for one in value.rounds],
        "files": list(value.files),
        "pending": [pending_json(one) for one in value.pending],
    }


def _run_json(value: RunReport) -> dict[str, JsonValue]:
    return {
        **_members(value, "session_id", "workflow", "query", "role", "status", "answer", "detail"),
        "steps": [
            {
                **_members(one, "name", "status", "attempts", "iterations"),
                "output": output_value(one) if one.status == TurnStatus.ANSWERED else None,
                **_members(one, "reasoning", "detail", "usage"),
            }
            for one in value.steps
        ],
        **_members(value, "failed_steps", "calls", "usage", "files"),
        "pending": [pending_json(one) for one in value.pending],
        "review": None if value.review is None else _review_json(value, value.review),
    }


def _members(value: object, *names: str) -> dict[str, JsonValue]:
    return {name: plain(getattr(value, name), name=name) for name in names}


def _review_json(value: RunReport, review: AwaitingReview) -> JsonValue:
    return {
        "step": value.steps[review.step].name,
        **_members(review, "attempt", "reason", "answer", "detail"),
    }


def output_value(step: StepSummary) -> JsonValue:
    """Return a step's result as the value that it encodes: with a schema always, otherwise an object or list."""
    if not step.has_schema and step.output[:1] not in ("{", "["):
        return step.output
    return json_or_text(step.output)

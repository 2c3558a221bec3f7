"""The JSON object that `--output-format json` prints of a turn, built from its state (surface, section 1)."""

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import assert_never

from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.errors import ChatopsError, unsaved_sentence
from chatops.domain.events import PendingCall, TurnStatus
from chatops.domain.interruption import Interruption
from chatops.domain.messages import ToolMessage
from chatops.domain.rights import Verdict
from chatops.domain.tools import Outcome
from chatops.domain.usage import Usage
from chatops.engine.pairing import stands_in
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
    Settled,
    Started,
    Stopping,
    TurnState,
)
from chatops.engine.unanswered import failure_of, kind_of
from chatops.engine.view import answer_so_far, pending_calls, turn_status

WRITERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"file_write": ("path", "{}"), "file_edit": ("path", "{}"), "component_deploy": ("name", "flows/{}.json")}
)
"""Tools that change a file: the argument that names it, and the template of its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """One call of the turn.

    `verdict` is empty until the call was judged, `decided_by` until it was decided, `outcome` until it is over.
    """

    id: str
    tool: str
    arguments: str
    verdict: str
    decided_by: str
    outcome: str
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """One model call of the turn."""

    model: str
    finish_reason: str
    usage: Usage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a turn, for scripts."""

    session_id: str
    turn_id: str
    role: str
    model: str
    status: str
    """``answered``, ``paused``, ``limit``, ``failed`` or ``cancelled``."""
    answer: str
    calls: tuple[CallReport, ...]
    usage: Usage | None
    rounds: tuple[RoundReport, ...]
    files: tuple[str, ...]
    pending: tuple[PendingCall, ...]
    reason: str = ""
    """Why there is no answer, as one word; empty if there is one, or if the turn is paused."""
    detail: str = ""
    advice: str = ""


def report(state: TurnState, *, workspace: str = "", trouble: ChatopsError | None = None) -> Report:
    """Report a turn that is paused or over. A turn that was left running counts as cancelled.

    `trouble` is the storage error that blocks the next step: a turn that is not over has failed then.
    """
    status = turn_status(state)
    calls = _calls(state)
    finished = state.phase if isinstance(state.phase, Finished) else None
    if finished is None and trouble is not None:
        status = TurnStatus.FAILED
    elif status is TurnStatus.RUNNING:
        status = TurnStatus.CANCELLED
    return Report(
        session_id=state.session_id,
        turn_id=state.turn_id,
        role=state.grant.role,
        model=state.rounds[-1].model if state.rounds else state.grant.models[0].name,
        status=status.value,
        answer=answer_so_far(state),
        calls=calls,
        usage=state.usage,
        rounds=tuple(
            RoundReport(model=one.model, finish_reason=_finish_reason(one.finish_reason), usage=one.usage)
            for one in state.rounds
        ),
        files=_files(calls, workspace),
        pending=pending_calls(state),
        reason=_reason(state, status, trouble),
        detail=finished.detail if finished else unsaved_sentence(trouble) if trouble else "",
        advice=finished.advice if finished else (trouble.advice if trouble else ""),
    )


def _reason(state: TurnState, status: TurnStatus, trouble: ChatopsError | None) -> str:
    failure = failure_of(state)
    match status:
        case TurnStatus.ANSWERED | TurnStatus.PAUSED:
            return ""
        case _ if failure is not None:
            return failure.value
        case TurnStatus.LIMIT:
            return "limit"
        case TurnStatus.FAILED if trouble is not None and not isinstance(state.phase, Finished):
            return "not_saved"
        case TurnStatus.FAILED:
            return "no_answer"
        case _:
            return "stopped"


def _finish_reason(said: str) -> str:
    return said if kind_of(said) is None else "error"


def error_json(reason: str, *, detail: str, advice: str) -> dict[str, JsonValue]:
    """Return the member ``error`` of the JSON formats; nothing if there is an answer or still may be one."""
    return {"error": {"reason": reason, "message": detail, "advice": advice}} if reason else {}


def as_json(value: Report) -> dict[str, JsonValue]:
    """Return the documented object. Every key except ``error`` is always present; unknown values are null."""
    return {
        "session_id": value.session_id,
        "turn_id": value.turn_id,
        "role": value.role,
        "model": value.model,
        "status": value.status,
        "answer": value.answer,
        "calls": calls_json(value.calls),
        "usage": usage_json(value.usage),
        "rounds": [
            {"model": one.model, "finish_reason": one.finish_reason, "usage": usage_json(one.usage)}
            for one in value.rounds
        ],
        "files": list(value.files),
        "pending": [pending_json(one) for one in value.pending],
        **error_json(value.reason, detail=value.detail, advice=value.advice),
    }


def calls_json(calls: Sequence[CallReport]) -> list[JsonValue]:
    """Return calls as the JSON format lists them."""
    return [
        {
            "id": call.id,
            "tool": call.tool,
            "arguments": arguments_value(call.arguments),
            "verdict": call.verdict or None,
            "decided_by": call.decided_by or None,
            "outcome": call.outcome or None,
            "duration_ms": call.duration_ms,
        }
        for call in calls
    ]


def usage_json(usage: Usage | None) -> dict[str, JsonValue]:
    """Return tokens and cost; values that the server did not report are null, not zero."""
    return {
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "reasoning_tokens": usage.reasoning_tokens if usage else None,
        "cost": usage.cost if usage else None,
        # Scripts rely on the four keys above. This one exists only if the server has a prompt cache.
        **({"cached_tokens": usage.cached_tokens} if usage and usage.cached_tokens else {}),
    }


def pending_json(pending: PendingCall) -> dict[str, JsonValue]:
    """Return a pending call as the JSON format lists it."""
    return {
        "id": pending.call.id,
        "tool": pending.call.name,
        "arguments": arguments_value(pending.facts.arguments),
        "why": pending.why,
        **({"interrupted": _interrupted_json(pending.interruption)} if pending.interruption is not None else {}),
    }


def _interrupted_json(known: Interruption) -> JsonValue:
    """Return what is known about an attempt whose outcome is unknown."""
    return {
        "attempt": known.attempt,
        "started_at": known.started_at,
        "output": known.output,
        "processes": known.processes.value,
        "process_count": known.count,
    }


def arguments_value(text: str) -> JsonValue:
    """Return arguments as the object that they encode; as text if they encode none that JSON can hold."""
    value = json_or_text(text)
    return value if isinstance(value, Mapping) else text


def _calls(state: TurnState) -> tuple[CallReport, ...]:
    results = (message for message in state.messages if isinstance(message, ToolMessage))
    # A placeholder for the lost result of an earlier turn is not a call of this turn.
    told = [_told(message) for message in results if not stands_in(message)]
    known = {call.id for call in told}
    phase = state.phase
    current: Sequence[CallState] = phase.calls if isinstance(phase, InRound | Stopping) else ()
    return (*told, *(_current(one) for one in current if one.call.id not in known))


def _told(message: ToolMessage) -> CallReport:
    return CallReport(
        id=message.call_id,
        tool=message.tool,
        arguments=message.arguments,
        verdict=message.verdict.value if message.verdict else "",
        decided_by=message.decided_by,
        outcome=message.outcome.value,
        duration_ms=message.duration_ms,
    )


def _current(one: CallState) -> CallReport:
    known = CallReport(
        id=one.call.id,
        tool=one.call.name,
        arguments=one.call.arguments,
        verdict="",
        decided_by="",
        outcome="",
        duration_ms=0,
    )
    match one.status:
        case Inspecting() | Deferred():
            return known
        case AwaitingDecision(facts=facts):
            return replace(known, arguments=facts.arguments, verdict=Verdict.ASK.value)
        case Permitted() | Rechecking() | Started() | Reconciling() as status:
            return replace(
                known,
                arguments=status.facts.arguments,
                verdict=status.verdict.value,
                decided_by=status.decided_by,
            )
        case Settled() as status:
            return replace(
                known,
                arguments=status.arguments,
                verdict=status.verdict.value if status.verdict else "",
                decided_by=status.decided_by,
                outcome=status.result.outcome.value,
                duration_ms=status.result.duration_ms,
            )
        case status:
            assert_never(status)


def _files(calls: Sequence[CallReport], workspace: str) -> tuple[str, ...]:
    """Return each changed file once, in order; paths in the workspace are relative to it."""
    found: dict[str, None] = {}
    for call in calls:
        value = arguments_value(call.arguments)
        if call.tool not in WRITERS or call.outcome != Outcome.SUCCESS.value or not isinstance(value, Mapping):
            continue
        argument, path = WRITERS[call.tool]
        named = value.get(argument)
        if isinstance(named, str):
            found[_inside(path.format(named), workspace)] = None
    return tuple(found)


def _inside(path: str, workspace: str) -> str:
    plain = os.path.normpath(path)
    if not workspace or not os.path.isabs(plain):
        return plain
    relative = os.path.relpath(plain, workspace)
    return plain if relative.startswith("..") else relative

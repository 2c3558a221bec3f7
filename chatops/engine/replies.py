"""Replies of a model: an answer, calls, an empty reply, or no reply at all."""

from dataclasses import replace

from chatops.domain.events import Status, ThoughtFinished, TurnStatus
from chatops.domain.ids import call_id, thought_id
from chatops.domain.messages import AssistantMessage
from chatops.domain.model import (
    CONTENT_FILTER,
    OTHER_MODEL_MAY_HELP,
    FailureKind,
    ModelFailure,
    ModelReply,
    ModelTarget,
)
from chatops.domain.tools import RawCall, ToolCall, tool_name
from chatops.engine import acceptance, inspection, round_limits, rounds
from chatops.engine.draft import StepDraft
from chatops.engine.state import AwaitingModel, CallState, InRound, Inspecting, Purpose, RoundRecord


def handle_reply(draft: StepDraft, phase: AwaitingModel, reply: ModelReply, duration_ms: int) -> None:
    """Process a complete reply: an answer, or calls."""
    target = rounds.target_of(draft, phase)
    finished, usage = reply.finish_reason, reply.usage
    draft.record_round(RoundRecord(model=target.name, finish_reason=finished, usage=usage, duration_ms=duration_ms))
    draft.events.append(
        ThoughtFinished(
            id=thought_id(phase.round_id),
            parent_id=phase.round_id,
            status=Status.SUCCESS,
            text=reply.text,
            reasoning=reply.reasoning,
            model=reply.model_id or target.name,
            finish_reason=reply.finish_reason,
            usage=reply.usage,
            duration_ms=duration_ms,
        )
    )
    gathering = phase.purpose in (Purpose.GATHER, Purpose.GATHER_AGAIN)
    if gathering and _calls_tools(draft, reply):
        _open_round(draft, phase, reply, target)
    elif draft.state.contract is not None:
        if reply.text.strip():
            draft.add_message(_reply_message(draft, phase, reply, target))
        acceptance.submit_answer(draft, phase, reply, target.name)
    elif not reply.text.strip():
        _handle_empty(draft, phase, target)
    elif gathering and phase.under.responder is not None and draft.state.counters.rounds:
        # Tools were used, so the responder has something to write the answer from.
        rounds.close_round(draft, phase.round_id, target.name, Status.SUCCESS)
        rounds.ask_model(draft, purpose=Purpose.RESPOND, gathered=_reply_message(draft, phase, reply, target))
    else:
        draft.add_message(_reply_message(draft, phase, reply, target))
        rounds.close_round(draft, phase.round_id, target.name, Status.SUCCESS)
        _finish_with_answer(draft, phase, reply)


def _calls_tools(draft: StepDraft, reply: ModelReply) -> bool:
    """Return False for a reply without calls, and for one whose calls are only guessed and were reported before."""
    replies = (message for message in draft.state.messages if isinstance(message, AssistantMessage))
    reported = any(call.guessed for message in replies for call in message.calls)
    return any(not (raw.guessed and reported) for raw in reply.calls)


def handle_failure(draft: StepDraft, phase: AwaitingModel, failure: ModelFailure, duration_ms: int) -> None:
    """Process a missing reply: ask again if something can be changed, else end the turn, which can be retried."""
    target = rounds.target_of(draft, phase)
    _close_failed_round(draft, phase, failure, target, duration_ms)
    if phase.gathered is not None:  # The responder was asked.
        draft.warn(f"{failure.message} The answer is that of the model that gathered.", advice=failure.advice)
        _answer_with_gathered(draft, phase.gathered)
    elif not failure.started and failure.kind in OTHER_MODEL_MAY_HELP and _switch_to_backup(draft):
        other = rounds.model_of(draft)
        draft.warn(f"{target.label or target.name}: {failure.message} {other.label or other.name} is asked instead.")
        rounds.ask_model(draft, purpose=phase.purpose)
    elif failure.context_limit and not failure.started and rounds.adopt_limit(draft, phase, failure.context_limit):
        draft.warn(f"{failure.message} Older or long tool results are left out, and it is asked again.")
        rounds.ask_model(draft, purpose=phase.purpose)
    elif phase.purpose is Purpose.CLOSE:
        draft.warn(failure.message, advice=failure.advice, error=True)
        rounds.finish_with_gathered(draft)
    else:
        result = TurnStatus.LIMIT if failure.kind is FailureKind.OUT_OF_TOKENS else TurnStatus.FAILED
        rounds.finish_with_notice(draft, result, failure.partial_text, detail=failure.message, advice=failure.advice)


def _close_failed_round(
    draft: StepDraft, phase: AwaitingModel, failure: ModelFailure, target: ModelTarget, duration_ms: int
) -> None:
    draft.record_round(
        RoundRecord(model=target.name, finish_reason="error", usage=None, failure=failure.kind, duration_ms=duration_ms)
    )
    draft.events.append(
        ThoughtFinished(
            id=thought_id(phase.round_id),
            parent_id=phase.round_id,
            status=Status.ERROR,
            text=failure.partial_text,
            reasoning=failure.partial_reasoning,
            model=target.name,
            finish_reason="error",
            duration_ms=duration_ms,
            error=failure.message,
        )
    )
    if failure.started:
        draft.count_cut_off()
    rounds.store_partial(draft, failure.partial_text, failure.partial_reasoning, target.name)
    rounds.close_round(draft, phase.round_id, target.name, Status.ERROR)


def _open_round(draft: StepDraft, phase: AwaitingModel, reply: ModelReply, target: ModelTarget) -> None:
    asked = tuple(_tool_call(phase, i, raw) for i, raw in enumerate(reply.calls, start=1))
    draft.add_message(replace(_reply_message(draft, phase, reply, target), calls=asked))
    draft.set_phase(
        InRound(
            round_id=phase.round_id,
            proposed_under=phase.under,
            said=reply.text,
            model=target.name,
            calls=tuple(CallState(call=call, status=Inspecting()) for call in asked),
        )
    )
    for index in range(len(asked)):
        inspection.check_proposed(draft, index)
    rounds.continue_round(draft)


def _reply_message(draft: StepDraft, phase: AwaitingModel, reply: ModelReply, target: ModelTarget) -> AssistantMessage:
    return AssistantMessage(
        id=draft.next_message_id(),
        text=reply.text,
        reasoning=reply.reasoning,
        model=target.name,
        role=phase.under.role,
        finish_reason=reply.finish_reason,
        usage=reply.usage,
    )


def _finish_with_answer(draft: StepDraft, phase: AwaitingModel, reply: ModelReply) -> None:
    if reply.finish_reason == "length":
        text, advice = "The answer was cut at the model's output limit.", "Ask it to continue."
        rounds.finish_with_notice(draft, TurnStatus.LIMIT, reply.text, detail=text, advice=advice, error=False)
        return
    if reply.finish_reason == CONTENT_FILTER:
        draft.warn("The answer was stopped by the provider's filter.")
    if phase.purpose is Purpose.CLOSE:
        rounds.finish_turn(draft, TurnStatus.LIMIT, reply.text, detail=round_limits.limit_text(draft))
    else:
        rounds.finish_turn(draft, TurnStatus.ANSWERED, reply.text)


def _handle_empty(draft: StepDraft, phase: AwaitingModel, target: ModelTarget) -> None:
    rounds.close_round(draft, phase.round_id, target.name, Status.ERROR)
    match phase.purpose:
        case Purpose.GATHER:
            rounds.ask_model(draft, purpose=Purpose.GATHER_AGAIN)
        case Purpose.GATHER_AGAIN:
            text = f"{target.label or target.name} sent an empty reply twice."
            advice = "Try again, or choose another model."
            rounds.finish_with_notice(draft, TurnStatus.FAILED, "", detail=text, advice=advice)
        case Purpose.CLOSE:
            rounds.finish_with_gathered(draft)
        case Purpose.RESPOND:
            if phase.gathered is not None:
                _answer_with_gathered(draft, phase.gathered)


def _answer_with_gathered(draft: StepDraft, gathered: AssistantMessage) -> None:
    draft.add_message(replace(gathered, id=draft.next_message_id()))
    rounds.finish_turn(draft, TurnStatus.ANSWERED, gathered.text)


def _tool_call(phase: AwaitingModel, index: int, raw: RawCall) -> ToolCall:
    offered = phase.under.tool(raw.name) is not None
    return ToolCall(
        id=call_id(phase.round_id, index),
        name=raw.name if offered else tool_name(raw.name),
        arguments=raw.arguments,
        provider_id=raw.provider_id,
        repairs=raw.repairs,
        problem=raw.problem,
        guessed=raw.guessed,
        extra_content=raw.extra_content,
    )


def _switch_to_backup(draft: StepDraft) -> bool:
    counters = draft.state.counters
    if counters.backup + 1 >= len(draft.state.grant.models):
        return False
    draft.count(replace(counters, backup=counters.backup + 1))
    return True

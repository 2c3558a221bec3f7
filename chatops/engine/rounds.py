"""Rounds: ask a model, close a round when its calls are settled, end the turn.

`ask_model` starts a round, which is one model call with the tool calls of its reply. After every change to a call,
`continue_round` starts what may start. Once all calls are settled it closes the round, and asks again or ends the turn.
The engine opens two rounds itself, each with one call for the user to decide on: on the changes of a contained turn
(`containment`) and on more budget (`budgets`). Each has an end of its own here.
"""

from dataclasses import replace

from chatops.domain.events import RoundClosed, RoundStarted, Status, TurnCorrected, TurnStatus
from chatops.domain.ids import MessageId, RoundId, round_id
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from chatops.domain.model import ModelRequest, ModelTarget, Sampling, ToolChoice
from chatops.domain.tools import Outcome
from chatops.engine import budgets, calls, containment, feedback, pairing, round_limits
from chatops.engine.contract import StepContract
from chatops.engine.draft import StepDraft
from chatops.engine.effects import CallModel
from chatops.engine.state import (
    AwaitingModel,
    BudgetQuestion,
    ContainmentPhase,
    Correction,
    Counters,
    Finished,
    InRound,
    Purpose,
    Settled,
    Stopping,
)
from chatops.engine.transcript import Fitted, fit_messages, place_notes
from chatops.engine.view import may_be_retried, result_message, turn_finished

NEARLY_FULL_SHARE = 0.8
"""Share of a model's context window at which the user is warned."""


def ask_model(draft: StepDraft, *, purpose: Purpose = Purpose.GATHER, gathered: AssistantMessage | None = None) -> None:
    """Start a round: make the next model call, under the grant in force, or ask first if the budget is reached."""
    counters = replace(draft.state.counters, requests=draft.state.counters.requests + 1)
    draft.count(counters)
    new_round = round_id(draft.state.turn_id, counters.requests)
    phase = AwaitingModel(round_id=new_round, under=draft.state.grant, purpose=purpose, gathered=gathered)
    if not budgets.ask_if_reached(draft, target_of(draft, phase), purpose, gathered):
        draft.set_phase(phase)
        send_request(draft)


def send_request(draft: StepDraft) -> None:
    """Send the request of the round in progress. Also used to repeat it after a restart."""
    phase = draft.state.phase
    if not isinstance(phase, AwaitingModel):
        return
    _repair_history(draft)
    target = target_of(draft, phase)
    draft.set_phase(replace(phase, model=target.name))
    request = _request(draft, target, phase)
    draft.effects.append(CallModel(round_id=phase.round_id, request=request))
    draft.events.append(RoundStarted(id=phase.round_id, parent_id=draft.state.turn_id, model=target.name))


def _repair_history(draft: StepDraft) -> None:
    """Store a result for every call that has none.

    Results may be missing in a damaged file, or in a session forked in the middle of a round.
    """
    lost = pairing.lost_calls((*draft.state.history, *draft.state.messages))
    for call in lost:
        draft.add_message(pairing.stand_in(call, id=draft.next_message_id()))
    if lost:
        draft.warn(feedback.lost_calls_notice([call.name for call in lost]))


def target_of(draft: StepDraft, phase: AwaitingModel) -> ModelTarget:
    """Return the model of a round: the one that was asked, else the one to ask (a responder, or the current model)."""
    responder = phase.under.responder
    known: tuple[ModelTarget, ...] = (*phase.under.models, *((responder,) if responder is not None else ()))
    if asked := next((target for target in known if target.name == phase.model), None):
        return asked
    return responder if phase.purpose is Purpose.RESPOND and responder is not None else model_of(draft)


def model_of(draft: StepDraft) -> ModelTarget:
    """Return the current model: the primary, or the backup that took over in this turn."""
    models = draft.state.grant.models
    return models[min(draft.state.counters.backup, len(models) - 1)]


def adopt_limit(draft: StepDraft, phase: AwaitingModel, limit: int) -> bool:
    """Adopt the context limit that the current model's server reported, in tokens.

    Returns False, and adopts nothing, if the request would not get smaller. A limit that was known already shows that
    the size of the request was underestimated: then the window is reduced to 3/4.
    """
    target = model_of(draft)
    if target_of(draft, phase) != target:
        return False
    known = target.effective_window
    narrower = replace(target, context_window=limit if limit < known else known * 3 // 4)
    before, after = (_fit_messages(draft, model).tokens for model in (target, narrower))
    if after >= before:
        return False
    grant = draft.state.grant
    models = tuple(narrower if model.name == target.name else model for model in grant.models)
    draft.set_grant(replace(grant, models=models))
    return True


def store_partial(draft: StepDraft, text: str, reasoning: str, model: str) -> None:
    """Store what had been streamed, marked as incomplete."""
    if text.strip():
        draft.add_message(
            AssistantMessage(
                id=draft.next_message_id(),
                text=text,
                reasoning=reasoning,
                model=model,
                role=draft.state.grant.role,
                incomplete=True,
            )
        )


def close_round(draft: StepDraft, closed: RoundId, model: str, status: Status) -> None:
    """Publish that a round is over. Its `model` is empty if no model was asked."""
    # The record of a model call is added when the call ends, so that of this round is the last one.
    record = draft.state.rounds[-1] if model and draft.state.rounds else None
    draft.events.append(
        RoundClosed(
            id=closed,
            parent_id=draft.state.turn_id,
            status=status,
            model=model,
            finish_reason=record.finish_reason if record is not None else "",
            usage=record.usage if record is not None else None,
        )
    )


def continue_round(draft: StepDraft) -> None:
    """Continue after any change to calls: start what may start, and close the round when all calls are settled."""
    calls.start_ready_calls(draft)
    phase = draft.state.phase
    if not isinstance(phase, InRound | Stopping):
        return
    if not all(isinstance(call.status, Settled) for call in phase.calls):
        return
    if containment.is_apply_round(draft):
        _end_apply_round(draft)
    elif isinstance(phase, InRound) and phase.budget is not None:
        _end_budget_round(draft, phase, phase.budget)
    else:
        _end_round(draft, phase)


def _end_round(draft: StepDraft, phase: InRound | Stopping) -> None:
    """End a round whose calls are all settled: ask the model again, or end the turn."""
    _count_tool_time(draft)
    outcomes = _write_results(draft)
    any_success = any(outcome is Outcome.SUCCESS for outcome in outcomes)
    close_round(draft, phase.round_id, phase.model, Status.SUCCESS if any_success else Status.ERROR)
    correction = phase.correction if isinstance(phase, Stopping) else None
    if isinstance(phase, Stopping) and correction is None:
        finish_turn(draft, TurnStatus.CANCELLED, "", detail="Stopped by the user.")
    elif draft.state.gate is not None:
        _finish_gate(draft)
    elif draft.state.command is not None:
        finish_turn(draft, TurnStatus.ANSWERED, "")
    else:
        if correction is not None:
            take_correction(draft, correction)
        else:
            round_limits.count_round(draft, only_invalid=all(outcome is Outcome.INVALID for outcome in outcomes))
        contained = draft.state.containment
        ends_containment = contained is not None and contained.phase is ContainmentPhase.ENDING
        # The round about the changes comes first. Its end asks the model then, because it gets no end of the turn.
        if not (ends_containment and containment.open_apply_round(draft, None)):
            ask_next(draft)


def take_correction(draft: StepDraft, correction: Correction) -> None:
    """Add the user's correction to the turn. Its limits count from here, as after any other message."""
    message = UserMessage(id=draft.next_message_id(), text=correction.text, files=correction.files)
    draft.add_message(message)
    files, role = tuple(file.ref for file in correction.files), draft.state.grant.role
    event = TurnCorrected(id=message.id, parent_id=draft.state.turn_id, text=message.text, files=files, role=role)
    draft.events.append(event)
    counters = draft.state.counters
    draft.count(Counters(requests=counters.requests, elided=counters.elided, full=counters.full))


def ask_next(draft: StepDraft) -> None:
    """Start the next round, or the reserved closing call if the turn has used up its rounds."""
    ask_model(draft, purpose=Purpose.CLOSE if round_limits.has_reached_limit(draft) else Purpose.GATHER)


def finish_turn(
    draft: StepDraft, result: TurnStatus, answer: str, *, detail: str = "", advice: str = "", noticed: bool = False
) -> None:
    """End the turn; if it is contained, after the decision on its changes.

    `noticed`: the turn has a notice that gives `detail`, see `finish_with_notice`.
    """
    end = Finished(result=result, answer=answer, detail=detail, advice=advice, noticed=noticed)
    if not containment.open_apply_round(draft, end):
        contained, undo = draft.state.containment, containment.is_undo(draft)
        containment.end_containment(draft)
        _set_finished(draft, end)
        if may_be_retried(draft.state) and not undo:
            # The turn stays contained, so that its retry is. The copy is gone: the retry makes a new one.
            draft.state = replace(draft.state, containment=contained)


def _set_finished(draft: StepDraft, end: Finished) -> None:
    draft.set_phase(end)
    draft.events.append(turn_finished(draft.state, end))


def finish_with_notice(
    draft: StepDraft, result: TurnStatus, answer: str, *, detail: str, advice: str = "", error: bool = True
) -> None:
    """End the turn with a notice that gives the reason."""
    draft.warn(detail, advice=advice, error=error)
    finish_turn(draft, result, answer, detail=detail, advice=advice, noticed=True)


def _end_apply_round(draft: StepDraft) -> None:
    """End the round that asked about the changes of a contained turn.

    Its call has no assistant message, so its result becomes a note, which the next request holds. If the user sent the
    changes back with a reason, the model continues in the same copy.
    """
    phase = draft.state.phase
    if not isinstance(phase, InRound):
        return
    settled = phase.calls[0].status
    if not isinstance(settled, Settled):
        return
    result = settled.result
    denied = result.outcome is Outcome.DENIED
    reason = feedback.reason_sentence(result.facts.reason) if denied else ""
    contained = draft.state.containment
    is_sent_back = contained is not None and contained.phase is ContainmentPhase.SENT_BACK
    succeeded = result.outcome is Outcome.SUCCESS
    close_round(draft, phase.round_id, phase.model, Status.SUCCESS if succeeded else Status.ERROR)
    if is_sent_back:
        text = f"The changes were sent back to the model. Nothing was applied.{reason}"
        draft.inform(text, to_model=feedback.SENT_BACK + reason)
        containment.next_list(draft, result.facts.reason)
    elif denied and containment.is_undo(draft):
        draft.inform(f"The changes stay applied.{reason}", to_model=feedback.NOT_UNDONE + reason)
    elif denied:
        text = f"The changes were discarded. Nothing was applied.{reason}"
        draft.inform(text, to_model=feedback.DISCARDED + reason)
    else:
        draft.inform(result.content, not_chosen=result.facts.not_chosen)
    if not is_sent_back:
        containment.end_containment(draft)
    if phase.ending is None or is_sent_back:
        ask_next(draft)
    else:
        _set_finished(draft, phase.ending)


def _end_budget_round(draft: StepDraft, phase: InRound, question: BudgetQuestion) -> None:
    """End the round that asked whether the turn may spend more: continue, or end it with what was gathered."""
    settled = phase.calls[0].status
    if not isinstance(settled, Settled):
        return
    result, answer = settled.result, question.gathered
    may_spend_more = result.outcome is Outcome.SUCCESS
    close_round(draft, phase.round_id, phase.model, Status.SUCCESS if may_spend_more else Status.ERROR)
    if may_spend_more:
        draft.inform(result.content, for_model=False)
        ask_model(draft, purpose=question.purpose, gathered=answer)
    elif answer is not None and draft.state.contract is None:
        draft.add_message(replace(answer, id=draft.next_message_id()))
        finish_with_notice(draft, TurnStatus.LIMIT, answer.text, detail=result.content, error=False)
    else:
        finish_with_gathered(draft, result.content)


def finish_with_gathered(draft: StepDraft, limit: str = "") -> None:
    """End a turn that gets no closing answer: name the limit, and show what the tools returned.

    Without results, or under a contract, which they would not fulfil, the turn ends without an answer.
    """
    ran = (Outcome.SUCCESS, Outcome.FAILED)
    results = [(m.tool, m.content) for m in draft.state.messages if isinstance(m, ToolMessage) and m.outcome in ran]
    detail = limit or round_limits.limit_text(draft)
    if draft.state.contract is not None or (limit and not results):
        finish_turn(draft, TurnStatus.LIMIT, "", detail=detail)
        return
    answer = feedback.gathered_answer(detail, results)
    draft.add_message(
        AssistantMessage(
            id=draft.next_message_id(), text=answer, model="", role=draft.state.grant.role, finish_reason="limit"
        )
    )
    finish_turn(draft, TurnStatus.LIMIT, answer, detail=detail)


def _finish_gate(draft: StepDraft) -> None:
    last = draft.state.messages[-1]
    output = last.content if isinstance(last, ToolMessage) else ""
    if isinstance(last, ToolMessage) and last.outcome is Outcome.SUCCESS:
        finish_turn(draft, TurnStatus.ANSWERED, output)
    else:
        finish_turn(draft, TurnStatus.FAILED, "", detail=output)


def _request(draft: StepDraft, target: ModelTarget, phase: AwaitingModel) -> ModelRequest:
    grant, state, contract = draft.state.grant, draft.state, draft.state.contract
    instruction = ""
    if phase.purpose is Purpose.CLOSE:
        instruction = feedback.CLOSING if contract is None else feedback.STEP_CLOSING
        if round_limits.repeated_call(draft) is not None:
            instruction = f"[chatops] {round_limits.limit_text(draft)}\n{instruction}"
    elif phase.gathered is not None:
        instruction = feedback.RESPOND
    system = grant.prompt
    if state.containment is not None:
        system = f"{system}\n\n{containment.PROMPT}"
    fitted = _fit_messages(draft, target)
    _notify_of_room(draft, fitted, target)
    # The conclusion becomes a message of the session only if it is the answer. Between the results and the request for
    # another answer it also keeps user and assistant messages alternating.
    messages = (*fitted.messages, *([phase.gathered] if phase.gathered is not None else []))
    if instruction:
        messages = _append_user_message(messages, UserMessage(id=MessageId(f"{state.turn_id}.told"), text=instruction))
    withheld = phase.purpose in (Purpose.CLOSE, Purpose.RESPOND)
    return ModelRequest(
        model=target.name,
        system=system,
        messages=messages,
        tools=grant.tools,
        tool_choice=ToolChoice.NONE if withheld else ToolChoice.AUTO,
        sampling=_sampling(contract),
    )


def _fit_messages(draft: StepDraft, target: ModelTarget) -> Fitted:
    grant, state = draft.state.grant, draft.state
    user_messages = (at for at, message in enumerate(state.messages) if isinstance(message, UserMessage))
    last_user_message = max(user_messages, default=0)
    # A reply that broke off is sent again only if the user has answered it.
    sent = [m for at, m in enumerate(state.messages) if at < last_user_message or not _is_broken_off(m)]
    return fit_messages(place_notes((*state.history, *sent)), system=grant.prompt, tools=grant.tools, model=target)


def _is_broken_off(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and message.incomplete


def _notify_of_room(draft: StepDraft, fitted: Fitted, target: ModelTarget) -> None:
    """Notify the user of results that no longer fit, each once, and once when the context is nearly full."""
    counters, name = draft.state.counters, target.label or target.name
    if fitted.given_up and fitted.elided > counters.elided:
        counters = replace(counters, elided=fitted.elided)
        draft.count(counters)
        advice = feedback.ASSUMED_ADVICE if target.context_window is None else ""
        draft.warn(feedback.left_out_notice(fitted.given_up, model=name), advice=advice)
    before = fitted.tokens_before if _last_model(draft) == target.name else 0
    window = target.context_window
    if window is None or counters.full:
        return
    is_newly_full = before < window * NEARLY_FULL_SHARE <= fitted.tokens
    if is_newly_full or fitted.tokens > window:
        draft.count(replace(counters, full=True))
        draft.warn(feedback.nearly_full_notice(fitted.tokens, window, model=name), advice=feedback.NEARLY_FULL_ADVICE)


def _last_model(draft: StepDraft) -> str:
    newest_first = (m for part in (draft.state.messages, draft.state.history) for m in reversed(part))
    replies = (m for m in newest_first if isinstance(m, AssistantMessage))
    return next((message.model for message in replies), "")


def _append_user_message(messages: tuple[Message, ...], last: UserMessage) -> tuple[Message, ...]:
    """Return `messages` plus `last`, merged into the final message if that is a user message already."""
    before = messages[-1] if messages else None
    if not isinstance(before, UserMessage):
        return (*messages, last)
    return (*messages[:-1], replace(last, text=f"{before.text}\n\n{last.text}"))


def _sampling(contract: StepContract | None) -> Sampling:
    if contract is None:
        return Sampling()
    return Sampling(temperature=contract.temperature, max_output_tokens=contract.max_output_tokens)


def _count_tool_time(draft: StepDraft) -> None:
    spending = draft.state.spending
    worked = spending.tools_ms + calls.tool_time_ms(draft)
    draft.state = replace(draft.state, spending=replace(spending, tools_ms=worked))


def _write_results(draft: StepDraft) -> list[Outcome]:
    """Add a message with the result of each call, and return the outcomes."""
    outcomes = []
    # As the model made them: a call that the user has edited differs.
    asked = {call.id: call for m in draft.state.messages if isinstance(m, AssistantMessage) for call in m.calls}
    for call_state in draft.calls():
        if not isinstance(call_state.status, Settled):
            continue
        status = call_state.status
        outcomes.append(status.result.outcome)
        message = result_message(draft.next_message_id(), call_state.call, status)
        draft.add_message(_add_notes(draft, message, was_edited=asked[call_state.call.id] != call_state.call))
    return outcomes


def _add_notes(draft: StepDraft, message: ToolMessage, *, was_edited: bool) -> ToolMessage:
    """Return the message with what the model has to know beside the result."""
    ran = message.outcome not in (Outcome.DENIED, Outcome.INVALID)
    before = feedback.edited_note(message.arguments, ran=ran) if was_edited else ""
    if not message.content:
        before += feedback.EMPTY_RESULT if message.outcome is Outcome.SUCCESS else f"({message.outcome.value})"
    failed = draft.state.contract is not None and message.outcome is Outcome.FAILED
    after = f"\n\n{feedback.GUIDANCE}" if failed else ""
    content = f"{before}{message.content}{after}"
    return replace(message, content=content, before=len(before), after=len(after))

"""Interrupting a turn: the user cancels it, or corrects it with a message that it continues with.

Either way the reply in flight is aborted, calls that have not started do not run, and running ones are stopped. The
turn waits for those (`Stopping`), because each call needs a true result before anything else is said.

A round with a `budget` is the engine's own: its one call asks the user whether the turn may spend more.
"""

from dataclasses import replace

from chatops.domain.events import Status, TurnStatus
from chatops.domain.tools import Interruption, Outcome, ResultSource
from chatops.engine import calls, containment, feedback, questions, rounds
from chatops.engine.draft import StepDraft
from chatops.engine.effects import AbortModel, CancelTool
from chatops.engine.inputs import CancelTurn, CorrectTurn
from chatops.engine.state import (
    AwaitingDecision,
    AwaitingModel,
    CheckingAnswer,
    Correction,
    Finished,
    InRound,
    Reconciling,
    Settled,
    Started,
    Stopping,
)


def interrupt(draft: StepDraft, turn_input: CancelTurn | CorrectTurn) -> None:
    """End the turn, or continue with the user's message, once nothing runs any more."""
    if isinstance(turn_input, CancelTurn):
        _cancel(draft, turn_input)
    else:
        _correct(draft, turn_input)


def _cancel(draft: StepDraft, turn_input: CancelTurn) -> None:
    phase = draft.state.phase
    match phase:
        case AwaitingModel():
            _abort_reply(draft, phase, turn_input)
            rounds.finish_turn(draft, TurnStatus.CANCELLED, turn_input.partial_text, detail="Stopped by the user.")
        case CheckingAnswer(text=text):
            rounds.finish_turn(draft, TurnStatus.CANCELLED, text, detail="Stopped by the user.")
        case InRound() if containment.is_apply_round(draft):
            # Applying is not stopped half-way, and only the user's decision discards the changes.
            pass
        case InRound() if phase.budget is not None:
            _withdraw_question(draft, phase)
            rounds.finish_turn(draft, TurnStatus.CANCELLED, "", detail="Stopped by the user.")
        case InRound():
            _stop_calls(draft, phase, None)
        case Stopping() | Finished():
            # It is being stopped already. A message that it continues with then is not taken back.
            pass


def _correct(draft: StepDraft, turn_input: CorrectTurn) -> None:
    state, phase = draft.state, draft.state.phase
    has_no_model = state.gate is not None or state.command is not None
    if has_no_model or state.contract is not None or containment.is_apply_round(draft):
        # There is no model to continue, or it works for a workflow, or only a decision continues.
        return
    correction = Correction(text=turn_input.text, files=turn_input.files)
    match phase:
        case AwaitingModel():
            _abort_reply(draft, phase, turn_input)
            rounds.take_correction(draft, correction)
            rounds.ask_model(draft)
        case InRound() if phase.budget is not None:
            # The turn asks again, before its next request.
            _withdraw_question(draft, phase)
            rounds.take_correction(draft, correction)
            rounds.ask_model(draft)
        case InRound():
            _stop_calls(draft, phase, correction)
        case Stopping(correction=None):
            draft.set_phase(replace(phase, correction=correction))
        case Stopping(correction=Correction() as first):
            text, files = f"{first.text}\n\n{turn_input.text}", (*first.files, *turn_input.files)
            draft.set_phase(replace(phase, correction=Correction(text=text, files=files)))
        case CheckingAnswer() | Finished():
            # Only an answer under a contract is checked, and a finished turn does not continue.
            return
    # The message is taken, so the text that is left in the composer is stored with it.
    draft.composer = turn_input.draft


def _abort_reply(draft: StepDraft, phase: AwaitingModel, turn_input: CancelTurn | CorrectTurn) -> None:
    model = rounds.target_of(draft, phase).name
    draft.effects.append(AbortModel(round_id=phase.round_id))
    draft.count_cut_off()
    rounds.store_partial(draft, turn_input.partial_text, turn_input.partial_reasoning, model)
    rounds.close_round(draft, phase.round_id, model, Status.ERROR)


def _withdraw_question(draft: StepDraft, phase: InRound) -> None:
    """End the round that asks whether the turn may spend more, without an answer."""
    _stop_call(draft, index=0, text=feedback.STOPPED)
    rounds.close_round(draft, phase.round_id, phase.model, Status.ERROR)


def _stop_calls(draft: StepDraft, phase: InRound, correction: Correction | None) -> None:
    for index in range(len(phase.calls)):
        _stop_call(draft, index, feedback.STOPPED if correction is None else feedback.CORRECTED)
    stopping = Stopping(round_id=phase.round_id, model=phase.model, calls=draft.calls(), correction=correction)
    draft.set_phase(stopping)
    rounds.continue_round(draft)


def _stop_call(draft: StepDraft, index: int, text: str) -> None:
    call, status = draft.calls()[index].call, draft.calls()[index].status
    match status:
        case Started():
            questions.void_question(draft, index, "you stopped the call")
            draft.effects.append(CancelTool(call_id=call.id))
        case Settled():
            pass
        case Reconciling(attempt=attempt, known=known):
            _leave_unknown(draft, index, attempt, known)
        case AwaitingDecision(attempt=attempt, interruption=known) as waiting if waiting.outcome_unknown:
            _leave_unknown(draft, index, attempt, known)
        case _:
            calls.settle_unrun(draft, index, Outcome.INTERRUPTED, text, source=ResultSource.STOPPED)


def _leave_unknown(draft: StepDraft, index: int, attempt: int, known: Interruption | None) -> None:
    result = feedback.unknown_result(known)
    draft.close_attempt(index, attempt, result)
    calls.settle_call(draft, index, result, verdict=None, decided_by="", facts=None)

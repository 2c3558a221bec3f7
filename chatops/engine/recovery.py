"""Crash recovery of a turn: continue from a checkpoint without guessing what happened.

Theory of operation

A process may die at any moment. The checkpoint and the journal then show how far each call was, because a step is
committed before its effects are performed. A call that was never `Started` has not run. A call that is `Started`
without a result may or may not have taken effect. Recovery turns the `Recover` input into one step that continues
from there.

The turn gets the intersection of its stored grant and the one of the current registry. So a restart can take rights
away and cannot add any.

By phase:

- AwaitingModel: send the request again, and say so: text that had streamed in is lost. Say nothing if the process
  before this one has left the request to it: it was never sent.
- CheckingAnswer: check the answer again. Checking changes nothing.
- InRound, Stopping: recover each call, then start what may start. Say so if a call ran in InRound: an undo, or a turn
  that is handed over, begins as one whose calls are still inspected.
- Finished: do nothing.

By status of the call:

- Inspecting, Rechecking: inspect again.
- Deferred, Settled: unchanged. Permitted: a stored approval is honoured once, if the last inspection shows the same
  digest.
- AwaitingDecision: ask again, with what is known of the interrupted attempt.
- Started, read-only or idempotent tool: close the attempt as interrupted and run it again.
- Started, reconcilable tool: ask the tool whether the attempt took effect (`Reconciling`). Its reply goes to
  `apply_reconciliation`: a result settles the call, "certainly not" runs it again, anything else asks the user.
- Started in the copy of a contained turn: settle as interrupted. It changed nothing but the copy.
- Started on another machine, where it may still be running: never run again and never reconciled. A read-only tool
  settles as interrupted, any other one asks the user.
- Started, any other tool: ask the user (`AskReason.OUTCOME_UNKNOWN`). No rule answers for the user here.

In phase Stopping nothing is run again and the user is not asked, since the turn was cancelled. Such a call is settled:
as interrupted without effect if that is certain, else with outcome unknown.

A copied store is a second case of doubt. The other copy may run, or have run, the same calls. So an approval given
before the copy lets nothing run here, except read-only tools: such a call asks again (`AskReason.COPIED`).

In phase InRound the spec of a tool comes from the grant that the call was proposed under.
"""

from collections.abc import Mapping
from dataclasses import replace

from chatops.domain.events import AskReason
from chatops.domain.ids import CallId
from chatops.domain.sandbox import NARROWEST
from chatops.domain.tools import Interruption, Outcome, Processes, ToolResult
from chatops.engine import acceptance, calls, containment, delegation, feedback, questions, rounds, step_limits
from chatops.engine.draft import StepDraft
from chatops.engine.effects import ReconcileTool
from chatops.engine.inputs import ReconcileInput
from chatops.engine.state import (
    AwaitingDecision,
    AwaitingModel,
    CheckingAnswer,
    Finished,
    InRound,
    Inspecting,
    Permitted,
    Rechecking,
    Reconciling,
    Started,
    Stopping,
    TurnState,
    with_permit,
)
from chatops.engine.view import waits_for_child
from chatops.policy.grant import Grant

STOPPED_WHILE_RUNNING = "the app stopped while it ran"
STOPPED_WITH_QUESTION = f"{STOPPED_WHILE_RUNNING} and a question of its server to you was open, without an answer"
STOPPED_IN_COPY = (
    "Interrupted by a restart. It ran in the copy of the workspace and may be half done; look before you go on."
)
INTERRUPTED = "This turn was interrupted."
SENT_AGAIN = f"{INTERRUPTED} The request is sent again; the text of an answer that was cut off is not stored."
NO_EFFECT = "Interrupted before it took effect."


def recover(
    draft: StepDraft, grant: Grant, interrupted: tuple[Interruption, ...], *, copied: bool = False, unsent: str = ""
) -> None:
    """Continue from a checkpoint under what both the stored grant and `grant` permit.

    `copied` is True if the checkpoint comes from another copy of the store. `unsent`: see `Recover`.
    """
    if isinstance(draft.state.phase, Finished):
        return
    draft.set_grant(draft.state.grant.intersection(grant))
    if draft.state.command is not None:
        # What was typed before a restart asks in the dialog.
        draft.state = replace(draft.state, command=replace(draft.state.command, decides=False))
    known_of = {(attempt.call_id, attempt.attempt): attempt for attempt in interrupted}
    _warn_of_interruption(draft, unsent)
    match draft.state.phase:
        case AwaitingModel() as phase:
            draft.set_phase(replace(phase, under=draft.state.grant, model=""))
            rounds.send_request(draft)
        case CheckingAnswer():
            acceptance.request_check(draft)
        case InRound() | Stopping() as phase:
            if copied and isinstance(phase, InRound):
                draft.set_phase(replace(phase, copied=True))
            for index in range(len(draft.calls())):
                if not (copied and _ask_in_copy(draft, index, known_of)):
                    _recover_call(draft, index, known_of)
            rounds.continue_round(draft)


def _warn_of_interruption(draft: StepDraft, unsent: str) -> None:
    match draft.state.phase:
        case AwaitingModel(round_id=round_id) if round_id != unsent:
            draft.warn(SENT_AGAIN)
            draft.count_cut_off()
        case InRound(calls=states) if any(isinstance(call.status, Started | Reconciling) for call in states):
            if not waits_for_child(draft.state):
                draft.warn(INTERRUPTED)
        case _:
            pass


def unknown_attempts(state: TurnState) -> tuple[tuple[CallId, int], ...]:
    """Return the attempts that `Recover` should report on.

    These are the attempts that were running when the state was stored, and those that wait for a decision without any
    stored knowledge of the interruption.
    """
    calls = state.phase.calls if isinstance(state.phase, InRound | Stopping) else ()
    unknown: list[tuple[CallId, int]] = []
    for call in calls:
        match call.status:
            case Started(attempt=attempt) | Reconciling(attempt=attempt, known=None):
                unknown.append((call.call.id, attempt))
            case AwaitingDecision(attempt=attempt, interruption=None) as waiting if waiting.outcome_unknown:
                unknown.append((call.call.id, attempt))
            case _:
                pass
    return tuple(unknown)


def apply_reconciliation(draft: StepDraft, index: int, status: Reconciling, reply: ReconcileInput) -> None:
    """Apply what the tool found out about an interrupted attempt."""
    call = draft.calls()[index].call
    stopping = isinstance(draft.state.phase, Stopping)
    if reply.result is not None:
        result = reply.result
        if step_limits.is_evidence(draft.state, call.name):
            # A validation that took effect has not necessarily passed.
            result = replace(result, outcome=Outcome.UNKNOWN)
        _settle_attempt(draft, index, status, result)
    elif reply.repeat and stopping:
        _settle_attempt(draft, index, status, ToolResult(outcome=Outcome.INTERRUPTED, content=NO_EFFECT))
    elif reply.repeat:
        draft.close_attempt(index, status.attempt, ToolResult(outcome=Outcome.INTERRUPTED, content=NO_EFFECT))
        draft.set_status(index, with_permit(status, Permitted))
    elif stopping:
        _settle_attempt(draft, index, status, feedback.unknown_result(status.known, reply.found))
    else:
        _ask_outcome(draft, index, status, why=reply.found or STOPPED_WHILE_RUNNING, known=status.known)
    rounds.continue_round(draft)


def _ask_in_copy(draft: StepDraft, index: int, known_of: Mapping[tuple[CallId, int], Interruption]) -> bool:
    """Ask about a call of a copied store that may have run in the other copy; return False if it cannot have.

    An approval was for one run, which may have been in the other copy. A call that waits there too is only marked.
    """
    call, why = draft.calls()[index], calls.COPIED_REASON
    match call.status:
        case Permitted() | Rechecking() as status if calls.may_have_run_elsewhere(draft, index):
            attempt, earlier = status.attempt, status.interruption
            calls.ask_user(draft, index, status.facts, AskReason.COPIED, why=why, attempt=attempt, interruption=earlier)
            return True
        case Started() | Reconciling() as status if _may_run_elsewhere(draft, index):
            questions.void_question(draft, index, STOPPED_WHILE_RUNNING)
            _ask_outcome(draft, index, status, why=why, known=known_of.get((call.call.id, status.attempt)))
            return True
        case AwaitingDecision() as status if not status.outcome_unknown:
            # Still pending in the copy, even if it was approved in the original store.
            draft.set_status(index, _mark_as_copied(status))
        case _:
            pass
    return False


def _mark_as_copied(status: AwaitingDecision) -> AwaitingDecision:
    # An earlier recovery of this checkpoint may have asked already, before its process was killed.
    if status.copied:
        return status
    reason = AskReason.COPIED if status.reason is AskReason.POLICY else status.reason
    why = "; ".join(part for part in (status.why, calls.COPIED_REASON) if part)
    return replace(status, reason=reason, why=why, copied=True)


def _recover_call(draft: StepDraft, index: int, known_of: Mapping[tuple[CallId, int], Interruption]) -> None:
    call, status = draft.calls()[index].call, draft.calls()[index].status
    if isinstance(status, Inspecting | Rechecking):
        # The effect was lost with its process; the status already waits for what the inspection finds.
        calls.inspect_call(draft, call, status.extra if isinstance(status, Rechecking) else NARROWEST)
    if not isinstance(status, Started | Reconciling | AwaitingDecision):
        return
    known = known_of.get((call.id, status.attempt))
    stopping = isinstance(draft.state.phase, Stopping)
    match status:
        case Started(question=question):
            questions.void_question(draft, index, STOPPED_WHILE_RUNNING)
            why = STOPPED_WHILE_RUNNING if question is None else STOPPED_WITH_QUESTION
            _recover_started(draft, index, replace(status, question=None), known, why=why)
        case Reconciling() if not stopping and _is_on_other_machine(known):
            _ask_outcome(draft, index, status, why=STOPPED_WHILE_RUNNING, known=known)
        case Reconciling():
            _reconcile(draft, index, status, status.known or known)
        case AwaitingDecision():
            draft.set_status(index, replace(status, interruption=status.interruption or known))
            calls.request_approval(draft, calls.open_round(draft).round_id, call)


def _may_run_elsewhere(draft: StepDraft, index: int) -> bool:
    """Return True for a call that was running when the store was copied, and could be repeated here.

    A contained one works on no copy of this store. A child turn is a session, whose own calls ask.
    """
    call, status = draft.calls()[index].call, draft.calls()[index].status
    if not isinstance(draft.state.phase, InRound) or containment.is_apply_round(draft):
        return False
    contained = isinstance(status, Started) and bool(status.facts.contained)
    return calls.may_have_run_elsewhere(draft, index) and not contained and not delegation.delegates(draft, call)


def _is_on_other_machine(known: Interruption | None) -> bool:
    return known is not None and known.processes is Processes.OTHER_MACHINE


def _reconcile(draft: StepDraft, index: int, status: Started | Reconciling, known: Interruption | None) -> None:
    """Ask the tool whether the attempt took effect, with what is `known` of it."""
    call, stopping = draft.calls()[index].call, isinstance(draft.state.phase, Stopping)
    draft.set_status(index, with_permit(status, Reconciling, known=known))
    draft.effects.append(ReconcileTool(call=call, facts=status.facts, attempt=status.attempt, stopping=stopping))


def _recover_started(draft: StepDraft, index: int, status: Started, known: Interruption | None, *, why: str) -> None:
    call = draft.calls()[index].call
    spec, stopping = draft.spec(call.name), isinstance(draft.state.phase, Stopping)
    elsewhere = _is_on_other_machine(known)
    if containment.is_apply_round(draft):
        _reconcile(draft, index, status, known)
    elif status.facts.contained:
        _settle_attempt(draft, index, status, ToolResult(outcome=Outcome.INTERRUPTED, content=STOPPED_IN_COPY))
    elif spec is not None and (stopping or elsewhere) and spec.read_only:
        _settle_attempt(draft, index, status, ToolResult(outcome=Outcome.INTERRUPTED, content=NO_EFFECT))
    elif spec is not None and (spec.read_only or spec.idempotent) and not stopping and not elsewhere:
        result = ToolResult(outcome=Outcome.INTERRUPTED, content=feedback.REPEATED_AFTER_RESTART)
        draft.close_attempt(index, status.attempt, result)
        draft.set_status(index, with_permit(status, Permitted))
    elif spec is not None and spec.reconcilable and not elsewhere:
        _reconcile(draft, index, status, known)
    elif stopping:
        _settle_attempt(draft, index, status, feedback.unknown_result(known))
    else:
        _ask_outcome(draft, index, status, why=why, known=known)


def _ask_outcome(
    draft: StepDraft, index: int, status: Started | Reconciling, *, why: str, known: Interruption | None
) -> None:
    attempt, reason = status.attempt, AskReason.OUTCOME_UNKNOWN
    known = known or Interruption(call_id=draft.calls()[index].call.id, attempt=attempt)
    calls.ask_user(draft, index, status.facts, reason, why=why, attempt=attempt, interruption=known)


def _settle_attempt(draft: StepDraft, index: int, status: Started | Reconciling, result: ToolResult) -> None:
    draft.close_attempt(index, status.attempt, result)
    calls.settle_call(draft, index, result, verdict=status.verdict, decided_by=status.decided_by, facts=status.facts)

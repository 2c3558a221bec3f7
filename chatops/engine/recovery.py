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
- InRound, Stopping: recover each call, then start what may start.
- Finished: do nothing.

By status of the call:

- Inspecting, Rechecking: inspect again.
- Deferred, Settled: unchanged. Permitted: a stored approval is honoured once, if the last inspection shows the same
  digest.
- AwaitingDecision: ask again, with what is known of the interrupted attempt.
- Started, read-only or idempotent tool: close the attempt as interrupted and run it again.
- Started, reconcilable tool: ask the tool whether the attempt took effect (`Reconciling`). `reconciled` takes the
  reply: a result settles the call, "certainly not" runs it again, anything else asks the user.
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
from chatops.domain.tools import Interruption, Outcome, Processes, ToolCall, ToolResult
from chatops.engine import acceptance, calls, containment, delegation, feedback, questions, rounds, sequence
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
from chatops.policy.grant import Grant

LOST = "the app stopped while it ran"
UNANSWERED = f"{LOST} and a question of its server to you was open, without an answer"
IN_COPY = "Interrupted by a restart. It ran in the copy of the workspace and may be half done; look before you go on."
SENT_AGAIN = "The request is sent again; the text of an answer that was cut off is not stored."
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
    known = {(attempt.call_id, attempt.attempt): attempt for attempt in interrupted}
    match draft.state.phase:
        case AwaitingModel() as phase:
            draft.set_phase(replace(phase, under=draft.state.grant, model=""))
            if phase.round_id != unsent:
                draft.warn(SENT_AGAIN)
                draft.count_cut_off()
            rounds.send(draft)
        case CheckingAnswer():
            acceptance.ask(draft)
        case InRound() | Stopping() as phase:
            if copied and isinstance(phase, InRound):
                draft.set_phase(replace(phase, copied=True))
            for index, call in enumerate(draft.calls()):
                match call.status:
                    case Permitted() | Rechecking() as status if copied and calls.may_have_run_elsewhere(draft, index):
                        _ask_in_copy(draft, index, status)
                        continue
                    case AwaitingDecision() as status if copied and not status.outcome_unknown:
                        # Still pending in the copy, even if it was approved in the original store.
                        draft.put_call(index, replace(call, status=_marked_as_copied(status)))
                    case Started() | Reconciling() as status if copied and _may_run_elsewhere(draft, index):
                        questions.void(draft, index, LOST)
                        _ask(draft, index, status, why=calls.COPIED, known=known.get((call.call.id, status.attempt)))
                        continue
                    case _:
                        pass
                _recover_call(draft, index, known)
            rounds.continue_round(draft)


def unknown_attempts(state: TurnState) -> tuple[tuple[CallId, int], ...]:
    """Return the attempts that `Recover` should report on.

    These are the attempts that were running when the state was stored, and those that wait for a decision without any
    stored knowledge of the interruption.
    """
    calls = state.phase.calls if isinstance(state.phase, InRound | Stopping) else ()
    found: list[tuple[CallId, int]] = []
    for call in calls:
        match call.status:
            case Started(attempt=attempt) | Reconciling(attempt=attempt, known=None):
                found.append((call.call.id, attempt))
            case AwaitingDecision(attempt=attempt, interruption=None) as waiting if waiting.outcome_unknown:
                found.append((call.call.id, attempt))
            case _:
                pass
    return tuple(found)


def reconciled(draft: StepDraft, index: int, status: Reconciling, found: ReconcileInput) -> None:
    """Apply what the tool found out about an interrupted attempt."""
    one = draft.calls()[index]
    stopping = isinstance(draft.state.phase, Stopping)
    if found.result is not None:
        result = found.result
        if sequence.is_evidence(draft.state, one.call.name):
            # A validation that took effect has not necessarily passed.
            result = replace(result, outcome=Outcome.UNKNOWN)
        _settle(draft, index, status, result)
    elif found.repeat and stopping:
        _settle(draft, index, status, ToolResult(outcome=Outcome.INTERRUPTED, content=NO_EFFECT))
    elif found.repeat:
        draft.close_attempt(one, status.attempt, ToolResult(outcome=Outcome.INTERRUPTED, content=NO_EFFECT))
        draft.put_call(index, replace(one, status=with_permit(status, Permitted)))
    elif stopping:
        _settle(draft, index, status, feedback.unknown_result(status.known, found.found))
    else:
        _ask(draft, index, status, why=found.found or LOST, known=status.known)
    rounds.continue_round(draft)


def _ask_in_copy(draft: StepDraft, index: int, status: Permitted | Rechecking) -> None:
    """Ask again for a call that was approved: the approval was for one run, which may have been in the other copy."""
    calls.ask(
        draft,
        index,
        status.facts,
        AskReason.COPIED,
        why=calls.COPIED,
        attempt=status.attempt,
        interruption=status.interruption,
    )


def _marked_as_copied(status: AwaitingDecision) -> AwaitingDecision:
    # An earlier recovery of this checkpoint may have asked already, before its process was killed.
    if status.copied:
        return status
    reason = AskReason.COPIED if status.reason is AskReason.POLICY else status.reason
    why = "; ".join(part for part in (status.why, calls.COPIED) if part)
    return replace(status, reason=reason, why=why, copied=True)


def _recover_call(draft: StepDraft, index: int, known: Mapping[tuple[CallId, int], Interruption]) -> None:
    one = draft.calls()[index]
    stopping = isinstance(draft.state.phase, Stopping)
    match one.status:
        case Inspecting():
            calls.inspect(draft, one.call)
        case Rechecking(extra=extra):
            calls.inspect(draft, one.call, extra)
        case Started() as status:
            questions.void(draft, index, LOST)
            why = LOST if status.question is None else UNANSWERED
            status = replace(status, question=None)
            _recover_started(draft, index, status, known.get((one.call.id, status.attempt)), why=why)
        case Reconciling() as status if not stopping and _is_elsewhere(known.get((one.call.id, status.attempt))):
            _ask(draft, index, status, why=LOST, known=known.get((one.call.id, status.attempt)))
        case Reconciling() as status:
            found = status.known or known.get((one.call.id, status.attempt))
            draft.put_call(index, replace(one, status=replace(status, known=found)))
            _reconcile(draft, one.call, status)
        case AwaitingDecision() as status:
            found = status.interruption or known.get((one.call.id, status.attempt))
            draft.put_call(index, replace(one, status=replace(status, interruption=found)))
            calls.request_approval(draft, calls.in_round(draft).round_id, one.call)
        case _:
            pass


def _may_run_elsewhere(draft: StepDraft, index: int) -> bool:
    """Return True for a call that was running when the store was copied, and could be repeated here.

    A contained one works on no copy of this store. A child turn is a session, whose own calls ask.
    """
    one = draft.calls()[index]
    if not isinstance(draft.state.phase, InRound) or containment.is_apply_round(draft):
        return False
    contained = isinstance(one.status, Started) and bool(one.status.facts.contained)
    return calls.may_have_run_elsewhere(draft, index) and not contained and not delegation.delegates(draft, one.call)


def _is_elsewhere(known: Interruption | None) -> bool:
    return known is not None and known.processes is Processes.OTHER_MACHINE


def _reconcile(draft: StepDraft, call: ToolCall, status: Started | Reconciling) -> None:
    stopping = isinstance(draft.state.phase, Stopping)
    draft.effects.append(ReconcileTool(call=call, facts=status.facts, attempt=status.attempt, stopping=stopping))


def _recover_started(draft: StepDraft, index: int, status: Started, known: Interruption | None, *, why: str) -> None:
    one = draft.calls()[index]
    spec = draft.state.grant.tool(one.call.name)
    phase = draft.state.phase
    if isinstance(phase, InRound):
        spec = phase.proposed_under.tool(one.call.name)
    stopping = isinstance(phase, Stopping)
    elsewhere = _is_elsewhere(known)
    if containment.is_apply_round(draft):
        draft.put_call(index, replace(one, status=with_permit(status, Reconciling, known=known)))
        _reconcile(draft, one.call, status)
    elif status.facts.contained:
        _settle(draft, index, status, ToolResult(outcome=Outcome.INTERRUPTED, content=IN_COPY))
    elif spec is not None and (stopping or elsewhere) and spec.read_only:
        _settle(draft, index, status, ToolResult(outcome=Outcome.INTERRUPTED, content=NO_EFFECT))
    elif spec is not None and (spec.read_only or spec.idempotent) and not stopping and not elsewhere:
        result = ToolResult(outcome=Outcome.INTERRUPTED, content=feedback.REPEATED_AFTER_RESTART)
        draft.close_attempt(one, status.attempt, result)
        draft.put_call(index, replace(one, status=with_permit(status, Permitted)))
    elif spec is not None and spec.reconcilable and not elsewhere:
        draft.put_call(index, replace(one, status=with_permit(status, Reconciling, known=known)))
        _reconcile(draft, one.call, status)
    elif stopping:
        _settle(draft, index, status, feedback.unknown_result(known))
    else:
        _ask(draft, index, status, why=why, known=known)


def _ask(draft: StepDraft, index: int, status: Started | Reconciling, *, why: str, known: Interruption | None) -> None:
    call_id = draft.calls()[index].call.id
    calls.ask(
        draft,
        index,
        status.facts,
        AskReason.OUTCOME_UNKNOWN,
        why=why,
        attempt=status.attempt,
        interruption=known or Interruption(call_id=call_id, attempt=status.attempt),
    )


def _settle(draft: StepDraft, index: int, status: Started | Reconciling, result: ToolResult) -> None:
    draft.close_attempt(draft.calls()[index], status.attempt, result)
    calls.settle_with(draft, index, result, verdict=status.verdict, decided_by=status.decided_by, facts=status.facts)

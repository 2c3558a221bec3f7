"""After a restart: nothing that was in flight is in flight any more, and nothing is guessed.

What changes nothing or can be repeated is repeated, what can be checked is checked, a stored approval is
honoured once if it still holds, and what may have taken effect waits for a person.
"""

from collections.abc import Mapping
from dataclasses import replace

from chatops.domain.events import AskReason
from chatops.domain.ids import CallId
from chatops.domain.interruption import Interruption
from chatops.domain.tools import Outcome, ToolResult
from chatops.engine import calls, doubt, feedback, rounds, sequence, submission
from chatops.engine.draft import Draft
from chatops.engine.effects import InspectCall, ReconcileTool
from chatops.engine.inputs import ToolReconciled
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
)
from chatops.policy.grant import Grant

LOST = "the app stopped while it ran"
NO_EFFECT = "Interrupted before it took effect."


def recover(draft: Draft, grant: Grant, interrupted: tuple[Interruption, ...], *, copied: bool = False) -> None:
    """Go on from a checkpoint under what the stored grant and `grant` both permit; `copied`: in a copy of the store."""
    if isinstance(draft.state.phase, Finished):
        return
    draft.set_grant(draft.state.grant.met(grant))
    known = {(one.call_id, one.attempt): one for one in interrupted}
    match draft.state.phase:
        case AwaitingModel() as phase:
            draft.set_phase(replace(phase, under=draft.state.grant))
            rounds.send(draft)
        case CheckingAnswer():
            submission.ask(draft)
        case InRound() | Stopping() as phase:
            if copied and isinstance(phase, InRound):
                draft.set_phase(replace(phase, copied=True))
            for index, one in enumerate(draft.calls()):
                match one.status:
                    case Permitted() | Rechecking() as status if copied and calls.may_have_run_elsewhere(draft, index):
                        _ask_in_copy(draft, index, status)
                        continue
                    case AwaitingDecision() as status if copied and not status.in_doubt:
                        # Who has approved it where this is a copy from finds it waiting.
                        draft.put_call(index, replace(one, status=_asked_in_copy(status)))
                    case _:
                        pass
                _recover_call(draft, index, known)
            rounds.go_on(draft)


def attempts_in_doubt(state: TurnState) -> tuple[tuple[CallId, int], ...]:
    """The attempts that `Recovered` should say something of: under way when the state was stored, or, in states of
    before that was kept, waiting for a person's word without anything known of them."""
    calls = state.phase.calls if isinstance(state.phase, InRound | Stopping) else ()
    found: list[tuple[CallId, int]] = []
    for one in calls:
        match one.status:
            case Started(attempt=attempt) | Reconciling(attempt=attempt, known=None):
                found.append((one.call.id, attempt))
            case AwaitingDecision(attempt=attempt, interruption=None) as waiting if waiting.in_doubt:
                found.append((one.call.id, attempt))
            case _:
                pass
    return tuple(found)


def reconciled(draft: Draft, index: int, status: Reconciling, found: ToolReconciled) -> None:
    """The tool has looked at the world."""
    one = draft.calls()[index]
    stopping = isinstance(draft.state.phase, Stopping)
    if found.result is not None:
        result = found.result
        if sequence.is_evidence(draft.state, one.call.name):
            # That it took effect says nothing of whether it passed.
            result = replace(result, outcome=Outcome.UNKNOWN)
        _close(draft, index, status, result)
    elif found.repeat and stopping:
        _close(draft, index, status, ToolResult(outcome=Outcome.INTERRUPTED, content=NO_EFFECT))
    elif found.repeat:
        draft.close_attempt(one, status.attempt, ToolResult(outcome=Outcome.INTERRUPTED, content=NO_EFFECT))
        draft.put_call(index, replace(one, status=_again(status)))
    elif stopping:
        _close(draft, index, status, doubt.told_unknown(status.known, found.found))
    else:
        _ask(draft, index, status, why=found.found or LOST, known=status.known)
    rounds.go_on(draft)


def _ask_in_copy(draft: Draft, index: int, status: Permitted | Rechecking) -> None:
    """The word that lets a call run was for one run, which may have been in the other copy."""
    calls.ask(
        draft,
        index,
        status.facts,
        AskReason.COPIED,
        why=calls.COPIED,
        attempt=status.attempt,
        interruption=status.interruption,
    )


def _asked_in_copy(status: AwaitingDecision) -> AwaitingDecision:
    reason = AskReason.COPIED if status.reason is AskReason.POLICY else status.reason
    # A process that was killed before it could note that this was said has said it already.
    known = status.why.endswith(calls.COPIED)
    why = status.why if known else "; ".join(part for part in (status.why, calls.COPIED) if part)
    return replace(status, reason=reason, why=why)


def _recover_call(draft: Draft, index: int, known: Mapping[tuple[CallId, int], Interruption]) -> None:
    one = draft.calls()[index]
    match one.status:
        case Inspecting() | Rechecking():
            draft.effects.append(InspectCall(call=one.call))
        case Started() as status:
            _recover_started(draft, index, status, known.get((one.call.id, status.attempt)))
        case Reconciling() as status:
            seen = status.known or known.get((one.call.id, status.attempt))
            draft.put_call(index, replace(one, status=replace(status, known=seen)))
            draft.effects.append(ReconcileTool(call=one.call, facts=status.facts, attempt=status.attempt))
        case AwaitingDecision() as status:
            seen = status.interruption or known.get((one.call.id, status.attempt))
            draft.put_call(index, replace(one, status=replace(status, interruption=seen)))
            calls.request_approval(draft, calls.in_round(draft).round_id, one.call)
        case _:
            pass


def _recover_started(draft: Draft, index: int, status: Started, known: Interruption | None) -> None:
    one = draft.calls()[index]
    spec = draft.state.grant.tool(one.call.name)
    phase = draft.state.phase
    if isinstance(phase, InRound):
        spec = phase.proposed_under.tool(one.call.name)
    stopping = isinstance(phase, Stopping)
    if spec is not None and stopping and spec.read_only:
        _close(draft, index, status, ToolResult(outcome=Outcome.INTERRUPTED, content=NO_EFFECT))
    elif spec is not None and (spec.read_only or spec.idempotent) and not stopping:
        result = ToolResult(outcome=Outcome.INTERRUPTED, content=feedback.REPEATED_AFTER_RESTART)
        draft.close_attempt(one, status.attempt, result)
        draft.put_call(index, replace(one, status=_again(status)))
    elif spec is not None and spec.reconcilable:
        reconciling = Reconciling(
            facts=status.facts,
            digest=status.digest,
            verdict=status.verdict,
            decided_by=status.decided_by,
            attempt=status.attempt,
            interruption=status.interruption,
            known=known,
        )
        draft.put_call(index, replace(one, status=reconciling))
        draft.effects.append(ReconcileTool(call=one.call, facts=status.facts, attempt=status.attempt))
    elif stopping:
        _close(draft, index, status, doubt.told_unknown(known))
    else:
        _ask(draft, index, status, why=LOST, known=known)


def _ask(draft: Draft, index: int, status: Started | Reconciling, *, why: str, known: Interruption | None) -> None:
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


def _again(status: Started | Reconciling) -> Permitted:
    return Permitted(
        facts=status.facts,
        digest=status.digest,
        verdict=status.verdict,
        decided_by=status.decided_by,
        attempt=status.attempt,
        interruption=status.interruption,
    )


def _close(draft: Draft, index: int, status: Started | Reconciling, result: ToolResult) -> None:
    draft.close_attempt(draft.calls()[index], status.attempt, result)
    calls.settle_with(draft, index, result, verdict=status.verdict, decided_by=status.decided_by, facts=status.facts)

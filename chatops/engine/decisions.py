"""Decisions on pending calls: approved, edited, rejected, or marked as done."""

from collections.abc import Mapping
from dataclasses import replace

from chatops.domain.canonical import canonical, parse_json
from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Principal, Rejected, RememberedRule
from chatops.domain.events import AskReason, CallDecided
from chatops.domain.sandbox import NARROWEST
from chatops.domain.tools import CallFacts, Interruption, Outcome, ResultFacts, ResultSource, ToolResult, Verdict
from chatops.engine import budgets, calls, containment, feedback, sequence
from chatops.engine.draft import StepDraft
from chatops.engine.effects import DecisionRecord
from chatops.engine.state import AwaitingDecision, BeforeEdit, CallState, Inspecting, Permitted
from chatops.policy.remembered import rule_from

DIALOG = "tui"
"""`Principal.via` of the approval dialog."""


def decided(draft: StepDraft, index: int, decision: Decision, by: Principal) -> None:
    """Apply the user's decision on a pending call. The caller has compared the digest."""
    phase = calls.in_round(draft)
    one = phase.calls[index]
    status = one.status
    if not isinstance(status, AwaitingDecision):
        return
    contained = containment.is_apply_round(draft)
    if not _applies(draft, one, status, decision, by):
        return
    draft.decisions.append(
        DecisionRecord(call_id=one.call.id, tool=one.call.name, digest=status.digest, decision=decision, by=by)
    )
    draft.events.append(CallDecided(id=one.call.id, parent_id=phase.round_id, decision=decision, by=by))
    if phase.budget is not None:
        budgets.decided(draft, phase.budget, decision, by)
        return
    match decision:
        case Approved():
            _apply_approval(draft, index, status, decision, by)
        case Edited(arguments=arguments):
            before = BeforeEdit(
                arguments=one.call.arguments, status=status, edited_by=str(by), repairs=one.call.repairs
            )
            call = replace(one.call, arguments=arguments, repairs=(), problem="")
            draft.put_call(index, CallState(call=call, status=Inspecting(before_edit=before)))
            calls.inspect(draft, call)
        case Rejected(reason=reason) if status.outcome_unknown:
            _settle_unknown(draft, index, status, feedback.unknown_result(status.interruption, reason), by)
        case Rejected(reason=reason, send_back=back):
            if contained and back:
                containment.send_back(draft)
            result = ToolResult(outcome=Outcome.DENIED, content=_denial_text(draft, reason, by))
            if draft.state.gate is None:
                result = replace(result, facts=ResultFacts(source=ResultSource.USER, reason=reason))
            calls.settle_with(draft, index, result, verdict=Verdict.ASK, decided_by=str(by), facts=None)
        case MarkedDone(note=note):
            # A validation that took effect has not necessarily passed.
            outcome = Outcome.UNKNOWN if sequence.is_evidence(draft.state, one.call.name) else Outcome.SUCCESS
            _settle_unknown(draft, index, status, feedback.done_result(status.interruption, outcome, note), by)


def _applies(draft: StepDraft, one: CallState, status: AwaitingDecision, decision: Decision, by: Principal) -> bool:
    """Return True if the decision can be taken on this call, by this user or program."""
    if calls.in_round(draft).budget is not None:
        return budgets.can_decide(decision, by)
    if containment.is_apply_round(draft):
        denied = calls.judge_call(draft, one.call, status.facts).verdict is Verdict.DENY
        # Refusing to apply the changes of a contained turn must not discard them: they stay pending.
        if isinstance(decision, Edited) or (isinstance(decision, Approved) and (denied or not by.is_person)):
            return False
        # After an undo no model is there to continue.
        if containment.is_undo(draft) and isinstance(decision, Rejected) and decision.send_back:
            return False
    if isinstance(decision, Approved) and decision.extra != NARROWEST:
        return _may_give_extra(status, decision, by)
    # A call with unknown outcome is not edited: other arguments would be another call.
    unknown = status.reason is AskReason.OUTCOME_UNKNOWN
    if unknown and isinstance(decision, Edited):
        return False
    return status.outcome_unknown or not isinstance(decision, MarkedDone)


def _may_give_extra(status: AwaitingDecision, decision: Approved, by: Principal) -> bool:
    """Return True if the decision gives what the dialog has offered: no program, rule or list of calls can."""
    offered = decision.extra == status.facts.extra and decision.remember is None
    return offered and by.via == DIALOG and not status.outcome_unknown


def _with_only(arguments: str, only: tuple[str, ...] | None) -> str:
    """Return the arguments of `CONTAINED_APPLY` with the changes that the user approved."""
    given = parse_json(arguments)
    kept = {name: value for name, value in given.items() if name != "only"} if isinstance(given, Mapping) else {}
    return canonical(kept if only is None else {**kept, "only": list(only)})


def _denial_text(draft: StepDraft, reason: str, by: Principal) -> str:
    if draft.state.gate is not None:
        return feedback.gate_denied(reason, by=str(by) if by.is_person else "")
    return feedback.denied(reason, by_user=by.is_person)


def _apply_approval(draft: StepDraft, index: int, status: AwaitingDecision, decision: Approved, by: Principal) -> None:
    phase = calls.in_round(draft)
    one = phase.calls[index]
    earlier = status.interruption
    if status.outcome_unknown:
        earlier = earlier or Interruption(call_id=one.call.id, attempt=status.attempt)
        draft.close_attempt(one, status.attempt, feedback.unknown_result(earlier))
    facts, digest = status.facts, calls.bound_by(draft, one.call, status)
    if containment.is_apply_round(draft):
        arguments = _with_only(one.call.arguments, decision.only)
        one = replace(one, call=replace(one.call, arguments=arguments))
        facts = replace(facts, arguments=arguments)
        digest = calls.call_digest(draft, one.call, facts)
    permitted = Permitted(
        facts=facts,
        digest=calls.with_extra(digest, decision.extra),
        verdict=Verdict.ASK,
        decided_by=str(by),
        attempt=status.attempt,
        interruption=earlier,
        extra=decision.extra,
    )
    draft.put_call(index, replace(one, status=permitted))
    judgement = calls.judge_call(draft, one.call, status.facts)
    if judgement.verdict is Verdict.DENY:
        calls.deny(draft, index, judgement, facts=status.facts)
        return
    if decision.remember is not None and not containment.is_apply_round(draft):
        role = phase.proposed_under.role
        rule = rule_from(one.call, status.facts, role=role, pattern=decision.remember, scope=decision.scope, uid=by.uid)
        _make_rule(draft, rule, status.facts)


def _make_rule(draft: StepDraft, rule: RememberedRule, facts: CallFacts) -> None:
    """Store a rule with the decision that made it. One that may not be made is left out, and the call runs once."""
    grants = (calls.in_round(draft).proposed_under, draft.state.grant)
    reason = next(filter(None, (grant.why_not_made(rule, facts) for grant in grants)), "")
    if reason:
        draft.warn(f"Approved once, and no rule was made: {reason}.", advice="The next such call asks again.")
    else:
        draft.rules.append(rule)


def _settle_unknown(draft: StepDraft, index: int, status: AwaitingDecision, result: ToolResult, by: Principal) -> None:
    one = calls.in_round(draft).calls[index]
    draft.close_attempt(one, status.attempt, result)
    calls.settle_with(draft, index, result, verdict=Verdict.ASK, decided_by=str(by), facts=status.facts)

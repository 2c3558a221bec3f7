"""Decisions on pending calls: approved, edited, rejected, or marked as done."""

from collections.abc import Mapping
from dataclasses import replace

from chatops.domain.canonical import canonical, parse_json
from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Principal, Rejected, RememberedRule
from chatops.domain.events import AskReason, CallDecided
from chatops.domain.sandbox import NARROWEST
from chatops.domain.tools import (
    CallFacts,
    Interruption,
    Outcome,
    ResultFacts,
    ResultSource,
    ToolCall,
    ToolResult,
    Verdict,
)
from chatops.engine import budgets, calls, containment, feedback, step_limits
from chatops.engine.draft import StepDraft
from chatops.engine.effects import DecisionRecord
from chatops.engine.state import AwaitingDecision, BeforeEdit, CallState, Inspecting, Permitted
from chatops.policy.remembered import rule_from

DIALOG = "tui"
"""`Principal.via` of the approval dialog."""


def apply_decision(draft: StepDraft, index: int, decision: Decision, by: Principal) -> None:
    """Apply the user's decision on a pending call. The caller has compared the digest."""
    phase = calls.open_round(draft)
    call, status = phase.calls[index].call, phase.calls[index].status
    if not isinstance(status, AwaitingDecision) or not _can_apply(draft, call, status, decision, by):
        return
    draft.decisions.append(
        DecisionRecord(call_id=call.id, tool=call.name, digest=status.digest, decision=decision, by=by)
    )
    draft.events.append(CallDecided(id=call.id, parent_id=phase.round_id, decision=decision, by=by))
    if phase.budget is not None:
        budgets.apply_decision(draft, phase.budget, decision, by)
        return
    match decision:
        case Approved():
            _apply_approval(draft, index, status, decision, by)
        case Edited(arguments=arguments):
            before = BeforeEdit(arguments=call.arguments, status=status, edited_by=str(by), repairs=call.repairs)
            edited = replace(call, arguments=arguments, repairs=(), problem="")
            draft.put_call(index, CallState(call=edited, status=Inspecting(before_edit=before)))
            calls.inspect_call(draft, edited)
        case Rejected(reason=reason) if status.outcome_unknown:
            _settle_unknown(draft, index, status, feedback.unknown_result(status.interruption, reason), by)
        case Rejected(reason=reason, send_back=is_sent_back):
            if is_sent_back and containment.is_apply_round(draft):
                containment.send_back(draft)
            result = _denied_result(draft, reason, by)
            calls.settle_call(draft, index, result, verdict=Verdict.ASK, decided_by=str(by), facts=None)
        case MarkedDone(note=note):
            # A validation that took effect has not necessarily passed.
            outcome = Outcome.UNKNOWN if step_limits.is_evidence(draft.state, call.name) else Outcome.SUCCESS
            _settle_unknown(draft, index, status, feedback.done_result(status.interruption, outcome, note), by)


def _denied_result(draft: StepDraft, reason: str, by: Principal) -> ToolResult:
    if draft.state.gate is not None:
        text = feedback.gate_denied_text(reason, by=str(by) if by.is_person else "")
        return ToolResult(outcome=Outcome.DENIED, content=text)
    text = feedback.denied_text(reason, by_user=by.is_person)
    facts = ResultFacts(source=ResultSource.USER, reason=reason)
    return ToolResult(outcome=Outcome.DENIED, content=text, facts=facts)


def _can_apply(draft: StepDraft, call: ToolCall, status: AwaitingDecision, decision: Decision, by: Principal) -> bool:
    """Return True if the decision can be taken on this call, by this user or program."""
    if calls.open_round(draft).budget is not None:
        return budgets.is_valid_decision(decision, by)
    if containment.is_apply_round(draft):
        denied = calls.judge_call(draft, call, status.facts).verdict is Verdict.DENY
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


def _select_changes(arguments: str, only: tuple[str, ...] | None) -> str:
    """Return the arguments of `CONTAINED_APPLY` with `only` the changes that the user approved; None: all of them."""
    read = parse_json(arguments)
    others = {name: value for name, value in read.items() if name != "only"} if isinstance(read, Mapping) else {}
    return canonical(others if only is None else {**others, "only": list(only)})


def _apply_approval(draft: StepDraft, index: int, status: AwaitingDecision, decision: Approved, by: Principal) -> None:
    phase = calls.open_round(draft)
    call, earlier = phase.calls[index].call, status.interruption
    if status.outcome_unknown:
        earlier = earlier or Interruption(call_id=call.id, attempt=status.attempt)
        draft.close_attempt(index, status.attempt, feedback.unknown_result(earlier))
    facts, digest = status.facts, calls.approval_digest(draft, call, status)
    if containment.is_apply_round(draft):
        arguments = _select_changes(call.arguments, decision.only)
        call, facts = replace(call, arguments=arguments), replace(facts, arguments=arguments)
        digest = calls.call_digest(draft, call, facts)
    permitted = Permitted(
        facts=facts,
        digest=calls.digest_with_extra(digest, decision.extra),
        verdict=Verdict.ASK,
        decided_by=str(by),
        attempt=status.attempt,
        interruption=earlier,
        extra=decision.extra,
    )
    draft.put_call(index, CallState(call=call, status=permitted))
    judgement = calls.judge_call(draft, call, status.facts)
    if judgement.verdict is Verdict.DENY:
        calls.deny(draft, index, judgement, facts=status.facts)
        return
    if decision.remember is not None and not containment.is_apply_round(draft):
        role = phase.proposed_under.role
        rule = rule_from(call, status.facts, role=role, pattern=decision.remember, scope=decision.scope, uid=by.uid)
        _make_rule(draft, rule, status.facts)


def _make_rule(draft: StepDraft, rule: RememberedRule, facts: CallFacts) -> None:
    """Store a rule with the decision that made it. One that may not be made is left out, and the call runs once."""
    grants = (calls.open_round(draft).proposed_under, draft.state.grant)
    reason = next(filter(None, (grant.why_not_made(rule, facts) for grant in grants)), "")
    if reason:
        draft.warn(f"Approved once, and no rule was made: {reason}.", advice="The next such call asks again.")
    else:
        draft.rules.append(rule)


def _settle_unknown(draft: StepDraft, index: int, status: AwaitingDecision, result: ToolResult, by: Principal) -> None:
    draft.close_attempt(index, status.attempt, result)
    calls.settle_call(draft, index, result, verdict=Verdict.ASK, decided_by=str(by), facts=status.facts)

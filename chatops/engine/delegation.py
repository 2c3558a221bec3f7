"""Delegated calls: each is the turn of another role, in a session of its own, see `policy.delegation`.

The call is `Started` while the child works, as any other call is. What the user has to know of the child is a part of
that status (`Started.child`): its pending calls, and whether it is paused. So a turn whose children all wait for the
user is paused too, which ends an unattended run with the pending calls of its children. Decisions on them belong to the
child's session and never pass through this machine.

Recovery has no rule of its own for a child. At a restart the tool finds out from the child's stored turn whether it has
ended. If it has not, the attempt is repeated, and continues that turn.
"""

from dataclasses import replace
from typing import Any

from chatops.domain.events import ApprovalRequested
from chatops.domain.messages import AssistantMessage
from chatops.domain.tools import CallFacts, ToolCall, ToolResult, Verdict
from chatops.domain.usage import Usage, total
from chatops.domain.wording import plural
from chatops.engine.draft import StepDraft
from chatops.engine.inputs import ChildInput
from chatops.engine.state import InRound, RoundRecord, Started, TurnState
from chatops.engine.view import workspace_was_read
from chatops.policy.budget import strictest
from chatops.policy.delegation import MAX_IN_A_TURN
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Layer, Rule

CONTAINED_REFUSAL = "a contained turn does not delegate: the child would work on the workspace itself"
TOO_MANY_REFUSAL = f"a turn delegates at most {plural(MAX_IN_A_TURN, 'task')}"


def delegates(draft: StepDraft, call: ToolCall) -> bool:
    """Return True if a call is for a child turn."""
    spec = draft.spec(call.name)
    return isinstance(draft.state.phase, InRound) and spec is not None and spec.capabilities.delegates


def child_grant(draft: StepDraft, call: ToolCall) -> Grant | None:
    """Return the rights that a child turn is compared with and bound by; None for a call that does not delegate.

    Both the grant that the call was proposed under and the one in force count. Tools in a step's `order` or `once` are
    left out, unless they only read, because the step does not see a child's calls.
    """
    phase = draft.state.phase
    if not isinstance(phase, InRound) or not delegates(draft, call):
        return None
    now, contract = draft.state.grant, draft.state.contract
    both = now if phase.proposed_under == now else phase.proposed_under.intersection(now)
    counted = {*contract.order, *contract.once} if contract is not None else ()
    rules = tuple(
        Rule(tool=spec.name, verdict=Verdict.DENY) for spec in both.tools if spec.name in counted and not spec.read_only
    )
    return both.narrowed(Layer(name="tools that the step has in an order or once", rules=rules)) if rules else both


def child_fields(draft: StepDraft, call: ToolCall) -> dict[str, Any]:
    """Return what a child turn gets from its caller, as fields of `RunTool`; empty for a call that does not delegate.

    The child counts on from what its caller has spent, under the caller's budget too.
    """
    if (grant := child_grant(draft, call)) is None:
        return {}
    state = draft.state
    return {
        "grant": grant,
        "workspace_read": workspace_was_read(state),
        "spending": replace(state.spending, earlier=(*state.spending.earlier, *state.rounds), denied=False),
        "budget": strictest(state.grant.budget, state.grant.run_budget).plus(state.spending.added),
    }


def count_child(draft: StepDraft, facts: CallFacts | None, result: ToolResult) -> None:
    """Count what a child turn has used for the turn of its call: for the report, and against the budget."""
    if (used := result.facts.usage) is None or facts is None or facts.delegation is None:
        return
    state = draft.state
    record = _child_record(facts.delegation.role, used, result.duration_ms)
    spending = replace(state.spending, earlier=(*state.spending.earlier, record))
    draft.state = replace(state, usage=total(state.usage, used), spending=spending)


def spent_by(child: TurnState, parent: TurnState | None) -> RoundRecord:
    """Return what a child turn has spent until now, as `count_child` counts it at its end.

    The time in which it waits for the user is not counted, nor that of its parent's tools, from which it counts on.
    """
    before = parent.spending.tools_ms if parent is not None else 0
    worked = sum(record.duration_ms for record in child.rounds) + child.spending.tools_ms - before
    return _child_record(child.grant.role, child.usage, max(0, worked))


def _child_record(role: str, usage: Usage | None, duration_ms: int) -> RoundRecord:
    return RoundRecord(model=f"role {role}", finish_reason="", usage=usage, duration_ms=duration_ms)


def refuse_if_limited(draft: StepDraft, call: ToolCall, facts: CallFacts) -> CallFacts:
    """Return `facts` with the reason why the turn may not delegate at all, if there is one."""
    if not delegates(draft, call) or facts.refusal:
        return facts
    if draft.state.containment is not None:
        return replace(facts, refusal=CONTAINED_REFUSAL)
    is_too_many = _delegation_number(draft, call) > MAX_IN_A_TURN
    return replace(facts, refusal=TOO_MANY_REFUSAL) if is_too_many else facts


def _delegation_number(draft: StepDraft, call: ToolCall) -> int:
    """Return the place of a call among the delegations that the models of this turn have asked for, from 1."""
    replies = (message for message in draft.state.messages if isinstance(message, AssistantMessage))
    ids = [made.id for message in replies for made in message.calls if made.name == call.name]
    return ids.index(call.id) + 1 if call.id in ids else len(ids)


def apply_child_status(draft: StepDraft, index: int, call_input: ChildInput) -> None:
    """Note what the child of a running call waits for, and ask about calls that were not shown yet."""
    phase, status = draft.state.phase, draft.calls()[index].status
    if not isinstance(phase, InRound) or not isinstance(status, Started) or status.attempt != call_input.attempt:
        return
    shown = {(asked.call.id, asked.digest) for asked in status.child.pending} if status.child is not None else set()
    draft.set_status(index, replace(status, child=call_input.child))
    for pending in call_input.child.pending:
        if (pending.call.id, pending.digest) not in shown:
            draft.events.append(ApprovalRequested(id=call_input.call_id, parent_id=phase.round_id, pending=pending))

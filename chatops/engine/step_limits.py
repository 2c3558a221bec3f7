"""Limits on the calls of a workflow step: tools in order, tools that may succeed once, and calls not made again.

The limits are enforced here, not left to the prompt. A call is refused before anything else about it is checked. Only
the comparison with calls of earlier attempts needs its arguments, so it waits for the inspection.
"""

from collections.abc import Sequence

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import Message, ToolMessage
from chatops.domain.tools import CallFacts, Outcome, ResultFacts, ResultSource, ToolCall, ToolResult
from chatops.domain.wording import cut
from chatops.engine.contract import DoneCall, StepContract
from chatops.engine.draft import StepDraft
from chatops.engine.state import Settled, TurnState

MAX_RESULT_CHARS = 4_000
"""Characters of the result of a done call that are kept. A later attempt gets no more of it."""
_MAY_HAVE_EFFECT = (Outcome.SUCCESS, Outcome.UNKNOWN)
"""Outcomes of a call that has taken effect, or may have."""


@frozen_dataclass(kw_only=False)
class OutOfOrder:
    """Why a step does not allow a call now, as a clause, and advice for the model."""

    reason: str
    advice: str


def why_out_of_order(draft: StepDraft, index: int) -> OutOfOrder | None:
    """Return why the step does not allow the call now; None if it does."""
    contract = draft.state.contract
    if contract is None:
        return None
    tool = draft.calls()[index].call.name
    if missing := _missing_tools(draft, contract, index):
        return OutOfOrder(f"{tool} comes after {missing[0]}, which has not succeeded yet", f"Call {missing[0]} first.")
    if _is_used_up(draft, contract, index):
        return OutOfOrder(f"{tool} may be called once in this step, and was", "Use its result; do not go back to it.")
    return None


def waits_for_earlier_call(draft: StepDraft, index: int) -> bool:
    """Return True if every call that has to succeed first is in this round, before this call, and not settled yet."""
    contract = draft.state.contract
    tool = draft.calls()[index].call.name
    if contract is None or tool not in contract.order or _is_used_up(draft, contract, index):
        return False
    unsettled = {earlier.call.name for earlier in draft.calls()[:index] if not isinstance(earlier.status, Settled)}
    return unsettled.issuperset(_missing_tools(draft, contract, index))


def reused_result(draft: StepDraft, call: ToolCall, facts: CallFacts) -> ToolResult | None:
    """Return the result of the same call in an earlier attempt, to be used instead of running it again.

    Returns None if there is none, or if the tool runs arbitrary commands and something else was done since.
    """
    contract = draft.state.contract
    if contract is None:
        return None
    same = [done for done in contract.done if (done.tool, done.arguments) == (call.name, facts.arguments)]
    if not same:
        return None
    earlier = same[-1]
    succeeded = earlier.outcome is Outcome.SUCCESS
    spec = draft.state.grant.tool(call.name)
    runs_anything = spec is None or spec.capabilities.runs_anything
    if succeeded and runs_anything and (contract.done[-1] != earlier or done_calls(draft.state)):
        # A command, such as one that runs the tests, may give another result now. It is judged and asked about again.
        return None
    outcome = "It is done" if succeeded else "It is not known whether it took effect"
    content = f"(Not run again: an earlier attempt at this step made this very call. {outcome}. Its result:)\n"
    reused = ResultFacts(source=ResultSource.EARLIER_ATTEMPT)
    return ToolResult(outcome=earlier.outcome, content=content + earlier.content, facts=reused)


def done_calls(state: TurnState) -> tuple[DoneCall, ...]:
    """Return the calls of a turn that may have changed something: a later attempt must not run them again.

    Calls that are safe to repeat (reads, idempotent tools) are left out. So are validations, since each attempt needs a
    pass of its own.
    """
    return tuple(
        DoneCall(tool=m.tool, arguments=m.arguments, content=cut(m.content, most=MAX_RESULT_CHARS), outcome=m.outcome)
        for m in state.messages
        if isinstance(m, ToolMessage)
        and m.outcome in _MAY_HAVE_EFFECT
        and m.facts.source is not ResultSource.EARLIER_ATTEMPT
        and _has_effects(state, m.tool)
    )


def is_evidence(state: TurnState, tool: str) -> bool:
    """Return True if a result of `tool` is evidence: only a real run of it counts, not a statement of the user."""
    return state.gate is not None or (state.contract is not None and state.contract.validates(tool))


def _missing_tools(draft: StepDraft, contract: StepContract, index: int) -> list[str]:
    """Return the tools that have to succeed before the call and have not, in this or an earlier attempt."""
    state, tool = draft.state, draft.calls()[index].call.name
    if tool not in contract.order:
        return []
    succeeded = {done.tool for done in contract.done if done.outcome is Outcome.SUCCESS}
    succeeded |= _successful_tools((*state.history, *state.messages))
    for earlier in draft.calls()[:index]:
        if isinstance(earlier.status, Settled) and earlier.status.result.outcome is Outcome.SUCCESS:
            succeeded.add(earlier.call.name)
    return [name for name in contract.order[: contract.order.index(tool)] if name not in succeeded]


def _is_used_up(draft: StepDraft, contract: StepContract, index: int) -> bool:
    """Return True if the step allows the tool once, and it may have succeeded in it, or is about to run."""
    tool = draft.calls()[index].call.name
    if tool not in contract.once:
        return False
    outcomes = (m.outcome for m in draft.state.messages if isinstance(m, ToolMessage) and m.tool == tool)
    if any(outcome in _MAY_HAVE_EFFECT for outcome in outcomes) or any(done.tool == tool for done in contract.done):
        return True
    return any(
        earlier.call.name == tool
        and (not isinstance(earlier.status, Settled) or earlier.status.result.outcome in _MAY_HAVE_EFFECT)
        for earlier in draft.calls()[:index]
    )


def _successful_tools(messages: Sequence[Message]) -> set[str]:
    return {m.tool for m in messages if isinstance(m, ToolMessage) and m.outcome is Outcome.SUCCESS}


def _has_effects(state: TurnState, tool: str) -> bool:
    if state.contract is not None and state.contract.validates(tool):
        return False
    spec = state.grant.tool(tool)
    return spec is None or not (spec.read_only or spec.idempotent)

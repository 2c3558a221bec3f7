"""Which calls a step allows when: tools in their order, tools that may succeed once, and calls of earlier attempts
that are not made again.

It is enforced here and not left to what the model was asked to do. Calls are refused before anything about them is
looked at; only the comparison with earlier calls needs their arguments, and so waits for the inspection.
"""

from collections.abc import Sequence

from chatops.domain.messages import Message, ToolMessage
from chatops.domain.tools import CallFacts, Outcome, ToolCall, ToolResult
from chatops.engine.contract import DoneCall, StepContract
from chatops.engine.draft import Draft
from chatops.engine.state import Settled, TurnState
from chatops.engine.tracker import EARLIER
from chatops.policy.patterns import RUNS_ANYTHING

MOST_OF_A_RESULT = 4_000
"""Characters of the result of a done call that are kept."""
_MAY_HAVE = (Outcome.SUCCESS, Outcome.UNKNOWN)
"""Outcomes of a call that has taken effect, or may have."""


def out_of_turn(draft: Draft, index: int) -> str:
    """Why the step does not allow the call now; empty if it does."""
    contract = draft.state.contract
    if contract is None:
        return ""
    tool = draft.calls()[index].call.name
    missing = _earlier(draft, contract, index)
    if missing:
        return f"Not run: {tool} comes after {missing}, which has not succeeded yet. Call {missing} first."
    if _used_up(draft, contract, index):
        return f"Not run: {tool} may be called once in this step, and was. Use its result; do not go back to it."
    return ""


def waits(draft: Draft, index: int) -> bool:
    """Return True if what has to succeed before the call stands before it in this round and has no result yet."""
    contract = draft.state.contract
    tool = draft.calls()[index].call.name
    if contract is None or tool not in contract.order or _used_up(draft, contract, index):
        return False
    coming = {one.call.name for one in draft.calls()[:index] if not isinstance(one.status, Settled)}
    return coming.issuperset(_lacking(draft, contract, index))


def done_before(draft: Draft, call: ToolCall, facts: CallFacts) -> ToolResult | None:
    """The result of the same call of an earlier attempt, which stands in place of running it again."""
    contract = draft.state.contract
    if contract is None:
        return None
    same = [at for at, one in enumerate(contract.done) if (one.tool, one.arguments) == (call.name, facts.arguments)]
    if not same:
        return None
    found = contract.done[same[-1]]
    known = found.outcome is Outcome.SUCCESS
    if known and call.name in RUNS_ANYTHING and _changed_since(draft.state, contract, same[-1]):
        return None
    told = "It is done" if found.outcome is Outcome.SUCCESS else "Nothing tells whether it took effect"
    content = f"(Not run again: an earlier attempt at this step made this very call. {told}. Its result:)\n"
    return ToolResult(outcome=found.outcome, content=content + found.content)


def _changed_since(state: TurnState, contract: StepContract, at: int) -> bool:
    """Whether something else was done after the done call `at`: then a command, such as one that runs the tests, may
    give another result, and whoever is asked about it decides anew."""
    later = any(one != contract.done[at] for one in contract.done[at + 1 :])
    return later or bool(done_calls(state))


def done_calls(state: TurnState) -> tuple[DoneCall, ...]:
    """The calls of a turn that may have changed something: a later attempt must not make them again.

    Calls that running twice does no harm (reads, idempotent tools) are none, and neither are validations, since a pass
    has to be earned anew.
    """
    return tuple(
        DoneCall(tool=m.tool, arguments=m.arguments, content=_cut(m.content), outcome=m.outcome)
        for m in state.messages
        if isinstance(m, ToolMessage)
        and m.outcome in _MAY_HAVE
        and m.decided_by != EARLIER
        and _has_effects(state, m.tool)
    )


def is_evidence(state: TurnState, tool: str) -> bool:
    """Whether a result of `tool` is evidence, so that only a run of it counts and nobody's word in its place."""
    return state.gate is not None or (state.contract is not None and state.contract.validates(tool))


def _earlier(draft: Draft, contract: StepContract, index: int) -> str:
    """The first tool that has to have succeeded before a call and has not, in this attempt or one before it."""
    return next(iter(_lacking(draft, contract, index)), "")


def _lacking(draft: Draft, contract: StepContract, index: int) -> list[str]:
    """The tools that have to have succeeded before a call and have not."""
    state, tool = draft.state, draft.calls()[index].call.name
    if tool not in contract.order:
        return []
    had = {one.tool for one in contract.done if one.outcome is Outcome.SUCCESS}
    had |= _succeeded((*state.history, *state.messages))
    for one in draft.calls()[:index]:
        if isinstance(one.status, Settled) and one.status.result.outcome is Outcome.SUCCESS:
            had.add(one.call.name)
    return [name for name in contract.order[: contract.order.index(tool)] if name not in had]


def _used_up(draft: Draft, contract: StepContract, index: int) -> bool:
    return draft.calls()[index].call.name in contract.once and _had(draft, contract, index)


def _had(draft: Draft, contract: StepContract, index: int) -> bool:
    """Whether the tool of a call has succeeded in this attempt, with effect in an earlier one, or is about to. What
    nobody knows of has."""
    tool = draft.calls()[index].call.name
    had = (m.outcome for m in draft.state.messages if isinstance(m, ToolMessage) and m.tool == tool)
    if any(outcome in _MAY_HAVE for outcome in had) or any(one.tool == tool for one in contract.done):
        return True
    return any(
        one.call.name == tool and (not isinstance(one.status, Settled) or one.status.result.outcome in _MAY_HAVE)
        for one in draft.calls()[:index]
    )


def _succeeded(messages: Sequence[Message]) -> set[str]:
    return {m.tool for m in messages if isinstance(m, ToolMessage) and m.outcome is Outcome.SUCCESS}


def _has_effects(state: TurnState, tool: str) -> bool:
    if state.contract is not None and state.contract.validates(tool):
        return False
    spec = state.grant.tool(tool)
    return spec is None or not (spec.read_only or spec.idempotent)


def _cut(content: str) -> str:
    return content if len(content) <= MOST_OF_A_RESULT else f"{content[:MOST_OF_A_RESULT]}…"

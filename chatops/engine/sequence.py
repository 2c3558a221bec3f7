"""Limits on the calls of a step: tools in order, tools that may succeed once, and calls that are not repeated.

The limits are enforced here, not left to the prompt. A call is refused before anything else about it is checked. Only
the comparison with calls of earlier attempts needs its arguments, so it waits for the inspection.
"""

from collections.abc import Sequence

from chatops.domain.messages import Message, ToolMessage
from chatops.domain.tools import CallFacts, Outcome, ResultFacts, ResultSource, ToolCall, ToolResult
from chatops.domain.wording import cut
from chatops.engine.contract import DoneCall, StepContract
from chatops.engine.draft import StepDraft
from chatops.engine.state import Settled, TurnState

LONGEST_RESULT = 4_000
"""Characters of the result of a done call that are kept."""
_MAY_HAVE = (Outcome.SUCCESS, Outcome.UNKNOWN)
"""Outcomes of a call that has taken effect, or may have."""


def out_of_turn(draft: StepDraft, index: int) -> tuple[str, str] | None:
    """Return why the step does not allow the call now, and what the model can do; None if the step allows it."""
    contract = draft.state.contract
    if contract is None:
        return None
    tool = draft.calls()[index].call.name
    missing = _earlier(draft, contract, index)
    if missing:
        return f"{tool} comes after {missing}, which has not succeeded yet", f"Call {missing} first."
    if _used_up(draft, contract, index):
        return f"{tool} may be called once in this step, and was", "Use its result; do not go back to it."
    return None


def waits(draft: StepDraft, index: int) -> bool:
    """Return True if every call that has to succeed first is in this round, before this call, and not settled yet."""
    contract = draft.state.contract
    tool = draft.calls()[index].call.name
    if contract is None or tool not in contract.order or _used_up(draft, contract, index):
        return False
    coming = {earlier.call.name for earlier in draft.calls()[:index] if not isinstance(earlier.status, Settled)}
    return coming.issuperset(_lacking(draft, contract, index))


def done_before(draft: StepDraft, call: ToolCall, facts: CallFacts) -> ToolResult | None:
    """Return the result of the same call in an earlier attempt, to be used instead of running it again.

    Returns None if there is none, or if the tool runs arbitrary commands and something else was done since.
    """
    contract = draft.state.contract
    if contract is None:
        return None
    same = [at for at, done in enumerate(contract.done) if (done.tool, done.arguments) == (call.name, facts.arguments)]
    if not same:
        return None
    found = contract.done[same[-1]]
    known = found.outcome is Outcome.SUCCESS
    spec = draft.state.grant.tool(call.name)
    runs_anything = spec is None or spec.capabilities.runs_anything
    if known and runs_anything and _changed_since(draft.state, contract, same[-1]):
        return None
    outcome = "It is done" if found.outcome is Outcome.SUCCESS else "It is not known whether it took effect"
    content = f"(Not run again: an earlier attempt at this step made this very call. {outcome}. Its result:)\n"
    reused = ResultFacts(source=ResultSource.EARLIER_ATTEMPT)
    return ToolResult(outcome=found.outcome, content=content + found.content, facts=reused)


def _changed_since(state: TurnState, contract: StepContract, at: int) -> bool:
    """Return True if something else was done after the done call `at`.

    Then a command, such as one that runs the tests, may give another result, so it is judged and asked about again.
    """
    later = any(done != contract.done[at] for done in contract.done[at + 1 :])
    return later or bool(done_calls(state))


def done_calls(state: TurnState) -> tuple[DoneCall, ...]:
    """Return the calls of a turn that may have changed something: a later attempt must not run them again.

    Calls that are safe to repeat (reads, idempotent tools) are left out. So are validations, since each attempt needs a
    pass of its own.
    """
    return tuple(
        DoneCall(tool=m.tool, arguments=m.arguments, content=_cut(m.content), outcome=m.outcome)
        for m in state.messages
        if isinstance(m, ToolMessage)
        and m.outcome in _MAY_HAVE
        and m.facts.source is not ResultSource.EARLIER_ATTEMPT
        and _has_effects(state, m.tool)
    )


def is_evidence(state: TurnState, tool: str) -> bool:
    """Return True if a result of `tool` counts as evidence.

    Then only a real run counts, not a statement of the user.
    """
    return state.gate is not None or (state.contract is not None and state.contract.validates(tool))


def _earlier(draft: StepDraft, contract: StepContract, index: int) -> str:
    """Return the first tool that has to succeed before the call and has not, in this or an earlier attempt."""
    return next(iter(_lacking(draft, contract, index)), "")


def _lacking(draft: StepDraft, contract: StepContract, index: int) -> list[str]:
    """Return the tools that have to succeed before the call and have not."""
    state, tool = draft.state, draft.calls()[index].call.name
    if tool not in contract.order:
        return []
    had = {done.tool for done in contract.done if done.outcome is Outcome.SUCCESS}
    had |= _successful_tools((*state.history, *state.messages))
    for earlier in draft.calls()[:index]:
        if isinstance(earlier.status, Settled) and earlier.status.result.outcome is Outcome.SUCCESS:
            had.add(earlier.call.name)
    return [name for name in contract.order[: contract.order.index(tool)] if name not in had]


def _used_up(draft: StepDraft, contract: StepContract, index: int) -> bool:
    return draft.calls()[index].call.name in contract.once and _had(draft, contract, index)


def _had(draft: StepDraft, contract: StepContract, index: int) -> bool:
    """Return True if the tool of a call may have succeeded, in this or an earlier attempt, or is about to run."""
    tool = draft.calls()[index].call.name
    had = (m.outcome for m in draft.state.messages if isinstance(m, ToolMessage) and m.tool == tool)
    if any(outcome in _MAY_HAVE for outcome in had) or any(done.tool == tool for done in contract.done):
        return True
    return any(
        earlier.call.name == tool
        and (not isinstance(earlier.status, Settled) or earlier.status.result.outcome in _MAY_HAVE)
        for earlier in draft.calls()[:index]
    )


def _successful_tools(messages: Sequence[Message]) -> set[str]:
    return {m.tool for m in messages if isinstance(m, ToolMessage) and m.outcome is Outcome.SUCCESS}


def _has_effects(state: TurnState, tool: str) -> bool:
    if state.contract is not None and state.contract.validates(tool):
        return False
    spec = state.grant.tool(tool)
    return spec is None or not (spec.read_only or spec.idempotent)


def _cut(content: str) -> str:
    return cut(content, most=LONGEST_RESULT)

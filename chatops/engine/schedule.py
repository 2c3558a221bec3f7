"""Order of execution within a round. Reads run side by side; no call overtakes one that can change what it reads."""

from dataclasses import replace

from chatops.domain.events import (
    ToolStarted,
)
from chatops.domain.rights import Verdict
from chatops.domain.tools import CallFacts, Exposure, ToolSpec
from chatops.engine import calls
from chatops.engine.draft import Draft
from chatops.engine.effects import InspectCall, RunTool
from chatops.engine.state import (
    CallState,
    Deferred,
    InRound,
    Inspecting,
    Permitted,
    Rechecking,
    Settled,
    Started,
)


def schedule(draft: Draft) -> None:
    """Start every permitted call whose turn in the round has come, and repeat deferred inspections."""
    if not isinstance(draft.state.phase, InRound):
        return
    for index, one in enumerate(draft.calls()):
        match one.status:
            case Permitted() as status if may_start(draft, index):
                _take_turn(draft, index, one, status)
            case Permitted(fresh=True) as status:
                draft.put_call(index, replace(one, status=replace(status, fresh=False)))
            case Deferred() if settled_before(draft, index):
                draft.put_call(index, replace(one, status=Inspecting()))
                draft.effects.append(InspectCall(call=one.call))
            case _:
                pass


def may_start(draft: Draft, index: int) -> bool:
    """Return True if the call may start now.

    All earlier calls must be settled, or the call and all unsettled calls before it must be read-only.
    """
    calls = draft.calls()
    unsettled = [one for one in calls[:index] if not isinstance(one.status, Settled)]
    if not unsettled:
        return True
    return _read_only(draft, calls[index]) and all(_read_only(draft, one) for one in unsettled)


def start(draft: Draft, index: int, facts: CallFacts, status: Rechecking | Permitted) -> None:
    """Start a call as inspected. The commit of this step stores the intent before the tool runs."""
    phase = calls.in_round(draft)
    one = phase.calls[index]
    attempt = status.attempt + 1
    bound = calls.call_digest(draft, one.call, facts)
    started = Started(
        facts=facts,
        digest=bound,
        verdict=status.verdict,
        decided_by=status.decided_by,
        attempt=attempt,
        interruption=status.interruption,
    )
    draft.put_call(index, replace(one, status=started))
    exposure = _exposure(draft, one, facts, status.verdict)
    draft.effects.append(RunTool(call=one.call, facts=facts, attempt=attempt, digest=bound, exposure=exposure))
    draft.events.append(
        ToolStarted(
            id=one.call.id,
            parent_id=phase.round_id,
            tool=one.call.name,
            arguments=facts.arguments,
            attempt=attempt,
            decided_by=status.decided_by,
            sandbox=facts.sandbox,
        )
    )


def _exposure(draft: Draft, one: CallState, facts: CallFacts, verdict: Verdict) -> Exposure:
    """Return how much of the workspace a command gets: all of it only if the user was asked about this call."""
    if verdict is Verdict.ASK:
        return Exposure.WHOLE
    return Exposure.READ_ONLY if calls.judge(draft, one.call, facts).workspace_read else Exposure.MASKED


def _take_turn(draft: Draft, index: int, one: CallState, status: Permitted) -> None:
    if status.fresh:
        start(draft, index, status.facts, status)
        return
    rechecking = Rechecking(
        facts=status.facts,
        digest=status.digest,
        verdict=status.verdict,
        decided_by=status.decided_by,
        attempt=status.attempt,
        interruption=status.interruption,
    )
    draft.put_call(index, replace(one, status=rechecking))
    draft.effects.append(InspectCall(call=one.call))


def settled_before(draft: Draft, index: int) -> bool:
    """Return True if every earlier call of the round has its result."""
    return all(isinstance(one.status, Settled) for one in draft.calls()[:index])


def _read_only(draft: Draft, one: CallState) -> bool:
    spec: ToolSpec | None = calls.in_round(draft).proposed_under.tool(one.call.name)
    return spec is not None and spec.read_only

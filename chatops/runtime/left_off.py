"""Resume summary: one line on what an unfinished session waits for, or where it was interrupted.

Derived from the stored state alone, so it is correct before any process opens the session.
"""

from collections.abc import Mapping

from chatops.domain.errors import UnreadableError
from chatops.domain.ids import CallId
from chatops.domain.sanitize import reveal
from chatops.domain.tools import CallFacts, ToolCall
from chatops.engine.state import (
    AwaitingDecision,
    AwaitingModel,
    CallState,
    CheckingAnswer,
    Finished,
    InRound,
    Permitted,
    Rechecking,
    Reconciling,
    Settled,
    Started,
    Stopping,
    TurnState,
)
from chatops.policy.grant import Grant
from chatops.runtime.answered import word_for
from chatops.store.base import DecisionRow, SessionInfo, Store

_LONGEST = 60
"""Maximum characters of a command or path in the summary."""


def left_off(store: Store, info: SessionInfo) -> str:
    """Return one line on a session whose turn is unfinished; empty if it has none.

    It does not tell if a process owns the session now: see `Store.held`. Raises StoreError.
    """
    if info.active_turn is None:
        return ""
    try:
        state = store.load_turn(info.active_turn)
    except UnreadableError:
        return "not finished, and what is stored of its turn cannot be read"
    decided = {one.pending.call.id: one.decided for one in store.queue(session_id=info.id) if one.decided is not None}
    return how_it_stands(state, decided)


def how_it_stands(state: TurnState, decided: Mapping[CallId, DecisionRow]) -> str:
    """Return the summary of a turn that no process runs.

    `decided`: posted decisions that the turn has not taken yet.
    """
    match state.phase:
        case AwaitingModel():
            return "reply cut off"
        case CheckingAnswer():
            return "interrupted before the reply was checked"
        case InRound(calls=calls, proposed_under=grant):
            told = (_call(one, grant, decided.get(one.call.id)) for one in calls)
            return "; ".join(dict.fromkeys(text for text in told if text)) or "interrupted between two requests"
        case Stopping(calls=calls):
            running = [_named(one.call, one.status.facts) for one in calls if isinstance(one.status, Started)]
            return f"interrupted while stopping {', '.join(running)}: outcome unknown"
        case Finished():
            return ""


def _call(one: CallState, grant: Grant, decided: DecisionRow | None) -> str:
    match one.status:
        case Settled():
            return ""
        case AwaitingDecision(facts=facts) if decided is not None:
            return f"{word_for(decided.decision)} in another terminal and not gone on with: {_named(one.call, facts)}"
        case AwaitingDecision(facts=facts) as waiting if waiting.in_doubt:
            return f"interrupted while running {_named(one.call, facts)}: outcome unknown"
        case AwaitingDecision(facts=facts):
            return f"waiting for your approval of {_named(one.call, facts)}"
        case Started(facts=facts) | Reconciling(facts=facts):
            return f"interrupted while running {_named(one.call, facts)}: {_outcome(one.call, grant)}"
        case Permitted(facts=facts) | Rechecking(facts=facts):
            return f"interrupted before it started {_named(one.call, facts)}"
        case _:
            return f"interrupted before it checked {_named(one.call, None)}"


def _outcome(call: ToolCall, grant: Grant) -> str:
    spec = grant.tool(call.name)
    if spec is not None and (spec.read_only or spec.idempotent):
        return "it is run again when you go on"
    if spec is not None and spec.reconcilable:
        return "what came of it is looked up when you go on"
    return "outcome unknown"


def _named(call: ToolCall, facts: CallFacts | None) -> str:
    about = "" if facts is None else facts.command or " ".join(facts.paths) or " ".join(facts.hosts)
    return f"{_shown(call.name)} ({_shown(about)})" if about else _shown(call.name)


def _shown(text: str) -> str:
    return reveal(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", newlines=False)

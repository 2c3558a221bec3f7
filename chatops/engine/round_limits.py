"""Limits of the rounds of a turn: their number, calls that are not valid, the same call again and again."""

from dataclasses import replace

from chatops.domain.messages import ToolMessage
from chatops.domain.tools import Outcome
from chatops.domain.wording import one_line
from chatops.engine.draft import StepDraft
from chatops.engine.state import Counters

FREE_REPAIRS = 2
"""Repairs in a row, rounds of only invalid calls, that do not count against the limit of rounds. The next one does."""
MAX_REPAIRS = 9
"""Repairs of one turn, counted or not. After them comes the closing call, the last request, without tools."""
MAX_SAME = 3
"""A call made for the third time in a row is not run. If nothing ran in its round, the closing call follows."""
MAX_MISTAKES = 3
"""The closing call follows when the same mistake is made for the third time, without a valid call in between."""
_MAX_CALL_CHARS = 200


def count_round(draft: StepDraft, *, only_invalid: bool) -> None:
    """Count the round that ends."""
    counters = draft.state.counters
    if not only_invalid:
        counted = replace(counters, rounds=counters.rounds + 1, repairs=0, mistakes=())
    elif counters.repairs < FREE_REPAIRS and not _repeats_mistake(counters):
        counted = replace(counters, repairs=counters.repairs + 1, repairs_total=counters.repairs_total + 1)
    else:
        counted = replace(counters, rounds=counters.rounds + 1, repairs=0, repairs_total=counters.repairs_total + 1)
    draft.count(counted)


def has_reached_limit(draft: StepDraft) -> bool:
    """Return True if the turn has reached a limit, so that the closing call follows."""
    counters = draft.state.counters
    if counters.rounds >= draft.state.grant.max_rounds or counters.repairs_total >= MAX_REPAIRS:
        return True
    return _has_insisted_on_mistake(counters) or repeated_call(draft) is not None


def repeated_call(draft: StepDraft) -> ToolMessage | None:
    """Return the call that the model repeats although it has the result; None if something ran in the last round.

    Copies of a call within one reply do not end the turn: the model had no result when it wrote them.
    """
    if draft.state.counters.same_call < MAX_SAME:
        return None
    last_round: list[ToolMessage] = []
    for message in reversed(draft.state.messages):
        if isinstance(message, ToolMessage):
            last_round.append(message)
        elif last_round:
            break
    nothing_ran = all(message.outcome is Outcome.INVALID for message in last_round)
    return last_round[0] if last_round and nothing_ran else None


def _repeats_mistake(counters: Counters) -> bool:
    """Return True if the ending round repeats a mistake already reported to the model, so that it counts."""
    return any(mistake.times > 1 and mistake.request == counters.requests for mistake in counters.mistakes)


def _has_insisted_on_mistake(counters: Counters) -> bool:
    return any(mistake.times >= MAX_MISTAKES for mistake in counters.mistakes)


def limit_text(draft: StepDraft) -> str:
    """Return a sentence that names the limit that the turn has reached."""
    counters = draft.state.counters
    if repeated := repeated_call(draft):
        made = one_line(f"{repeated.tool} {repeated.arguments}", most=_MAX_CALL_CHARS)
        return f"The model made the same call {counters.same_call} times in a row: {made}."
    if counters.rounds >= draft.state.grant.max_rounds:
        return f"Reached the tool iteration limit ({counters.rounds} rounds)."
    if counters.repairs_total >= MAX_REPAIRS:
        return f"Reached the limit of {MAX_REPAIRS} rounds in which no call was valid."
    return f"The model made the same invalid call {MAX_MISTAKES} times."

"""Budgets: what a turn has spent, and the question whether it may spend more.

Theory of operation

Each model request goes through `rounds.ask_model`, and that calls `ask_if_reached` first. Where a limit is reached, a
round is opened instead with one call that the engine makes, `BUDGET_EXTEND`, which waits for a decision at once. So all
that holds for a pending call holds for it: digest, checkpoint, decisions from another process. Its arguments are the
amounts, so an approval is bound to them. No tool is behind it, no grant offers it, and no rule answers it.

Approving permits the same amount again on top of what was spent, and the request follows (`InRound.budget` says which).
Denying ends the turn with what it has gathered and without another request. A limit is compared before a request and
not during it, so the overshoot is at most one reply. Children that run at the same time count what the others have
spent (`Spending.beside`, see `runtime.delegation`): then it is at most one reply of each.

A cost counts only if the model's price is known, and tokens count only if its server reports them. Where that is not
so, the turn asks too, once for each model: nothing unknown is taken as zero without a yes.

`TurnState.spending` has what the state's rounds do not tell. The turns of a workflow run hand it on (`carried_on`).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from chatops.domain.canonical import JsonValue
from chatops.domain.decisions import Approved, Decision, Principal, Rejected
from chatops.domain.events import AskReason
from chatops.domain.messages import AssistantMessage, ToolMessage, total
from chatops.domain.model import ModelTarget
from chatops.domain.tools import BUDGET_EXTEND, CallFacts, Outcome, ResultFacts, ResultSource, ToolResult, Verdict
from chatops.domain.wording import plural
from chatops.engine import calls, feedback
from chatops.engine.draft import StepDraft
from chatops.engine.state import BudgetQuestion, Purpose, RoundRecord, TurnState
from chatops.policy.budget import LIMITS, Budget, LimitName, amount, strictest, with_unit

_MINUTE = 60_000
"""Milliseconds."""
_MAX_TOOLS = 3
"""Tools whose calls are named."""
_RAN = (Outcome.SUCCESS, Outcome.FAILED)


def limits(state: TurnState) -> Budget:
    """Return the budget in force, with what the user has added."""
    return strictest(state.grant.budget, state.grant.run_budget).plus(state.spending.added)


def spent(state: TurnState, limit: LimitName, model: str = "") -> float:
    """Return how much of a limit is spent, in all or by one model. What is not known adds nothing."""
    found = [record for record in _records(state) if not model or record.model == model]
    usage = total(*(record.usage for record in found))
    match limit:
        case "cost":
            return round((usage.cost or 0.0) if usage is not None else 0.0, 9)
        case "tokens":
            return usage.input_tokens + usage.output_tokens if usage is not None else 0
        case "minutes":
            worked = sum(record.duration_ms for record in found) + (0 if model else state.spending.tools_ms)
            return worked / _MINUTE


def summary(state: TurnState) -> Iterator[str]:
    """Yield a line for each limit in force: what is spent of it, and what is left."""
    for limit in LIMITS:
        if (most := limits(state).of(limit)) is not None:
            left = max(0.0, most - spent(state, limit))
            yield f"{_share(state, limit)}, {amount(limit, left)} left"


def carried_on(turn: TurnState, before: TurnState) -> TurnState:
    """Return a turn of a workflow run, before its first step, that counts on from the run's turn `before` it."""
    spending = replace(before.spending, earlier=_records(before), denied=False)
    run_budget = strictest(turn.grant.run_budget, before.grant.run_budget)
    return replace(turn, spending=spending, grant=replace(turn.grant, run_budget=run_budget))


def note_beside(draft: StepDraft, children: tuple[RoundRecord, ...]) -> None:
    """Count in a child turn what the other children have spent since it started.

    That never shrinks, so a report that lacks one of them, as after a restart, changes nothing.
    """
    state = draft.state
    after = replace(state, spending=replace(state.spending, beside=children))
    if all(spent(after, limit) >= spent(state, limit) for limit in LIMITS):
        draft.state = after


def ask_if_reached(draft: StepDraft, target: ModelTarget, purpose: Purpose, gathered: AssistantMessage | None) -> bool:
    """Ask whether `target` may get another request, if a limit is reached. Returns True if it asks."""
    if (reached := _due_question(draft.state, target)) is None:
        return False
    question = replace(reached, purpose=purpose, gathered=gathered)
    phase = replace(draft.round_without_model(BUDGET_EXTEND, _amounts(draft.state, question)), budget=question)
    draft.set_phase(phase)
    facts = CallFacts(arguments=phase.calls[0].call.arguments)
    calls.ask(draft, 0, facts, AskReason.BUDGET, why=_why(draft.state, question))
    return True


def can_decide(decision: Decision, by: Principal) -> bool:
    """Return True for a decision that the question takes: the yes of a person, or a no."""
    return (decision == Approved() and by.is_person) or isinstance(decision, Rejected)


def decided(draft: StepDraft, question: BudgetQuestion, decision: Decision, by: Principal) -> None:
    """Apply a decision on the question, and settle its call."""
    spending, limit = draft.state.spending, question.limit
    if isinstance(decision, Rejected):
        content = f"Budget: {_why(draft.state, question)}. Nothing more is spent.{feedback.because(decision.reason)}"
        facts = ResultFacts(source=ResultSource.USER, reason=decision.reason)
        result = ToolResult(outcome=Outcome.DENIED, content=content, facts=facts)
        spending = replace(spending, denied=True)
    elif question.model:
        result = ToolResult(
            outcome=Outcome.SUCCESS, content=f"{question.model} goes on. Its {limit} cannot be counted."
        )
        spending = replace(spending, uncounted=(*spending.uncounted, f"{limit} {question.model}"))
    else:
        # One reply may have cost more than the whole limit. What other children have spent since was not shown.
        most, used = limits(draft.state).of(limit) or 0.0, question.spent
        spending = replace(spending, added=spending.added.raised(limit, used - most + question.more))
        raised = with_unit(limit, used + question.more)
        result = ToolResult(outcome=Outcome.SUCCESS, content=f"The budget of this turn is {raised} now.")
    draft.state = replace(draft.state, spending=spending)
    calls.settle_with(draft, 0, result, verdict=Verdict.ASK, decided_by=str(by), facts=None)


def _records(state: TurnState) -> tuple[RoundRecord, ...]:
    return (*state.spending.earlier, *state.spending.beside, *state.rounds)


def _due_question(state: TurnState, target: ModelTarget) -> BudgetQuestion | None:
    """Return the question that is due before a request to `target`; None if there is none."""
    once = strictest(state.grant.budget, state.grant.run_budget)
    for limit in LIMITS:
        step, most = once.of(limit), limits(state).of(limit)
        if step is None or most is None:
            continue
        if _is_unknown(state, limit, target):
            return BudgetQuestion(limit=limit, model=target.name)
        if (used := spent(state, limit)) >= most:
            return BudgetQuestion(limit=limit, spent=used, more=step)
    return None


def _is_unknown(state: TurnState, limit: LimitName, target: ModelTarget) -> bool:
    """Return True if what `target` spends of a limit cannot be known, and the user has not permitted that yet."""
    if limit == "minutes" or f"{limit} {target.name}" in state.spending.uncounted:
        return False
    return (limit == "cost" and not target.priced) or _unknown_of(state, limit, target.name)


def _unknown_of(state: TurnState, limit: LimitName, model: str) -> bool:
    """Return True if a reply of the model did not say what it spent."""
    usages = [record.usage for record in _records(state) if record.model == model and record.failure is None]
    return any(usage is None or (limit == "cost" and usage.cost is None) for usage in usages)


def _share(state: TurnState, limit: LimitName) -> str:
    most, used = limits(state).of(limit) or 0.0, spent(state, limit)
    if limit == "cost":
        return f"cost {amount(limit, used)} of {amount(limit, most)}"
    return f"{amount(limit, used)} of {with_unit(limit, most)}"


def _why(state: TurnState, question: BudgetQuestion) -> str:
    """Return why the turn asks, with what was spent on what."""
    limit = question.limit
    on = "; ".join(filter(None, (", ".join(_by_model(state, limit)), ", ".join(_in_rounds(state)))))
    if not question.model:
        return f"{_share(state, limit)}: {on}"
    unknown = "the price of {} is not known" if limit == "cost" else "the server of {} reports no tokens"
    budget = with_unit(limit, limits(state).of(limit) or 0.0)
    so_far = f". So far: {on}" if on else ""
    return f"{unknown.format(question.model)}, so the budget ({budget}) cannot be kept{so_far}"


def _by_model(state: TurnState, limit: LimitName) -> Iterator[str]:
    for model in dict.fromkeys(record.model for record in _records(state)):
        unknown = limit != "minutes" and _unknown_of(state, limit, model)
        known = amount(limit, used) if (used := spent(state, limit, model)) or not unknown else ""
        yield f"{model} {' and '.join(filter(None, (known, f'unknown {limit}' if unknown else '')))}"
    if limit == "minutes" and state.spending.tools_ms:
        yield f"tools {amount(limit, state.spending.tools_ms / _MINUTE)}"


def _in_rounds(state: TurnState) -> Iterator[str]:
    replies = sum(record.failure is None for record in _records(state))
    if ran := _ran(state).most_common():
        named = ", ".join(f"{count} {tool}" for tool, count in ran[:_MAX_TOOLS])
        yield f"{plural(replies, 'round')} with {named}{' and others' if ran[_MAX_TOOLS:] else ''}"
    elif replies:
        yield plural(replies, "round")
    if lost := state.spending.cut_off:
        yield f"not counted: {plural(lost, 'request')} that broke off or had to be sent again"


def _ran(state: TurnState) -> Counter[str]:
    return Counter(
        message.tool for message in state.messages if isinstance(message, ToolMessage) and message.outcome in _RAN
    )


def _amounts(state: TurnState, question: BudgetQuestion) -> dict[str, JsonValue]:
    """Return what the question is about as arguments of its call."""
    limit, most = question.limit, limits(state).of(question.limit) or 0.0
    by_model: list[JsonValue] = [
        {
            "model": model,
            "rounds": sum(one.model == model and one.failure is None for one in _records(state)),
            "cost": None if _unknown_of(state, "cost", model) else spent(state, "cost", model),
            "tokens": None if _unknown_of(state, "tokens", model) else spent(state, "tokens", model),
            "minutes": round(spent(state, "minutes", model), 3),
        }
        for model in dict.fromkeys(record.model for record in _records(state))
    ]
    return {
        "limit": limit,
        "of": _number(limit, most),
        "spent": _number(limit, spent(state, limit)),
        **({"model": question.model} if question.model else {"more": _number(limit, question.more)}),
        "by_model": by_model,
        "calls": dict(_ran(state)),
    }


def _number(limit: LimitName, value: float) -> float:
    return int(value) if limit == "tokens" else round(value, 6)

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
so, the turn asks too, once for each model: nothing unknown counts as zero without an approval.

`TurnState.spending` holds what the state's rounds do not show. Each turn of a workflow run hands it on to the next one
(`continue_spending`).
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
from chatops.engine.state import BudgetQuestion, Finished, Purpose, RoundRecord, TurnState
from chatops.policy.budget import LIMIT_NAMES, Budget, LimitName, amount, strictest, with_unit

_MS_PER_MINUTE = 60_000
_MAX_NAMED_TOOLS = 3
"""Tools whose calls are counted by name in the question, so that it stays one line."""
_RAN_OUTCOMES = (Outcome.SUCCESS, Outcome.FAILED)


def budget_in_force(state: TurnState) -> Budget:
    """Return the budget in force, with what the user has added."""
    return strictest(state.grant.budget, state.grant.run_budget).plus(state.spending.added)


def spent(state: TurnState, limit: LimitName, model: str = "") -> float:
    """Return how much of a limit is spent, in all or by one `model`. What is not known adds nothing."""
    records = [record for record in _records(state) if not model or record.model == model]
    usage = total(*(record.usage for record in records))
    match limit:
        case "cost":
            # Sums of prices have errors of binary fractions, which must not reach a limit.
            return round((usage.cost or 0.0) if usage is not None else 0.0, 9)
        case "tokens":
            return usage.input_tokens + usage.output_tokens if usage is not None else 0
        case "minutes":
            worked_ms = sum(record.duration_ms for record in records) + (0 if model else state.spending.tools_ms)
            return worked_ms / _MS_PER_MINUTE


def summary_lines(state: TurnState) -> Iterator[str]:
    """Yield a line for each limit in force: what is spent of it, and what is left."""
    for limit in LIMIT_NAMES:
        if (permitted := budget_in_force(state).of(limit)) is not None:
            left = max(0.0, permitted - spent(state, limit))
            yield f"{_share_text(state, limit)}, {amount(limit, left)} left"


def continue_spending(turn: TurnState, before: TurnState) -> TurnState:
    """Return a `turn` of a workflow run, not started yet, with the spending and run budget of the turn `before` it."""
    spending = replace(before.spending, earlier=_records(before), denied=False)
    run_budget = strictest(turn.grant.run_budget, before.grant.run_budget)
    return replace(turn, spending=spending, grant=replace(turn.grant, run_budget=run_budget))


def record_siblings(draft: StepDraft, children: tuple[RoundRecord, ...]) -> None:
    """Count in a child turn what the other `children` of its caller have spent since it started.

    Spending never shrinks, so a report that lacks one of them, as after a restart, changes nothing.
    """
    state = draft.state
    after = replace(state, spending=replace(state.spending, beside=children))
    is_more = all(spent(after, limit) >= spent(state, limit) for limit in LIMIT_NAMES)
    if is_more and not isinstance(state.phase, Finished):
        draft.state = after


def ask_if_reached(draft: StepDraft, target: ModelTarget, purpose: Purpose, gathered: AssistantMessage | None) -> bool:
    """Ask whether `target` may get another request, if a limit is reached. Returns True if it asks."""
    if (reached := _question_due(draft.state, target)) is None:
        return False
    question = replace(reached, purpose=purpose, gathered=gathered)
    phase = replace(draft.round_without_model(BUDGET_EXTEND, _call_arguments(draft.state, question)), budget=question)
    draft.set_phase(phase)
    facts = CallFacts(arguments=phase.calls[0].call.arguments)
    calls.ask_user(draft, 0, facts, AskReason.BUDGET, why=_question_text(draft.state, question))
    return True


def is_valid_decision(decision: Decision, by: Principal) -> bool:
    """Return True for a decision that the question takes: an approval by a person, or a rejection by anyone."""
    return (decision == Approved() and by.is_person) or isinstance(decision, Rejected)


def apply_decision(draft: StepDraft, question: BudgetQuestion, decision: Decision, by: Principal) -> None:
    """Apply a decision on the question, and settle its call."""
    spending, limit = draft.state.spending, question.limit
    if isinstance(decision, Rejected):
        text = f"Budget: {_question_text(draft.state, question)}. Nothing more is spent."
        content = text + feedback.reason_sentence(decision.reason)
        facts = ResultFacts(source=ResultSource.USER, reason=decision.reason)
        result = ToolResult(outcome=Outcome.DENIED, content=content, facts=facts)
        spending = replace(spending, denied=True)
    elif question.model:  # It was about what this model spends, which cannot be counted.
        content = f"{question.model} goes on. Its {limit} cannot be counted."
        result = ToolResult(outcome=Outcome.SUCCESS, content=content)
        spending = replace(spending, uncounted=(*spending.uncounted, f"{limit} {question.model}"))
    else:
        # One reply may have cost more than the whole limit. What other children have spent since was not shown.
        before, after = budget_in_force(draft.state).of(limit) or 0.0, question.spent + question.more
        spending = replace(spending, added=spending.added.raised(limit, after - before))
        content = f"The budget of this turn is {with_unit(limit, after)} now."
        result = ToolResult(outcome=Outcome.SUCCESS, content=content)
    draft.state = replace(draft.state, spending=spending)
    calls.settle_call(draft, 0, result, verdict=Verdict.ASK, decided_by=str(by), facts=None)


def _records(state: TurnState) -> tuple[RoundRecord, ...]:
    return (*state.spending.earlier, *state.spending.beside, *state.rounds)


def _models(state: TurnState) -> tuple[str, ...]:
    return tuple(dict.fromkeys(record.model for record in _records(state)))


def _question_due(state: TurnState, target: ModelTarget) -> BudgetQuestion | None:
    """Return the question that is due before a request to `target`; None if there is none."""
    configured, in_force = strictest(state.grant.budget, state.grant.run_budget), budget_in_force(state)
    for limit in LIMIT_NAMES:
        increment, permitted = configured.of(limit), in_force.of(limit)
        if increment is None or permitted is None:
            continue
        if _is_spending_unknown(state, limit, target):
            return BudgetQuestion(limit=limit, model=target.name)
        if (used := spent(state, limit)) >= permitted:
            return BudgetQuestion(limit=limit, spent=used, more=increment)
    return None


def _is_spending_unknown(state: TurnState, limit: LimitName, target: ModelTarget) -> bool:
    """Return True if what `target` spends of a limit cannot be known, and the user has not permitted that yet."""
    if limit == "minutes" or f"{limit} {target.name}" in state.spending.uncounted:
        return False
    return (limit == "cost" and not target.priced) or _has_unknown_reply(state, limit, target.name)


def _has_unknown_reply(state: TurnState, limit: LimitName, model: str) -> bool:
    """Return True if a reply of the model did not say what it spent."""
    usages = [record.usage for record in _records(state) if record.model == model and record.failure is None]
    return any(usage is None or (limit == "cost" and usage.cost is None) for usage in usages)


def _share_text(state: TurnState, limit: LimitName) -> str:
    permitted, used = budget_in_force(state).of(limit) or 0.0, amount(limit, spent(state, limit))
    if limit == "cost":
        # A cost has no unit: it is in that of the registry's prices.
        return f"cost {used} of {amount(limit, permitted)}"
    return f"{used} of {with_unit(limit, permitted)}"


def _question_text(state: TurnState, question: BudgetQuestion) -> str:
    """Return why the turn asks, with what was spent on which models and tools."""
    limit = question.limit
    spent_on = "; ".join(filter(None, (", ".join(_model_texts(state, limit)), ", ".join(_round_texts(state)))))
    if not question.model:
        return f"{_share_text(state, limit)}: {spent_on}"
    unknown = "the price of {} is not known" if limit == "cost" else "the server of {} reports no tokens"
    budget = with_unit(limit, budget_in_force(state).of(limit) or 0.0)
    so_far = f". So far: {spent_on}" if spent_on else ""
    return f"{unknown.format(question.model)}, so the budget ({budget}) cannot be kept{so_far}"


def _model_texts(state: TurnState, limit: LimitName) -> Iterator[str]:
    for model in _models(state):
        used = spent(state, limit, model)
        is_unknown = limit != "minutes" and _has_unknown_reply(state, limit, model)
        # Nothing known is not said beside something unknown.
        parts = [amount(limit, used)] if used or not is_unknown else []
        yield f"{model} {' and '.join([*parts, *([f'unknown {limit}'] if is_unknown else [])])}"
    if limit == "minutes" and state.spending.tools_ms:
        yield f"tools {amount(limit, state.spending.tools_ms / _MS_PER_MINUTE)}"


def _round_texts(state: TurnState) -> Iterator[str]:
    replies = sum(record.failure is None for record in _records(state))
    if tools := _count_tools(state).most_common():
        named = ", ".join(f"{count} {tool}" for tool, count in tools[:_MAX_NAMED_TOOLS])
        yield f"{plural(replies, 'round')} with {named}{' and others' if tools[_MAX_NAMED_TOOLS:] else ''}"
    elif replies:
        yield plural(replies, "round")
    if lost := state.spending.cut_off:
        yield f"not counted: {plural(lost, 'request')} that broke off or had to be sent again"


def _count_tools(state: TurnState) -> Counter[str]:
    return Counter(
        message.tool
        for message in state.messages
        if isinstance(message, ToolMessage) and message.outcome in _RAN_OUTCOMES
    )


def _call_arguments(state: TurnState, question: BudgetQuestion) -> dict[str, JsonValue]:
    """Return what the question is about as arguments of its call."""
    limit, permitted = question.limit, budget_in_force(state).of(question.limit) or 0.0
    by_model: list[JsonValue] = [
        {
            "model": model,
            "rounds": sum(record.model == model and record.failure is None for record in _records(state)),
            "cost": None if _has_unknown_reply(state, "cost", model) else spent(state, "cost", model),
            "tokens": None if _has_unknown_reply(state, "tokens", model) else spent(state, "tokens", model),
            "minutes": round(spent(state, "minutes", model), 3),
        }
        for model in _models(state)
    ]
    return {
        "limit": limit,
        "of": _rounded(limit, permitted),
        "spent": _rounded(limit, spent(state, limit)),
        **({"model": question.model} if question.model else {"more": _rounded(limit, question.more)}),
        "by_model": by_model,
        "calls": dict(_count_tools(state)),
    }


def _rounded(limit: LimitName, value: float) -> float:
    return int(value) if limit == "tokens" else round(value, 6)

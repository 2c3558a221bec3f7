"""What a turn may spend, in the machine: when it asks, what an answer does, and what nothing else can do."""

import itertools
import json
from dataclasses import replace

import pytest

from chatops.domain.decisions import AnyArguments, Approved, Decision, Edited, MarkedDone, Principal, Rejected
from chatops.domain.events import AskReason, TurnPaused, TurnStatus
from chatops.domain.messages import AssistantMessage, Usage
from chatops.domain.model import FailureKind, ModelFailure, ModelReply, ModelTarget
from chatops.domain.tools import BUDGET_EXTEND, Outcome, ToolResult
from chatops.engine.budgets import budget_in_force, continue_spending, spent, summary_lines
from chatops.engine.effects import CallModel, RunTool
from chatops.engine.inputs import CancelTurn, CorrectTurn, DecideCall, ModelFailureInput, ModelReplyInput, SwitchRole
from chatops.engine.state import AwaitingModel, InRound
from chatops.engine.view import pending_calls, turn_finished, turn_status
from chatops.policy.budget import NO_BUDGET, Budget
from chatops.policy.grant import Grant
from tests.engine.world import ANA, World, grant, raw, reply, switch

NUMBERS = itertools.count()
BIG, SMALL = ModelTarget(name="qwen-big", priced=True), ModelTarget(name="haiku", priced=True)


def under(budget: Budget, *models: ModelTarget, run: Budget = NO_BUDGET, rounds: int = 40) -> Grant:
    return replace(grant(max_rounds=rounds), models=models or (BIG, SMALL), budget=budget, run_budget=run)


def costs(cost: float | None, *calls: str, tokens: int = 10, text: str = "") -> ModelReply:
    usage = Usage(input_tokens=tokens - 1, output_tokens=1, cost=cost)
    return replace(reply(*(raw(name, f'{{"n":{next(NUMBERS)}}}') for name in calls), text=text), usage=usage)


def pay(world: World, *replies: ModelReply) -> World:
    """Let the models say `replies`, and stop where the turn asks or is over."""
    script = list(replies)
    while world.flying and (script or not isinstance(world.flying[0], CallModel)):
        world.perform(0, model=script.pop(0) if isinstance(world.flying[0], CallModel) else None)
    return world


def asked(world: World) -> dict[str, object]:
    (pending,) = pending_calls(world.state)
    assert (pending.call.name, pending.reason) == (BUDGET_EXTEND, AskReason.BUDGET)
    assert turn_status(world.state) is TurnStatus.PAUSED
    found: dict[str, object] = json.loads(pending.facts.arguments)
    return found


def test_a_reached_limit_asks_before_the_next_request_and_names_what_was_spent_on_what() -> None:
    world = pay(World.begin(under(Budget(cost=0.5))), costs(0.48, "read"), costs(0.04, "read", "read"))
    assert len(world.requests) == 2
    amounts = asked(world)
    assert (amounts["limit"], amounts["of"], amounts["spent"], amounts["more"]) == ("cost", 0.5, 0.52, 0.5)
    assert amounts["calls"] == {"read": 3}
    (pending,) = pending_calls(world.state)
    assert pending.why == "cost 0.52 of 0.50: qwen-big 0.52; 2 rounds with 3 read"
    assert isinstance(world.steps[-1].events[-1], TurnPaused)
    assert list(summary_lines(world.state)) == ["cost 0.52 of 0.50, 0.00 left"]


def test_more_is_the_same_amount_again_and_then_it_asks_again() -> None:
    world = pay(World.begin(under(Budget(cost=0.5))), costs(0.6, "read"))
    world.decide(0, Approved())
    assert budget_in_force(world.state) == Budget(cost=1.1) and len(world.requests) == 2
    pay(world, costs(0.3, "read"))
    assert len(world.requests) == 3
    pay(world, costs(0.3, "read"))
    assert asked(world)["of"] == 1.1
    world.decide(0, Approved())
    pay(world, costs(0.1, text="Done."))
    assert world.finished.result is TurnStatus.ANSWERED and world.finished.answer == "Done."


def test_one_reply_that_costs_several_limits_is_asked_about_once() -> None:
    world = pay(World.begin(under(Budget(cost=0.1))), costs(0.35, "read"))
    assert asked(world)["more"] == pytest.approx(0.1)
    world.decide(0, Approved())
    assert isinstance(world.state.phase, AwaitingModel) and budget_in_force(world.state).cost == pytest.approx(0.45)


def test_no_ends_the_turn_with_what_was_gathered_and_without_a_request() -> None:
    world = pay(World.begin(under(Budget(cost=0.5))), costs(0.6, "read"))
    world.decide(0, Rejected(reason="enough"))
    end = world.finished
    assert end.result is TurnStatus.LIMIT and len(world.requests) == 1 and not world.flying
    assert "Nothing more is spent. Reason: enough." in end.detail and "**read**: ran" in end.answer
    assert turn_finished(world.state, end).result is TurnStatus.LIMIT


def test_the_answer_of_the_model_that_gathered_is_kept() -> None:
    world = World.begin(replace(under(Budget(cost=0.5)), responder=SMALL))
    pay(world, costs(0.4, "read"), costs(0.3, text="It is seven."))
    world.decide(0, Rejected())
    assert world.finished.answer == "It is seven." and world.finished.result is TurnStatus.LIMIT
    assert isinstance(world.state.messages[-2], AssistantMessage)


def test_tokens_count_and_minutes_count_models_and_tools_but_no_waiting() -> None:
    world = pay(World.begin(under(Budget(tokens=20))), costs(None, "read", tokens=15), costs(None, "read", tokens=15))
    assert pending_calls(world.state)[0].why.startswith("30 of 20 tokens: qwen-big 30; 2 rounds")
    slow = ToolResult(outcome=Outcome.SUCCESS, content="x", duration_ms=60_000)
    world = World.begin(under(Budget(minutes=2)), tool_says=lambda call: slow)
    phase = world.state.phase
    assert isinstance(phase, AwaitingModel)
    world.flying.clear()
    # Two reads ran side by side, a third after a write: two minutes of tools, half a minute of the model.
    said = costs(None, "read", "read", "free", "read")
    world.feed(ModelReplyInput(round_id=phase.round_id, reply=said, duration_ms=30_000))
    pay(world)
    assert spent(world.state, "minutes") == 3.5
    assert pending_calls(world.state)[0].why.startswith("3.5 of 2 minutes: qwen-big 0.5, tools 3; 1 round")


@pytest.mark.parametrize(
    ("decision", "by"),
    [
        (Approved(), Principal(uid=1, via="headless")),
        (Approved(), Principal(uid=1, via="python")),
        (Approved(), Principal(uid=1, via="tui", rule="12")),
        (Approved(remember=AnyArguments()), ANA),
        (Approved(only=("a",)), ANA),
        (Edited(arguments='{"limit":"cost","more":99}'), ANA),
        (MarkedDone(), ANA),
    ],
)
def test_only_the_plain_yes_of_a_person_lets_it_go_on(decision: Decision, by: Principal) -> None:
    world = pay(World.begin(under(Budget(cost=0.5))), costs(0.6, "read"))
    (pending,) = pending_calls(world.state)
    before = world.state
    world.feed(DecideCall(call_id=pending.call.id, digest=pending.digest, decision=decision, by=by))
    assert world.state is before
    world.feed(DecideCall(call_id=pending.call.id, digest="other", decision=Approved(), by=ANA))
    assert world.state is before


def test_the_digest_binds_the_amounts() -> None:
    one = pay(World.begin(under(Budget(cost=0.5))), costs(0.6, "read"))
    two = pay(World.begin(under(Budget(cost=0.5))), costs(0.61, "read"))
    assert pending_calls(one.state)[0].digest != pending_calls(two.state)[0].digest


def test_no_model_can_ask_for_more() -> None:
    world = pay(World.begin(under(Budget(cost=5))), costs(0.1, BUDGET_EXTEND), costs(0.1, text="Well."))
    assert [one.outcome for one in world.results()] == [Outcome.INVALID] and budget_in_force(world.state) == Budget(
        cost=5
    )
    assert not any(isinstance(effect, RunTool) for step in world.steps for effect in step.effects)


def test_a_model_without_a_price_asks_before_its_first_request_and_once() -> None:
    world = World.begin(under(Budget(cost=0.5), ModelTarget(name="haiku")))
    assert not world.requests and asked(world)["model"] == "haiku"
    assert pending_calls(world.state)[0].why.startswith("the price of haiku is not known, so the budget (cost 0.50)")
    world.decide(0, Approved())
    pay(world, costs(None, "read"), costs(None, text="Done."))
    assert world.finished.result is TurnStatus.ANSWERED
    refused = World.begin(under(Budget(cost=0.5), ModelTarget(name="haiku")))
    refused.decide(0, Rejected())
    assert refused.finished.result is TurnStatus.LIMIT and refused.finished.answer == "" and not refused.requests


def test_a_server_that_reports_no_tokens_asks_after_its_first_reply() -> None:
    silent = replace(costs(None, "read"), usage=None)
    world = pay(World.begin(under(Budget(tokens=1_000))), silent)
    assert pending_calls(world.state)[0].why.startswith("the server of qwen-big reports no tokens")
    world.decide(0, Approved())
    pay(world, silent)
    assert isinstance(world.state.phase, AwaitingModel)


def test_a_backup_without_a_price_asks_too() -> None:
    world = World.begin(under(Budget(cost=0.5), BIG, ModelTarget(name="haiku")))
    phase = world.state.phase
    assert isinstance(phase, AwaitingModel)
    gone = ModelFailure(kind=FailureKind.UNREACHABLE, message="gone")
    world.feed(ModelFailureInput(round_id=phase.round_id, failure=gone))
    assert asked(world)["model"] == "haiku" and len(world.requests) == 1


def test_the_budget_of_the_run_stays_when_the_role_changes() -> None:
    world = pay(World.begin(under(Budget(cost=9), run=Budget(cost=0.5))), costs(0.3, "read"))
    world.feed(SwitchRole(grant=under(Budget(cost=5)), switch=switch("coder", "other")))
    pay(world, costs(0.3, "read"))
    assert asked(world)["of"] == 0.5


def test_a_correction_asks_again_and_esc_ends_the_turn() -> None:
    world = pay(World.begin(under(Budget(cost=0.5))), costs(0.6, "read"))
    first = pending_calls(world.state)[0]
    world.feed(CorrectTurn(text="Only the first one."))
    second = pending_calls(world.state)[0]
    assert second.call.id != first.call.id and len(world.requests) == 1
    world.decide(0, Approved())
    assert "Only the first one." in str(world.requests[-1].messages)
    pay(world, costs(0.6, "read"))
    world.feed(CancelTurn())
    assert world.finished.result is TurnStatus.CANCELLED and len(world.requests) == 2


def test_a_crash_keeps_the_question_and_what_was_spent() -> None:
    world = pay(World.begin(under(Budget(cost=0.5))), costs(0.6, "read"))
    before = pending_calls(world.state)[0]
    world.crash(under(Budget(cost=2)))
    after = pending_calls(world.state)[0]
    assert (after.digest, after.why) == (before.digest, before.why)
    world.decide(0, Approved())
    assert budget_in_force(world.state).cost == 1.1, "the stricter budget of then and now, and what was added"
    world.crash()
    pay(world, costs(0.6, "read"))
    assert "not counted: 1 request that broke off or had to be sent again" in pending_calls(world.state)[0].why
    world.crash(copied=True)
    assert "copied or moved" in pending_calls(world.state)[0].why
    assert isinstance(world.state.phase, InRound)


def test_the_turns_of_a_run_spend_one_budget() -> None:
    first = pay(World.begin(under(NO_BUDGET, run=Budget(cost=0.5))), costs(0.4, text="One."))
    second = continue_spending(World.begin(under(NO_BUDGET)).state, first.state)
    assert (spent(second, "cost"), budget_in_force(second)) == (0.4, Budget(cost=0.5))

"""A command of the user: a turn without a model, in which typing it decides where the call asks, once."""

from dataclasses import replace

from chatops.domain.decisions import Approved
from chatops.domain.events import ApprovalRequested, AskReason, TurnStatus
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import CallFacts, Outcome
from chatops.engine.effects import InspectCall, RunTool
from chatops.engine.inputs import InspectionInput, Recover
from chatops.engine.state import TurnState, new_turn
from chatops.engine.turn import advance
from chatops.engine.view import pending_calls, turn_status
from chatops.engine.without_model import start_command
from tests.engine.steps import SHELL, step_grant
from tests.engine.world import ANA, World

FACTS = CallFacts(arguments='{"command":"ls"}', command="ls", sandbox="hard", sandboxed=True)


def begin() -> World:
    step = start_command(
        new_turn(TurnId("s.4"), SessionId("s"), grant=step_grant((SHELL,))),
        "ls",
        private=False,
        shown=True,
        by=ANA,
    )
    return World(state=step.state, flying=list(step.effects))


def looked(state: TurnState, facts: CallFacts) -> TurnState:
    """The state after the call was inspected."""
    call = next(effect for effect in begin().flying if isinstance(effect, InspectCall)).call
    return advance(state, InspectionInput(call_id=call.id, facts=facts)).state


def test_typing_it_decides_and_the_decision_is_recorded() -> None:
    world = begin()
    (effect,) = world.flying
    assert isinstance(effect, InspectCall)
    step = advance(world.state, InspectionInput(call_id=effect.call.id, facts=FACTS))
    assert [(one.decision, one.by) for one in step.decisions] == [(Approved(), ANA)]
    assert not any(isinstance(event, ApprovalRequested) for event in step.events)
    again = advance(step.state, InspectionInput(call_id=effect.call.id, facts=FACTS))
    assert [type(one) for one in again.effects] == [RunTool]


def test_it_asks_without_a_sandbox_and_if_more_would_run_than_was_typed_or_can_be_given() -> None:
    for facts in (
        replace(FACTS, sandboxed=False),
        replace(FACTS, needs_user="a doubt"),
        replace(FACTS, repairs=("closed a brace",)),
        replace(FACTS, credentials=("T at a.example as X: {}",)),
        replace(FACTS, extra=SandboxSpec(git="commit"), extra_sandbox="with .git"),
    ):
        state = looked(begin().state, facts)
        assert turn_status(state) is TurnStatus.PAUSED


def test_it_asks_if_the_app_was_restarted_before_it_was_looked_at() -> None:
    state = advance(begin().state, Recover(grant=step_grant((SHELL,)))).state
    assert turn_status(looked(state, FACTS)) is TurnStatus.PAUSED


def test_after_a_kill_while_it_ran_only_the_user_runs_it_again() -> None:
    state = looked(looked(begin().state, FACTS), FACTS)
    again = advance(state, Recover(grant=step_grant((SHELL,))))
    assert not any(isinstance(effect, RunTool) for effect in again.effects)
    (pending,) = pending_calls(again.state)
    assert pending.reason is AskReason.OUTCOME_UNKNOWN


def test_a_turn_under_a_narrower_grant_is_denied() -> None:
    state = advance(begin().state, Recover(grant=step_grant(()))).state
    world = World(state=looked(state, FACTS))
    assert [m.outcome for m in world.results()] == [Outcome.DENIED]

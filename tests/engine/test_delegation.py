"""Calls that delegate: side by side, in no contained turn, and paused with their children."""

from dataclasses import replace

import pytest

from chatops.domain.canonical import canonical
from chatops.domain.events import ApprovalRequested, PendingCall, TurnPaused, TurnStatus
from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import UserMessage
from chatops.domain.tools import Outcome, ResultFacts, ToolResult, Verdict
from chatops.domain.usage import Usage
from chatops.engine.effects import CancelTool, InspectCall, ReconcileTool, RunTool
from chatops.engine.inputs import CancelTurn, ChildInput, ContainTurn, Recover, ToolResultInput
from chatops.engine.state import ChildTurn, Started
from chatops.engine.view import own_pending_calls, pending_calls, turn_status, waits_for_child, workspace_was_read
from chatops.policy.delegation import MAX_AT_ONCE
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Layer
from chatops.store.codec import STATE_VERSION, decode_state, encode_state
from tests.engine.world import READ, World, grant, raw, reply, spec
from tests.support.turns import paused

DELEGATE = replace(spec("delegate", Verdict.ALLOW), reconcilable=True)
ASKED: PendingCall = replace(pending_calls(paused())[0], caller="coder")


def rights() -> Grant:
    return replace(grant(tools=(READ, DELEGATE)), layers=(Layer(name="all", rules=()),))


def task(number: int = 1):  # type: ignore[no-untyped-def]
    return raw("delegate", canonical({"role": "writer", "task": f"part {number}"}))


def delegating(*, calls: int = 1, contained: bool = False) -> World:
    """A turn whose model delegates, up to where nothing is left to inspect."""
    world = World.begin(rights())
    if contained:
        world.feed(ContainTurn())
    world.perform(0, model=reply(*(task(number) for number in range(calls))))
    while any(isinstance(effect, InspectCall) for effect in world.flying):
        world.perform(next(at for at, effect in enumerate(world.flying) if isinstance(effect, InspectCall)))
    return world


def started(world: World) -> list[Started]:
    calls = world.state.phase.calls  # type: ignore[union-attr]
    return [one.status for one in calls if isinstance(one.status, Started)]


def ended(world: World, index: int = 0, **facts: object) -> None:
    call = world.state.phase.calls[index].call.id  # type: ignore[union-attr]
    known = ResultFacts(**facts)  # type: ignore[arg-type]
    world.feed(
        ToolResultInput(
            call_id=call, attempt=1, result=ToolResult(outcome=Outcome.SUCCESS, content="done", facts=known)
        )
    )


def first(world: World) -> CallId:
    return CallId(world.state.phase.calls[0].call.id)  # type: ignore[union-attr]


def test_at_most_four_run_at_once_and_each_end_lets_the_next_start() -> None:
    world = delegating(calls=6)
    assert len(started(world)) == MAX_AT_ONCE == 4
    ended(world, 1)
    assert len(started(world)) == 3, "the fifth is inspected again before it starts"
    while any(isinstance(effect, InspectCall) for effect in world.flying):
        world.perform(next(at for at, effect in enumerate(world.flying) if isinstance(effect, InspectCall)))
    assert len(started(world)) == 4


def test_nothing_else_runs_beside_a_child() -> None:
    world = World.begin(rights())
    world.perform(0, model=reply(task(), raw("read")))
    while any(isinstance(effect, InspectCall) for effect in world.flying):
        world.perform(next(at for at, effect in enumerate(world.flying) if isinstance(effect, InspectCall)))
    assert len(started(world)) == 1


def test_a_contained_turn_does_not_delegate() -> None:
    (result,) = delegating(contained=True).results()
    assert result.outcome is Outcome.DENIED
    assert "contained turn does not delegate" in result.content


def test_a_turn_is_paused_while_its_children_wait_and_shows_their_calls() -> None:
    world = delegating(calls=2)
    waits = ChildTurn(pending=(ASKED,), paused=True)
    step = world.feed(ChildInput(call_id=first(world), attempt=1, child=waits))
    assert [event for event in step.events if isinstance(event, ApprovalRequested)] == [
        ApprovalRequested(id=first(world), parent_id=world.state.phase.round_id, pending=ASKED)  # type: ignore[union-attr]
    ]
    assert turn_status(world.state) is TurnStatus.RUNNING, "the other child still works"
    ended(world, 1)
    assert turn_status(world.state) is TurnStatus.PAUSED and waits_for_child(world.state)
    assert pending_calls(world.state) == (ASKED,) and own_pending_calls(world.state) == ()
    stored = decode_state(encode_state(world.state), version=STATE_VERSION).state
    assert stored.phase == world.state.phase
    step = world.feed(ChildInput(call_id=first(world), attempt=1, child=ChildTurn()))
    assert turn_status(world.state) is TurnStatus.RUNNING
    assert not any(isinstance(event, ApprovalRequested | TurnPaused) for event in step.events)
    assert world.feed(ChildInput(call_id=first(world), attempt=2, child=waits)).state is world.state


def test_a_stopped_turn_waits_for_its_child_even_if_that_was_paused() -> None:
    world = delegating()
    world.feed(ChildInput(call_id=first(world), attempt=1, child=ChildTurn(pending=(ASKED,), paused=True)))
    step = world.feed(CancelTurn())
    assert step.effects == (CancelTool(call_id=CallId("s.1.1.1")),)
    assert turn_status(world.state) is TurnStatus.RUNNING


@pytest.mark.parametrize("stop", [False, True])
def test_a_restart_looks_for_the_end_of_the_child(stop: bool) -> None:
    world = delegating()
    world.feed(ChildInput(call_id=first(world), attempt=1, child=ChildTurn(pending=(ASKED,), paused=True)))
    if stop:
        world.feed(CancelTurn())
    world.flying.clear()
    step = world.feed(Recover(grant=rights()))
    (look,) = step.effects
    assert isinstance(look, ReconcileTool) and look.stopping is stop


def test_what_a_child_has_used_and_read_counts_for_its_parent() -> None:
    world = delegating()
    (run,) = [effect for effect in world.flying if isinstance(effect, RunTool)]
    assert run.grant == rights() and not run.workspace_read
    assert not workspace_was_read(world.state)
    ended(world, reads_workspace=True, usage=Usage(input_tokens=5))
    assert workspace_was_read(world.state)


def test_a_task_of_a_role_that_has_read_the_workspace_counts_as_read() -> None:
    message = UserMessage(id=MessageId("s.0.m1"), text="what it says", reads_workspace=True)
    world = World.begin(rights(), history=(message,))
    assert workspace_was_read(world.state)

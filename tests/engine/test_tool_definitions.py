"""An approval is of a tool as it was then: one that has become another is reviewed again."""

from chatops.domain.decisions import Approved
from chatops.domain.events import AskReason
from chatops.domain.tools import Outcome
from chatops.engine.view import pending_calls
from tests.engine.world import World, raw, reply


def waiting(definition: str) -> World:
    """A world in which a call waits, proposed under that definition."""
    world = World.begin()
    world.definition = definition
    world.drain(reply(raw("run")))
    return world


def test_a_tool_that_changed_after_the_approval_is_reviewed_again_and_runs_once() -> None:
    world = waiting("old")
    world.definition = "new"
    world.decide(0, Approved())
    world.drain()
    (again,) = pending_calls(world.state)
    assert again.reason is AskReason.CHANGED
    assert again.why == "the tool run has changed since it was approved: review it again"
    assert not world.effects_done
    world.decide(0, Approved())
    world.drain()
    assert [one.outcome for one in world.results()] == [Outcome.SUCCESS]
    assert set(world.effects_done.values()) == {1}


def test_one_that_changed_while_nobody_was_there_is_reviewed_again() -> None:
    world = waiting("old")
    world.crash()
    world.definition = "new"
    world.decide(0, Approved())
    world.drain()
    assert pending_calls(world.state)[0].reason is AskReason.CHANGED

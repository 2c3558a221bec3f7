"""A call whose arguments had to be guessed asks, no matter which reader guessed: a user sees what would run."""

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.events import TurnStatus
from chatops.domain.tools import RawCall
from chatops.engine.view import pending_calls
from tests.engine.world import World, raw, reply


@pytest.mark.parametrize(
    "call",
    [raw("free", '{"x":"mended"}'), raw("free", "{}", repairs=("a brace was added",))],
    ids=["inspection", "the reader of the reply"],
)
def test_a_permitted_call_that_was_repaired_asks_a_user(call: RawCall) -> None:
    world = World.begin()
    world.drain(reply(call))
    (pending,) = pending_calls(world.state)
    assert pending.facts.repairs
    assert not world.effects_done
    world.decide(0, Approved())
    world.drain()
    assert world.finished.result is TurnStatus.ANSWERED
    assert sum(world.effects_done.values()) == 1

"""A correction: the user interrupts the turn with a message, and it continues with that message in one step."""

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.events import TurnCorrected
from chatops.domain.messages import AssistantMessage, UserMessage
from chatops.domain.tools import Outcome
from chatops.engine.effects import AbortModel, CallModel, CancelTool, ComposerDraft
from chatops.engine.inputs import CancelTurn, CorrectTurn
from chatops.engine.state import AwaitingModel, Stopping
from chatops.engine.turn import advance
from tests.engine.steps import says
from tests.engine.test_gate_turn import begin as begin_gate
from tests.engine.world import World, raw, reply


def asked(world: World) -> list[str]:
    """The texts of the last request in the user's name."""
    return [m.text for m in world.requests[-1].messages if isinstance(m, UserMessage)]


def test_a_reply_is_aborted_and_the_next_request_has_what_was_said_and_the_correction() -> None:
    world = World.begin(text="delete it")
    left = ComposerDraft(setting="draft", text="more")
    step = world.feed(CorrectTurn(text="no, keep it", draft=left, partial_text="I delete"))
    assert [type(effect) for effect in step.effects] == [AbortModel, CallModel]
    assert step.draft == left
    assert [m.text for m in step.messages if isinstance(m, AssistantMessage | UserMessage)] == [
        "I delete",
        "no, keep it",
    ]
    assert [event.text for event in step.events if isinstance(event, TurnCorrected)] == ["no, keep it"]
    assert asked(world) == ["delete it", "no, keep it"]
    assert [m.text for m in world.requests[-1].messages if isinstance(m, AssistantMessage)] == ["I delete"]
    # The reply that was aborted may still arrive.
    world.perform(0)
    assert isinstance(world.state.phase, AwaitingModel)
    world.drain()
    assert world.finished.answer == "done"


def test_a_running_call_is_stopped_first_and_its_outcome_is_told() -> None:
    world = World.begin()
    world.perform(0, model=reply(raw("free"), raw("write")))
    world.perform(0)
    world.perform(0)
    step = world.feed(CorrectTurn(text="use another"))
    assert any(isinstance(effect, CancelTool) for effect in step.effects)
    assert isinstance(step.state.phase, Stopping)
    assert not step.messages
    # Another one joins it, and Esc takes nothing away.
    world.feed(CorrectTurn(text="and hurry"))
    assert world.feed(CancelTurn()).state is world.state
    world.drain()
    assert [(m.tool, m.outcome) for m in world.results()] == [
        ("free", Outcome.SUCCESS),
        ("write", Outcome.INTERRUPTED),
    ]
    assert asked(world) == ["go", "use another\n\nand hurry"]
    assert world.finished.answer == "done"


def test_a_kill_while_it_waits_keeps_the_correction_and_states_the_outcome() -> None:
    world = World.begin()
    world.perform(0, model=reply(raw("run")))
    world.perform(0)
    world.decide(0, Approved())
    world.perform(0)
    world.feed(CorrectTurn(text="not that one"))
    world.perform(0, lose=True)
    world.crash()
    assert [m.outcome for m in world.results()] == [Outcome.UNKNOWN]
    assert asked(world) == ["go", "not that one"]
    world.drain()
    assert sum(world.effects_done.values()) == 1


def test_a_pending_call_never_runs() -> None:
    world = World.begin()
    world.perform(0, model=reply(raw("run")))
    world.perform(0)
    world.feed(CorrectTurn(text="something else"))
    world.drain()
    assert not world.effects_done
    assert [m.content for m in world.results()] == ["Not run: the user interrupted the turn with a message."]


def test_the_limit_of_rounds_counts_anew() -> None:
    world = World.begin()
    for number in range(3):
        world.perform(0, model=reply(raw("read", f'{{"n":{number}}}')))
        world.perform(0)
        world.perform(0)
    world.feed(CorrectTurn(text="go on"))
    assert world.state.counters.rounds == 0
    assert world.state.counters.requests == 5


@pytest.mark.parametrize("end", ["finished", "gate"])
def test_where_no_model_can_go_on_nothing_changes(end: str) -> None:
    world = World.begin() if end == "finished" else begin_gate()
    if end == "finished":
        world.drain(says(None))
    assert advance(world.state, CorrectTurn(text="x")).state is world.state

"""A gate's command: a turn without a model, whose one call is judged, asked for and journaled like any other."""

import json
import re

import pytest

from chatops.domain.decisions import Approved, Edited, MarkedDone, Rejected
from chatops.domain.events import Notice, StepGate, TurnStatus
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import AssistantMessage
from chatops.domain.tools import Outcome, ToolResult
from chatops.engine.effects import CallModel
from chatops.engine.inputs import CancelTurn, RetryTurn
from chatops.engine.state import new_turn
from chatops.engine.turn import advance
from chatops.engine.view import pending_calls, turn_status
from chatops.engine.without_model import start_gate
from chatops.engine.workflow.machine import turn_end_input
from chatops.policy.grant import Grant
from chatops.policy.workflow import CommandGate
from tests.engine.steps import INFO, SHELL, result, step_grant
from tests.engine.world import World

GATE = CommandGate(name="tests", command="pytest -q", timeout_s=90)


def begin(grant: Grant | None = None, says: ToolResult | None = None) -> World:
    """The gate's turn just begun, with what its command will give."""
    step = start_gate(new_turn(TurnId("s.4"), SessionId("s"), grant=grant or step_grant((SHELL,))), GATE, step="build")
    return World.after(step, lambda call: says)


def test_the_command_waits_for_a_user_and_runs_exactly_as_shown() -> None:
    world = begin()
    world.drain()
    assert turn_status(world.state) is TurnStatus.PAUSED
    shown = pending_calls(world.state)[0]
    assert (shown.call.name, shown.gate) == ("shell_exec", StepGate(name="tests", step="build"))
    assert json.loads(shown.call.arguments) == {"command": "pytest -q", "timeout_s": 90}
    world.decide(0, Approved())
    world.drain()
    assert sum(world.effects_done.values()) == 1


def test_the_gate_passes_when_the_command_succeeds() -> None:
    world = begin(says=result("12 passed"))
    world.drain()
    world.decide(0, Approved())
    world.drain()
    assert (world.finished.result, world.finished.answer) == (TurnStatus.ANSWERED, "12 passed")
    ended = turn_end_input(world.state)
    assert ended is not None
    assert ended.outcome is Outcome.SUCCESS
    assert ended.done == ()


def test_the_gate_fails_with_the_output_of_the_command() -> None:
    world = begin(says=result("1 failed\n[exit code 1]", Outcome.FAILED))
    world.drain()
    world.decide(0, Approved())
    world.drain()
    assert (world.finished.result, world.finished.detail) == (TurnStatus.FAILED, "1 failed\n[exit code 1]")


@pytest.mark.parametrize("arguments", ['{"command":"true"}', '{"command":"pytest -q","cwd":"other"}'])
def test_no_other_command_passes_the_gate_in_its_place(arguments: str) -> None:
    world = begin(says=result("12 passed"))
    world.drain()
    world.decide(0, Edited(arguments=arguments))
    world.drain()
    notices = [event.text for step in world.steps for event in step.events if isinstance(event, Notice)]
    assert notices == [
        "The edited arguments of shell_exec cannot be used: the gate tests only passes with its own command"
    ]
    assert json.loads(pending_calls(world.state)[0].call.arguments)["command"] == "pytest -q"
    assert not world.effects_done
    world.decide(0, Approved())
    world.drain()
    assert world.finished.result is TurnStatus.ANSWERED


def test_a_denied_command_ends_the_turn_and_says_that_it_did_not_run() -> None:
    world = begin()
    world.drain()
    world.decide(0, Rejected(reason="not on this machine"))
    assert world.finished.result is TurnStatus.FAILED
    assert re.fullmatch(
        r"Its command was denied by .+\. Reason: not on this machine\. It did not run, so the answer is not accepted\.",
        world.finished.detail,
    )
    ended = turn_end_input(world.state)
    assert ended is not None
    assert ended.outcome is Outcome.DENIED


def test_a_command_that_may_not_run_here_is_refused_at_once() -> None:
    world = begin(step_grant((INFO,)))
    assert world.finished.result is TurnStatus.FAILED
    assert not world.effects_done
    ended = turn_end_input(world.state)
    assert ended is not None
    assert ended.outcome is Outcome.DENIED


def test_no_model_is_asked_and_the_transcript_is_one_that_a_server_accepts() -> None:
    world = begin()
    world.drain()
    world.decide(0, Approved())
    world.drain()
    assert not any(isinstance(effect, CallModel) for step in world.steps for effect in step.effects)
    asked = [call.id for m in world.state.messages if isinstance(m, AssistantMessage) for call in m.calls]
    assert asked == [m.call_id for m in world.results()]


def test_after_a_crash_in_the_middle_a_user_says_what_became_of_it() -> None:
    world = begin()
    world.drain()
    world.decide(0, Approved())
    world.perform(0)
    world.perform(0, lose=True)
    world.crash()
    assert turn_status(world.state) is TurnStatus.PAUSED
    world.decide(0, MarkedDone(note="it ran"))
    assert world.finished.result is TurnStatus.FAILED, "that it ran does not say that it passed"


@pytest.mark.parametrize("running", [False, True])
def test_cancelling_gives_the_call_a_result_and_ends_the_turn(running: bool) -> None:
    world = begin()
    world.drain()
    if running:
        world.decide(0, Approved())
        world.perform(0)
    world.feed(CancelTurn())
    world.drain()
    assert world.finished.result is TurnStatus.CANCELLED
    assert len(world.results()) == 1


def test_a_gate_is_not_retried_but_made_again_by_the_run() -> None:
    world = begin(step_grant((INFO,)))
    assert advance(world.state, RetryTurn(grant=step_grant((SHELL,)))).state is world.state


def test_a_turn_that_is_not_over_has_not_ended() -> None:
    assert turn_end_input(begin().state) is None

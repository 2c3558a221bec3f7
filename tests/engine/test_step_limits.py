"""A step's calls, example by example: their order, those made once, and those that earlier attempts have made."""

from dataclasses import replace

from chatops.domain.decisions import Approved, Edited
from chatops.domain.events import TurnStatus
from chatops.domain.messages import Message
from chatops.domain.tools import Outcome
from chatops.engine.contract import DoneCall, StepContract
from chatops.engine.step_limits import done_calls
from chatops.engine.view import pending_calls
from tests.engine.steps import (
    CLAIM_A,
    CONFIGURE,
    SHELL,
    STEP_TOOLS,
    VALIDATE,
    calls,
    feedback,
    play,
    result,
    says,
    step_grant,
    validate,
    validating,
)
from tests.engine.world import World, raw

# Which calls, when


def test_a_tool_of_another_step_is_not_run() -> None:
    world = play(calls(raw("discover")), says(1))
    assert world.results()[0].outcome is Outcome.DENIED
    assert "step build of workflow site" in world.results()[0].content
    assert not world.effects_done


def test_a_tool_is_refused_before_those_that_come_first() -> None:
    contract = StepContract(order=("info", "configure", "deploy"))
    world = play(calls(raw("configure"), raw("info")), calls(raw("configure")), says(1), contract=contract)
    assert [m.outcome for m in world.results()] == [Outcome.INVALID, Outcome.SUCCESS, Outcome.SUCCESS]
    assert "configure comes after info, which has not succeeded yet. Call info first." in world.results()[0].content


def test_calls_of_one_round_run_in_the_order_of_the_step() -> None:
    contract = StepContract(order=("info", "configure", "note"), once=("info", "configure"))
    world = play(calls(raw("info"), raw("configure"), raw("note")), says(1), contract=contract)
    assert [m.outcome for m in world.results()] == [Outcome.SUCCESS] * 3
    assert world.finished.result is TurnStatus.ANSWERED


def test_a_call_that_waited_for_an_earlier_one_of_its_round_is_refused_if_that_failed() -> None:
    contract = StepContract(order=("info", "configure", "deploy"))
    failing = lambda call: result("no", Outcome.FAILED) if call.name == "info" else None  # noqa: E731
    world = play(calls(raw("info"), raw("configure"), raw("deploy")), says(1), contract=contract, tool_says=failing)
    assert [m.outcome for m in world.results()] == [Outcome.FAILED, Outcome.INVALID, Outcome.INVALID]
    assert "configure comes after info, which has not succeeded yet" in world.results()[1].content


def test_a_failed_call_does_not_open_the_way_to_the_next() -> None:
    contract = StepContract(order=("info", "configure"))
    failing = lambda call: result("no", Outcome.FAILED) if call.name == "info" else None  # noqa: E731
    world = play(calls(raw("info")), calls(raw("configure")), says(1), contract=contract, tool_says=failing)
    assert world.results()[1].outcome is Outcome.INVALID


def test_a_tool_that_may_succeed_once_is_not_run_again() -> None:
    contract = StepContract(once=("info",))
    world = play(
        calls(raw("info", '{"n":1}'), raw("info", '{"n":2}')), calls(raw("info", '{"n":3}')), says(1), contract=contract
    )
    assert [m.outcome for m in world.results()] == [Outcome.SUCCESS, Outcome.INVALID, Outcome.INVALID]
    assert "info may be called once in this step" in world.results()[2].content


def test_a_tool_that_may_succeed_once_may_fail_before() -> None:
    failed = iter([result("no", Outcome.FAILED)])
    world = play(
        calls(raw("info", '{"n":1}')),
        calls(raw("info", '{"n":2}')),
        says(1),
        contract=StepContract(once=("info",)),
        tool_says=lambda call: next(failed, None),
    )
    assert [m.outcome for m in world.results()] == [Outcome.FAILED, Outcome.SUCCESS]


def test_a_tool_that_may_succeed_once_is_not_run_again_if_nobody_knows_whether_it_has() -> None:
    world = play(
        calls(raw("configure", '{"n":1}')),
        calls(raw("configure", '{"n":2}')),
        says(1),
        contract=StepContract(once=("configure",)),
        tool_says=lambda call: result("", Outcome.UNKNOWN),
    )
    assert [m.outcome for m in world.results()] == [Outcome.UNKNOWN, Outcome.INVALID]


# What earlier attempts have done

DONE = DoneCall(tool="configure", arguments='{"n":1}', content="port is 80")


def test_a_call_that_took_place_in_an_earlier_attempt_is_answered_and_not_made_again() -> None:
    world = play(calls(raw("configure", '{"n":1}')), says(1), contract=StepContract(done=(DONE,)))
    assert not world.effects_done
    assert world.results()[0].outcome is Outcome.SUCCESS
    assert "an earlier attempt at this step made this very call" in world.results()[0].content
    assert "port is 80" in world.results()[0].content


def test_an_earlier_call_whose_outcome_nobody_knows_is_not_made_again_either() -> None:
    unknown = replace(DONE, outcome=Outcome.UNKNOWN)
    world = play(calls(raw("configure", '{"n":1}')), says(1), contract=StepContract(done=(unknown,)))
    assert not world.effects_done
    assert world.results()[0].outcome is Outcome.UNKNOWN


def test_other_arguments_are_another_call() -> None:
    world = play(calls(raw("configure", '{"n":2}')), says(1), contract=StepContract(done=(DONE,)))
    assert sum(world.effects_done.values()) == 1


def test_a_gated_call_that_is_done_asks_nobody() -> None:
    deployed = DoneCall(tool="deploy", arguments="{}", content="v1 is out")
    world = play(calls(raw("deploy")), says(1), contract=StepContract(done=(deployed,)))
    assert world.finished.result is TurnStatus.ANSWERED
    assert not world.effects_done


TESTS_RAN = DoneCall(tool="shell_exec", arguments='{"command":"make test"}', content="1 failed")


def _runs_tests_again(*done: DoneCall) -> World:
    world = World.begin(step_grant((*STEP_TOOLS, SHELL)), contract=StepContract(done=done))
    world.drain(calls(raw("shell_exec", '{"command":"make test"}')), says(1))
    if pending_calls(world.state):
        world.decide(0, Approved())
        world.drain(says(1))
    return world


def test_a_command_is_run_again_once_something_else_was_done() -> None:
    assert sum(_runs_tests_again(TESTS_RAN, DONE).effects_done.values()) == 1
    assert not _runs_tests_again(DONE, TESTS_RAN).effects_done


def test_a_command_whose_outcome_nobody_knows_is_not_run_again_whatever_was_done() -> None:
    unknown = replace(TESTS_RAN, outcome=Outcome.UNKNOWN)
    assert not _runs_tests_again(unknown, DONE).effects_done


def test_an_edit_into_a_call_that_is_done_is_not_made_again_either() -> None:
    deployed = DoneCall(tool="deploy", arguments='{"n":1}', content="v1 is out")
    world = play(calls(raw("deploy", '{"n":2}')), contract=StepContract(done=(deployed,)))
    world.decide(0, Edited(arguments='{"n":1}'))
    world.drain(says(1))
    assert world.finished.result is TurnStatus.ANSWERED
    assert not world.effects_done


def test_done_calls_count_for_order_and_once_and_leave_a_pass_as_it_is() -> None:
    contract = validating(done=(DONE,), order=("configure", "validate"))
    world = play(calls(validate("a")), calls(raw("configure", '{"n":1}')), says(CLAIM_A), contract=contract)
    assert world.finished.result is TurnStatus.ANSWERED
    once = StepContract(done=(DONE,), once=("configure",))
    world = play(calls(raw("configure", '{"n":2}')), says(1), contract=once)
    assert world.results()[0].outcome is Outcome.INVALID


def test_what_succeeded_in_an_earlier_attempt_opens_the_way_in_the_next() -> None:
    before = play(calls(raw("info")), says(None, success=False))
    history: tuple[Message, ...] = before.state.messages
    contract = StepContract(order=("info", "configure"))
    world = play(calls(raw("configure")), says(1), contract=contract, history=history, turn_id="s.2")
    assert world.results()[0].outcome is Outcome.SUCCESS


def test_a_pass_of_an_earlier_attempt_is_none_in_the_next() -> None:
    before = play(calls(validate("a")), says(None, success=False), contract=validating())
    world = play(says(CLAIM_A), contract=validating(), history=before.state.messages, turn_id="s.2")
    assert "was never called" in feedback(world)[0]


def test_what_an_attempt_has_done_is_what_may_have_changed_something() -> None:
    world = play(
        calls(raw("info"), raw("note"), raw("configure", '{"n":1}'), validate("a")),
        calls(raw("configure", '{"n":2}')),
        says(1),
        contract=validating(done=(replace(DONE, arguments='{"n":2}'),)),
    )
    assert done_calls(world.state) == (DoneCall(tool="configure", arguments='{"n":1}', content="ran s.1.1.3"),)


def test_what_may_have_taken_effect_counts_as_done_and_a_validation_never_does() -> None:
    world = World.begin(
        step_grant((CONFIGURE, replace(VALIDATE, read_only=False))),
        contract=validating(),
        tool_says=lambda call: result("?", Outcome.UNKNOWN) if call.name == "configure" else None,
    )
    world.drain(calls(raw("configure"), validate("a")), says(None, success=False))
    assert [(one.tool, one.outcome) for one in done_calls(world.state)] == [("configure", Outcome.UNKNOWN)]

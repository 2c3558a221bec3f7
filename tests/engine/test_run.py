"""The run of a workflow, example by example: which turn comes next, and what it is told."""

import pytest

from chatops.domain.events import GateChecked, ReviewRequested, Status, StepFinished, StepResult, TurnStatus
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import Usage
from chatops.domain.tools import Outcome
from chatops.engine.contract import DoneCall
from chatops.engine.workflow.effects import StartAttempt, StartGate, StopTurn
from chatops.engine.workflow.inputs import Accept, CancelRun, Review, ReviewStep, Skip, StopRun, TryAgain, TurnEndInput
from chatops.engine.workflow.machine import advance_run, start_run
from chatops.engine.workflow.state import ReviewReason, RunResult
from chatops.policy.workflow import OnFail, PatternGate, Validation, WorkflowSpec
from tests.engine.runs import LINT, TESTS, RunWorld, a_step
from tests.engine.world import ANA
from tests.support.cases import for_each

DEPLOYED = DoneCall(tool="deploy", arguments='{"to":"prod"}', content="v1 is out")


def results(world: RunWorld) -> list[StepResult]:
    return [event.result for event in world.events if isinstance(event, StepFinished)]


# Steps


def test_steps_run_one_after_the_other_and_the_last_result_is_the_answer() -> None:
    world = RunWorld.begin(a_step("discover"), a_step("build"), a_step("ship"))
    for answer in ("found", "built", "shipped"):
        world.end(answer=answer)
    assert (world.finished.result, world.finished.answer) == (RunResult.ANSWERED, "shipped")
    assert [one.turn_id for one in world.asked] == ["s.1", "s.2", "s.3"]
    assert [output.text for output in world.state.outputs] == ["found", "built", "shipped"]
    assert results(world) == [StepResult.ACCEPTED] * 3


def test_every_step_is_told_the_request_and_what_earlier_steps_gave() -> None:
    world = RunWorld.begin(query="a site for bees")
    world.end(answer="hives")
    assert "The request:\na site for bees" in world.attempt.text
    assert "This is step 2 of 2: build." in world.attempt.text
    assert "hives" in world.attempt.text


def test_the_first_attempt_at_a_step_sees_nothing_of_earlier_turns() -> None:
    world = RunWorld.begin()
    world.end(answer="x")
    assert world.attempt.after is None


def test_the_contract_is_that_of_the_step() -> None:
    step = a_step(
        "build",
        output_schema="{}",
        validations=(Validation(tool="v"),),
        gates=(TESTS, PatternGate(name="p", pattern="x")),
        order=("a", "b"),
        once=("a",),
        temperature=0.7,
        max_output_tokens=99,
    )
    contract = RunWorld.begin(step).attempt.contract
    assert (contract.output_schema, contract.validations) == ("{}", (Validation(tool="v"),))
    assert contract.patterns == (PatternGate(name="p", pattern="x"),)
    assert (contract.order, contract.once) == (("a", "b"), ("a",))
    assert (contract.temperature, contract.max_output_tokens) == (0.7, 99)


def test_a_workflow_without_steps_cannot_be_run() -> None:
    with pytest.raises(ValueError, match="no steps"):
        start_run(session_id=SessionId("s"), spec=WorkflowSpec(name="w", steps=()), query="q", role="r")


def test_the_cost_of_all_turns_is_added_up() -> None:
    world = RunWorld.begin()
    world.fail()
    world.end()
    world.end()
    finished = world.events[-1]
    assert getattr(finished, "usage", None) == Usage(input_tokens=30, output_tokens=3, cost=1.5)


# Failures


@pytest.mark.parametrize("status", [TurnStatus.FAILED, TurnStatus.LIMIT])
def test_a_failed_attempt_is_followed_by_another_that_knows_why(status: TurnStatus) -> None:
    world = RunWorld.begin()
    world.end(status, detail="the port is taken")
    assert world.attempt.turn_id == "s.2"
    assert world.attempt.after == "s.1"
    assert "the port is taken" in world.attempt.text
    assert "This is attempt 2" in world.attempt.text
    assert results(world) == [StepResult.REPEATED]


def test_three_attempts_are_three_in_all_and_then_the_run_has_failed() -> None:
    world = RunWorld.begin()
    for _ in range(3):
        world.fail("no luck")
    assert world.finished.result is RunResult.FAILED
    assert world.finished.detail == "Step discover failed: no luck"
    assert world.finished.answer == ""
    assert len(world.asked) == 3


def test_the_reason_of_one_step_is_not_carried_into_the_next() -> None:
    world = RunWorld.begin()
    world.fail("the port is taken", done=(DEPLOYED,))
    world.end(answer="ok")
    assert "the port is taken" not in world.attempt.text
    assert world.attempt.contract.done == ()


def test_what_an_attempt_has_done_is_known_to_all_later_ones_of_the_step() -> None:
    world = RunWorld.begin()
    world.fail(done=(DEPLOYED,))
    assert list(world.attempt.contract.done) == [DEPLOYED]
    assert 'deploy {"to":"prod"}' in world.attempt.text
    other = DoneCall(tool="mail", arguments="{}", content="sent")
    world.fail(done=(other,))
    assert list(world.attempt.contract.done) == [DEPLOYED, other]


def test_with_go_on_the_next_step_is_told_that_this_one_failed() -> None:
    world = RunWorld.begin(a_step("discover", on_fail=OnFail.GO_ON, max_attempts=1), a_step("build"))
    world.fail("no network")
    assert world.attempt.step.name == "build"
    assert "Step discover failed" in world.attempt.text
    assert "no network" in world.attempt.text
    world.end(answer="built anyway")
    assert (world.finished.result, world.finished.answer) == (RunResult.ANSWERED, "built anyway")
    assert world.finished.detail == "Failed steps: discover."


def test_a_last_step_that_failed_with_go_on_leaves_the_last_result_there_is() -> None:
    world = RunWorld.begin(a_step("build"), a_step("tell", on_fail=OnFail.GO_ON, max_attempts=1))
    world.end(answer="built")
    world.fail()
    assert (world.finished.result, world.finished.answer) == (RunResult.ANSWERED, "built")


def test_a_run_in_which_no_step_gave_anything_has_failed() -> None:
    world = RunWorld.begin(a_step("build", on_fail=OnFail.GO_ON, max_attempts=1))
    world.fail()
    assert world.finished.result is RunResult.FAILED


# A user


def asking(**more: object) -> RunWorld:
    """A run whose step has failed and waits for a user."""
    world = RunWorld.begin(a_step("build", on_fail=OnFail.ASK, max_attempts=1, **more), a_step("ship"))
    world.fail("no luck")
    return world


def test_with_ask_a_user_says_how_it_goes_on() -> None:
    world = asking()
    assert world.waiting.reason is ReviewReason.FAILED
    assert world.under_way is None
    shown = world.events[-1]
    assert isinstance(shown, ReviewRequested)
    assert (shown.reason, shown.detail, shown.may_skip) == ("failed", "no luck", False)


def test_a_retry_is_one_more_attempt_that_knows_the_reason_and_the_word() -> None:
    world = asking()
    world.review(TryAgain(told="take port 81"))
    assert "no luck" in world.attempt.text
    assert "take port 81" in world.attempt.text
    assert world.attempt.after == "s.1"
    world.fail("again")
    assert world.waiting.attempt == 2, "an attempt beyond the step's own is single"


def test_a_step_may_be_skipped_only_where_the_workflow_says_so() -> None:
    world = asking()
    before = world.state
    world.review(Skip())
    assert world.state is before
    world = asking(may_skip=True)
    world.review(Skip())
    assert world.attempt.step.name == "ship"
    assert "Step build was skipped" in world.attempt.text
    assert results(world) == [StepResult.SKIPPED]


def test_stopping_ends_the_run_as_failed() -> None:
    world = asking()
    world.review(StopRun())
    assert world.finished.result is RunResult.FAILED
    assert "no luck" in world.finished.detail


def test_a_failed_step_cannot_be_accepted() -> None:
    world = asking()
    before = world.state
    world.review(Accept())
    assert world.state is before


def test_a_review_holds_the_answer_until_a_user_accepts_it() -> None:
    world = RunWorld.begin(a_step("build", review=True), a_step("ship"))
    world.end(answer="v1")
    assert (world.waiting.reason, world.waiting.answer) == (ReviewReason.REVIEW, "v1")
    world.review(Accept())
    assert world.attempt.step.name == "ship"
    assert "v1" in world.attempt.text


def test_an_answer_refused_in_review_is_made_again_with_the_reason() -> None:
    world = RunWorld.begin(a_step("build", review=True))
    world.end(answer="v1")
    world.review(TryAgain(told="too long"))
    assert "The user has reviewed it and says:\ntoo long" in world.attempt.text
    world.end(answer="v2")
    world.review(Accept())
    assert world.finished.answer == "v2"


def test_a_step_under_review_cannot_be_skipped() -> None:
    world = RunWorld.begin(a_step("build", review=True, may_skip=True))
    world.end(answer="v1")
    before = world.state
    world.review(Skip())
    assert world.state is before


@for_each("review", [Accept(), TryAgain(), StopRun()])
@for_each(("step", "attempt"), [(0, 2), (1, 1), (0, 0)])
def test_a_word_on_another_attempt_changes_nothing(review: Review, step: int, attempt: int) -> None:
    world = RunWorld.begin(a_step("build", review=True))
    world.end(answer="v1")
    late = ReviewStep(step=step, attempt=attempt, review=review, by=ANA)
    assert advance_run(world.state, late).state is world.state


def test_a_turn_that_a_user_stops_is_no_failure_but_waits_for_that_user() -> None:
    world = RunWorld.begin(a_step("build", on_fail=OnFail.STOP), a_step("ship"))
    world.end(TurnStatus.CANCELLED, detail="Stopped by the user.")
    assert world.waiting.reason is ReviewReason.STOPPED
    world.review(TryAgain(told="shorter"))
    assert world.attempt.step.name == "build"
    assert "shorter" in world.attempt.text
    world.end(TurnStatus.CANCELLED, detail="Stopped by the user.")
    world.review(StopRun())
    assert world.finished.detail == "The user stopped the run at step build.", "it is said once"


# Gates with a command


def test_a_command_runs_when_the_answer_is_accepted_and_lets_it_pass() -> None:
    world = RunWorld.begin(a_step("build", gates=(TESTS,)), a_step("ship"))
    world.end(answer="v1")
    assert isinstance(world.under_way, StartGate)
    assert (world.under_way.turn_id, world.under_way.gate) == (TurnId("s.2"), TESTS)
    world.gate(passes=True)
    assert world.attempt.step.name == "ship"
    assert "v1" in world.attempt.text
    assert world.attempt.turn_id == "s.3"


def test_gates_run_in_order_and_patterns_are_none_of_them() -> None:
    world = RunWorld.begin(a_step("build", gates=(LINT, PatternGate(name="p", pattern="x"), TESTS)))
    world.end(answer="v1")
    world.gate(passes=True)
    world.gate(passes=True)
    assert [one.gate.name for one in world.asked if isinstance(one, StartGate)] == ["lint", "tests"]
    assert world.finished.answer == "v1"


def test_a_gate_that_fails_is_a_failed_attempt_with_the_output_as_reason() -> None:
    world = RunWorld.begin(a_step("build", gates=(TESTS,)))
    world.end(answer="v1", done=(DEPLOYED,))
    world.gate(passes=False, detail="1 failed: test_port")
    assert "Your last answer did not pass the gate tests" in world.attempt.text
    assert "1 failed: test_port" in world.attempt.text
    assert world.attempt.after == "s.1", "the attempt before, not the gate"
    assert world.attempt.contract.done == (DEPLOYED,)
    checked = [event for event in world.events if isinstance(event, GateChecked)]
    assert [(event.gate, event.status) for event in checked] == [("tests", Status.ERROR)]


@pytest.mark.parametrize("outcome", [Outcome.DENIED, Outcome.INVALID])
def test_a_command_that_may_not_run_costs_no_further_attempts(outcome: Outcome) -> None:
    world = RunWorld.begin(a_step("build", gates=(TESTS,)))
    world.end(answer="v1")
    world.gate(passes=False, detail="Denied by the user.", outcome=outcome)
    assert world.finished.result is RunResult.FAILED
    assert "Gate tests could not run: Denied by the user." in world.finished.detail


def test_a_command_that_a_user_stops_waits_for_that_user() -> None:
    world = RunWorld.begin(a_step("build", gates=(TESTS,)))
    world.end(answer="v1")
    world.end(TurnStatus.CANCELLED)
    assert world.waiting.reason is ReviewReason.STOPPED
    world.review(TryAgain())
    assert isinstance(world.under_way, StartAttempt)


def test_a_review_comes_after_the_gates() -> None:
    world = RunWorld.begin(a_step("build", gates=(TESTS,), review=True))
    world.end(answer="v1")
    world.gate(passes=True)
    assert (world.waiting.reason, world.waiting.answer) == (ReviewReason.REVIEW, "v1")


# Cancelling, and what no longer applies


def test_cancelling_stops_the_turn_under_way_and_ends_the_run() -> None:
    world = RunWorld.begin()
    step = world.cancel()
    assert step.effects == (StopTurn(turn_id=TurnId("s.1")),)
    assert world.finished.result is RunResult.CANCELLED
    assert [(one.turn_id, one.status) for one in world.state.attempts] == [("s.1", TurnStatus.CANCELLED)]
    late = TurnEndInput(turn_id=TurnId("s.1"), status=TurnStatus.CANCELLED)
    assert advance_run(world.state, late).state is world.state


def test_cancelling_while_a_gate_runs_or_a_user_is_asked_ends_the_run_too() -> None:
    gated = RunWorld.begin(a_step("build", gates=(TESTS,)))
    gated.end(answer="v1")
    assert gated.cancel().effects == (StopTurn(turn_id=TurnId("s.2")),)
    assert [(one.turn_id, one.gate) for one in gated.state.attempts] == [("s.1", ""), ("s.2", TESTS.name)]
    waiting = asking()
    assert waiting.cancel().effects == ()
    assert gated.finished.result is waiting.finished.result is RunResult.CANCELLED


def test_a_run_that_is_over_changes_no_more() -> None:
    world = RunWorld.begin(a_step("build"))
    world.end(answer="v1")
    for event in (
        CancelRun(by=ANA),
        TurnEndInput(turn_id=TurnId("s.1"), status=TurnStatus.FAILED),
        ReviewStep(step=0, attempt=1, review=TryAgain(), by=ANA),
    ):
        assert advance_run(world.state, event).state is world.state


@pytest.mark.parametrize("status", [TurnStatus.RUNNING, TurnStatus.PAUSED])
def test_a_turn_that_is_not_over_says_nothing(status: TurnStatus) -> None:
    world = RunWorld.begin()
    assert advance_run(world.state, TurnEndInput(turn_id=TurnId("s.1"), status=status)).state is world.state


@pytest.mark.parametrize("turn_id", ["s.1", "s.7", ""])
def test_a_turn_that_is_not_waited_for_says_nothing(turn_id: str) -> None:
    stale = TurnEndInput(turn_id=TurnId(turn_id), status=TurnStatus.ANSWERED, answer="x")
    gated = RunWorld.begin(a_step("build", gates=(TESTS,)), a_step("ship"))
    gated.end(answer="v1")
    assert advance_run(gated.state, stale).state is gated.state
    gated.gate(passes=True)
    assert advance_run(gated.state, stale).state is gated.state

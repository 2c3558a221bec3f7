"""Whatever becomes of the turns of a run and whatever people say to it: it asks for one turn at a time, never for more
attempts than allowed, and comes to an end. `RunWorld` observes."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatops.domain.events import TurnStatus
from chatops.domain.ids import TurnId
from chatops.domain.tools import Outcome
from chatops.engine.contract import DoneCall
from chatops.engine.workflow.effects import StartAttempt
from chatops.engine.workflow.inputs import (
    Accept,
    CancelRun,
    Review,
    ReviewStep,
    Skip,
    StopRun,
    TryAgain,
    TurnEndInput,
    WorkflowInput,
)
from chatops.engine.workflow.machine import advance_run
from chatops.engine.workflow.state import AwaitingReview, RunFinished, RunResult
from chatops.policy.workflow import OnFail, PatternGate, StepSpec
from tests.engine.runs import LINT, TESTS, RunWorld, a_step
from tests.engine.world import ANA
from tests.support.properties import examples

steps: st.SearchStrategy[StepSpec] = st.builds(
    a_step,
    st.just("step"),
    max_attempts=st.integers(1, 3),
    on_fail=st.sampled_from(OnFail),
    may_skip=st.booleans(),
    review=st.booleans(),
    gates=st.sampled_from([(), (TESTS,), (LINT, PatternGate(name="p", pattern="x"), TESTS)]),
)
workflows = st.lists(steps, min_size=1, max_size=4).map(
    lambda some: [a_step(f"step{n}", **_rest(one)) for n, one in enumerate(some)]
)
reviews: st.SearchStrategy[Review] = st.sampled_from(
    [Accept(), Accept(), TryAgain(told="better"), TryAgain(), Skip(), StopRun()]
)
statuses = st.sampled_from([*[TurnStatus.ANSWERED] * 3, *TurnStatus])
done = st.lists(
    st.builds(DoneCall, tool=st.sampled_from(["deploy", "mail"]), arguments=st.just("{}"), content=st.just("ok")),
    max_size=2,
).map(tuple)


def _rest(step: StepSpec) -> dict[str, object]:
    names = ("max_attempts", "on_fail", "may_skip", "review", "gates")
    return {name: getattr(step, name) for name in names}


anything: st.SearchStrategy[WorkflowInput] = st.one_of(
    st.builds(
        TurnEndInput,
        turn_id=st.integers(0, 9).map(lambda n: TurnId(f"s.{n}")),
        status=statuses,
        answer=st.just("x"),
        done=done,
        outcome=st.sampled_from([None, *Outcome]),
    ),
    st.builds(ReviewStep, step=st.integers(0, 3), attempt=st.integers(0, 4), review=reviews, by=st.just(ANA)),
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), some=workflows)
def test_no_history_of_a_run_breaks_the_rules(data: st.DataObject, some: list[StepSpec]) -> None:
    world = RunWorld.begin(*some)
    for _ in range(data.draw(st.integers(0, 40), label="length")):
        if isinstance(world.state.phase, RunFinished):
            break
        _something_happens(world, data)
    _bring_to_an_end(world)
    finished = world.finished
    given = [one.text for one in world.state.outputs if not (one.failed or one.skipped)]
    if finished.result is RunResult.ANSWERED:
        assert len(world.state.outputs) == len(some)
        assert finished.answer == given[-1]
    else:
        assert finished.answer == ""
        assert finished.detail
    _nothing_is_forgotten(world)


def _nothing_is_forgotten(world: RunWorld) -> None:
    """The calls of an attempt are in the contract of every later attempt at its step, and of no other."""
    for place, output in enumerate(world.state.spec.steps):
        known: set[DoneCall] = set()
        for one in (a for a in world.asked if isinstance(a, StartAttempt) and a.step == output):
            assert known <= set(one.contract.done), place
            known = set(one.contract.done)


def _something_happens(world: RunWorld, data: st.DataObject) -> None:
    acts = ["anything"] + ["end"] * 8 * (world.under_way is not None)
    acts += ["review"] * 6 * isinstance(world.state.phase, AwaitingReview)
    acts += ["cancel"] * (data.draw(st.integers(0, 30)) == 30)
    match data.draw(st.sampled_from(acts), label="act"):
        case "end":
            answer = f"answer {len(world.asked)}"
            outcome = data.draw(st.sampled_from([None, *Outcome]), label="outcome")
            world.end(data.draw(statuses), answer, detail="why", done=data.draw(done), outcome=outcome)
        case "review":
            world.review(data.draw(reviews, label="word"))
        case "cancel":
            world.cancel()
        case _:
            world.feed(data.draw(anything, label="anything"))


def _bring_to_an_end(world: RunWorld) -> None:
    for _ in range(200):
        if isinstance(world.state.phase, RunFinished):
            return
        if isinstance(world.state.phase, AwaitingReview):
            world.review(StopRun())
        else:
            world.end(answer=f"answer {len(world.asked)}", outcome=Outcome.SUCCESS)
    raise AssertionError("the run does not end")


@settings(max_examples=examples(100), deadline=None)
@given(event=anything, some=workflows)
def test_an_input_that_does_not_apply_changes_nothing(event: WorkflowInput, some: list[StepSpec]) -> None:
    world = RunWorld.begin(*some)
    if getattr(event, "turn_id", "") != "s.1":
        assert advance_run(world.state, event).state is world.state
    world.cancel()
    assert advance_run(world.state, event).state is world.state
    assert advance_run(world.state, CancelRun(by=ANA)).state is world.state

"""Whatever a model says and does in a step, it is believed only if what it claims was validated, passed, and untouched
since; and the turn ends within its budget."""

import json
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatops.domain.canonical import canonical
from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Rejected
from chatops.domain.events import TurnStatus
from chatops.domain.ids import RoundId
from chatops.domain.messages import AssistantMessage
from chatops.domain.model import FailureKind, ModelFailure, ModelReply
from chatops.domain.tools import RawCall, ToolCall, ToolResult
from chatops.engine.contract import AnswerFacts, StepContract
from chatops.engine.effects import CallModel
from chatops.engine.inputs import AnswerCheckInput, CancelTurn, Input, ModelFailureInput, ModelReplyInput, RetryTurn
from chatops.engine.round_limits import MAX_REPAIRS
from chatops.engine.state import Finished
from chatops.engine.turn import advance
from chatops.engine.view import is_in_flight, pending_calls
from chatops.policy.workflow import Validation
from tests.engine.steps import (
    BY_COMPONENT,
    INFO,
    STEP_TOOLS,
    VALIDATE,
    calls,
    errors,
    result,
    says,
    step_grant,
    text,
    validate,
)
from tests.engine.world import CHANGING, World, raw
from tests.support.properties import examples

MAX_ROUNDS = 5
COMPONENTS = ["a", "b"]
GRANTS = [step_grant(max_rounds=MAX_ROUNDS), step_grant((INFO, VALIDATE), max_rounds=MAX_ROUNDS)]

made: st.SearchStrategy[RawCall] = st.one_of(
    st.builds(validate, st.sampled_from(COMPONENTS)),
    st.builds(validate, st.sampled_from(COMPONENTS), st.just("validate_full")),
    st.builds(raw, st.sampled_from(["info", "configure", "deploy", "discover", "nonsense"]), st.sampled_from(["{}"])),
    st.builds(raw, st.sampled_from(["validate", "configure"]), st.sampled_from(["bad", "[]", '{"component":NaN}'])),
)
claims = st.one_of(
    st.sampled_from(COMPONENTS),
    st.lists(st.sampled_from(COMPONENTS), max_size=2),
    st.just(7),
).map(lambda component: {"component": component})
answers = st.one_of(
    claims.map(says),
    claims.map(lambda claim: text(canonical(claim))),
    st.sampled_from(
        [
            text("{}"),
            text(""),
            text("[1]"),
            text("done"),
            says("done"),
            says({}),
            says({"component": "a"}, success=False),
        ]
    ),
    claims.map(lambda claim: text(canonical({"success": True, "result": claim}), finish_reason="length")),
)
replies: st.SearchStrategy[ModelReply] = st.one_of(
    st.lists(made, min_size=1, max_size=3).map(lambda some: calls(*some)), answers
)
SENSIBLE = [
    calls(raw("info")),
    calls(raw("configure")),
    calls(validate("a"), validate("a", "validate_full")),
    says({"component": "a"}),
]
"""Moves of a good model, which random moves would hardly produce."""
contracts = st.builds(
    StepContract,
    validations=st.sampled_from(
        [(BY_COMPONENT,), (BY_COMPONENT, Validation(tool="validate_full")), (BY_COMPONENT, BY_COMPONENT)]
    ),
    order=st.sampled_from([(), ("info", "configure"), ("configure", "validate", "deploy")]),
    once=st.sampled_from([(), ("info",), ("deploy",)]),
)
decisions: st.SearchStrategy[Decision] = st.sampled_from(
    [Approved(), Approved(), Rejected(reason="no"), MarkedDone(), Edited(arguments='{"component":"b"}')]
)


@dataclass
class Truth:
    """Calls that ran, in order."""

    outcomes: st.DataObject
    ran: list[tuple[str, str, bool]] = field(default_factory=list)
    """Tool, component, and whether it said that all is well."""

    def say(self, call: ToolCall) -> ToolResult:
        """Draw the result of a tool."""
        component = _component(call.arguments)
        good = self.outcomes.draw(st.sampled_from([True, True, True, False]), label=f"{call.name} {component} passes")
        self.ran.append((call.name, component, good))
        return result({"valid": True} if good else errors(("port", "is missing")))

    def supports(self, answer: str) -> bool:
        """Return True if a validation of the claimed answer passed after the last change."""
        claimed = json.loads(answer)["component"]
        last_change = max((place for place, one in enumerate(self.ran) if one[0] in CHANGING), default=-1)
        for component in claimed if isinstance(claimed, list) else [claimed]:
            last = [one for one in enumerate(self.ran) if one[1][:2] == ("validate", component)][-1:]
            if not last or last[0][0] < last_change or not last[0][1][2]:
                return False
        return bool(claimed)


def _component(arguments: str) -> str:
    try:
        given = json.loads(arguments)
    except ValueError:
        return ""
    return str(given.get("component", "")) if isinstance(given, dict) else ""


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), contract=contracts)
def test_no_history_gets_an_unproven_answer_accepted(data: st.DataObject, contract: StepContract) -> None:
    truth = Truth(data)
    world = World.begin(GRANTS[0], contract=contract, tool_says=truth.say)
    for _ in range(data.draw(st.integers(5, 60), label="length")):
        if isinstance(world.state.phase, Finished):
            break
        _something_happens(world, data)
        _observe(world)
    _bring_to_an_end(world)
    _observe(world)
    if world.finished.result is TurnStatus.ANSWERED:
        assert truth.supports(world.finished.answer), (truth.ran, world.finished.answer)
    else:
        assert world.finished.detail
    asked = [c.id for m in world.state.messages if isinstance(m, AssistantMessage) for c in m.calls]
    assert [m.call_id for m in world.results()] == asked, "each call has exactly one result, in call order"
    for tool in contract.once:
        assert sum(m.tool == tool and m.outcome.value == "success" for m in world.results()) <= 1
    _in_order(contract, [m.tool for m in world.results() if m.outcome.value == "success"])


def _in_order(contract: StepContract, succeeded: list[str]) -> None:
    for place, tool in enumerate(contract.order):
        if tool in succeeded:
            before = succeeded[: succeeded.index(tool)]
            assert set(contract.order[:place]) <= set(before), f"{tool} ran before what comes first"


def _something_happens(world: World, data: st.DataObject) -> None:
    acts = ["crash", "stale"] + ["perform"] * 12 * bool(world.flying) + ["lose"] * bool(world.flying)
    acts += ["decide"] * 4 * bool(pending_calls(world.state)) + ["cancel"] * (data.draw(st.integers(0, 9)) == 0)
    match data.draw(st.sampled_from(acts), label="act"):
        case "perform":
            _perform(world, data)
        case "lose":
            index = data.draw(st.integers(0, len(world.flying) - 1), label="lost")
            world.perform(index, model=_reply(world, index, data), lose=True)
            world.crash(data.draw(st.sampled_from([None, *GRANTS]), label="rights now"))
        case "crash":
            world.crash(data.draw(st.sampled_from([None, *GRANTS]), label="rights now"))
        case "decide":
            index = data.draw(st.integers(0, len(pending_calls(world.state)) - 1), label="which")
            world.decide(index, data.draw(decisions, label="decision"))
        case "cancel":
            world.feed(CancelTurn())
        case _:
            world.feed(data.draw(stale, label="stale"))


stale: st.SearchStrategy[Input] = st.one_of(
    st.builds(
        AnswerCheckInput,
        round_id=st.sampled_from([RoundId("s.1.99"), RoundId("s.2.1"), RoundId("")]),
        facts=st.sampled_from([AnswerFacts(), AnswerFacts(value='{"success":true,"result":{"component":"a"}}')]),
    ),
    st.builds(ModelReplyInput, round_id=st.just(RoundId("s.1.99")), reply=replies),
    st.just(RetryTurn(grant=step_grant(STEP_TOOLS))),
)


def _perform(world: World, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(world.flying) - 1), label="effect")
    effect = world.flying[index]
    if isinstance(effect, CallModel) and data.draw(st.integers(0, 30), label="model fails") == 0:
        world.flying.pop(index)
        failure = ModelFailure(kind=FailureKind.UNREACHABLE, message="gone")
        world.feed(ModelFailureInput(round_id=effect.round_id, failure=failure))
        return
    world.perform(index, model=_reply(world, index, data))


def _reply(world: World, index: int, data: st.DataObject) -> ModelReply | None:
    if not isinstance(world.flying[index], CallModel):
        return None
    if data.draw(st.integers(0, 3), label="sensible"):
        return SENSIBLE[(world.state.counters.requests - 1) % len(SENSIBLE)]
    return data.draw(replies, label="reply")


def _observe(world: World) -> None:
    counters = world.state.counters
    assert counters.rounds <= MAX_ROUNDS
    assert counters.requests <= MAX_ROUNDS + MAX_REPAIRS + 1
    assert isinstance(world.state.phase, Finished) or is_in_flight(world.state) or pending_calls(world.state)


def _bring_to_an_end(world: World) -> None:
    for _ in range(200):
        while world.flying and not isinstance(world.state.phase, Finished):
            world.perform(0, model=says({"component": "a"}) if isinstance(world.flying[0], CallModel) else None)
        if isinstance(world.state.phase, Finished):
            return
        world.decide(0, Rejected())
    raise AssertionError("the turn does not end")


@settings(max_examples=examples(100), deadline=None)
@given(event=stale)
def test_an_input_that_does_not_apply_changes_nothing(event: Input) -> None:
    world = World.begin(GRANTS[0], contract=StepContract())
    world.perform(0, model=says(1))
    assert advance(world.state, event).state is world.state
    world.drain()
    assert advance(world.state, event).state is world.state


@settings(max_examples=examples(100), deadline=None)
@given(said=st.lists(replies, max_size=30), contract=contracts)
def test_a_turn_of_a_step_ends_whatever_the_model_says(said: list[ModelReply], contract: StepContract) -> None:
    world = World.begin(GRANTS[0], contract=contract)
    script = list(said)
    while not isinstance(world.state.phase, Finished):
        while world.flying:
            model = script.pop(0) if script and isinstance(world.flying[0], CallModel) else None
            world.perform(0, model=model)
        if pending_calls(world.state):
            world.decide(0, Approved())
    assert len(world.requests) <= MAX_ROUNDS + MAX_REPAIRS + 1

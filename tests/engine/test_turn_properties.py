"""Whatever happens in whatever order: no second effect, no unapproved run, no request a strict server refuses."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatops.domain.decisions import (
    Answer,
    AnswerAction,
    Approved,
    Decision,
    Edited,
    MarkedDone,
    Rejected,
    ServerQuestion,
)
from chatops.domain.events import TurnStatus
from chatops.domain.messages import AssistantMessage, ToolMessage, Usage
from chatops.domain.model import FailureKind, ModelFailure, ModelReply
from chatops.domain.tools import Outcome, ToolResult, Verdict
from chatops.engine.effects import CallModel, DeliverAnswer, InspectCall, ReconcileTool, RunTool
from chatops.engine.inputs import (
    AnswerQuestion,
    CancelTurn,
    CorrectTurn,
    DecideCall,
    Input,
    InspectionInput,
    ModelFailureInput,
    ModelReplyInput,
    NarrowGrant,
    QuestionInput,
    QuestionWithdrawnInput,
    RetryTurn,
    SwitchRole,
    ToolResultInput,
)
from chatops.engine.round_limits import MAX_REPAIRS
from chatops.engine.state import Finished, InRound, Inspecting, Rechecking
from chatops.engine.turn import advance
from chatops.engine.view import is_in_flight, open_questions, pending_calls, turn_status
from chatops.policy.budget import Budget
from chatops.policy.verdicts import Layer, Rule
from tests.engine.world import (
    ANA,
    READ,
    REPEATABLE,
    RUN,
    TOOLS,
    World,
    facts_of,
    grant,
    raw,
    reply,
    switch,
)
from tests.support.properties import examples

NAMES = ["read", "write", "run", "free", "hidden", "unheard-of"]
ARGUMENTS = ['{"n":1}', '{"n":2}', '{"mended":1}', "bad", ""]
ROLES = [grant("coder", TOOLS), grant("researcher", (READ,)), grant("operator", (READ, RUN))]
MAX_ROUNDS = 4

replies = st.one_of(
    st.just(reply()),
    st.just(reply(text=" ")),
    st.lists(
        st.builds(
            raw,
            st.sampled_from(NAMES),
            st.sampled_from(ARGUMENTS),
            st.sampled_from(["", "", "", "cut off"]),
            st.sampled_from([(), (), ("a comma was left out",)]),
        ),
        min_size=1,
        max_size=4,
    ).map(lambda calls: reply(*calls, text="so")),
)
usages = st.sampled_from([None, *(Usage(input_tokens=used, output_tokens=1) for used in (9, 29, 199))])
decisions: st.SearchStrategy[Decision] = st.sampled_from(
    [Approved(), Approved(), Rejected(reason="no"), Edited(arguments='{"n":9}'), Edited(arguments="bad"), MarkedDone()]
)
QUESTION = ServerQuestion(server="h", message="Sure?", schema="{}", id="q")
YES = Answer(action=AnswerAction.ACCEPT, content="{}")
CALLS = [f"s.1.{request}.{index}" for request in (1, 2) for index in (1, 2)]


def stale_inputs() -> st.SearchStrategy[Input]:
    """Inputs that may or may not apply: late, early, forged, about calls that do not exist."""
    ids = st.sampled_from(CALLS)
    return st.one_of(
        st.builds(ModelReplyInput, round_id=st.sampled_from(["s.1.1", "s.1.9"]), reply=replies),
        st.builds(InspectionInput, call_id=ids, facts=st.sampled_from(ARGUMENTS).map(facts_of)),
        st.builds(DecideCall, call_id=ids, digest=st.just("forged"), decision=decisions, by=st.just(ANA)),
        st.builds(
            ToolResultInput,
            call_id=ids,
            attempt=st.just(7),
            result=st.just(ToolResult(outcome=Outcome.SUCCESS, content="forged")),
        ),
        st.builds(QuestionInput, call_id=ids, attempt=st.just(7), question=st.just(QUESTION)),
        st.builds(QuestionWithdrawnInput, call_id=ids, question_id=st.just("forged")),
        st.builds(AnswerQuestion, call_id=ids, question_id=st.just("forged"), answer=st.just(YES), by=st.just(ANA)),
    )


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_history_of_inputs_breaks_the_rules(data: st.DataObject) -> None:
    tokens = data.draw(st.sampled_from([None, 1, 50]), label="budget")
    world = World.begin(replace(grant(max_rounds=MAX_ROUNDS), run_budget=Budget(tokens=tokens)))
    world.tokens = tokens
    world.joins = lambda: data.draw(st.booleans(), label="stored with its first inspection")
    for _ in range(data.draw(st.integers(5, 60), label="length")):
        if isinstance(world.state.phase, Finished):
            break
        _something_happens(world, data)
        _observe(world)
    _bring_to_an_end(world)
    _observe(world)
    answered = [m.call_id for m in world.results()]
    asked = [c.id for m in world.state.messages if isinstance(m, AssistantMessage) for c in m.calls]
    assert answered == asked, "each call has exactly one result, in call order"
    results = [m.outcome for m in world.results() if world.effects_done[m.call_id] and m.tool not in REPEATABLE]
    assert not set(results) & {Outcome.DENIED, Outcome.INVALID, Outcome.INTERRUPTED}, "it ran, and the model is told no"


def _crash(world: World, data: st.DataObject) -> None:
    now = data.draw(st.sampled_from([None, *ROLES]), label="registry now")
    world.crash(now, copied=data.draw(st.booleans(), label="copied"))


def _something_happens(world: World, data: st.DataObject) -> None:
    acts = ["stale", "crash", "cancel", "correct", "switch", "narrow", "beside"] + ["perform"] * 8 * bool(world.flying)
    acts += ["ask"] * any(isinstance(one, RunTool) for one in world.flying)
    acts += ["answer"] * 2 * bool(open_questions(world.state))
    together = [one for one in world.flying if isinstance(one, InspectCall | RunTool)]
    acts += ["together"] * 2 * (len(together) > 1 and not isinstance(world.state.phase, Finished))
    acts += ["lose"] * bool(world.flying) + ["decide"] * 4 * bool(pending_calls(world.state))
    match data.draw(st.sampled_from(acts), label="act"):
        case "perform":
            _perform(world, data, lose=False)
        case "ask":
            run = data.draw(st.sampled_from([one for one in world.flying if isinstance(one, RunTool)]), label="asks")
            world.feed(QuestionInput(call_id=run.call.id, attempt=run.attempt, question=QUESTION))
        case "answer":
            asked = open_questions(world.state)[0]
            assert asked.call_id in [one.call.id for one in world.flying if isinstance(one, RunTool)]
            step = world.feed(AnswerQuestion(call_id=asked.call_id, question_id="q", answer=YES, by=ANA))
            assert [type(one) for one in step.effects] == [DeliverAnswer]
        case "together":
            world.perform_together(*data.draw(st.permutations(together), label="together"))
        case "lose":
            _perform(world, data, lose=True)
            _crash(world, data)
        case "crash":
            _crash(world, data)
        case "decide":
            index = data.draw(st.integers(0, len(pending_calls(world.state)) - 1), label="which")
            world.decide(index, data.draw(decisions, label="decision"))
        case "cancel" if data.draw(st.integers(0, 5), label="really") == 0:
            world.feed(CancelTurn())
        case "correct" if data.draw(st.integers(0, 3), label="really") == 0:
            world.feed(CorrectTurn(text="no", partial_text=data.draw(st.sampled_from(["", "half"]))))
        case "switch":
            world.feed(SwitchRole(grant=data.draw(st.sampled_from(ROLES)), switch=switch("a", "b")))
        case "narrow" if data.draw(st.integers(0, 3), label="really") == 0:
            rule = Rule(tool=data.draw(st.sampled_from(NAMES)), verdict=Verdict.DENY)
            world.feed(NarrowGrant(layers=(Layer(name="revoked", rules=(rule,)),)))
        case "beside":
            world.spend_beside(world.beside + data.draw(st.sampled_from([0, 9, 49, -9]), label="beside"))
        case "stale":
            world.feed(data.draw(stale_inputs(), label="stale"))
        case _:
            pass


def _perform(world: World, data: st.DataObject, *, lose: bool) -> None:
    index = data.draw(st.integers(0, len(world.flying) - 1), label="effect")
    effect = world.flying[index]
    if isinstance(effect, CallModel):
        if not lose and data.draw(st.integers(0, 9), label="model fails") == 0:
            world.flying.pop(index)
            failure = ModelFailure(kind=FailureKind.UNREACHABLE, message="gone")
            world.feed(ModelFailureInput(round_id=effect.round_id, failure=failure))
            return
        said = replace(data.draw(replies, label="reply"), usage=data.draw(usages, label="usage"))
        world.perform(index, model=said, lose=lose)
    elif isinstance(effect, RunTool) and isinstance(world.state.phase, Finished):
        world.flying.pop(index)
    else:
        world.perform(index, lose=lose)


def _observe(world: World) -> None:
    permitted_now = world.state.grant
    for pending in pending_calls(world.state):
        assert not pending.facts.problems, "the user is shown a call that cannot run"
        assert pending.call.name != "hidden"
    assert is_in_flight(world.state) == _something_flies(world), "state and world disagree on what is in flight"
    assert len(world.requests) <= 200
    counters = world.state.counters
    assert counters.rounds <= MAX_ROUNDS
    assert counters.repairs_total <= MAX_REPAIRS
    assert permitted_now.level == ROLES[0].level


def _something_flies(world: World) -> bool:
    if isinstance(world.state.phase, Finished):
        return False
    return any(_still_wanted(world, effect) for effect in world.flying)


def _still_wanted(world: World, effect: object) -> bool:
    if isinstance(effect, CallModel):
        return world.state.phase.kind == "awaiting_model"
    if world.state.phase.kind == "stopping":
        return isinstance(effect, RunTool | ReconcileTool)
    if isinstance(effect, InspectCall):
        # A forged answer may have overtaken the real one, which is then no longer waited for.
        phase = world.state.phase
        calls = phase.calls if isinstance(phase, InRound) else ()
        return any(c.call.id == effect.call.id and isinstance(c.status, Inspecting | Rechecking) for c in calls)
    return isinstance(effect, RunTool | ReconcileTool)


def _bring_to_an_end(world: World) -> None:
    for _ in range(200):
        while world.flying and not isinstance(world.state.phase, Finished):
            effect = world.flying[0]
            world.perform(0, model=reply() if isinstance(effect, CallModel) else None)
        if isinstance(world.state.phase, Finished):
            return
        assert turn_status(world.state) is TurnStatus.PAUSED, "neither running, nor waiting, nor over"
        world.decide(0, Rejected())
    raise AssertionError("the turn does not end")


@settings(max_examples=examples(100), deadline=None)
@given(event=stale_inputs())
def test_an_input_that_does_not_apply_changes_nothing(event: Input) -> None:
    world = World.begin()
    world.drain(reply(raw("run")), reply())
    waiting = world.state
    assert advance(waiting, event).state is waiting
    world.decide(0, Approved())
    world.drain()
    over = world.state
    assert advance(over, event).state is over
    assert advance(over, CancelTurn()).state is over
    assert advance(over, RetryTurn(grant=grant())).state is over


@settings(max_examples=examples(100), deadline=None)
@given(replies_=st.lists(replies, max_size=30))
def test_a_turn_ends_whatever_the_model_says(replies_: list[ModelReply]) -> None:
    world = World.begin(grant(max_rounds=MAX_ROUNDS))
    script = list(replies_)
    while not isinstance(world.state.phase, Finished):
        while world.flying:
            model = (
                (script.pop(0) if script else reply(raw("read"))) if isinstance(world.flying[0], CallModel) else None
            )
            world.perform(0, model=model)
        if pending_calls(world.state):
            world.decide(0, Approved())
    assert len(world.requests) <= 2 * (MAX_ROUNDS + MAX_REPAIRS) + 2
    assert all(isinstance(m, ToolMessage) for m in world.results())

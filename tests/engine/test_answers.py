"""A step's answer, example by example: its form, its budget, and the phase in which it is checked."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from chatops.domain.canonical import canonical
from chatops.domain.decisions import Approved
from chatops.domain.events import AnswerRefused, TurnStatus
from chatops.domain.ids import CallId, RoundId
from chatops.domain.messages import Speaker, UserMessage
from chatops.domain.model import FailureKind, ModelFailure, ModelReply, Sampling, ToolChoice
from chatops.domain.tools import Problem, RawCall
from chatops.engine.acceptance import MAX_WITHOUT_JSON
from chatops.engine.contract import AnswerFacts, StepContract
from chatops.engine.effects import CheckAnswer
from chatops.engine.inputs import AnswerCheckInput, CancelTurn, ModelFailureInput, RetryTurn
from chatops.engine.state import AwaitingModel, CheckingAnswer, TurnState
from chatops.engine.turn import advance
from chatops.engine.view import is_in_flight, turn_status
from chatops.policy.workflow import PatternGate
from tests.engine.steps import (
    CLAIM_A,
    SCHEMA,
    calls,
    feedback,
    last_words,
    play,
    says,
    step_grant,
    text,
    validate,
    validating,
)
from tests.engine.world import World, raw
from tests.support.cases import for_each

# The form of the answer


def test_the_envelope_gives_its_result() -> None:
    world = play(says({"port": 80}))
    assert world.finished.result is TurnStatus.ANSWERED
    assert world.finished.answer == '{"port":80}'


def test_a_plain_string_is_the_answer_as_it_is() -> None:
    assert play(says("the notes")).finished.answer == "the notes"


def test_an_object_that_fits_the_schema_may_come_without_its_envelope() -> None:
    world = play(text('{"component": "a", "port": 1}'), contract=StepContract(output_schema=SCHEMA))
    assert world.finished.answer == '{"component":"a","port":1}'


def test_what_does_not_fit_the_schema_is_given_back_with_the_place() -> None:
    world = play(says({"component": "a", "port": "x"}), says(CLAIM_A), contract=StepContract(output_schema=SCHEMA))
    assert world.finished.answer == '{"component":"a"}'
    assert "- result.port: 'x' is not of type 'integer'" in feedback(world)[0]
    assert "ONLY valid JSON matching the required schema" in feedback(world)[0]


@for_each(
    "said",
    [
        "{}",
        "[]",
        "7",
        "null",
        '"yes"',
        "It is done.",
        '{"foo": 1}',
        '{"success": "true", "result": 1}',
        '{"success": true}',
    ],
)
def test_what_is_no_answer_is_given_back(said: str) -> None:
    world = play(text(said), says("good"))
    assert len(feedback(world)) == 1
    assert feedback(world)[0].startswith("[chatops] ")
    assert world.finished.answer == "good"


def test_an_object_that_only_fits_because_the_schema_asks_for_nothing_is_no_answer() -> None:
    loose = StepContract(output_schema='{"type":"object","properties":{"a":{},"b":{}}}')
    assert feedback(play(text('{"foo": 1}'), says({"a": 1}), contract=loose))
    assert not feedback(play(text('{"a": 1}'), contract=loose))


def test_an_empty_object_is_no_answer_even_if_the_schema_takes_any_object() -> None:
    any_object = StepContract(output_schema='{"type":"object"}')
    assert feedback(play(text("{}"), says({}), contract=any_object))
    assert not feedback(play(text('{"a": 1}'), contract=any_object))


@for_each("schema", ['{"type":"object"}', '{"type":"object","properties":{"a":{}}}'])
@for_each("success", ['"false"', "null", "0", "1", "true"])
def test_an_object_that_says_how_it_went_is_no_bare_result(success: str, schema: str) -> None:
    world = play(text(f'{{"success": {success}, "a": 1}}'), says({"a": 2}), contract=StepContract(output_schema=schema))
    assert len(feedback(world)) == 1
    assert world.finished.answer == '{"a":2}'


def test_a_schema_may_have_a_member_that_is_called_success() -> None:
    own = StepContract(output_schema='{"type":"object","properties":{"success":{"type":"boolean"}}}')
    assert play(text('{"success": true}'), contract=own).finished.answer == '{"success":true}'


def test_an_object_without_its_envelope_has_to_fit_the_schema() -> None:
    world = play(text('{"component": "a", "port": "x"}'), says(CLAIM_A), contract=StepContract(output_schema=SCHEMA))
    assert "- port: 'x' is not of type 'integer'" in feedback(world)[0]


def test_what_cannot_be_read_is_told_as_the_orchestrator_did() -> None:
    shown = feedback(play(text("Sure! Here you go."), says(1)))[0]
    assert shown.startswith("[chatops] Your response could not be parsed as valid JSON. Error: ")
    assert "Please respond with ONLY valid JSON matching the required schema. No markdown" in shown


def test_an_answer_that_says_it_failed_fails_the_attempt_with_its_reason() -> None:
    world = play(says(None, success=False, reasoning="no such\ncomponent"))
    assert world.finished.result is TurnStatus.FAILED
    assert world.finished.detail == "no such component"
    assert world.finished.answer == ""


def test_an_answer_that_says_it_failed_is_not_accepted_even_if_the_schema_has_that_member() -> None:
    own = StepContract(output_schema='{"type":"object","properties":{"success":{"type":"boolean"}}}')
    assert play(text('{"success": false}'), contract=own).finished.result is TurnStatus.FAILED


def test_calls_written_into_the_answer_come_before_its_claim() -> None:
    claimed = '{"success":true,"result":1,"tool_calls":[{"name":"deploy","arguments":{}}]}'
    world = play(text(claimed), says(2))
    assert "They were not made" in feedback(world)[0]
    assert world.finished.answer == "2"
    assert not world.effects_done


def test_what_the_machine_says_is_not_said_by_the_user() -> None:
    spoken = [m.by for m in play(text("no JSON"), says(1)).state.messages if isinstance(m, UserMessage)]
    assert spoken == [Speaker.MACHINE, Speaker.MACHINE]
    chat = World.begin()
    assert [m.by for m in chat.state.messages if isinstance(m, UserMessage)] == [Speaker.USER]


def test_an_empty_response_costs_a_round_and_is_asked_for_again() -> None:
    world = play(text("  "), says(1))
    assert feedback(world) == ["[chatops] Your response was empty. Please provide a valid JSON response."]
    assert world.state.counters.rounds == 1


def test_an_answer_cut_off_at_the_output_limit_is_not_taken() -> None:
    world = play(text('{"success":true,"result":1}', finish_reason="length"), says(2))
    assert "cut off" in feedback(world)[0]
    assert world.finished.answer == "2"


def test_a_role_with_a_responder_lets_the_model_of_the_step_answer_itself() -> None:
    world = play(calls(raw("info")), says(1))
    assert [request.model for request in world.requests] == ["m1", "m1"]


def test_the_step_sets_how_the_model_writes() -> None:
    world = play(says(1), contract=StepContract(temperature=0.1, max_output_tokens=512))
    assert world.requests[0].sampling == Sampling(temperature=0.1, max_output_tokens=512)


# Patterns


def checked(said: str, facts: AnswerFacts, contract: StepContract) -> World:
    """A world in which the first answer was found to be this."""
    world = World.begin(step_grant(), contract=contract)
    world.perform(0, model=text(said))
    world.flying.clear()
    world.feed(AnswerCheckInput(round_id=RoundId("s.1.1"), facts=facts))
    return world


GATE = PatternGate(name="cited", pattern=r"\[\d+\]")
OBJECT = '{"type":"object"}'


def test_patterns_are_tried_by_whoever_reads_the_answer() -> None:
    world = World.begin(step_grant(), contract=StepContract(output_schema=OBJECT, patterns=(GATE,)))
    world.perform(0, model=says(1))
    (asked,) = world.flying
    assert isinstance(asked, CheckAnswer)
    assert (asked.patterns, asked.schema) == ((GATE,), OBJECT)


@pytest.mark.parametrize("bare", [True, False])
def test_a_result_that_does_not_match_is_given_back_with_what_was_found(bare: bool) -> None:
    value = '{"a":1}' if bare else '{"result":{"a":1},"success":true}'
    found = ("cited: the result has to match",)
    facts = AnswerFacts(value=value, bare_unmatched=found if bare else (), result_unmatched=() if bare else found)
    contract = StepContract(output_schema=OBJECT, patterns=(GATE,))
    world = checked(value, facts, contract)
    assert "does not pass the checks of this step.\n- cited: the result has to match" in feedback(world)[0]
    other = replace(facts, bare_unmatched=facts.result_unmatched, result_unmatched=facts.bare_unmatched)
    assert checked(value, other, contract).finished.answer == '{"a":1}'


# Budget


def test_a_refused_answer_counts_as_a_round_and_one_closing_call_is_reserved() -> None:
    world = play(says(CLAIM_A), text("no"), says(CLAIM_A), contract=validating(), max_rounds=2)
    assert [request.tool_choice for request in world.requests] == [ToolChoice.AUTO, ToolChoice.AUTO, ToolChoice.NONE]
    assert world.finished.result is TurnStatus.LIMIT
    assert "iteration limit (2 rounds)" in world.finished.detail
    assert "validate was never called" in world.finished.detail


@pytest.mark.parametrize(
    ("said", "requests", "how"),
    [
        ('{"success": true, "result": 5}', 9, TurnStatus.LIMIT),
        ("Sure, here you go!", MAX_WITHOUT_JSON, TurnStatus.FAILED),
        ("", MAX_WITHOUT_JSON, TurnStatus.FAILED),
    ],
)
def test_a_model_that_says_nothing_useful_ends_the_attempt_within_its_budget(
    said: str, requests: int, how: TurnStatus
) -> None:
    world = play(*[text(said)] * 20, contract=validating(), max_rounds=8)
    assert (len(world.requests), world.finished.result) == (requests, how)


def test_prose_is_told_the_form_and_the_schema_of_the_step() -> None:
    told = feedback(play(*[text("Sure, here you go!")] * 20, contract=StepContract(output_schema=SCHEMA)))[-1]
    assert '"success": true' in told and told.endswith(SCHEMA)
    assert "as the text of `result`" in feedback(play(*[text("Sure, here you go!")] * 20))[-1]


@for_each(
    ("said", "contract", "what"),
    [
        (text("Sure! Here you go."), StepContract(), "Its answer could not be read as JSON: it is not JSON."),
        (text(" "), StepContract(), "Its answer was empty."),
        (text('{"success"', finish_reason="length"), StepContract(), "Its answer was cut off at the output limit."),
        (text('{"tool_calls":[{"name":"deploy"}]}'), StepContract(), "It wrote tool calls into its answer"),
        (says({"component": 1}), StepContract(output_schema=SCHEMA), "result.component: 1 is not of type"),
        (says(CLAIM_A), validating(), "validate was never called with component"),
    ],
)
def test_why_an_attempt_has_failed_is_told_to_the_user_and_not_in_words_for_the_model(
    said: ModelReply, contract: StepContract, what: str
) -> None:
    world = play(said, said, contract=contract, max_rounds=1)
    assert world.finished.result is TurnStatus.LIMIT
    assert what in world.finished.detail
    assert not re.search(r"\b(please|you|your|call)\b", world.finished.detail.lower())
    refused = [event for step in world.steps for event in step.events if isinstance(event, AnswerRefused)]
    assert [event.why in world.finished.detail for event in refused] == [True, True]


def test_the_answer_of_the_closing_call_is_accepted_if_it_is_good() -> None:
    world = play(calls(validate("a")), says(CLAIM_A), contract=validating(), max_rounds=1)
    assert world.requests[-1].tool_choice is ToolChoice.NONE
    assert "this is your last response" in last_words(world)
    assert world.finished.result is TurnStatus.ANSWERED


def test_the_closing_call_after_a_refusal_is_told_in_one_message() -> None:
    world = play(says(CLAIM_A), says(CLAIM_A), contract=validating(), max_rounds=1)
    assert "validations have not all passed" in last_words(world)
    assert "this is your last response" in last_words(world)
    kinds = [type(m) for m in world.requests[-1].messages]
    assert all(one is not UserMessage or two is not UserMessage for one, two in pairwise(kinds))


@pytest.mark.parametrize("said", ["", " ", "no"])
def test_a_closing_call_without_an_answer_ends_the_attempt(said: str) -> None:
    world = play(calls(raw("info")), text(said), max_rounds=1)
    assert world.finished.result is TurnStatus.LIMIT
    assert world.finished.answer == ""


def test_a_closing_call_that_fails_ends_the_attempt_without_an_answer() -> None:
    world = World.begin(step_grant(max_rounds=1), contract=StepContract())
    world.perform(0, model=calls(raw("info")))
    while not isinstance(world.state.phase, AwaitingModel):
        world.perform(0)
    failure = ModelFailure(kind=FailureKind.REFUSED, message="no")
    world.feed(ModelFailureInput(round_id=world.state.phase.round_id, failure=failure))
    assert world.finished.result is TurnStatus.LIMIT
    assert world.finished.answer == ""


# The phase


def checking(contract: StepContract | None = None) -> World:
    """A world in which an answer is being checked."""
    world = World.begin(step_grant(), contract=contract or StepContract())
    world.perform(0, model=says(1))
    assert isinstance(world.state.phase, CheckingAnswer)
    return world


def test_while_the_answer_is_checked_the_turn_runs() -> None:
    world = checking()
    assert is_in_flight(world.state)
    assert turn_status(world.state) is TurnStatus.RUNNING


def test_after_a_crash_the_check_is_asked_for_again() -> None:
    world = checking(StepContract(output_schema='{"type":"integer"}'))
    asked = world.flying[0]
    world.crash(step_grant())
    assert world.flying == [asked]
    assert isinstance(asked, CheckAnswer)
    world.drain()
    assert world.finished.answer == "1"


def test_cancelling_while_the_answer_is_checked_ends_the_turn() -> None:
    world = checking()
    world.feed(CancelTurn())
    assert world.finished.result is TurnStatus.CANCELLED
    late = AnswerCheckInput(round_id=RoundId("s.1.1"), facts=AnswerFacts(value='{"success":true,"result":1}'))
    assert advance(world.state, late).state is world.state


def test_a_check_of_another_round_changes_nothing() -> None:
    world = checking()
    stale = AnswerCheckInput(round_id=RoundId("s.1.7"), facts=AnswerFacts(value='{"success":true,"result":1}'))
    assert advance(world.state, stale).state is world.state


@for_each(
    "facts",
    [
        AnswerFacts(),
        AnswerFacts(value="not JSON"),
        AnswerFacts(value="[]"),
        AnswerFacts(value="NaN"),
        AnswerFacts(value="{}", problems=(Problem(path="a", message="b", given="c"),)),
    ],
)
def test_findings_that_make_no_sense_are_no_answer(facts: AnswerFacts) -> None:
    world = checking()
    world.flying.clear()
    world.feed(AnswerCheckInput(round_id=RoundId("s.1.1"), facts=facts))
    assert isinstance(world.state.phase, AwaitingModel)


def test_a_failed_attempt_is_not_retried_but_made_again_by_the_run() -> None:
    world = play(says(None, success=False))
    assert advance(world.state, RetryTurn(grant=step_grant())).state is world.state


def test_a_turn_without_a_contract_takes_any_answer() -> None:
    world = World.begin(step_grant())
    world.drain(text("{}"))
    assert world.finished.answer == "{}"
    assert not any(isinstance(effect, CheckAnswer) for step in world.steps for effect in step.effects)


def with_approval(state: TurnState) -> set[CallId]:
    """Calls that wait for a user."""
    phase = state.phase
    return {one.call.id for one in getattr(phase, "calls", ()) if one.status.kind == "awaiting_decision"}


def test_a_gated_tool_of_the_step_asks_like_any_other() -> None:
    world = play(calls(raw("deploy")), contract=StepContract())
    assert with_approval(world.state) == {"s.1.1.1"}
    world.decide(0, Approved())
    world.drain(says(canonical({"ok": True})))
    assert sum(world.effects_done.values()) == 1
    assert world.finished.result is TurnStatus.ANSWERED


def test_too_many_calls_of_a_repair_do_not_hide_a_missing_pass() -> None:
    broken: list[RawCall] = [raw("validate", "bad") for _ in range(3)]
    world = play(calls(*broken), says(CLAIM_A), contract=validating(), max_rounds=1)
    assert world.finished.result is TurnStatus.LIMIT

"""The turn, example by example: what each rule of the contract does to one turn."""

from dataclasses import replace

import pytest

from chatops.domain.decisions import (
    ANY_ARGUMENTS,
    NO_UID,
    Approved,
    Edited,
    HostPattern,
    MarkedDone,
    Principal,
    Rejected,
    RuleScope,
    deciding_login,
)
from chatops.domain.events import AskReason, TurnStatus
from chatops.domain.ids import CallId
from chatops.domain.messages import AssistantMessage, NoticeMessage, UserMessage
from chatops.domain.model import FailureKind, ModelFailure, ModelTarget, ToolChoice
from chatops.domain.tools import Outcome, ResultFacts, SkillUse, ToolResult, ToolSpec, Verdict
from chatops.engine.effects import CallModel
from chatops.engine.inputs import (
    CancelTurn,
    DecideCall,
    ModelFailureInput,
    ModelReplyInput,
    RetryTurn,
    SwitchRole,
    ToolResultInput,
)
from chatops.engine.state import AwaitingModel, Finished, InRound, Stopping
from chatops.engine.view import failure_of, pending_calls, turn_status
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Layer, Rule
from tests.engine.world import ANA, FREE, READ, RUN, TOOLS, WRITE, World, grant, raw, reply, switch
from tests.support.cases import for_each


def failure(kind: FailureKind = FailureKind.UNREACHABLE, *, partial: str = "") -> ModelFailure:
    return ModelFailure(kind=kind, message="no", partial_text=partial, started=bool(partial))


def asked(world: World) -> AwaitingModel:
    assert isinstance(world.state.phase, AwaitingModel)
    return world.state.phase


def test_an_answer_without_calls_ends_the_turn() -> None:
    world = World.begin()
    world.drain(reply(text="hello"))
    assert world.finished.result is TurnStatus.ANSWERED
    assert world.finished.answer == "hello"


def test_calls_count_by_their_presence_and_each_gets_one_result_in_order() -> None:
    world = World.begin()
    world.drain(reply(raw("read", '{"n":1}'), raw("read", '{"n":2}'), text="let me look"))
    assert [m.outcome for m in world.results()] == [Outcome.SUCCESS, Outcome.SUCCESS]
    assert world.finished.result is TurnStatus.ANSWERED


def test_a_gated_call_waits_and_runs_exactly_what_was_approved() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    assert turn_status(world.state) is TurnStatus.PAUSED
    assert not world.effects_done
    world.decide(0, Approved())
    world.drain()
    assert sum(world.effects_done.values()) == 1
    assert world.results()[0].decided_by == "uid 1000 (ana) via test"


def test_a_denial_tells_the_model_why_and_the_turn_goes_on() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    world.decide(0, Rejected(reason="use the test box"))
    world.drain()
    assert world.results()[0].outcome is Outcome.DENIED
    assert "use the test box" in world.results()[0].content
    assert world.finished.result is TurnStatus.ANSWERED
    assert not world.effects_done


def test_two_pending_calls_are_decided_each_on_its_own() -> None:
    world = World.begin()
    world.drain(reply(raw("run", '{"n":1}'), raw("run", '{"n":2}')))
    assert len(pending_calls(world.state)) == 2
    world.decide(1, Rejected())
    assert turn_status(world.state) is TurnStatus.PAUSED
    world.decide(0, Approved())
    world.drain()
    assert [m.outcome for m in world.results()] == [Outcome.SUCCESS, Outcome.DENIED]


def test_an_approval_of_other_bytes_does_nothing() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    call = pending_calls(world.state)[0].call
    before = world.state
    world.feed(DecideCall(call_id=call.id, digest="other", decision=Approved(), by=ANA))
    assert world.state is before


def test_the_second_decision_does_nothing() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    pending = pending_calls(world.state)[0]
    world.decide(0, Approved())
    before = world.state
    world.feed(DecideCall(call_id=pending.call.id, digest=pending.digest, decision=Rejected(), by=ANA))
    assert world.state is before


def test_what_changed_after_the_approval_is_asked_again() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    world.version = 7
    world.decide(0, Approved())
    world.drain()
    assert not world.effects_done
    assert pending_calls(world.state)[0].reason is AskReason.CHANGED


def test_edited_arguments_are_inspected_shown_again_and_run_as_edited() -> None:
    world = World.begin()
    world.drain(reply(raw("run", '{"n":1}')))
    world.decide(0, Edited(arguments='{"n":2}'))
    world.drain()
    pending = pending_calls(world.state)[0]
    assert (pending.reason, pending.facts.arguments) == (AskReason.EDITED, '{"n":2}')
    world.decide(0, Approved())
    world.drain()
    assert world.results()[0].arguments == '{"n":2}'
    assert "changed the arguments" in world.results()[0].content
    asked_for = next(m for m in world.state.messages if isinstance(m, AssistantMessage))
    assert asked_for.calls[0].arguments == '{"n":1}'


def test_a_call_that_was_edited_and_denied_is_not_said_to_have_run() -> None:
    world = World.begin()
    world.drain(reply(raw("run", '{"n":1}')))
    world.decide(0, Edited(arguments='{"n":2}'))
    world.drain()
    world.decide(0, Rejected())
    world.drain()
    content = world.results()[0].content
    assert "Denied by the user." in content and 'Not run with: {"n":2}' in content and "approving" not in content


def test_invalid_arguments_never_reach_a_user() -> None:
    world = World.begin()
    world.drain(reply(raw("run", "bad")))
    assert world.results()[0].outcome is Outcome.INVALID
    assert "x: is bad" in world.results()[0].content
    assert not any(pending_calls(step.state) for step in world.steps)


def test_a_tool_above_the_level_is_denied_without_asking() -> None:
    world = World.begin()
    world.drain(reply(raw("hidden")))
    assert world.results()[0].outcome is Outcome.DENIED
    assert "access level operator" in world.results()[0].content
    assert not world.effects_done


def test_rounds_of_only_invalid_calls_are_free_twice_and_the_third_counts() -> None:
    world = World.begin(grant(max_rounds=2))
    broken = [reply(raw("nope", f'{{"n":{n}}}')) for n in range(6)]
    world.drain(*broken)
    choices = [request.tool_choice for request in world.requests]
    assert choices == [ToolChoice.AUTO] * 6 + [ToolChoice.NONE]
    assert world.finished.result is TurnStatus.LIMIT


def test_repairs_have_a_cap_per_turn_that_valid_calls_do_not_reset() -> None:
    world = World.begin(grant(max_rounds=50))
    script = []
    for n in range(9):
        script += [reply(raw("nope", f'{{"n":{n}}}')), reply(raw("read", f'{{"n":{n}}}'))]
    world.drain(*script)
    assert sum(m.outcome is Outcome.INVALID for m in world.results()) == 9
    assert world.requests[-1].tool_choice is ToolChoice.NONE


def test_after_the_last_round_one_closing_call_without_tools_is_reserved() -> None:
    world = World.begin(grant(max_rounds=1))
    world.drain(reply(raw("read")), reply(raw("read", '{"late":1}'), text="what I have"))
    assert [r.tool_choice for r in world.requests] == [ToolChoice.AUTO, ToolChoice.NONE]
    assert world.finished.result is TurnStatus.LIMIT
    assert world.finished.answer == "what I have"
    assert sum(world.effects_done.values()) == 1


def test_when_the_closing_call_fails_too_the_gathered_results_are_the_answer() -> None:
    world = World.begin(grant(max_rounds=1))
    world.perform(0, model=reply(raw("read")))
    while not isinstance(world.state.phase, AwaitingModel):
        world.perform(0)
    world.feed(ModelFailureInput(round_id=asked(world).round_id, failure=failure(FailureKind.REFUSED)))
    assert world.finished.answer.startswith("Reached the tool iteration limit (1 rounds). Here is what was gathered:")
    assert "ran s.1.1.1" in world.finished.answer


def test_the_third_same_call_leaves_the_closing_call_only() -> None:
    world = World.begin(grant(max_rounds=9))
    world.drain(*[reply(raw("read", '{"n":1}'))] * 3, reply(text="It is seven."))
    assert [request.tool_choice for request in world.requests] == [ToolChoice.AUTO] * 3 + [ToolChoice.NONE]
    assert [m.outcome for m in world.results()] == [Outcome.SUCCESS, Outcome.SUCCESS, Outcome.INVALID]
    last = world.requests[-1].messages[-1]
    made = 'The model made the same call 3 times in a row: read {"n":1}.'
    assert isinstance(last, UserMessage) and made in last.text
    assert (world.finished.answer, world.finished.detail) == ("It is seven.", made)


def test_copies_of_a_call_in_one_reply_end_nothing() -> None:
    world = World.begin(grant(max_rounds=9))
    world.drain(reply(*[raw("read", '{"n":1}')] * 3), reply(raw("read", '{"n":2}')))
    assert world.requests[1].tool_choice is ToolChoice.AUTO
    assert world.finished.result is TurnStatus.ANSWERED


def test_another_call_in_the_round_of_the_third_same_call_lets_the_turn_continue() -> None:
    world = World.begin(grant(max_rounds=9))
    again = raw("read", '{"n":1}')
    world.drain(reply(again), reply(again), reply(raw("read", '{"n":2}'), again), reply(again))
    assert all(request.tool_choice is ToolChoice.AUTO for request in world.requests)


def test_a_backup_is_asked_before_the_first_token_only_and_visibly() -> None:
    world = World.begin()
    world.feed(ModelFailureInput(round_id=asked(world).round_id, failure=failure()))
    assert world.requests[-1].model == "m2"
    assert any(isinstance(m, NoticeMessage) for m in world.state.messages)
    late = World.begin()
    late.feed(ModelFailureInput(round_id=asked(late).round_id, failure=failure(partial="Once upon")))
    assert late.finished.result is TurnStatus.FAILED


@pytest.mark.parametrize("kind", [FailureKind.CONTEXT_TOO_LONG, FailureKind.REFUSED, FailureKind.INTERNAL])
def test_no_backup_for_what_another_model_would_meet_too(kind: FailureKind) -> None:
    world = World.begin()
    world.feed(ModelFailureInput(round_id=asked(world).round_id, failure=failure(kind)))
    assert world.finished.result is TurnStatus.FAILED


def test_a_failed_turn_keeps_what_was_said_and_goes_on_when_retried() -> None:
    world = World.begin()
    world.feed(ModelFailureInput(round_id=asked(world).round_id, failure=failure(partial="Once upon")))
    kept = [m for m in world.state.messages if isinstance(m, AssistantMessage)]
    assert kept[0].incomplete
    assert kept[0].text == "Once upon"
    world.flying.clear()
    world.feed(RetryTurn(grant=grant()))
    assert not any(isinstance(m, AssistantMessage) for m in world.requests[-1].messages)
    world.drain()
    assert world.finished.result is TurnStatus.ANSWERED


def test_a_switch_after_a_failure_counts_for_the_retry_and_after_an_answer_for_nothing() -> None:
    world = World.begin(grant("researcher", (READ,)))
    world.feed(ModelFailureInput(round_id=asked(world).round_id, failure=failure(FailureKind.REFUSED)))
    world.flying.clear()
    world.feed(SwitchRole(grant=grant("coder", TOOLS), switch=switch("researcher", "coder")))
    assert turn_status(world.state) is TurnStatus.FAILED
    world.feed(RetryTurn(grant=grant("coder", TOOLS)))
    world.drain()
    assert world.requests[-1].system == "You are coder."
    assert world.finished.result is TurnStatus.ANSWERED
    answered = world.state
    world.feed(SwitchRole(grant=grant("researcher", (READ,)), switch=switch("coder", "researcher")))
    assert world.state is answered


@pytest.mark.parametrize("said", ["error:unreachable", "error:quota"])
def test_what_a_server_calls_the_end_of_its_reply_is_never_taken_for_a_call_that_got_none(said: str) -> None:
    world = World.begin()
    world.drain(*[replace(reply(), text="", finish_reason=said)] * 2)
    assert world.finished.result is TurnStatus.FAILED
    assert failure_of(world.state) is None


def test_an_empty_reply_is_asked_again_once() -> None:
    world = World.begin()
    world.drain(reply(text=" "), reply(text=" "))
    assert len(world.requests) == 2
    assert world.finished.result is TurnStatus.FAILED


def test_the_next_model_call_after_a_role_switch_has_the_new_prompt_and_tools() -> None:
    world = World.begin(grant("researcher", (READ,)))
    world.perform(0, model=reply(raw("read")))
    world.feed(SwitchRole(grant=grant("coder", TOOLS), switch=switch("researcher", "coder")))
    world.drain()
    assert [(r.system, [t.name for t in r.tools]) for r in world.requests] == [
        ("You are researcher.", ["read"]),
        ("You are coder.", ["read", "write", "run", "free"]),
    ]


def test_a_call_is_judged_by_the_role_it_was_proposed_under_met_with_the_one_in_force() -> None:
    world = World.begin(grant("coder", TOOLS))
    world.drain(reply(raw("run")))
    world.feed(SwitchRole(grant=grant("researcher", (READ,)), switch=switch("coder", "researcher")))
    world.decide(0, Approved())
    world.drain()
    assert not world.effects_done
    assert world.results()[0].outcome is Outcome.DENIED
    narrow = World.begin(grant("researcher", (READ,)))
    narrow.feed(SwitchRole(grant=grant("coder", TOOLS), switch=switch("researcher", "coder")))
    narrow.drain(reply(raw("run")))
    assert narrow.results()[0].outcome is Outcome.DENIED


def test_a_skill_in_use_narrows_the_rest_of_the_turn_and_the_role_that_is_switched_to() -> None:
    used = ResultFacts(skill=SkillUse(name="look", tools=("free", "hidden")))
    says = ToolResult(outcome=Outcome.SUCCESS, content="Look.", facts=used)
    world = World.begin(grant("researcher", (READ, FREE)), tool_says=lambda call: says if call.name == "read" else None)
    world.perform(0, model=reply(raw("read")))
    while not isinstance(world.flying[0], CallModel):
        world.perform(0)
    world.feed(SwitchRole(grant=grant("coder", TOOLS), switch=switch("researcher", "coder")))
    world.drain(reply(raw("write"), raw("free")))
    offered = [[tool.name for tool in request.tools] for request in world.requests]
    assert offered == [
        ["read", "free"],
        ["free"],
        ["free"],
    ]
    assert [one.outcome for one in world.results()[1:]] == [Outcome.DENIED, Outcome.SUCCESS]


def test_a_pending_call_survives_a_switch_to_a_role_that_permits_it() -> None:
    world = World.begin(grant("coder", TOOLS))
    world.drain(reply(raw("run")))
    world.feed(SwitchRole(grant=grant("operator", (READ, RUN)), switch=switch("coder", "operator")))
    world.decide(0, Approved())
    world.drain()
    assert sum(world.effects_done.values()) == 1


def test_a_remembered_rule_answers_later_calls_of_its_role_only() -> None:
    world = World.begin(grant(max_rounds=9))
    world.drain(reply(raw("run", '{"n":1}')))
    world.decide(0, Approved(remember=ANY_ARGUMENTS))
    (rule,) = world.rules
    assert (rule.role, rule.tool, rule.scope, rule.uid) == ("coder", "run", RuleScope.SESSION, ANA.uid)
    world.drain(reply(raw("run", '{"n":2}')), reply(raw("run", '{"n":3}')))
    assert isinstance(world.state.phase, Finished) and sum(world.effects_done.values()) == 3
    uses = [record for step in world.steps for record in step.decisions if record.by.rule]
    assert [(record.by.rule, record.by.uid, record.by.is_person) for record in uses] == [("1", ANA.uid, False)] * 2
    other = World.begin(grant("researcher", TOOLS))
    other.rules = world.rules
    other.drain(reply(raw("run", '{"n":2}')))
    assert not other.effects_done and turn_status(other.state) is TurnStatus.PAUSED


def test_a_rule_without_a_user_is_not_recorded_as_one_of_root() -> None:
    world = World.begin(grant(max_rounds=9))
    world.drain(reply(raw("run", '{"n":1}')))
    world.decide(0, Approved(remember=ANY_ARGUMENTS))
    world.rules = [replace(rule, uid=None) for rule in world.rules]
    world.drain(reply(raw("run", '{"n":2}')))
    (use,) = [record for step in world.steps for record in step.decisions if record.by.rule]
    assert use.by.uid == NO_UID and "uid" not in str(use.by)


def test_a_rule_that_was_revoked_or_does_not_fit_its_call_answers_nothing() -> None:
    world = World.begin(grant(max_rounds=9))
    world.drain(reply(raw("run", '{"n":1}')))
    world.decide(0, Approved(remember=HostPattern(host="x")))
    assert world.rules == [] and "no rule was made" in str(world.state.messages)
    world.drain(reply(raw("run", '{"n":2}')))
    world.decide(0, Approved(remember=ANY_ARGUMENTS))
    world.rules.clear()
    world.drain(reply(raw("run", '{"n":3}')))
    assert sum(world.effects_done.values()) == 2 and turn_status(world.state) is TurnStatus.PAUSED


def test_cancelling_while_the_model_speaks_keeps_the_partial_answer() -> None:
    world = World.begin()
    world.feed(CancelTurn(partial_text="half an ans"))
    assert world.finished.result is TurnStatus.CANCELLED
    assert world.finished.answer == "half an ans"


def test_cancelling_waits_for_running_tools_and_gives_every_call_a_result() -> None:
    world = World.begin()
    world.perform(0, model=reply(raw("free"), raw("run"), raw("read")))
    while len(world.flying) > 1:
        world.perform(1)
    world.perform(0)
    world.feed(CancelTurn())
    assert isinstance(world.state.phase, Stopping)
    world.drain()
    assert world.finished.result is TurnStatus.CANCELLED
    outcomes = [m.outcome for m in world.results()]
    assert outcomes == [Outcome.SUCCESS, Outcome.INTERRUPTED, Outcome.INTERRUPTED]


def test_a_call_that_was_allowed_and_cancelled_before_its_start_is_in_the_log() -> None:
    world = World.begin()
    world.drain(reply(raw("run"), raw("free")))
    assert [(row.call.name, row.verdict) for step in world.steps for row in step.verdicts] == [("run", Verdict.ASK)]
    (row,) = world.feed(CancelTurn()).verdicts
    assert (row.call.name, row.verdict, row.facts is None) == ("free", Verdict.ALLOW, False)
    assert row.layer == "access level operator" and row.digest and world.effects_done.total() == 0


def test_nothing_overtakes_an_earlier_call_that_can_change_what_it_reads() -> None:
    world = World.begin()
    world.drain(reply(raw("run"), raw("read")))
    assert not world.effects_done
    world.decide(0, Approved())
    world.drain()
    assert [m.tool for m in world.results()] == ["run", "read"]


def test_reads_run_side_by_side() -> None:
    world = World.begin()
    world.perform(0, model=reply(raw("read", '{"n":1}'), raw("read", '{"n":2}')))
    world.perform(0)
    world.perform(0)
    assert isinstance(world.state.phase, InRound)
    assert len([e for e in world.flying if e.kind == "run_tool"]) == 2


def test_a_pending_call_is_pending_again_after_a_crash_with_the_same_digest() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    before = pending_calls(world.state)
    world.crash()
    assert pending_calls(world.state) == before
    world.decide(0, Approved())
    world.drain()
    assert sum(world.effects_done.values()) == 1


def test_a_stored_approval_is_honoured_once_after_a_crash() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    world.decide(0, Approved())
    world.crash()
    world.drain()
    assert sum(world.effects_done.values()) == 1


def test_a_stored_approval_is_void_if_the_right_was_revoked_meanwhile() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    world.decide(0, Approved())
    world.crash(now=grant("coder", (READ,)))
    world.drain()
    assert not world.effects_done
    assert world.results()[0].outcome is Outcome.DENIED


def test_an_approval_is_asked_for_again_in_a_copy_of_the_store_and_holds_from_then_on() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    world.decide(0, Approved())
    world.crash(copied=True)
    world.drain()
    assert not world.effects_done
    (again,) = pending_calls(world.state)
    assert again.reason is AskReason.COPIED
    assert "other copy" in again.why
    world.crash(copied=True)
    assert [one.why for one in pending_calls(world.state)] == [again.why], "said once, however often it is opened"
    world.decide(0, Approved())
    world.crash()
    world.drain()
    assert sum(world.effects_done.values()) == 1


@pytest.mark.parametrize("inspected", [False, True])
def test_what_a_rule_permits_is_asked_for_in_a_copy_of_the_store(inspected: bool) -> None:
    world = World.begin()
    world.perform(0, model=reply(raw("run"), raw("free"), raw("read")))
    if inspected:
        world.drain()
    world.crash(copied=True)
    world.drain()
    assert [(one.call.name, one.reason) for one in pending_calls(world.state)] == [
        ("run", AskReason.COPIED if inspected else AskReason.POLICY),
        ("free", AskReason.COPIED),
    ]
    assert not world.effects_done
    while pending_calls(world.state):
        world.decide(0, Approved())
        world.drain()
    assert sorted(world.effects_done.values()) == [1, 1, 1]


@pytest.mark.parametrize("changed", [replace(FREE, idempotent=True), replace(FREE, reconcilable=True)])
def test_what_was_running_is_not_repeated_by_itself_in_a_copy_of_the_store(changed: ToolSpec) -> None:
    world = World.begin(grant(tools=(changed,)))
    world.perform(0, model=reply(raw("free")))
    world.perform(0)
    world.crash(copied=True)
    world.drain()
    assert not world.effects_done
    (asked,) = pending_calls(world.state)
    assert (asked.outcome_unknown, "other copy" in asked.why) == (True, True)


def test_what_only_reads_is_not_asked_for_in_a_copy_of_the_store() -> None:
    world = World.begin()
    world.perform(0, model=reply(raw("read")))
    world.crash(copied=True)
    world.drain(reply(raw("free")))
    assert world.finished.result is TurnStatus.ANSWERED


def test_what_was_proposed_after_the_copy_was_opened_needs_no_further_word() -> None:
    world = World.begin()
    world.crash(copied=True)
    world.drain(reply(raw("free")))
    assert sum(world.effects_done.values()) == 1


def test_a_call_killed_while_it_ran_is_never_repeated_by_itself() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    world.decide(0, Approved())
    world.perform(0)
    world.perform(0, lose=True)
    world.crash()
    pending = pending_calls(world.state)
    assert pending[0].reason is AskReason.OUTCOME_UNKNOWN
    world.crash()
    assert pending_calls(world.state) == pending
    assert sum(world.effects_done.values()) == 1


@pytest.mark.parametrize(("decision", "outcome"), [(Rejected(), Outcome.UNKNOWN), (MarkedDone(), Outcome.SUCCESS)])
def test_the_user_says_what_an_unknown_outcome_is(decision: Rejected | MarkedDone, outcome: Outcome) -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    world.decide(0, Approved())
    world.perform(0)
    world.perform(0, lose=True)
    world.crash()
    world.decide(0, decision)
    world.drain()
    assert world.results()[0].outcome is outcome
    assert sum(world.effects_done.values()) == 1


def test_what_only_reads_is_repeated_after_a_crash() -> None:
    world = World.begin()
    world.perform(0, model=reply(raw("read")))
    world.perform(0)
    world.crash()
    world.drain()
    assert world.results()[0].outcome is Outcome.SUCCESS
    assert {attempt for _, attempt in world.starts} == {1, 2}


@pytest.mark.parametrize("took_effect", [True, False])
def test_what_can_be_checked_is_checked_and_not_guessed(took_effect: bool) -> None:
    world = World.begin()
    world.drain(reply(raw(WRITE.name)))
    world.decide(0, Approved())
    world.perform(0)
    if took_effect:
        world.perform(0, lose=True)
    world.crash()
    world.drain()
    assert sum(world.effects_done.values()) == 1


def test_a_reply_that_has_been_asked_for_is_asked_for_again_after_a_crash() -> None:
    world = World.begin()
    world.crash()
    assert len(world.requests) == 2
    world.drain()
    assert world.finished.result is TurnStatus.ANSWERED


def test_an_interruption_is_told_unless_no_call_ran() -> None:
    asked, ran, waited, inspected = World.begin(), World.begin(), World.begin(), World.begin()
    ran.perform(0, model=reply(raw("read")))
    ran.perform(0)
    waited.drain(reply(raw("run")))
    inspected.perform(0, model=reply(raw("read")))
    for world, told in ((asked, True), (ran, True), (waited, False), (inspected, False)):
        world.crash()
        texts = [one.text for one in world.state.messages if isinstance(one, NoticeMessage)]
        assert [text.startswith("This turn was interrupted.") for text in texts] == [True] * told


def test_a_late_result_of_an_earlier_attempt_is_ignored() -> None:
    world = World.begin()
    world.perform(0, model=reply(raw("read")))
    world.perform(0)
    world.crash()
    world.perform(0)
    assert {attempt for _, attempt in world.starts} == {1, 2}
    before = world.state
    late = ToolResult(outcome=Outcome.FAILED, content="from before the crash")
    world.feed(ToolResultInput(call_id=CallId("s.1.1.1"), attempt=1, result=late))
    assert world.state is before


def test_a_reply_to_an_earlier_round_is_ignored() -> None:
    world = World.begin()
    first = asked(world).round_id
    world.perform(0, model=reply(raw("read")))
    while not isinstance(world.state.phase, AwaitingModel):
        world.perform(0)
    before = world.state
    world.feed(ModelReplyInput(round_id=first, reply=reply(text="late")))
    assert world.state is before


def test_a_looser_role_in_force_does_not_loosen_a_call_of_a_stricter_one() -> None:
    asks = Layer(name="rules of role careful", rules=(Rule(tool="free", verdict=Verdict.ASK),))
    world = World.begin(grant("careful", TOOLS).narrowed(asks))
    world.feed(SwitchRole(grant=grant("coder", TOOLS), switch=switch("careful", "coder")))
    world.drain(reply(raw("free")))
    assert not world.effects_done
    assert [pending.why for pending in pending_calls(world.state)] == ["rules of role careful"]


def with_responder(max_rounds: int = 4) -> Grant:
    return replace(grant(max_rounds=max_rounds), responder=ModelTarget(name="writer"))


def test_a_responder_writes_the_answer_after_a_round_of_tools() -> None:
    world = World.begin(with_responder())
    world.drain(reply(raw("read")), reply(text="it is 42"), reply(text="The answer is 42."))
    assert [r.model for r in world.requests] == ["m1", "m1", "writer"]
    assert world.requests[-1].tool_choice is ToolChoice.NONE
    assert "it is 42" in world.requests[-1].messages[-2].text  # type: ignore[union-attr]
    assert world.finished.answer == "The answer is 42."


def test_a_responder_has_nothing_to_do_where_no_tool_was_used() -> None:
    world = World.begin(with_responder())
    world.drain(reply(text="hello"))
    assert [r.model for r in world.requests] == ["m1"]


def test_if_the_responder_fails_the_answer_is_that_of_the_model_that_gathered() -> None:
    world = World.begin(with_responder())
    world.drain(reply(raw("read")), reply(text="it is 42"), reply(text=" "))
    assert world.finished.answer == "it is 42"
    failing = World.begin(with_responder())
    failing.perform(0, model=reply(raw("read")))
    while not isinstance(failing.state.phase, AwaitingModel):
        failing.perform(0)
    failing.perform(0, model=reply(text="it is 42"))
    failing.feed(ModelFailureInput(round_id=asked(failing).round_id, failure=failure()))
    assert failing.finished.result is TurnStatus.ANSWERED
    assert failing.finished.answer == "it is 42"


def test_an_edit_of_a_call_that_was_started_once_begins_another_attempt() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    world.decide(0, Approved())
    world.perform(0)
    world.perform(0, lose=True)
    world.crash()
    world.decide(0, Approved())
    world.drain()
    assert pending_calls(world.state)[0].reason is AskReason.CHANGED
    world.decide(0, Edited(arguments='{"n":9}'))
    world.drain()
    world.decide(0, Approved())
    world.drain()
    assert [attempt for _, attempt in world.starts] == [1, 2]


@for_each("login", ["ana", "#1000", "a (b) via c", "via tui"])
def test_the_login_in_the_text_of_a_decision_is_that_of_the_user(login: str) -> None:
    for via in ("tui", "approvals", ""):
        assert deciding_login(str(Principal(uid=1000, login=login, via=via))) == login
    assert not deciding_login(str(Principal(uid=1000, login=login, rule="1")))

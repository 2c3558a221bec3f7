"""Calls that cannot run as written: what the model is told, what that costs, and when it ends."""

import json
from dataclasses import replace

import pytest

from chatops.domain.decisions import ANY_ARGUMENTS, Approved, Edited
from chatops.domain.events import AskReason, TurnStatus
from chatops.domain.ids import CallId
from chatops.domain.model import ToolChoice
from chatops.domain.tools import CallFacts, Outcome, Problem, RawCall, ToolCall, ToolSpec, Verdict
from chatops.engine import feedback
from chatops.engine.effects import InspectCall
from chatops.engine.inputs import InspectionInput
from chatops.engine.round_limits import FREE_REPAIRS
from chatops.engine.signature import MAX_SIGNATURE_CHARS, signature
from chatops.engine.view import pending_calls
from tests.engine.world import FREE, TOOLS, World, grant, raw, reply
from tests.support.cases import for_each

BAD = raw("run", '{"n":"bad"}')
EDIT = ToolSpec(
    name="file_edit",
    description="",
    schema=json.dumps(
        {
            "type": "object",
            "properties": {
                "all": {"type": "boolean", "default": False},
                "path": {"type": "string", "description": "long " * 500},
                "mode": {"enum": ["fast", "slow"]},
                "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "lines": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["path"],
        }
    ),
)


def counted(world: World) -> int:
    return world.state.counters.rounds


def test_the_second_time_the_same_mistake_gets_one_line_and_counts() -> None:
    world = World.begin(grant(max_rounds=9))
    world.drain(reply(BAD), reply(BAD), reply(raw("read")))
    first, second, _ = world.results()
    assert "x: is bad (given: bad)" in first.content
    assert second.content == (
        "run was not run: this very call was not valid before, and nothing about it has changed (wrong: x). "
        "Correct it as you were told, use another tool, or answer without it."
    )
    assert counted(world) == 2, "the repeated mistake and the round that ran; the first was free"


def test_the_third_time_the_same_mistake_ends_the_gathering() -> None:
    world = World.begin(grant(max_rounds=9))
    world.drain(*[reply(BAD)] * 5)
    assert [request.tool_choice for request in world.requests] == [ToolChoice.AUTO] * 3 + [ToolChoice.NONE]
    assert world.finished.result is TurnStatus.LIMIT
    assert world.finished.detail == "The model made the same invalid call 3 times."


def test_two_mistakes_in_turns_are_each_the_same_mistake() -> None:
    world = World.begin(grant(max_rounds=9))
    other = raw("write", '{"n":"bad"}')
    world.drain(*[reply(BAD), reply(other)] * 4)
    assert len(world.requests) == 6
    assert ["not valid before" in m.content for m in world.results()] == [False, False, True, True, True]


@pytest.mark.parametrize(
    "call",
    [raw("nope", '{"n":1}'), raw("run", "{}", problem="cut off"), BAD],
    ids=["unknown tool", "unreadable", "invalid"],
)
def test_every_kind_of_mistake_is_recognised_when_it_comes_back(call: RawCall) -> None:
    world = World.begin(grant(max_rounds=9))
    world.drain(*[reply(call)] * 3)
    first, second, third = world.results()
    assert "this very call was not valid before" not in first.content
    assert second.content == third.content
    assert "this very call was not valid before" in second.content
    assert {m.outcome for m in world.results()} == {Outcome.INVALID}


def test_the_same_mistake_twice_in_one_reply_has_not_been_made_again() -> None:
    world = World.begin(grant(max_rounds=9))
    world.drain(reply(BAD, BAD))
    assert [m.content for m in world.results()] == [world.results()[0].content] * 2
    assert counted(world) == 0
    assert world.state.counters.repairs == 1 <= FREE_REPAIRS


def test_a_call_that_is_wrong_in_another_way_is_told_about_in_full() -> None:
    world = World.begin(grant(max_rounds=9))
    for message in ("there is no such file", "is a folder"):
        world.perform(0, model=reply(raw("read", '{"path":"a"}')))
        effect = world.flying.pop(0)
        assert isinstance(effect, InspectCall)
        facts = CallFacts(arguments=effect.call.arguments, problems=(Problem(path="path", message=message),))
        world.feed(InspectionInput(call_id=effect.call.id, facts=facts))
    assert "path: is a folder" in world.results()[1].content
    assert counted(world) == 0


def test_after_a_round_in_which_something_ran_a_mistake_is_a_first_one_again() -> None:
    world = World.begin(grant(max_rounds=20))
    world.drain(*[reply(BAD), reply(raw("read", '{"n":1}'), raw("read", '{"n":2}'))] * 4)
    wrong = [m.content for m in world.results() if m.outcome is Outcome.INVALID]
    assert len(wrong) == 4
    assert len(set(wrong)) == 1
    assert world.finished.result is TurnStatus.ANSWERED


def test_mistakes_do_not_stand_in_the_way_of_the_call_once_it_is_right() -> None:
    world = World.begin(grant(max_rounds=9))
    for problems in ((Problem(path="path", message="no such file"),), (Problem(path="path", message="empty"),), ()):
        world.perform(0, model=reply(raw("read", '{"path":"a"}')))
        effect = world.flying.pop(0)
        assert isinstance(effect, InspectCall)
        world.feed(InspectionInput(call_id=effect.call.id, facts=CallFacts(arguments="{}", problems=problems)))
    world.drain()
    assert [m.outcome for m in world.results()] == [Outcome.INVALID, Outcome.INVALID, Outcome.SUCCESS]


def test_a_crash_between_does_not_make_one_mistake_two() -> None:
    world = World.begin(grant(max_rounds=9))
    world.perform(0, model=reply(BAD, raw("run", '{"n":1}')))
    world.perform(0)
    world.crash()
    world.drain()
    [mistake] = world.state.counters.mistakes
    assert mistake.times == 1
    assert len(pending_calls(world.state)) == 1


def test_an_invalid_call_is_answered_with_the_arguments_the_tool_has() -> None:
    text = feedback.invalid_arguments_error(
        ToolCall(id=CallId("c"), name="file_edit", arguments="{}"),
        (Problem(path="pth", message="is no argument"),),
        EDIT,
    )
    assert text.splitlines() == [
        "file_edit was not run: its arguments are not valid.",
        "- pth: is no argument",
        'Arguments: file_edit(path: string, all?: boolean, mode?: "fast"|"slow", limit?: integer|null, '
        "lines?: list of integer)",
        "Correct them and call the tool again.",
    ]


def test_an_unreadable_call_is_answered_with_the_arguments_the_tool_has() -> None:
    world = World.begin(grant(tools=(*TOOLS, EDIT)))
    allowed = replace(world.state.grant.layers[0], default=Verdict.ALLOW)
    world = World.begin(replace(world.state.grant, layers=(allowed,)))
    world.drain(reply(raw("file_edit", '{"path":"a', problem="the arguments were cut off")))
    [result] = world.results()
    assert "the arguments were cut off. Write it again" in result.content
    assert "file_edit(path: string, all?: boolean" in result.content


@pytest.mark.parametrize("count", [1, 40, 3_000])
def test_a_signature_is_short_however_large_the_schema_is(count: int) -> None:
    properties = {f"argument_number_{n}": {"type": "string", "enum": ["x" * 500]} for n in range(count)}
    schema = json.dumps({"type": "object", "properties": properties, "required": ["argument_number_0"]})
    text = signature(replace(EDIT, schema=schema))
    assert text.startswith("file_edit(argument_number_0")
    assert len(text) <= MAX_SIGNATURE_CHARS + 20
    assert ("more)" in text) == (count > 20)


@for_each("schema", ["", "[]", "true", '{"properties":[]}', '{"properties":{"a":3},"required":"a"}'])
def test_a_schema_that_is_none_still_has_a_signature(schema: str) -> None:
    assert signature(replace(EDIT, schema=schema)) in ("file_edit()", "file_edit(a?: any)")


def test_unknown_tools_are_answered_with_near_names_whatever_their_spelling() -> None:
    offered = ["file_read", "file_edit", "shell_exec"]
    assert "Did you mean file_read" in feedback.unknown_tool_error("FILE_READ", offered)
    assert "Did you mean shell_exec" in feedback.unknown_tool_error("functions.shell_exec", offered)
    assert "Did you mean" not in feedback.unknown_tool_error("zzz", offered)
    many = [f"tool{n}" for n in range(300)]
    text = feedback.unknown_tool_error("x" * 100_000, many)
    assert "and 276 more." in text
    assert len(text) < 600


def test_what_the_reader_repaired_asks_even_where_everything_is_allowed() -> None:
    world = World.begin()
    world.drain(reply(raw("free", '{"n":1}', repairs=("a missing brace was added",))))
    [pending] = pending_calls(world.state)
    assert pending.facts.repairs == ("a missing brace was added",)
    assert "had to be repaired: a missing brace was added" in pending.why
    world.decide(0, Approved())
    world.drain()
    assert [m.outcome for m in world.results()] == [Outcome.SUCCESS]


def test_repairs_of_reader_and_inspection_are_shown_together_and_once_each() -> None:
    world = World.begin()
    world.drain(reply(raw("free", '{"mended":1}', repairs=("a", "inspection closed a brace"))))
    assert pending_calls(world.state)[0].facts.repairs == ("a", "inspection closed a brace")


def test_a_grant_for_the_session_does_not_answer_the_next_repaired_call() -> None:
    world = World.begin(grant(max_rounds=9))
    world.drain(reply(raw("free", '{"n":1}', repairs=("a",))))
    world.decide(0, Approved(remember=ANY_ARGUMENTS))
    world.drain(reply(raw("free", '{"n":2}', repairs=("b",))))
    assert [pending.facts.repairs for pending in pending_calls(world.state)] == [("b",)]


def test_an_edit_that_cannot_run_leaves_the_repairs_and_the_approval_as_they_were() -> None:
    world = World.begin()
    world.drain(reply(raw("free", '{"n":1}', repairs=("a brace",))))
    world.decide(0, Edited(arguments="bad"))
    world.drain()
    assert pending_calls(world.state)[0].call.repairs == ("a brace",)
    world.decide(0, Approved())
    world.drain()
    assert [m.outcome for m in world.results()] == [Outcome.SUCCESS]


def test_a_users_own_words_are_no_repair() -> None:
    world = World.begin()
    world.drain(reply(raw("free", '{"n":1}', repairs=("a brace",))))
    world.decide(0, Edited(arguments='{"n":9}'))
    world.drain()
    [pending] = pending_calls(world.state)
    assert (pending.facts.repairs, pending.reason) == ((), AskReason.EDITED)


def test_the_other_name_of_a_tool_is_that_tool() -> None:
    python = replace(FREE, name="python_exec", verdict=Verdict.ASK)
    base = grant(tools=(*TOOLS, python))
    listed = replace(base, layers=tuple(replace(layer, default=Verdict.ASK) for layer in base.layers))
    world = World.begin(listed)
    world.drain(reply(raw("code_interpreter", '{"code":"1"}')))
    assert [pending.call.name for pending in pending_calls(world.state)] == ["python_exec"]


def test_a_tool_that_really_has_the_name_is_meant_before_the_alias() -> None:
    python, foreign = replace(FREE, name="python_exec"), replace(FREE, name="code_interpreter")
    base = grant(tools=(*TOOLS, python, foreign))
    world = World.begin(replace(base, layers=tuple(replace(layer, default=Verdict.ASK) for layer in base.layers)))
    world.drain(reply(raw("code_interpreter", "{}")))
    assert [pending.call.name for pending in pending_calls(world.state)] == ["code_interpreter"]


def test_an_alias_of_a_tool_that_is_not_on_offer_opens_nothing() -> None:
    world = World.begin()
    world.drain(reply(raw("code_interpreter", "{}")))
    assert world.results()[0].outcome is Outcome.INVALID
    assert not any(pending_calls(step.state) for step in world.steps)

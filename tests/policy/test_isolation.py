"""Tools of a step: what is bound to other steps or not on the step's list can neither be offered nor run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatops.domain.decisions import ANY_ARGUMENTS, RememberedRule
from chatops.domain.ids import CallId
from chatops.domain.model import ModelTarget
from chatops.domain.tools import BUILT_IN_TOOLS, NO_CAPABILITIES, AccessLevel, CallFacts, ToolSpec, Verdict
from chatops.policy.grant import Grant
from chatops.policy.registry import Registry, RoleSpec, UserSpec
from chatops.policy.resolve import User, resolve_grant
from chatops.policy.workflow import StepPlace, StepSpec, step_layers
from tests.support.properties import examples

NAMES = ("look", "set", "check", "ship")
STEPS = ("find", "build")
WORKFLOWS = ("make", "mend")
FACTS = CallFacts(arguments="{}")

bindings = st.lists(st.sampled_from([*STEPS, *(f"{flow}.{step}" for flow in WORKFLOWS for step in STEPS)]), max_size=3)
tools = st.tuples(*(st.tuples(st.just(name), bindings, st.sampled_from(list(Verdict))) for name in NAMES))
lists = st.none() | st.lists(st.sampled_from([*NAMES, "none"]), max_size=4).map(tuple)
places = st.none() | st.builds(StepPlace, workflow=st.sampled_from(WORKFLOWS), step=st.sampled_from(STEPS))

Tools = tuple[tuple[str, list[str], Verdict], ...]


def specs(given_tools: Tools) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(
            name=name,
            capabilities=BUILT_IN_TOOLS.get(name, NO_CAPABILITIES),
            description="",
            schema="{}",
            verdict=verdict,
            steps=tuple(steps),
        )
        for name, steps, verdict in given_tools
    )


def resolved(given_tools: Tools, *, role: tuple[str, ...] | None, at: StepPlace | None) -> Grant:
    registry = Registry(
        source="t",
        digest="d",
        roles=(RoleSpec(name="r", tools=role),),
        users=(UserSpec(name="*", access_level=AccessLevel.ADMIN),),
    )
    return resolve_grant(
        registries=(None, registry),
        role="r",
        user=User(uid=1, login="ana"),
        access_cap=None,
        specs=specs(given_tools),
        models=(ModelTarget(name="m"),),
        prompt="",
        approvals=[name for name, _, _ in given_tools],
        at=at,
    )


def may_be_used(steps: list[str], at: StepPlace | None) -> bool:
    """In words of the definition, and nothing of the code under test."""
    return not steps or (at is not None and any(f".{at.workflow}.{at.step}".endswith(f".{step}") for step in steps))


@pytest.mark.more
@settings(max_examples=examples(200))
@given(given_tools=tools, role=lists, listed=lists, at=places)
def test_nothing_is_offered_or_run_outside_its_step(
    given_tools: Tools, role: tuple[str, ...] | None, listed: tuple[str, ...] | None, at: StepPlace | None
) -> None:
    grant = resolved(given_tools, role=role, at=at)
    if at is not None:
        grant = grant.narrowed(*step_layers(StepSpec(name=at.step, system_prompt="", tools=listed), at=at))
    for name, steps, verdict in given_tools:
        remembered = [RememberedRule(role="r", tool=name, pattern=ANY_ARGUMENTS, source_call=CallId("c"))]
        allowed = may_be_used(steps, at) and verdict is not Verdict.DENY and (role is None or name in role)
        if at is not None and listed is not None:
            allowed = allowed and name in listed
        judged = grant.judge(name, FACTS, remembered=remembered)
        assert (grant.tool(name) is not None) == allowed
        assert (grant.permits(name).verdict is not Verdict.DENY) == allowed
        assert (judged.verdict is not Verdict.DENY) == allowed


@pytest.mark.more
@settings(max_examples=examples(200))
@given(given_tools=tools, before=places, now=places)
def test_a_call_proposed_in_one_step_is_not_permitted_by_another(
    given_tools: Tools, before: StepPlace | None, now: StepPlace | None
) -> None:
    both = resolved(given_tools, role=None, at=before).intersection(resolved(given_tools, role=None, at=now))
    for name, steps, _ in given_tools:
        if not (may_be_used(steps, before) and may_be_used(steps, now)):
            assert both.tool(name) is None
            assert both.judge(name, FACTS).verdict is Verdict.DENY


def test_the_refusal_names_the_step_or_the_binding() -> None:
    given_tools: Tools = (("ship", ["build"], Verdict.ASK), ("look", [], Verdict.ALLOW))
    find = StepPlace(workflow="make", step="find")
    grant = resolved(given_tools, role=None, at=find)
    assert grant.permits("ship").reason == "the steps that the tool is bound to"
    narrowed = grant.narrowed(*step_layers(StepSpec(name="find", system_prompt="", tools=()), at=find))
    assert narrowed.permits("look").reason == "step find of workflow make"

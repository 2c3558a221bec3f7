"""A call that had to be repaired, or needs a user's own answer, never runs on a rule: whatever registries say and
remember, a user is asked."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatops.domain.decisions import ANY_ARGUMENTS, ExactArguments, RememberedRule
from chatops.domain.ids import CallId
from chatops.domain.model import ModelTarget
from chatops.domain.tools import AccessLevel, CallFacts, ToolSpec, Verdict
from chatops.policy.grant import Grant
from chatops.policy.registry import Registry, RoleRule, RoleSpec, UserSpec
from chatops.policy.resolve import User, resolve_grant
from chatops.policy.verdicts import Layer
from tests.policy.test_never_elevate import ROLES, TOOLS, facts, layers, levels, people, registries, specs
from tests.policy.test_never_elevate import remembered_grants as some_grants
from tests.support.properties import examples

REPAIRS = st.lists(st.sampled_from(["a brace was added", "quotes were changed", ""]), min_size=1, max_size=3).map(tuple)
DOUBTS = REPAIRS.map(lambda repairs: {"repairs": repairs}) | st.just({"needs_user": "it would run outside the sandbox"})
"""Facts that no rule answers."""
APPROVALS = st.lists(st.sampled_from([*TOOLS, "read:src/**", "write:{}", "run:{}"]), max_size=3)


def everything(role: str) -> list[RememberedRule]:
    """Every call of every tool, and every call with exactly these arguments, for ever."""
    return [
        RememberedRule(role=role, tool=tool, pattern=pattern, source_call=CallId("c"))
        for tool in TOOLS
        for pattern in (ANY_ARGUMENTS, ExactArguments(arguments="{}"))
    ]


@pytest.mark.more
@settings(max_examples=examples(150))
@given(
    site=st.none() | registries(both_roles=False),
    own=registries(both_roles=True),
    user=people,
    cap=st.none() | levels,
    spec_values=specs,
    role=st.sampled_from(ROLES),
    steps=st.lists(layers, max_size=2),
    call=facts,
    doubt=DOUBTS,
    remembered=some_grants,
    approvals=APPROVALS,
)
def test_no_registry_and_no_rule_lets_a_doubtful_call_run_by_itself(
    site: Registry | None,
    own: Registry,
    user: User,
    cap: AccessLevel | None,
    spec_values: tuple[ToolSpec, ...],
    role: str,
    steps: list[Layer],
    call: CallFacts,
    doubt: dict[str, Any],
    remembered: list[RememberedRule],
    approvals: list[str],
) -> None:
    grant = resolve_grant(
        registries=(site, own),
        role=role,
        user=user,
        access_cap=cap,
        specs=spec_values,
        models=[ModelTarget(name="demo")],
        prompt="",
        approvals=approvals,
        extra_layers=steps,
    )
    sound = replace(call, repairs=(), needs_user="")
    doubtful = replace(sound, **doubt)
    for tool in TOOLS:
        known = [*remembered, *everything(role)]
        judged = grant.judge(tool, doubtful, remembered=known)
        assert judged.verdict is not Verdict.ALLOW
        strictness = grant.judge(tool, sound, remembered=known).verdict.strictness
        assert judged.verdict.strictness >= strictness, "a doubt makes nothing looser"


def open_to_all(*rules: RoleRule) -> Grant:
    spec = ToolSpec(name="run", description="", schema="{}", min_access=AccessLevel.VIEWER, verdict=Verdict.ALLOW)
    registry = Registry(
        source="f",
        digest="d",
        roles=(RoleSpec(name="coder", rules=rules),),
        users=(UserSpec(name="*", access_level=AccessLevel.ADMIN, confirm_allow=("run",)),),
    )
    return resolve_grant(
        registries=(None, registry),
        role="coder",
        user=User(uid=1, login="ana"),
        access_cap=None,
        specs=(spec,),
        models=[ModelTarget(name="demo")],
        prompt="",
        approvals=("run",),
    )


def test_the_reason_is_the_repair_and_nothing_else_would_have_asked() -> None:
    grant, call = open_to_all(), CallFacts(arguments="{}")
    assert grant.judge("run", call).verdict is Verdict.ALLOW
    judged = grant.judge("run", replace(call, repairs=("a brace was added", "b")), remembered=everything("coder"))
    assert (judged.verdict, judged.answered_by) == (Verdict.ASK, "")
    assert judged.reason == "the call had to be repaired: a brace was added"


def test_what_a_user_has_to_answer_says_why() -> None:
    judged = open_to_all().judge("run", CallFacts(arguments="{}", needs_user="it would run outside the sandbox"))
    assert (judged.verdict, judged.reason) == (Verdict.ASK, "it would run outside the sandbox")


def test_a_repair_does_not_turn_a_no_into_a_question() -> None:
    grant = open_to_all(RoleRule(tool="run", verdict=Verdict.DENY))
    assert grant.judge("run", CallFacts(arguments="{}", repairs=("a",))).verdict is Verdict.DENY

"""Approvers that a registry names for a tool: whoever they are, naming them permits nothing more."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatops.domain.decisions import Principal, RememberedRule
from chatops.domain.model import ModelTarget
from chatops.domain.tools import AccessLevel, CallFacts, ToolSpec, Verdict
from chatops.policy.approvers import why_cannot_approve
from chatops.policy.grant import Grant
from chatops.policy.registry import Registry
from chatops.policy.resolve import User, resolve_grant
from chatops.policy.servers import ToolSetting
from tests.policy import test_never_elevate as some
from tests.support.properties import examples

APPROVERS = st.lists(st.sampled_from(["other", "@leads", "@ops", "viewer", "user", "operator", "admin"]), max_size=3)
MEMBERS = st.sampled_from(["", "ana", "ben"])


@settings(max_examples=examples(60))
@given(
    site=st.none() | some.registries(both_roles=False),
    own=some.registries(both_roles=True),
    user=some.people,
    specs=some.specs,
    role=st.sampled_from(some.ROLES),
    call=some.facts,
    remembered=some.remembered_grants,
    at_site=st.booleans(),
    tool=st.sampled_from(some.TOOLS),
    approver=APPROVERS.filter(bool),
)
def test_where_approvers_are_named_no_verdict_is_wider_and_no_rule_answers(
    site: Registry | None,
    own: Registry,
    user: User,
    specs: tuple[ToolSpec, ...],
    role: str,
    call: CallFacts,
    remembered: list[RememberedRule],
    at_site: bool,
    tool: str,
    approver: list[str],
) -> None:
    def naming(registry: Registry) -> Registry:
        before = dict(registry.tools)
        setting = replace(before.get(tool, ToolSetting()), approver=tuple(approver))
        return replace(registry, tools=tuple({**before, tool: setting}.items()))

    def grant(site: Registry | None, own: Registry) -> Grant:
        models = [ModelTarget(name="demo")]
        return resolve_grant(
            registries=(site, own), role=role, user=user, access_cap=None, specs=specs, models=models, prompt=""
        )

    without = grant(site, own)
    here = at_site and site is not None
    named = grant(naming(site), own) if here and site is not None else grant(site, naming(own))
    for spec in specs:
        for held in (named, named.intersection(without), without.intersection(named)):
            before = without.judge(spec.name, call, remembered=remembered).verdict
            judged = held.judge(spec.name, call, remembered=remembered)
            assert judged.verdict.strictness >= before.strictness
            if spec.name == tool:
                assert judged.verdict is not Verdict.ALLOW and set(held.approvers(tool)) == set(approver)
            else:
                assert held.approvers(spec.name) == ()


@given(
    needed=APPROVERS,
    more=APPROVERS,
    member=MEMBERS,
    requester=MEMBERS,
    via=st.sampled_from(["tui", "approvals", "serve", "acp", "python", "headless"]),
    rule=st.sampled_from(["", "3"]),
    level=st.none() | st.sampled_from(list(AccessLevel)),
    groups=st.none() | st.frozensets(st.sampled_from(["leads", "ops"])),
)
def test_each_further_approver_narrows_and_only_a_user_in_chatops_is_one(
    needed: list[str],
    more: list[str],
    member: str,
    requester: str,
    via: str,
    rule: str,
    level: AccessLevel | None,
    groups: frozenset[str] | None,
) -> None:
    by = Principal(uid=1000, via=via, rule=rule, member=member)

    def refused(of: list[str]) -> str:
        return why_cannot_approve(of, by, requester=requester, level=level, groups=groups)

    assert refused([]) == ""
    assert bool(refused([*needed, *more])) is bool(refused(needed) or refused(more))
    if needed and (rule or via in ("acp", "python", "headless")):
        assert refused(needed)
    if "other" in needed and member and member == requester:
        assert refused(needed)
    if "@leads" in needed and "leads" not in (groups or ()):
        assert refused(needed)
    if "admin" in needed and level is not AccessLevel.ADMIN:
        assert refused(needed)


@pytest.mark.parametrize(("member", "groups", "refused"), [("ben", {"leads"}, ""), ("ana", {"leads"}, "someone else")])
def test_four_eyes(member: str, groups: set[str], refused: str) -> None:
    by = Principal(uid=1, via="tui", member=member)
    why = why_cannot_approve(("other", "@leads", "user"), by, requester="ana", level=AccessLevel.USER, groups=groups)
    assert why.startswith(refused) and bool(why) is bool(refused)

"""Never elevate: whatever registries, roles, steps and switches there are, no verdict is wider than
access level, role and site allow. The oracle below is written from the words of the surface and shares
nothing with the code under test but the values."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatops.domain.decisions import (
    ANY_ARGUMENTS,
    ArgumentPattern,
    ArgvPattern,
    ExactArguments,
    HostPattern,
    PathPattern,
    RememberedRule,
)
from chatops.domain.ids import CallId
from chatops.domain.model import ModelTarget
from chatops.domain.tools import AccessLevel, CallFacts, ToolSpec, Verdict
from chatops.policy.grant import Grant
from chatops.policy.registry import Registry, RoleRule, RoleSpec, UserSpec
from chatops.policy.resolve import User, resolve_grant
from chatops.policy.servers import ToolSetting
from chatops.policy.verdicts import Layer, Rule
from tests.support.properties import examples

TOOLS = ("read", "write", "run")
ROLES = ("coder", "researcher")
GROUPS = ("staff", "guests")
STRICTNESS = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.DENY: 2}

levels = st.sampled_from(list(AccessLevel))
verdicts = st.sampled_from(list(Verdict))
names = st.sampled_from((*TOOLS, "nonsense"))
patterns: st.SearchStrategy[ArgumentPattern] = st.sampled_from(
    [
        ANY_ARGUMENTS,
        ArgvPattern(words=("git", "status", "*")),
        ArgvPattern(words=("git", "push", "*")),
        PathPattern(glob="src/**"),
        HostPattern(host="*.example.org"),
        ExactArguments(arguments="{}"),
    ]
)
matches = st.sampled_from([(), ("src/**",), ("{}",), ("git", "status", "*")])
rules = st.builds(RoleRule, tool=names, verdict=verdicts, match=matches)
roles = st.builds(
    RoleSpec,
    name=st.sampled_from(ROLES),
    tools=st.none() | st.lists(names, max_size=4).map(tuple),
    rules=st.lists(rules, max_size=3).map(tuple),
)
users = st.builds(
    UserSpec,
    name=st.sampled_from(["ana", "@staff", "@guests", "bob", "*"]),
    access_level=levels,
    confirm_allow=st.lists(names, max_size=2).map(tuple),
    confirm_deny=st.lists(names, max_size=2).map(tuple),
)
tool_settings = st.builds(ToolSetting, verdict=st.none() | verdicts, min_access=st.none() | levels)


def registries(*, both_roles: bool) -> st.SearchStrategy[Registry]:
    some = st.lists(roles, max_size=2, unique_by=lambda role: role.name).map(tuple)
    every = st.tuples(roles, roles).map(_named)
    chosen: st.SearchStrategy[tuple[RoleSpec, ...]] = every if both_roles else some
    return st.builds(
        Registry,
        source=st.just("f"),
        digest=st.just("d"),
        roles=chosen,
        users=st.none() | st.lists(users, max_size=4, unique_by=lambda user: user.name).map(tuple),
        tools=st.lists(st.tuples(names, tool_settings), max_size=3, unique_by=lambda pair: pair[0]).map(tuple),
    )


def _named(pair: tuple[RoleSpec, RoleSpec]) -> tuple[RoleSpec, ...]:
    return tuple(replace(role, name=name) for role, name in zip(pair, ROLES, strict=True))


specs = st.tuples(
    *(
        st.builds(
            ToolSpec,
            name=st.just(name),
            description=st.just(""),
            schema=st.just("{}"),
            min_access=levels,
            verdict=verdicts,
        )
        for name in TOOLS
    )
)
people = st.builds(
    User, uid=st.just(1), login=st.sampled_from(["ana", "zoe"]), groups=st.frozensets(st.sampled_from(GROUPS))
)
facts = st.sampled_from(
    [
        CallFacts(arguments="{}", cwd="/w"),
        CallFacts(
            arguments='{"command":"git status -s"}', cwd="/w", command="git status -s", argv=("git", "status", "-s")
        ),
        CallFacts(arguments='{"command":"git push -f"}', cwd="/w", command="git push -f", argv=("git", "push", "-f")),
        CallFacts(arguments='{"path":"src/a"}', workspace="/w", paths=("/w/src/a",)),
        CallFacts(arguments='{"path":"/etc"}', workspace="/w", paths=("/w/src/a", "/w/b")),
        CallFacts(arguments='{"url":"u"}', cwd="/w", hosts=("a.example.org",)),
        CallFacts(arguments="{}", cwd="/w", refusal="protected"),
        CallFacts(arguments="{}", cwd="/w", caution="home as workspace"),
        CallFacts(arguments="{}", cwd="/w", repairs=("a comma",)),
    ]
)
layers = st.builds(
    Layer,
    name=st.sampled_from(["step one", "revoked"]),
    rules=st.lists(st.builds(Rule, tool=names, verdict=verdicts), max_size=3).map(tuple),
    default=verdicts,
)


# the oracle


def level_by(registry: Registry, user: User) -> int:
    """`users` names logins or groups, the strictest match wins, * is everyone else, no match is user."""
    mine = {user.login, *(f"@{group}" for group in user.groups)}
    given_levels = [int(user.access_level) for user in registry.users or () if user.name in mine]
    if not given_levels:
        given_levels = [int(user.access_level) for user in registry.users or () if user.name == "*"]
    return min(given_levels) if given_levels else 1


def denied_by(registry: Registry, user: User, tool: str) -> bool:
    mine = {user.login, *(f"@{group}" for group in user.groups)}
    entries = [user for user in registry.users or () if user.name in mine]
    entries = entries or [user for user in registry.users or () if user.name == "*"]
    return any(tool in user.confirm_deny for user in entries)


def floor(
    *,
    site: Registry | None,
    own: Registry,
    role: str,
    user: User,
    cap: AccessLevel | None,
    spec: ToolSpec,
    steps: list[Layer],
) -> int:
    """The least strict verdict that the words of the surface leave to any call of a tool."""
    level = level_by(own, user)
    least, verdict = int(spec.min_access), STRICTNESS[spec.verdict]
    if site is not None:
        if site.users is not None:
            level = min(level, level_by(site, user))
        setting = dict(site.tools).get(spec.name, ToolSetting())
        least = least if setting.min_access is None else int(setting.min_access)
        verdict = verdict if setting.verdict is None else STRICTNESS[setting.verdict]
    mine = dict(own.tools).get(spec.name, ToolSetting())
    least = max(least, -1 if mine.min_access is None else int(mine.min_access))
    verdict = max(verdict, 0 if mine.verdict is None else STRICTNESS[mine.verdict])
    if cap is not None:
        level = min(level, int(cap))
    denied = level < least or verdict == 2
    for registry in (site, own):
        if registry is None:
            continue
        denied = denied or denied_by(registry, user, spec.name)
        for block in registry.roles:
            if block.name != role:
                continue
            if block.tools is not None and spec.name not in block.tools:
                denied = True
            for rule in block.rules:
                if rule.tool == spec.name and rule.pattern == ANY_ARGUMENTS:
                    verdict = max(verdict, STRICTNESS[rule.verdict])
    for layer in steps:
        said = [STRICTNESS[rule.verdict] for rule in layer.rules if rule.tool == spec.name]
        verdict = max(verdict, max(said) if said else STRICTNESS[layer.default])
    return 2 if denied else verdict


def made_by_a_user(
    *, site: Registry | None, own: Registry, role: str, tool: str, remembered: list[RememberedRule]
) -> bool:
    """Return True if anything could answer an ask for this tool."""
    for registry in (site, own):
        if registry is None:
            continue
        if any(rule.tool == tool and rule.verdict is Verdict.ALLOW and rule.pattern != ANY_ARGUMENTS
               for block in registry.roles if block.name == role for rule in block.rules):  # fmt: skip
            return True
        if any(tool in user.confirm_allow for user in registry.users or ()):
            return True
    return any(grant.role == role and grant.tool == tool for grant in remembered)


remembered_grants = st.lists(
    st.builds(
        RememberedRule, role=st.sampled_from(ROLES), tool=names, pattern=patterns, source_call=st.just(CallId("c"))
    ),
    max_size=3,
)


@pytest.mark.more
@settings(max_examples=examples(120))
@given(
    site=st.none() | registries(both_roles=False),
    own=registries(both_roles=True),
    later_site=st.none() | registries(both_roles=False),
    later_own=registries(both_roles=True),
    user=people,
    cap=st.none() | levels,
    spec_values=specs,
    role=st.sampled_from(ROLES),
    next_role=st.sampled_from(ROLES),
    steps=st.lists(layers, max_size=2),
    later_steps=st.lists(layers, max_size=2),
    call=facts,
    remembered=remembered_grants,
)
def test_no_verdict_is_wider_than_level_role_and_site(
    site: Registry | None,
    own: Registry,
    later_site: Registry | None,
    later_own: Registry,
    user: User,
    cap: AccessLevel | None,
    spec_values: tuple[ToolSpec, ...],
    role: str,
    next_role: str,
    steps: list[Layer],
    later_steps: list[Layer],
    call: CallFacts,
    remembered: list[RememberedRule],
) -> None:
    def grant(site: Registry | None, own: Registry, role: str, extra: list[Layer]) -> Grant:
        return resolve_grant(
            registries=(site, own),
            role=role,
            user=user,
            access_cap=cap,
            specs=spec_values,
            models=[ModelTarget(name="demo")],
            prompt="",
            extra_layers=extra,
        )

    first = grant(site, own, role, steps)
    second = grant(later_site, later_own, next_role, [])
    sequence = [
        (first, [(site, own, role, steps)]),
        (first.narrowed(*later_steps), [(site, own, role, steps + later_steps)]),
        (first.intersection(second), [(site, own, role, steps), (later_site, later_own, next_role, [])]),
        (
            first.narrowed(*later_steps).intersection(second).intersection(first),
            [(site, own, role, steps + later_steps), (later_site, later_own, next_role, [])],
        ),
    ]
    for held, parts in sequence:
        answering = held.role
        for spec in spec_values:
            least = max(floor(site=s, own=o, role=r, user=user, cap=cap, spec=spec, steps=e) for s, o, r, e in parts)
            judged = held.judge(spec.name, call, remembered=remembered)
            permitted = held.permits(spec.name).verdict
            if least == 2:
                assert judged.verdict is Verdict.DENY and permitted is Verdict.DENY
                assert held.tool(spec.name) is None
            if held.tool(spec.name) is None:
                assert permitted is Verdict.DENY and judged.verdict is Verdict.DENY
            if judged.verdict is not Verdict.ALLOW:
                continue
            assert not call.refusal and not call.repairs
            if least == 1 or call.caution:
                assert judged.answered_by
                assert any(
                    made_by_a_user(site=s, own=o, role=answering, tool=spec.name, remembered=remembered)
                    for s, o, r, _ in parts
                    if r == answering
                )
        assert held.judge("nonsense", call, remembered=remembered).verdict is Verdict.DENY


@given(own=registries(both_roles=True), user=people, spec_values=specs, role=st.sampled_from(ROLES))
def test_everything_the_words_permit_is_on_offer(
    own: Registry, user: User, spec_values: tuple[ToolSpec, ...], role: str
) -> None:
    """The other direction: a grant that denied everything would pass the property above."""
    held = resolve_grant(
        registries=(None, own), role=role, user=user, access_cap=None, specs=spec_values, models=[], prompt=""
    )
    for spec in spec_values:
        least = floor(site=None, own=own, role=role, user=user, cap=None, spec=spec, steps=[])
        assert (held.tool(spec.name) is not None) == (least < 2), json.dumps([spec.name, least])

"""A child never has a right that its role, the user's level, the site and what binds its caller do not give, nor one
beyond its caller's that the dialog does not name. The first half of the oracle is that of `test_never_elevate`, which
is written from the words of the surface. The second asks both grants about the same calls, one by one."""

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatops.domain.decisions import ANY_ARGUMENTS, ArgumentPattern, ArgvPattern, PathPattern, RememberedRule, RuleScope
from chatops.domain.ids import CallId
from chatops.domain.model import ModelTarget
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import BUILT_IN, BUILT_IN_TOOLS, AccessLevel, CallFacts, SkillUse, ToolSpec, Verdict
from chatops.policy.budget import NO_BUDGET, Budget
from chatops.policy.delegation import DELEGATE_TOOL, AddedRights, added_rights, binding, grant_digest, only_tools_of
from chatops.policy.grant import Grant
from chatops.policy.registry import Registry, RoleRule, RoleSpec, UserSpec
from chatops.policy.resolve import User, resolve_grant, revoked_layer
from chatops.policy.servers import ToolSetting
from chatops.policy.verdicts import ApprovalRule, Layer, Rule, skill_layer
from chatops.policy.workflow import StepPlace
from tests.policy.test_never_elevate import facts, floor, levels, matches, patterns, people, verdicts
from tests.support.properties import examples

TOOLS = ("read", "write", "run", "gh__find", "gh__push", "mine", DELEGATE_TOOL)
ROLES = ("coder", "researcher")
SOURCES = {"gh__find": "MCP server gh", "gh__push": "MCP server gh", "mine": "tools/mine.py 0123"}

names = st.sampled_from((*TOOLS, "nonsense"))
listed = st.sampled_from((*TOOLS, "gh__*", "nonsense"))
rules = st.one_of(
    st.builds(RoleRule, tool=names.filter(lambda name: name != DELEGATE_TOOL), verdict=verdicts, match=matches),
    # The registry takes no command for a built-in tool that runs none.
    st.builds(RoleRule, tool=st.just(DELEGATE_TOOL), verdict=verdicts),
)
role_pairs = st.tuples(
    *(
        st.builds(
            RoleSpec,
            name=st.just(role),
            tools=st.none() | st.lists(listed, max_size=5).map(tuple),
            rules=st.lists(rules, max_size=3).map(tuple),
            max_rounds=st.none() | st.integers(1, 30),
        )
        for role in ROLES
    )
)
users = st.builds(
    UserSpec,
    name=st.sampled_from(["ana", "@staff", "*"]),
    access_level=levels,
    confirm_allow=st.lists(names, max_size=2).map(tuple),
    confirm_deny=st.lists(names, max_size=2).map(tuple),
)
tool_settings = st.builds(ToolSetting, verdict=st.none() | verdicts, min_access=st.none() | levels)
registries = st.builds(
    Registry,
    source=st.just("f"),
    digest=st.just("d"),
    roles=role_pairs,
    users=st.none() | st.lists(users, max_size=3, unique_by=lambda user: user.name).map(tuple),
    tools=st.lists(st.tuples(names, tool_settings), max_size=3, unique_by=lambda pair: pair[0]).map(tuple),
)
spec_values = st.tuples(
    *(
        st.builds(
            ToolSpec,
            name=st.just(name),
            description=st.just(""),
            schema=st.just("{}"),
            min_access=levels,
            verdict=verdicts,
            source=st.just(SOURCES.get(name, "built-in")),
            steps=st.sampled_from([(), ("one",), ("two",)]) if name == "mine" else st.just(()),
            asks_after_reading=st.booleans(),
        )
        for name in TOOLS
    )
)
# What binds the caller beyond its role: a step's list, tools that were revoked, a skill in use, anything else.
bound_layers = st.lists(
    st.one_of(
        st.lists(names, max_size=3).map(lambda tools: revoked_layer(tools)),
        st.lists(names, max_size=5).map(lambda tools: skill_layer(SkillUse(name="s", tools=tuple(tools), asks=()))),
        st.builds(
            Layer,
            name=st.just("step one"),
            rules=st.lists(st.builds(Rule, tool=names, verdict=verdicts), max_size=4).map(tuple),
            default=verdicts,
        ),
    ),
    max_size=3,
)
remembered_rules = st.lists(
    st.builds(
        RememberedRule, role=st.sampled_from(ROLES), tool=names, pattern=patterns, source_call=st.just(CallId("c"))
    ),
    max_size=3,
)
DENIED_TO_CHILDREN = Layer(name="depth one", rules=(Rule(tool=DELEGATE_TOOL, verdict=Verdict.DENY),))


def child_of(target: Grant, caller: Grant) -> Grant:
    return target.narrowed(*binding(caller))


def spelled(registry: Registry) -> Registry:
    """Return the registry with every tool of a server by its own name, which is all that the oracle knows."""
    servers = tuple(tool for tool in TOOLS if "__" in tool)

    def every(tools: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for tool in tools for name in (servers if tool == "gh__*" else (tool,)))

    return replace(
        registry,
        roles=tuple(role if role.tools is None else replace(role, tools=every(role.tools)) for role in registry.roles),
    )


def named(found: AddedRights, tool: str) -> bool:
    """Return True if the dialog would name this tool, or a rule about it."""
    return tool in (*found.tools, *found.unasked, *found.looser) or any(
        rule == tool or rule.startswith(f"{tool}:") for rule in found.rules
    )


@pytest.mark.more
@settings(max_examples=examples(150))
@given(
    site=st.none() | registries,
    own=registries,
    user=people,
    cap=st.none() | levels,
    specs=spec_values,
    role=st.sampled_from(ROLES),
    target=st.sampled_from(ROLES),
    at=st.none() | st.just(StepPlace(workflow="w", step="one")),
    extra=bound_layers,
    later=bound_layers,
    call=facts,
    remembered=remembered_rules,
    read=st.booleans(),
)
def test_a_child_has_no_right_beyond_its_role_and_none_beyond_its_caller_that_is_not_named(
    site: Registry | None,
    own: Registry,
    user: User,
    cap: AccessLevel | None,
    specs: tuple[ToolSpec, ...],
    role: str,
    target: str,
    at: StepPlace | None,
    extra: list[Layer],
    later: list[Layer],
    call: CallFacts,
    remembered: list[RememberedRule],
    read: bool,
) -> None:
    def grant(role: str, *, at: StepPlace | None = None, extra: list[Layer] | None = None) -> Grant:
        return resolve_grant(
            registries=(site, own), role=role, user=user, access_cap=cap, specs=specs, models=[], prompt="",
            at=at, extra_layers=extra or (),
        )  # fmt: skip

    # The caller works at a step, and skills and revocations narrow it while it runs.
    caller = grant(role, at=at, extra=extra).narrowed(*later)
    child = child_of(grant(target), caller)
    child = child.narrowed(only_tools_of(child))
    found = added_rights(child, caller, remembered=remembered)
    for spec in specs:
        bound = [*extra, *later, DENIED_TO_CHILDREN]
        least = floor(
            site=site and spelled(site), own=spelled(own), role=target, user=user, cap=cap, spec=spec, steps=bound
        )
        if spec.steps:  # Tools that are bound to a step are for its own turns.
            least = 2
        judged = child.judge(spec.name, call, remembered=remembered, workspace_read=read)
        by_caller = caller.judge(spec.name, call, remembered=remembered, workspace_read=read)
        if least == 2:
            assert judged.verdict is Verdict.DENY and child.tool(spec.name) is None
        if least == 1 and judged.verdict is Verdict.ALLOW:
            assert judged.answered_by
        if judged.verdict.strictness < by_caller.verdict.strictness:
            assert named(found, spec.name), (spec.name, judged, by_caller, found)
    assert child.permits(DELEGATE_TOOL).verdict is Verdict.DENY
    assert (child.max_rounds > caller.max_rounds) <= bool(found.rounds)
    # What was not compared is never permitted, whatever connects later.
    late = replace(specs[0], name="gh__late", source="MCP server gh", min_access=AccessLevel.VIEWER)
    widened = resolve_grant(
        registries=(site, own), role=target, user=user, access_cap=cap, specs=(*specs, late), models=[], prompt=""
    ).narrowed(*binding(caller), only_tools_of(child))
    assert widened.tool("gh__late") is None


paths = st.lists(st.sampled_from(["/a", "/a/b", "/c", "/c/d/e"]), max_size=3, unique=True).map(tuple)
sandboxes = st.builds(
    SandboxSpec,
    require=st.sampled_from(list(SandboxLevel)),
    network=st.booleans(),
    hosts=st.lists(st.sampled_from(["*.x.org", "a.x.org", "y.org", "y.org:8080"]), max_size=3, unique=True).map(tuple),
    git=st.sampled_from(["protect", "commit", "writable"]),
    read=paths,
    write=paths,
    env=st.lists(st.sampled_from(["A", "B"]), max_size=2, unique=True).map(tuple),
)


def reached(spec: SandboxSpec) -> set[str]:
    """Return what a sandbox lets commands do, out of a few things."""
    below = {"/a/f": "/a", "/a/b/f": "/a /a/b", "/c/f": "/c", "/c/d/e/f": "/c /c/d/e"}
    return {
        *(f"write {path}" for path, roots in below.items() if any(root in spec.write for root in roots.split())),
        *(
            f"read {path}"
            for path, roots in below.items()
            if any(root in (*spec.read, *spec.write) for root in roots.split())
        ),
        *(name for name in spec.env),
        *(f"git {access}" for access in ("commit", "writable")[: ("protect", "commit", "writable").index(spec.git)]),
        *(
            host
            for host, entries in {
                "a.x.org": ("*.x.org", "a.x.org"),
                "b.x.org": ("*.x.org",),
                "y.org": ("y.org",),
                "y.org:8080": ("y.org:8080",),
            }.items()
            if spec.network or any(entry in spec.hosts for entry in entries)
        ),
        *(["all of the network"] if spec.network else []),
        *(f"level {level.word}" for level in SandboxLevel if level >= spec.require),
    }


def plain(**values: object) -> Grant:
    empty = Grant(
        role="coder", level=AccessLevel.USER, models=(ModelTarget(name="m", endpoint="here"),), prompt="", tools=(),
        layers=(), sandbox=SandboxSpec(),
    )  # fmt: skip
    return replace(empty, **values)  # type: ignore[arg-type]


@settings(max_examples=examples(200))
@given(one=sandboxes, other=sandboxes)
def test_a_looser_sandbox_is_named_and_a_stricter_one_is_not(one: SandboxSpec, other: SandboxSpec) -> None:
    found = added_rights(plain(sandbox=one), plain(sandbox=other))
    assert bool(found.words) == bool(reached(one) - reached(other))


def spec(name: str, verdict: Verdict = Verdict.ASK) -> ToolSpec:
    return ToolSpec(name=name, description="", schema="{}", verdict=verdict)


def role(*tools: ToolSpec, answers: tuple[ApprovalRule, ...] = (), **values: object) -> Grant:
    layer = Layer(name="x", rules=tuple(Rule(tool=one.name, verdict=one.verdict) for one in tools), of_registry=True)
    return plain(answers=answers, tools=tools, layers=(layer,), **values)


def rule(pattern: ArgumentPattern, *, read: bool = False) -> ApprovalRule:
    return ApprovalRule(tool="run", pattern=pattern, source="r", workspace_read=read)


GIT = ArgvPattern(words=("git", "status", "*"))
READ, WRITE, RUN = spec("read", Verdict.ALLOW), spec("write"), spec("run")
OLD = ModelTarget(name="old")
GATEWAY = ModelTarget(name="big", label="qwen-big", endpoint="gateway")


@pytest.mark.parametrize(
    ("child", "caller", "words"),
    [
        (role(READ), role(READ, WRITE), ()),
        (role(READ, WRITE), role(READ, WRITE), ()),
        (role(WRITE, RUN), role(READ), ("+ write, run",)),
        (role(READ, WRITE), role(RUN), ("+ write", "+ read without asking")),
        (role(spec("write", Verdict.ALLOW)), role(WRITE), ("write with fewer questions",)),
        (role(RUN, answers=(rule(GIT),)), role(RUN), ("rule run:git status *",)),
        (role(RUN, answers=(rule(GIT),)), role(RUN, answers=(rule(GIT),)), ()),
        (role(RUN, answers=(rule(GIT, read=True),)), role(RUN, answers=(rule(GIT),)), ()),
        (role(RUN, answers=(rule(GIT),)), role(RUN, answers=(rule(GIT, read=True),)), ("rule run:git status *",)),
        (role(READ, answers=(rule(GIT),)), role(READ), ()),
        (role(models=(GATEWAY,)), role(), ("model qwen-big at gateway",)),
        (role(responder=GATEWAY), role(), ("model qwen-big at gateway",)),
        (role(models=(OLD,)), role(models=(OLD,)), ("model old at an unknown place",)),
        (role(models=(ModelTarget(name="other", endpoint="here"),)), role(), ()),
        (role(max_rounds=24), role(max_rounds=12), ("24 rounds",)),
        (role(max_rounds=6), role(max_rounds=12), ()),
    ],
)  # fmt: skip
def test_what_is_added_is_said_in_a_few_words(child: Grant, caller: Grant, words: tuple[str, ...]) -> None:
    assert added_rights(child, caller).words == words


def test_what_a_contained_role_runs_without_a_question_is_named() -> None:
    shell = replace(spec("shell_exec"), source=BUILT_IN, capabilities=BUILT_IN_TOOLS["shell_exec"])
    assert added_rights(role(shell, contain=True), role(shell)).words == ("shell_exec in a copy without asking",)
    assert added_rights(role(WRITE, contain=True), role(WRITE)).words == ()


def test_a_revoked_tool_whose_name_was_taken_for_a_key_leaves_nothing_permitted() -> None:
    assert role(READ, RUN).narrowed(revoked_layer(["gh__[key]"])).tools == ()


def test_rules_that_the_user_made_for_the_role_are_named() -> None:
    made = RememberedRule(role="tester", tool="run", pattern=PathPattern(glob="src/**"), source_call=CallId("c"))
    found = added_rights(
        role(RUN, role="tester"), role(RUN), remembered=(made, replace(made, tool="gone", role="tester"))
    )
    assert found.words == ("rule run:src/**",)
    assert added_rights(role(RUN), role(RUN), remembered=(replace(made, role="coder"),)).words == ()


def test_only_layers_that_no_registry_gives_bind_a_child() -> None:
    kept = Layer(name="revoked", rules=(Rule(tool="run", verdict=Verdict.DENY, pattern=ANY_ARGUMENTS),))
    caller = role(READ, RUN).narrowed(kept)
    assert kept in binding(caller)
    assert not any(layer.of_registry for layer in binding(caller))
    assert child_of(role(RUN, WRITE), caller).tool("run") is None


def test_the_signature_changes_with_each_right_and_not_with_the_prompt() -> None:
    base = role(READ, RUN)
    changed = [
        role(READ, RUN, WRITE),
        role(READ, spec("run", Verdict.ALLOW)),
        role(READ, RUN, answers=(rule(GIT),)),
        role(READ, RUN, max_rounds=11),
        role(READ, RUN, models=(GATEWAY,)),
        role(READ, RUN, sandbox=SandboxSpec(network=True)),
        role(READ, RUN, role="other"),
        role(READ, RUN, level=AccessLevel.ADMIN),
    ]
    known = {grant_digest(one, ()) for one in (base, *changed)}
    assert len(known) == 1 + len(changed)
    assert grant_digest(replace(base, prompt="today"), ()) == grant_digest(base, ()) != grant_digest(base, ("+ write",))


BASE = role(READ, RUN)
LIMITS: dict[str, tuple[object, object]] = {
    "level": (AccessLevel.ADMIN, AccessLevel.USER),
    "tools": ((READ, RUN), (READ,)),
    "layers": (
        BASE.layers,
        (*BASE.layers, revoked_layer(["write"]), Layer(name="asks", rules=(), default=Verdict.ASK)),
    ),
    "max_rounds": (9, 5),
    "budget": (NO_BUDGET, Budget(tokens=5)),
    "run_budget": (NO_BUDGET, Budget(tokens=5)),
    "sandbox": (SandboxSpec(network=True), SandboxSpec()),
    "ceiling": (None, SandboxSpec()),
    "rule_scopes": (tuple(RuleScope), ()),
    "may_contain": (True, False),
}
"""A wide and a narrow value of each limit of a grant."""
CHOICES: dict[str, tuple[object, object]] = {
    "role": ("coder", "other"),
    "models": ((OLD,), (GATEWAY,)),
    "prompt": ("", "now"),
    "answers": ((), (rule(GIT),)),
    "responder": (None, GATEWAY),
    "contain": (False, True),
    "registries": ((), ("sha",)),
}
"""Two values of each field that is no limit: of two grants the newer one's counts."""
NOT_SIGNED = frozenset({"prompt", "registries", "budget", "run_budget"})
"""What an approval of a delegation is not bound to: words and digests are no right, and at its budget
the child's turn asks."""


def test_each_field_of_a_grant_is_a_limit_or_a_choice() -> None:
    assert {field.name for field in fields(Grant)} == LIMITS.keys() | CHOICES.keys(), "add the new field"


@pytest.mark.parametrize("name", LIMITS)
def test_of_two_grants_the_stricter_limit_counts(name: str) -> None:
    wide, narrow = (replace(BASE, **{name: value}) for value in LIMITS[name])  # type: ignore[arg-type]
    for both in (wide.intersection(narrow), narrow.intersection(wide)):
        assert getattr(both, name) == getattr(narrow, name), f"Grant.intersection forgets {name}"


@pytest.mark.parametrize("name", LIMITS | CHOICES)
def test_the_signature_changes_with_each_field_but_named_ones(name: str) -> None:
    one, other = (grant_digest(replace(BASE, **{name: value}), ()) for value in (LIMITS | CHOICES)[name])  # type: ignore[arg-type]
    assert (one == other) == (name in NOT_SIGNED), f"the grant_digest forgets {name}, or NOT_SIGNED names it"

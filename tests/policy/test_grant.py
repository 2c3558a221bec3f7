"""Verdicts for a role and user, and the layer that gives each."""

from dataclasses import replace

import pytest

from chatops.domain.decisions import ANY_ARGUMENTS, RememberedRule, RuleScope
from chatops.domain.errors import ConfigError
from chatops.domain.ids import CallId
from chatops.domain.model import ModelTarget
from chatops.domain.tools import BUILT_IN_TOOLS, NO_CAPABILITIES, AccessLevel, CallFacts, ToolSpec, Verdict
from chatops.policy.budget import NO_BUDGET, Budget
from chatops.policy.grant import Grant, explain, tool_difference
from chatops.policy.prompt import compose, layers_for
from chatops.policy.registry import BudgetKeys, ModelSpec, Registry, RoleRule, RoleSpec, UserSpec
from chatops.policy.registry_checks import registry_warnings
from chatops.policy.resolve import User, entitlement, resolve_grant, revoked_layer
from chatops.policy.servers import ToolSetting
from chatops.policy.verdicts import Layer
from tests.support.cases import for_each

BUILT_IN = {
    "file_read": (AccessLevel.VIEWER, Verdict.ALLOW),
    "web_search": (AccessLevel.USER, Verdict.ALLOW),
    "web_fetch": (AccessLevel.USER, Verdict.ASK),
    "file_edit": (AccessLevel.OPERATOR, Verdict.ASK),
    "shell_exec": (AccessLevel.OPERATOR, Verdict.ASK),
    "python_exec": (AccessLevel.OPERATOR, Verdict.ASK),
}
SPECS = tuple(
    ToolSpec(
        name=name,
        capabilities=BUILT_IN_TOOLS.get(name, NO_CAPABILITIES),
        description="",
        schema="{}",
        min_access=level,
        verdict=verdict,
        asks_after_reading=name == "web_search",
    )
    for name, (level, verdict) in BUILT_IN.items()
)
ANA = User(uid=1, login="ana", groups=frozenset({"staff"}))
STATUS = CallFacts(arguments='{"command":"git status"}', cwd="/w", command="git status", argv=("git", "status"))
PUSH = CallFacts(arguments='{"command":"git push"}', cwd="/w", command="git push", argv=("git", "push"))
PIPED = CallFacts(arguments='{"command":"git push | x"}', cwd="/w", command="git push | x")
NOTHING = CallFacts(arguments="{}", cwd="/w")
OPERATORS = (UserSpec(name="*", access_level=AccessLevel.OPERATOR),)
ALL = tuple(BUILT_IN)


def registry(*roles: RoleSpec, users: tuple[UserSpec, ...] | None = OPERATORS, **more: object) -> Registry:
    plain = Registry(source="f", digest="d", roles=roles or (RoleSpec(name="coder"),), users=users)
    return replace(plain, **more)  # type: ignore[arg-type]


def grant(
    own: Registry | None = None,
    *,
    site: Registry | None = None,
    cap: AccessLevel | None = None,
    approvals: tuple[str, ...] = (),
    extra: tuple[Layer, ...] = (),
    user: User = ANA,
    role: str = "coder",
) -> Grant:
    return resolve_grant(
        registries=(site, own or registry()),
        role=role,
        user=user,
        access_cap=cap,
        specs=SPECS,
        models=[ModelTarget(name="m")],
        prompt="p",
        approvals=approvals,
        extra_layers=extra,
    )


def offered(held: Grant) -> tuple[str, ...]:
    return tuple(spec.name for spec in held.tools)


@for_each(
    ("users", "level"),
    [
        ((), AccessLevel.USER),
        ((UserSpec(name="bob", access_level=AccessLevel.ADMIN),), AccessLevel.USER),
        ((UserSpec(name="*", access_level=AccessLevel.ADMIN),), AccessLevel.ADMIN),
        (
            (UserSpec(name="*", access_level=AccessLevel.VIEWER), UserSpec(name="ana", access_level=AccessLevel.ADMIN)),
            AccessLevel.ADMIN,
        ),
        (
            (
                UserSpec(name="@staff", access_level=AccessLevel.USER),
                UserSpec(name="ana", access_level=AccessLevel.ADMIN),
            ),
            AccessLevel.USER,
        ),
        ((UserSpec(name="@wheel", access_level=AccessLevel.ADMIN),), AccessLevel.USER),
        ((UserSpec(name="staff", access_level=AccessLevel.ADMIN),), AccessLevel.USER),
    ],
)
def test_who_gets_which_level(users: tuple[UserSpec, ...], level: AccessLevel) -> None:
    assert entitlement(users, user=ANA).level is level


def test_without_users_the_own_file_means_user_and_the_site_file_no_ceiling() -> None:
    assert grant(registry(users=None)).level is AccessLevel.USER
    assert grant(site=registry(users=None)).level is AccessLevel.OPERATOR
    assert grant(site=registry(users=())).level is AccessLevel.USER


def test_access_only_lowers() -> None:
    assert grant(cap=AccessLevel.ADMIN).level is AccessLevel.OPERATOR
    held = grant(cap=AccessLevel.VIEWER)
    assert offered(held) == ("file_read",)
    assert held.permits("shell_exec").reason == "access level viewer"


def test_missing_tools_are_all_and_empty_tools_are_none() -> None:
    assert offered(grant(registry(RoleSpec(name="coder")))) == ALL
    assert offered(grant(registry(RoleSpec(name="coder", tools=())))) == ()


def test_unknown_tools_grant_nothing_and_are_told() -> None:
    own = registry(RoleSpec(name="coder", tools=("file_read", "file_raed", "nonsense")))
    held = grant(own)
    assert offered(held) == ("file_read",)
    assert held.judge("nonsense", NOTHING).verdict is Verdict.DENY
    warnings = registry_warnings((None, own), specs=SPECS)
    assert len(warnings) == 2 and "Did you mean file_read?" in warnings[0].text


def test_only_the_site_goes_below_what_is_built_in() -> None:
    loose = (("file_edit", ToolSetting(verdict=Verdict.ALLOW, min_access=AccessLevel.VIEWER)),)
    users = (UserSpec(name="*", access_level=AccessLevel.USER),)
    by_user = grant(registry(tools=loose, users=users))
    by_site = grant(registry(users=users), site=registry(tools=loose, users=None))
    assert by_user.tool("file_edit") is None
    assert by_site.judge("file_edit", NOTHING).verdict is Verdict.ALLOW
    assert grant(registry(tools=loose)).judge("file_edit", NOTHING).verdict is Verdict.ASK


def test_a_user_can_tighten_what_the_site_loosened() -> None:
    loose = (("file_edit", ToolSetting(verdict=Verdict.ALLOW)),)
    tight = (("file_edit", ToolSetting(verdict=Verdict.DENY)), ("file_read", ToolSetting(min_access=AccessLevel.ADMIN)))
    held = grant(registry(tools=tight), site=registry(tools=loose, users=None))
    assert held.permits("file_edit").reason == "tools of your registry"
    assert held.permits("file_read").reason == "access level operator"


def test_roles_of_the_same_name_intersect() -> None:
    site = registry(RoleSpec(name="coder", tools=("file_read", "web_fetch"), max_rounds=4), users=None)
    own = registry(RoleSpec(name="coder", tools=("file_read", "shell_exec"), max_rounds=50))
    held = grant(own, site=site)
    assert offered(held) == ("file_read",) and held.max_rounds == 4
    assert grant(registry(RoleSpec(name="other")), site=site).tools == (*grant(own, site=site).tools, SPECS[2])


def test_confirm_deny_denies_and_nothing_answers_it() -> None:
    users = (
        UserSpec(
            name="*", access_level=AccessLevel.OPERATOR, confirm_deny=("file_edit",), confirm_allow=("file_edit",)
        ),
    )
    held = grant(registry(users=users), approvals=("file_edit",))
    remembered = RememberedRule(role="coder", tool="file_edit", pattern=ANY_ARGUMENTS, source_call=CallId("c"))
    judged = held.judge("file_edit", NOTHING, remembered=(remembered,))
    assert judged.verdict is Verdict.DENY and "confirm_deny" in judged.reason


def test_what_answers_an_ask() -> None:
    rule = RoleRule(tool="shell_exec", verdict=Verdict.ALLOW, match=("git", "status", "*"))
    by_role = grant(registry(RoleSpec(name="coder", rules=(rule,))))
    assert by_role.judge("shell_exec", STATUS).answered_by == "rule of role coder"
    assert by_role.judge("shell_exec", PUSH).verdict is Verdict.ASK
    by_flag = grant(approvals=("shell_exec:git push",))
    assert by_flag.judge("shell_exec", PUSH).answered_by == "--approve shell_exec:git push"
    users = (UserSpec(name="*", access_level=AccessLevel.OPERATOR, confirm_allow=("file_edit:src/**",)),)
    edit = CallFacts(arguments="{}", workspace="/w", paths=("/w/src/a",))
    assert grant(registry(users=users)).judge("file_edit", edit).answered_by == "confirm_allow file_edit:src/**"


def test_a_bare_allow_answers_nothing_for_what_runs_anything() -> None:
    bare = registry(
        RoleSpec(name="coder", rules=(RoleRule(tool="shell_exec", verdict=Verdict.ALLOW),)),
        users=(UserSpec(name="*", access_level=AccessLevel.OPERATOR, confirm_allow=("shell_exec", "python_exec")),),
    )
    assert grant(bare).judge("shell_exec", STATUS).verdict is Verdict.ASK
    assert grant(bare).judge("python_exec", NOTHING).verdict is Verdict.ASK


@pytest.mark.parametrize("tool", ["shell_exec", "python_exec"])
def test_a_bare_approval_needs_the_site(tool: str) -> None:
    with pytest.raises(ConfigError, match="anything"):
        grant(approvals=(tool,))
    with pytest.raises(ConfigError):
        grant(registry(approve_any_shell=True), approvals=(tool,))
    permitted = grant(site=registry(approve_any_shell=True, users=None), approvals=(tool,))
    assert permitted.judge(tool, PIPED).verdict is Verdict.ALLOW


def test_an_approval_of_an_unknown_tool_is_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        grant(approvals=("file_edti",))
    assert "file_edit" in caught.value.advice


def test_restricting_rules_are_read_widely() -> None:
    rules = (
        RoleRule(tool="shell_exec", verdict=Verdict.DENY, match=("git", "push", "*")),
        RoleRule(tool="file_read", verdict=Verdict.ASK, match=("secret/**",)),
    )
    held = grant(registry(RoleSpec(name="coder", rules=rules)), approvals=("shell_exec:git push",))
    assert held.judge("shell_exec", PUSH).verdict is Verdict.DENY
    assert held.judge("shell_exec", STATUS).verdict is Verdict.ASK
    both = CallFacts(arguments="{}", workspace="/w", paths=("/w/a", "/w/secret/.x"))
    assert held.judge("file_read", both).reason == "rules of role coder"
    assert held.judge("file_read", NOTHING).verdict is Verdict.ALLOW
    site = registry(tools=(("shell_exec", ToolSetting(verdict=Verdict.ALLOW)),), users=None)
    loosened = grant(registry(RoleSpec(name="coder", rules=rules)), site=site)
    assert loosened.judge("shell_exec", PIPED).verdict is Verdict.DENY, "the rule names a program in it"
    other = replace(PIPED, command="git fetch | x")
    assert loosened.judge("shell_exec", other).verdict is Verdict.ASK, "it is not one simple command"
    assert loosened.judge("shell_exec", STATUS).verdict is Verdict.ALLOW


def test_facts_that_refuse_caution_or_were_repaired() -> None:
    held = grant(approvals=("file_edit", "file_read"))
    assert held.judge("file_edit", replace(NOTHING, refusal="a protected path")).reason == "a protected path"
    assert held.judge("file_edit", replace(NOTHING, repairs=("a comma",))).verdict is Verdict.ASK
    assert grant().judge("file_read", replace(NOTHING, caution="home")).verdict is Verdict.ASK
    assert held.judge("file_read", replace(NOTHING, caution="home")).answered_by


def test_search_asks_once_files_have_been_read() -> None:
    held = grant()
    assert held.judge("web_search", NOTHING).verdict is Verdict.ALLOW
    assert held.judge("web_search", NOTHING, workspace_read=True).verdict is Verdict.ASK
    assert held.judge("file_read", NOTHING, workspace_read=True).verdict is Verdict.ALLOW


def test_remembered_grants_belong_to_their_role() -> None:
    own = registry(RoleSpec(name="coder"), RoleSpec(name="operator"))
    kept = (RememberedRule(role="coder", tool="file_edit", pattern=ANY_ARGUMENTS, source_call=CallId("c")),)
    assert grant(own).judge("file_edit", NOTHING, remembered=kept).verdict is Verdict.ALLOW
    assert grant(own, role="operator").judge("file_edit", NOTHING, remembered=kept).verdict is Verdict.ASK


def test_narrowing_appends_and_repeats_nothing() -> None:
    held = grant()
    gone = revoked_layer(["shell_exec"])
    once = held.narrowed(gone)
    assert once.narrowed(gone) == once and once.tool("shell_exec") is None
    assert once.permits("shell_exec").reason == gone.name
    assert tool_difference(held, once) == ((), ("shell_exec",))
    assert tool_difference(once, held) == (("shell_exec",), ())


def test_meeting_keeps_what_both_permit() -> None:
    own = registry(
        RoleSpec(name="coder", tools=("file_read", "file_edit", "shell_exec")),
        RoleSpec(name="researcher", tools=("web_search", "file_read", "file_edit")),
    )
    stored = replace(grant(own).narrowed(revoked_layer(["file_edit"])), max_rounds=3)
    now = replace(grant(own, role="researcher"), prompt="now")
    both = stored.intersection(now)
    assert offered(both) == ("file_read",)
    assert (both.role, both.prompt, both.max_rounds) == ("researcher", "now", 3)
    capped = grant(own, cap=AccessLevel.VIEWER)
    assert capped.intersection(now).level is AccessLevel.VIEWER and now.intersection(capped).level is AccessLevel.VIEWER
    assert both.judge("file_edit", NOTHING).verdict is Verdict.DENY
    assert len(set(both.layers)) == len(both.layers)
    assert stored.intersection(stored) == stored


def test_scopes_of_remembered_rules_are_those_that_every_registry_and_grant_leaves_on() -> None:
    session, folder, role = RuleScope
    assert grant().rule_scopes == (session, folder, role)
    own, site = registry(rule_scopes=(session, role)), registry(rule_scopes=(session, folder))
    assert grant(own).rule_scopes == (session, role)
    assert grant(own, site=site).rule_scopes == (session,)
    assert grant(site=registry(rule_scopes=())).rule_scopes == ()
    assert grant(own).intersection(grant()).rule_scopes == (session, role)
    assert grant().intersection(grant(own)).rule_scopes == (session, role)


@for_each(
    ("everyone", "model", "role", "expected"),
    [(None, None, None, 10), (None, None, 24, 24), (12, None, 24, 12), (12, 8, 24, 8), (12, 8, 5, 5)],
)
def test_rounds_are_the_strictest(everyone: int | None, model: int | None, role: int | None, expected: int) -> None:
    own = registry(
        RoleSpec(name="coder", max_rounds=role), max_rounds=everyone, models=(ModelSpec(name="m", max_rounds=model),)
    )
    assert grant(own).max_rounds == expected


def test_the_strictest_budget_counts_for_each_limit() -> None:
    site = registry(RoleSpec(name="coder", budget=BudgetKeys(minutes=5)), budget=Budget(cost=2, minutes=30), users=None)
    own = registry(RoleSpec(name="coder", budget=BudgetKeys(cost=3, tokens=900)), budget=Budget(tokens=1_000))
    held = grant(own, site=site)
    assert held.budget == Budget(cost=2, tokens=900, minutes=5)
    assert grant(registry(RoleSpec(name="coder"))).budget == NO_BUDGET
    stored = replace(held, budget=Budget(cost=1), run_budget=Budget(tokens=10))
    both = stored.intersection(held)
    assert (both.budget, both.run_budget) == (Budget(cost=1, tokens=900, minutes=5), Budget(tokens=10))


def test_an_unknown_role_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        grant(role="codre")
    assert "coder" in caught.value.advice


def test_explaining_names_the_deciding_layer() -> None:
    held = grant(
        registry(RoleSpec(name="coder", tools=("file_read", "shell_exec"))), approvals=("shell_exec:git status",)
    )
    assert explain(held, "file_edit")[0] == "file_edit: deny, decided by tools of role coder"
    assert explain(held, "shell_exec", PUSH)[0] == "shell_exec: ask, decided by tool default"
    assert "answered by --approve shell_exec:git status" in explain(held, "shell_exec", STATUS)[0]
    assert any("access level operator" in line for line in explain(held, "shell_exec", STATUS)[1:])
    assert explain(held, "nonsense")[0].startswith("nonsense: deny")


def test_prompt_layers_stand_in_their_order_and_the_role_has_the_last_word() -> None:
    layers = layers_for(
        base="BASE", persona="PERSONA", environment="ENV", role="coder", system_append="LAST\n", tools_on_offer=True
    )
    assert [layer.name for layer in layers] == [
        "base", "persona", "project notes", "environment", "memory", "tool instructions", "role context",
    ]  # fmt: skip
    text = compose(layers)
    assert text.startswith("BASE\n\nPERSONA\n\nENV\n\n") and text.endswith("--- Role Context ---\nLAST")
    without = layers_for(base="BASE", role="coder", tools_on_offer=False)
    assert compose(without) == "BASE"
    assert len(without) == len(layers)

"""`code_interpreter` in a registry means python_exec: in what permits and in what restricts, and the user is told."""

import json
from typing import Any

import pytest

from chatops.config.registry_read import read_registry
from chatops.domain.errors import ConfigError
from chatops.domain.model import ModelTarget
from chatops.domain.tools import BUILT_IN_TOOLS, AccessLevel, CallFacts, ToolSpec, Verdict
from chatops.policy.grant import Grant
from chatops.policy.registry import Registry
from chatops.policy.resolve import User, resolve_grant
from tests.support.cases import for_each

PYTHON = ToolSpec(name="python_exec", capabilities=BUILT_IN_TOOLS["python_exec"], description="", schema="{}")
FACTS = CallFacts(arguments='{"code":"1"}', command="1", cwd="/w", interpreter=("/usr/bin/python3", "-c"))
OPERATOR = {"*": {"access_level": "operator"}}


def read(**keys: Any) -> Registry:
    return read_registry(json.dumps({"roles": {"r": {}}, "default_role": "r", **keys}).encode(), source="f")


def granted(registry: Registry, *approvals: str) -> Grant:
    return resolve_grant(
        registries=(None, registry),
        role="r",
        user=User(uid=1, login="ana"),
        access_cap=None,
        specs=(PYTHON,),
        models=(ModelTarget(name="m"),),
        prompt="",
        approvals=approvals,
    )


def test_a_role_that_lists_the_alias_gets_the_tool_and_its_user_is_told() -> None:
    registry = read(users=OPERATOR, roles={"r": {"tools": ["code_interpreter"]}})
    assert [spec.name for spec in granted(registry).tools] == ["python_exec"]
    assert granted(registry).judge("python_exec", FACTS).verdict is Verdict.ASK
    [warning] = registry.warnings
    assert "key roles.r.tools[0]: code_interpreter is another name of python_exec" in warning.text


@for_each(
    "keys",
    [
        {"users": {"*": {"access_level": "operator", "confirm_deny": ["code_interpreter"]}}},
        {"users": OPERATOR, "tools": {"code_interpreter": {"verdict": "deny"}}},
        {"users": OPERATOR, "tools": {"code_interpreter": {"min_access": "admin"}}},
        {"users": OPERATOR, "roles": {"r": {"rules": [{"tool": "code_interpreter", "verdict": "deny"}]}}},
    ],
    ids=["confirm_deny", "verdict", "level", "rule"],
)
def test_what_restricts_the_alias_restricts_the_tool(keys: dict[str, Any]) -> None:
    registry = read(**keys)
    grant = granted(registry)
    assert grant.level is AccessLevel.OPERATOR
    assert grant.judge("python_exec", FACTS).verdict is Verdict.DENY
    assert len(registry.warnings) == 1


def test_settings_under_both_names_are_an_error_and_not_a_choice() -> None:
    with pytest.raises(ConfigError, match=r"tools\.code_interpreter: this is another name of python_exec"):
        read(tools={"python_exec": {"verdict": "ask"}, "code_interpreter": {"verdict": "deny"}})


@pytest.mark.parametrize("name", ["python_exec", "code_interpreter"])
def test_no_rule_lets_the_model_run_any_code(name: str) -> None:
    registry = read(users={"*": {"access_level": "operator", "confirm_allow": [name]}})
    assert granted(registry).judge("python_exec", FACTS).verdict is Verdict.ASK
    with pytest.raises(ConfigError, match="python_exec would let the model run anything"):
        granted(registry, name)
    with pytest.raises(ConfigError, match="code has no pattern"):
        granted(registry, f"{name}:print*")
    with pytest.raises(ConfigError):
        read(roles={"r": {"rules": [{"tool": name, "match": ["print(*"], "verdict": "allow"}]}})
    bare = read(users=OPERATOR, roles={"r": {"rules": [{"tool": name, "verdict": "allow"}]}})
    assert granted(bare).judge("python_exec", FACTS).verdict is Verdict.ASK


@pytest.mark.parametrize("name", ["python_exec", "code_interpreter"])
def test_exactly_this_code_can_be_approved_for_a_run_and_nothing_near_it(name: str) -> None:
    grant = granted(read(users=OPERATOR), f'{name}:{{"code": "1"}}')
    assert grant.judge("python_exec", FACTS).verdict is Verdict.ALLOW
    for other in ('{"code":"1 "}', '{"code":"11"}', '{"code":"1","x":1}'):
        assert grant.judge("python_exec", CallFacts(arguments=other, command="1")).verdict is Verdict.ASK

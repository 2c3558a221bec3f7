"""Names in a registry that mean nothing here are said, one sentence each."""

import pytest

from chatops.domain.tools import BUILT_IN_TOOLS, NO_CAPABILITIES, ToolSpec
from chatops.policy.registry import ModelSpec, ModelType, Registry, RoleSpec, UserSpec
from chatops.policy.registry_checks import crowded_roles, registry_warnings

SPECS = [
    ToolSpec(name=name, capabilities=BUILT_IN_TOOLS.get(name, NO_CAPABILITIES), description="", schema="{}")
    for name in ("file_read", "shell_exec")
]
CLI = ModelSpec(name="claude_cli", type=ModelType.CLI)
DEMO = ModelSpec(name="demo", type=ModelType.DEMO)


def said(own: Registry, *, site: Registry | None = None) -> tuple[str, ...]:
    found = registry_warnings((site, own), specs=SPECS, personas=["default", "concise"])
    return tuple(warning.text for warning in found)


def registry(
    *roles: RoleSpec, users: tuple[UserSpec, ...] = (), models: tuple[ModelSpec, ...] = (CLI, DEMO)
) -> Registry:
    return Registry(source="f", digest="d", roles=roles, users=users, models=models)


def test_misspelt_tools_of_users_are_said() -> None:
    user = UserSpec(name="ana", confirm_allow=("shel_exec:git status",), confirm_deny=("knowledge_search",))
    allow, deny = said(registry(RoleSpec(name="a"), users=(user,)))
    assert "'shel_exec'" in allow and "Did you mean shell_exec?" in allow and "confirm_allow of ana" in allow
    assert "'knowledge_search'" in deny and "denies nothing" in deny


def test_a_persona_that_is_not_there_is_said() -> None:
    (one,) = said(registry(RoleSpec(name="a", persona="concize"), RoleSpec(name="b", persona="concise")))
    assert "Role a" in one and "Did you mean concise?" in one


@pytest.mark.parametrize(
    ("models", "end"),
    [(("claude_cli", None), "no other model answers in this role."), (("claude_cli", "demo"), "demo answers instead")],
)
def test_a_model_without_a_command_is_said_with_who_answers_instead(models: tuple[str, str | None], end: str) -> None:
    (one,) = said(registry(RoleSpec(name="coder", primary=models[0], backup_1=models[1])))
    assert "claude_cli has no command" in one and end in one


def test_the_sites_definition_of_a_model_counts() -> None:
    site = registry(models=(ModelSpec(name="claude_cli", api_url="http://127.0.0.1:9/v1", model_name="m"),))
    assert said(registry(RoleSpec(name="coder", primary="claude_cli")), site=site) == ()


def test_only_tools_that_are_there_count_as_too_many() -> None:
    many = tuple(f"t{number}" for number in range(9))
    specs = [ToolSpec(name=name, description="", schema="{}") for name in many]
    registries = (None, registry(RoleSpec(name="coder", tools=many)))
    assert not [*crowded_roles(registries, specs=specs[:8])]
    assert "lists 9 tools" in next(crowded_roles(registries, specs=specs))
    assert not registry_warnings(registries, specs=specs)


def test_what_is_in_order_is_not_mentioned() -> None:
    user = UserSpec(name="*", confirm_allow=("shell_exec:git status *",), confirm_deny=("file_read",))
    role = RoleSpec(name="a", persona="default", tools=("file_read",), primary="demo")
    assert said(registry(role, users=(user,))) == ()

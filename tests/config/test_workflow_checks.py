"""Problems found before a run, with their position in the file."""

import json
from typing import Any

import pytest

from chatops.config.workflow_read import Checked, check, read_workflow
from chatops.domain.errors import ConfigError
from chatops.domain.model import ModelTarget
from chatops.domain.tools import BUILT_IN, BUILT_IN_TOOLS, NO_CAPABILITIES, AccessLevel, ToolSpec, Verdict
from chatops.policy.grant import Grant
from chatops.policy.registry import Registry, RoleSpec, UserSpec
from chatops.policy.resolve import User, resolve_grant
from chatops.policy.workflow import Definition, StepPlace, StepSpec, WorkflowSpec
from chatops.policy.workflow_checks import Known
from tests.support.cases import for_each


def tool(name: str, *arguments: str, steps: tuple[str, ...] = (), source: str = BUILT_IN, **more: Any) -> ToolSpec:
    schema = {"type": "object", "properties": {argument: {"type": "string"} for argument in arguments}}
    return ToolSpec(
        name=name,
        capabilities=BUILT_IN_TOOLS.get(name, NO_CAPABILITIES),
        description="",
        schema=json.dumps({**schema, **more}),
        steps=steps,
        source=source,
    )


TOOLS = (
    tool("look"),
    tool("set_value", "name", "value"),
    tool("check", "component", source="python"),
    tool("check_all", source="python"),
    tool("free", "a", anyOf=[{}]),
    tool("ship", steps=("make.release",)),
    tool("shell_exec", "command"),
    tool("secret"),
    *(tool(f"extra_{number}") for number in range(8)),
)


def granted(at: StepPlace) -> Grant:
    """Rights of a user who is denied `secret`, and `shell_exec` in a step called quiet."""
    denied = ["secret", "shell_exec"] if at.step == "quiet" else ["secret"]
    registry = Registry(
        source="t",
        digest="d",
        roles=(RoleSpec(name="coder"),),
        users=(UserSpec(name="*", access_level=AccessLevel.ADMIN, confirm_deny=tuple(denied)),),
    )
    grant = resolve_grant(
        registries=(None, registry),
        role="coder",
        user=User(uid=1, login="ana"),
        access_cap=None,
        specs=TOOLS,
        models=(ModelTarget(name="m"),),
        prompt="",
        at=at,
    )
    assert grant.permits("secret").verdict is Verdict.DENY
    return grant


def checked(*steps: dict[str, Any], rights: bool = True) -> tuple[Checked, list[str]]:
    """The check of a file with these steps, and its lines."""
    full = [{"name": f"s{index}", "system_prompt": "p", **step} for index, step in enumerate(steps)]
    text = json.dumps({"steps": full}, indent=1)
    definition = read_workflow(text.encode(), source="/x/make.json")
    grants = [granted(StepPlace(workflow="make", step=step.name)) for step in definition.spec.steps] if rights else []
    known = Known(tools=TOOLS, roles=("coder",), models=("demo",), absent=("web_search",), grants=grants)
    return check(definition, known=known), text.splitlines()


ALL = ["look", "set_value", "check", "check_all", "free"]

PROBLEMS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"tools": ["look", "set_valu"]}, "tools[1]", '"set_valu"', "no tool 'set_valu'; did you mean 'set_value'?"),
    ({"tools": ["ship"]}, "tools[0]", '"ship"', "bound to make.release"),
    ({"role": "codr"}, "role", '"role"', "no role 'codr'; did you mean 'coder'?"),
    ({"model": "dmo"}, "model", '"model"', "no model 'dmo'; did you mean 'demo'?"),
    ({"system_prompt": " "}, "system_prompt", '"system_prompt"', "not told what to do"),
    (
        {"tools": ["look"], "validation_tools": ["check"]},
        "validation_tools[0].tool",
        '"check"',
        "may not call check: it is not among its tools",
    ),
    (
        {"tools": [], "validation_tools": ["web_search"]},
        "validation_tools[0].tool",
        '"web_search"',
        "not offered here",
    ),
    (
        {"tools": ["secret"], "validation_tools": [{"tool": "secret"}]},
        "validation_tools[0].tool",
        '"tool"',
        "may not call secret: denied by confirm_deny",
    ),
    ({"validation_tools": ["chek"]}, "validation_tools[0].tool", '"chek"', "did you mean 'check'?"),
    (
        {"validation_tools": ["check", "check"]},
        "validation_tools[1].tool",
        '"check"',
        "validation of this step already",
    ),
    (
        {"validation_tools": [{"tool": "check", "subject": {"componnt": "/a"}}]},
        "validation_tools[0].subject.componnt",
        '"componnt"',
        "check has no argument 'componnt'; did you mean 'component'?",
    ),
    (
        {"validation_tools": [{"tool": "check", "subject": {"component": "a/b"}}]},
        "validation_tools[0].subject.component",
        '"component"',
        "no JSON pointer",
    ),
    (
        {"validation_tools": [{"tool": "check", "subject": {"component": "/a~2"}}]},
        "validation_tools[0].subject.component",
        '"component"',
        "no JSON pointer",
    ),
    (
        {"validation_tools": [{"tool": "check", "depends_on": ["look", "check"]}]},
        "validation_tools[0].depends_on[1]",
        '"check"',
        "cannot depend on itself",
    ),
    (
        {"validation_tools": [{"tool": "check", "depends_on": ["lok"]}]},
        "validation_tools[0].depends_on[0]",
        '"lok"',
        "did you mean 'look'?",
    ),
    (
        {
            "validation_tools": [
                {"tool": "check", "depends_on": ["look", "check_all"]},
                {"tool": "check_all", "depends_on": ["free"]},
                {"tool": "free", "depends_on": ["check"]},
            ]
        },
        "validation_tools[0].depends_on",
        '"depends_on"',
        "circle: check → check_all → free → check",
    ),
    *(
        (
            {"tools": ["shell_exec"], "validation_tools": [{"tool": "shell_exec", **more}], **free},
            "validation_tools[0].tool",
            '"tool"',
            "shell_exec passes with whatever the model runs",
        )
        for more, free in (
            ({}, {}),
            ({"passes_when": {"exit_code": 0}}, {}),
            ({"passes_when": "success"}, {}),
            ({"subject": {"command": ""}}, {"output_schema": {"const": {}}}),
            ({"subject": {"command": "/checked"}}, {}),
            ({"subject": {"command": "/checked"}}, {"output_schema": {"properties": {"other": {"const": "make"}}}}),
        )
    ),
    (
        {"validation_tools": [{"tool": "look", "passes_when": {"exit_code": 0}}]},
        "validation_tools[0].passes_when",
        '"passes_when"',
        "look runs no program, so it has no exit code",
    ),
    ({"order": ["look", "check", "look"]}, "order[2]", '"look"', "a second time"),
    ({"tools": ["look"], "order": ["look", "check"]}, "order[1]", '"check"', "not among its tools"),
    ({"order": ["lok"]}, "order[0]", '"lok"', "did you mean 'look'?"),
    ({"once": ["lok"]}, "once[0]", '"lok"', "did you mean 'look'?"),
    ({"tools": ["look"], "once": ["check"]}, "once[0]", '"check"', "not among its tools"),
    (
        {
            "order": ["check", "set_value"],
            "once": ["check"],
            "validation_tools": [{"tool": "check", "depends_on": ["set_value"]}],
        },
        "order[0]",
        '"check"',
        "may succeed only once",
    ),
    ({"gates": [{"name": "g", "pattern": "("}]}, "gates[0].pattern", '"pattern"', "not a regular expression"),
    ({"gates": [{"name": "g", "pattern": "a", "pointer": "a"}]}, "gates[0].pointer", '"pointer"', "no JSON pointer"),
    ({"gates": [{"name": "g", "command": " "}]}, "gates[0].command", '"command"', "no command"),
    (
        {"name": "quiet", "gates": [{"name": "g", "command": "true"}]},
        "gates[0].command",
        '"command"',
        "a command cannot run here: denied by confirm_deny",
    ),
    (
        {"gates": [{"name": "g", "pattern": "a"}, {"name": "g", "pattern": "b"}]},
        "gates[1].name",
        '"name"',
        "called 'g' too",
    ),
    ({"output_schema": {"type": "objct"}}, "output_schema.type", '"type"', "does not compile"),
    (
        {"output_schema": {"properties": {"a": {"$ref": "https://example.org/s.json"}}}},
        "output_schema.properties.a.$ref",
        '"$ref"',
        "only what is inside the schema is followed",
    ),
    (
        {"output_schema": {"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"c": {}}}},
        "output_schema.properties.a.$ref",
        '"$ref"',
        "which is not in the schema",
    ),
    ({"output_schema": {"$ref": "#"}}, "output_schema", '"output_schema"', "refers to itself without end"),
    (
        {"output_schema": {"$ref": "#/required", "required": ["a"]}},
        "output_schema",
        '"output_schema"',
        "cannot be used",
    ),
    (
        {"output_schema": {"properties": {"a": {"$id": "https://example.org/s.json"}}}},
        "output_schema.properties.a.$id",
        '"$id"',
        "$id",
    ),
    (
        {"output_schema": {"properties": {"a": {"pattern": "("}}}},
        "output_schema.properties.a.pattern",
        '"pattern"',
        "'('",
    ),
]


@for_each(("step", "key", "written", "word"), PROBLEMS, ids=[f"{index} {one[1]}" for index, one in enumerate(PROBLEMS)])
def test_an_error_is_told_at_the_line_where_it_was_written(
    step: dict[str, Any], key: str, written: str, word: str
) -> None:
    found, lines = checked({"tools": ALL}, step)
    (error,) = found.errors
    assert f"key steps[1].{key}: " in error and word in error, error
    line, column = (int(part.split()[-1]) for part in error.split(", key")[0].split(", ")[-2:])
    assert lines[line - 1][column - 1 :].startswith(written)
    with pytest.raises(ConfigError) as caught:
        found.or_raise()
    assert str(caught.value) == error and caught.value.advice


def test_a_workflow_without_mistakes_is_not_spoken_of() -> None:
    step = {
        "tools": ALL,
        "validation_tools": [
            "check_all",
            {"tool": "check", "subject": {"component": "/parts"}, "depends_on": ["free"]},
        ],
        "gates": [{"name": "g", "pattern": "^a", "pointer": "/a~0/~1"}, {"name": "h", "command": "true"}],
        "output_schema": {"$defs": {"c": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/c"}}},
        "order": ["set_value", "check"],
        "once": ["look"],
    }
    runs = {
        "tools": ["look", "shell_exec"],
        "validation_tools": [
            {"tool": "look", "passes_when": "success"},
            {"tool": "shell_exec", "subject": {"command": "/checked"}, "passes_when": {"exit_code": 0}},
        ],
        "output_schema": {"properties": {"checked": {"const": "make check"}}},
    }
    found, _ = checked(step, runs, {"name": "release", "tools": ["ship"]})
    assert (found.errors, found.warnings) == ((), ())
    assert found.or_raise() is found.definition


WARNINGS: list[tuple[dict[str, Any], str]] = [
    ({"tools": ["web_search", "look"]}, "says what it lacks; the step continues without it"),
    ({"tools": [f"extra_{number}" for number in range(8)] + ["look"]}, "tools: the step has 9 tools"),
    ({}, "the step has 14 tools"),
    ({"tools": ["look", "secret"]}, "tools[1]: the step may not call secret: denied by confirm_deny"),
    ({"tools": ALL, "validation_tools": ["check"], "once": ["check"]}, "once[0]: check is a validation"),
    (
        {
            "tools": ALL,
            "order": ["check", "set_value"],
            "validation_tools": [{"tool": "check", "depends_on": ["set_value"]}],
        },
        "order[0]: check has to succeed before set_value, which makes its pass stale",
    ),
    (
        {"tools": ["look"], "validation_tools": ["look"]},
        "validation_tools[0].tool: look is not a validator, so it passes only if its result happens to be "
        '{"valid": true, …}; if its success is enough, add passes_when: success',
    ),
    (
        {
            "tools": ["shell_exec"],
            "validation_tools": [{"tool": "shell_exec", "subject": {"command": "/checked"}}],
            "output_schema": {"properties": {"checked": {"type": "array", "items": {"enum": ["make check"]}}}},
        },
        "if its success is enough, add passes_when: {exit_code: 0}",
    ),
    (
        {"tools": ["check", "shell_exec"], "validation_tools": [{"tool": "check", "depends_on": []}]},
        "validation_tools[0].depends_on: shell_exec can change anything, and check is not validated again after it",
    ),
]


@for_each(("step", "word"), WARNINGS, ids=[one[1] for one in WARNINGS])
def test_a_doubt_is_a_warning_and_hinders_nothing(step: dict[str, Any], word: str) -> None:
    found, _ = checked({"tools": ["look"]}, step)
    assert found.errors == ()
    (warning,) = found.warnings
    assert word in warning
    assert found.or_raise() is found.definition


def test_two_steps_of_one_name_are_an_error_at_the_second() -> None:
    found, _ = checked({"name": "a"}, {"name": "b"}, {"name": "a"}, rights=False)
    (error,) = found.errors
    assert "key steps[2].name" in error


def test_without_grants_rights_are_not_looked_at_but_names_are() -> None:
    found, _ = checked({"tools": ["secret", "nothing"]}, rights=False)
    (error,) = found.errors
    assert "'nothing'" in error


def test_all_errors_are_told_and_one_made_in_python_names_workflow_and_step() -> None:
    spec = WorkflowSpec(
        name="make",
        steps=(
            StepSpec(name="", system_prompt="p", max_iterations=0, max_attempts=0, temperature=9, max_output_tokens=0),
            *(StepSpec(name=f"s{number}", system_prompt="") for number in range(30)),
        ),
    )
    found = check(Definition(spec=spec), known=Known(tools=(), roles=(), models=()))
    assert len(found.errors) == 35
    assert "Workflow make, key steps[0].max_iterations: 0 is not between 1 and 99." in found.errors
    with pytest.raises(ConfigError, match="and 15 more"):
        found.or_raise()


@for_each("name", ["", "a b", "a.b", "x" * 81, "ä", "a\n", "-a"])
def test_a_name_that_could_not_be_typed_or_bound_to_is_an_error(name: str) -> None:
    found = check(
        Definition(spec=WorkflowSpec(name=name, steps=(StepSpec(name="s", system_prompt="p", tools=()),))),
        known=Known(tools=(), roles=(), models=()),
    )
    assert len(found.errors) == 1 and "not a valid workflow name" in found.errors[0]


def test_a_workflow_without_steps_is_an_error() -> None:
    found = check(Definition(spec=WorkflowSpec(name="a", steps=())), known=Known(tools=(), roles=(), models=()))
    assert len(found.errors) == 1 and "no step" in found.errors[0]

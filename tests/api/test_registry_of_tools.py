"""Tools with schemas of their own, registered for steps: what is offered where, and what is refused at once."""

import json
from typing import Any

import pytest

from chatops import Step, ToolRegistry, Workflow
from chatops.domain.errors import ConfigError
from chatops.domain.tools import AccessLevel, Verdict
from tests.support.cases import for_each

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def echo(text: str) -> str:
    return text


def registry(**steps: Any) -> ToolRegistry:
    """Tools called as the keywords are, each for its steps."""
    made = ToolRegistry()
    for name, belongs in steps.items():
        made.register(name, f"The tool {name}.", TEXT, echo, belongs)
    return made


def tools_of(workflow: Workflow) -> list[list[str] | None]:
    return [None if step.tools is None else list(step.tools) for step in workflow.spec.steps]


def test_a_tool_without_steps_belongs_to_every_step_and_others_to_theirs() -> None:
    made = registry(search=[1], details=["find", "make.build"], check=[2], note=None, other=["mend.fix"])
    workflow = Workflow("make", [Step("find", "p", tools=["file_read"]), Step("build", "p")], tools=made)
    assert tools_of(workflow) == [["file_read", "search", "details", "note"], ["details", "check", "note"]]


def test_a_step_that_may_use_all_that_its_role_permits_gets_no_list() -> None:
    workflow = Workflow("make", [Step("find", "p", tools=None)], tools=registry(search=[1]))
    assert tools_of(workflow) == [None]


def test_schemas_are_those_of_the_step_in_order_and_without_one_those_that_belong_everywhere() -> None:
    made = registry(b=["find"], a=None, c=["find", 2])
    assert [one["function"]["name"] for one in made.get_schemas("find")] == ["b", "a", "c"]
    assert [one["function"]["name"] for one in made.get_schemas(2)] == ["a", "c"]
    assert made.get_schemas() == [
        {"type": "function", "function": {"name": "a", "description": "The tool a.", "parameters": TEXT}}
    ]


@for_each(
    ("step", "word"),
    [
        (3, "has 2"),
        (0, "has 2"),
        ("fnd", "Did you mean 'find'?"),
        ("make.zzz", "Its steps: find, build"),
    ],
)
def test_a_step_that_is_not_there_is_an_error(step: Any, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Workflow("make", [Step("find", "p"), Step("build", "p")], tools=registry(search=[step]))
    assert word in str(caught.value) + caught.value.advice


@for_each(
    ("name", "parameters", "steps", "word"),
    [
        ("search", TEXT, None, "already"),
        ("a b", TEXT, None, "not a valid tool name"),
        ("a", {"type": "objct"}, None, "does not compile"),
        ("a", {"properties": {"x": {"$ref": "https://example.org/s"}}}, None, "only what is inside"),
        ("a", {"properties": {"x": object()}}, None, "not JSON"),
        ("a", {"properties": {"x": {"default": float("nan")}}}, None, "not JSON"),
        ("a", TEXT, [], "list of steps"),
        ("a", TEXT, "find", "list of steps"),
    ],
)
def test_what_could_not_be_called_is_not_registered(name: str, parameters: Any, steps: Any, word: str) -> None:
    made = registry(search=None)
    with pytest.raises(ConfigError, match=word):
        made.register(name, "", parameters, echo, steps)
    assert [one["function"]["name"] for one in made.get_schemas()] == ["search"]


def test_a_tool_asks_and_needs_an_operator_unless_its_program_says_otherwise() -> None:
    made = registry(a=None)
    made.register("b", "", TEXT, echo, verdict="allow", min_access="viewer", read_only=True, timeout_s=5)
    a, b = (tool.spec for tool, _ in made.entries())
    assert (a.verdict, a.min_access, a.read_only) == (Verdict.ASK, AccessLevel.OPERATOR, False)
    assert (b.verdict, b.min_access, b.read_only, b.timeout_s) == (Verdict.ALLOW, AccessLevel.VIEWER, True, 5)
    assert json.loads(a.schema) == TEXT and a.source == "python"


def fails(text: str) -> str:
    raise LookupError(text)


async def later(text: str) -> dict[str, str]:
    return {"said": text}


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        (echo, {"text": "a"}, {"result": "a"}),
        (later, {"text": "a"}, {"said": "a"}),
        (fails, {"text": "a"}, {"error": "Error executing t: a"}),
        (echo, {}, {"error": "Invalid arguments for t: text is required but missing"}),
        (echo, {"text": object()}, {"error": "Error executing t: Object of type object is not JSON serializable"}),
        (lambda text: None, {"text": "a"}, {"result": None}),
        (lambda text: {"error": None}, {"text": "a"}, {"error": None}),
    ],
)
async def test_execute_never_raises(function: Any, arguments: dict[str, Any], result: dict[str, Any]) -> None:
    made = ToolRegistry()
    made.register("t", "", TEXT, function)
    assert made.execute("t", arguments) == result
    assert made.execute("u", {}) == {"error": "Unknown tool: u"}

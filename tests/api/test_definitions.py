"""Steps in Python: functions as tools, classes as schemas, and the same checks as for files."""

import subprocess
import sys
from typing import Any

import pytest
from pydantic import BaseModel

from chatops import Step, Workflow, tool
from chatops.config.workflow_read import read_workflow
from chatops.domain.errors import ConfigError
from chatops.domain.tools import AccessLevel, Verdict
from chatops.tools.function import FunctionTool
from tests.support.cases import for_each
from tests.support.waiting import PATIENCE


def search(query: str) -> str:
    """Search."""
    return query


@tool(name="check", verdict="allow", read_only=True)
def _check(component: str) -> dict[str, bool]:
    """Check."""
    return {"valid": bool(component)}


class Plan(BaseModel):
    parts: list[str]


def test_a_step_in_python_means_what_the_same_step_means_in_a_file() -> None:
    written = Workflow(
        "make",
        [
            Step(
                "build",
                "Build it.",
                tools=[search, _check, "file_read"],
                validation_tools=[
                    "file_read",
                    {"tool": _check, "subject": {"component": "/parts"}, "depends_on": [search]},
                ],
                gates=[{"name": "g", "pattern": "a", "negated": True}, {"name": "h", "command": "true"}],
                output_schema={"type": "object"},
                role="coder",
                model="demo",
                max_iterations="quick",
                max_step_retries=2,
                temperature=0,
                max_tokens=9,
                on_fail="go_on",
                may_skip=True,
                review=True,
                order=[search, "check"],
                once=[search],
            )
        ],
        description="Makes it.",
    )
    file = b"""
description: Makes it.
steps:
  - {name: build, system_prompt: Build it., tools: [search, check, file_read], role: coder, model: demo,
     validation_tools: [file_read, {tool: check, subject: {component: /parts}, depends_on: [search]}],
     gates: [{name: g, pattern: a, negated: true}, {name: h, command: "true"}], output_schema: {type: object},
     max_iterations: quick, max_step_retries: 2, temperature: 0, max_tokens: 9, on_fail: go_on, may_skip: true,
     review: true, order: [search, check], once: [search]}
"""
    read = read_workflow(file, source="make.yaml").spec
    assert written.spec.steps == read.steps
    assert (written.spec.name, written.spec.description, written.spec.source) == ("make", "Makes it.", "python")


def test_a_class_is_the_schema_of_its_result_and_no_tools_are_the_default() -> None:
    (step,) = Workflow("make", [Step("plan", "Plan it.", output_schema=Plan)]).spec.steps
    assert '"parts"' in step.output_schema and step.tools == ()


def test_a_decorated_function_is_still_a_function() -> None:
    assert _check("a") == {"valid": True} and search("b") == "b"
    bare: FunctionTool = tool(search)
    assert bare("c") == "c"
    assert (bare.spec.verdict, bare.spec.min_access) == (Verdict.ASK, AccessLevel.OPERATOR)
    assert (_check.spec.verdict, _check.spec.read_only, _check.spec.name) == (Verdict.ALLOW, True, "check")


def untyped(query) -> str:  # type: ignore[no-untyped-def]
    return str(query)


def many(*queries: str) -> str:
    return str(queries)


def unreadable(query: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(query)


def other() -> Any:
    def search() -> str:
        return ""

    return search


STEPS: list[tuple[list[Step], str]] = [
    ([Step("a", "p", tools=[untyped])], "parameter query has no type"),
    ([Step("a", "p", tools=[many])], r"\*queries"),
    ([Step("a", "p", tools=[unreadable])], "types cannot be read"),
    ([Step("a", "p", tools=[lambda: ""])], "not a valid tool name"),
    ([Step("a", "p", tools=[3])], "3 is not a tool"),  # type: ignore[list-item]
    ([Step("a", "p", tools=[search, other()])], "two tools are called search"),
    ([Step("a", "p", max_iterations=0)], r"key steps\[0\].max_iterations"),
    ([Step("a", "p", on_fail="retry")], r"key steps\[0\].on_fail"),  # type: ignore[arg-type]
    ([Step("a.b", "p")], "not a valid step name"),
    ([Step("a", "p", gates=[{"name": "g", "patern": "a"}])], r"gates\[0\].patern: .*'pattern' may be meant"),
    ([Step("a", "p", validation_tools=[{"tol": "x"}])], r"validation_tools\[0\]"),
    ([], "at least one"),
]


@for_each(("steps", "word"), STEPS, ids=[word for _, word in STEPS])
def test_what_can_be_seen_to_be_wrong_is_an_error_when_it_is_written(steps: list[Step], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Workflow("make", steps)


@pytest.mark.more
def test_importing_the_package_loads_nothing_of_it_and_its_names_no_screen_and_no_client() -> None:
    program = (
        "import sys, chatops\n"
        "loaded = {name for name in sys.modules if name.startswith('chatops')}\n"
        "assert loaded == {'chatops', 'chatops.domain', 'chatops.safe_path'}, loaded\n"
        "assert 'pydantic' not in sys.modules\n"
        "from chatops import Step, ToolRegistry, Workflow, WorkflowResult, tool\n"
        "loaded = {'textual', 'rich', 'openai', 'httpx2', 'jsonschema'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
        "assert callable(tool) and chatops.tool is tool\n"
        "try: chatops.nothing\n"
        "except AttributeError as error: assert 'nothing' in str(error)\n"
        "else: raise AssertionError\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr

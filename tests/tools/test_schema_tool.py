"""A function with a schema that somebody else wrote, and what results of any kind become."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from chatops.domain.errors import ToolFailedError
from chatops.domain.tools import Outcome, ToolSpec
from chatops.toolkit.base import Tool
from chatops.tools.function import FunctionTool, as_result, schema_text, tool_name_fault
from tests.tools.toolkit import context_for, done, inspected

SCHEMA = {
    "properties": {"city": {"type": "string", "enum": ["Bonn", "Köln"]}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
    "x-kept": {"$comment": "whole"},
}


def made(function: Any) -> FunctionTool:
    spec = ToolSpec(name="weather", description="Tells the weather.", schema=schema_text(SCHEMA))
    return FunctionTool(spec=spec, function=function)


def test_the_schema_is_kept_whole_and_asks_for_an_object() -> None:
    tool: Tool = made(print)
    assert json.loads(tool.spec.schema) == {"type": "object", **SCHEMA}


@pytest.mark.parametrize(
    ("arguments", "path", "word"),
    [
        ({}, "city", "missing"),
        ({"city": "Bon"}, "city", "did you mean 'Bonn'?"),
        ({"city": "Bonn", "days": "1"}, "days", "integer"),
        ({"city": "Bonn", "days": 0}, "days", "minimum"),
        ({"city": "Bonn", "dayz": 1}, "dayz", "did you mean 'days'?"),
        ("[1]", "", "one JSON object"),
        ("{", "", "cut off"),
        ("{x", "", "cut off"),
        ("x", "", "not valid JSON"),
    ],
)
async def test_arguments_that_do_not_fit_never_reach_the_function(
    tmp_path: Path, arguments: Any, path: str, word: str
) -> None:
    def never(**given: object) -> str:
        raise AssertionError(given)

    tool = made(never)
    facts = await inspected(tool, context_for(tmp_path), arguments)
    (problem,) = facts.problems
    assert problem.path == path and word in problem.message
    with pytest.raises(ToolFailedError):
        await tool.run(facts, context_for(tmp_path))


async def test_a_sync_function_runs_in_a_thread_and_an_async_one_does_not(tmp_path: Path) -> None:
    threads = []

    def sync(city: str, days: int = 1) -> str:
        threads.append(threading.current_thread())
        return f"{city} {days}"

    async def awaited(city: str) -> str:
        threads.append(threading.current_thread())
        return city

    assert (await done(made(sync), context_for(tmp_path), {"city": "Bonn", "days": 2})).content == "Bonn 2"
    assert (await done(made(awaited), context_for(tmp_path), {"city": "Köln"})).content == "Köln"
    assert threads[0] is not threading.main_thread() and threads[1] is threading.main_thread()


async def test_an_exception_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    def fail(city: str) -> str:
        raise KeyError(city)

    with pytest.raises(ToolFailedError, match="Tool execution failed: KeyError: 'Bonn'"):
        await done(made(fail), context_for(tmp_path), {"city": "Bonn"})


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def circular() -> dict[str, object]:
    value: dict[str, object] = {}
    value["itself"] = value
    return value


@pytest.mark.parametrize(
    ("value", "outcome", "content"),
    [
        ({"a": [1, None]}, Outcome.SUCCESS, '{"a": [1, null]}'),
        ("text", Outcome.SUCCESS, "text"),
        (None, Outcome.SUCCESS, ""),
        (7, Outcome.SUCCESS, "7"),
        (["error"], Outcome.SUCCESS, '["error"]'),
        ({"error": "no such city"}, Outcome.FAILED, '{"error": "no such city"}'),
        ({"error": {"code": 3}}, Outcome.FAILED, '{"error": {"code": 3}}'),
        ({"error": None, "a": 1}, Outcome.SUCCESS, '{"error": null, "a": 1}'),
        ({"error": ""}, Outcome.SUCCESS, '{"error": ""}'),
        ({"valid": False, "errors": []}, Outcome.SUCCESS, '{"valid": false, "errors": []}'),
        ({(1, 2): "x"}, Outcome.SUCCESS, "{(1, 2): 'x'}"),
        ({"at": {1}}, Outcome.SUCCESS, '{"at": "{1}"}'),
        (circular(), Outcome.SUCCESS, "{'itself': {...}}"),
        ([Broken()], Outcome.SUCCESS, "[list]"),
    ],
)
def test_a_result_of_any_kind_becomes_text_and_an_error_a_failure(
    value: object, outcome: Outcome, content: str
) -> None:
    result = as_result(value, limit=1_000)
    assert (result.outcome, result.content) == (outcome, content)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65, "a\n"])
def test_a_name_that_model_servers_refuse_is_invalid(name: str) -> None:
    assert "not a valid tool name" in tool_name_fault(name)
    assert tool_name_fault("get_weather-2") == ""

"""Schemas that are not ours: the same problems in the same words as for our own tools, and nothing passes unchecked."""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.tools import Problem
from chatops.sandbox.isolated import Limits, run_isolated
from chatops.tools import schema as checks
from chatops.tools.arguments import Arguments, fit, fit_schema, parse
from chatops.tools.catalog import CatalogSettings, builtin_catalog
from chatops.tools.function import FunctionTool
from chatops.tools.schema import ARGUMENT, problems_in_process
from tests.tools.toolkit import call
from tests.tools.webserver import answer, serving

FOREIGN = json.dumps(
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "kind": {"enum": ["file", "folder", 3]},
            "unit": {"const": "m"},
            "depth": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
            "size": {"type": ["integer", "null"]},
            "edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}},
        },
        "required": ["path", "size"],
        "additionalProperties": False,
        "$defs": {
            "edit": {
                "type": "object",
                "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
                "required": ["old", "new"],
                "additionalProperties": False,
            }
        },
    }
)


def read(text: str) -> Arguments:
    return parse(call("any", text))


def said(text: str, *, schema: str = FOREIGN) -> dict[str, str]:
    return {problem.path: problem.message for problem in fit_schema(read(text), schema=schema).problems}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("text", "path", "says"),
    [
        ('{"size":1}', "path", "is required but missing"),
        ('{"size":1,"path":3}', "path", "must be string"),
        ('{"size":"x","path":"a"}', "size", "must be integer or null"),
        ('{"size":1,"path":"a","pth":"b"}', "pth", "is not an argument of this tool; did you mean 'path'?"),
        ('{"size":1,"path":"a","zzz":"b"}', "zzz", "valid names: depth, edits, kind, path, size, unit"),
        ('{"size":1,"path":"a","kind":"fil"}', "kind", "must be one of file, folder, 3; did you mean 'file'?"),
        ('{"size":1,"path":"a","unit":"cm"}', "unit", "must be one of m"),
        ('{"size":1,"path":"a","depth":0}', "depth", "less than the minimum of 1"),
        ('{"size":1,"path":"a","depth":"x"}', "depth", "must be integer or null"),
        ('{"size":1,"path":"a","edits":[{"old":"a","new":1}]}', "edits[0].new", "must be string"),
    ],
)
def test_a_problem_names_the_field_and_the_nearest_valid_name(text: str, path: str, says: str) -> None:
    found = said(text)
    assert list(found) == [path]
    assert says in found[path]


@pytest.mark.more
def test_every_missing_and_every_unknown_key_is_named_once() -> None:
    assert set(said("{}")) == {"path", "size"}
    assert set(said('{"path":"a","size":1,"x":1,"y":2}')) == {"x", "y"}
    nested = said('{"path":"a","size":1,"edits":[{"odl":"b"}]}')
    assert set(nested) == {"edits[0].old", "edits[0].new", "edits[0].odl"}
    assert nested["edits[0].odl"] == "is not a key of this object; did you mean 'old'?"


def test_the_given_value_is_part_of_the_problem() -> None:
    [problem] = fit_schema(read('{"path":"a","size":{"n":"\u202e"}}'), schema=FOREIGN).problems
    assert problem == Problem(path="size", message="must be integer or null", given='{"n": "<U+202E>"}')


def test_problems_come_from_the_alternative_whose_type_fits() -> None:
    schema = json.dumps(
        {"properties": {"to": {"oneOf": [{"type": "string"}, {"type": "object", "required": ["name", "mail"]}]}}}
    )
    assert said('{"to":{"name":"a"}}', schema=schema) == {"to.mail": "is required but missing"}
    assert said('{"to":3}', schema=schema) == {"to": "must be string or object"}


@pytest.mark.more
def test_valid_arguments_pass_unchanged_and_without_coercion() -> None:
    text = '{"path":"a","size":5,"depth":null}'
    assert fit_schema(read(text), schema=FOREIGN) == read(text)
    assert set(said('{"path":"a","size":"5"}')) == {"size"}


def test_keys_that_a_pattern_allows_are_no_problem() -> None:
    schema = '{"properties":{"a":{}},"patternProperties":{"^x-":{}},"additionalProperties":false}'
    assert said('{"a":1,"x-b":2,"c":3}', schema=schema).keys() == {"c"}


@pytest.mark.more
def test_problems_are_bounded_in_number_and_length() -> None:
    many = json.dumps({"path": "a", "size": 1, **{f"k{n}": "v" * 9_999 for n in range(500)}})
    problems = fit_schema(read(many), schema=FOREIGN).problems
    assert len(problems) == 8
    assert all(len(problem.message) + len(problem.given) < 600 for problem in problems)
    wide = json.dumps({"properties": {"a": {"enum": [f"word{n}" for n in range(5_000)]}}})
    assert len(said('{"a":"word4999x"}', schema=wide)["a"]) < 600
    assert "did you mean 'word4999'" in said('{"a":"word4999x"}', schema=wide)["a"]


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "schema",
    [
        '{"$ref":"http://127.0.0.1:9/schema.json"}',
        '{"$ref":"#/nowhere"}',
        '{"$ref":"#"}',
        '{"type":"objekt"}',
        '{"properties":{"path":{"pattern":"("}}}',
        '{"properties":3}',
        "{",
        "[]",
    ],
)
def test_a_schema_that_cannot_be_used_lets_nothing_pass_and_is_never_fetched(schema: str) -> None:
    [problem] = fit_schema(read('{"path":"a"}'), schema=schema).problems
    assert "schema cannot be used" in problem.message


@pytest.mark.more
async def test_a_schema_elsewhere_is_not_asked_for() -> None:
    async with serving() as server:
        server.answers["/schema.json"] = answer("{}", kind="application/json")
        for reference in ("schema.json", "schema.json#/$defs/path"):
            schema = json.dumps({"$ref": f"http://127.0.0.1:{server.port}/{reference}"})
            [problem] = (await asyncio.to_thread(fit_schema, read('{"path":"a"}'), schema=schema)).problems
            assert "schema cannot be used" in problem.message
        assert server.asked == []


REFERENCES = {f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(40)}
UNEVALUATED: dict[str, JsonValue] = {}
for _ in range(40):
    UNEVALUATED = {"if": UNEVALUATED, "unevaluatedProperties": False}


@pytest.mark.more
@pytest.mark.parametrize(
    "schema",
    [
        r'{"properties":{"path":{"\u0070attern":"(a+)+$"}}}',
        pytest.param(json.dumps({"$ref": "#/$defs/a0", "$defs": {**REFERENCES, "a40": {}}}), marks=pytest.mark.kill),
        pytest.param(json.dumps(UNEVALUATED), marks=pytest.mark.kill),
    ],
    ids=["a keyword in disguise", "references that double", "what is left over of what is left over"],
)
def test_a_schema_that_takes_too_long_lets_nothing_pass(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "run_isolated", partial(run_isolated, limits=Limits(cpu_s=1)))
    [problem] = fit_schema(read(json.dumps({"path": "a" * 5_000 + "!"})), schema=schema).problems
    assert problem.message == "the arguments could not be checked against the schema: it took too long"


@pytest.mark.more
def test_arguments_that_make_a_pattern_exponential_do_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "run_isolated", partial(run_isolated, limits=Limits(cpu_s=1)))
    schema = json.dumps({"properties": {"path": {"pattern": "(a+)+$"}}})
    [problem] = fit_schema(read(json.dumps({"path": "a" * 5_000 + "!"})), schema=schema).problems
    assert problem.message == "the arguments could not be checked against the schema: it took too long"
    assert fit_schema(read('{"path":"aa"}'), schema=schema).problems == ()


def test_values_other_than_arguments_can_be_checked() -> None:
    [problem] = problems_in_process(["a", 3], schema='{"items":{"type":"string"}}', noun="key")
    assert problem.path == "[1]"
    [problem] = problems_in_process({"b": 1}, schema='{"additionalProperties":false}', noun="item of the answer")
    assert problem.message == "is not an item of the answer; valid names: none"


# Both validators over the tools that exist: what one says, the other says.

TOOLS: Mapping[str, FunctionTool] = {
    spec.name: tool
    for catalog in [builtin_catalog(CatalogSettings(scratch_dir=Path("notes"), environ={"BRAVE_API_KEY": "k"}))]
    for spec in catalog.specs
    if isinstance(tool := catalog.get(spec.name), FunctionTool)
}


def model_of(tool: FunctionTool) -> type[BaseModel]:
    assert tool.arguments is not None
    return tool.arguments


plain: st.SearchStrategy[JsonValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.integers(-(10**9), 10**9),
    # JSON Schema counts 5.0 as an integer, and we do not: see below.
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer()),
    st.text(max_size=6),
    st.sampled_from(["5", "true", "src/app.py", "x" * 300]),
)
values: st.SearchStrategy[JsonValue] = st.one_of(
    plain, st.lists(plain, max_size=2), st.dictionaries(st.text(max_size=3), plain, max_size=2)
)


_FITTING: Mapping[str, st.SearchStrategy[JsonValue]] = {
    "string": st.text(max_size=6),
    "integer": st.integers(0, 50),
}


@st.composite
def arguments_of(draw: st.DrawFn, tool: FunctionTool) -> dict[str, JsonValue]:
    """Arguments for `tool`: each right, wrong or left out, and now and then one that it does not have."""
    schema: dict[str, Any] = json.loads(tool.spec.schema)
    chosen: dict[str, JsonValue] = {}
    for name, wanted in schema["properties"].items():
        fitting = _FITTING.get(wanted.get("type", ""), plain)
        if draw(st.integers(0, 4)):
            chosen[name] = draw(st.one_of(fitting, fitting, values))
    extra = draw(st.dictionaries(st.sampled_from(["Path", "comand", "x", ""]), plain, max_size=2))
    return {**chosen, **{name: value for name, value in extra.items() if name not in schema["properties"]}}


@pytest.mark.more
@given(data=st.data())
def test_both_validators_agree_on_our_own_tools(data: st.DataObject) -> None:
    tool = TOOLS[data.draw(st.sampled_from(sorted(TOOLS)), label="tool")]
    text = canonical(data.draw(arguments_of(tool), label="arguments"))
    ours, value = fit(read(text), model=model_of(tool), schema=tool.spec.schema, strict=True)
    theirs = problems_in_process(dict(read(text).value), schema=tool.spec.schema, noun=ARGUMENT)
    assert (value is None) == bool(theirs)
    assert {problem.path for problem in ours.problems} == {problem.path for problem in theirs}
    if value is not None:
        assert ours.text == text, "without coercion what runs is what was written"


@given(data=st.data())
def test_validated_arguments_need_no_further_coercion(data: st.DataObject) -> None:
    tool = TOOLS[data.draw(st.sampled_from(sorted(TOOLS)), label="tool")]
    text = canonical(data.draw(arguments_of(tool), label="arguments"))
    try:
        model_of(tool).model_validate_json(text)
    except ValidationError:
        return  # What does not fit is looked at in a process of its own, which would be most of this test.
    loose, value = fit(read(text), model=model_of(tool), schema=tool.spec.schema, strict=False)
    again, same = fit(read(loose.text), model=model_of(tool), schema=tool.spec.schema, strict=True)
    assert not again.problems, "validated arguments need no coercion"
    assert same == value
    assert again.text == loose.text


def test_a_whole_number_with_a_point_is_an_integer_for_a_foreign_schema_only() -> None:
    tool = TOOLS["shell_exec"]
    text = '{"command":"true","timeout_s":5.0}'
    assert [
        problem.path
        for problem in fit(read(text), model=model_of(tool), schema=tool.spec.schema, strict=True)[0].problems
    ] == ["timeout_s"]
    assert fit_schema(read(text), schema=tool.spec.schema).problems == ()

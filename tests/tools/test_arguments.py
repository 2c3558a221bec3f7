"""Arguments: one reading, no guess, problems as field paths."""

import json
from dataclasses import replace
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, model_validator

from chatops.domain.ids import CallId
from chatops.domain.tools import ToolCall
from chatops.tools import arguments
from chatops.tools.arguments import Arguments, parse
from chatops.tools.schema import field_path
from tests.support.cases import for_each
from tests.tools.toolkit import call


def read(text: str) -> Arguments:
    return parse(call("any", text))


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_nothing_is_an_empty_object(text: str) -> None:
    assert read(text) == Arguments(text="{}", value={})


def test_canonical_text_is_sorted_and_without_white_space() -> None:
    assert read('{ "b": 1,\n "a": "é" }').text == '{"a":"é","b":1}'


def test_control_characters_inside_a_text_are_read() -> None:
    assert read('{"a":"x\ny\x01"}').value == {"a": "x\ny\x01"}


@for_each(
    ("text", "says"),
    [
        ("touch x", "not valid JSON"),
        ('{"a":1} {"a":2}', "not valid JSON"),
        ('{"a":1', "cut off"),
        ('{"command":"rm -rf /tmp/bui', "cut off"),
        ("{'command': 'rm -rf /tmp/bui", "cut off"),
        ('{"command":"ls","tim', "cut off"),
        ('{"a": f(1)}', "not valid JSON"),
        ('```json\n{"a":1}', "not valid JSON"),
        ("\ufeff{}", "not valid JSON"),
        ('["a"]', "not an array"),
        ('"a"', "not a string"),
        ('"{\\"a\\":\\"b"', "not a string"),
        ('"[1]"', "not a string"),
        ("null", "not null"),
        ("3", "not a number"),
        ("true", "not a boolean"),
        ('{"a":NaN}', "NaN"),
        ('{"a":-Infinity}', "-Infinity"),
        ('{"a":1e999}', "out of range"),
        ('{"a":' + "9" * 5000 + "}", "out of range"),
        ('{"a":1,"a":2}', "twice"),
        ('{"x":{"a":1,"a":true}}', "twice"),
        ("[" * 100_000, "too deeply"),
        ('{"a":"\\udc00"}', "surrogate"),
    ],
)
def test_what_is_no_object_is_a_problem(text: str, says: str) -> None:
    result = read(text)
    assert [says in problem.message for problem in result.problems] == [True]
    assert result.value == {}


@for_each(
    ("text", "value", "says"),
    [
        ("{'a': 1}", {"a": 1}, "single quotes"),
        ('{"a": True, "b": None,}', {"a": True, "b": None}, "comma before a closing bracket"),
        ('{"a": "one"\n"b": 2}', {"a": "one", "b": 2}, "missing comma"),
        ('"{\\"a\\":1}"', {"a": 1}, "given as a JSON string"),
        ("\"{'a': 1}\"", {"a": 1}, "single quotes"),
        ('{"a": "\\d+"}', {"a": "\\d+"}, "backslash"),
    ],
)
def test_unambiguous_repairs_are_made_and_reported(text: str, value: dict[str, object], says: str) -> None:
    result = read(text)
    assert (result.value, result.problems) == (value, ())
    assert any(says in repair for repair in result.repairs)
    assert json.loads(result.text) == value


def test_repairs_of_the_call_reader_are_kept_without_duplicates() -> None:
    trailing = read("{'a': 1,}").repairs
    first = ToolCall(id=CallId("c"), name="any", arguments="{'a': 1,}", repairs=("a fence was opened", trailing[0]))
    assert parse(first).repairs == ("a fence was opened", *trailing)
    assert parse(replace(first, arguments='{"a": 1}')).repairs == first.repairs


def test_the_same_key_twice_with_the_same_value_is_fine() -> None:
    assert read('{"a":1,"a":1}').value == {"a": 1}


def test_a_call_that_was_cut_off_is_a_problem_before_its_text_is_read() -> None:
    cut = ToolCall(id=CallId("c"), name="any", arguments="{}", problem="the reply was cut off")
    assert [problem.message for problem in parse(cut).problems] == ["the reply was cut off"]


def test_given_values_are_shown_short_and_without_control_characters() -> None:
    given_text = read("\x1b[2J" + "x" * 500).problems[0].given
    assert given_text.startswith("<U+001B>[2J")
    assert len(given_text) < 120


@given(st.text(max_size=200))
def test_reading_never_raises_and_never_invents(text: str) -> None:
    result = read(text)
    assert bool(result.problems) != (isinstance(_loads(text), dict) or bool(result.repairs))
    assert isinstance(result.value, dict)


def _loads(text: str) -> object:
    if not text.strip():
        return {}
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return None


@pytest.mark.more
@given(st.data())
def test_truncated_arguments_are_never_read(data: st.DataObject) -> None:
    text = json.dumps(data.draw(st.dictionaries(st.text(max_size=5), st.text(max_size=20), min_size=1)))
    cut = data.draw(st.integers(1, len(text) - 1))
    assert read(text[:cut]).problems
    assert read(text[:cut].replace('"', "'")).value == {}


class Edit(BaseModel):
    model_config = ConfigDict(extra="forbid")
    old: str


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")
    command: Annotated[str, Field(min_length=1)]
    timeout_s: int | None = None
    mode: Literal["fast", "slow"] = "fast"
    edits: list[Edit] = []


def fit(given: Arguments, *, model: type[BaseModel], strict: bool) -> tuple[Arguments, BaseModel | None]:
    return arguments.fit(given, model=model, schema=json.dumps(model.model_json_schema()), strict=strict)


def problems(text: str, *, strict: bool = True) -> list[tuple[str, str, str]]:
    fitted, value = fit(read(text), model=Shape, strict=strict)
    assert (value is None) == bool(fitted.problems)
    return [(problem.path, problem.message, problem.given) for problem in fitted.problems]


def test_problems_name_the_field_the_value_and_the_nearest_valid_name() -> None:
    assert problems("{}") == [("command", "is required but missing", "")]
    assert ("Command", "is not an argument of this tool; did you mean 'command'?", "x") in problems('{"Command":"x"}')
    assert ("mode", "must be one of fast, slow; did you mean 'slow'?", "slwo") in problems(
        '{"command":"x","mode":"slwo"}'
    )
    [(path, _, shown)] = problems('{"command":"x","edits":[{"old":"a"},{"old":3}]}')
    assert (path, shown) == ("edits[1].old", "3")
    assert problems('{"command":"x","edits":[{"odl":"a"}]}') == [
        ("edits[0].old", "is required but missing", ""),
        ("edits[0].odl", "is not a key of this object; did you mean 'old'?", "a"),
    ]


def test_the_path_of_a_problem_leaves_out_union_members() -> None:
    class Either(BaseModel):
        where: int | list[int] | Edit

        @model_validator(mode="after")
        def _small(self) -> "Either":
            if self.where == 99:
                raise ValueError("99 is too much")
            return self

    fitted, _ = fit(read('{"where":{"odl":1}}'), model=Either, strict=True)
    assert {problem.path for problem in fitted.problems} == {"where.old", "where.odl"}
    assert "did you mean 'old'" in next(problem for problem in fitted.problems if problem.path == "where.odl").message
    fitted, _ = fit(read('{"where":["x"]}'), model=Either, strict=True)
    assert {problem.path for problem in fitted.problems} == {"where[0]"}
    fitted, _ = fit(read('{"where":99}'), model=Either, strict=True)
    assert [(problem.path, problem.message) for problem in fitted.problems] == [("", "99 is too much")]


def test_a_key_with_an_invisible_character_is_shown_as_such() -> None:
    [(path, message, _)] = problems('{"command":"x","command\u200b":"git status"}')
    assert path == "command<U+200B>"
    assert "did you mean 'command'" in message


@for_each("text", ['{"command":["ls"]}', '{"command":{"a":1}}', '{"command":1}', '{"command":""}'])
def test_a_wrong_type_is_never_bent_into_shape(text: str) -> None:
    assert [path for path, _, _ in problems(text)] == ["command"]


def test_numbers_as_text_are_read_only_where_nothing_can_happen() -> None:
    text = '{"command":"x","timeout_s":"10"}'
    assert [path for path, _, _ in problems(text)] == ["timeout_s"]
    fitted, value = fit(read(text), model=Shape, strict=False)
    assert value is not None
    assert fitted.text == '{"command":"x","timeout_s":10}'


def test_many_problems_are_cut_short() -> None:
    assert len(problems(json.dumps({f"k{number}": number for number in range(50)}))) == 8


def test_field_paths() -> None:
    assert field_path(["edits", 0, "old"]) == "edits[0].old"

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.dialects import read_calls
from chatops.dialects.literals import same_json
from chatops.dialects.reading import Repair, Schema, UnreadableValueError
from chatops.dialects.typed_values import as_type, item_schema, property_schema, strip_newlines, types_of
from chatops.domain.canonical import JsonValue, canonical
from tests.support.cases import for_each

STRING: Schema = {"type": "string"}
NULLABLE: Schema = {"type": ["string", "null"]}

TYPED: list[tuple[str, Schema, JsonValue]] = [
    ("42", STRING, "42"),
    ("null", STRING, "null"),
    ("true", STRING, "true"),
    ('{"a": 1}', STRING, '{"a": 1}'),
    (" x \n", STRING, " x \n"),
    ("", STRING, ""),
    ('"x"', STRING, '"x"'),
    ("null", NULLABLE, None),
    ("nothing", NULLABLE, "nothing"),
    ("null", {"type": "string", "nullable": True}, None),
    ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
    ("42", {"type": "integer"}, 42),
    (" 42\n", {"type": "integer"}, 42),
    ("-7", {"type": "integer"}, -7),
    ("2", {"type": "number"}, 2),
    ("2.5", {"type": "number"}, 2.5),
    ("1e3", {"type": "number"}, 1000.0),
    ("true", {"type": "boolean"}, True),
    ("[1, 2]", {"type": "array"}, [1, 2]),
    ('{"a": {"b": null}}', {"type": "object"}, {"a": {"b": None}}),
    ("null", {"type": "null"}, None),
    ("42", {"type": "int"}, 42),
    ("4.5", {"type": "float"}, 4.5),
    ("x", {"type": "str"}, "x"),
    ("false", {"type": "bool"}, False),
    ('["x"]', {"type": "list"}, ["x"]),
    ('{"a": 1}', {"type": "dict"}, {"a": 1}),
    ("42", {"type": ["integer", "null"]}, 42),
    ("null", {"type": ["integer", "null"]}, None),
    ("7", {"type": ["string", "integer"]}, 7),
    ("2 dollars", {"type": ["string", "integer"]}, "2 dollars"),
    ("007", {"type": ["string", "integer"]}, "007"),
    ('{"a": 1}', {"type": ["string", "object"]}, {"a": 1}),
    ("{'a': 1}", {"type": ["string", "object"]}, "{'a': 1}"),
    ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 5}, 5),
    ("some text", {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}, "some text"),
    ('{"max": 10}', {"oneOf": [{"type": "integer"}, {"type": "object"}]}, {"max": 10}),
    ('[{"op": "x"}]', {"allOf": [{"type": "array", "items": {"type": "object"}}]}, [{"op": "x"}]),
    ("celsius", {"enum": ["celsius", "fahrenheit"]}, "celsius"),
    ("kelvin", {"enum": ["celsius", "fahrenheit"]}, "kelvin"),
    ('"', {"enum": ["", "celsius"]}, '"'),
    ("2", {"enum": [1, 2, 3]}, 2),
    ("fixed", {"const": "fixed"}, "fixed"),
    ("3", {"const": 3}, 3),
    ('{"city": "x"}', {"properties": {"city": STRING}}, {"city": "x"}),
    ('["x"]', {"items": STRING}, ["x"]),
    ("42", {}, "42"),
    ("42", {"description": "anything"}, "42"),
    ("42", {"type": "unheard-of"}, "42"),
    ('{"city": "x"}', {"$ref": "#/$defs/Place", "$defs": {"Place": {"type": "object"}}}, {"city": "x"}),
    ("4", {"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"type": "integer"}}}, 4),
    ("4", {"$ref": "#/$defs/Gone"}, "4"),
]

REPAIRED: list[tuple[str, Schema, JsonValue, Repair]] = [
    ("None", NULLABLE, None, Repair.PYTHON_WORDS),
    ("True", {"type": "boolean"}, True, Repair.PYTHON_WORDS),
    ("TRUE", {"type": "boolean"}, True, Repair.CONVERTED),
    ("3.0", {"type": "integer"}, 3, Repair.CONVERTED),
    ("{'a': 1,}", {"type": "object"}, {"a": 1}, Repair.SINGLE_QUOTES),
    ("[1, 2,]", {"type": "array"}, [1, 2], Repair.TRAILING_COMMA),
    ('"{\\"a\\": 1}"', {"type": "object"}, {"a": 1}, Repair.QUOTED_ARGUMENTS),
    ("+5", {"type": "integer"}, 5, Repair.NUMBER_SPELLING),
    ("018956", {"type": "integer"}, 18956, Repair.NUMBER_SPELLING),
    ("-00", {"type": "integer"}, 0, Repair.NUMBER_SPELLING),
    ("01.50", {"type": "number"}, 1.5, Repair.NUMBER_SPELLING),
    (" celsius ", {"type": "string", "enum": ["celsius"]}, "celsius", Repair.TRIMMED),
    ('"celsius"', {"enum": ["celsius", "fahrenheit"]}, "celsius", Repair.TRIMMED),
]

REFUSED: list[tuple[str, Schema]] = [
    ("", {"type": "integer"}),
    ("three", {"type": "integer"}),
    ("007x", {"type": "integer"}),
    ("00.5", {"type": "integer"}),
    ("007", {"type": "boolean"}),
    ("3.5", {"type": "integer"}),
    ("true", {"type": "integer"}),
    ("1 000", {"type": "integer"}),
    ("null", {"type": "integer"}),
    ('"3"', {"type": "integer"}),
    ("NaN", {"type": "number"}),
    ("1e999", {"type": "number"}),
    ("yes", {"type": "boolean"}),
    ("1", {"type": "boolean"}),
    ("x", {"type": "array"}),
    ("{}", {"type": "array"}),
    ("[]", {"type": "object"}),
    ('{"a": 1', {"type": "object"}),
    ('{"a": 1} {"b": 2}', {"type": "object"}),
    ('{"a": 1, "a": 2}', {"type": "object"}),
    ('"[1]"', {"type": "object"}),
    ("x", {"type": ["integer", "null"]}),
    ("4", {"enum": ["a"], "type": "null"}),
]


@for_each(("raw", "schema", "value"), TYPED)
def test_a_value_takes_the_type_that_its_schema_declares(raw: str, schema: Schema, value: JsonValue) -> None:
    got, repairs = as_type(raw, schema)
    assert same_json(got, value)
    assert repairs == ()


@for_each(("raw", "schema", "value", "repair"), REPAIRED)
def test_a_value_in_another_spelling_is_typed_and_the_repair_is_named(
    raw: str, schema: Schema, value: JsonValue, repair: Repair
) -> None:
    got, repairs = as_type(raw, schema)
    assert same_json(got, value)
    assert repair in repairs


@for_each(("raw", "schema"), REFUSED)
def test_a_value_that_is_not_of_its_type_is_refused(raw: str, schema: Schema) -> None:
    with pytest.raises(UnreadableValueError):
        as_type(raw, schema)


@for_each(
    ("raw", "value"),
    [
        ("\nx\n", "x"),
        ("\n\nx\n\n", "\nx\n"),
        ("\nx", "x"),
        ("x\n", "x\n"),
        ("x", "x"),
        ("\n  x  \n", "  x  "),
        ("\r\nx\r\n", "x"),
        ("\n", ""),
        ("\n\n", ""),
        ("", ""),
    ],
)
def test_one_line_break_goes_from_the_front_and_only_then_one_from_the_end(raw: str, value: str) -> None:
    assert strip_newlines(raw) == value


def test_the_schema_of_an_argument_comes_with_what_it_refers_to() -> None:
    tool: Schema = {
        "properties": {"where": {"$ref": "#/$defs/Place"}, "any": True},
        "$defs": {"Place": {"type": "object"}},
    }
    assert as_type('{"city": "x"}', property_schema(tool, "where")) == ({"city": "x"}, ())
    assert property_schema(tool, "any") == {}
    assert property_schema(tool, "other") == {}
    assert property_schema({}, "other") == {}


def test_the_schema_of_a_tool_may_itself_be_a_reference() -> None:
    tool: Schema = {"$ref": "#/$defs/Args", "$defs": {"Args": {"properties": {"n": {"type": "integer"}}}}}
    assert as_type("3", property_schema(tool, "n")) == (3, ())


def test_an_argument_without_a_name_in_the_schema_takes_the_schema_for_the_rest() -> None:
    tool: Schema = {"properties": {}, "additionalProperties": {"type": "integer"}}
    assert as_type("3", property_schema(tool, "n")) == (3, ())


def test_schemas_that_refer_to_themselves_come_to_an_end() -> None:
    circle: Schema = {"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 50}}}
    assert as_type("x", circle) == ("x", ())
    assert property_schema(circle, "x") == {}


@given(st.text())
def test_a_declared_text_stays_as_it_was_written(raw: str) -> None:
    assert as_type(raw, STRING) == (raw, ())


SCHEMAS = st.recursive(
    st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object", "float", "?"]).map(
        lambda name: {"type": name}
    )
    | st.lists(st.sampled_from(["string", "integer", "null", "object"]), max_size=3).map(lambda names: {"type": names})
    | st.lists(st.none() | st.integers(0, 3) | st.sampled_from(["a", "b"]), max_size=3).map(lambda some: {"enum": some})
    | st.sampled_from([{}, {"type": 3}, {"$ref": "#"}, {"$ref": 1}, {"anyOf": None}, {"enum": "a"}]),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: {"anyOf": parts}),
    max_leaves=5,
)
VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()) | st.just({"a": 1})


@pytest.mark.more
@given(VALUES.map(lambda value: value if isinstance(value, str) else json.dumps(value)), SCHEMAS)
def test_whatever_the_schema_a_value_is_typed_or_refused(raw: str, schema: Schema) -> None:
    try:
        value, _ = as_type(raw, schema)
    except UnreadableValueError:
        return
    canonical(value)


@given(st.integers() | st.booleans() | st.lists(st.text()) | st.dictionaries(st.text(), st.integers()))
def test_what_was_printed_as_its_type_reads_back(value: JsonValue) -> None:
    names = {int: "integer", bool: "boolean", list: "array", dict: "object"}
    got, repairs = as_type(json.dumps(value), {"type": names[type(value)]})
    assert same_json(got, value) and repairs == ()


LINE: dict[str, JsonValue] = {"type": "object", "properties": {"line": {"type": "integer"}, "text": {"type": "string"}}}
EDIT: dict[str, JsonValue] = {
    "$defs": {"Line": LINE},
    "properties": {
        "edits": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Line"}}, {"type": "null"}]},
        "from": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
}


def test_items_and_members_are_found_behind_references_and_among_alternatives() -> None:
    edits = property_schema(EDIT, "edits")
    assert types_of(edits) == {"array", "null"}
    assert types_of(property_schema(item_schema(edits), "line")) == {"integer"}
    assert item_schema(LINE) == {} and types_of({}) == set()


def test_nested_tags_are_typed_by_a_schema_with_references() -> None:
    mark = "]<]minimax[>["
    line = f"{mark}<one>{mark}<line>3{mark}</line>{mark}<text>007{mark}</text>{mark}</one>"
    text = f'{mark}<tool_call>{mark}<invoke name="edit">{mark}<edits>{line}{line}{mark}</edits>{mark}</invoke>'
    [call] = read_calls(f"{text}{mark}</tool_call>", {"edit": EDIT}).calls
    assert json.loads(call.arguments) == {"edits": [{"line": 3, "text": "007"}] * 2}


def test_a_tag_that_calls_its_value_text_is_not_believed_against_the_schema() -> None:
    value = '<｜DSML｜parameter name="from" string="true">3</｜DSML｜parameter>'
    text = (
        f'<｜DSML｜function_calls>\n<｜DSML｜invoke name="edit">\n{value}\n</｜DSML｜invoke>\n</｜DSML｜function_calls>'
    )
    [call] = read_calls(text, {"edit": EDIT}).calls
    assert json.loads(call.arguments) == {"from": 3}

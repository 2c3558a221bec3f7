"""Definitions of workflows in files: values, places of errors, and the schema that is published."""

import json
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from chatops.config.document import MalformedFileError
from chatops.config.registry_read import json_schema, read_registry
from chatops.config.workflow_read import read_workflow, workflow_schema
from chatops.config.yaml_document import parse_yaml
from chatops.domain.errors import ConfigError
from chatops.policy.workflow import CommandGate, OnFail, PatternGate, StepSpec, Subject, Validation
from tests.support.cases import for_each

FULL: dict[str, Any] = {
    "$schema": "https://example.org/workflow.json",
    "description": "Finds and builds.",
    "steps": [
        {"name": "find", "system_prompt": "Find it."},
        {
            "name": "build it",
            "system_prompt": "Build it.",
            "role": "coder",
            "model": "demo",
            "tools": ["set_value", "check", "ship"],
            "validation_tools": [
                "check",
                {"tool": "check_all", "subject": {"component": "/parts", "kind": ""}, "depends_on": ["set_value"]},
            ],
            "gates": [
                {"name": "no secrets", "pattern": "sk-", "negated": True, "pointer": "/text"},
                {"name": "tests", "command": "pytest -q", "timeout_s": 60},
            ],
            "output_schema": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}},
            "max_iterations": "complex",
            "max_step_retries": 2,
            "temperature": 0,
            "max_tokens": 100,
            "on_fail": "ask",
            "may_skip": True,
            "review": True,
            "order": ["set_value", "check"],
            "once": ["ship"],
            "x-note": "seen in May",
        },
    ],
}

YAML = """\
# A comment.
description: Finds and builds.
steps:
  - name: find
    system_prompt: |
      Find it.
  - name: build it
    system_prompt: Build it.
    role: coder
    model: demo
    tools: [set_value, check, ship]
    validation_tools:
      - check
      - tool: check_all
        subject: {component: /parts, kind: ""}
        depends_on: [set_value]
    gates:
      - {name: no secrets, pattern: "sk-", negated: true, pointer: /text}
      - {name: tests, command: pytest -q, timeout_s: 60}
    output_schema: {type: object, properties: {z: {type: string}, a: {type: string}}}
    max_iterations: complex
    max_step_retries: 2
    temperature: 0
    max_tokens: 100
    on_fail: ask
    may_skip: true
    review: true
    order: [set_value, check]
    once: [ship]
"""


def test_all_keys_of_a_definition_become_values() -> None:
    spec = read_workflow(json.dumps(FULL).encode(), source="/x/make.json").spec
    assert (spec.name, spec.description, spec.source) == ("make", "Finds and builds.", "/x/make.json")
    find, build = spec.steps
    assert find == StepSpec(name="find", system_prompt="Find it.")
    assert (find.tools, find.max_iterations, find.max_attempts, find.temperature) == (None, 10, 3, 0.1)
    assert build == StepSpec(
        name="build it",
        system_prompt="Build it.",
        role="coder",
        model="demo",
        tools=("set_value", "check", "ship"),
        validations=(
            Validation(tool="check"),
            Validation(
                tool="check_all",
                subject=(Subject(argument="component", pointer="/parts"), Subject(argument="kind")),
                depends_on=("set_value",),
            ),
        ),
        gates=(
            PatternGate(name="no secrets", pattern="sk-", pointer="/text", negated=True),
            CommandGate(name="tests", command="pytest -q", timeout_s=60),
        ),
        output_schema=json.dumps(FULL["steps"][1]["output_schema"]),
        max_iterations=15,
        max_attempts=2,
        temperature=0,
        max_output_tokens=100,
        on_fail=OnFail.ASK,
        may_skip=True,
        review=True,
        order=("set_value", "check"),
        once=("ship",),
    )
    assert build.output_schema.index('"z"') < build.output_schema.index('"a"'), (
        "models write in the order of the schema"
    )


@pytest.mark.parametrize("ending", ["yaml", "yml"])
def test_yaml_says_the_same_as_json(ending: str) -> None:
    (first, second) = (
        read_workflow(YAML.encode(), source=f"make.{ending}").spec.steps,
        read_workflow(json.dumps(FULL).encode(), source="make.json").spec.steps,
    )
    assert first == second


def test_workflows_of_a_registry_keep_their_places_and_notes_between_them_are_free() -> None:
    text = json.dumps({"workflows": {"x-note": "why", "make": FULL, "x-ray": {"steps": [FULL["steps"][0]]}}}, indent=1)
    registry = read_registry(text.encode(), source="f")
    make, ray = registry.workflows
    assert (make.name, ray.name, make.spec.source, registry.warnings) == ("make", "x-ray", "f", ())
    assert make.spec.steps == read_workflow(json.dumps(FULL).encode(), source="make.json").spec.steps
    line, column = make.place(("steps", 1, "tools", 2)) or (0, 0)
    assert text.splitlines()[line - 1][column - 1 :] == '"ship"'
    assert make.place(("steps", 1, "nothing", 7)) == make.place(("steps", 1))


ERRORS = [
    ({"stepss": []}, "stepss", "'steps' may be meant"),
    ({"steps": [{"name": "a", "system_prompt": "p", "tool": []}]}, "steps[0].tool", "'tools' may be meant"),
    ({"steps": []}, "steps", "at least one"),
    ({}, "steps", "missing"),
    ({"steps": [{"name": "a"}]}, "steps[0].system_prompt", "missing"),
    ({"steps": [{"name": "a.b", "system_prompt": "p"}]}, "steps[0].name", "not a valid step name"),
    ({"steps": ["a"]}, "steps[0]", "an object"),
    ({"steps": [{"name": "a", "system_prompt": "p", "max_iterations": "quik"}]}, "steps[0].max_iterations", "quick"),
    ({"steps": [{"name": "a", "system_prompt": "p", "max_iterations": 0}]}, "steps[0].max_iterations", "from 1 to"),
    ({"steps": [{"name": "a", "system_prompt": "p", "max_iterations": True}]}, "steps[0].max_iterations", "number"),
    ({"steps": [{"name": "a", "system_prompt": "p", "max_step_retries": 21}]}, "steps[0].max_step_retries", "less"),
    ({"steps": [{"name": "a", "system_prompt": "p", "temperature": 3}]}, "steps[0].temperature", "less"),
    ({"steps": [{"name": "a", "system_prompt": "p", "on_fail": "retry"}]}, "steps[0].on_fail", "'stop', 'ask'"),
    ({"steps": [{"name": "a", "system_prompt": "p", "review": "yes"}]}, "steps[0].review", "true or false"),
    ({"steps": [{"name": "a", "system_prompt": "p", "tools": "file_read"}]}, "steps[0].tools", "a list"),
    (
        {"steps": [{"name": "a", "system_prompt": "p", "validation_tools": [{"tool": "v", "subjekt": {}}]}]},
        "steps[0].validation_tools[0].subjekt",
        "'subject' may be meant",
    ),
    (
        {"steps": [{"name": "a", "system_prompt": "p", "validation_tools": ["v", 3]}]},
        "steps[0].validation_tools[1]",
        "an object",
    ),
    (
        {"steps": [{"name": "a", "system_prompt": "p", "gates": [{"name": "g"}]}]},
        "steps[0].gates[0]",
        "either a pattern or a command",
    ),
    (
        {"steps": [{"name": "a", "system_prompt": "p", "gates": [{"name": "g", "command": "c", "pointer": "/a"}]}]},
        "steps[0].gates[0]",
        "command has no pointer",
    ),
    (
        {"steps": [{"name": "a", "system_prompt": "p", "gates": [{"name": "g", "patern": "x"}]}]},
        "steps[0].gates[0].patern",
        "'pattern' may be meant",
    ),
]


@for_each(("value", "key", "word"), ERRORS, ids=[error[1] for error in ERRORS])
def test_an_error_names_file_line_column_and_key(value: dict[str, Any], key: str, word: str) -> None:
    text = json.dumps({"workflows": {"make": value}}, indent=1)
    messages = []
    for data, source, prefix in (
        (json.dumps(value, indent=1), "/x/make.json", ""),
        (yaml.safe_dump(value), "/x/make.yaml", ""),
        (text, "/x/model_registry.json", "workflows.make."),
    ):
        with pytest.raises(ConfigError) as caught:
            if prefix:
                read_registry(data.encode(), source=source)
            else:
                read_workflow(data.encode(), source=source)
        message = str(caught.value)
        messages.append(message)
        assert message.startswith(f"{source}, line ") and f"key {prefix}{key}: " in message, message
        assert word in message.casefold() or word in message, message
        assert caught.value.advice
        line = int(message.split("line ")[1].split(",")[0])
        last = key.rpartition(".")[2].partition("[")[0]
        if word != "missing" and "[" not in key.rpartition(".")[2]:
            assert last in data.splitlines()[line - 1]
    assert not any("Entry" in message or "be a valid" in message for message in messages), "pydantic's own words"


@for_each(
    ("text", "line", "column", "word"),
    [
        ("steps:\n  - name: &a find\n", 2, 11, "anchors"),
        ("steps:\n  - name: *a\n", 2, 11, "aliases"),
        ("steps: !!python/object/apply:os.system [id]\n", 1, 8, "tags"),
        ("steps: !!str a\n", 1, 8, "tags"),
        ("<<: {steps: []}\n", 1, 1, "merge keys"),
        ("steps: []\nsteps: []\n", 2, 1, "given twice"),
        ("steps: []\n---\nsteps: []\n", 2, 1, "second document"),
        ("? [a]\n: b\n", 1, 3, "plain text"),
        ("a: [\n", 2, 1, "expected"),
        ("\ta: 1\n", 1, 1, "indented with spaces"),
        ("a: \x07\n", 1, 4, "character"),
        ("", 1, 1, "the file is empty"),
        ("- a\n", 1, 1, "an object"),
        ('a: "\\ud800"', 1, 4, "surrogate"),
        ('"\\udc00": 1', 1, 1, "surrogate"),
        ("a: " + "[" * 100, 1, 68, "too deeply"),
    ],
)
def test_yaml_that_could_mean_more_than_it_shows_is_refused_with_its_place(
    text: str, line: int, column: int, word: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_workflow(text.encode(), source="f.yaml")
    assert str(caught.value).startswith(f"f.yaml, line {line}, column {column}")
    assert word in str(caught.value)


def test_words_that_older_yaml_took_for_other_things_stay_text() -> None:
    text = "a: [no, yes, on, 0o7, 017, 1_000, 2026-01-01, 1:30, .5, .inf, True, 1e3, -2, null, ~, '1', \"true\"]"
    value = parse_yaml(text).value
    assert value == {
        "a": [
            "no", "yes", "on", "0o7", "017", "1_000", "2026-01-01", "1:30", ".5", ".inf", "True", 1000.0, -2,
            None, None, "1", "true",
        ]
    }  # fmt: skip


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.more
@settings(max_examples=200, deadline=None)
@given(value=values)
def test_every_json_value_is_read_from_yaml_as_it_is(value: object) -> None:
    assert parse_yaml(json.dumps(value, ensure_ascii=False)).value == value


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=80) | st.text(alphabet="-:[]{}&*!|>'\"#%@` \nab1", max_size=60))
def test_arbitrary_text_is_read_or_refused_with_a_place(text: str) -> None:
    try:
        parse_yaml(text)
    except MalformedFileError as error:
        assert error.place >= (1, 1)


@for_each(
    ("text", "place", "said"),
    [
        ("steps:\n  - name: a\n    role: b\n   - oops\n", (4, 4), "the indentation does not match the lines above"),
        ("- a\nb: c\n", (2, 1), "the indentation does not match the lines above"),
        ("a: b: c\n", (1, 5), "lacks quotes"),
        ("a: - b\n", (1, 4), "on a line of its own"),
        ("steps:\n\t- a\n", (2, 1), "indented with spaces"),
        ('pattern: "\\A- "\n', (1, 12), "in single quotes"),
        ("a: 'x\nb: 3\n", (3, 1), "quotes that were opened"),
    ],
)
def test_the_usual_mistakes_in_yaml_are_told_in_plain_words(text: str, place: tuple[int, int], said: str) -> None:
    with pytest.raises(MalformedFileError) as caught:
        parse_yaml(text)
    assert caught.value.place == place
    assert said in caught.value.why


@for_each("name", ["v1.2.json", "-x.yaml", "a b.yml", ".json"])
def test_a_file_whose_name_cannot_be_a_workflow_says_so(name: str) -> None:
    with pytest.raises(ConfigError, match="not a valid workflow name"):
        read_workflow(b"{}", source=f"/x/{name}")


def test_a_file_that_is_too_large_is_not_parsed() -> None:
    with pytest.raises(ConfigError, match="larger than"):
        read_workflow(b"a" * 1_000_001, source="a.yaml")


def test_the_published_schemas_accept_what_is_read_and_refuse_what_is_not() -> None:
    alone, whole = workflow_schema(), json_schema()
    for schema, wrapped in ((alone, False), (whole, True)):
        jsonschema.Draft202012Validator.check_schema(schema)
        check = jsonschema.Draft202012Validator(schema)
        assert check.is_valid({"workflows": {"make": FULL}} if wrapped else FULL)
        for value, key, _ in ERRORS:
            if key == "steps[0].name":
                continue
            assert not check.is_valid({"workflows": {"make": value}} if wrapped else value), value

"""Answers of workflow steps: extraction, and validation by the schema."""

import json
from functools import partial

import pytest

from chatops.domain.tools import Problem
from chatops.engine.contract import AnswerFacts
from chatops.policy.workflow import PatternGate
from chatops.sandbox.isolated import Limits, run_isolated
from chatops.tools import answers
from chatops.tools.answers import MAX_FENCES, read_answer
from tests.support.cases import for_each

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "ports": {"type": "array", "items": {"type": "integer"}}},
        "required": ["name"],
        "additionalProperties": False,
    }
)


@for_each(
    "text",
    [
        '{"b": 1, "a": "é"}',
        "{'b': 1, 'a': 'é',}",
        '\n  {"a": "é", "b": 1}\n',
        'Here it is:\n```json\n{"a": "é", "b": 1}\n```\nThat was it.',
        'An unclosed fence:\n```\n{"a": "é", "b": 1}',
        '~~~\n{"a": "é", "b": 1}\n~~~',
        '```python\nprint({})\n```\n```json\n{"a": "é", "b": 1}\n```',
        'The answer is {"a": "é", "b": 1}, as you wanted.',
        '```json {"a": "é", "b": 1} ```',
    ],
)
def test_the_object_is_found_in_the_text_in_a_fence_or_at_the_first_brace(text: str) -> None:
    assert read_answer(text, schema="") == AnswerFacts(value='{"a":"é","b":1}')


@for_each(
    "before",
    [
        "Here is {result}: ",
        "The sets {} and {1, 2} are done.\n",
        'I set {"a": 1}.\n',
        '```json\n{"a": 1}\n```\nSo:\n',
        "f{x} = {x} + {y}\n",
    ],
)
def test_a_preamble_with_braces_hides_no_envelope(before: str) -> None:
    envelope = '{"reasoning":"x","result":{"n":1},"success":true}'
    assert read_answer(before + envelope, schema="").value == envelope


def test_an_object_inside_a_broken_object_is_not_the_answer() -> None:
    for text in ('{"success": true, "result": {"n": 1}, "reas', 'So {x}: {"a" {"success": true, "result": 1}'):
        assert read_answer(text, schema="").value == ""


@for_each(
    ("text", "why"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        ("All good.", "no JSON object"),
        ("[]", "an array"),
        ('[{"success": true, "result": 1}]', "an array"),
        ("5", "a number"),
        ("null", "null"),
        ("true", "a boolean"),
        ('"{}"', "a string"),
        ('{"a": ', "no JSON object"),
        ("{" * 100_000, "no JSON object"),
        ('{"a": NaN}', "no JSON object"),
        ('{"a": "\\ud83d"}', "surrogate"),
        ("```json\n[1]\n```", "no JSON object"),
    ],
)
def test_what_is_no_object_is_a_problem_in_words_and_never_a_crash(text: str, why: str) -> None:
    facts = read_answer(text, schema=SCHEMA)
    assert facts.value == ""
    assert (facts.bare_problems, facts.result_problems) == ((), ())
    assert [why in problem.message for problem in facts.problems] == [True]


def test_an_empty_object_is_read_as_an_answer() -> None:
    assert read_answer("{}", schema="") == AnswerFacts(value="{}")


def test_a_result_that_fits_has_no_problems_though_the_envelope_does_not_fit() -> None:
    facts = read_answer('{"success": true, "result": {"name": "db", "ports": [1]}}', schema=SCHEMA)
    assert facts.result_problems == ()
    assert {problem.path for problem in facts.bare_problems} == {"success", "result", "name"}


def test_a_bare_object_that_fits_has_no_problems() -> None:
    assert read_answer('{"name": "db"}', schema=SCHEMA) == AnswerFacts(value='{"name":"db"}')


def test_problems_name_the_place_below_result() -> None:
    facts = read_answer('{"success": true, "result": {"nmae": "db", "ports": [1, "x"]}}', schema=SCHEMA)
    paths = {problem.path: problem.message for problem in facts.result_problems}
    assert paths["result.ports[1]"] == "must be integer"
    assert paths["result.name"] == "is required but missing"
    assert "did you mean 'name'" in paths["result.nmae"]
    assert "argument" not in paths["result.nmae"]


def test_a_result_of_the_wrong_type_is_one_problem() -> None:
    facts = read_answer('{"success": true, "result": 5}', schema=SCHEMA)
    assert facts.result_problems == (Problem(path="result", message="must be object", given="5"),)
    listed = read_answer('{"success": true, "result": ["x"]}', schema='{"type":"array","items":{"type":"integer"}}')
    assert [problem.path for problem in listed.result_problems] == ["result[0]"]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "5",
        '{"type": "martian"}',
        '{"properties": {"name": {"pattern": "("}}}',
        '{"$ref": "http://127.0.0.1:9/x"}',
        '{"$ref": "#/nowhere"}',
    ],
)
def test_a_schema_that_cannot_be_used_lets_nothing_pass(schema: str) -> None:
    facts = read_answer('{"name": "db"}', schema=schema)
    assert ["cannot be used" in problem.message for problem in facts.bare_problems] == [True]


def test_hostile_text_in_an_answer_is_spelled_out_in_problems() -> None:
    facts = read_answer('{"success": true, "result": {"name": "\\u001b[31m\\u202e", "x\\u001b": 1}}', schema=SCHEMA)
    assert "\x1b" not in str(facts.result_problems)
    assert "\u202e" not in str(facts.result_problems)


def test_an_answer_of_many_fences_ends() -> None:
    text = "```\nno\n" * 10_000 + '{"a": 1}'
    assert MAX_FENCES < 10_000
    assert read_answer(text, schema="").value == '{"a":1}'


CITED = PatternGate(name="cited", pattern=r"\[\d+\]", pointer="/notes")
FINISHED = PatternGate(name="finished", pattern="open point", negated=True)


def enveloped(result: object) -> str:
    """An answer."""
    return json.dumps({"success": True, "result": result})


def test_a_pattern_has_to_match_or_must_not() -> None:
    bad = read_answer(enveloped({"notes": "open point"}), schema="", patterns=(CITED, FINISHED))
    assert bad.result_unmatched == (
        r"cited: the value at /notes must match \[\d+\]",
        "finished: the result must not match open point",
    )
    assert read_answer(enveloped({"notes": "as in [1]"}), schema="", patterns=(CITED, FINISHED)).result_unmatched == ()


def test_patterns_are_tried_on_the_bare_object_too() -> None:
    facts = read_answer('{"notes": "as in [1]"}', schema="", patterns=(CITED,))
    assert (facts.bare_unmatched, facts.result_unmatched) == ((), ())
    assert len(read_answer('{"notes": "none"}', schema="", patterns=(CITED,)).bare_unmatched) == 1


@pytest.mark.parametrize(("schema", "quoted"), [("", False), ('{"type": "string"}', True)])
def test_a_pattern_is_matched_against_the_stored_text(schema: str, quoted: bool) -> None:
    whole = PatternGate(name="whole", pattern='^"' if quoted else "^a")
    assert read_answer(enveloped("abc"), schema=schema, patterns=(whole,)).result_unmatched == ()


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "gate",
    [
        PatternGate(name="g", pattern="zzz", pointer="/long", negated=True),
        PatternGate(name="g", pattern="(", pointer="/a"),
        PatternGate(name="g", pattern="x", pointer="/nowhere", negated=True),
    ],
)
def test_a_gate_that_cannot_be_checked_fails(gate: PatternGate) -> None:
    facts = read_answer(enveloped({"a": 1, "long": "y" * 30_000}), schema="", patterns=(gate,))
    assert facts.result_unmatched[0].startswith("g: ")


ENDLESS = "(a+)+$"
LONG = pytest.mark.kill
"""Each takes a second of the processor, in the way that another one has taken before."""


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("schema", "patterns"),
    [
        pytest.param("", (PatternGate(name="endless", pattern=ENDLESS, pointer="/notes", negated=True),), id="gate"),
        pytest.param(json.dumps({"patternProperties": {ENDLESS: False}}), (), id="patternProperties"),
        pytest.param(json.dumps({"properties": {"notes": {"pattern": ENDLESS}}}), (), id="pattern", marks=LONG),
        pytest.param(json.dumps({"properties": {"many": {"uniqueItems": True}}}), (), id="uniqueItems", marks=LONG),
    ],
)
def test_an_exponential_pattern_is_stopped_and_fails(
    schema: str, patterns: tuple[PatternGate, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "run_isolated", partial(run_isolated, limits=Limits(cpu_s=1)))
    notes = "a" * 5_000 + "!"
    result = {"notes": notes, notes: 1, "many": [{"n": n} for n in range(20_000)]}
    facts = read_answer(enveloped(result), schema=schema, patterns=patterns)
    (why,) = facts.result_unmatched
    assert "it took too long" in why
    assert facts.bare_unmatched == facts.result_unmatched


@pytest.mark.more
def test_isolated_checks_give_the_same_result_as_direct_ones() -> None:
    schema = json.dumps({"properties": {"name": {"pattern": "^[a-z]+$"}}, "required": ["name", "ports"]})
    facts = read_answer(enveloped({"name": "DB"}), schema=schema)
    assert {problem.path for problem in facts.result_problems} == {"result.name", "result.ports"}
    assert {problem.path for problem in facts.bare_problems} == {"name", "ports"}
    assert read_answer(enveloped({"name": "db", "ports": []}), schema=schema).result_problems == ()

"""Extract the answer of a workflow step from a model's reply and check it against schema and patterns.

`engine.contract.AnswerFacts` describes what is searched and in which order. Repairs of the JSON reader (a trailing
comma, single quotes) are accepted like strict JSON, because no tool runs on an answer. This module only collects facts;
the engine decides whether an answer is accepted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from chatops.config.entries import adapter_of
from chatops.dialects.json_reader import UnreadableValueError, read_value, read_whole
from chatops.domain.canonical import JsonValue, PointerError, canonical, parse_json, resolve_pointer
from chatops.domain.tools import Problem
from chatops.engine.acceptance import result_text
from chatops.engine.contract import AnswerFacts
from chatops.policy.workflow import PatternGate
from chatops.sandbox.isolated import IsolatedCallError, run_isolated
from chatops.toolkit.output import visible
from chatops.tools.arguments import MAX_TEXT
from chatops.tools.schema import kind_of, may_take_long, problems_in_process

RESULT = "result"
"""Member of the answer envelope that holds the result, which the schema describes."""

MAX_PATTERN_TEXT = 20_000
"""Maximum number of characters that a pattern is tried on; a longer text does not pass."""
MAX_FENCES = 20
"""Maximum number of code fences that are searched."""
MAX_BRACES = 20
"""Maximum number of opening braces in the text at which an object is searched."""

_FENCE = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})[^\n`]*\n", re.MULTILINE)
_KEY_FOLLOWS = re.compile(r"""\{\s*["'“]""")
_NOUN = "item of this object"
"""Name of a member of the answer in the texts of problems."""


def read_answer(text: str, *, schema: str, patterns: Sequence[PatternGate] = ()) -> AnswerFacts:
    """Find the answer in `text` and check it against `schema` and `patterns`.

    `schema` is JSON Schema as text; an empty one accepts any value. Checks that may take long run in an isolated
    subprocess; if they are not done in time, the answer does not pass. Blocks. Never raises.
    """
    if len(text) > MAX_TEXT:
        return _no_answer(f"the answer is {len(text):,} characters long; the limit is {MAX_TEXT:,}")
    if not text.strip():
        return _no_answer("the answer is empty")
    try:
        value = canonical(_find_object(text))
    except RecursionError:
        return _no_answer("the answer is nested too deeply")
    except ValueError as error:
        return _no_answer(str(error))
    if not patterns and not may_take_long(schema):
        return _check(value, schema, patterns)
    try:
        checked = run_isolated(_check_isolated, value=value, schema=schema, gates=tuple(patterns))
        return adapter_of(AnswerFacts).validate_python(checked)
    except IsolatedCallError as error:
        unchecked = (f"the answer could not be checked: {error}; a shorter answer may help",)
        return AnswerFacts(value=value, bare_unmatched=unchecked, result_unmatched=unchecked)


def _check_isolated(value: str, schema: str, gates: Sequence[Mapping[str, Any]]) -> AnswerFacts:
    return _check(value, schema, [PatternGate(**gate) for gate in gates])


def _check(text: str, schema: str, patterns: Sequence[PatternGate]) -> AnswerFacts:
    """Check an object, given as canonical JSON, and its member ``result``."""
    value = parse_json(text)
    facts = AnswerFacts(value=text, bare_unmatched=_mismatches(patterns, value, schema))
    if schema:
        facts = replace(facts, bare_problems=problems_in_process(value, schema=schema, noun=_NOUN))
    if not isinstance(value, Mapping) or RESULT not in value:
        return facts
    inner = problems_in_process(value[RESULT], schema=schema, noun=_NOUN) if schema else ()
    return replace(
        facts,
        result_unmatched=_mismatches(patterns, value[RESULT], schema),
        result_problems=tuple(replace(problem, path=_under_result(problem.path)) for problem in inner),
    )


def _mismatches(gates: Sequence[PatternGate], result: JsonValue, schema: str) -> tuple[str, ...]:
    return tuple(mismatch for gate in gates if (mismatch := _mismatch(gate, result, schema)))


def _mismatch(gate: PatternGate, result: JsonValue, schema: str) -> str:
    """Return why the result does not pass the gate; empty if it does."""
    try:
        value = resolve_pointer(result, gate.pointer)
        pattern = re.compile(gate.pattern)
    except PointerError as error:
        return f"{gate.name}: {error}"
    except (re.error, RecursionError, OverflowError):
        return f"{gate.name}: its pattern is invalid"
    text = result_text(value, schema="" if gate.pointer else schema)
    where = f"the value at {gate.pointer}" if gate.pointer else "the result"
    if len(text) > MAX_PATTERN_TEXT:
        return f"{gate.name}: {where} is {len(text):,} characters long; the limit is {MAX_PATTERN_TEXT:,}"
    if bool(pattern.search(text)) is gate.negated:
        return f"{gate.name}: {where} must{' not' if gate.negated else ''} match {gate.pattern}"
    return ""


def _find_object(text: str) -> Mapping[str, JsonValue]:
    """Return the answer object in `text`. Raises ValueError with the reason."""
    try:
        whole = read_whole(text).value
    except UnreadableValueError as error:
        return _find_object_within(text, error)
    if not isinstance(whole, Mapping):
        raise ValueError(f"the answer must be one JSON object, not {kind_of(whole)}")
    return whole


def _find_object_within(text: str, fault: UnreadableValueError) -> Mapping[str, JsonValue]:
    """Return the answer object in `text`, which is not one as a whole because of `fault`. Raises ValueError."""
    first_object: Mapping[str, JsonValue] | None = None
    try:
        for value in _objects_in(text):
            # An answer envelope. Another object counts only if there is none.
            if "success" in value and ("result" in value or value["success"] is False):
                return value
            # The first one that is not empty.
            first_object = first_object or value
    except UnreadableValueError as error:
        fault = error
    if first_object is None:
        raise ValueError(f"the answer contains no JSON object: {fault.message}")
    return first_object


def _objects_in(text: str) -> Iterator[Mapping[str, JsonValue]]:
    """Yield the objects in code fences (closed or not), then those in the text.

    Raises UnreadableValueError if an object in the text is broken.
    """
    for opening in islice(_FENCE.finditer(text), MAX_FENCES):
        closing = re.compile(rf"^[ \t]*{re.escape(opening['mark'])}", re.MULTILINE).search(text, opening.end())
        inside = text[opening.end() : closing.start() if closing else len(text)]
        if inside.lstrip().startswith("{"):
            with suppress(UnreadableValueError):
                value = read_value(inside, 0).value
                if isinstance(value, Mapping):
                    yield value
    at = text.find("{")
    for _ in range(MAX_BRACES):
        if at < 0:
            return
        try:
            read = read_value(text, at)
        except UnreadableValueError:
            # An object nested in a broken one is not the answer, so stop here. A brace in prose, such as {name}, does
            # not start an object and is skipped.
            if _KEY_FOLLOWS.match(text, at):
                raise
            at += 1
        else:
            if isinstance(read.value, Mapping):
                yield read.value
            at = read.end
        at = text.find("{", at)


def _under_result(path: str) -> str:
    joint = "" if not path or path.startswith("[") else "."
    return f"{RESULT}{joint}{path}"


def _no_answer(why: str) -> AnswerFacts:
    return AnswerFacts(problems=(Problem(path="", message=visible(why, limit=300)),))

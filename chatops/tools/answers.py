"""Reads the answer of a workflow's step out of what the model wrote, and holds it against schema and patterns.

What is looked for, and where, is said at `engine.contract.AnswerFacts`; the reader's repairs (a trailing comma, single
quotes) are as good as JSON here, since nothing runs by an answer. Nothing here decides whether an answer is
good: that is the engine's matter.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import islice

from pydantic import TypeAdapter

from chatops.dialects.json_reader import Unreadable, read_value, read_whole
from chatops.domain.canonical import JsonValue, canonical, parsed
from chatops.domain.tools import Problem
from chatops.engine.acceptance import spelled
from chatops.engine.contract import AnswerFacts
from chatops.engine.pointer import NotThere, resolve
from chatops.policy.workflow import PatternGate
from chatops.tools.apart import NotDone, apart
from chatops.tools.arguments import MAX_TEXT
from chatops.tools.output import visible
from chatops.tools.problems import kind_of
from chatops.tools.schema import may_take_long, problems_here

RESULT = "result"
"""The member of the envelope that the schema is about."""

MAX_PATTERN_TEXT = 20_000
"""Characters that a pattern is tried on; a longer text does not pass."""
MAX_FENCES = 20
"""Code fences that are looked into."""
MAX_BRACES = 20
"""Braces in the text at which an object is looked for."""

_FENCE = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})[^\n`]*\n", re.MULTILINE)
_KEY_FOLLOWS = re.compile(r"""\{\s*["'“]""")
_KEY = "item of this object"


def read_answer(text: str, *, schema: str, patterns: Sequence[PatternGate] = ()) -> AnswerFacts:
    """What `text` holds, and what `schema` (JSON Schema as text; empty: any) and `patterns` say to it.

    What may take long is done apart, and does not pass if it is not done in time. Blocks; never raises.
    """
    if len(text) > MAX_TEXT:
        return _none(f"the answer has {len(text):,} characters, at most {MAX_TEXT:,} are read")
    if not text.strip():
        return _none("the answer is empty")
    try:
        value = canonical(_object(text))
    except RecursionError:
        return _none("the answer is nested too deeply")
    except ValueError as error:
        return _none(str(error))
    if not patterns and not may_take_long(schema):
        return _judged(value, schema, patterns)
    gates: JsonValue = _gates().dump_python(tuple(patterns), mode="json")
    try:
        return _facts().validate_python(apart(_judged_apart, value=value, schema=schema, gates=gates))
    except NotDone as error:
        untold = (f"the checks of this step could not be made, as {error}; a shorter answer may help",)
        return AnswerFacts(value=value, bare_unmatched=untold, result_unmatched=untold)


def _judged_apart(value: str, schema: str, gates: JsonValue) -> JsonValue:
    found: JsonValue = _facts().dump_python(_judged(value, schema, _gates().validate_python(gates)), mode="json")
    return found


@cache
def _gates() -> TypeAdapter[tuple[PatternGate, ...]]:
    return TypeAdapter(tuple[PatternGate, ...])


@cache
def _facts() -> TypeAdapter[AnswerFacts]:
    return TypeAdapter(AnswerFacts)


def _judged(spelled_value: str, schema: str, patterns: Sequence[PatternGate]) -> AnswerFacts:
    """What is to be said of an object, given as canonical JSON, and of its member ``result``."""
    value = parsed(spelled_value)
    facts = AnswerFacts(value=spelled_value, bare_unmatched=_unmatched(patterns, value, schema))
    if schema:
        facts = replace(facts, bare_problems=problems_here(value, schema=schema, noun=_KEY))
    if not isinstance(value, Mapping) or RESULT not in value:
        return facts
    inner = problems_here(value[RESULT], schema=schema, noun=_KEY) if schema else ()
    return replace(
        facts,
        result_unmatched=_unmatched(patterns, value[RESULT], schema),
        result_problems=tuple(replace(problem, path=_under_result(problem.path)) for problem in inner),
    )


def _unmatched(gates: Sequence[PatternGate], result: JsonValue, schema: str) -> tuple[str, ...]:
    return tuple(trouble for gate in gates if (trouble := _trouble(gate, result, schema)))


def _trouble(gate: PatternGate, result: JsonValue, schema: str) -> str:
    """Why the gate does not let a result pass; empty if it does."""
    try:
        value = resolve(result, gate.pointer)
        pattern = re.compile(gate.pattern)
    except NotThere as error:
        return f"{gate.name}: {error}"
    except (re.error, RecursionError, OverflowError):
        return f"{gate.name}: its pattern cannot be read"
    text = spelled(value, schema="" if gate.pointer else schema)
    where = f"what stands at {gate.pointer}" if gate.pointer else "the result"
    if len(text) > MAX_PATTERN_TEXT:
        return f"{gate.name}: {where} has {len(text)} characters, at most {MAX_PATTERN_TEXT} are checked"
    if bool(pattern.search(text)) is gate.negated:
        return f"{gate.name}: {where} {'must not' if gate.negated else 'has to'} match {gate.pattern}"
    return ""


def _object(text: str) -> Mapping[str, JsonValue]:
    """The object in `text`. Raises ValueError with the reason in words."""
    try:
        whole = read_whole(text).value
    except Unreadable as error:
        first = error
    else:
        if isinstance(whole, Mapping):
            return whole
        raise ValueError(f"the answer has to be one JSON object, not {kind_of(whole)}")
    found: Mapping[str, JsonValue] | None = None
    try:
        for value in _objects(text):
            if "success" in value and ("result" in value or value["success"] is False):
                return value
            found = found or value
    except Unreadable as error:
        first = error
    if found is None:
        raise ValueError(f"there is no JSON object in the answer: {first.message}")
    return found


def _objects(text: str) -> Iterator[Mapping[str, JsonValue]]:
    """The objects in code fences, closed or not, then those in the text. Raises Unreadable at a broken one in it."""
    for opening in islice(_FENCE.finditer(text), MAX_FENCES):
        closing = re.compile(rf"^[ \t]*{re.escape(opening['mark'])}", re.MULTILINE).search(text, opening.end())
        inside = text[opening.end() : closing.start() if closing else len(text)]
        if inside.lstrip().startswith("{"):
            with suppress(Unreadable):
                yield from _object_at(inside, 0)[0]
    at = text.find("{")
    for _ in range(MAX_BRACES):
        if at < 0:
            return
        try:
            values, at = _object_at(text, at)
        except Unreadable:
            # What is nested in a broken object is no answer; a brace in prose, such as {name}, begins none.
            if _KEY_FOLLOWS.match(text, at):
                raise
            at += 1
        else:
            yield from values
        at = text.find("{", at)


def _object_at(text: str, at: int) -> tuple[list[Mapping[str, JsonValue]], int]:
    """The object that begins at `at`, if it is one, and its end. Raises Unreadable."""
    read = read_value(text, at)
    return [read.value] if isinstance(read.value, Mapping) else [], read.end


def _under_result(path: str) -> str:
    joint = "" if not path or path.startswith("[") else "."
    return f"{RESULT}{joint}{path}"


def _none(why: str) -> AnswerFacts:
    return AnswerFacts(problems=(Problem(path="", message=visible(why, limit=300)),))

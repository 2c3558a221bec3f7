"""Validate a value against a foreign JSON Schema, with problems worded like those of built-in tools.

A problem says where, what, the given value and the nearest valid one. Formats are checked only in what a user types
(`format_problems`): JSON Schema leaves them unchecked by default, and models' calls stay so, as a strict check would
refuse what tools take.
"""

import difflib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from chatops.config.entries import adapter_of
from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import Problem
from chatops.sandbox.isolated import IsolatedCallError, run_isolated
from chatops.toolkit.output import visible

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError as SchemaError

log = logging.getLogger(__name__)

ARGUMENT = "argument of this tool"
MEMBER = "key of this object"
_UNBOUNDED = (
    *("pattern", "patternProperties", "uniqueItems"),
    *("$ref", "$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"),
)
"""Keywords whose cost grows polynomially with the value, or with the depth of their nesting."""
MAX_PROBLEMS = 8
"""Maximum number of problems that are reported of one value; a model corrects no more at a time."""
MISSING = "is required but missing"
_MAX_LISTED = 24
"""Maximum number of allowed values or known names that are listed, because the model reads them."""
_EMAIL = re.compile(r"[^\s@<>,;]+@[^\s@<>,;.]+(\.[^\s@<>,;.]+)*")
_URI = re.compile(r"[a-z][a-z0-9+.-]*:[^\s<>\"\\^`{|}]+", re.ASCII | re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)


def field_path(parts: Iterable[str | int]) -> str:
    """Return a path in the arguments as text: ``edits[0].old``."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{visible(part, limit=60)}"
    return path.removeprefix(".")


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the most similar of `names`, or an empty string."""
    by_fold = {candidate.casefold(): candidate for candidate in names}
    # Comparing long names takes long.
    close = difflib.get_close_matches(name[:100].casefold(), list(by_fold), n=1)
    return by_fold[close[0]] if close else ""


def unknown_key(path: str, name: str, value: object, *, known: Sequence[str], noun: str) -> Problem:
    """Return the problem that a key is not one of `known`; `noun` says what keys are called here."""
    close = nearest(name, known)
    hint = f"did you mean '{close}'?" if close else f"valid names: {_list_words(sorted(known))}"
    article = "an" if noun[:1] in "aeiou" else "a"
    return Problem(path=path, message=f"is not {article} {noun}; {hint}", given=show_value(value))


def not_allowed(path: str, value: object, *, allowed: Sequence[object]) -> Problem:
    """Return the problem that a value is not one of `allowed`."""
    words = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in allowed]
    close = nearest(value if isinstance(value, str) else json.dumps(value, default=str), words)
    hint = f"; did you mean '{close}'?" if close else ""
    return Problem(path=path, message=f"must be one of {_list_words(words)}{hint}", given=show_value(value))


def invalid_value(path: str, message: str, value: object) -> Problem:
    """Return any other problem of a value, with the message of the validator that found it."""
    return Problem(path=path, message=visible(message, limit=200), given=show_value(value))


def first_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the first `MAX_PROBLEMS` of `problems`, without duplicates."""
    return tuple(dict.fromkeys(problems))[:MAX_PROBLEMS]


def show_value(value: object) -> str:
    """Return a given value as one short line."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return visible(text)


def kind_of(value: JsonValue) -> str:
    """Return the JSON type of a value in words, for a message that expects an object."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "an array"


def _list_words(words: Sequence[str]) -> str:
    more = f" and {len(words) - _MAX_LISTED} more" if len(words) > _MAX_LISTED else ""
    return visible(", ".join(words[:_MAX_LISTED]), limit=400) + more if words else "none"


def may_take_long(schema: str) -> bool:
    """Return True if there is no bound on the time to validate an untrusted value against `schema`."""
    try:
        plain = json.dumps(json.loads(schema))
    except (ValueError, RecursionError):
        return False  # An unreadable schema is never validated against.
    return any(f'"{word}"' in plain for word in _UNBOUNDED)


def schema_problems(value: JsonValue, *, schema: str, noun: str = ARGUMENT) -> tuple[Problem, ...]:
    """Validate arguments against a JSON Schema (draft 2020-12 unless it says otherwise) and return the problems.

    A schema that cannot be used or takes too long is a problem too, so nothing passes unchecked. Blocks. Never raises
    and never fetches a ``$ref``.
    """
    if not may_take_long(schema):
        return problems_in_process(value, schema=schema, noun=noun)
    try:
        problems = run_isolated(problems_in_process, value=value, schema=schema, noun=noun)
        return adapter_of(tuple[Problem, ...]).validate_python(problems)
    except IsolatedCallError as error:
        return (Problem(path="", message=f"the arguments could not be checked against the schema: {error}"),)


def problems_in_process(value: JsonValue, *, schema: str, noun: str) -> tuple[Problem, ...]:
    """Validate in this process, without the time limit of `schema_problems`, for callers that have their own.

    `noun` says what the keys of `value` are called.
    """
    from chatops.config.json_schema import validator_of  # slow to import

    try:
        # Unknown names come last, for there may be more of them than are told.
        errors = sorted(
            validator_of(json.loads(schema)).iter_errors(value),
            key=lambda error: (error.validator == "additionalProperties", list(map(str, error.absolute_path))),
        )
        return first_problems(problem for error in errors for problem in _problems_of(error, noun))
    except Exception as error:
        # Many things in a schema can raise (a pattern, a type, a reference), so catch everything.
        log.warning("a schema cannot be used: %s", error)
        return (Problem(path="", message="the schema cannot be used, so nothing can be checked against it"),)


def _problems_of(error: "SchemaError", noun: str) -> Iterator[Problem]:
    path = field_path(error.absolute_path)
    instance: Any = error.instance
    wanted: Any = error.validator_value
    match error.validator:
        case "required":
            missing = (name for name in wanted if name not in instance)
            yield from (Problem(path=_child_path(path, name), message=MISSING) for name in missing)
        case "additionalProperties" if isinstance(error.schema, dict):
            known = list(error.schema.get("properties", {}))
            patterns = list(error.schema.get("patternProperties", {}))
            for name in instance:
                if name not in known and not any(re.search(pattern, name) for pattern in patterns):
                    what = MEMBER if path else noun
                    yield unknown_key(_child_path(path, name), name, instance[name], known=known, noun=what)
        case "enum":
            yield not_allowed(path, instance, allowed=wanted)
        case "const":
            yield not_allowed(path, instance, allowed=[wanted])
        case "type":
            yield invalid_value(path, f"must be {' or '.join(_type_words(error))}", instance)
        case "maxLength":
            # The validator's own message begins with the whole text.
            yield invalid_value(path, f"must have at most {wanted:,} characters, not {len(instance):,}", instance)
        case "anyOf" | "oneOf" if error.context:
            yield from _branch_problems(error, noun)
        case _:
            yield invalid_value(path, error.message, instance)


def _branch_problems(error: "SchemaError", noun: str) -> Iterator[Problem]:
    """Yield the problems of the alternative that was meant: one whose type fits, otherwise name all types."""
    branches: dict[object, list[SchemaError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.relative_schema_path[0], []).append(inner)
    fitting = [errors for errors in branches.values() if not any(map(_rejects_type, errors))]
    if fitting:
        for inner in min(fitting, key=len):
            yield from _problems_of(inner, noun)
        return
    rejections = (inner for errors in branches.values() for inner in errors if _rejects_type(inner))
    types = [word for inner in rejections for word in _type_words(inner)]
    yield invalid_value(field_path(error.absolute_path), f"must be {' or '.join(dict.fromkeys(types))}", error.instance)


def _rejects_type(inner: "SchemaError") -> bool:
    """Return True if the branch rejects the type of the entire value, and not of a part of it."""
    return inner.validator == "type" and not inner.relative_path


def _type_words(error: "SchemaError") -> Sequence[str]:
    """Return the types that a schema with the keyword `type` permits."""
    wanted: Any = error.validator_value
    return [wanted] if isinstance(wanted, str) else list(wanted)


def _child_path(path: str, name: str) -> str:
    part = field_path([name])
    return f"{path}.{part}" if path else part


_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated"})
"""Keywords that may stand beside a reference without restricting a value any further."""
_DEFINITIONS = ("$defs", "definitions")
_MAX_PARTS = 5_000
"""Maximum number of parts of a schema whose references are written out: definitions in definitions multiply."""


class _UnreplaceableError(Exception):
    """The references of a schema cannot be written out."""


def without_references(schema: JsonValue) -> JsonValue:
    """Return `schema` with its definitions in the places that refer to them: some model servers refuse references.

    It is returned as it is if one cannot be replaced, as in a definition that contains itself.
    """
    if not isinstance(schema, Mapping) or not any(key in schema for key in _DEFINITIONS):
        return schema
    body = {key: value for key, value in schema.items() if key not in _DEFINITIONS}
    try:
        written_out = _write_out(body, schema, inside=(), parts_left=iter(range(_MAX_PARTS)))
        text = json.dumps(written_out)
    except (_UnreplaceableError, RecursionError):
        return schema
    # What is left is data, or a keyword that resolves references in another way.
    has_others = any(f'"{word}"' in text for word in ("$ref", "$dynamicRef", "$recursiveRef", "$anchor"))
    return schema if has_others else written_out


def _write_out(
    node: JsonValue, root: Mapping[str, JsonValue], *, inside: tuple[str, ...], parts_left: Iterator[int]
) -> JsonValue:
    """Return a part of the schema `root`; `inside` are the references that led to it. Raises _UnreplaceableError."""
    if next(parts_left, None) is None:
        raise _UnreplaceableError
    match node:
        case Mapping() if isinstance(target := node.get("$ref"), str):
            others = {key: value for key, value in node.items() if key != "$ref"}
            key, _, name = target.removeprefix("#/").partition("/")
            definitions = root.get(key) if key in _DEFINITIONS else None
            definition = definitions.get(name) if isinstance(definitions, Mapping) else None
            if not isinstance(definition, Mapping) or target in inside or not others.keys() <= _ANNOTATIONS:
                raise _UnreplaceableError
            written_out = _write_out(definition, root, inside=(*inside, target), parts_left=parts_left)
            return {**written_out, **others} if isinstance(written_out, Mapping) else written_out
        case Mapping():
            return {key: _write_out(value, root, inside=inside, parts_left=parts_left) for key, value in node.items()}
        case list():
            return [_write_out(value, root, inside=inside, parts_left=parts_left) for value in node]
        case _:
            return node


def format_problems(value: JsonValue, *, schema: str) -> tuple[Problem, ...]:
    """Return a problem for each text of an object that does not have the format that its property names."""
    parsed = json_or_text(schema)
    properties = parsed.get("properties") if isinstance(parsed, dict) else None
    if not isinstance(properties, dict) or not isinstance(value, dict):
        return ()
    problems: list[Problem] = []
    for name, text in value.items():
        field = properties.get(name)
        form = field.get("format") if isinstance(field, dict) else None
        if isinstance(text, str) and isinstance(form, str) and form in FORMATS:
            problems += [] if FORMATS[form].fits(text) else [Problem(path=name, message=FORMATS[form].message)]
    return tuple(problems)


def _has_host_if_web(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme not in ("http", "https") or bool(parts.hostname)


@frozen_dataclass(kw_only=False)
class _Format:
    pattern: re.Pattern[str]
    message: str
    """The problem of a text that does not have the format."""
    parse: Callable[[str], object] = lambda text: True
    """Returns something true for a text of the pattern that has the format; else something false, or it raises
    ValueError."""

    def fits(self, text: str) -> bool:
        with suppress(ValueError):
            return self.pattern.fullmatch(text) is not None and bool(self.parse(text))
        return False


FORMATS: Mapping[str, _Format] = {
    "email": _Format(_EMAIL, "must be an e-mail address, such as NAME@HOST"),
    "uri": _Format(_URI, "must be an address, such as https://example.org", _has_host_if_web),
    "date": _Format(_DATE, "must be a date, such as 2026-01-31", date.fromisoformat),
    "date-time": _Format(
        _DATE_TIME,
        "must be a date and time, such as 2026-01-31T09:30:00Z",
        lambda text: datetime.fromisoformat(text.upper()),
    ),
}
"""The known formats."""

"""Read the arguments that a model wrote: parse them, require an object, validate it by the schema.

Text that is not JSON, control characters in texts apart, is repaired if it has only one possible meaning, and what was
assumed is reported, so that the user is asked. Text that was cut off or is ambiguous is a problem; it is never guessed.
"""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import replace

from pydantic import BaseModel, ValidationError

from chatops.config.entries import error_path
from chatops.dialects.json_reader import UnreadableValueError, read_whole, unwrap
from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import Problem, ToolCall
from chatops.toolkit.output import visible
from chatops.tools.schema import field_path, first_problems, invalid_value, kind_of, schema_problems, show_value

log = logging.getLogger(__name__)

MAX_TEXT = 8_000_000
"""Maximum number of characters of arguments that are read."""
_MAX_DIGITS = 400
"""Maximum number of digits of a number: longer ones can be an attack on the code that prints them."""
_MAX_LOGGED = 20_000
"""Maximum number of characters about the problems of one value that are logged."""


@frozen_dataclass
class Arguments:
    """Arguments of a call as canonical JSON text and as an object, or the problems with them."""

    text: str
    value: Mapping[str, JsonValue]
    problems: tuple[Problem, ...] = ()
    repairs: tuple[str, ...] = ()


class _AmbiguousError(ValueError):
    """The text is JSON that two parsers could understand differently."""


def parse(call: ToolCall) -> Arguments:
    """Parse the arguments of `call` as one JSON object, without a schema. Never raises."""
    if call.problem:
        return _with_problem(call, call.problem)
    if len(call.arguments) > MAX_TEXT:
        return _with_problem(
            call, f"the arguments are {len(call.arguments):,} characters long; the limit is {MAX_TEXT:,}"
        )
    if not call.arguments.strip():
        return Arguments(text="{}", value={}, repairs=call.repairs)
    try:
        value, repairs = _read_or_repair(call.arguments)
        text = canonical(value)
        text.encode("utf-8")
    except _AmbiguousError as error:
        return _with_problem(call, str(error))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return _with_problem(call, f"the arguments are not valid JSON: {error.msg} at {where}")
    except RecursionError:
        return _with_problem(call, "the arguments are nested too deeply")
    except UnicodeEncodeError:
        return _with_problem(call, "the arguments contain a lone surrogate (half of a character)")
    except ValueError:
        return _with_problem(call, "the arguments contain a number that cannot be read")
    if not isinstance(value, dict):
        return _with_problem(call, f"the arguments must be one JSON object, not {kind_of(value)}")
    return Arguments(text=text, value=value, repairs=tuple(dict.fromkeys((*call.repairs, *repairs))))


def _read_or_repair(text: str) -> tuple[JsonValue, tuple[str, ...]]:
    """Return the value, and the assumptions that were made to read it. Raises ValueError or RecursionError."""
    repairs: tuple[str, ...] = ()
    try:
        value = _loads(text)
    except json.JSONDecodeError as refused:
        try:
            read = read_whole(text)
        except UnreadableValueError as error:
            raise _AmbiguousError("the arguments are incomplete: they were cut off") if error.cut else refused from None
        value, repairs = read.value, tuple(map(str, read.repairs))
    try:
        # Quoted arguments count as a repair too.
        inner, assumed = unwrap(value)
    except UnreadableValueError:
        return value, repairs
    return inner, (*repairs, *map(str, assumed))


def _loads(text: str) -> JsonValue:
    value: JsonValue = json.loads(
        text,
        strict=False,
        object_pairs_hook=_object_without_ambiguity,
        parse_constant=_refuse_constant,
        parse_float=_finite_float,
        parse_int=_bounded_int,
    )
    return value


def _object_without_ambiguity(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result: dict[str, JsonValue] = {}
    for key, value in pairs:
        if key in result and canonical(result[key]) != canonical(value):
            raise _AmbiguousError(f"the key '{visible(key)}' occurs twice with different values")
        result[key] = value
    return result


def _refuse_constant(name: str) -> JsonValue:
    raise _AmbiguousError(f"{name} is not a JSON number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or len(text) > _MAX_DIGITS:
        raise _AmbiguousError(f"the number {visible(text, limit=20)} is out of range")
    return value


def _bounded_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _AmbiguousError(f"the number {visible(text, limit=20)} is out of range")
    return int(text)


def fit(
    arguments: Arguments, *, model: type[BaseModel], schema: str, strict: bool
) -> tuple[Arguments, BaseModel | None]:
    """Validate against the model of a tool, and its `schema`. The returned text is the validated value. May block.

    `strict` allows no coercion: the user then approves exactly what the model wrote.
    """
    if arguments.problems:
        return arguments, None
    try:
        value = model.model_validate_json(arguments.text, strict=strict)
    except ValidationError as error:
        log.info("arguments of %s do not fit:\n%s", model.__name__, without_values(error))
        unfit = fit_schema(arguments, schema=schema)
        return unfit if unfit.problems else replace(arguments, problems=_beyond_schema(error, arguments.value)), None
    understood = value.model_dump(mode="json", exclude_unset=True)
    return replace(arguments, text=canonical(understood), value=understood), value


def _beyond_schema(error: ValidationError, value: Mapping[str, JsonValue]) -> tuple[Problem, ...]:
    """Return the problems that a function of the model's own has found: a schema cannot say them."""
    return first_problems(
        invalid_value(
            field_path(error_path(detail["loc"], value, missing=False)),
            detail["msg"].removeprefix("Value error, "),
            detail["input"],
        )
        for detail in error.errors(include_url=False, include_context=False)
    )


def without_values(error: ValidationError) -> str:
    """Describe all errors for the log, one line each, without the values, which may be secrets."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    lines = (f"{field_path(detail['loc']) or 'the whole'}: {visible(detail['msg'], limit=300)}" for detail in details)
    text = "\n".join(lines)
    left_out = len(text) - _MAX_LOGGED
    return text if left_out <= 0 else f"{text[:_MAX_LOGGED]}\n({left_out:,} further characters are left out)"


def fit_schema(arguments: Arguments, *, schema: str) -> Arguments:
    """Validate against a foreign JSON Schema (draft 2020-12 unless it says otherwise). Never fetches a ``$ref``."""
    if arguments.problems:
        return arguments
    return replace(arguments, problems=schema_problems(dict(arguments.value), schema=schema))


def _with_problem(call: ToolCall, message: str) -> Arguments:
    problem = Problem(path="", message=message, given=show_value(call.arguments))
    return Arguments(text=call.arguments, value={}, problems=(problem,), repairs=call.repairs)

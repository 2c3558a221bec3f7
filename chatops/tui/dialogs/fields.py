"""The arguments of a call as fields to edit: what a JSON Schema says of each, and the values that texts mean.

Nothing here draws. Whatever a schema says, fields that nobody touches give back the arguments as they were.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from chatops.domain.canonical import JsonValue, json_or_text, parse_json
from chatops.domain.frozen_dataclass import frozen_dataclass

MAIN_ARGUMENTS = ("command", "code", "content", "new", "text")
"""Names of arguments that hold the main payload of a call, the most usual first."""
_LONGEST_LINE = 60
"""Texts of more characters get a field of several lines."""


class FieldKind(StrEnum):
    """How an argument is edited."""

    LINE = "text"
    LONG = "long text"
    INTEGER = "whole number"
    NUMBER = "number"
    CHOICE = "choice"
    """One of a few values, such as true and false."""
    JSON = "JSON"


class Absent:
    """Marks an argument that the call does not give."""


ABSENT: Final = Absent()
ArgumentValue = JsonValue | Absent


@frozen_dataclass
class ArgumentField:
    """One argument of a call. `choices` are the values of a `CHOICE`, with `ABSENT` if it is absent or may be."""

    name: str
    kind: FieldKind
    value: ArgumentValue
    required: bool = False
    description: str = ""
    choices: tuple[ArgumentValue, ...] = ()

    @property
    def text(self) -> str:
        """The present value as text to edit."""
        match self.value:
            case Absent():
                return ""
            case str() as text if self.kind in (FieldKind.LINE, FieldKind.LONG):
                return text
            case None if self.kind is not FieldKind.JSON:
                return ""
            case value:
                return json.dumps(value, ensure_ascii=False, indent=2 if self.kind is FieldKind.JSON else None)

    def parsed(self, text: str) -> ArgumentValue:
        """Return the value that `text` means. Raises ValueError with a message for the user."""
        if text == self.text:
            return self.value
        if not text and not self.required and self.kind is not FieldKind.CHOICE:
            return ABSENT
        match self.kind:
            case FieldKind.INTEGER:
                return _parse_integer(text)
            case FieldKind.NUMBER:
                return _parse_number(text)
            case FieldKind.JSON:
                return _parse_json(text)
            case _:
                return text


def choice_text(value: ArgumentValue) -> str:
    """Return a value of a choice as it is shown."""
    return "not given" if isinstance(value, Absent) else value if isinstance(value, str) else json.dumps(value)


def fields_of(schema: str, arguments: str) -> tuple[ArgumentField, ...]:
    """Return a field for each argument that the schema names or the call gives; none if it gives no JSON object.

    Required ones come first, in the order of the schema's list: its properties are stored by name.
    """
    given = json_or_text(arguments)
    if not isinstance(given, dict):
        return ()
    wanted = _as_mapping(json_or_text(schema))
    properties = _as_mapping(wanted.get("properties"))
    required = wanted.get("required")
    needed = list(map(str, required)) if isinstance(required, list) else []
    first = [name for name in needed if name in properties]
    names = list(dict.fromkeys([*first, *properties, *given]))
    return tuple(
        _field(name, _as_mapping(properties.get(name)), given.get(name, ABSENT), required=name in needed)
        for name in names
    )


def with_values(arguments: str, values: Mapping[str, ArgumentValue]) -> str:
    """Return the arguments (a JSON object) with other values, as JSON text. Absent ones are left out."""
    given = _as_mapping(json_or_text(arguments))
    merged = {**given, **values}
    # Escapes mean the same, and a text with half a surrogate pair could not be stored otherwise.
    return json.dumps({name: value for name, value in merged.items() if not isinstance(value, Absent)})


def main_text(arguments: str) -> tuple[str, str]:
    """Return the name and value of the argument that is the main payload: a text. Two empty texts if there is none."""
    texts = {name: value for name, value in _as_mapping(json_or_text(arguments)).items() if isinstance(value, str)}
    if not texts:
        return "", ""
    name = next((name for name in MAIN_ARGUMENTS if name in texts), max(texts, key=lambda name: len(texts[name])))
    return name, texts[name]


def _field(name: str, schema: Mapping[str, Any], value: ArgumentValue, *, required: bool) -> ArgumentField:
    described = schema.get("description")
    kind, values = _field_kind(name, schema, value)
    choices: tuple[ArgumentValue, ...] = values
    if kind is FieldKind.CHOICE:
        if not required or value is ABSENT:
            # What nobody gave is not chosen in advance either.
            choices = (ABSENT, *choices)
        if all(choice_text(value) != choice_text(choice) for choice in choices):
            choices = (value, *choices)
    description = described if isinstance(described, str) else ""
    return ArgumentField(name=name, kind=kind, value=value, required=required, description=description, choices=choices)


def _field_kind(name: str, schema: Mapping[str, Any], value: ArgumentValue) -> tuple[FieldKind, tuple[JsonValue, ...]]:
    known = [*_alternatives(schema)]
    if len(known) == 1:
        (only,) = known
        values = only.get("enum", [only["const"]] if "const" in only else None)
        if isinstance(values, list) and values and all(isinstance(member, str | int | float) for member in values):
            return FieldKind.CHOICE, tuple(values)
        kind = only.get("type")
    else:
        kind = None
    if kind is None:
        # The schema leaves it open: what is there decides.
        kind = next((word for type_, word in _SCHEMA_TYPES if isinstance(value, type_)), "")
    match kind:
        case "boolean" if isinstance(value, bool | None | Absent):
            return FieldKind.CHOICE, (True, False)
        case "integer" if isinstance(value, int | None | Absent):
            return FieldKind.INTEGER, ()
        case "number" if isinstance(value, int | float | None | Absent):
            return FieldKind.NUMBER, ()
        case "string" if isinstance(value, str | None | Absent):
            long = (
                name in MAIN_ARGUMENTS
                or name == "old"
                or (isinstance(value, str) and ("\n" in value or len(value) > _LONGEST_LINE))
            )
            return FieldKind.LONG if long else FieldKind.LINE, ()
        case _:
            return FieldKind.JSON, ()


_SCHEMA_TYPES: Sequence[tuple[type, str]] = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))


def _alternatives(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what the schema permits besides null, each as a schema without alternatives."""
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            yield from (_as_mapping(part) for part in schema[key] if _as_mapping(part).get("type") != "null")
            return
    if isinstance(schema.get("type"), list):
        yield from ({**schema, "type": kind} for kind in schema["type"] if kind != "null")
        return
    yield schema


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else MappingProxyType({})


def _parse_integer(text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError("A whole number is needed, such as 60.") from None


def _parse_number(text: str) -> float:
    try:
        value = float(text.strip())
    except ValueError:
        raise ValueError("A number is needed, such as 0.5.") from None
    if not math.isfinite(value):
        raise ValueError("A finite number is needed.")
    return value


def _parse_json(text: str) -> JsonValue:
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        reason = f"{error.msg[:1].lower()}{error.msg[1:]}"
        raise ValueError(f"Line {error.lineno}, column {error.colno} is not valid JSON: {reason}.") from None
    except (ValueError, RecursionError):
        raise ValueError("This JSON cannot be used: a number is too long, or it is nested too deeply.") from None

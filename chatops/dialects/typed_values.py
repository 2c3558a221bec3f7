"""Bare text as values of a JSON Schema, for formats that write each argument without quotes.

A declared string stays as it was written, whatever it looks like. Any other value has to read as its declared type, or
the call is refused. Where a string is one of several types, a value that is strictly one of the others becomes that
one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from chatops.dialects.json_reader import read_whole, unwrap
from chatops.dialects.reading import Repair, Schema, UnreadableValueError
from chatops.domain.canonical import JsonValue, PointerError, resolve_pointer

_TYPE_NAMES = {
    **dict.fromkeys(("string", "str", "text", "char", "varchar"), "string"),
    **dict.fromkeys(("integer", "int", "int32", "int64", "long", "short", "uint"), "integer"),
    **dict.fromkeys(("number", "float", "double", "num", "decimal"), "number"),
    **dict.fromkeys(("boolean", "bool", "binary"), "boolean"),
    **dict.fromkeys(("array", "arr", "list", "sequence", "tuple"), "array"),
    **dict.fromkeys(("object", "dict", "map", "mapping"), "object"),
    **dict.fromkeys(("null", "none", "NoneType"), "null"),
}
"""Names that schemas in use give to the JSON types: those of Python, SQL, C and of tables of parameters."""
_ZERO_PADDED = re.compile(r"(?P<sign>-?)0+(?P<number>[0-9]+(?:\.[0-9]+)?)")
"""A number with leading zeros, which JSON does not allow."""
_DEFINITION_KEYS = ("$defs", "definitions")


def strip_newlines(raw: str) -> str:
    """Return `raw` without the line break after the opening tag.

    Only if it had that one, also drop the line break before the closing tag.
    """
    if not raw.startswith(("\n", "\r\n")):
        return raw
    raw = raw[raw.index("\n") + 1 :]
    return raw[:-2] if raw.endswith("\r\n") else raw.removesuffix("\n")


def property_schema(schema: Schema, name: str) -> Schema:
    """Return the schema of the member `name` of an object, with the definitions of `schema`; empty if undeclared."""
    parts = list(_alternatives(schema))
    declared = [members.get(name) for part in parts if isinstance(members := part.get("properties"), Mapping)]
    return _with_definitions(schema, [*declared, *(part.get("additionalProperties") for part in parts)])


def item_schema(schema: Schema) -> Schema:
    """Return the schema of the items of an array, like `property_schema`."""
    return _with_definitions(schema, [part.get("items") for part in _alternatives(schema)])


def _with_definitions(schema: Schema, candidates: Sequence[JsonValue]) -> Schema:
    """Return the first of `candidates` that is a schema, with the definitions of `schema` that it may refer to.

    A reference to another place of `schema` finds nothing in the part, so it declares no type there.
    """
    part = next((candidate for candidate in candidates if isinstance(candidate, Mapping)), None)
    if part is None:
        return {}
    definitions = {key: schema[key] for key in _DEFINITION_KEYS if key in schema}
    return {**definitions, **part} if definitions else part


def types_of(schema: Schema) -> set[str]:
    """Return the JSON types that a schema and its alternatives name; empty if they name none."""
    return _types(list(_alternatives(schema)))


def as_type(raw: str, schema: Schema) -> tuple[JsonValue, tuple[str, ...]]:
    """Return `raw` as a value of `schema`, and the repairs made. Without a declared type it is a string.

    Raises UnreadableValueError if it cannot be such a value.
    """
    parts = list(_alternatives(schema))
    types = _types(parts)
    choices = _choices(parts)
    trimmed = raw.strip()
    if "null" in types and trimmed in ("null", "None"):
        # The value null; from `_as_other_type`, None means that there is no value.
        return None, () if trimmed == "null" else (Repair.PYTHON_WORDS,)
    if types - {"string", "null"}:
        other = _as_other_type(trimmed, types)
        if other is not None:
            return other
    if "string" in types or not types:
        return _matching_choice(raw, choices)
    raise UnreadableValueError(f"it is not of type {' or '.join(sorted(types))}", 0)


def _as_other_type(trimmed: str, types: set[str]) -> tuple[JsonValue, tuple[str, ...]] | None:
    """Return the value and its repairs if it is of one of `types` other than string; None if it is of none.

    Where it may be a string, it stays one if reading it as another type would need repairs.

    Raises UnreadableValueError for text that is no value and may not be a string either.
    """
    may_be_string = "string" in types
    try:
        read = read_whole(trimmed)
    except UnreadableValueError:
        if may_be_string:
            return None
        if "boolean" in types and trimmed.lower() in ("true", "false"):
            return trimmed.lower() == "true", (Repair.CONVERTED,)
        padded = _ZERO_PADDED.fullmatch(trimmed)
        if padded is None or not types & {"integer", "number"}:
            raise
        number = _as_other_type(padded["sign"] + padded["number"], types)
        return None if number is None else (number[0], (*number[1], Repair.NUMBER_SPELLING))
    value, repairs = read.value, read.repairs
    if _type_of(value) in types or (_type_of(value) == "integer" and "number" in types):
        return None if repairs and may_be_string else (value, repairs)
    if may_be_string:
        return None
    if isinstance(value, float) and value.is_integer() and "integer" in types:
        return int(value), (*repairs, Repair.CONVERTED)
    if isinstance(value, str) and "object" in types:
        value, more = unwrap(value)
        return value, (*repairs, *more)
    return None


def _matching_choice(raw: str, choices: Sequence[JsonValue]) -> tuple[str, tuple[str, ...]]:
    """Return `raw`, or the choice of the schema that equals it without surrounding white space and quotes."""
    if not choices or raw in choices:
        return raw, ()
    trimmed = raw.strip()
    # One quotation mark alone is not a quoted empty text.
    is_quoted = len(trimmed) > 1 and trimmed[0] == trimmed[-1] and trimmed[0] in "\"'"
    unquoted = trimmed[1:-1] if is_quoted else trimmed
    choice = next((candidate for candidate in (trimmed, unquoted) if candidate in choices), None)
    return (raw, ()) if choice is None else (choice, (Repair.TRIMMED,))


def _type_of(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"


def _types(parts: Sequence[Schema]) -> set[str]:
    """Return the JSON types that any of `parts` declares."""
    types: set[str] = set()
    for part in parts:
        declared = part.get("type")
        for name in [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []:
            if isinstance(name, str) and name in _TYPE_NAMES:
                types.add(_TYPE_NAMES[name])
        if part.get("nullable") is True:
            types.add("null")
        if declared is None:
            types.update(map(_type_of, _choices([part])))
            if "properties" in part:
                types.add("object")
            if "items" in part:
                types.add("array")
    return types


def _choices(parts: Sequence[Schema]) -> list[JsonValue]:
    """Return the values that enums and constants of `parts` list."""
    choices: list[JsonValue] = []
    for part in parts:
        enum = part.get("enum")
        if isinstance(enum, list):
            choices += enum
        if "const" in part:
            choices.append(part["const"])
    return choices


def _alternatives(schema: Schema) -> Iterator[Schema]:
    """Yield `schema` and all schemas that it is made of, each once, even if its references are circular."""
    seen: set[int] = set()
    waiting: list[JsonValue] = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if "$ref" in part:
            waiting.append(_referenced(part["$ref"], schema))
        for key in ("anyOf", "oneOf", "allOf"):
            branches = part.get(key)
            if isinstance(branches, list):
                waiting += branches


def _referenced(reference: JsonValue, root: Schema) -> JsonValue:
    """Return what a reference such as `#/$defs/Place` points at in `root`; None if it is not there."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    try:
        return resolve_pointer(root, reference[1:])
    except PointerError:
        return None

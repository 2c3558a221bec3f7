"""Reader of the JSON that models write: strictly first, then with named repairs. It never completes a cut-off value.

A repair is allowed where only one meaning is possible (a trailing comma, single quotes, a raw line break).
`UnreadableValueError` is raised if the text ends inside a value, repeats a key with another value or is not JSON even
with repairs. Time is linear in the length read and depth is limited. Nothing here recurses along the text.

Typing the values of formats that write each argument as bare text: the tool's schema says what a value is.

A declared string stays as it was written, whatever it looks like. Any other value has to read as its declared type, or
the call is refused. Where a string is one of several types, a value that is strictly one of the others becomes that
one.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from chatops.dialects.literals import JSON, MAX_DEPTH, LiteralReader
from chatops.dialects.reading import Repair, Schema, UnreadableValueError
from chatops.dialects.strings import possessive
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass

__all__ = ["JsonRead", "Repair", "UnreadableValueError", "read_value", "read_whole", "unwrap"]

_WINDOW = 4096
_GROWTH = 16
_NEAR = 32
_SPACE = re.compile(r"[ \t\n\r]*+")
_EXTRA = re.compile(possessive(r"[ \t\n\r]*+}", "{1,2}"))
_TYPE_NAMES = {
    **dict.fromkeys(("string", "str", "text", "char", "varchar"), "string"),
    **dict.fromkeys(("integer", "int", "int32", "int64", "long", "short", "uint"), "integer"),
    **dict.fromkeys(("number", "float", "double", "num", "decimal"), "number"),
    **dict.fromkeys(("boolean", "bool", "binary"), "boolean"),
    **dict.fromkeys(("array", "arr", "list", "sequence", "tuple"), "array"),
    **dict.fromkeys(("object", "dict", "map", "mapping"), "object"),
    **dict.fromkeys(("null", "none", "NoneType"), "null"),
}
"""Names that schemas in use give to the JSON types."""
_PADDED = re.compile(r"(?P<sign>-?)0+(?P<number>[0-9]+(?:\.[0-9]+)?)")
"""A number with leading zeros, which JSON does not allow."""
_DEFINITIONS = ("$defs", "definitions")


@frozen_dataclass
class JsonRead:
    """One value, and the assumptions made to read it."""

    value: JsonValue
    end: int
    """Index in the text of the first character after the value."""
    repairs: tuple[str, ...] = ()
    """Sentences shown to the user who decides; empty if the text was valid JSON."""
    unclosed: tuple[JsonValue, ...] = ()
    """The objects and arrays whose closing bracket was assumed. Compare by identity, not by equality."""

    def closed(self, value: JsonValue) -> bool:
        """Return True if the model itself closed `value`, which is a part of what was read."""
        return all(part is not value for part in self.unclosed)


class _NotStrictError(ValueError):
    """The strict reader leaves this text to the tolerant one."""


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _NotStrictError
    return result


def _float(digits: str) -> float:
    value = float(digits)
    if value - value != 0:
        raise _NotStrictError
    return value


def _constant(_word: str) -> NoReturn:
    raise _NotStrictError


_strict = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


def read_value(text: str, start: int = 0, *, close_open: bool = False) -> JsonRead:
    """Read the value at `start`, after any white space. Any text may follow it.

    With `close_open`, brackets may be missing after a value that was closed; `unclosed` then lists the containers that
    lacked them. Up to two surplus closing braces after an object are skipped.

    Raises UnreadableValueError if no value can be read.
    """
    begin = start if text.startswith("{", start) else _after_space(text, start)
    read = _read_strictly(text, begin) or _read_tolerantly(text, begin, close_open=close_open)
    if read.end == len(text) or not isinstance(read.value, dict):
        return read
    extra = _EXTRA.match(text, read.end)
    if extra is None:
        return read
    return replace(read, end=extra.end(), repairs=(*read.repairs, Repair.EXTRA_BRACE))


def read_whole(text: str, *, close_open: bool = False) -> JsonRead:
    """Read the value that is all of `text`: only white space may follow. Otherwise like `read_value`."""
    read = read_value(text, close_open=close_open)
    if read.end < len(text) and _after_space(text, read.end) < len(text):
        raise UnreadableValueError("something follows the end of it", read.end)
    return read


def _after_space(text: str, start: int) -> int:
    space = _SPACE.match(text, start)
    return space.end() if space else start


def _read_strictly(text: str, start: int) -> JsonRead | None:
    """Read the value at `start` if it is valid JSON; return None otherwise.

    On failure the reader of the standard library counts the lines of all its input. So it gets no more than a window of
    the text, which grows only if the error was at the end of it.
    """
    size = _WINDOW
    while True:
        rest = len(text) - start
        part, begin = (text, start) if rest == len(text) <= size else (text[start : start + size], 0)
        try:
            value, end = _strict.raw_decode(part, begin)
        except json.JSONDecodeError as error:
            if size >= rest or (error.pos < len(part) - _NEAR and not error.msg.startswith("Unterminated")):
                return None
            size *= _GROWTH
            continue
        except (ValueError, RecursionError):
            return None
        if end == len(part) and size < rest and not isinstance(value, dict | list | str):
            return None
        if _too_deep(part, begin, end, value) or _has_half_characters(part, begin, end, value):
            return None
        return JsonRead(value=value, end=start + end - begin)


def _too_deep(text: str, begin: int, end: int, value: JsonValue) -> bool:
    if end - begin < 2 * MAX_DEPTH or text.count("[", begin, end) + text.count("{", begin, end) <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            part
            for value in level
            if isinstance(value, dict | list)
            for part in (value.values() if isinstance(value, dict) else value)
        ]
    return any(isinstance(value, dict | list) for value in level)


def _has_half_characters(text: str, begin: int, end: int, value: JsonValue) -> bool:
    """Return True if a string in `value` holds a lone surrogate, which no encoding can represent."""
    escaped = text.find("\\u", begin, end) >= 0
    if not escaped and text.isascii():
        return False
    try:
        (json.dumps(value, ensure_ascii=False) if escaped else text[begin:end]).encode()
    except UnicodeEncodeError:
        return True
    return False


def _read_tolerantly(text: str, start: int, *, close_open: bool) -> JsonRead:
    reader = LiteralReader(text, start, JSON, close_open=close_open)
    value = reader.read()
    return JsonRead(value=value, end=reader.at, repairs=tuple(reader.repairs), unclosed=tuple(reader.unclosed))


def unwrap(value: JsonValue) -> tuple[JsonValue, tuple[str, ...]]:
    """Return `value`, or the object that it holds as JSON if it is a string; also return the repairs.

    The string may be encoded once or twice.

    Raises UnreadableValueError for a string that holds no object.
    """
    if not isinstance(value, str):
        return value, ()
    read = read_whole(value)
    repairs = read.repairs
    if isinstance(read.value, str):
        read = read_whole(read.value)
        repairs += read.repairs
    if not isinstance(read.value, dict):
        raise UnreadableValueError("the text does not hold an object", 0)
    return read.value, tuple(dict.fromkeys((Repair.QUOTED_ARGUMENTS, *repairs)))


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
    return _of_a_part(schema, [*declared, *(part.get("additionalProperties") for part in parts)])


def item_schema(schema: Schema) -> Schema:
    """Return the schema of the items of an array, like `property_schema`."""
    return _of_a_part(schema, [part.get("items") for part in _alternatives(schema)])


def _of_a_part(schema: Schema, candidates: Sequence[JsonValue]) -> Schema:
    """Return the first of `candidates` that is a schema, with the definitions of `schema` that it may refer to."""
    found = next((candidate for candidate in candidates if isinstance(candidate, Mapping)), None)
    if found is None:
        return {}
    definitions = {key: schema[key] for key in _DEFINITIONS if key in schema}
    return {**definitions, **found} if definitions else found


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
        return None, () if trimmed == "null" else (Repair.PYTHON_WORDS,)
    if types - {"string", "null"}:
        value = _of_another_type(trimmed, types)
        if value is not None:
            return value
    if "string" in types or not types:
        return _chosen(raw, choices)
    raise UnreadableValueError(f"it is not of type {' or '.join(sorted(types))}", 0)


def _of_another_type(trimmed: str, types: set[str]) -> tuple[JsonValue, tuple[str, ...]] | None:
    """Return the value if it is of one of `types` other than string.

    Repairs are tried only if it cannot be a string.
    """
    try:
        read = read_whole(trimmed)
    except UnreadableValueError:
        if "string" in types:
            return None
        if "boolean" in types and trimmed.lower() in ("true", "false"):
            return trimmed.lower() == "true", (Repair.CONVERTED,)
        padded = _PADDED.fullmatch(trimmed)
        if padded is None or not types & {"integer", "number"}:
            raise
        value, repairs = _of_another_type(padded["sign"] + padded["number"], types) or (None, ())
        return None if value is None else (value, (*repairs, Repair.NUMBER_SPELLING))
    value, repairs = read.value, read.repairs
    if _type_of(value) in types or (isinstance(value, int) and _type_of(value) == "integer" and "number" in types):
        return None if repairs and "string" in types else (value, repairs)
    if "string" in types:
        return None
    if isinstance(value, float) and value.is_integer() and "integer" in types:
        return int(value), (*repairs, Repair.CONVERTED)
    if isinstance(value, str) and "object" in types:
        value, more = unwrap(value)
        return value, (*repairs, *more)
    return None


def _chosen(raw: str, choices: Sequence[JsonValue]) -> tuple[str, tuple[str, ...]]:
    """Return `raw`, or the choice of the schema that equals it without surrounding white space and quotes."""
    if not choices or raw in choices:
        return raw, ()
    trimmed = raw.strip()
    for candidate in (trimmed, trimmed[1:-1] if trimmed[:1] == trimmed[-1:] and trimmed[:1] in "\"'" else trimmed):
        if candidate in choices:
            return candidate, (Repair.TRIMMED,)
    return raw, ()


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
            waiting.append(_target(part["$ref"], schema))
        for key in ("anyOf", "oneOf", "allOf"):
            branches = part.get(key)
            if isinstance(branches, list):
                waiting += branches


def _target(reference: JsonValue, root: Schema) -> JsonValue:
    """Return what a reference such as `#/$defs/Place` points at in `root`; None if it is not there."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: JsonValue = root
    for step in reference[2:].split("/"):
        if not isinstance(found, Mapping):
            return None
        found = found.get(step.replace("~1", "/").replace("~0", "~"))
    return found

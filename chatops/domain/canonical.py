"""Canonical JSON, a digest over it, and JSON pointers (RFC 6901) into it.

An approval is bound to bytes, so all parties have to agree on them: sorted keys, no white space, unescaped text
(similar to RFC 8785, but numbers keep Python's spelling).
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
"""Any value that JSON can hold."""

MAX_NESTED = 200
"""Levels of nesting that can be written again. Python's own JSON writer fails at a depth that depends on its caller."""


def _unique_keys(pairs: list[tuple[str, JsonValue]]) -> JsonValue:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is given twice")
    return value


def _refuse_constant(name: str) -> JsonValue:
    raise ValueError(f"{name} is no JSON number")


def _finite_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is out of range")
    return value


STRICT_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_float=_finite_float
)
"""Decoder that refuses (ValueError) what two parsers may parse differently: NaN, the infinities, duplicate keys."""


def canonical(value: JsonValue) -> str:
    """Return `value` as canonical JSON text.

    Raises ValueError for NaN and the infinities.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parse_json(text: str) -> JsonValue:
    """Parse JSON text.

    Raises ValueError for anything else, see `STRICT_DECODER`, and for nesting too deep.
    """
    try:
        value: JsonValue = STRICT_DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def json_or_text(text: str) -> JsonValue:
    """Return the value of JSON `text`, or `text` itself if that value cannot be written again as standard JSON.

    Text of a model may be no JSON, contain NaN, numbers out of range or duplicate keys, or be nested without end.
    """
    try:
        value = parse_json(text)
    except ValueError:
        return text
    return text if is_deeper(value, MAX_NESTED) else value


def is_deeper(value: JsonValue, levels: int) -> bool:
    """Return True if objects and lists are nested in `value` more than `levels` deep. Never recurses."""
    containers = [value]
    for _ in range(levels):
        containers = [inner for outer in containers for inner in _children(outer) if isinstance(inner, Mapping | list)]
        if not containers:
            return False
    return True


def _children(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def digest(*parts: JsonValue) -> str:
    """Return the SHA-256 (hex) of the canonical JSON of `parts`; lone surrogates are hashed as such."""
    import hashlib  # slow to import

    return hashlib.sha256(canonical(list(parts)).encode("utf-8", "surrogatepass")).hexdigest()


class PointerError(LookupError):
    """Raised if the pointer names nothing in the value. Its text is a clause for the model."""


def resolve_pointer(document: JsonValue, pointer: str) -> JsonValue:
    """Return the value that `pointer` names in `document`; an empty pointer names the whole document.

    Raises PointerError if there is no such value.
    """
    if not pointer:
        return document
    if not pointer.startswith("/"):
        raise PointerError(f"{pointer!r} is no JSON pointer, as it does not begin with '/'")
    value = document
    for part in pointer[1:].split("/"):
        value = _member(value, part.replace("~1", "/").replace("~0", "~"), pointer)
    return value


def _member(value: JsonValue, name: str, pointer: str) -> JsonValue:
    if isinstance(value, Mapping):
        if name in value:
            return value[name]
    elif isinstance(value, list) and _is_index(name) and int(name) < len(value):
        return cast(JsonValue, value[int(name)])
    raise PointerError(f"there is nothing at {pointer}")


def _is_index(name: str) -> bool:
    """Return True for digits without a leading zero (RFC 6901, section 4). Ten digits or more exceed any list here."""
    return name.isascii() and name.isdecimal() and (name == "0" or not name.startswith("0")) and len(name) < 10

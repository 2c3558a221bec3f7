"""One spelling for JSON and one digest over it.

What a person approves is bound to bytes, so every party has to agree on which bytes: sorted keys, no
white space, text as it is (RFC 8785 in spirit; numbers keep Python's spelling).
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
"""Any value that JSON can hold."""


def canonical(value: JsonValue) -> str:
    """`value` as canonical JSON text. Raises ValueError for NaN and the infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parsed(text: str) -> JsonValue:
    """The value that JSON text spells. Raises ValueError for all else: NaN, the infinities, nesting too deep, and an
    object that has a key twice, which two readers may read as two values."""
    try:
        value: JsonValue = json.loads(
            text, object_pairs_hook=_unambiguous, parse_constant=_no_number, parse_float=_finite
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


MOST_NESTED = 200
"""Levels of nesting that are written again: Python's own writer gives up at a depth that depends on its caller."""


def json_or_text(text: str) -> JsonValue:
    """The value that `text` spells, or `text` itself where that value cannot be written again as standard JSON.

    What a model wrote may be text, hold NaN or numbers out of range, give a key twice, or be nested without end.
    """
    try:
        value = parsed(text)
    except ValueError:
        return text
    return text if _too_deep(value) else value


def _too_deep(value: JsonValue) -> bool:
    level = [value]
    for _ in range(MOST_NESTED):
        level = [inner for one in level for inner in _inside(one) if isinstance(inner, Mapping | list)]
        if not level:
            return False
    return True


def _inside(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _unambiguous(pairs: list[tuple[str, JsonValue]]) -> JsonValue:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is given twice")
    return value


def _no_number(name: str) -> JsonValue:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is out of range")
    return value


def digest(*parts: JsonValue) -> str:
    """SHA-256 (hex) over the canonical JSON of `parts`; lone surrogates are hashed as such."""
    return hashlib.sha256(canonical(list(parts)).encode("utf-8", "surrogatepass")).hexdigest()

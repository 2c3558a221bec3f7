"""Domain values as JSON, for all commands that print any."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from chatops.domain.canonical import MAX_NESTED, JsonValue, json_or_text
from chatops.domain.messages import Usage
from chatops.domain.tools import AccessLevel

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def dumps(value: JsonValue, *, indent: int | None = None) -> str:
    """Return JSON that is safe on any stream and any terminal: ASCII only, never ``NaN``.

    A value that JSON cannot hold (a number out of range, endless nesting) is left out instead of failing the command.
    """
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except (ValueError, RecursionError):
        return json.dumps(_without_unholdable(value, levels=MAX_NESTED), indent=indent, allow_nan=False)


def _without_unholdable(value: JsonValue, *, levels: int) -> JsonValue:
    """Return `value` with null for parts that JSON cannot hold, or that are nested deeper than `levels`."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence):
        return value
    if levels == 0:
        return None
    if isinstance(value, Mapping):
        return {name: _without_unholdable(inner, levels=levels - 1) for name, inner in value.items()}
    return [_without_unholdable(inner, levels=levels - 1) for inner in value]


def plain(value: object, *, name: str = "") -> JsonValue:
    """Return a domain value as JSON: enumerations as their value, arguments as the object that they encode.

    `name` is the field that holds it: `arguments` and `usage` have a form of their own.
    """
    if isinstance(value, str) and name == "arguments":
        return arguments_value(value)
    if name == "usage" and (value is None or isinstance(value, Usage)):
        return usage_json(value)
    if isinstance(value, AccessLevel):
        return value.word
    if isinstance(value, Enum):
        return str(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return fields_json(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def fields_json(value: "DataclassInstance", *names: str) -> dict[str, JsonValue]:
    """Return the named fields of a dataclass, or all, as a JSON object."""
    wanted = names or [field.name for field in dataclasses.fields(value)]
    return {name: plain(getattr(value, name), name=name) for name in wanted}


def usage_json(usage: Usage | None) -> dict[str, JsonValue]:
    """Return tokens and cost; values that the server did not report are null, not zero."""
    return {
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "reasoning_tokens": usage.reasoning_tokens if usage else None,
        "cost": usage.cost if usage else None,
        # Scripts rely on the four keys above. This one exists only if the server has a prompt cache.
        **({"cached_tokens": usage.cached_tokens} if usage and usage.cached_tokens else {}),
    }


def arguments_value(text: str) -> JsonValue:
    """Return arguments as the object that they encode; as text if they encode none that JSON can hold."""
    value = json_or_text(text)
    return value if isinstance(value, Mapping) else text

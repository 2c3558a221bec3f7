"""Stored values as JSON text, checked against the dataclass when they are read back.

The standard library writes and parses the JSON, because pydantic's own parser refuses lone surrogates.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from chatops.domain.errors import UnreadableError

T = TypeVar("T")

DAMAGE_ADVICE = "Run `chatops doctor`; other conversations are not touched by this."


def dumps(value: object) -> str:
    """Return compact JSON that keeps every character."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parsed(text: object, *, what: str) -> dict[str, Any]:
    """Return the JSON object in a column, which may be damaged. `what` names it. Raises UnreadableError."""
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UnreadableError(f"A stored {what} is damaged: it is no JSON object.", advice=DAMAGE_ADVICE)
    return cast(dict[str, Any], value)


def validated(adapter: TypeAdapter[T], value: Mapping[str, Any], *, what: str) -> T:
    """Return `value` validated by `adapter`. Raises UnreadableError with the location of the first fault."""
    try:
        return adapter.validate_python(value)
    except (ValidationError, RecursionError) as error:
        where = ""
        if isinstance(error, ValidationError):
            first: Sequence[int | str] = error.errors(include_url=False, include_input=False)[0]["loc"]
            where = " at " + ".".join(map(str, first)) if first else ""
        raise UnreadableError(f"A stored {what} is damaged{where}.", advice=DAMAGE_ADVICE) from error

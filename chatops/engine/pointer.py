"""JSON pointers (RFC 6901): names for a value inside another."""

from collections.abc import Mapping
from typing import cast

from chatops.domain.canonical import JsonValue


class PointerError(LookupError):
    """Raised if the pointer names nothing in the value. Its text is a clause for the model."""


def resolve(document: JsonValue, pointer: str) -> JsonValue:
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

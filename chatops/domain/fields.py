"""Readable form of a JSON value: one field per line, without quotes and brackets.

Nothing is left out, but texts and other values look alike. So text to be approved, or to be parsed by a program, is
shown as JSON instead.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import chain

from chatops.domain.canonical import JsonValue, parsed


def as_fields(text: str) -> str:
    """Return `text` with the fields of its object, or the entries of its list, as lines; any other text unchanged."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return "\n".join(_lines(parsed(text)))
    except (ValueError, RecursionError):
        return text


def _lines(value: JsonValue) -> Iterator[str]:
    match value:
        case Mapping() if value:
            yield from chain.from_iterable(_field(_key(name), one) for name, one in value.items())
        case list() | tuple() if value:
            yield from chain.from_iterable(_entry(one) for one in value)
        case str() if value:
            yield from value.split("\n")
        case str():
            yield '""'
        case _:
            yield json.dumps(value)


def _key(name: str) -> str:
    """Return a name on one line: with a line feed it would look like further fields."""
    return json.dumps(name, ensure_ascii=False) if "\n" in name or not name else name


def _field(name: str, value: JsonValue) -> Iterator[str]:
    lines = list(_lines(value))
    if len(lines) == 1 and not (isinstance(value, Mapping | list | tuple) and value):
        yield f"{name}: {lines[0]}"
        return
    yield f"{name}:"
    yield from (f"  {line}" for line in lines)


def _entry(value: JsonValue) -> Iterator[str]:
    first, *rest = _lines(value)
    yield f"- {first}"
    yield from (f"  {line}" for line in rest)

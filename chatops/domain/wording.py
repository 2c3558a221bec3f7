"""Small parts of sentences and lines for the user: counts, money, durations, excerpts, a JSON value as lines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from chatops.domain.canonical import JsonValue, json_or_text, parse_json
from chatops.domain.sanitize import sanitize

_MIN_SHOWN_COST = 0.0001
"""Dollars below which a cost would be shown as nothing."""


def as_fields(text: str) -> str:
    """Return `text` with the fields of its object, or the entries of its list, as lines; any other text unchanged.

    Nothing is left out, but texts and other values look alike. So text to be approved, or to be parsed by a program, is
    shown as JSON instead.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return "\n".join(_value_lines(parse_json(text)))
    except (ValueError, RecursionError):
        return text


def readable(answer: str) -> str:
    """Return a result for review without loss: an object or list as indented JSON, anything else unchanged."""
    value = json_or_text(answer) if answer[:1] in ("{", "[") else answer
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _value_lines(value: JsonValue) -> Iterator[str]:
    match value:
        case Mapping() if value:
            yield from chain.from_iterable(_field_lines(_one_line_key(name), inner) for name, inner in value.items())
        case list() | tuple() if value:
            yield from chain.from_iterable(_entry_lines(item) for item in value)
        case str() if value:
            yield from value.split("\n")
        case str():
            yield '""'
        case _:
            yield json.dumps(value)


def _one_line_key(name: str) -> str:
    """Return a name on one line: with a line feed it would look like further fields."""
    return json.dumps(name, ensure_ascii=False) if "\n" in name or not name else name


def _field_lines(name: str, value: JsonValue) -> Iterator[str]:
    lines = list(_value_lines(value))
    if len(lines) == 1 and not (isinstance(value, Mapping | list | tuple) and value):
        yield f"{name}: {lines[0]}"
        return
    yield f"{name}:"
    yield from (f"  {line}" for line in lines)


def _entry_lines(value: JsonValue) -> Iterator[str]:
    first, *rest = _value_lines(value)
    yield f"- {first}"
    yield from (f"  {line}" for line in rest)


def plural(count: int, one: str, many: str = "") -> str:
    """Return the count with its noun: ``1 call``, ``3 calls``, ``2 processes`` (`many` where an s is not enough)."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def list_words(words: Sequence[str]) -> str:
    """Return words as ``a, b and c``; empty for none."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def clauses(parts: Sequence[str], *, most: int) -> str:
    """Return ``one · two · three`` in at most `most` characters: the last clauses are left out whole."""
    count = len(parts)
    while count > 1 and len(" · ".join(parts[:count])) > most:
        count -= 1
    return cut(" · ".join(parts[:count]), most=most)


def sentence(clause: str) -> str:
    """Return a clause as a sentence, with a capital letter and a full stop."""
    return clause[:1].upper() + clause[1:].removesuffix(".") + "."


def cut(text: str, *, most: int) -> str:
    """Return `text` if it has at most `most` characters, else its beginning with an ellipsis, `most` in all."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip('…')}…"


def one_line(text: str, *, most: int) -> str:
    """Return `text` on one line of about `most` characters, with control characters made visible."""
    # Split only a prefix: the text is untrusted and may be very long.
    head = " ".join(text[: 4 * most].split())
    is_whole = len(head) <= most and len(text) <= 4 * most
    return sanitize(head if is_whole else cut(f"{head}…", most=most + 1), newlines=False)


def excerpt(text: str, wanted: str, *, around: int, before: int | None = None) -> str:
    """Return the first place of `wanted`, whatever the case, in one line with `around` characters on each side.

    `before` is their number on the left, if that is another one.
    """
    line = " ".join(text.split())
    at = max(0, line.casefold().find(wanted.casefold()))
    start, end = max(0, at - (around if before is None else before)), at + len(wanted) + around
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def money(cost: float, *, cents_from: float) -> str:
    """Return a cost in dollars: to the cent from `cents_from` on, with two more digits below it."""
    if 0 < cost < _MIN_SHOWN_COST:
        return f"<${_MIN_SHOWN_COST}"
    return f"${cost:.2f}" if cost >= cents_from else f"${cost:.4f}"


def duration(milliseconds: int) -> str:
    """Return a duration such as ``12 ms``, ``3.4 s`` or ``2 min 05 s``."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    minutes, seconds = divmod(milliseconds // 1_000, 60)
    return f"{minutes} min {seconds:02d} s"


def spent(seconds: int) -> str:
    """Return a time that is still running, such as ``12 s`` or ``2 min 05 s``."""
    return f"{seconds} s" if seconds < 60 else duration(1_000 * seconds)


def describe_error(error: BaseException) -> str:
    """Return an error as one line that is never empty."""
    text = " ".join(str(error).split())
    return text if text else type(error).__name__

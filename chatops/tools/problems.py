"""Describe what is wrong with a value, for a model: where, what, the given value, and the nearest valid one."""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence

from chatops.domain.canonical import JsonValue
from chatops.domain.tools import Problem
from chatops.toolkit.output import visible

MAX_PROBLEMS = 8
"""Maximum number of problems that are reported of one value; a model corrects no more at a time."""
MISSING = "is required but missing"
_MOST_WORDS = 24
"""Maximum number of allowed values or known names that are listed."""


def field_path(parts: Iterable[str | int]) -> str:
    """Return a path in the arguments as text: ``edits[0].old``."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{visible(part, limit=60)}"
    return path.removeprefix(".")


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the most similar of `names`, or an empty string."""
    by_fold = {candidate.casefold(): candidate for candidate in names}
    found = difflib.get_close_matches(name[:100].casefold(), list(by_fold), n=1)
    return by_fold[found[0]] if found else ""


def missing(path: str) -> Problem:
    """Return the problem that a required value is missing."""
    return Problem(path=path, message=MISSING)


def unknown_key(path: str, name: str, value: object, *, known: Sequence[str], noun: str) -> Problem:
    """Return the problem that a key is not one of `known`; `noun` says what keys are called here."""
    close = nearest(name, known)
    hint = f"did you mean '{close}'?" if close else f"valid names: {_listed(sorted(known))}"
    article = "an" if noun[:1] in "aeiou" else "a"
    return Problem(path=path, message=f"is not {article} {noun}; {hint}", given=given(value))


def not_allowed(path: str, value: object, *, allowed: Sequence[object]) -> Problem:
    """Return the problem that a value is not one of `allowed`."""
    words = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in allowed]
    close = nearest(value if isinstance(value, str) else json.dumps(value, default=str), words)
    hint = f"; did you mean '{close}'?" if close else ""
    return Problem(path=path, message=f"must be one of {_listed(words)}{hint}", given=given(value))


def wrong(path: str, message: str, value: object) -> Problem:
    """Return any other problem of a value, with the message of the validator that found it."""
    return Problem(path=path, message=visible(message, limit=200), given=given(value))


def first(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the first `MAX_PROBLEMS` of `problems`, without duplicates."""
    return tuple(dict.fromkeys(problems))[:MAX_PROBLEMS]


def given(value: object) -> str:
    """Return a given value as one short line."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return visible(text)


def kind_of(value: JsonValue) -> str:
    """Return the JSON type of a value in words, for a message that expects an object."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "an array"


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - _MOST_WORDS} more" if len(words) > _MOST_WORDS else ""
    return visible(", ".join(words[:_MOST_WORDS]), limit=400) + more if words else "none"

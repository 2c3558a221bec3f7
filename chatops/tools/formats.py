"""Check what a user types into a field with a `format` (JSON Schema): email, uri, date or date-time.

JSON Schema leaves formats unchecked by default, and models' calls stay so: a strict check would refuse what tools take.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from urllib.parse import urlsplit

from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.tools import Problem

_EMAIL = re.compile(r"[^\s@<>,;]+@[^\s@<>,;.]+(\.[^\s@<>,;.]+)*")
_URI = re.compile(r"[a-z][a-z0-9+.-]*:[^\s<>\"\\^`{|}]+", re.ASCII | re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)


def format_problems(value: JsonValue, *, schema: str) -> tuple[Problem, ...]:
    """Return a problem for each text of an object that does not have the format that its property names."""
    known = json_or_text(schema)
    properties = known.get("properties") if isinstance(known, dict) else None
    if not isinstance(properties, dict) or not isinstance(value, dict):
        return ()
    formats = {name: str(one.get("format", "")) for name, one in properties.items() if isinstance(one, dict)}
    return tuple(
        Problem(path=name, message=FORMATS[wanted][1])
        for name, text in value.items()
        if isinstance(text, str) and (wanted := formats.get(name, "")) in FORMATS and not FORMATS[wanted][0](text)
    )


def _is_email(text: str) -> bool:
    return _EMAIL.fullmatch(text) is not None


def _is_uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return _URI.fullmatch(text) is not None and (parts.scheme not in ("http", "https") or bool(parts.hostname))
    except ValueError:
        return False


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return False


def _is_date_time(text: str) -> bool:
    try:
        return _DATE_TIME.fullmatch(text) is not None and datetime.fromisoformat(text.upper()) is not None
    except ValueError:
        return False


FORMATS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "email": (_is_email, "must be an e-mail address, such as NAME@HOST"),
    "uri": (_is_uri, "must be an address, such as https://example.org"),
    "date": (_is_date, "must be a date, such as 2026-01-31"),
    "date-time": (_is_date_time, "must be a date and time, such as 2026-01-31T09:30:00Z"),
}
"""The known formats, each with its check and the message for a text that fails it."""

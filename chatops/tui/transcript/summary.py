"""One-line summaries of a call, a decision, a duration or a number of tokens. Untrusted text is sanitised."""

import json
import re
from collections.abc import Mapping

from chatops.tui.transcript.lines import one_line

_LONGEST = 400
_TELLING = ("command", "path", "query", "url", "pattern", "code", "text")
"""Arguments that identify a call by themselves. The first one present is used."""
_PRINCIPAL = re.compile(r"uid \d+ \((?P<login>.+)\)(?: via \w+)?")


def argument_summary(arguments: str) -> str:
    """Return the subject of a call: its main argument bare, the others as ``name=value``.

    Arguments that are no JSON object are returned as written.
    """
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return one_line(arguments[:_LONGEST])
    if not isinstance(parsed, Mapping):
        return one_line(arguments[:_LONGEST])
    named = dict(parsed)
    lead = next((key for key in _TELLING if isinstance(named.get(key), str)), None)
    parts = [] if lead is None else [str(named.pop(lead))]
    parts.extend(f"{key}={_short(value)}" for key, value in named.items())
    return "  ".join(one_line(part[:_LONGEST]) for part in parts)[:_LONGEST]


def _short(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)[:_LONGEST]
    except RecursionError:
        return "…"


def decider(decided_by: str) -> str:
    """Return who decided, in short form: a user's login, else the text on one line."""
    return login(decided_by) or one_line(decided_by)


def login(decided_by: str) -> str:
    """Return the login of the user who decided; empty if it was not a user."""
    found = _PRINCIPAL.fullmatch(decided_by)
    return one_line(found["login"]) if found else ""


def duration(milliseconds: int) -> str:
    """Return a duration such as ``12 ms``, ``3.4 s`` or ``2 min 05 s``."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    minutes, seconds = divmod(milliseconds // 1_000, 60)
    return f"{minutes} min {seconds:02d} s"


def approvals_pending(number: int) -> str:
    """Return the number of pending approvals in words."""
    return f"{number} approval{'s' if number != 1 else ''} pending"


def count(tokens: int) -> str:
    """Return a count such as ``830`` or ``12.4k``."""
    return str(tokens) if tokens < 1_000 else f"{tokens / 1_000:.1f}k"

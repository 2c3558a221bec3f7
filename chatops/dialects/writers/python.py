"""Formats that write calls as Python: `name(key=literal, …)`."""

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chatops.dialects.writers.base import CallSpelling, WrittenCall
from chatops.dialects.writers.inline import inert, object_of
from chatops.dialects.writers.items import HERMES
from chatops.domain.canonical import JsonValue

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCalls:
    """Spelling of all calls in `before` and `after`, with `between` between them.

    If one of them cannot be Python (its name is not an identifier, its arguments are not a JSON object), all are
    spelled by `otherwise`: two such lists in one message are not read.
    """

    before: str = "["
    between: str = ", "
    after: str = "]"
    otherwise: CallSpelling = HERMES

    def calls(self, calls: Sequence[WrittenCall]) -> str:
        """Return the calls, see `CallSpelling.calls`."""
        spelled: list[str] = []
        for call in calls:
            arguments = object_of(call.arguments)
            if arguments is None or not _are_words(call.name, arguments):
                return self.otherwise.calls(calls)
            spelled.append(f"{call.name}({', '.join(f'{key}={literal(arguments[key])}' for key in arguments)})")
        return self.before + self.between.join(spelled) + self.after


def _are_words(name: str, arguments: Mapping[str, JsonValue]) -> bool:
    words = [*name.split("."), *arguments]
    return all(_WORD.fullmatch(word) and not keyword.iskeyword(word) for word in words)


def literal(value: JsonValue) -> str:
    """Return `value` as a Python literal.

    A JSON string is also a Python string: each escape of JSON means the same there.
    """
    match value:
        case None | bool():
            return str(value)
        case str() | int() | float():
            return inert(value)
        case Mapping():
            return "{" + ", ".join(f"{inert(key)}: {literal(item)}" for key, item in value.items()) + "}"
        case _:
            return "[" + ", ".join(literal(item) for item in value) + "]"

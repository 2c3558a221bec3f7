"""Formats whose arguments are tags: strings are written as they are, all other values as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from chatops.dialects.writers.base import CallSpelling, WrittenCall
from chatops.dialects.writers.inline import fill, has_markup, inert, is_plain, object_of
from chatops.dialects.writers.items import HERMES
from chatops.domain.canonical import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedArguments:
    """A call is `opening`, an `argument` each, and `closing`; `before` and `after` enclose adjacent calls.

    `%n` is the name of the tool, `%k` the name of the argument, `%v` its value, `%t` whether it is a string. On
    reading, the schema says what type a value has. Tags have no escapes. So a call is spelled by `otherwise`, between
    the others, if a value could be taken for markup, a name cannot be bare, or the arguments are not a JSON object. One
    case does not round-trip, as with any model's calls: where the schema allows a string or another type, a string that
    looks like the other type reads as that.
    """

    opening: str
    argument: str
    closing: str
    before: str = ""
    between: str = "\n"
    after: str = ""
    otherwise: CallSpelling = HERMES

    def calls(self, calls: Sequence[WrittenCall]) -> str:
        """Return the calls, see `CallSpelling.calls`."""
        blocks: list[str] = []
        for own, row in groupby(calls, key=_expressible):
            if own:
                blocks.append(self.before + self.between.join(self._call(call) for call in row) + self.after)
            else:
                blocks.append(self.otherwise.calls(list(row)))
        return "\n".join(blocks)

    def _call(self, call: WrittenCall) -> str:
        arguments = object_of(call.arguments) or {}
        parts = [self._argument(name, value) for name, value in arguments.items()]
        return fill(self.opening, n=call.name) + "".join(parts) + self.closing

    def _argument(self, name: str, value: JsonValue) -> str:
        text = value if isinstance(value, str) else inert(value)
        # A reader removes one line break at the start, and one at the end if there was one at the start, but not where
        # the tag says that a string is written as it is.
        if text.startswith("\n") and "\n%v" not in self.argument and "%t" not in self.argument:
            text = f"\n{text}\n"
        return fill(self.argument, k=name, t="true" if isinstance(value, str) else "false", v=text)


def _expressible(call: WrittenCall) -> bool:
    arguments: Mapping[str, JsonValue] | None = object_of(call.arguments)
    if arguments is None or not is_plain(call.name):
        return False
    return all(is_plain(name) and _stands_bare(value) for name, value in arguments.items())


def _stands_bare(value: JsonValue) -> bool:
    """Return True if a string reads back as itself: not `null`, and without line breaks at its ends."""
    return not isinstance(value, str) or not (
        has_markup(value) or value.strip() in ("null", "None") or value.startswith("\r") or value.endswith("\r")
    )

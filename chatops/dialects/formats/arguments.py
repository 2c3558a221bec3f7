"""The arguments of one call in formats that write each in tags of its own, typed by the tool's schema.

A reader of such a format finds where each value ends, and puts it into an `ArgumentCollector`. If the text ends first,
it raises CutOffError: the call then becomes a cut-off one, whatever was read of it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Self

from chatops.dialects.formats.base import Call, FoundCall, OfferedTools, UnusableCall, unknown_tool_call
from chatops.dialects.literals import same_json
from chatops.dialects.reading import DiagnosticKind, Schema, UnreadableValueError
from chatops.dialects.typed_values import property_schema
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass

ReadArgument = Callable[[Schema], tuple[JsonValue, Sequence[str]]]
"""Function from the schema of an argument to its value and repairs. Raises UnreadableValueError."""
_MAX_INDENT = 64
"""Characters before a tag in which the beginning of its line is looked for."""
_MAX_EXCERPT = 40
"""Characters of text outside of arguments that the model is told."""
_BEFORE_A_TAG = re.compile(r"\r?\n[ \t]*\Z")


class CutOffError(Exception):
    """The text ends inside a call."""


@frozen_dataclass(kw_only=False)
class ValueEnd:
    """The end of a value in the text."""

    end: int
    after: int
    """Index from which to continue."""
    lost_tag: bool = False
    """True if the closing tag of the value is missing."""

    @classmethod
    def closed_by(cls, tag: re.Match[str]) -> Self:
        """Return the end of a value before its closing `tag`."""
        return cls(tag.start(), tag.end())

    @classmethod
    def unclosed_before(cls, tag: re.Match[str]) -> Self:
        """Return the end of a value without a closing tag, before the `tag` that shows its end."""
        return cls(tag.start(), tag.start(), lost_tag=True)

    def raw_value(self, text: str, begin: int) -> str:
        """Return the value that begins at `begin`, without the line break before the tag that ended it instead."""
        value = text[begin : self.end]
        return _BEFORE_A_TAG.sub("", value) if self.lost_tag else value


class ArgumentCollector:
    """The arguments of one call while it is read, with the repairs, or the first error."""

    __slots__ = ("_offered", "_start", "_unusable", "arguments", "name", "repairs", "schema", "written")

    def __init__(self, written: str, start: int, offered: OfferedTools) -> None:
        """Set the name as the model wrote it, and the index where the call begins."""
        self.written = written
        self.name = offered.named(written)
        """Name of the tool on offer; None if there is none."""
        self.schema: Schema = {} if self.name is None else offered.schema(self.name)
        self.arguments: dict[str, JsonValue] = {}
        self.repairs: list[str] = []
        self._offered = offered
        self._start = start
        self._unusable: UnusableCall | None = None

    def put(self, key: str, read: ReadArgument) -> None:
        """Read and add the argument `key`. An error is recorded, not raised."""
        try:
            value, repairs = read(property_schema(self.schema, key))
        except UnreadableValueError as error:
            self.refuse(f"has a value for {key!r:.80} that could not be read: {error.message}")
            return
        if key in self.arguments and not same_json(self.arguments[key], value):
            self.refuse(f"is given {key!r:.80} twice, with two values")
        self.arguments[key] = value
        self.repairs += repairs

    def refuse_text(self, text: str, *, outside: str = "arguments") -> None:
        """Record that `text` is where only arguments may be."""
        self.refuse(f"has text outside its {outside}: {text[:_MAX_EXCERPT]!r}")

    def refuse(self, message: str) -> None:
        """Record an error, if it is the first."""
        if self._unusable is None:
            self._unusable = UnusableCall(
                kind=DiagnosticKind.UNREADABLE, message=message, start=self._start, name=self.written
            )

    def item(self, end: int) -> FoundCall:
        """Return the call, which ends at `end`, or the error that was recorded."""
        if self.name is None:
            return unknown_tool_call(self.written, self._offered, self._start)
        if self._unusable:
            return self._unusable
        repairs = tuple(dict.fromkeys(self.repairs))
        return Call(name=self.name, arguments=self.arguments, start=self._start, end=end, repairs=repairs)

    def is_next(self, key: str, text: str, at: int) -> bool:
        """Return True if the tag of argument `key` at `at`, inside a value, begins the next argument.

        It does if it is on a line of its own, and `key` is declared and not given yet.
        """
        _, line_break, indent = text[max(at - _MAX_INDENT, 0) : at].rpartition("\n")
        if not line_break or indent.strip() or key in self.arguments:
            return False
        properties = self.schema.get("properties")
        return not isinstance(properties, dict) or key in properties

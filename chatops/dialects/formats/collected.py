"""A call whose arguments are read one by one and typed by the schema; the first error is kept."""

from collections.abc import Callable, Sequence

from chatops.dialects.formats.base import Call, Item, Trouble, unknown
from chatops.dialects.json_reader import UnreadableValueError
from chatops.dialects.literals import same
from chatops.dialects.offers import Offers
from chatops.dialects.reading import DiagnosticKind, Schema
from chatops.dialects.values import property_schema
from chatops.domain.canonical import JsonValue

ReadArgument = Callable[[Schema], tuple[JsonValue, Sequence[str]]]
"""Function from the schema of an argument to its value and repairs. Raises UnreadableValueError."""
_INDENT = 64


class Collected:
    """State of one call while it is read."""

    __slots__ = ("_offers", "_start", "_trouble", "arguments", "name", "repairs", "schema", "written")

    def __init__(self, written: str, start: int, offers: Offers) -> None:
        """Set the name as the model wrote it, and the index where the call begins."""
        self.written = written
        self.name = offers.named(written)
        """Name of the tool on offer; None if there is none."""
        self.schema: Schema = {} if self.name is None else offers.schema(self.name)
        self.arguments: dict[str, JsonValue] = {}
        self.repairs: list[str] = []
        self._offers = offers
        self._start = start
        self._trouble: Trouble | None = None

    def put(self, key: str, read: ReadArgument) -> None:
        """Read and add the argument `key`. An error is recorded, not raised."""
        try:
            value, repairs = read(property_schema(self.schema, key))
        except UnreadableValueError as error:
            self.refuse(f"has a value for {key!r:.80} that could not be read: {error.message}")
            return
        if key in self.arguments and not same(self.arguments[key], value):
            self.refuse(f"is given {key!r:.80} twice, with two values")
        self.arguments[key] = value
        self.repairs += repairs

    def refuse(self, message: str) -> None:
        """Record an error, if it is the first."""
        if self._trouble is None:
            self._trouble = Trouble(
                kind=DiagnosticKind.UNREADABLE, message=message, start=self._start, name=self.written
            )

    def item(self, end: int) -> Item:
        """Return the call, which ends at `end`, or the error that was recorded."""
        if self.name is None:
            return unknown(self.written, self._offers, self._start)
        if self._trouble:
            return self._trouble
        repairs = tuple(dict.fromkeys(self.repairs))
        return Call(name=self.name, arguments=self.arguments, start=self._start, end=end, repairs=repairs)

    def is_next(self, key: str, text: str, at: int) -> bool:
        """Return True if the tag of argument `key` at `at`, inside a value, begins the next argument.

        It does if it is on a line of its own, and `key` is declared and not given yet.
        """
        line = text[max(at - _INDENT, 0) : at].rpartition("\n")
        if not line[1] or line[2].strip() or key in self.arguments:
            return False
        properties = self.schema.get("properties")
        return not isinstance(properties, dict) or key in properties

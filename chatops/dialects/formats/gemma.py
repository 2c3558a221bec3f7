"""Calls of Gemma: `<|tool_call>call:NAME{key:<|"|>text<|"|>,n:3}<tool_call|>`.

Keys are bare, and strings stand between delimiters, which FunctionGemma spells `<escape>`. A string has no escapes, so
only a delimiter ends it; calls quoted inside a string are counted, because they have delimiters of their own.
"""

import re
from dataclasses import dataclass, field

from chatops.dialects.formats.base import (
    CLOSER,
    MAX_DEPTH,
    NOT_HERE,
    NOT_YET,
    Opening,
    ParseOutcome,
    block_to,
    skip_space,
    unreadable_call,
)
from chatops.dialects.formats.json_objects import CallBuilder, closed_block
from chatops.dialects.json_reader import read_value, read_whole
from chatops.dialects.reading import Schema, UnreadableValueError
from chatops.dialects.typed_values import as_type, item_schema, property_schema
from chatops.domain.canonical import JsonValue

_CALL_OPENS = re.compile(r">\s*(?:call)?\s*:?\s*(?P<name>[^\s<>{}\[\]\"'`:,]{1,256})\s*\{")
_CALL_MAY_OPEN = re.compile(r">\s*(?:c|ca|cal|call)?\s*:?\s*[^\s<>{}\[\]\"'`,]{0,256}\s*\Z")
_MAX_PROSE = 240
"""Characters after the opening tag that are searched for a closing tag: `<|tool_call>I will search<tool_call|>` was
meant as a call, and the model is told that it is none. Longer text is about the tag."""
_DELIMITER = r"<\|\"\|>|<escape>"
_STRING_OPENS = re.compile(_DELIMITER)
_INSIDE_STRING = re.compile(
    rf"(?P<delimiter>{_DELIMITER})|(?P<opens><\|tool_call>|<start_function_call>)|<tool_call\|>|<end_function_call>"
)
_KEY = re.compile(rf"(?:{_DELIMITER})?\s*[\"']?(?P<key>[^\s:{{}}\[\],<>\"']{{1,256}})[\"']?\s*(?:{_DELIMITER})?\s*:\s*")
"""`key:`, or the same in quotes or delimiters."""
_BARE_VALUE = re.compile(r"[^,{}\[\]<\n]{1,4000}")
_OBJECT_ENDS = re.compile(r"\}")
_LIST_ENDS = re.compile(r"\]")
_ARGUMENTS_END = re.compile(rf"\}}|{CLOSER.pattern}", re.IGNORECASE)
_MAX_MARK = 24
"""Characters of a delimiter or closing tag that may still be incomplete."""
_BARE_TEXT = "text without delimiters was read as text"
_LOST_BRACE = "the closing brace of the arguments is missing"


def read_gemma(opening: Opening, *, format: str) -> ParseOutcome:
    """Read the call after `<|tool_call` or `<start_function_call`."""
    text, start, offered = opening.text, opening.start, opening.offered
    opened = _CALL_OPENS.match(text, opening.after)
    if opened is None:
        return _read_without_braces(opening, format)
    written = opened["name"]
    name = offered.named(written)
    reader = _ArgumentReader(text, opened.end())
    try:
        arguments = reader.read(offered.schema(name) if name else {})
    except UnreadableValueError as error:
        closer = None if error.cut else CLOSER.search(text, error.position)
        return block_to(closer, text, unreadable_call(error, written, start), format=format)
    item = CallBuilder(offered, start, reader.at, tuple(dict.fromkeys(reader.repairs))).call(written, arguments)
    return closed_block(text, reader.at, [item], format=format)


def _read_without_braces(opening: Opening, format: str) -> ParseOutcome:
    """Return the outcome for an opening tag after which no `NAME{` has come."""
    text, start, after = opening.text, opening.start, opening.after
    if _CALL_MAY_OPEN.match(text, after):
        return NOT_YET
    if closer := CLOSER.search(text, after, after + _MAX_PROSE):
        error = UnreadableValueError("there are no arguments in braces", start)
        return block_to(closer, text, unreadable_call(error, "", start), format=format)
    return NOT_YET if len(text) - after < _MAX_PROSE else NOT_HERE


@dataclass(slots=True)
class _ArgumentReader:
    """Reader of the arguments of one call in `text`. `at` is the index of what is read next."""

    text: str
    at: int
    repairs: list[str] = field(default_factory=list)

    def read(self, schema: Schema) -> dict[str, JsonValue]:
        """Read `key:value,...}` of the call itself, whose brace may be missing: `call:f{n:3<tool_call|>`."""
        arguments: dict[str, JsonValue] = {}
        while not self._skip("}"):
            if arguments and CLOSER.match(self.text, self.at):
                self.repairs.append(_LOST_BRACE)
                break
            self._read_pair(schema, arguments, 1)
            self._skip_comma_unless(_ARGUMENTS_END)
        return arguments

    def _read_object(self, schema: Schema, depth: int) -> dict[str, JsonValue]:
        """Read `key:value,...}` of an object in the arguments."""
        pairs: dict[str, JsonValue] = {}
        while not self._skip("}"):
            self._read_pair(schema, pairs, depth + 1)
            self._skip_comma_unless(_OBJECT_ENDS)
        return pairs

    def _read_list(self, schema: Schema, depth: int) -> list[JsonValue]:
        """Read `value,...]`."""
        schema_of_item = item_schema(schema)
        items: list[JsonValue] = []
        while not self._skip("]"):
            items.append(self._read_value(schema_of_item, depth + 1))
            self._skip_comma_unless(_LIST_ENDS)
        return items

    def _read_pair(self, schema: Schema, into: dict[str, JsonValue], depth: int) -> None:
        """Read `key:value` into the object that has this `schema`."""
        found = _KEY.match(self.text, self.at)
        if found is None:
            raise self._error("a key is missing")
        self.at = found.end()
        key = found["key"]
        value = self._read_value(property_schema(schema, key), depth)
        if key in into and into[key] != value:
            raise UnreadableValueError(f"{key!r:.80} is given twice", self.at)
        into[key] = value

    def _read_value(self, schema: Schema, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            raise UnreadableValueError(f"it is nested more than {MAX_DEPTH} deep", self.at)
        if opened := _STRING_OPENS.match(self.text, self.at):
            self.at = opened.end()
            return self._read_string()
        if self._skip("{"):
            return self._read_object(schema, depth)
        if self._skip("["):
            return self._read_list(schema, depth)
        if self.text.startswith(('"', "'"), self.at):
            read = read_value(self.text, self.at)
            self.repairs += read.repairs
            self.at = read.end
            return read.value
        return self._read_bare(schema)

    def _read_bare(self, schema: Schema) -> JsonValue:
        """Read a number, a word, or a string without its delimiters: `3`, `true`, `New York`."""
        begin = self.at
        found = _BARE_VALUE.match(self.text, begin)
        if found is None:
            raise self._error("a value is missing")
        self.at = found.end()
        if self.at == len(self.text):
            raise self._cut()  # `3` may be the beginning of `35`.
        raw = found[0].strip()
        try:
            read = read_whole(raw)
        except UnreadableValueError:
            return self._bare_text(raw, schema, begin)
        self.repairs += read.repairs
        return read.value

    def _bare_text(self, raw: str, schema: Schema, begin: int) -> JsonValue:
        """Return text that is no JSON as a value of its declared type."""
        try:
            value, repairs = as_type(raw, schema)
        except UnreadableValueError as error:
            raise UnreadableValueError(error.message, begin) from None
        self.repairs += (_BARE_TEXT, *repairs)
        return value

    def _read_string(self) -> str:
        """Read a string after its opening delimiter, with the calls that it quotes."""
        begin = self.at
        depth = 0  # Quoted calls that are open.
        for mark in _INSIDE_STRING.finditer(self.text, begin):
            if mark["opens"]:
                depth += 1
            elif mark["delimiter"]:
                if not depth:
                    self.at = mark.end()
                    return self.text[begin : mark.start()]
            elif depth:
                depth -= 1
        raise UnreadableValueError("the text ends before its closing delimiter", begin, cut=True)

    def _skip(self, mark: str) -> bool:
        """Skip white space and `mark`. Return False if it does not come."""
        self.at = skip_space(self.text, self.at)
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def _skip_comma_unless(self, ends: re.Pattern[str]) -> None:
        """Skip white space and the comma after a member, which may be missing before the end of its container."""
        self.at = skip_space(self.text, self.at)
        if not ends.match(self.text, self.at) and not self._skip(","):
            raise self._error("a comma or a closing bracket is missing")

    def _error(self, message: str) -> UnreadableValueError:
        """Return the error for something else at `at` than what has to come there, or for the end of the text."""
        rest = len(self.text) - self.at
        if rest <= 0 or (self.text.startswith("<", self.at) and rest < _MAX_MARK):
            return self._cut()
        return UnreadableValueError(message, self.at)

    def _cut(self) -> UnreadableValueError:
        return UnreadableValueError("the text ends in the middle of it", self.at, cut=True)

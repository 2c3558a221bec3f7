"""Calls as Gemma writes them: `call:NAME{key:<|"|>text<|"|>,n:3}`, with bare keys and special delimiters of strings.

FunctionGemma spells the delimiter `<escape>`. Strings have no escapes, so calls quoted inside a string are counted, and
only a delimiter outside of them ends it.
"""

import re

from chatops.dialects.formats.base import (
    MAX_DEPTH,
    NOT_HERE,
    NOT_YET,
    Found,
    Item,
    Opening,
    Outcome,
    skip_space,
    unknown,
    unreadable,
)
from chatops.dialects.formats.closing import CLOSER
from chatops.dialects.formats.objects import closed_block
from chatops.dialects.formats.shapes import Shape
from chatops.dialects.json_reader import UnreadableValueError, read_value, read_whole
from chatops.dialects.reading import Schema
from chatops.dialects.values import item_schema, property_schema, typed
from chatops.domain.canonical import JsonValue

_NAMED = re.compile(r">\s*(?:call)?\s*:?\s*(?P<name>[^\s<>{}\[\]\"'`:,]{1,256})\s*\{")
_BEGINS = re.compile(r">\s*(?:c|ca|cal|call)?\s*:?\s*[^\s<>{}\[\]\"'`,]{0,256}\s*\Z")
_DELIMITER = r"<\|\"\|>|<escape>"
_TEXT_OPENS = re.compile(_DELIMITER)
_INSIDE = re.compile(
    rf"(?P<delimiter>{_DELIMITER})|(?P<opens><\|tool_call>|<start_function_call>)|<tool_call\|>|<end_function_call>"
)
_KEY = re.compile(rf"(?:{_DELIMITER})?\s*[\"']?(?P<key>[^\s:{{}}\[\],<>\"']{{1,256}})[\"']?\s*(?:{_DELIMITER})?\s*:\s*")
_BARE = re.compile(r"[^,{}\[\]<\n]{1,4000}")
_BARE_TEXT = "text without delimiters was read as text"
_LOST_BRACE = "the closing brace of the arguments is missing"


def read_gemma(opening: Opening, *, format: str) -> Outcome:
    """Read the call after `<|tool_call` or `<start_function_call`."""
    text, start, offers = opening.text, opening.start, opening.offers
    if opening.after == len(text):
        return NOT_YET
    named = _NAMED.match(text, opening.after)
    if named is None:
        if _BEGINS.match(text, opening.after):
            return NOT_YET
        closer = CLOSER.search(text, opening.after, opening.after + _PROSE)
        if closer is None:
            return NOT_YET if len(text) - opening.after < _PROSE else NOT_HERE
        trouble = unreadable(UnreadableValueError("there are no arguments in braces", start), "", start)
        return Found(end=closer.end(), format=format, items=(trouble,))
    written = named["name"]
    name = offers.named(written)
    reader = _Reader(text, offers.schema(name) if name else {})
    try:
        arguments, end = reader.pairs(named.end(), reader.schema, 0)
    except UnreadableValueError as error:
        closer = None if error.cut else CLOSER.search(text, error.position)
        return Found(
            end=closer.end() if closer else len(text),
            format=format,
            items=(unreadable(error, written, start),),
            sure=closer is not None,
        )
    item: Item
    if name is None:
        item = unknown(written, offers, start)
    else:
        item = Shape(offers, start, end, tuple(dict.fromkeys(reader.repairs))).call(written, arguments)
    return closed_block(text, end, [item], format=format)


_PROSE = 240


class _Reader:
    """Reader of the pairs of one call."""

    __slots__ = ("repairs", "schema", "text")

    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self.schema = schema
        self.repairs: list[str] = []

    def pairs(self, at: int, schema: Schema, depth: int) -> tuple[dict[str, JsonValue], int]:
        """Read `key:value,...}` from `at` on; return the pairs and the index after the brace."""
        text = self.text
        found: dict[str, JsonValue] = {}
        while True:
            at = skip_space(text, at)
            if text.startswith("}", at):
                return found, at + 1
            if depth == 0 and found and CLOSER.match(text, at):
                self.repairs.append(_LOST_BRACE)
                return found, at
            key = _KEY.match(text, at)
            if key is None:
                raise self._fail("a key is missing", at)
            value, at = self._value(key.end(), property_schema(schema, key["key"]), depth + 1)
            if key["key"] in found and found[key["key"]] != value:
                raise UnreadableValueError(f"{key['key']!r:.80} is given twice", at)
            found[key["key"]] = value
            at = self._comma(at, "}", closers=depth == 0)

    def _items(self, at: int, schema: Schema, depth: int) -> tuple[list[JsonValue], int]:
        text = self.text
        each = item_schema(schema)
        found: list[JsonValue] = []
        while True:
            at = skip_space(text, at)
            if text.startswith("]", at):
                return found, at + 1
            value, at = self._value(at, each, depth + 1)
            found.append(value)
            at = self._comma(at, "]")

    def _comma(self, at: int, closing: str, *, closers: bool = False) -> int:
        """Return the index after a comma; stay before a closing bracket."""
        at = skip_space(self.text, at)
        if self.text.startswith(",", at):
            return at + 1
        if self.text.startswith(closing, at) or (closers and CLOSER.match(self.text, at)):
            return at
        raise self._fail("a comma or a closing bracket is missing", at)

    def _value(self, at: int, schema: Schema, depth: int) -> tuple[JsonValue, int]:
        text = self.text
        if depth > MAX_DEPTH:
            raise UnreadableValueError(f"it is nested more than {MAX_DEPTH} deep", at)
        if opened := _TEXT_OPENS.match(text, at):
            end, after = self._text_end(opened.end())
            return text[opened.end() : end], after
        char = text[at : at + 1]
        if char == "{":
            return self.pairs(at + 1, schema, depth)
        if char == "[":
            return self._items(at + 1, schema, depth)
        if char in ('"', "'") and char:
            read = read_value(text, at)
            self.repairs += read.repairs
            return read.value, read.end
        return self._bare(at, schema)

    def _bare(self, at: int, schema: Schema) -> tuple[JsonValue, int]:
        """Read a number, a word, or a string without its delimiters."""
        found = _BARE.match(self.text, at)
        if found is None or found.end() == len(self.text):
            raise self._fail("no value stands here", found.end() if found else at)
        raw = found[0].strip()
        try:
            read = read_whole(raw)
        except UnreadableValueError:
            return self._bare_text(raw, schema, at), found.end()
        self.repairs += read.repairs
        return read.value, found.end()

    def _bare_text(self, raw: str, schema: Schema, at: int) -> JsonValue:
        try:
            value, repairs = typed(raw, schema)
        except UnreadableValueError as error:
            raise UnreadableValueError(error.message, at) from None
        self.repairs += (_BARE_TEXT, *repairs)
        return value

    def _text_end(self, at: int) -> tuple[int, int]:
        """Return the end of the string that begins at `at`, and the index after its delimiter."""
        depth = 0
        for mark in _INSIDE.finditer(self.text, at):
            if mark["opens"]:
                depth += 1
            elif mark["delimiter"]:
                if not depth:
                    return mark.start(), mark.end()
            elif depth:
                depth -= 1
        raise UnreadableValueError("the text ends before its closing delimiter", at, cut=True)

    def _fail(self, message: str, at: int) -> UnreadableValueError:
        if at >= len(self.text) or ("<" in self.text[at : at + 1] and len(self.text) - at < _LONGEST_MARK):
            return UnreadableValueError("the text ends in the middle of it", at, cut=True)
        return UnreadableValueError(message, at)


_LONGEST_MARK = 24

"""Grammars of one model family each, with nested values in their own spelling: Gemma and MiniMax M3.

Gemma writes `call:NAME{key:<|"|>text<|"|>,n:3}`, with bare keys and special delimiters of strings; FunctionGemma spells
the delimiter `<escape>`. Strings have no escapes, so calls quoted inside a string are counted, and only a delimiter
outside of them ends it.

MiniMax M3 writes tags named after the parameters, nested, each after `]<]minimax[>[`. Only the schema of the tool says
whether a tag holds text or further tags, and of what types.
"""

import re
from dataclasses import dataclass, field

from chatops.dialects.formats.base import (
    CLOSER,
    MAX_DEPTH,
    NOT_HERE,
    NOT_YET,
    CallBlock,
    Opening,
    ParseOutcome,
    UnusableCall,
    cut_off_block,
    skip_space,
    unknown_tool_call,
    unreadable_call,
)
from chatops.dialects.formats.json_objects import CallBuilder, closed_block
from chatops.dialects.json_reader import read_value, read_whole
from chatops.dialects.reading import DiagnosticKind, Schema, UnreadableValueError
from chatops.dialects.typed_values import as_type, item_schema, property_schema, strip_newlines, types_of
from chatops.domain.canonical import JsonValue

_GEMMA_NAME = re.compile(r">\s*(?:call)?\s*:?\s*(?P<name>[^\s<>{}\[\]\"'`:,]{1,256})\s*\{")
_GEMMA_MAY_BEGIN = re.compile(r">\s*(?:c|ca|cal|call)?\s*:?\s*[^\s<>{}\[\]\"'`,]{0,256}\s*\Z")
_DELIMITER = r"<\|\"\|>|<escape>"
_STRING_OPENS = re.compile(_DELIMITER)
_INSIDE_STRING = re.compile(
    rf"(?P<delimiter>{_DELIMITER})|(?P<opens><\|tool_call>|<start_function_call>)|<tool_call\|>|<end_function_call>"
)
_GEMMA_KEY = re.compile(
    rf"(?:{_DELIMITER})?\s*[\"']?(?P<key>[^\s:{{}}\[\],<>\"']{{1,256}})[\"']?\s*(?:{_DELIMITER})?\s*:\s*"
)
_BARE_VALUE = re.compile(r"[^,{}\[\]<\n]{1,4000}")
_BARE_TEXT = "text without delimiters was read as text"
_LOST_BRACE = "the closing brace of the arguments is missing"
_MAX_PROSE = 240
"""Characters between a tag and its closing tag that show the model what was no call; longer text is about the tag."""
_MAX_MARK = 24
"""Characters of a delimiter or closing tag that may still be incomplete."""
_MARK = "]<]minimax[>["
_MARK_PATTERN = re.escape(_MARK)
_WRAPPER = re.compile(rf"\s*<tool_call>\s*(?=(?:{_MARK_PATTERN})?<invoke)")
_WRAPPER_MAY_BEGIN = re.compile(r"\s*(?:<[\w]{0,10}>?\s*[^\s]{0,24})?\Z")
_INVOKE = re.compile(r"""\s*<invoke\s+name\s*=\s*["']?(?P<name>[^"'<>\s]{1,256})["']?\s*>""")
_INVOKE_MAY_BEGIN = re.compile(r"\s*<(?:i[^<>]{0,280})?\Z")
_INVOKE_ENDS = re.compile(rf"(?:{_MARK_PATTERN})?</invoke>")
_TAG_OPENS = re.compile(rf"(?:{_MARK_PATTERN})?<(?P<tag>[^\s<>/\"']{{1,256}})>")
_NEXT_CALL = re.compile(rf"(?:{_MARK_PATTERN})(?:<invoke\s|</tool_call>)")
_LOST_MARK = "the mark before a closing tag is missing"
_LOST_CALL_END = "the closing tag of the call is missing"
_MAX_TAG = 280
"""Characters of a tag that may still be incomplete."""


def read_gemma(opening: Opening, *, format: str) -> ParseOutcome:
    """Read the call after `<|tool_call` or `<start_function_call`."""
    text, start, offered = opening.text, opening.start, opening.offered
    if opening.after == len(text):
        return NOT_YET
    named = _GEMMA_NAME.match(text, opening.after)
    if named is None:
        if _GEMMA_MAY_BEGIN.match(text, opening.after):
            return NOT_YET
        closer = CLOSER.search(text, opening.after, opening.after + _MAX_PROSE)
        if closer is None:
            return NOT_YET if len(text) - opening.after < _MAX_PROSE else NOT_HERE
        unusable = unreadable_call(UnreadableValueError("there are no arguments in braces", start), "", start)
        return CallBlock(end=closer.end(), format=format, items=(unusable,))
    written = named["name"]
    name = offered.named(written)
    reader = _GemmaReader(text, offered.schema(name) if name else {})
    try:
        arguments, end = reader.read_pairs(named.end(), reader.schema, 0)
    except UnreadableValueError as error:
        closer = None if error.cut else CLOSER.search(text, error.position)
        return CallBlock(
            end=closer.end() if closer else len(text),
            format=format,
            items=(unreadable_call(error, written, start),),
            sure=closer is not None,
        )
    item = CallBuilder(offered, start, end, tuple(dict.fromkeys(reader.repairs))).call(written, arguments)
    return closed_block(text, end, [item], format=format)


@dataclass(slots=True)
class _GemmaReader:
    """Reader of the pairs of one call."""

    text: str
    schema: Schema
    repairs: list[str] = field(default_factory=list)

    def read_pairs(self, at: int, schema: Schema, depth: int) -> tuple[dict[str, JsonValue], int]:
        """Read `key:value,...}` from `at` on; return the pairs and the index after the brace."""
        text = self.text
        pairs: dict[str, JsonValue] = {}
        while True:
            at = skip_space(text, at)
            if text.startswith("}", at):
                return pairs, at + 1
            if depth == 0 and pairs and CLOSER.match(text, at):
                self.repairs.append(_LOST_BRACE)
                return pairs, at
            key = _GEMMA_KEY.match(text, at)
            if key is None:
                raise self._error("a key is missing", at)
            value, at = self._read_value(key.end(), property_schema(schema, key["key"]), depth + 1)
            if key["key"] in pairs and pairs[key["key"]] != value:
                raise UnreadableValueError(f"{key['key']!r:.80} is given twice", at)
            pairs[key["key"]] = value
            at = self._skip_comma(at, "}", closers=depth == 0)

    def _read_items(self, at: int, schema: Schema, depth: int) -> tuple[list[JsonValue], int]:
        """Read `value,...]` from `at` on; return the items and the index after the bracket."""
        text = self.text
        schema_of_item = item_schema(schema)
        items: list[JsonValue] = []
        while True:
            at = skip_space(text, at)
            if text.startswith("]", at):
                return items, at + 1
            value, at = self._read_value(at, schema_of_item, depth + 1)
            items.append(value)
            at = self._skip_comma(at, "]")

    def _skip_comma(self, at: int, closing: str, *, closers: bool = False) -> int:
        """Return the index after a comma; stay before a closing bracket."""
        at = skip_space(self.text, at)
        if self.text.startswith(",", at):
            return at + 1
        if self.text.startswith(closing, at) or (closers and CLOSER.match(self.text, at)):
            return at
        raise self._error("a comma or a closing bracket is missing", at)

    def _read_value(self, at: int, schema: Schema, depth: int) -> tuple[JsonValue, int]:
        text = self.text
        if depth > MAX_DEPTH:
            raise UnreadableValueError(f"it is nested more than {MAX_DEPTH} deep", at)
        if opened := _STRING_OPENS.match(text, at):
            end, after = self._text_end(opened.end())
            return text[opened.end() : end], after
        char = text[at : at + 1]
        if char == "{":
            return self.read_pairs(at + 1, schema, depth)
        if char == "[":
            return self._read_items(at + 1, schema, depth)
        if char in ('"', "'"):
            read = read_value(text, at)
            self.repairs += read.repairs
            return read.value, read.end
        return self._read_bare(at, schema)

    def _read_bare(self, at: int, schema: Schema) -> tuple[JsonValue, int]:
        """Read a number, a word, or a string without its delimiters."""
        found = _BARE_VALUE.match(self.text, at)
        if found is None or found.end() == len(self.text):
            raise self._error("a value is missing", found.end() if found else at)
        raw = found[0].strip()
        try:
            read = read_whole(raw)
        except UnreadableValueError:
            return self._bare_text(raw, schema, at), found.end()
        self.repairs += read.repairs
        return read.value, found.end()

    def _bare_text(self, raw: str, schema: Schema, at: int) -> JsonValue:
        try:
            value, repairs = as_type(raw, schema)
        except UnreadableValueError as error:
            raise UnreadableValueError(error.message, at) from None
        self.repairs += (_BARE_TEXT, *repairs)
        return value

    def _text_end(self, at: int) -> tuple[int, int]:
        """Return the end of the string that begins at `at`, and the index after its delimiter."""
        depth = 0  # Quoted calls that are open.
        for mark in _INSIDE_STRING.finditer(self.text, at):
            if mark["opens"]:
                depth += 1
            elif mark["delimiter"]:
                if not depth:
                    return mark.start(), mark.end()
            elif depth:
                depth -= 1
        raise UnreadableValueError("the text ends before its closing delimiter", at, cut=True)

    def _error(self, message: str, at: int) -> UnreadableValueError:
        if at >= len(self.text) or (self.text.startswith("<", at) and len(self.text) - at < _MAX_MARK):
            return UnreadableValueError("the text ends in the middle of it", at, cut=True)
        return UnreadableValueError(message, at)


def read_minimax(opening: Opening) -> ParseOutcome:
    """Read the text after the mark: the wrapper of calls, or a call."""
    text, start = opening.text, opening.start
    if wrapper := _WRAPPER.match(text, opening.after):
        return CallBlock(end=wrapper.end(), format="minimax_m3", wraps=True)
    call = _INVOKE.match(text, opening.after)
    if call is None:
        begun = _WRAPPER_MAY_BEGIN.match(text, opening.after) or _INVOKE_MAY_BEGIN.match(text, opening.after)
        return NOT_YET if begun else NOT_HERE
    written = call["name"]
    name = opening.offered.named(written)
    reader = _MinimaxReader(text)
    try:
        arguments, end = reader.read_arguments(call.end(), opening.offered.schema(name) if name else {})
    except UnreadableValueError as error:
        if error.cut:
            return cut_off_block(text, written, start, format="minimax_m3")
        closer = _INVOKE_ENDS.search(text, error.position)
        message = f"could not be read: {error.message}"
        unusable = UnusableCall(kind=DiagnosticKind.UNREADABLE, message=message, start=start, name=written)
        if name is None:
            unusable = unknown_tool_call(written, opening.offered, start)
        return CallBlock(
            end=closer.end() if closer else len(text), format="minimax_m3", items=(unusable,), sure=closer is not None
        )
    item = CallBuilder(opening.offered, start, end, tuple(dict.fromkeys(reader.repairs))).call(written, arguments)
    return CallBlock(end=end, format="minimax_m3", items=(item,))


@dataclass(slots=True)
class _MinimaxReader:
    """Reader of the tags of one call."""

    text: str
    repairs: list[str] = field(default_factory=list)

    def read_arguments(self, at: int, schema: Schema) -> tuple[dict[str, JsonValue], int]:
        """Read the arguments from `at` on; return them and the index after the closing tag of the call."""
        arguments: dict[str, JsonValue] = {}
        while True:
            at = skip_space(self.text, at)
            if end := _INVOKE_ENDS.match(self.text, at):
                return arguments, end.end()
            if arguments and _NEXT_CALL.match(self.text, at):
                self.repairs.append(_LOST_CALL_END)
                return arguments, at
            at = self._read_member(at, schema, arguments, 0)

    def _read_member(self, at: int, schema: Schema, into: dict[str, JsonValue], depth: int) -> int:
        """Read one tag into `into`; a repeated name makes a list. Return the index after it."""
        opened = _TAG_OPENS.match(self.text, at)
        if opened is None:
            rest = self.text[at : at + 300]
            cut = not rest or (rest[0] in "]<" and ">" not in rest.removeprefix(_MARK) and len(rest) < _MAX_TAG)
            raise UnreadableValueError("a tag is missing", at, cut=cut)
        tag = opened["tag"]
        value, end = self._read_value(tag, opened.end(), property_schema(schema, tag), depth + 1)
        if tag not in into:
            into[tag] = value
        elif depth == 0:
            if into[tag] != value:
                raise UnreadableValueError(f"{tag!r:.80} is given twice", at)
        else:
            before = into[tag]
            into[tag] = [*before, value] if isinstance(before, list) else [before, value]
        return end

    def _read_value(self, tag: str, at: int, schema: Schema, depth: int) -> tuple[JsonValue, int]:
        """Return the content of the tag, which begins at `at`, and the index after its closing tag."""
        if depth > MAX_DEPTH:
            raise UnreadableValueError(f"it is nested more than {MAX_DEPTH} deep", at)
        inner = skip_space(self.text, at)
        if self.text.startswith(f"{_MARK}<", inner) and not self.text.startswith(f"{_MARK}</", inner):
            if "string" not in types_of(schema):
                return self._read_parts(tag, inner, schema, depth)
        return self._read_text(tag, at, schema)

    def _read_parts(self, tag: str, at: int, schema: Schema, depth: int) -> tuple[JsonValue, int]:
        closing = re.compile(rf"(?:{_MARK_PATTERN})?</{re.escape(tag)}>")
        is_list = "array" in types_of(schema)
        listed: list[JsonValue] = []
        keyed: dict[str, JsonValue] = {}
        while True:
            at = skip_space(self.text, at)
            if end := closing.match(self.text, at):
                return (listed if is_list else keyed), end.end()
            if is_list:
                # The name of an item's tag says nothing: the items are its values.
                item: dict[str, JsonValue] = {}
                at = self._read_member(at, {"additionalProperties": item_schema(schema)}, item, depth)
                listed += item.values()
            else:
                at = self._read_member(at, schema, keyed, depth)

    def _read_text(self, tag: str, at: int, schema: Schema) -> tuple[JsonValue, int]:
        end, after = self._text_end(tag, at)
        try:
            value, repairs = as_type(strip_newlines(self.text[at:end]), schema)
        except UnreadableValueError as error:
            raise UnreadableValueError(f"{tag!r:.80}: {error.message}", end) from None
        self.repairs += repairs
        return value, after

    def _text_end(self, tag: str, at: int) -> tuple[int, int]:
        """Return the end of the text in `tag`, and the index after its closing tag, whose mark may be missing."""
        closing = f"</{tag}>"
        begin = at
        while (at := self.text.find(closing, at)) >= 0:
            after = at + len(closing)
            if self.text.endswith(_MARK, begin, at):
                return at - len(_MARK), after
            if self.text.startswith(_MARK, skip_space(self.text, after)):
                self.repairs.append(_LOST_MARK)
                return at, after
            at = after
        raise UnreadableValueError("the text ends before its closing tag", begin, cut=True)

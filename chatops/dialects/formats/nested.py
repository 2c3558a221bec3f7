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
    reader = _GemmaReader(text, named.end())
    try:
        arguments = reader.read_pairs(offered.schema(name) if name else {}, 0)
    except UnreadableValueError as error:
        closer = None if error.cut else CLOSER.search(text, error.position)
        return CallBlock(
            end=closer.end() if closer else len(text),
            format=format,
            items=(unreadable_call(error, written, start),),
            sure=closer is not None,
        )
    item = CallBuilder(offered, start, reader.at, tuple(dict.fromkeys(reader.repairs))).call(written, arguments)
    return closed_block(text, reader.at, [item], format=format)


@dataclass(slots=True)
class _GemmaReader:
    """Reader of the pairs of one call in `text`. `at` is the index of what is read next."""

    text: str
    at: int
    repairs: list[str] = field(default_factory=list)

    def read_pairs(self, schema: Schema, depth: int) -> dict[str, JsonValue]:
        """Read `key:value,...}`. The closing brace of the arguments themselves, at `depth` 0, may be missing."""
        pairs: dict[str, JsonValue] = {}
        while not self._skip("}"):
            if depth == 0 and pairs and CLOSER.match(self.text, self.at):
                self.repairs.append(_LOST_BRACE)
                return pairs
            key = _GEMMA_KEY.match(self.text, self.at)
            if key is None:
                raise self._error("a key is missing")
            self.at = key.end()
            value = self._read_value(property_schema(schema, key["key"]), depth + 1)
            if key["key"] in pairs and pairs[key["key"]] != value:
                raise UnreadableValueError(f"{key['key']!r:.80} is given twice", self.at)
            pairs[key["key"]] = value
            if not (self._comes("}") or (depth == 0 and CLOSER.match(self.text, self.at))):
                self._skip_comma()
        return pairs

    def _read_items(self, schema: Schema, depth: int) -> list[JsonValue]:
        """Read `value,...]`."""
        schema_of_item = item_schema(schema)
        items: list[JsonValue] = []
        while not self._skip("]"):
            items.append(self._read_value(schema_of_item, depth + 1))
            if not self._comes("]"):
                self._skip_comma()
        return items

    def _read_value(self, schema: Schema, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            raise UnreadableValueError(f"it is nested more than {MAX_DEPTH} deep", self.at)
        if opened := _STRING_OPENS.match(self.text, self.at):
            self.at = opened.end()
            return self._read_text()
        if self._skip("{"):
            return self.read_pairs(schema, depth)
        if self._skip("["):
            return self._read_items(schema, depth)
        if self.text.startswith(('"', "'"), self.at):
            read = read_value(self.text, self.at)
            self.repairs += read.repairs
            self.at = read.end
            return read.value
        return self._read_bare(schema)

    def _read_bare(self, schema: Schema) -> JsonValue:
        """Read a number, a word, or a string without its delimiters."""
        begin = self.at
        found = _BARE_VALUE.match(self.text, begin)
        self.at = found.end() if found else begin
        if found is None or self.at == len(self.text):
            raise self._error("a value is missing")
        raw = found[0].strip()
        try:
            read = read_whole(raw)
        except UnreadableValueError:
            return self._bare_text(raw, schema, begin)
        self.repairs += read.repairs
        return read.value

    def _bare_text(self, raw: str, schema: Schema, begin: int) -> JsonValue:
        try:
            value, repairs = as_type(raw, schema)
        except UnreadableValueError as error:
            raise UnreadableValueError(error.message, begin) from None
        self.repairs += (_BARE_TEXT, *repairs)
        return value

    def _read_text(self) -> str:
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

    def _comes(self, mark: str) -> bool:
        """Skip white space, and return True if `mark` comes then."""
        self.at = skip_space(self.text, self.at)
        return self.text.startswith(mark, self.at)

    def _skip(self, mark: str) -> bool:
        """Skip white space and `mark`. Return False if it does not come."""
        if not self._comes(mark):
            return False
        self.at += len(mark)
        return True

    def _skip_comma(self) -> None:
        if not self._skip(","):
            raise self._error("a comma or a closing bracket is missing")

    def _error(self, message: str) -> UnreadableValueError:
        at = self.at
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
    reader = _MinimaxReader(text, call.end())
    try:
        arguments = reader.read_arguments(opening.offered.schema(name) if name else {})
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
    repairs = tuple(dict.fromkeys(reader.repairs))
    item = CallBuilder(opening.offered, start, reader.at, repairs).call(written, arguments)
    return CallBlock(end=reader.at, format="minimax_m3", items=(item,))


@dataclass(slots=True)
class _MinimaxReader:
    """Reader of the tags of one call in `text`. `at` is the index of what is read next."""

    text: str
    at: int
    repairs: list[str] = field(default_factory=list)

    def read_arguments(self, schema: Schema) -> dict[str, JsonValue]:
        """Read the arguments and the closing tag of the call, which may be missing before another call."""
        arguments: dict[str, JsonValue] = {}
        while not self._skip(_INVOKE_ENDS):
            if arguments and _NEXT_CALL.match(self.text, self.at):
                self.repairs.append(_LOST_CALL_END)
                break
            self._read_member(schema, arguments, 0)
        return arguments

    def _skip(self, mark: re.Pattern[str]) -> bool:
        """Skip white space and `mark`. Return False if it does not come."""
        self.at = skip_space(self.text, self.at)
        found = mark.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found is not None

    def _read_member(self, schema: Schema, into: dict[str, JsonValue], depth: int) -> None:
        """Read one tag into `into`. A repeated name makes a list; of the arguments, at `depth` 0, it is an error."""
        begin = self.at
        opened = _TAG_OPENS.match(self.text, begin)
        if opened is None:
            rest = self.text[begin : begin + 300]
            cut = not rest or (rest[0] in "]<" and ">" not in rest.removeprefix(_MARK) and len(rest) < _MAX_TAG)
            raise UnreadableValueError("a tag is missing", begin, cut=cut)
        tag = opened["tag"]
        self.at = opened.end()
        value = self._read_value(tag, property_schema(schema, tag), depth + 1)
        if tag not in into:
            into[tag] = value
        elif depth == 0:
            if into[tag] != value:
                raise UnreadableValueError(f"{tag!r:.80} is given twice", begin)
        else:
            before = into[tag]
            into[tag] = [*before, value] if isinstance(before, list) else [before, value]

    def _read_value(self, tag: str, schema: Schema, depth: int) -> JsonValue:
        """Read the content of a tag, and its closing tag."""
        if depth > MAX_DEPTH:
            raise UnreadableValueError(f"it is nested more than {MAX_DEPTH} deep", self.at)
        inner = skip_space(self.text, self.at)
        opens_tag = self.text.startswith(f"{_MARK}<", inner) and not self.text.startswith(f"{_MARK}</", inner)
        if opens_tag and "string" not in types_of(schema):
            return self._read_parts(tag, schema, depth)
        return self._read_text(tag, schema)

    def _read_parts(self, tag: str, schema: Schema, depth: int) -> JsonValue:
        closing = re.compile(rf"(?:{_MARK_PATTERN})?</{re.escape(tag)}>")
        is_list = "array" in types_of(schema)
        listed: list[JsonValue] = []
        keyed: dict[str, JsonValue] = {}
        while not self._skip(closing):
            if is_list:
                # The name of an item's tag says nothing: the items are its values.
                item: dict[str, JsonValue] = {}
                self._read_member({"additionalProperties": item_schema(schema)}, item, depth)
                listed += item.values()
            else:
                self._read_member(schema, keyed, depth)
        return listed if is_list else keyed

    def _read_text(self, tag: str, schema: Schema) -> JsonValue:
        begin = self.at
        end = self._skip_text(tag)
        try:
            value, repairs = as_type(strip_newlines(self.text[begin:end]), schema)
        except UnreadableValueError as error:
            raise UnreadableValueError(f"{tag!r:.80}: {error.message}", end) from None
        self.repairs += repairs
        return value

    def _skip_text(self, tag: str) -> int:
        """Skip the text in `tag` and its closing tag, whose mark may be missing. Return the end of the text."""
        closing = f"</{tag}>"
        begin = self.at
        while (at := self.text.find(closing, self.at)) >= 0:
            self.at = at + len(closing)
            if self.text.endswith(_MARK, begin, at):
                return at - len(_MARK)
            if self.text.startswith(_MARK, skip_space(self.text, self.at)):
                self.repairs.append(_LOST_MARK)
                return at
        raise UnreadableValueError("the text ends before its closing tag", begin, cut=True)

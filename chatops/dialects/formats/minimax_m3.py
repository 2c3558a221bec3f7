"""Calls as MiniMax M3 writes them: tags named after the parameters, nested, each after `]<]minimax[>[`.

Only the schema of the tool says whether a tag holds text or further tags, and of what types.
"""

import re

from chatops.dialects.formats.base import (
    MAX_DEPTH,
    NOT_HERE,
    NOT_YET,
    Call,
    Found,
    Item,
    Opening,
    Outcome,
    Trouble,
    cut_off,
    skip_space,
    unknown,
)
from chatops.dialects.json_reader import UnreadableValueError
from chatops.dialects.reading import DiagnosticKind, Schema
from chatops.dialects.values import item_schema, property_schema, strip_newlines, typed, types_of
from chatops.domain.canonical import JsonValue

_MARK = "]<]minimax[>["
_M = re.escape(_MARK)
_WRAPPER = re.compile(rf"\s*<tool_call>\s*(?=(?:{_M})?<invoke)")
_WRAPPER_BEGINS = re.compile(r"\s*(?:<[\w]{0,10}>?\s*[^\s]{0,24})?\Z")
_CALL = re.compile(r"""\s*<invoke\s+name\s*=\s*["']?(?P<name>[^"'<>\s]{1,256})["']?\s*>""")
_CALL_BEGINS = re.compile(r"\s*<(?:i[^<>]{0,280})?\Z")
_CALL_ENDS = re.compile(rf"(?:{_M})?</invoke>")
_OPENS = re.compile(rf"(?:{_M})?<(?P<tag>[^\s<>/\"']{{1,256}})>")
_NEXT_CALL = re.compile(rf"(?:{_M})(?:<invoke\s|</tool_call>)")
_LOST_MARK = "the mark before a closing tag is missing"
_LOST_CALL_END = "the closing tag of the call is missing"


def read_minimax(opening: Opening) -> Outcome:
    """Read the text after the mark: the wrapper of calls, or a call."""
    text, start = opening.text, opening.start
    if wrapper := _WRAPPER.match(text, opening.after):
        return Found(end=wrapper.end(), format="minimax_m3", wraps=True)
    call = _CALL.match(text, opening.after)
    if call is None:
        begun = _WRAPPER_BEGINS.match(text, opening.after) or _CALL_BEGINS.match(text, opening.after)
        return NOT_YET if begun else NOT_HERE
    written = call["name"]
    name = opening.offers.named(written)
    reader = _Reader(text)
    try:
        arguments, end = reader.arguments(call.end(), opening.offers.schema(name) if name else {})
    except UnreadableValueError as error:
        if error.cut:
            return Found(end=len(text), format="minimax_m3", items=(cut_off(written, start),), sure=False)
        closer = _CALL_ENDS.search(text, error.position)
        trouble = Trouble(
            kind=DiagnosticKind.UNREADABLE,
            message=f"could not be read: {error.message}",
            start=start,
            name=written,
        )
        if name is None:
            trouble = unknown(written, opening.offers, start)
        return Found(
            end=closer.end() if closer else len(text), format="minimax_m3", items=(trouble,), sure=closer is not None
        )
    item: Item
    if name is None:
        item = unknown(written, opening.offers, start)
    else:
        item = Call(name=name, arguments=arguments, start=start, end=end, repairs=tuple(dict.fromkeys(reader.repairs)))
    return Found(end=end, format="minimax_m3", items=(item,))


class _Reader:
    """Reader of the tags of one call."""

    __slots__ = ("repairs", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.repairs: list[str] = []

    def arguments(self, at: int, schema: Schema) -> tuple[dict[str, JsonValue], int]:
        """Read the arguments from `at` on; return them and the index after the closing tag of the call."""
        found: dict[str, JsonValue] = {}
        while True:
            at = skip_space(self.text, at)
            if end := _CALL_ENDS.match(self.text, at):
                return found, end.end()
            if found and _NEXT_CALL.match(self.text, at):
                self.repairs.append(_LOST_CALL_END)
                return found, at
            at = self._member(at, schema, found, 0)

    def _member(self, at: int, schema: Schema, into: dict[str, JsonValue], depth: int) -> int:
        """Read one tag into `into`; a repeated name makes a list. Return the index after it."""
        opened = _OPENS.match(self.text, at)
        if opened is None:
            rest = self.text[at : at + 300]
            cut = not rest or (rest[0] in "]<" and ">" not in rest.removeprefix(_MARK) and len(rest) < _LONGEST_TAG)
            raise UnreadableValueError("a tag is missing", at, cut=cut)
        tag = opened["tag"]
        value, end = self._value(tag, opened.end(), property_schema(schema, tag), depth + 1)
        if tag not in into:
            into[tag] = value
        elif depth == 0:
            if into[tag] != value:
                raise UnreadableValueError(f"{tag!r:.80} is given twice", at)
        else:
            before = into[tag]
            into[tag] = [*before, value] if isinstance(before, list) else [before, value]
        return end

    def _value(self, tag: str, at: int, schema: Schema, depth: int) -> tuple[JsonValue, int]:
        """Return the content of the tag, which begins at `at`, and the index after its closing tag."""
        if depth > MAX_DEPTH:
            raise UnreadableValueError(f"it is nested more than {MAX_DEPTH} deep", at)
        inner = skip_space(self.text, at)
        if self.text.startswith(f"{_MARK}<", inner) and not self.text.startswith(f"{_MARK}</", inner):
            if "string" not in types_of(schema):
                return self._parts(tag, inner, schema, depth)
        return self._text(tag, at, schema)

    def _parts(self, tag: str, at: int, schema: Schema, depth: int) -> tuple[JsonValue, int]:
        closing = re.compile(rf"(?:{_M})?</{re.escape(tag)}>")
        is_list = "array" in types_of(schema)
        listed: list[JsonValue] = []
        keyed: dict[str, JsonValue] = {}
        while True:
            at = skip_space(self.text, at)
            if end := closing.match(self.text, at):
                return (listed if is_list else keyed), end.end()
            if is_list:
                one: dict[str, JsonValue] = {}
                at = self._member(at, {"additionalProperties": item_schema(schema)}, one, depth)
                listed += one.values()
            else:
                at = self._member(at, schema, keyed, depth)

    def _text(self, tag: str, at: int, schema: Schema) -> tuple[JsonValue, int]:
        end, after = self._text_end(tag, at)
        try:
            value, repairs = typed(strip_newlines(self.text[at:end]), schema)
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


_LONGEST_TAG = 280

"""Calls of MiniMax M3: tags with the names of the parameters, nested, each after the mark `]<]minimax[>[`.

    ]<]minimax[>[<invoke name="NAME">]<]minimax[>[<key>text]<]minimax[>[</key>]<]minimax[>[</invoke>

Only the schema of the tool says whether a tag holds text or further tags, and of what types.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from chatops.dialects.formats.base import (
    MAX_DEPTH,
    NOT_HERE,
    NOT_YET,
    CallBlock,
    Opening,
    ParseOutcome,
    UnusableCall,
    block_to,
    cut_off_block,
    skip_space,
    unknown_tool_call,
)
from chatops.dialects.formats.json_objects import CallBuilder
from chatops.dialects.reading import DiagnosticKind, Schema, UnreadableValueError
from chatops.dialects.typed_values import as_type, item_schema, property_schema, strip_newlines, types_of
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass

_FORMAT = "minimax_m3"
_MARK = "]<]minimax[>["
_MARK_PATTERN = re.escape(_MARK)
_MAX_TAG = 280
"""Characters of a tag that may still be incomplete: those of a name, and of the mark and `invoke` around it."""
_WRAPPER = re.compile(rf"\s*<tool_call>\s*(?=(?:{_MARK_PATTERN})?<invoke)")
_WRAPPER_MAY_BEGIN = re.compile(r"\s*(?:<[\w]{0,10}>?\s*[^\s]{0,24})?\Z")
_CALL_OPENS = re.compile(r"""\s*<invoke\s+name\s*=\s*["']?(?P<name>[^"'<>\s]{1,256})["']?\s*>""")
_CALL_MAY_OPEN = re.compile(rf"\s*<(?:i[^<>]{{0,{_MAX_TAG}}})?\Z")
_CALL_ENDS = re.compile(rf"(?:{_MARK_PATTERN})?</invoke>")
_NEXT_CALL = re.compile(rf"(?:{_MARK_PATTERN})(?:<invoke\s|</tool_call>)")
_TAG_OPENS = re.compile(rf"(?:{_MARK_PATTERN})?<(?P<name>[^\s<>/\"']{{1,256}})>")
_LOST_MARK = "the mark before a closing tag is missing"
_LOST_CALL_END = "the closing tag of the call is missing"


def read_minimax(opening: Opening) -> ParseOutcome:
    """Read the text after the mark: the wrapper of calls, or a call."""
    text, after = opening.text, opening.after
    if wrapper := _WRAPPER.match(text, after):
        return CallBlock(end=wrapper.end(), format=_FORMAT, wraps=True)
    if opened := _CALL_OPENS.match(text, after):
        return _read_call(opening, opened["name"], opened.end())
    return NOT_YET if _WRAPPER_MAY_BEGIN.match(text, after) or _CALL_MAY_OPEN.match(text, after) else NOT_HERE


def _read_call(opening: Opening, written: str, at: int) -> CallBlock:
    """Return the call of the tool `written`, whose arguments begin at `at`."""
    text, start, offered = opening.text, opening.start, opening.offered
    name = offered.named(written)
    reader = _TagReader(text, at)
    try:
        arguments = reader.read_arguments(offered.schema(name) if name else {})
    except UnreadableValueError as error:
        if error.cut:
            return cut_off_block(text, written, start, format=_FORMAT)
        message = f"could not be read: {error.message}"
        unreadable = UnusableCall(kind=DiagnosticKind.UNREADABLE, message=message, start=start, name=written)
        item = unreadable if name else unknown_tool_call(written, offered, start)
        return block_to(_CALL_ENDS.search(text, error.position), text, item, format=_FORMAT)
    builder = CallBuilder(offered, start, reader.at, tuple(dict.fromkeys(reader.repairs)))
    return CallBlock(end=reader.at, format=_FORMAT, items=(builder.call(written, arguments),))


@frozen_dataclass(kw_only=False)
class _Tag:
    """A tag that was read, up to its closing tag."""

    name: str
    value: JsonValue


@dataclass(slots=True)
class _TagReader:
    """Reader of the tags of one call in `text`. `at` is the index of what is read next."""

    text: str
    at: int
    repairs: list[str] = field(default_factory=list)

    def read_arguments(self, schema: Schema) -> dict[str, JsonValue]:
        """Read the arguments and the closing tag of the call, which may be missing before another call."""
        arguments: dict[str, JsonValue] = {}
        while not self._skip(_CALL_ENDS):
            if arguments and _NEXT_CALL.match(self.text, self.at):
                self.repairs.append(_LOST_CALL_END)
                break
            begin = self.at
            tag = self._read_tag(partial(property_schema, schema), 1)
            if arguments.setdefault(tag.name, tag.value) != tag.value:
                raise UnreadableValueError(f"{tag.name!r:.80} is given twice", begin)
        return arguments

    def _read_tag(self, schema_of: Callable[[str], Schema], depth: int) -> _Tag:
        """Read one tag. `schema_of` returns the schema of its value by its name."""
        opened = _TAG_OPENS.match(self.text, self.at)
        if opened is None:
            raise UnreadableValueError("a tag is missing", self.at, cut=self._tag_may_open())
        self.at = opened.end()
        name = opened["name"]
        return _Tag(name, self._read_value(name, schema_of(name), depth))

    def _tag_may_open(self) -> bool:
        """Return True if all text from `at` on could be the beginning of a tag, such as `]<]mini` or `<ke`."""
        rest = self.text[self.at : self.at + _MAX_TAG]
        return not rest or (len(rest) < _MAX_TAG and rest[0] in "]<" and ">" not in rest.removeprefix(_MARK))

    def _read_value(self, name: str, schema: Schema, depth: int) -> JsonValue:
        """Read the content of the tag `name`, and its closing tag."""
        if depth > MAX_DEPTH:
            raise UnreadableValueError(f"it is nested more than {MAX_DEPTH} deep", self.at)
        inner = skip_space(self.text, self.at)
        opens_tag = self.text.startswith(f"{_MARK}<", inner) and not self.text.startswith(f"{_MARK}</", inner)
        types = types_of(schema)
        if not opens_tag or "string" in types:
            return self._read_text(name, schema)
        closing_tag = re.compile(rf"(?:{_MARK_PATTERN})?</{re.escape(name)}>")
        if "array" in types:
            return self._read_list(closing_tag, item_schema(schema), depth)
        return self._read_object(closing_tag, schema, depth)

    def _read_list(self, closing_tag: re.Pattern[str], schema_of_item: Schema, depth: int) -> list[JsonValue]:
        """Read tags as the items of a list. Models choose their names: `<item>`, `<file>`."""
        items: list[JsonValue] = []
        while not self._skip(closing_tag):
            items.append(self._read_tag(lambda _name: schema_of_item, depth + 1).value)
        return items

    def _read_object(self, closing_tag: re.Pattern[str], schema: Schema, depth: int) -> dict[str, JsonValue]:
        """Read tags as the members of an object. A repeated name makes a list of its values."""
        members: dict[str, JsonValue] = {}
        while not self._skip(closing_tag):
            tag = self._read_tag(partial(property_schema, schema), depth + 1)
            if tag.name in members:
                before = members[tag.name]
                members[tag.name] = [*before, tag.value] if isinstance(before, list) else [before, tag.value]
            else:
                members[tag.name] = tag.value
        return members

    def _read_text(self, name: str, schema: Schema) -> JsonValue:
        """Read the text in the tag `name` as a value of `schema`, and the closing tag."""
        begin = self.at
        end = self._skip_text(f"</{name}>")
        try:
            value, repairs = as_type(strip_newlines(self.text[begin:end]), schema)
        except UnreadableValueError as error:
            raise UnreadableValueError(f"{name!r:.80}: {error.message}", end) from None
        self.repairs += repairs
        return value

    def _skip_text(self, closing_tag: str) -> int:
        """Skip text and its `closing_tag`; return the index of the end of the text.

        Without its mark, a closing tag may be part of the text. It counts if the next mark comes right after it.
        """
        begin = self.at
        while (at := self.text.find(closing_tag, self.at)) >= 0:
            self.at = at + len(closing_tag)
            if self.text.endswith(_MARK, begin, at):
                return at - len(_MARK)
            if self.text.startswith(_MARK, skip_space(self.text, self.at)):
                self.repairs.append(_LOST_MARK)
                return at
        raise UnreadableValueError("the text ends before its closing tag", begin, cut=True)

    def _skip(self, mark: re.Pattern[str]) -> bool:
        """Skip white space and `mark`. Return False if it does not come."""
        self.at = skip_space(self.text, self.at)
        found = mark.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found is not None

"""Calls whose arguments are tags of parameters, typed by the tool's schema.

    <function=NAME><parameter=KEY>value</parameter></function>

Written by Qwen3-Coder, Seed, MiniMax M2, DSML, Step, MiniCPM and Claude's prompts. The tags may be spelled `=NAME` or
`name="NAME"` and have a prefix. A value ends at its closing tag. Calls quoted inside it are counted, so that their tags
do not end it.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto

from chatops.dialects.formats.arguments import ArgumentCollector, CutOffError, ValueEnd
from chatops.dialects.formats.base import (
    CLOSER,
    NOT_HERE,
    NOT_YET,
    QUOTED_CALL,
    CallBlock,
    FoundCall,
    Opening,
    ParseOutcome,
    block_to,
    closer_may_come,
    cut_off_block,
    read_closers,
    skip_space,
    with_repair,
)
from chatops.dialects.formats.json_objects import ARGUMENT_KEYS, broken_block, closed_block, read_arguments, read_named
from chatops.dialects.json_reader import read_whole, unwrap
from chatops.dialects.reading import Schema, UnreadableValueError
from chatops.dialects.typed_values import as_type, property_schema, strip_newlines, types_of
from chatops.domain.canonical import JsonValue

_PREFIX = r"(?:[|｜]DSML[|｜]\s?|steptml:|atem:|antml:)?"
_KEY = r"""(?:"(?P<{0}1>[^"<>\n]{{1,256}})"|'(?P<{0}2>[^'<>\n]{{1,256}})'|(?P<{0}3>[^\s"'<>=]{{1,256}}))"""
"""Template of a name in a tag, in double, single or no quotes: one of the groups `{0}1` to `{0}3`."""
_EQUALS = r"(?:\s*=\s*|[\sĠ]*name\s*=\s*)"
_NAMED_BY = r"(?:\s*=\s*|(?P<named>[\sĠ]*name)\s*=\s*)"
"""`=` or ` name=`, in which MiniCPM may print the space as `Ġ` or leave it out."""
_CALL = rf"<\s?{_PREFIX}(?:function|invoke){_NAMED_BY}{_KEY.format('call')}(?:[\sĠ][^<>]{{0,200}})?>"
_PARAMETER = rf"<\s?{_PREFIX}param(?:eter)?{_EQUALS}{_KEY.format('key')}(?P<more>[\sĠ][^<>]{{0,200}})?>"
_CALL_OPENS = re.compile(_CALL, re.IGNORECASE)
_NAME_IN_OPEN_TAG = re.compile(r"<\s?function\s*=\s*(?P<name>[\w.:/-]{1,256})\s*+(?:\(\s*+)?(?=\{)", re.IGNORECASE)
"""`<function=NAME{...}</function>`, as Llama 3 writes it: the tag is closed after the arguments or not at all."""
_OPEN_TAG_ENDS = re.compile(r"\s*(?:\)\s*)?>?")
_PARAMETER_OPENS = re.compile(_PARAMETER, re.IGNORECASE)
_PARAMETER_CLOSES = rf"<\s?/\s?{_PREFIX}param(?:eter)?\s*>"
_CALL_CLOSES = rf"<\s?/\s?{_PREFIX}(?:function|invoke)\s*>"
_CALL_CLOSING_TAG = re.compile(_CALL_CLOSES, re.IGNORECASE)
_PARAMETER_CLOSING_TAG = re.compile(_PARAMETER_CLOSES, re.IGNORECASE)
# `</tool_call>`, `</minimax:tool_call>`, `</function_calls>`, `</｜DSML｜tool_calls>`
_OUTER_CLOSES = r"</(?:[\w:|]{0,20}tool_calls?|[\w:]{0,20}function_calls?|[|｜]DSML[|｜][\s\w]{0,16})>"
_INSIDE_PARAMETER = re.compile(
    rf"(?P<end>{_PARAMETER_CLOSES})|(?P<call_end>{_CALL_CLOSES})|(?P<call>{_CALL})|(?P<parameter>{_PARAMETER})"
    rf"|(?P<outer>{_OUTER_CLOSES})|(?P<quoted>{QUOTED_CALL})",
    re.IGNORECASE,
)
_NEXT_CALL = re.compile(rf"{_CALL}|<\s?[\w:|]{{0,20}}tool_call\s*>", re.IGNORECASE)
_ARGUMENTS_TAG = re.compile(r"</?arguments>")
_CDATA = re.compile(r"\s*<!\[CDATA\[")
_CDATA_ENDS = "]]>"
_IS_TEXT = re.compile(r"""string\s*=\s*["']?(true|false)""")
"""The attribute of `<｜DSML｜parameter name="k" string="true">`."""
_MAX_OPENING = 700
"""Characters of an opening tag with its attributes that may still be incomplete."""
_LOST_PARAMETER_END = "the closing tag of a parameter is missing"
_LOST_CALL_END = "the closing tag of the function is missing"
_ARGUMENTS_IN_ONE = "all arguments were in one parameter"


class _Stated(Enum):
    """The type that the tag of a parameter states for its value."""

    TEXT = auto()
    """`string="true"`, or CDATA."""
    JSON = auto()
    """`string="false"`."""
    NOTHING = auto()


def read_tagged(opening: Opening, *, format: str) -> ParseOutcome:
    """Return the call whose opening tag begins at `opening.start`."""
    text, start = opening.text, opening.start
    if glued := _NAME_IN_OPEN_TAG.match(text, start):
        return _read_open_tag(opening, glued)
    opened = _CALL_OPENS.match(text, start)
    if opened is None:
        return NOT_YET if _may_still_open(text, start) else NOT_HERE
    written = _name_in(opened, "call")
    at = skip_space(text, opened.end())
    if format == "qwen3_xml" and opened["named"]:
        format = "minicpm5"
    if text.startswith(("{", '"'), at):
        format = "llama3_function_tag" if format == "qwen3_xml" else format
        return read_named(opening, written, at, format=format)
    parameters = _ParameterReader(text, at, ArgumentCollector(written, start, opening.offered))
    try:
        return parameters.read_call(format)
    except CutOffError:
        return cut_off_block(text, written, start, format=format)


def _name_in(tag: re.Match[str], group: str) -> str:
    """Return the name in a tag, which one of the three groups of `_KEY` matches."""
    return tag[f"{group}1"] or tag[f"{group}2"] or tag[f"{group}3"]


def _read_open_tag(opening: Opening, glued: re.Match[str]) -> CallBlock:
    """Return the call whose arguments begin within its opening tag, as `_NAME_IN_OPEN_TAG` has matched it."""
    text, start = opening.text, opening.start
    format = "llama3_function_tag"
    try:
        arguments = read_arguments(text, glued.end())
    except UnreadableValueError as error:
        return broken_block(text, start, error, glued["name"], format=format)
    item = arguments.call_of(glued["name"], opening.offered, start)
    tag = _OPEN_TAG_ENDS.match(text, arguments.end)
    return closed_block(text, tag.end() if tag else arguments.end, [item], format=format, sure=arguments.sure)


def _may_still_open(text: str, start: int) -> bool:
    rest = text[start + 1 : start + _MAX_OPENING]
    return len(text) - start < _MAX_OPENING and ">" not in rest and "<" not in rest


@dataclass(slots=True)
class _ParameterReader:
    """Reader of the parameters of one call in `text`. `at` is the index of what is read next."""

    text: str
    at: int
    call: ArgumentCollector
    sure: bool = True
    """True if no further text could change what was read."""

    def read_call(self, format: str) -> CallBlock:
        """Read the parameters, and return the call with its closing tag. Raises CutOffError."""
        while self._read_parameter() or self._skip_arguments_tag():
            pass
        text, at = self.text, self.at
        if end := _CALL_CLOSING_TAG.match(text, at):
            return CallBlock(end=end.end(), format=format, items=(self._item(end.end()),), sure=self.sure)
        if CLOSER.match(text, at) or (self.call.arguments and _NEXT_CALL.match(text, at)):
            item = with_repair(self._item(at), _LOST_CALL_END)
            return CallBlock(end=at, format=format, items=(item,), sure=self.sure)
        if at == len(text) or closer_may_come(text, at):
            raise CutOffError
        end = _CALL_CLOSING_TAG.search(text, at)
        self.call.refuse_text(text[at : end.start() if end else len(text)], outside="parameters")
        return block_to(end, text, self._item(at), format=format)

    def _read_parameter(self) -> bool:
        """Read the parameter that comes after white space. Return False if none does."""
        self.at = skip_space(self.text, self.at)
        opened = _PARAMETER_OPENS.match(self.text, self.at)
        if opened is None:
            return False
        self.at = opened.end()
        key = _name_in(opened, "key")
        if cdata := _CDATA.match(self.text, self.at):
            self._read_cdata(key, cdata.end())
            return True
        found = self._value_end(key)
        if found.lost_tag:
            self.call.repairs.append(_LOST_PARAMETER_END)
        self._put(key, found.raw_value(self.text, self.at), _stated_type(opened["more"] or ""))
        self.at = found.after
        return True

    def _read_cdata(self, key: str, begin: int) -> None:
        """Read `text]]></parameter>`, of which the text begins at `begin`."""
        close = self.text.find(_CDATA_ENDS, begin)
        after = skip_space(self.text, close + len(_CDATA_ENDS))
        end = _PARAMETER_CLOSING_TAG.match(self.text, after) if close >= 0 else None
        if end is None:
            raise CutOffError
        self._put(key, self.text[begin:close], _Stated.TEXT)
        self.at = end.end()

    def _skip_arguments_tag(self) -> bool:
        """Skip a tag around all parameters. Return False if none comes."""
        tag = _ARGUMENTS_TAG.match(self.text, self.at)
        self.at = tag.end() if tag else self.at
        return tag is not None

    def _value_end(self, key: str) -> ValueEnd:
        """Return the end of the value of `key` that begins at `at`, behind the calls that it quotes."""
        at = self.at
        depth = 0  # Quoted calls that are open at `at`.
        quotes = False  # True once the value quotes a call: closing tags of calls may then belong to that.
        while tag := _INSIDE_PARAMETER.search(self.text, at):
            at = tag.end()
            quotes = quotes or bool(tag["call"] or tag["quoted"])
            if tag["call"]:
                depth += 1
            elif depth:
                depth -= tag["call_end"] is not None
            elif tag["end"]:
                return ValueEnd.closed_by(tag)
            elif tag["parameter"]:
                other = _name_in(tag, "key")
                if other != key and self.call.is_next(other, self.text, tag.start()):
                    return ValueEnd.unclosed_before(tag)
            elif not quotes:
                closers = read_closers(self.text, tag.start(), min_tags=2)
                if closers.end_call:
                    self.sure = self.sure and closers.end < len(self.text)
                    return ValueEnd.unclosed_before(tag)
                at = closers.end
        raise CutOffError

    def _put(self, key: str, raw: str, stated: _Stated) -> None:
        self.call.put(key, lambda schema: _typed_value(raw, schema, stated))

    def _item(self, end: int) -> FoundCall:
        """Return the call, which ends at `end`, or its error."""
        self._unpack()
        return self.call.item(end)

    def _unpack(self) -> None:
        """Use `arguments` or `input` as all arguments if it stands alone and the tool has no parameter of that name."""
        call = self.call
        if len(call.arguments) != 1:
            return
        [(key, value)] = call.arguments.items()
        if key not in ARGUMENT_KEYS or property_schema(call.schema, key):
            return
        try:
            inner, repairs = unwrap(value)
        except UnreadableValueError:
            return
        if isinstance(inner, dict):
            call.arguments = inner
            call.repairs += (_ARGUMENTS_IN_ONE, *repairs)


def _stated_type(attributes: str) -> _Stated:
    found = _IS_TEXT.search(attributes)
    if found is None:
        return _Stated.NOTHING
    return _Stated.TEXT if found[1] == "true" else _Stated.JSON


def _typed_value(raw: str, schema: Schema, stated: _Stated) -> tuple[JsonValue, tuple[str, ...]]:
    """Return the value of a parameter and its repairs.

    Raises UnreadableValueError if it is not of its type.
    """
    types = types_of(schema)
    if stated is _Stated.TEXT and (not types or "string" in types):
        return raw, ()
    if stated is _Stated.JSON and not schema:
        read = read_whole(raw)
        return read.value, read.repairs
    return as_type(strip_newlines(raw), schema)

"""Calls whose arguments are tags, typed by the tool's schema.

Two grammars. `<function=NAME><parameter=KEY>value</parameter>` is written by Qwen3-Coder, Seed, MiniMax M2, DSML, Step,
MiniCPM and Claude's prompts. The tags may be spelled `=NAME` or `name="NAME"` and have a prefix.
`<tool_call>NAME<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>` is written by GLM, Ling, Spark and Poolside.
Hunyuan v3 adds `<tool_sep>` after the name; K2 Horizon adds `ifm|` before each tag, and may write the type of a value
before it.

A value ends at its closing tag. Calls quoted inside a value are counted, so that their tags do not end it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chatops.dialects.formats.base import (
    CLOSER,
    NAME,
    NOT_HERE,
    NOT_YET,
    QUOTED_CALL,
    Call,
    CallBlock,
    FoundCall,
    OfferedTools,
    Opening,
    ParseOutcome,
    UnusableCall,
    closer_may_come,
    cut_off_block,
    read_closers,
    skip_space,
    unknown_tool_call,
    with_repair,
)
from chatops.dialects.formats.json_objects import ARGUMENT_KEYS, broken_block, closed_block, read_arguments, read_named
from chatops.dialects.json_reader import read_whole, unwrap
from chatops.dialects.literals import same_json
from chatops.dialects.reading import DiagnosticKind, Schema, UnreadableValueError
from chatops.dialects.typed_values import as_type, property_schema, strip_newlines, types_of
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass

ReadArgument = Callable[[Schema], tuple[JsonValue, Sequence[str]]]
"""Function from the schema of an argument to its value and repairs. Raises UnreadableValueError."""
_MAX_INDENT = 64
"""Characters before a tag in which the beginning of its line is looked for."""
_PREFIX = r"(?:[|｜]DSML[|｜]\s?|steptml:|atem:|antml:)?"
_KEY = r"""(?:"(?P<{0}1>[^"<>\n]{{1,256}})"|'(?P<{0}2>[^'<>\n]{{1,256}})'|(?P<{0}3>[^\s"'<>=]{{1,256}}))"""
"""Template of a name in a tag, in double, single or no quotes: one of the groups `{0}1` to `{0}3`."""
_EQUALS = r"(?:\s*=\s*|[\sĠ]*name\s*=\s*)"
_NAMED_BY = r"(?:\s*=\s*|(?P<named>[\sĠ]*name)\s*=\s*)"
_CALL = rf"<\s?{_PREFIX}(?:function|invoke){_NAMED_BY}{_KEY.format('call')}(?:[\sĠ][^<>]{{0,200}})?>"
_PARAMETER = rf"<\s?{_PREFIX}param(?:eter)?{_EQUALS}{_KEY.format('key')}(?P<more>[\sĠ][^<>]{{0,200}})?>"
CALL_OPENS = re.compile(_CALL, re.IGNORECASE)
_NAME_IN_OPEN_TAG = re.compile(r"<\s?function\s*=\s*(?P<name>[\w.:/-]{1,256})\s*+(?:\(\s*+)?(?=\{)", re.IGNORECASE)
"""`<function=NAME{...}</function>`, as Llama 3 writes it: the tag is closed after the arguments or not at all."""
_OPEN_TAG_ENDS = re.compile(r"\s*(?:\)\s*)?>?")
_PARAMETER_OPENS = re.compile(_PARAMETER, re.IGNORECASE)
_PARAMETER_CLOSES = rf"<\s?/\s?{_PREFIX}param(?:eter)?\s*>"
_CALL_CLOSES = rf"<\s?/\s?{_PREFIX}(?:function|invoke)\s*>"
_CALL_CLOSING_TAG = re.compile(_CALL_CLOSES, re.IGNORECASE)
_PARAMETER_CLOSING_TAG = re.compile(_PARAMETER_CLOSES, re.IGNORECASE)
_OUTER_CLOSES = r"</(?:[\w:|]{0,20}tool_calls?|[\w:]{0,20}function_calls?|[|｜]DSML[|｜][\s\w]{0,16})>"
_INSIDE_PARAMETER = re.compile(
    rf"(?P<end>{_PARAMETER_CLOSES})|(?P<call_end>{_CALL_CLOSES})|(?P<call>{_CALL})|(?P<parameter>{_PARAMETER})"
    rf"|(?P<outer>{_OUTER_CLOSES})|(?P<quoted>{QUOTED_CALL})",
    re.IGNORECASE,
)
_NEXT_CALL = re.compile(rf"{_CALL}|<\s?[\w:|]{{0,20}}tool_call\s*>", re.IGNORECASE)
_ARGUMENTS_TAG = re.compile(r"</?arguments>")
_CDATA = re.compile(r"\s*<!\[CDATA\[")
_IS_TEXT = re.compile(r"""string\s*=\s*["']?(true|false)""")
_MAX_OPENING = 700
"""Characters of an opening tag with its attributes that may still be incomplete."""
_BEFORE_A_TAG = re.compile(r"\r?\n[ \t]*\Z")
_LOST_PARAMETER_END = "the closing tag of a parameter is missing"
_LOST_CALL_END = "the closing tag of the function is missing"
_ARGUMENTS_IN_ONE = "all arguments were in one parameter"
_IFM = r"(?:ifm\|)?"
"""Prefix of K2 Horizon's tags."""
_SUFFIX = r"(?::\w{1,20})?"
"""Suffix of tags in some models, such as `:opensource`."""
NAME_OF_CALL = re.compile(
    rf"\s*(?P<name>{NAME})\s*(?=(?P<next><{_IFM}(?:arg_key|tool_sep){_SUFFIX}>|</{_IFM}tool_calls?{_SUFFIX}>|\{{))",
    re.IGNORECASE,
)
"""The name of a call, if the text after it proves that it is one."""
_SEPARATOR = re.compile(rf"\s*<{_IFM}tool_sep{_SUFFIX}>")
_KEY_TAG = re.compile(rf"<{_IFM}arg_key{_SUFFIX}>\s*(?P<key>[^<>]{{1,256}}?)\s*</{_IFM}arg_key{_SUFFIX}>\s*")
_TYPE_TAG = re.compile(rf"<{_IFM}arg_type{_SUFFIX}>[^<>]{{0,64}}</{_IFM}arg_type{_SUFFIX}>\s*")
_VALUE_OPENS = re.compile(rf"<{_IFM}arg_value{_SUFFIX}>")
_INSIDE_A_VALUE = re.compile(
    rf"(?P<end></{_IFM}arg_value{_SUFFIX}>)|(?P<value><{_IFM}arg_value{_SUFFIX}>)|<{_IFM}arg_key{_SUFFIX}>\s*(?P<key>[^<>]{{1,256}}?)\s*</"
    rf"|(?P<quoted>{QUOTED_CALL})|</{_IFM}tool_call{_SUFFIX}>"
)
_CALL_ENDS = re.compile(rf"</{_IFM}tool_call{_SUFFIX}>", re.IGNORECASE)
_NEXT_PAIRS = re.compile(rf"<{_IFM}tool_call{_SUFFIX}>|</{_IFM}tool_calls{_SUFFIX}>", re.IGNORECASE)
_VALUE_NOT_OPENED = re.compile(rf"(?=[^<>]{{0,4000}}</{_IFM}arg_value{_SUFFIX}>)")
_LOST_VALUE_START = "the opening tag of a value is missing"
_LOST_VALUE_END = "the closing tag of a value is missing"
_LOST_PAIRS_END = "the closing tag of the call is missing"


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


@frozen_dataclass(kw_only=False)
class _ValueEnd:
    """The end of a value, and the index from which to continue: both are the same if its closing tag is missing."""

    end: int
    after: int

    def raw_value(self, text: str, begin: int) -> str:
        """Return the value that begins at `begin`, without the line break before the tag that ended it instead."""
        value = text[begin : self.end]
        return _BEFORE_A_TAG.sub("", value) if self.lost_tag else value

    @property
    def lost_tag(self) -> bool:
        """True if the closing tag is missing."""
        return self.after == self.end


@dataclass(slots=True)
class _TaggedCall:
    """A call with tags of parameters while it is read."""

    text: str
    call: ArgumentCollector
    sure: bool = True
    """True if no further text could change what was read."""

    def put(self, key: str, raw: str, *, is_text: bool | None) -> None:
        """Add a parameter. `is_text` is the type that its tag states, None if it states none."""
        self.call.put(key, lambda schema: _typed_value(raw, schema, is_text))

    def item(self, end: int) -> FoundCall:
        """Return the call, or its error."""
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


def _typed_value(raw: str, schema: Schema, is_text: bool | None) -> tuple[JsonValue, tuple[str, ...]]:
    """Return the value of a parameter and its repairs.

    Raises UnreadableValueError if it is not of its type.
    """
    types = types_of(schema)
    if is_text and (not types or "string" in types):
        return raw, ()
    if is_text is False and not schema:
        read = read_whole(raw)
        return read.value, read.repairs
    return as_type(strip_newlines(raw), schema)


def read_tagged(opening: Opening, *, format: str) -> ParseOutcome:
    """Return the call whose opening tag begins at `opening.start`."""
    text = opening.text
    if glued := _NAME_IN_OPEN_TAG.match(text, opening.start):
        return _read_open_tag(opening, glued)
    opened = CALL_OPENS.match(text, opening.start)
    if opened is None:
        return NOT_YET if _may_still_open(text, opening.start) else NOT_HERE
    written = opened["call1"] or opened["call2"] or opened["call3"]
    at = skip_space(text, opened.end())
    if format == "qwen3_xml" and opened["named"]:
        format = "minicpm5"
    if text.startswith(("{", '"'), at):
        format = "llama3_function_tag" if format == "qwen3_xml" else format
        return read_named(opening, written, at, format=format)
    reading = _TaggedCall(text, ArgumentCollector(written, opening.start, opening.offered))
    return _read_body(reading, opening.start, at, format)


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


def _read_body(reading: _TaggedCall, start: int, at: int, format: str) -> CallBlock:
    """Read parameters from `at` on, up to the end of the call that begins at `start`."""
    text = reading.text
    while True:
        at = skip_space(text, at)
        if parameter := _PARAMETER_OPENS.match(text, at):
            end_of_parameter = _read_parameter(reading, parameter)
            if end_of_parameter is None:
                return cut_off_block(text, reading.call.written, start, format=format)
            at = end_of_parameter
        elif end := _CALL_CLOSING_TAG.match(text, at):
            item = reading.item(end.end())
            return CallBlock(end=end.end(), format=format, items=(item,), sure=reading.sure)
        elif skipped := _ARGUMENTS_TAG.match(text, at):
            at = skipped.end()
        elif CLOSER.match(text, at) or (reading.call.arguments and _NEXT_CALL.match(text, at)):
            item = with_repair(reading.item(at), _LOST_CALL_END)
            return CallBlock(end=at, format=format, items=(item,), sure=reading.sure)
        elif at == len(text) or closer_may_come(text, at):
            return cut_off_block(text, reading.call.written, start, format=format)
        else:
            end = _CALL_CLOSING_TAG.search(text, at)
            outside = text[at : min(at + 40, end.start() if end else len(text))]
            reading.call.refuse(f"has text outside its parameters: {outside!r}")
            item = reading.item(at)
            return CallBlock(end=end.end() if end else len(text), format=format, items=(item,), sure=end is not None)


def _read_parameter(reading: _TaggedCall, opened: re.Match[str]) -> int | None:
    """Read the value after the opening tag of a parameter; return the index after it, None if it never ends."""
    text, at = reading.text, opened.end()
    key = opened["key1"] or opened["key2"] or opened["key3"]
    if cdata := _CDATA.match(text, at):
        close = text.find("]]>", cdata.end())
        if close < 0:
            return None
        reading.put(key, text[cdata.end() : close], is_text=True)
        end = _PARAMETER_CLOSING_TAG.match(text, skip_space(text, close + 3))
        return end.end() if end else None
    found = _value_end(reading, key, at)
    if found is None:
        return None
    if found.lost_tag:
        reading.call.repairs.append(_LOST_PARAMETER_END)
    is_text = _IS_TEXT.search(opened["more"] or "")
    reading.put(key, found.raw_value(text, at), is_text=is_text[1] == "true" if is_text else None)
    return found.after


def _value_end(reading: _TaggedCall, key: str, at: int) -> _ValueEnd | None:
    """Return the end of the value at `at`, skipping calls quoted in it; None if the text ends first."""
    text = reading.text
    depth = 0  # Quoted calls that are open at `at`.
    quotes = False  # True once the value quotes a call: closing tags of calls may then belong to that.
    while tag := _INSIDE_PARAMETER.search(text, at):
        at = tag.end()
        quotes = quotes or bool(tag["call"] or tag["quoted"])
        if tag["call"]:
            depth += 1
        elif depth:
            depth -= tag["call_end"] is not None
        elif tag["end"]:
            return _ValueEnd(tag.start(), tag.end())
        elif tag["parameter"]:
            other = tag["key1"] or tag["key2"] or tag["key3"]
            if other != key and reading.call.is_next(other, text, tag.start()):
                return _ValueEnd(tag.start(), tag.start())
        elif not quotes:
            closers = read_closers(text, tag.start(), min_tags=2)
            if closers.end_call:
                reading.sure = reading.sure and closers.end < len(text)
                return _ValueEnd(tag.start(), tag.start())
            at = closers.end
    return None


def read_argkey(opening: Opening, at: int, *, format: str) -> CallBlock | None:
    """Return the call whose name is at `at`, after the opening tag; None if the text after the name does not fit."""
    text, start, offered = opening.text, opening.start, opening.offered
    named = NAME_OF_CALL.match(text, at)
    if named is None:
        return None
    written = named["name"]
    at = named.end()
    if separator := _SEPARATOR.match(text, at):
        at = separator.end()
        format = "hy_v3" if format == "glm_argkey" else format
    at = skip_space(text, at)
    if text.startswith("{", at):
        return read_named(opening, written, at, format=format)
    call = ArgumentCollector(written, start, offered)
    pairs = _PairReader(text, call)
    end = pairs.read(at)
    if end is None:
        return cut_off_block(text, written, start, format=format)
    item = call.item(end)
    if closed := _CALL_ENDS.match(text, end):
        return CallBlock(end=closed.end(), format=format, items=(item,), sure=pairs.sure)
    return CallBlock(end=end, format=format, items=(with_repair(item, _LOST_PAIRS_END),), sure=pairs.sure)


@dataclass(slots=True)
class _PairReader:
    """Reader of the pairs of keys and values of one call."""

    text: str
    call: ArgumentCollector
    sure: bool = True
    """True if no further text could change what was read."""

    def read(self, at: int) -> int | None:
        """Read the pairs from `at` on; return the index of the mark that ends the call, None if there is none."""
        text = self.text
        while key := _KEY_TAG.match(text, at):
            at = key.end()
            if kind := _TYPE_TAG.match(text, at):
                at = kind.end()
            value = _VALUE_OPENS.match(text, at)
            if value is None:
                value = _VALUE_NOT_OPENED.match(text, at)
                if value is None:
                    return None
                self.call.repairs.append(_LOST_VALUE_START)
            end_of_value = self._read_value(key["key"], value.end())
            if end_of_value is None:
                return None
            at = skip_space(text, end_of_value)
        if _CALL_ENDS.match(text, at) or (self.call.arguments and _NEXT_PAIRS.match(text, at)):
            return at
        if at == len(text) or closer_may_come(text, at) or not self.call.arguments:
            return None
        found = _CALL_ENDS.search(text, at)
        end = found.start() if found else len(text)
        self.call.refuse(f"has text outside its arguments: {text[at : min(at + 40, end)]!r}")
        self.sure = found is not None
        return end

    def _read_value(self, key: str, at: int) -> int | None:
        """Read the value at `at`; return the index after it, None if it never ends."""
        found = self._value_end(key, at)
        if found is None:
            return None
        if found.lost_tag:
            self.call.repairs.append(_LOST_VALUE_END)
        raw = found.raw_value(self.text, at)
        self.call.put(key, lambda schema: as_type(strip_newlines(raw), schema))
        return found.after

    def _value_end(self, key: str, at: int) -> _ValueEnd | None:
        """Return the end of the value at `at`; None if the text ends first."""
        depth = 0  # Quoted values that are open at `at`.
        quotes = False  # True once the value quotes a call: closing tags of calls may then belong to that.
        while tag := _INSIDE_A_VALUE.search(self.text, at):
            at = tag.end()
            quotes = quotes or bool(tag["value"] or tag["quoted"])
            if tag["value"]:
                depth += 1
            elif tag["end"]:
                if not depth:
                    return _ValueEnd(tag.start(), tag.end())
                depth -= 1
            elif depth:
                continue
            elif tag["key"]:
                if tag["key"] != key and self.call.is_next(tag["key"], self.text, tag.start()):
                    return _ValueEnd(tag.start(), tag.start())
            elif not quotes:
                closers = read_closers(self.text, tag.start(), min_tags=1)
                if closers.end_call:
                    self.sure = self.sure and closers.end < len(self.text)
                    return _ValueEnd(tag.start(), tag.start())
                at = closers.end
        return None

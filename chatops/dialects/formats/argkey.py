"""Calls whose arguments are pairs of tags, of GLM, Ling, Spark and Poolside, typed by the tool's schema.

    <tool_call>NAME<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>

Hunyuan v3 adds `<tool_sep>` after the name. K2 Horizon adds `ifm|` before each tag, and may write the type of a value
before it. A value ends at its closing tag. Values quoted inside it are counted, so that their tags do not end it.
"""

import re
from dataclasses import dataclass

from chatops.dialects.formats.arguments import ArgumentCollector, CutOffError, ValueEnd
from chatops.dialects.formats.base import (
    NAME,
    QUOTED_CALL,
    CallBlock,
    Opening,
    closer_may_come,
    cut_off_block,
    read_closers,
    skip_space,
    with_repair,
)
from chatops.dialects.formats.json_objects import read_named
from chatops.dialects.typed_values import as_type, strip_newlines

_IFM = r"(?:ifm\|)?"
"""Prefix of K2 Horizon's tags."""
_SUFFIX = r"(?::\w{1,20})?"
"""Suffix of tags in some models, such as `:opensource`."""
_NAME_OF_CALL = re.compile(
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
"""`<arg_key>k</arg_key>v</arg_value>`: a closing tag comes before any other tag."""
_LOST_VALUE_START = "the opening tag of a value is missing"
_LOST_VALUE_END = "the closing tag of a value is missing"
_LOST_PAIRS_END = "the closing tag of the call is missing"


def read_argkey(opening: Opening, at: int, *, format: str) -> CallBlock | None:
    """Return the call whose name is at `at`, after the opening tag; None if the text after the name does not fit."""
    text, start = opening.text, opening.start
    named = _NAME_OF_CALL.match(text, at)
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
    pairs = _PairReader(text, at, ArgumentCollector(written, start, opening.offered))
    try:
        end = pairs.read()
    except CutOffError:
        return cut_off_block(text, written, start, format=format)
    item = pairs.call.item(end)
    if closed := _CALL_ENDS.match(text, end):
        return CallBlock(end=closed.end(), format=format, items=(item,), sure=pairs.sure)
    return CallBlock(end=end, format=format, items=(with_repair(item, _LOST_PAIRS_END),), sure=pairs.sure)


@dataclass(slots=True)
class _PairReader:
    """Reader of the pairs of keys and values of one call in `text`. `at` is the index of what is read next."""

    text: str
    at: int
    call: ArgumentCollector
    sure: bool = True
    """True if no further text could change what was read."""

    def read(self) -> int:
        """Read the pairs; return the index of the mark that ends the call. Raises CutOffError."""
        while key := _KEY_TAG.match(self.text, self.at):
            self.at = key.end()
            self._read_value(key["key"])
            self.at = skip_space(self.text, self.at)
        text, at, has_arguments = self.text, self.at, bool(self.call.arguments)
        if _CALL_ENDS.match(text, at) or (has_arguments and _NEXT_PAIRS.match(text, at)):
            return at
        if at == len(text) or closer_may_come(text, at) or not has_arguments:
            raise CutOffError
        found = _CALL_ENDS.search(text, at)
        end = found.start() if found else len(text)
        self.call.refuse_text(text[at:end])
        self.sure = found is not None
        return end

    def _read_value(self, key: str) -> None:
        """Read the value of `key`, its tags included, of which that before it may be missing."""
        if kind := _TYPE_TAG.match(self.text, self.at):
            self.at = kind.end()
        if opened := _VALUE_OPENS.match(self.text, self.at):
            self.at = opened.end()
        elif _VALUE_NOT_OPENED.match(self.text, self.at):
            self.call.repairs.append(_LOST_VALUE_START)
        else:
            raise CutOffError
        found = self._value_end(key)
        if found.lost_tag:
            self.call.repairs.append(_LOST_VALUE_END)
        raw = found.raw_value(self.text, self.at)
        self.call.put(key, lambda schema: as_type(strip_newlines(raw), schema))
        self.at = found.after

    def _value_end(self, key: str) -> ValueEnd:
        """Return the end of the value of `key` that begins at `at`."""
        at = self.at
        depth = 0  # Quoted values that are open at `at`.
        quotes = False  # True once the value quotes a call: closing tags of calls may then belong to that.
        while tag := _INSIDE_A_VALUE.search(self.text, at):
            at = tag.end()
            quotes = quotes or bool(tag["value"] or tag["quoted"])
            if tag["value"]:
                depth += 1
            elif tag["end"]:
                if not depth:
                    return ValueEnd.closed_by(tag)
                depth -= 1
            elif depth:
                continue
            elif tag["key"]:
                if tag["key"] != key and self.call.is_next(tag["key"], self.text, tag.start()):
                    return ValueEnd.unclosed_before(tag)
            elif not quotes:
                closers = read_closers(self.text, tag.start(), min_tags=1)
                if closers.end_call:
                    self.sure = self.sure and closers.end < len(self.text)
                    return ValueEnd.unclosed_before(tag)
                at = closers.end
        raise CutOffError

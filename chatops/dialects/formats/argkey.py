"""Calls as a bare name and pairs of tags: `<tool_call>NAME<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>`.

Written by GLM, Ling, Spark and Poolside. Hunyuan v3 adds `<tool_sep>` after the name. K2 Horizon adds `ifm|` before
each tag, and may write the type of a value before it.
"""

import re

from chatops.dialects.formats.base import (
    NAME,
    Found,
    Opening,
    cut_off,
    skip_space,
    with_repair,
)
from chatops.dialects.formats.closing import QUOTED_CALL, call_ends_at, closer_may_come
from chatops.dialects.formats.collected import Collected
from chatops.dialects.formats.objects import read_named
from chatops.dialects.values import strip_newlines, typed

_P = r"(?:ifm\|)?"
_S = r"(?::\w{1,20})?"
NAMED = re.compile(
    rf"\s*(?P<name>{NAME})\s*(?=(?P<next><{_P}(?:arg_key|tool_sep){_S}>|</{_P}tool_calls?{_S}>|\{{))", re.IGNORECASE
)
"""The name of a call, if the text after it proves that it is one."""
_SEPARATOR = re.compile(rf"\s*<{_P}tool_sep{_S}>")
_KEY = re.compile(rf"<{_P}arg_key{_S}>\s*(?P<key>[^<>]{{1,256}}?)\s*</{_P}arg_key{_S}>\s*")
_TYPE = re.compile(rf"<{_P}arg_type{_S}>[^<>]{{0,64}}</{_P}arg_type{_S}>\s*")
_VALUE = re.compile(rf"<{_P}arg_value{_S}>")
_INSIDE = re.compile(
    rf"(?P<end></{_P}arg_value{_S}>)|(?P<value><{_P}arg_value{_S}>)|<{_P}arg_key{_S}>\s*(?P<key>[^<>]{{1,256}}?)\s*</"
    rf"|(?P<quoted>{QUOTED_CALL})|</{_P}tool_call{_S}>"
)
_CALL_ENDS = re.compile(rf"</{_P}tool_call{_S}>", re.IGNORECASE)
_NEXT = re.compile(rf"<{_P}tool_call{_S}>|</{_P}tool_calls{_S}>", re.IGNORECASE)
_BEFORE_A_TAG = re.compile(r"\r?\n[ \t]*\Z")
_UNOPENED = re.compile(rf"(?=[^<>]{{0,4000}}</{_P}arg_value{_S}>)")
_LOST_VALUE_START = "the opening tag of a value is missing"
_LOST_VALUE_END = "the closing tag of a value is missing"
_LOST_CALL_END = "the closing tag of the call is missing"


def read_argkey(opening: Opening, at: int, *, format: str) -> Found | None:
    """Return the call whose name is at `at`, after the opening tag; None if the text after the name does not fit."""
    text, start, offers = opening.text, opening.start, opening.offers
    named = NAMED.match(text, at)
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
    call = Collected(written, start, offers)
    pairs = _Pairs(text, call)
    end = pairs.read(at)
    if end < 0:
        return Found(end=len(text), format=format, items=(cut_off(written, start),), sure=False)
    item = call.item(end)
    if closed := _CALL_ENDS.match(text, end):
        return Found(end=closed.end(), format=format, items=(item,), sure=pairs.ended)
    return Found(end=end, format=format, items=(with_repair(item, _LOST_CALL_END),), sure=pairs.ended)


class _Pairs:
    """Reader of the pairs of keys and values of one call."""

    __slots__ = ("call", "ended", "text")

    def __init__(self, text: str, call: Collected) -> None:
        self.text = text
        self.call = call
        self.ended = True
        """True if no further text could change what was read."""

    def read(self, at: int) -> int:
        """Read the pairs from `at` on; return the index of the mark that ends the call, -1 if there is none."""
        text = self.text
        while key := _KEY.match(text, at):
            at = key.end()
            if kind := _TYPE.match(text, at):
                at = kind.end()
            value = _VALUE.match(text, at)
            if value is None:
                value = _UNOPENED.match(text, at)
                if value is None:
                    return -1
                self.call.repairs.append(_LOST_VALUE_START)
            at = self._value(key["key"], value.end())
            if at < 0:
                return -1
            at = skip_space(text, at)
        if _CALL_ENDS.match(text, at) or (self.call.arguments and _NEXT.match(text, at)):
            return at
        if at == len(text) or closer_may_come(text, at) or not self.call.arguments:
            return -1
        found = _CALL_ENDS.search(text, at)
        end = found.start() if found else len(text)
        self.call.refuse(f"has text outside its arguments: {text[at : min(at + 40, end)]!r}")
        self.ended = found is not None
        return end

    def _value(self, key: str, at: int) -> int:
        found = self._value_end(key, at)
        if found is None:
            return -1
        end, after = found
        raw = self.text[at:end]
        if after == end:
            self.call.repairs.append(_LOST_VALUE_END)
            raw = _BEFORE_A_TAG.sub("", raw)
        self.call.put(key, lambda schema: typed(strip_newlines(raw), schema))
        return after

    def _value_end(self, key: str, at: int) -> tuple[int, int] | None:
        """Return the end of the value at `at`, and the index from which to continue; quoted values are counted."""
        depth = 0
        quotes = False
        while tag := _INSIDE.search(self.text, at):
            at = tag.end()
            quotes = quotes or bool(tag["value"] or tag["quoted"])
            if tag["value"]:
                depth += 1
            elif tag["end"]:
                if not depth:
                    return tag.start(), tag.end()
                depth -= 1
            elif depth:
                continue
            elif tag["key"]:
                if tag["key"] != key and self.call.is_next(tag["key"], self.text, tag.start()):
                    return tag.start(), tag.start()
            elif not quotes:
                ends, at = call_ends_at(self.text, tag.start(), least=1)
                if ends:
                    self.ended = self.ended and at < len(self.text)
                    return tag.start(), tag.start()
        return None

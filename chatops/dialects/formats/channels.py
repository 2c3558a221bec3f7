"""Messages in channels and parts: Harmony (gpt-oss), Muse and Kimi K3.

    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
    <|start|>assistant to=user<|message|>text<|eom|>
    <|open|>call tool="NAME"<|sep|><|open|>argument key="k" type="string"<|sep|>v<|close|>argument<|sep|>
    <|close|>call<|sep|>

In Harmony and Muse, a header names the recipient. The first part of a reply lacks the text that was already in the
prompt, so it may begin with ` to=`. Only a message addressed to a tool can be a call: not the final answer, not
thought, not a message to the user. In Kimi K3, the answer is in `response`, thought in `think`, calls in `tools`;
values are raw text with their type as an attribute.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto

from chatops.dialects.formats.arguments import ArgumentCollector, CutOffError, ValueEnd
from chatops.dialects.formats.base import (
    NOT_HERE,
    TOO_EARLY,
    CallBlock,
    Early,
    FoundCall,
    OfferedTools,
    Opening,
    ParseOutcome,
    UnusableCall,
    closer_may_come,
    cut_off_block,
    skip_space,
    unreadable_call,
)
from chatops.dialects.formats.json_objects import CallBuilder, read_arguments
from chatops.dialects.json_reader import read_whole
from chatops.dialects.reading import Schema, UnreadableValueError
from chatops.dialects.typed_values import as_type
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass

_HEADER_PART = r"[^<\n]{0,200}"
_HEADER = re.compile(
    rf"(?:<\|start\|>)?(?P<role>{_HEADER_PART})(?:<\|(?:channel|constrain)\|>{_HEADER_PART}){{0,4}}<\|message\|>",
)
_HEADER_MAY_BEGIN = re.compile(
    rf"(?:<\|start\|>)?{_HEADER_PART}(?:<\|(?:channel|constrain)\|>{_HEADER_PART}){{0,4}}(?:<(?:\|\w{{0,12}}(?:\|)?)?)?\Z"
)
_RECIPIENT = re.compile(r"\bto=([^\s<|]{1,256})")
_ROLE = re.compile(r"\s*(?!to=)([^\s<]*)")
_OWN_ROLES = frozenset({"assistant", ""})
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w{0,40})")
_CALL_MESSAGE_ENDS = re.compile(r"\s*<\|(?:call|end|return|eom|eot)\|>")
CHANNEL_ENDS = frozenset({"|end|", "|return|", "|call|", "|eom|", "|eot|"})
"""Words of the tokens that end a message in a channel."""
_USER_NAMES = frozenset({"user", "final"})
"""Recipients of a message that mean the user."""
_OWN_NAMES = frozenset({"self", "analysis"})
"""Recipients of a message that mean the model itself."""
_PART_MARK = re.compile(
    r"<\|(?P<side>open|close)\|>\s?(?P<name>response|think|tools|call|message)\b(?P<more>[^<]{0,400})<\|sep\|>"
)
_PART_MAY_BEGIN = re.compile(r"<\|(?:open|close)\|>\s?\w{0,12}[^<]{0,400}(?:<(?:\|(?:s(?:e(?:p\|?)?)?)?)?)?\Z")
_TOOL_ATTRIBUTE = re.compile(r'\btool="([^"]{1,256})"')
_ARGUMENT = re.compile(r"<\|open\|>\s?(?P<what>argument|json)\b(?P<more>[^<]{0,600})<\|sep\|>")
_KEY_ATTRIBUTE = re.compile(r'\bkey="([^"]{1,256})"')
_TYPE_ATTRIBUTE = re.compile(r'\btype="(\w{1,16})"')
_ARGUMENT_MARK = re.compile(r"<\|(?P<side>open|close)\|>\s?(?:argument|json)\b[^<]{0,600}<\|sep\|>")
_CALL_ENDS = re.compile(r"<\|close\|>\s?call\s?<\|sep\|>")
_KIMI = "kimi_k3"


class ChannelPurpose(Enum):
    """Purpose of a message in a channel."""

    CALL = auto()
    """Arguments for the recipient follow."""
    TO_A_TOOL = auto()
    """Addressed to a tool; calls in tags may follow."""
    ANSWER = auto()
    """For the user; nothing in it runs."""
    THOUGHT = auto()
    """For the model itself."""
    OTHER_ROLE = auto()
    """From another role, made up by the model."""


@frozen_dataclass
class ChannelHeader:
    """The header of a message in a channel."""

    purpose: ChannelPurpose
    end: int
    """Index after the header, where the message begins."""
    recipient: str = ""
    """Name after `to=`; empty if there is none."""


def read_header(text: str, start: int) -> ChannelHeader | Early | None:
    """Return the header that begins at `start`; None if there is none."""
    found = _HEADER.match(text, start)
    if found is None:
        return TOO_EARLY if _HEADER_MAY_BEGIN.match(text, start) else None
    header = found[0]
    recipient = _RECIPIENT.search(header)
    channel = _CHANNEL.search(header)
    name = recipient[1] if recipient else ""
    role = _ROLE.match(found["role"])
    if header.startswith("<|start|>") and role and role[1] not in _OWN_ROLES:
        purpose = ChannelPurpose.OTHER_ROLE
    elif name in _USER_NAMES:
        purpose = ChannelPurpose.ANSWER
    elif name in _OWN_NAMES:
        purpose = ChannelPurpose.THOUGHT
    elif name:
        purpose = ChannelPurpose.CALL if channel or name.startswith("functions.") else ChannelPurpose.TO_A_TOOL
    elif channel and channel[1] == "analysis":
        purpose = ChannelPurpose.THOUGHT
    else:
        purpose = ChannelPurpose.ANSWER
    return ChannelHeader(purpose=purpose, end=found.end(), recipient=name)


def read_channel_call(text: str, start: int, header: ChannelHeader, offered: OfferedTools) -> CallBlock:
    """Return the call after a header: its arguments and the token that ends them."""
    written = header.recipient
    if offered.named(written) is None:
        written = written.removeprefix("functions.")
    try:
        arguments = read_arguments(text, header.end)
    except UnreadableValueError as error:
        ended = None if error.cut else _CALL_MESSAGE_ENDS.search(text, error.position)
        unusable = unreadable_call(error, written, start)
        return CallBlock(end=ended.end() if ended else len(text), format="harmony", items=(unusable,), sure=False)
    item: FoundCall = arguments.call_of(written, offered, start)
    end, sure = arguments.end, arguments.sure
    if ended := _CALL_MESSAGE_ENDS.match(text, end):
        return CallBlock(end=ended.end(), format="harmony", items=(item,), sure=sure)
    return CallBlock(end=end, format="harmony", items=(item,), sure=sure and not closer_may_come(text, end))


@frozen_dataclass
class PartMark:
    """The tag that opens or closes a part of a message, such as ``<|open|>call<|sep|>``."""

    name: str
    opens: bool
    attributes: str
    end: int


def read_part(text: str, start: int) -> PartMark | Early | None:
    """Return the mark that begins at `start`; None if there is none."""
    found = _PART_MARK.match(text, start)
    if found is None:
        return TOO_EARLY if _PART_MAY_BEGIN.match(text, start) else None
    return PartMark(name=found["name"], opens=found["side"] == "open", attributes=found["more"], end=found.end())


def read_part_call(opening: Opening, part: PartMark) -> ParseOutcome:
    """Return the call whose opening mark is `part`."""
    text, start, offered = opening.text, opening.start, opening.offered
    tool = _TOOL_ATTRIBUTE.search(part.attributes)
    if tool is None:
        return NOT_HERE
    call = _PartCall(text, part.end, start, ArgumentCollector(_unescape(tool[1]), start, offered), offered)
    try:
        return call.read()
    except CutOffError:
        return cut_off_block(text, call.collector.written, start, format=_KIMI)


@dataclass(slots=True)
class _PartCall:
    """Reader of a call in parts, of Kimi K3. `at` is the index of what is read next."""

    text: str
    at: int
    start: int
    """Index where the call begins."""
    collector: ArgumentCollector
    offered: OfferedTools
    _all_arguments: JsonValue = None
    """All arguments, if they were written as one object, in a part `json`."""

    def read(self) -> CallBlock:
        """Read the arguments, and return the call with its closing mark. Raises CutOffError."""
        while self._read_argument():
            pass
        end = _CALL_ENDS.match(self.text, self.at)
        if end is None:
            # Another mark, or the end of the text, is no text outside of arguments.
            is_text = self.at < len(self.text) and not self.text.startswith("<|", self.at)
            end = _CALL_ENDS.search(self.text, self.at) if is_text else None
            if end is None:
                raise CutOffError
            self.collector.refuse_text(self.text[self.at : end.start()])
        return CallBlock(end=end.end(), format=_KIMI, items=(self._item(end.end()),))

    def _read_argument(self) -> bool:
        """Read the argument that comes after white space. Return False if none does."""
        self.at = skip_space(self.text, self.at)
        opened = _ARGUMENT.match(self.text, self.at)
        if opened is None:
            return False
        value = self._value_end(opened.end())
        self.at = value.after
        self._add_argument(opened, self.text[opened.end() : value.end])
        return True

    def _item(self, end: int) -> FoundCall:
        """Return the call, which ends at `end`, or its error."""
        item = self.collector.item(end)
        if self._all_arguments is None or isinstance(item, UnusableCall):
            return item
        return CallBuilder(self.offered, self.start, end, item.repairs).call(item.name, self._all_arguments)

    def _value_end(self, at: int) -> ValueEnd:
        """Return the end of the value at `at`. Marks are counted, because the value may quote arguments."""
        depth = 0  # Quoted arguments that are open.
        for mark in _ARGUMENT_MARK.finditer(self.text, at):
            if mark["side"] == "open":
                depth += 1
            elif not depth:
                return ValueEnd.closed_by(mark)
            else:
                depth -= 1
        raise CutOffError

    def _add_argument(self, opened: re.Match[str], raw: str) -> None:
        if opened["what"] == "json":
            self._add_all_arguments(raw)
            return
        kind = _TYPE_ATTRIBUTE.search(opened["more"])
        key = _KEY_ATTRIBUTE.search(opened["more"])
        if key is None:
            self.collector.refuse("has an argument without a name")
            return
        is_text = kind is None or kind[1] == "string"
        self.collector.put(_unescape(key[1]), lambda schema: _typed_value(raw, schema, is_text=is_text))

    def _add_all_arguments(self, raw: str) -> None:
        try:
            read = read_whole(raw)
        except UnreadableValueError as error:
            self.collector.refuse(f"has arguments that could not be read: {error.message}")
            return
        self._all_arguments = read.value
        self.collector.repairs += read.repairs


def _typed_value(raw: str, schema: Schema, *, is_text: bool) -> tuple[JsonValue, tuple[str, ...]]:
    """Return the value of an argument and its repairs.

    Raises UnreadableValueError if it is not of its type.
    """
    if not is_text:
        read = read_whole(raw)
        return read.value, read.repairs
    return as_type(raw, schema)


def _unescape(attribute: str) -> str:
    return attribute.replace("&quot;", '"').replace("&amp;", "&")

"""Messages in channels: Harmony (gpt-oss) and Muse, where a header names the recipient.

    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
    <|start|>assistant to=user<|message|>text<|eom|>

The first part of a reply lacks the text that was already in the prompt, so it may begin with ` to=`. Only a message
addressed to a tool can be a call: not the final answer, not thought, not a message to the user.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto

from chatops.dialects.formats.base import Found, Item, unreadable
from chatops.dialects.formats.closing import closer_may_come
from chatops.dialects.formats.objects import read_arguments
from chatops.dialects.formats.shapes import Shape
from chatops.dialects.json_reader import UnreadableValueError
from chatops.dialects.offers import Offers
from chatops.dialects.scanner import TOO_EARLY, Early

_PART = r"[^<\n]{0,200}"
_HEADER = re.compile(
    rf"(?:<\|start\|>)?(?P<role>{_PART})(?:<\|(?:channel|constrain)\|>{_PART}){{0,4}}<\|message\|>",
)
_BEGINS = re.compile(
    rf"(?:<\|start\|>)?{_PART}(?:<\|(?:channel|constrain)\|>{_PART}){{0,4}}(?:<(?:\|\w{{0,12}}(?:\|)?)?)?\Z"
)
_RECIPIENT = re.compile(r"\bto=([^\s<|]{1,256})")
_ROLE = re.compile(r"\s*(?!to=)([^\s<]*)")
_OWN_ROLES = frozenset({"assistant", ""})
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w{0,40})")
_ENDS = re.compile(r"\s*<\|(?:call|end|return|eom|eot)\|>")
FRAME_ENDS = frozenset({"|end|", "|return|", "|call|", "|eom|", "|eot|"})
"""Words of the tokens that end a message in a channel."""
_PEOPLE = frozenset({"user", "final"})
_ITSELF = frozenset({"self", "analysis"})


class Purpose(Enum):
    """Purpose of a message in a channel."""

    CALL = auto()
    """Arguments for the recipient follow."""
    TO_A_TOOL = auto()
    """Addressed to a tool; calls in tags may follow."""
    SAID = auto()
    """For the user; nothing in it runs."""
    THOUGHT = auto()
    FOREIGN = auto()
    """From another role, made up by the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of a message in a channel."""

    purpose: Purpose
    end: int
    recipient: str = ""


def read_header(text: str, start: int) -> Header | Early | None:
    """Return the header that begins at `start`; None if there is none."""
    found = _HEADER.match(text, start)
    if found is None:
        return TOO_EARLY if _BEGINS.match(text, start) else None
    written = found[0]
    recipient = _RECIPIENT.search(written)
    channel = _CHANNEL.search(written)
    name = recipient[1] if recipient else ""
    role = _ROLE.match(found["role"])
    if written.startswith("<|start|>") and role and role[1] not in _OWN_ROLES:
        purpose = Purpose.FOREIGN
    elif name in _PEOPLE:
        purpose = Purpose.SAID
    elif name in _ITSELF:
        purpose = Purpose.THOUGHT
    elif name:
        purpose = Purpose.CALL if channel or name.startswith("functions.") else Purpose.TO_A_TOOL
    elif channel and channel[1] == "analysis":
        purpose = Purpose.THOUGHT
    else:
        purpose = Purpose.SAID
    return Header(purpose=purpose, end=found.end(), recipient=name)


def read_channel_call(text: str, start: int, header: Header, offers: Offers) -> Found:
    """Return the call after a header: its arguments and the token that ends them."""
    written = header.recipient
    if offers.named(written) is None:
        written = written.removeprefix("functions.")
    try:
        arguments, end, repairs, sure = read_arguments(text, header.end)
    except UnreadableValueError as error:
        ended = None if error.cut else _ENDS.search(text, error.position)
        trouble = unreadable(error, written, start)
        return Found(end=ended.end() if ended else len(text), format="harmony", items=(trouble,), sure=False)
    item: Item = Shape(offers, start, end, repairs).call(written, arguments)
    if ended := _ENDS.match(text, end):
        return Found(end=ended.end(), format="harmony", items=(item,), sure=sure)
    return Found(end=end, format="harmony", items=(item,), sure=sure and not closer_may_come(text, end))

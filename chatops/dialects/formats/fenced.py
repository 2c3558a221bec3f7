"""Calls in fenced blocks at the end of a message.

They look the same as documentation, so the user decides. Only a fence that is the whole message has high confidence.
"""

import re
from dataclasses import replace

from chatops.dialects.formats.base import Call, Found, Item, Opening, doubtful, skip_space, unclosed
from chatops.dialects.formats.closing import END_OF_TEXT
from chatops.dialects.formats.marked import read_marked
from chatops.dialects.formats.python_calls import python_items, tool_of
from chatops.dialects.formats.shapes import Shape
from chatops.dialects.formats.tagged import read_tagged
from chatops.dialects.json_reader import UnreadableValueError, read_value
from chatops.dialects.masks import PYTHON_LANGUAGES, Fence
from chatops.dialects.offers import Offers
from chatops.dialects.pythonic import PythonicCall, read_call, read_call_list

_TAGGED = re.compile(r"<\s?(tool_call|function_calls?|tool_calls)\s*>|<\s?(function|invoke)[\s=]", re.IGNORECASE)
_PRINT = re.compile(r"\s*+(?P<print>print\s*+\()")
_PRINT_ENDS = re.compile(r"\s*+\)[ \t]*;?")
_OWN_MODULE = "default_api."
_PYTHON = re.compile(r"\[?\s*[^\W\d][\w.-]*\s*\(")


def begins_like_a_call(text: str, fence: Fence) -> bool | None:
    """Return True if the first character in a fence fits a call; None while there is none."""
    at = skip_space(text, fence.body)
    if at == len(text):
        return None
    if text[at] in "{[<":
        return True
    return fence.language in PYTHON_LANGUAGES and (text[at].isalpha() or text[at] == "_")


def read_fenced(text: str, fence: Fence, offers: Offers, *, alone: bool) -> Found | None:
    """Return the calls in a fence; None if it holds anything else.

    `fence.ends` may be missing: a message may stop after the last call. With `alone`, nothing else is in the message,
    so its calls have high confidence.
    """
    whole = text[: _without_end_of_text(text)]
    closed = fence.ends.search(whole, fence.body)
    body = whole[: closed.start() + 1] if closed else whole
    items = _in_tags(body, fence, offers) or _objects(body, fence, offers) or _python(body, fence, offers)
    if not items or not any(isinstance(each, Call) for each in items):
        return None
    if not closed:
        items = [unclosed(each) for each in items]
    if not (alone and closed):
        items = [doubtful(each) for each in items]
    return Found(end=closed.end() if closed else len(text), format="json_fenced", items=tuple(items))


def _without_end_of_text(text: str) -> int:
    end = len(text.rstrip())
    for found in END_OF_TEXT.finditer(text, max(0, end - 64)):
        if found.end() == end:
            return found.start()
    return len(text)


def _objects(text: str, fence: Fence, offers: Offers) -> list[Item] | None:
    at = skip_space(text, fence.body)
    items: list[Item] = []
    while text[at : at + 1] in ("{", "["):
        try:
            read = read_value(text, at, close_open=True)
        except UnreadableValueError:
            return None
        calls = Shape(offers, at, read.end, read.repairs, read.closed).unmarked(read.value)
        if calls is None:
            return None
        items += calls
        at = skip_space(text, read.end)
    return items if at == len(text) else None


def _in_tags(text: str, fence: Fence, offers: Offers) -> list[Item] | None:
    """Return calls with their own tags that were put into a fence."""
    at = skip_space(text, fence.body)
    items: list[Item] = []
    while tag := _TAGGED.match(text, at):
        opening = Opening(text=text, start=at, after=tag.end(1) if tag[1] else tag.end(2), offers=offers)
        if tag[1]:
            found = read_marked(opening, format="hermes", word=tag[1].lower())
        else:
            found = read_tagged(opening, format="qwen3_xml")
        if not isinstance(found, Found):
            return None
        items += found.items
        at = skip_space(text, found.end)
    return items if at == len(text) else None


def _python(text: str, fence: Fence, offers: Offers) -> list[Item] | None:
    if fence.language not in PYTHON_LANGUAGES or not _PYTHON.match(text, skip_space(text, fence.body)):
        return None
    try:
        calls, end = _printed(text, fence.body) or read_call_list(text, fence.body)
    except UnreadableValueError:
        return None
    calls = tuple(replace(call, name=call.name.removeprefix(_OWN_MODULE)) for call in calls)
    if skip_space(text, end) < len(text) or not all(offers.named(tool_of(call.name, offers)) for call in calls):
        return None
    return python_items(calls, offers)


def _printed(text: str, at: int) -> tuple[tuple[PythonicCall, ...], int] | None:
    """Return calls that are each in their own `print()`, as Gemma writes them; None if there are none.

    Raises UnreadableValueError if a call cannot be read.
    """
    calls: list[PythonicCall] = []
    end = at
    while opened := _PRINT.match(text, end):
        call = read_call(text, opened.end())
        closed = _PRINT_ENDS.match(text, call.end)
        if closed is None:
            return None
        calls.append(replace(call, start=opened.start("print"), end=closed.end()))
        end = closed.end()
    return (tuple(calls), end) if calls else None

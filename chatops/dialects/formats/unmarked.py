"""Calls without any marker: the whole message, or fences at its end.

A whole message may be an object, a list, Python, or a name and an object. Only the end of the message can tell, so a
message that begins like one is held back until then. One word of prose before or after makes it text.

Calls in a fence look the same as documentation, so the user decides. Only a fence that is the whole message has high
confidence.
"""

import re
from dataclasses import replace

from chatops.dialects.formats.base import (
    END_OF_TEXT,
    TOO_EARLY,
    Call,
    CallBlock,
    Early,
    FoundCall,
    OfferedTools,
    Opening,
    as_unclosed,
    only_closers_follow,
    skip_space,
    unreadable_call,
    with_low_confidence,
)
from chatops.dialects.formats.json_objects import NAME_KEYS, CallBuilder, name_in, read_arguments
from chatops.dialects.formats.marked import read_marked
from chatops.dialects.formats.pythonic import (
    CallList,
    PythonicCall,
    begins_built_in,
    python_items,
    read_call,
    read_call_list,
    tool_of,
)
from chatops.dialects.formats.tagged import read_tagged
from chatops.dialects.json_reader import after_match, read_value
from chatops.dialects.literal_text import PYTHON_LANGUAGES, Fence
from chatops.dialects.reading import UnreadableValueError
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass

_NAME_WORD = re.compile(r"[^\W\d][\w.:/-]{0,255}")
_LIST_OF_CALLS = re.compile(r"""\[\s*(?:[{"'“]|[^\W\d][\w.-]{0,255}\s*\(|\])""")
_LIST_MAY_BEGIN = re.compile(r"\[\s*(?:[^\W\d][\w.-]{0,255}\s*)?\Z")
_OBJECT_ON_NEXT_LINE = re.compile(r"[ \t]*\r?\n\s*\{")
_OBJECT_MAY_FOLLOW = re.compile(r"\s*\Z")
_JSON_BEGINS = re.compile(r"""\{\s*["'“]|\[\s*(?:["'“\[{]|\])""")
"""The beginning of JSON."""
_FIRST_CALL = re.compile(r"\[\s*(?P<name>[^\W\d][\w.-]{0,255})\s*\(")
_BETWEEN_OBJECTS = re.compile(r"\s*;?\s*")
_BETWEEN_NAMES = re.compile(r"\s*>>>\s*")
_CALL_TAG = re.compile(r"<\s?(tool_call|function_calls?|tool_calls)\s*>|<\s?(function|invoke)[\s=]", re.IGNORECASE)
_PRINT = re.compile(r"\s*+(?P<print>print\s*+\()")
_PRINT_ENDS = re.compile(r"\s*+\)[ \t]*;?")
_GEMMA_MODULE = "default_api."
"""The module in whose name Gemma calls tools."""
_MAX_TOKEN = 64
"""Characters of the longest token that ends a message."""
_PYTHON_BEGINS = re.compile(r"\[?\s*[^\W\d][\w.-]*\s*\(")


@frozen_dataclass(kw_only=False)
class TextUpTo:
    """No call begins before `end`: what is there is prose or data. From `end` on, marks may still begin calls."""

    end: int


def may_be_call(text: str, at: int, offered: OfferedTools) -> bool | Early:
    """Return True if the message from `at` on could be a call without a marker."""
    char = text[at]
    if char == "{":
        return True
    if char == "[":
        if _LIST_OF_CALLS.match(text, at):
            return not text.startswith("[]", at)
        return TOO_EARLY if _LIST_MAY_BEGIN.match(text, at) else False
    word = _NAME_WORD.match(text, at)
    if word is None:
        return False
    if word.end() == len(text):
        return TOO_EARLY if offered.begins_a_name(word[0]) or begins_built_in(word[0], offered) else False
    if offered.named(tool_of(word[0], offered)) is None:
        return False
    if text.startswith("(", word.end()) or _OBJECT_ON_NEXT_LINE.match(text, word.end()):
        return True
    return TOO_EARLY if _OBJECT_MAY_FOLLOW.match(text, word.end()) else False


def read_whole_message(text: str, at: int, offered: OfferedTools) -> CallBlock | TextUpTo:
    """Return the calls that make up the message from `at` to its end, or up to where it is text.

    That is up to `at` if it may be anything, such as prose with a call in it. It is up to the end of a value that was
    read and is no call, and all of the text if what could not be read, or what follows, is part of that value.

    A call that was clearly meant for a tool on offer but cannot be read becomes an unusable call; its text stays text.
    """
    if text[at] == "{" or _JSON_BEGINS.match(text, at):
        return _read_objects(text, at, offered)
    word = _NAME_WORD.match(text, at)
    if word and _OBJECT_ON_NEXT_LINE.match(text, word.end()):
        return _read_named_objects(text, at, offered)
    return _read_python(text, at, offered)


def _read_objects(text: str, at: int, offered: OfferedTools) -> CallBlock | TextUpTo:
    """Read objects one after another, or a list of them."""
    items: list[FoundCall] = []
    format = ""
    end = at
    while text[at : at + 1] in ("{", "["):
        try:
            read = read_value(text, at, close_open=True)
        except UnreadableValueError as error:
            name = name_in(text, at)
            if offered.named(name) or any(isinstance(item, Call) for item in items):
                unusable = unreadable_call(error, name, at)
                return CallBlock(end=len(text), format=format or "llama3_json", items=(*items, unusable))
            # If nothing shows that it was meant as a call, everything inside an object is data.
            return TextUpTo(len(text) if _JSON_BEGINS.match(text, at) else at)
        calls = CallBuilder(offered, at, read.end, read.repairs, read.closed).unmarked(read.value)
        format = format or _format_of(read.value)
        end = read.end
        at = after_match(_BETWEEN_OBJECTS, text, end)
        if calls is None:
            # A value that is no call, such as an answer in JSON.
            return TextUpTo(len(text) if only_closers_follow(text, at) else end)
        items += [as_unclosed(call) for call in calls] if read.unclosed else calls
    if not only_closers_follow(text, at):
        return TextUpTo(end)
    return CallBlock(end=len(text), format=format, items=tuple(items))


def _format_of(value: JsonValue) -> str:
    if isinstance(value, list):
        return "json_array"
    if not isinstance(value, dict):
        return ""
    if "tool_calls" in value or "function_call" in value or isinstance(value.get("function"), dict):
        return "openai_tool_calls_obj"
    key = next((key for key in NAME_KEYS if key in value), "name")
    return "llama3_json" if key == "name" else "bare_json_alt"


def _read_named_objects(text: str, at: int, offered: OfferedTools) -> CallBlock | TextUpTo:
    """Read `NAME` with its arguments on the next line, and more of them after `>>>`."""
    prose = TextUpTo(at)
    items: list[FoundCall] = []
    while True:
        word = _NAME_WORD.match(text, at)
        if word is None:
            return prose
        try:
            arguments = read_arguments(text, word.end())
        except UnreadableValueError:
            return prose
        items.append(arguments.call_of(word[0], offered, at))
        following = _BETWEEN_NAMES.match(text, arguments.end)
        if following is None:
            break
        at = following.end()
    if not only_closers_follow(text, arguments.end):
        return prose
    return CallBlock(end=len(text), format="functionary_v32", items=tuple(items))


def _read_python(text: str, at: int, offered: OfferedTools) -> CallBlock | TextUpTo:
    """Read `[f(a=1)]`, one call without brackets, or several, which could also be an example."""
    bracketed = text[at] == "["
    try:
        calls, end = read_call_list(text, at)
    except UnreadableValueError as error:
        return _unreadable_python(text, at, error, offered)
    if not calls or not only_closers_follow(text, end):
        return TextUpTo(end if bracketed else at)
    if not any(offered.named(tool_of(call.name, offered)) for call in calls) and not _were_meant(calls, bracketed):
        return TextUpTo(at)
    items = python_items(calls, offered)
    if not bracketed and len(items) > 1:
        items = [with_low_confidence(item) for item in items]
    return CallBlock(end=len(text), format="pythonic", items=tuple(items))


def _unreadable_python(text: str, at: int, error: UnreadableValueError, offered: OfferedTools) -> CallBlock | TextUpTo:
    """Return the outcome for what cannot be read as Python: only `[NAME(` is more than prose."""
    named = _FIRST_CALL.match(text, at)
    if named is None:
        return TextUpTo(at)
    if offered.named(named["name"]) is None:
        return TextUpTo(len(text))
    return CallBlock(end=len(text), format="pythonic", items=(unreadable_call(error, named["name"], at),))


def _were_meant(calls: tuple[PythonicCall, ...], bracketed: bool) -> bool:
    """Return True if calls of unknown tools were still meant as calls, so that the model must learn of it."""
    return bracketed and all(call.arguments for call in calls)


def begins_like_a_call(text: str, fence: Fence) -> bool | Early:
    """Return True if the first character in a fence fits a call."""
    at = skip_space(text, fence.body)
    if at == len(text):
        return TOO_EARLY
    if text[at] in "{[<":
        return True
    return fence.language in PYTHON_LANGUAGES and (text[at].isalpha() or text[at] == "_")


def read_fenced(text: str, fence: Fence, offered: OfferedTools, *, alone: bool) -> CallBlock | None:
    """Return the calls in a fence; None if it holds anything else.

    `fence.ends` may be missing: a message may stop after the last call. With `alone`, nothing else is in the message,
    so its calls have high confidence.
    """
    message = text[: _end_without_token(text)]
    closed = fence.ends.search(message, fence.body)
    body = message[: closed.start() + 1] if closed else message
    items = (
        _read_fenced_tags(body, fence, offered)
        or _read_fenced_objects(body, fence, offered)
        or _read_fenced_python(body, fence, offered)
    )
    if not items or not any(isinstance(item, Call) for item in items):
        return None
    if not closed:
        items = [as_unclosed(item) for item in items]
    if not (alone and closed):
        items = [with_low_confidence(item) for item in items]
    return CallBlock(end=closed.end() if closed else len(text), format="json_fenced", items=tuple(items))


def _end_without_token(text: str) -> int:
    """Return the index of the token that ends the message; the end of the text if there is none."""
    end = len(text.rstrip())
    for token in END_OF_TEXT.finditer(text, max(0, end - _MAX_TOKEN)):
        if token.end() == end:
            return token.start()
    return len(text)


def _read_fenced_objects(text: str, fence: Fence, offered: OfferedTools) -> list[FoundCall] | None:
    """Return the calls of a fence that holds nothing but objects that are calls, or lists of them; else None."""
    at = skip_space(text, fence.body)
    items: list[FoundCall] = []
    while text[at : at + 1] in ("{", "["):
        try:
            read = read_value(text, at, close_open=True)
        except UnreadableValueError:
            return None
        calls = CallBuilder(offered, at, read.end, read.repairs, read.closed).unmarked(read.value)
        if calls is None:
            return None
        items += calls
        at = skip_space(text, read.end)
    return items if at == len(text) else None


def _read_fenced_tags(text: str, fence: Fence, offered: OfferedTools) -> list[FoundCall] | None:
    """Return calls with their own tags that were put into a fence."""
    at = skip_space(text, fence.body)
    items: list[FoundCall] = []
    while tag := _CALL_TAG.match(text, at):
        opening = Opening(text=text, start=at, after=tag.end(1) if tag[1] else tag.end(2), offered=offered)
        if tag[1]:
            block = read_marked(opening, format="hermes", word=tag[1].lower())
        else:
            block = read_tagged(opening, format="qwen3_xml")
        if not isinstance(block, CallBlock):
            return None
        items += block.items
        at = skip_space(text, block.end)
    return items if at == len(text) else None


def _read_fenced_python(text: str, fence: Fence, offered: OfferedTools) -> list[FoundCall] | None:
    """Return the calls of a fence that holds nothing but calls of tools on offer, written as Python; else None."""
    if fence.language not in PYTHON_LANGUAGES or not _PYTHON_BEGINS.match(text, skip_space(text, fence.body)):
        return None
    try:
        calls, end = _read_printed_calls(text, fence.body) or read_call_list(text, fence.body)
    except UnreadableValueError:
        return None
    calls = tuple(replace(call, name=call.name.removeprefix(_GEMMA_MODULE)) for call in calls)
    if skip_space(text, end) < len(text) or not all(offered.named(tool_of(call.name, offered)) for call in calls):
        return None
    return python_items(calls, offered)


def _read_printed_calls(text: str, at: int) -> CallList | None:
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
    return CallList(tuple(calls), end) if calls else None

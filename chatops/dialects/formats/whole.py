"""Calls without any marker that are the whole message: an object, a list, Python, or a name and an object.

Only the end of the message can tell, so a message that begins like one is held back until then. One word of prose
before or after makes it text.
"""

import re

from chatops.dialects.formats.base import Call, Found, Item, doubtful, unclosed, unreadable
from chatops.dialects.formats.closing import only_closers_follow
from chatops.dialects.formats.objects import name_in, read_arguments
from chatops.dialects.formats.python_calls import begins_built_in, python_items, tool_of
from chatops.dialects.formats.shapes import NAME_KEYS, Shape
from chatops.dialects.json_reader import UnreadableValueError, read_value
from chatops.dialects.offers import Offers
from chatops.dialects.pythonic import PythonicCall, read_call_list
from chatops.domain.canonical import JsonValue

_WORD = re.compile(r"[^\W\d][\w.:/-]{0,255}")
_LIST = re.compile(r"""\[\s*(?:[{"'“]|[^\W\d][\w.-]{0,255}\s*\(|\])""")
_LIST_BEGINS = re.compile(r"\[\s*(?:[^\W\d][\w.-]{0,255}\s*)?\Z")
_NAME_AND_OBJECT = re.compile(r"[ \t]*\r?\n\s*\{")
_NAME_AND_OBJECT_BEGINS = re.compile(r"\s*\Z")
_DATA = re.compile(r"""\{\s*["'“]|\[\s*(?:["'“\[{]|\])""")
"""The beginning of JSON."""
_CALLED = re.compile(r"\[\s*(?P<name>[^\W\d][\w.-]{0,255})\s*\(")
_NEXT = re.compile(r"\s*;?\s*")
_NEXT_NAME = re.compile(r"\s*>>>\s*")


def begins(text: str, at: int, offers: Offers) -> bool | None:
    """Return True if the message from `at` on could be a call without a marker; None if it is too early to tell."""
    char = text[at]
    if char == "{":
        return True
    if char == "[":
        if _LIST.match(text, at):
            return not text.startswith("[]", at)
        return None if _LIST_BEGINS.match(text, at) else False
    word = _WORD.match(text, at)
    if word is None:
        return False
    if word.end() == len(text):
        return None if offers.begins_a_name(word[0]) or begins_built_in(word[0], offers) else False
    if offers.named(tool_of(word[0], offers)) is None:
        return False
    if text.startswith("(", word.end()) or _NAME_AND_OBJECT.match(text, word.end()):
        return True
    return None if _NAME_AND_OBJECT_BEGINS.match(text, word.end()) else False


def read_whole_message(text: str, at: int, offers: Offers) -> Found | int:
    """Return the calls that make up the message from `at` to its end, or the index up to which it is data.

    A call that was clearly meant for a tool on offer but cannot be read becomes trouble; its text stays text.
    """
    if text[at] == "{" or _DATA.match(text, at):
        return _objects(text, at, offers)
    word = _WORD.match(text, at)
    if word and _NAME_AND_OBJECT.match(text, word.end()):
        return _named_objects(text, at, offers)
    return _python(text, at, offers)


def _objects(text: str, at: int, offers: Offers) -> Found | int:
    """Read objects one after another, or a list of them."""
    items: list[Item] = []
    format = ""
    end = at
    while text[at : at + 1] in ("{", "["):
        try:
            read = read_value(text, at, close_open=True)
        except UnreadableValueError as error:
            return _broken(text, at, error, items, format, offers)
        calls = Shape(offers, at, read.end, read.repairs, read.closed).unmarked(read.value)
        format = format or _format(read.value)
        between = _NEXT.match(text, read.end)
        end = read.end
        at = between.end() if between else end
        if calls is None:
            return len(text) if only_closers_follow(text, at) else end
        items += [unclosed(each) for each in calls] if read.unclosed else calls
    return Found(end=len(text), format=format, items=tuple(items)) if only_closers_follow(text, at) else end


def _broken(
    text: str, at: int, error: UnreadableValueError, items: list[Item], format: str, offers: Offers
) -> Found | int:
    """Handle an unreadable object after the `items` before it: everything inside it is data."""
    name = name_in(text, at)
    if offers.named(name) is None and not any(isinstance(each, Call) for each in items):
        return len(text) if _DATA.match(text, at) else at
    return Found(end=len(text), format=format or "llama3_json", items=(*items, unreadable(error, name, at)))


def _format(value: JsonValue) -> str:
    if isinstance(value, list):
        return "json_array"
    if not isinstance(value, dict):
        return ""
    if "tool_calls" in value or "function_call" in value or isinstance(value.get("function"), dict):
        return "openai_tool_calls_obj"
    key = next((key for key in NAME_KEYS if key in value), "name")
    return "llama3_json" if key == "name" else "bare_json_alt"


def _named_objects(text: str, at: int, offers: Offers) -> Found | int:
    """Read `NAME` with its arguments on the next line, and more of them after `>>>`."""
    items: list[Item] = []
    start = at
    while True:
        word = _WORD.match(text, at)
        if word is None:
            return start
        try:
            arguments, end, repairs, _ = read_arguments(text, word.end())
        except UnreadableValueError:
            return start
        items.append(Shape(offers, at, end, repairs).call(word[0], arguments))
        following = _NEXT_NAME.match(text, end)
        if following is None:
            break
        at = following.end()
    if not only_closers_follow(text, end):
        return start
    return Found(end=len(text), format="functionary_v32", items=tuple(items))


def _python(text: str, at: int, offers: Offers) -> Found | int:
    """Read `[f(a=1)]`, one call without brackets, or several, which could also be an example."""
    bracketed = text[at] == "["
    try:
        calls, end = read_call_list(text, at)
    except UnreadableValueError as error:
        named = _CALLED.match(text, at)
        if named is None:
            return at
        if offers.named(named["name"]) is None:
            return len(text)
        return Found(end=len(text), format="pythonic", items=(unreadable(error, named["name"], at),))
    if not calls or not only_closers_follow(text, end):
        return end if bracketed else at
    if not any(offers.named(tool_of(call.name, offers)) for call in calls) and not _looks_meant(calls, bracketed):
        return at
    items = python_items(calls, offers)
    if not bracketed and len(items) > 1:
        items = [doubtful(each) for each in items]
    return Found(end=len(text), format="pythonic", items=tuple(items))


def _looks_meant(calls: tuple[PythonicCall, ...], bracketed: bool) -> bool:
    """Return True if calls of unknown tools were still meant as calls, so that the model must learn of it."""
    return bracketed and all(call.arguments for call in calls)

"""Calls written as Python: between tags (LFM2, Llama 4, Olmo 3) and after `<|python_tag|>` (Llama 3)."""

import re
from collections.abc import Sequence

from chatops.dialects.formats.base import (
    NOT_YET,
    Call,
    Found,
    Item,
    Opening,
    Outcome,
    Trouble,
    skip_space,
)
from chatops.dialects.formats.closing import END_OF_TEXT, closer_after
from chatops.dialects.formats.objects import broken, closed_block, read_objects
from chatops.dialects.formats.shapes import Shape
from chatops.dialects.json_reader import UnreadableValueError
from chatops.dialects.offers import Offers
from chatops.dialects.pythonic import PythonicCall, read_call_list
from chatops.dialects.reading import Confidence, DiagnosticKind
from chatops.dialects.repairs import Repair

_CODE_ENDS = re.compile(
    rf"{END_OF_TEXT.pattern}|</(?:\w+:)?think(?:ing)?>|\[/THINK\]|<\|END_THINKING\|>|<channel\|>", re.IGNORECASE
)
_TAGGED_CALL = re.compile(r"<\s?function\s*=", re.IGNORECASE)
_BUILT_IN = ".call"
_CODE_TOOLS = ("python_exec", "code_interpreter")
_CODE = "code"


def read_python(opening: Opening, at: int, *, format: str) -> Found:
    """Return the calls written as Python that begin at `at`, in brackets or not."""
    text, start = opening.text, opening.start
    try:
        calls, end = read_call_list(text, at, close_open=True)
    except UnreadableValueError as error:
        return broken(text, start, error, "", format=format)
    items = python_items(calls, opening.offers)
    if not items:
        message = "holds no call: the list is empty"
        items = [Trouble(kind=DiagnosticKind.UNREADABLE, message=message, start=start)]
    repairs = {repair for call in calls for repair in call.repairs}
    ends = text.startswith("[", at) or closer_after(text, end) is not None
    return closed_block(
        text, end, items, format=format, whole=Repair.UNCLOSED not in repairs, sure=ends and not repairs
    )


def python_items(calls: Sequence[PythonicCall], offers: Offers) -> list[Item]:
    """Return an item for each call that was read as Python."""
    return [
        Shape(offers, call.start, call.end, call.repairs).call(tool_of(call.name, offers), call.arguments)
        for call in calls
    ]


def tool_of(written: str, offers: Offers) -> str:
    """Return the name of the tool in `NAME.call(...)`, as Llama 3 calls its built-in tools; else the name as it is."""
    return written.removesuffix(_BUILT_IN) if offers.named(written) is None else written


def begins_built_in(written: str, offers: Offers) -> bool:
    """Return True if `NAME.call` of a tool on offer may begin with `written`."""
    name, _, rest = written.rpartition(".")
    return _BUILT_IN.startswith(f".{rest}") and offers.named(name) is not None


def read_python_tag(opening: Opening) -> Outcome:
    """Read the text after `<|python_tag|>`: objects, calls of built-in tools, or code to run."""
    text, start = opening.text, opening.start
    at = skip_space(text, opening.after + 1)
    if at == len(text):
        return NOT_YET
    if text[at] == "{":
        return read_objects(text, start, at, opening.offers, format="llama3_python_tag")
    if _TAGGED_CALL.match(text, at):
        return Found(end=at, format="llama3_python_tag", wraps=True)
    ended = _CODE_ENDS.search(text, at)
    end = ended.start() if ended else len(text)
    calls = _calls_in(text if end == len(text) else text[:end], at, opening.offers)
    if calls is None:
        items: tuple[Item, ...] = (code_call(text[at:end].rstrip(), opening.offers, start, end),)
        return Found(end=end, format="llama3_python_tag", items=items, sure=ended is not None)
    built_in = any(call.name.endswith(_BUILT_IN) for call in calls)
    format = "llama3_builtin" if built_in else "llama3_python_tag"
    found = tuple(python_items(calls, opening.offers))
    return Found(end=end, format=format, items=found, sure=ended is not None)


def _calls_in(text: str, at: int, offers: Offers) -> tuple[PythonicCall, ...] | None:
    """Return the calls that make up the end of `text`, if they are calls of tools and not code that looks like it."""
    try:
        calls, end = read_call_list(text, at)
    except UnreadableValueError:
        return None
    if not calls or skip_space(text, end) < len(text):
        return None
    if all(offers.named(tool_of(call.name, offers)) or call.name.endswith(_BUILT_IN) for call in calls):
        return calls
    return None


def code_call(code: str, offers: Offers, start: int, end: int) -> Item:
    """Return the call that runs `code`, if a tool on offer does that; the model named no tool, so the user is asked."""
    name = next((found for each in _CODE_TOOLS if (found := offers.named(each))), None)
    if name is None:
        return Trouble(
            kind=DiagnosticKind.UNKNOWN_TOOL,
            message=f"is no tool here, so code cannot be run; {offers.listed()}",
            start=start,
            name=_CODE_TOOLS[1],
        )
    return Call(name=name, arguments={_CODE: code}, start=start, end=end, confidence=Confidence.LOW)

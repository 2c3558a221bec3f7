"""Calls written as Python: `f(a=1, b="x")`, with keyword arguments and literal values only.

Used between tags (LFM2, Llama 4, Olmo 3), after `<|python_tag|>` (Llama 3), and as a whole message. Nothing is
evaluated. Positional arguments, expressions, nested calls, comprehensions, f-strings, `**` and repeated keywords are
refused, because their meaning cannot be read from the text.

`read_call` and `read_call_list` read the text alone and know no tools. The functions after them make calls of tools on
offer of it, as a `CallBlock`. Its `sure`, and `cut` of an UnreadableValueError, are what `base.py` says: `sure` that no
further text could change the result, `cut` that the text ended inside the value.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from chatops.dialects.formats.base import (
    BUILT_IN_CODE_TOOL,
    END_OF_TEXT,
    NOT_YET,
    Call,
    CallBlock,
    FoundCall,
    OfferedTools,
    Opening,
    ParseOutcome,
    UnusableCall,
    closer_after,
    skip_space,
)
from chatops.dialects.formats.json_objects import CallBuilder, broken_block, closed_block, read_objects
from chatops.dialects.json_reader import after_match
from chatops.dialects.literals import PYTHON, Container, LiteralReader
from chatops.dialects.reading import Confidence, DiagnosticKind, Repair, UnreadableValueError
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass

_NAME = re.compile(r"[^\W\d][\w.-]{0,255}+")
_BLANKS = re.compile(r"[ \t]*+")
_BETWEEN_CALLS = re.compile(r"\s*+[;,]?\s*+")
_CALL_OPENS = re.compile(rf"{_NAME.pattern}{_BLANKS.pattern}\(")
_ENDS_UNCLOSED_LIST = ("<", "`")
"""Text behind a list whose `]` is missing: `[f()</tool_call>`, or the end of a fence."""
_CODE_ENDS = re.compile(
    rf"{END_OF_TEXT.pattern}|</(?:\w+:)?think(?:ing)?>|\[/THINK\]|<\|END_THINKING\|>|<channel\|>", re.IGNORECASE
)
"""The end of what follows `<|python_tag|>`: that of the message, or of thought in which the model wrote it."""
_TAGGED_CALL = re.compile(r"<\s?function\s*=", re.IGNORECASE)
_BUILT_IN_SUFFIX = ".call"
_BUILT_IN_MAY_BEGIN = re.compile(r"(?P<tool>.*)\.(?:c|ca|cal|call)?")
"""`NAME.call` as far as it has come: `web_search.ca`."""


@frozen_dataclass
class PythonicCall:
    """One call as it was written. Its name is not checked against any tool."""

    name: str
    arguments: dict[str, JsonValue]
    start: int
    end: int
    """Index after the closing parenthesis."""
    repairs: tuple[str, ...] = ()

    @property
    def is_built_in(self) -> bool:
        """True if it is spelled `NAME.call(...)`, as Llama 3 calls the tools that it was trained with."""
        return self.name.endswith(_BUILT_IN_SUFFIX)


class CallList(NamedTuple):
    """Calls in a row, in brackets or not."""

    calls: tuple[PythonicCall, ...]
    end: int
    """Index after the last call, or after the bracket that closes the list."""


def read_call(text: str, start: int = 0) -> PythonicCall:
    """Read the call `name(key=literal, ...)` at `start`, after any white space.

    A name consists of letters, digits and `_`, and inside it dots and hyphens, as tool servers use them.

    Raises UnreadableValueError if there is no such call.
    """
    begin = skip_space(text, start)
    name = _NAME.match(text, begin)
    if name is None:
        raise UnreadableValueError("there is no call", begin, cut=begin == len(text))
    bracket = after_match(_BLANKS, text, name.end())
    if not text.startswith("(", bracket):
        raise UnreadableValueError(
            "a name is not followed by arguments in parentheses", bracket, cut=bracket == len(text)
        )
    reader = LiteralReader(text, bracket, PYTHON)
    arguments = reader.read(Container.ARGUMENTS)
    assert isinstance(arguments, dict), "arguments with names are read as a dict"
    return PythonicCall(name=name[0], arguments=arguments, start=begin, end=reader.at, repairs=tuple(reader.repairs))


def read_call_list(text: str, start: int = 0, *, close_open: bool = False) -> CallList:
    """Read the calls of `[f(), g()]`, or of `f(); g()` without brackets, at `start`.

    With `close_open`, the closing bracket may be missing after the last call, which then has a repair.

    Raises UnreadableValueError if any of the calls is unreadable.
    """
    begin = skip_space(text, start)
    if text.startswith("[", begin):
        return _read_bracketed(text, begin + 1, close_open=close_open)
    return _read_row(text, begin)


def _read_row(text: str, at: int) -> CallList:
    """Read `f(); g()` at `at`, as far as another call opens after white space, a semicolon or a comma."""
    calls = [read_call(text, at)]
    while True:
        end = calls[-1].end
        following = after_match(_BETWEEN_CALLS, text, end)
        if following == end or not _CALL_OPENS.match(text, following):
            return CallList(tuple(calls), end)
        calls.append(read_call(text, following))


def _read_bracketed(text: str, at: int, *, close_open: bool) -> CallList:
    """Read `f(), g()]` at `at`, after the opening bracket."""
    calls: list[PythonicCall] = []
    while not text.startswith("]", at := skip_space(text, at)):
        call = read_call(text, at)
        at = skip_space(text, call.end)
        if text.startswith(",", at):
            at += 1
        elif not text.startswith("]", at):
            is_last = at == len(text) or text.startswith(_ENDS_UNCLOSED_LIST, at)
            if not (close_open and is_last):
                raise UnreadableValueError("the list of calls is not closed", at, cut=at == len(text))
            unclosed = replace(call, repairs=(*call.repairs, Repair.UNCLOSED))
            return CallList((*calls, unclosed), call.end)
        calls.append(call)
    return CallList(tuple(calls), at + 1)


def read_python(opening: Opening, at: int, *, format: str) -> CallBlock:
    """Return the calls written as Python that begin at `at`, in brackets or not."""
    text, start = opening.text, opening.start
    try:
        calls, end = read_call_list(text, at, close_open=True)
    except UnreadableValueError as error:
        return broken_block(text, start, error, name="", format=format)
    items = python_items(calls, opening.offered)
    if not items:
        message = "holds no call: the list is empty"
        items = [UnusableCall(kind=DiagnosticKind.UNREADABLE, message=message, start=start)]
    repairs = {repair for call in calls for repair in call.repairs}
    # After `[f()]` and `f()</tool_call>` comes no other call, but `; g()` may follow `f()`.
    is_last = text.startswith("[", at) or closer_after(text, end) is not None
    # What was repaired may read otherwise with more text. A list is not `whole` if its bracket was added.
    sure = is_last and not repairs
    return closed_block(text, end, items, format=format, whole=Repair.UNCLOSED not in repairs, sure=sure)


def python_items(calls: Sequence[PythonicCall], offered: OfferedTools) -> list[FoundCall]:
    """Return each call that was read as Python as a call of a tool on offer, or an unusable one that says why not."""
    return [
        CallBuilder(offered, call.start, call.end, call.repairs).call(tool_of(call.name, offered), call.arguments)
        for call in calls
    ]


def tool_of(written: str, offered: OfferedTools) -> str:
    """Return NAME if `NAME.call` was written and is not itself the name of a tool on offer; else what was written."""
    return written.removesuffix(_BUILT_IN_SUFFIX) if offered.named(written) is None else written


def begins_built_in(written: str, offered: OfferedTools) -> bool:
    """Return True if `written` is the beginning of `NAME.call`, dot included, of a tool on offer."""
    begun = _BUILT_IN_MAY_BEGIN.fullmatch(written)
    return begun is not None and offered.named(begun["tool"]) is not None


def read_python_tag(opening: Opening) -> ParseOutcome:
    """Read what follows `<|python_tag|>`: objects, tags of functions, calls as Python, or code to run."""
    text = opening.text
    at = skip_space(text, opening.after + len(">"))
    if at == len(text):
        return NOT_YET
    if text[at] == "{":
        return read_objects(text, at, opening.offered, format="llama3_python_tag")
    if _TAGGED_CALL.match(text, at):
        # `<function=` has its own reader, which the scan calls next: only the tag before it is taken here.
        return CallBlock(end=at, format="llama3_python_tag", wraps=True)
    return _read_calls_or_code(opening, at)


def _read_calls_or_code(opening: Opening, at: int) -> CallBlock:
    """Read all text from `at` to its end as calls of tools, or else as one call that runs it as code."""
    text, offered = opening.text, opening.offered
    ended = _CODE_ENDS.search(text, at)
    end = ended.start() if ended else len(text)
    calls = _calls_in(text[:end], at, offered)
    items = python_items(calls, offered) or [code_call(text[at:end].rstrip(), offered, opening.start, end)]
    format = "llama3_builtin" if any(call.is_built_in for call in calls) else "llama3_python_tag"
    # Until its end has come, more code may follow.
    return CallBlock(end=end, format=format, items=tuple(items), sure=ended is not None)


def _calls_in(text: str, at: int, offered: OfferedTools) -> tuple[PythonicCall, ...]:
    """Return the calls that make up the end of `text`; none if it is code, even if that looks like calls."""
    try:
        calls, end = read_call_list(text, at)
    except UnreadableValueError:
        return ()
    calls_tools = all(call.is_built_in or offered.named(tool_of(call.name, offered)) for call in calls)
    return calls if calls_tools and skip_space(text, end) == len(text) else ()


def code_call(code: str, offered: OfferedTools, start: int, end: int) -> FoundCall:
    """Return the call that runs `code`, if a tool on offer does that; the model named no tool, so the user is asked."""
    tool = offered.code_tool()
    if tool is None:
        return UnusableCall(
            kind=DiagnosticKind.UNKNOWN_TOOL,
            message=f"is not a tool here, so code cannot be run; {offered.listed()}",
            start=start,
            name=BUILT_IN_CODE_TOOL,
        )
    return Call(name=tool.name, arguments={tool.code_argument: code}, start=start, end=end, confidence=Confidence.LOW)

"""Calls written as Python: `f(a=1, b="x")`, with keyword arguments and literal values only.

Used between tags (LFM2, Llama 4, Olmo 3), after `<|python_tag|>` (Llama 3), and as a whole message. Nothing is
evaluated. Positional arguments, expressions, nested calls, comprehensions, f-strings, `**` and repeated keywords are
refused, because their meaning cannot be read from the text.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from chatops.dialects.formats.base import (
    CODE_TOOLS,
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
_BETWEEN = re.compile(r"\s*+[;,]?\s*+")
_NEXT = re.compile(r"[^\W\d][\w.-]{0,255}+[ \t]*+\(")
# Code after `<|python_tag|>` ends with the message, or where the model goes on thinking.
_CODE_ENDS = re.compile(
    rf"{END_OF_TEXT.pattern}|</(?:\w+:)?think(?:ing)?>|\[/THINK\]|<\|END_THINKING\|>|<channel\|>", re.IGNORECASE
)
_TAGGED_CALL = re.compile(r"<\s?function\s*=", re.IGNORECASE)
_BUILT_IN_SUFFIX = ".call"
_ENDS_UNCLOSED_LIST = ("<", "`")
"""Beginnings of a closing tag and of the end of a fence: a list of calls ends there too."""


@frozen_dataclass
class PythonicCall:
    """One call as it was written. Its name is not checked against any tool."""

    name: str
    arguments: dict[str, JsonValue]
    start: int
    end: int
    """Index after the closing parenthesis."""
    repairs: tuple[str, ...] = ()


def read_call(text: str, start: int = 0) -> PythonicCall:
    """Read the call `name(key=literal, ...)` at `start`, after any white space.

    A name consists of letters, digits and `_`, and inside it dots and hyphens, as tool servers use them.

    Raises UnreadableValueError if there is no such call. It has `cut` if the text ends where more was to come.
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


def read_call_list(text: str, start: int = 0, *, close_open: bool = False) -> tuple[tuple[PythonicCall, ...], int]:
    """Read the calls of `[f(), g()]`, or calls on lines of their own, at `start`; return them and the index after.

    Without brackets, the list continues while something that opens like a call follows white space, a semicolon or a
    comma. With `close_open`, the closing bracket may be missing after the last call, which then has a repair.

    Raises UnreadableValueError if any of the calls is unreadable.
    """
    begin = skip_space(text, start)
    if text.startswith("[", begin):
        return _read_bracketed(text, begin + 1, close_open=close_open)
    calls = [read_call(text, begin)]
    while True:
        following = after_match(_BETWEEN, text, calls[-1].end)
        if following == calls[-1].end or not _NEXT.match(text, following):
            return tuple(calls), calls[-1].end
        calls.append(read_call(text, following))


def _read_bracketed(text: str, at: int, *, close_open: bool) -> tuple[tuple[PythonicCall, ...], int]:
    calls: list[PythonicCall] = []
    while True:
        at = skip_space(text, at)
        if text.startswith("]", at):
            return tuple(calls), at + 1
        calls.append(read_call(text, at))
        end = calls[-1].end
        at = skip_space(text, end)
        if text.startswith(",", at):
            at += 1
        elif not text.startswith("]", at):
            is_last = at == len(text) or text.startswith(_ENDS_UNCLOSED_LIST, at)
            if not (close_open and is_last):
                raise UnreadableValueError("the list of calls is not closed", at, cut=at == len(text))
            calls[-1] = replace(calls[-1], repairs=(*calls[-1].repairs, Repair.UNCLOSED))
            return tuple(calls), end


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
    # A bracket or a closing tag ends the calls, otherwise another one may follow. What was repaired may read otherwise
    # with more text, and a list is not `whole` if its bracket was added.
    ends = text.startswith("[", at) or closer_after(text, end) is not None
    return closed_block(
        text, end, items, format=format, whole=Repair.UNCLOSED not in repairs, sure=ends and not repairs
    )


def python_items(calls: Sequence[PythonicCall], offered: OfferedTools) -> list[FoundCall]:
    """Return an item for each call that was read as Python."""
    return [
        CallBuilder(offered, call.start, call.end, call.repairs).call(tool_of(call.name, offered), call.arguments)
        for call in calls
    ]


def tool_of(written: str, offered: OfferedTools) -> str:
    """Return the name of the tool in `NAME.call(...)`, as Llama 3 calls its built-in tools; else the name as it is."""
    return written.removesuffix(_BUILT_IN_SUFFIX) if offered.named(written) is None else written


def begins_built_in(written: str, offered: OfferedTools) -> bool:
    """Return True if `NAME.call` of a tool on offer may begin with `written`."""
    # As `NAME.ca` does. Without a dot, the name is empty and names no tool.
    name, dot, rest = written.rpartition(".")
    return offered.named(name) is not None and _BUILT_IN_SUFFIX.startswith(dot + rest)


def read_python_tag(opening: Opening) -> ParseOutcome:
    """Read the text after `<|python_tag|>`: objects, calls of tools, or code to run.

    Calls and code end with the message. Before that end the outcome is not `sure`, and is read again with more text.
    """
    text, start = opening.text, opening.start
    at = skip_space(text, opening.after + len(">"))
    if at == len(text):
        return NOT_YET
    if text[at] == "{":
        return read_objects(text, at, opening.offered, format="llama3_python_tag")
    if _TAGGED_CALL.match(text, at):
        # The tag has its own reader, which reads the call next.
        return CallBlock(end=at, format="llama3_python_tag", wraps=True)
    ended = _CODE_ENDS.search(text, at)
    end = ended.start() if ended else len(text)
    calls = _calls_in(text[:end], at, opening.offered)
    if calls is None:
        items = [code_call(text[at:end].rstrip(), opening.offered, start, end)]
    else:
        items = python_items(calls, opening.offered)
    is_built_in = any(call.name.endswith(_BUILT_IN_SUFFIX) for call in calls or ())
    format = "llama3_builtin" if is_built_in else "llama3_python_tag"
    return CallBlock(end=end, format=format, items=tuple(items), sure=ended is not None)


def _calls_in(text: str, at: int, offered: OfferedTools) -> tuple[PythonicCall, ...] | None:
    """Return the calls that make up the end of `text`, if they are calls of tools and not code that looks like it."""
    try:
        calls, end = read_call_list(text, at)
    except UnreadableValueError:
        return None
    if not calls or skip_space(text, end) < len(text):
        return None
    if all(offered.named(tool_of(call.name, offered)) or call.name.endswith(_BUILT_IN_SUFFIX) for call in calls):
        return calls
    return None


def code_call(code: str, offered: OfferedTools, start: int, end: int) -> FoundCall:
    """Return the call that runs `code`, if a tool on offer does that; the model named no tool, so the user is asked."""
    tool = offered.code_tool()
    if tool is None:
        return UnusableCall(
            kind=DiagnosticKind.UNKNOWN_TOOL,
            message=f"is not a tool here, so code cannot be run; {offered.listed()}",
            start=start,
            name=next(iter(CODE_TOOLS)),  # The built-in one: its aliases come after it.
        )
    name, argument = tool
    return Call(name=name, arguments={argument: code}, start=start, end=end, confidence=Confidence.LOW)

"""Reader of calls written as Python: `f(a=1, b="x")`, with keyword arguments and literal values only.

Nothing is evaluated. Positional arguments, expressions, nested calls, comprehensions, f-strings, `**` and repeated
keywords are refused, because their meaning cannot be read from the text.
"""

import re
from dataclasses import dataclass, replace

from chatops.dialects.literals import Reader
from chatops.dialects.repairs import Repair, UnreadableValueError
from chatops.dialects.spellings import PYTHON, Kind
from chatops.domain.canonical import JsonValue

_NAME = re.compile(r"[^\W\d][\w.-]{0,255}+")
_SPACE = re.compile(r"\s*+")
_BLANKS = re.compile(r"[ \t]*+")
_BETWEEN = re.compile(r"\s*+[;,]?\s*+")
_NEXT = re.compile(r"[^\W\d][\w.-]{0,255}+[ \t]*+\(")


@dataclass(frozen=True, slots=True, kw_only=True)
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

    Raises UnreadableValueError if there is no such call.
    """
    begin = _after(_SPACE, text, start)
    name = _NAME.match(text, begin)
    if name is None:
        raise UnreadableValueError("no call stands here", begin, cut=begin == len(text))
    bracket = _after(_BLANKS, text, name.end())
    if not text.startswith("(", bracket):
        raise UnreadableValueError(
            "a name is not followed by arguments in parentheses", bracket, cut=bracket == len(text)
        )
    reader = Reader(text, bracket, PYTHON)
    arguments = reader.read(Kind.ARGUMENTS)
    assert isinstance(arguments, dict), "arguments with names are read as a dict"
    return PythonicCall(name=name[0], arguments=arguments, start=begin, end=reader.at, repairs=tuple(reader.repairs))


def read_call_list(text: str, start: int = 0, *, close_open: bool = False) -> tuple[tuple[PythonicCall, ...], int]:
    """Read the calls of `[f(), g()]`, or calls on lines of their own, at `start`; return them and the index after.

    Without brackets, the list goes on while something that opens like a call follows a line break, a semicolon or a
    comma. With `close_open`, the bracket may be missing after a closed call.

    Raises UnreadableValueError if any of the calls is unreadable.
    """
    begin = _after(_SPACE, text, start)
    if text.startswith("[", begin):
        return _bracketed(text, begin + 1, close_open=close_open)
    calls = [read_call(text, begin)]
    while True:
        following = _after(_BETWEEN, text, calls[-1].end)
        if following == calls[-1].end or not _NEXT.match(text, following):
            return tuple(calls), calls[-1].end
        calls.append(read_call(text, following))


def _bracketed(text: str, at: int, *, close_open: bool) -> tuple[tuple[PythonicCall, ...], int]:
    calls: list[PythonicCall] = []
    while True:
        at = _after(_SPACE, text, at)
        if text.startswith("]", at):
            return tuple(calls), at + 1
        calls.append(read_call(text, at))
        end = calls[-1].end
        at = _after(_SPACE, text, end)
        if text.startswith(",", at):
            at += 1
        elif not text.startswith("]", at):
            if not close_open or not (at == len(text) or text[at] in "<`"):
                raise UnreadableValueError("the list of calls is not closed", at, cut=at == len(text))
            calls[-1] = replace(calls[-1], repairs=(*calls[-1].repairs, Repair.UNCLOSED))
            return tuple(calls), end


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at

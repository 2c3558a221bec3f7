"""Search for a call that was clearly meant but not recognised, so that the model learns that nothing ran.

Only the end of a message is searched: a call ends the reply, whereas an explanation of a format goes on. Nothing found
here is run or hidden.
"""

import re

from chatops.dialects.formats.base import CLOSER, END_OF_TEXT, OfferedTools, only_closers_follow
from chatops.dialects.formats.json_objects import CallBuilder
from chatops.dialects.json_reader import read_value
from chatops.dialects.reading import Confidence, Diagnostic, DiagnosticKind, Reading, UnreadableValueError

_LONGEST_TAIL = 300
_REACH = 400
_EXCERPT = 200
_TAIL = re.compile(rf"(?:\s|{CLOSER.pattern}|{END_OF_TEXT.pattern})*\Z", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d][\w.-]{0,255}")
_LISTS_TOOLS = re.compile(r"<\s?tools\s*>\s*(?=[\[{])", re.IGNORECASE)
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?(?P<name>[\w-]{1,256})[^{\n]{0,80}(?=\{)")
_GLUED = re.compile(r"(?<![\w.-])(?P<name>[^\W\d][\w-]{0,255})\s*(?=\{)")
_UNREAD = "is in a format that cannot be read; nothing was run"
_IN_A_LIST = "is inside <tools>, which lists tools and calls none; nothing was run"
_THOUGHT = "is inside your reasoning, where nothing is run; make the call after the reasoning has ended"


def missed_call(content: str, declined: int, offered: OfferedTools) -> Diagnostic | None:
    """Return the diagnostic for a call at the end of `content` that no format reads; None without one.

    `declined` is the index of the last call marker that no call followed, -1 without any.
    """
    tail = _TAIL.search(content, max(len(content) - _LONGEST_TAIL, 0))
    end = tail.start() if tail else len(content)
    closes_a_call = CLOSER.search(content, end) is not None
    if not closes_a_call and not content.endswith(("}", ")", "]"), 0, end):
        return None
    if declined >= 0 and (listed := _LISTS_TOOLS.match(content, declined)):
        name = _called(content, listed.end(), offered)
        return _diagnostic(name, _IN_A_LIST, content, declined) if name else None
    if declined >= 0:
        named = next(
            (
                name
                for word in _WORD.finditer(content, declined, min(declined + _REACH, end))
                if (name := offered.named(word[0]))
            ),
            None,
        )
        return _diagnostic(named, _UNREAD, content, declined) if named else None
    begin = max(end - _REACH, 0)
    for found in (
        *_RECIPIENT.finditer(content, begin, end),
        *(_GLUED.finditer(content, begin, end) if closes_a_call else ()),
    ):
        if name := offered.named(found["name"]):
            return _diagnostic(name, _UNREAD, content, found.start())
    return None


def thought_call(thought: str, inside: Reading) -> Diagnostic | None:
    """Return the diagnostic for a reply that is only `thought` and ends with a call; `inside` is its reading."""
    if not inside.calls:
        return None
    call = inside.calls[-1]
    if call.confidence is not Confidence.HIGH or not only_closers_follow(thought, call.end):
        return None
    return Diagnostic(
        kind=DiagnosticKind.MISSED,
        message=_THOUGHT,
        name=call.name,
        format=call.format,
        excerpt=call.arguments[:_EXCERPT],
    )


def _called(text: str, at: int, offered: OfferedTools) -> str | None:
    """Return the tool that the JSON at `at` calls; None if it only describes one."""
    try:
        read = read_value(text, at, close_open=True)
    except UnreadableValueError:
        return None
    items = CallBuilder(offered, at, read.end, read.repairs, read.closed).unmarked(read.value) or []
    return next((each.name for each in items if offered.named(each.name)), None)


def _diagnostic(name: str, message: str, text: str, start: int) -> Diagnostic:
    return Diagnostic(kind=DiagnosticKind.MISSED, message=message, name=name, excerpt=text[start : start + _EXCERPT])

"""Search for a call that was clearly meant but read by no format: at the end of a message, or inside thought.

A call ends the reply, but an explanation of a format continues. So only the end of a message is searched. The result is
a diagnostic that tells the model that nothing ran.
"""

import re
from dataclasses import replace

from chatops.dialects.formats.base import CLOSER, END_OF_TEXT, OfferedTools, only_closers_follow
from chatops.dialects.formats.json_objects import CallBuilder
from chatops.dialects.json_reader import read_value
from chatops.dialects.reading import Confidence, Diagnostic, DiagnosticKind, Reading, UnreadableValueError

_MAX_TAIL = 300
"""Characters at the end of a message that are searched for closing marks after a call."""
_MAX_REACH = 400
"""Characters that are searched for the name of a tool: a name farther from the marks may belong to other text."""
_MAX_EXCERPT = 200
"""Characters of the text that a diagnostic quotes to the model: enough to recognise the call."""
_TAIL = re.compile(rf"(?:\s|{CLOSER.pattern}|{END_OF_TEXT.pattern})*\Z", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d][\w.-]{0,255}")
_LISTS_TOOLS = re.compile(r"<\s?tools\s*>\s*(?=[\[{])", re.IGNORECASE)
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?(?P<name>[\w-]{1,256})[^{\n]{0,80}(?=\{)")
"""`to=NAME` before an object, as in the header of a channel."""
_NAME_BEFORE_OBJECT = re.compile(r"(?<![\w.-])(?P<name>[^\W\d][\w-]{0,255})\s*(?=\{)")
_IN_UNKNOWN_FORMAT = "is in a format that cannot be read; nothing was run"
_IN_LIST_OF_TOOLS = "is inside <tools>, which lists tools and calls none; nothing was run"
_IN_THOUGHT = "is inside your reasoning, where nothing is run; make the call after the reasoning has ended"


def missed_call(content: str, declined: int | None, offered: OfferedTools) -> Diagnostic | None:
    """Return the diagnostic for a call at the end of `content` that no format reads; None without one.

    `declined` is the index of the last call marker that no call followed; None without any.
    """
    tail = _TAIL.search(content, max(len(content) - _MAX_TAIL, 0))
    end = tail.start() if tail else len(content)
    has_closer = CLOSER.search(content, end) is not None
    if not has_closer and not content.endswith(("}", ")", "]"), 0, end):
        return None
    if declined is not None:
        if listed := _LISTS_TOOLS.match(content, declined):
            name = _called_tool(content, listed.end(), offered)
            return _diagnostic(name, _IN_LIST_OF_TOOLS, content, declined) if name else None
        words = _WORD.finditer(content, declined, min(declined + _MAX_REACH, end))
        name = next((name for word in words if (name := offered.named(word[0]))), None)
        return _diagnostic(name, _IN_UNKNOWN_FORMAT, content, declined) if name else None
    begin = max(end - _MAX_REACH, 0)
    # A name right before an object is common in prose about code, so it needs a closing mark as well.
    for pattern in (_RECIPIENT, _NAME_BEFORE_OBJECT) if has_closer else (_RECIPIENT,):
        for candidate in pattern.finditer(content, begin, end):
            if name := offered.named(candidate["name"]):
                return _diagnostic(name, _IN_UNKNOWN_FORMAT, content, candidate.start())
    return None


def thought_call(thought: str, reading: Reading) -> Diagnostic | None:
    """Return the diagnostic for a reply that is only `thought` and ends with a call; `reading` is what it reads as."""
    if not reading.calls:
        return None
    call = reading.calls[-1]
    if call.confidence is not Confidence.HIGH or not only_closers_follow(thought, call.end):
        return None
    return replace(_diagnostic(call.name, _IN_THOUGHT, call.arguments, 0), format=call.format)


def _called_tool(text: str, at: int, offered: OfferedTools) -> str | None:
    """Return the tool that the JSON at `at` calls; None if it only describes one."""
    try:
        read = read_value(text, at, close_open=True)
    except UnreadableValueError:
        return None
    items = CallBuilder(offered, at, read.end, read.repairs, read.closed).unmarked(read.value) or []
    return next((item.name for item in items if offered.named(item.name)), None)


def _diagnostic(name: str, message: str, text: str, start: int) -> Diagnostic:
    return Diagnostic(
        kind=DiagnosticKind.MISSED, message=message, name=name, excerpt=text[start : start + _MAX_EXCERPT]
    )

"""The parser's state: the text not passed yet, the position of the scan, and the result so far.

A mode is a function that reads on from `at`. It returns True if it made progress, and otherwise pauses for the text
that it needs. A mode is called about the same text only a bounded number of times (`_PATIENCE`), so time stays linear
even when text arrives one character at a time.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import groupby

from chatops.dialects.formats.base import Call, CallBlock, OfferedTools, UnusableCall
from chatops.dialects.masks import OpenTags
from chatops.dialects.reading import (
    Confidence,
    ContentSegment,
    Diagnostic,
    DiagnosticKind,
    ReadCall,
    Reading,
    ReasoningSegment,
    ReclassifiedSegment,
    Segment,
)

_EXCERPT = 200
_HALF = re.compile("[\ud800-\udfff]")
Mode = Callable[["ParserState"], bool]
ANYTHING = None
NEVER = ""
"""Argument of `pause`: any text, nothing before the end of the message, or else a string of awaited characters."""
_LOOK_BEHIND = 2
_PATIENCE = 8
_FREE = 8192


@dataclass(frozen=True, slots=True)
class _Entry:
    """A call, or a diagnostic about one."""

    what: ReadCall | Diagnostic
    closed: bool = True
    """True if the whole call was there."""


class ReadingBuilder:
    """Content and thought so far, and the calls and diagnostics in the order of the text."""

    __slots__ = ("_content", "_entries", "_fixed", "_lead", "_made", "_reasoning", "has_content", "length", "removed")

    def __init__(self) -> None:
        self._content: list[str] = []
        self._fixed = 0
        """Number of parts of the content that can no longer turn out to be thought."""
        self._reasoning: list[str] = []
        self._made: list[Segment] = []
        self._entries: list[_Entry] = []
        self._lead = ""
        self.length = 0
        """Number of characters of content so far."""
        self.has_content = False
        """True if there is content other than white space."""
        self.removed = False
        """True if part of the text was a call, thought or a header."""

    @property
    def has_calls(self) -> bool:
        """True if a call or a diagnostic was found."""
        return bool(self._entries)

    def add_content(self, text: str) -> None:
        """Add text for the user.

        White space at the beginning is dropped if something was removed from the text.
        """
        if not self.has_content:
            text = self._lead + text
            self._lead = ""
            bare = text.lstrip()
            if not bare:
                self._lead = "" if self.removed else text
                return
            if self.removed:
                text = bare
            self.has_content = True
        if text:
            self._content.append(text)
            self.length += len(text)
            self._made.append(ContentSegment(text=text))

    def add_reasoning(self, text: str) -> None:
        """Add thought."""
        if text:
            self._reasoning.append(text)
            self._made.append(ReasoningSegment(text=text))

    def fix_content(self) -> None:
        """Keep the content so far as content, whatever `reclassify` turns into thought."""
        self._fixed = len(self._content)

    def reclassify(self, text: str) -> None:
        """Turn the content that is not fixed, and all calls, into thought; `text` is the text as it was written."""
        removed = sum(map(len, self._content[self._fixed :]))
        if removed:
            del self._content[self._fixed :]
            self.length -= removed
            self._made.append(ReclassifiedSegment(text=text, removed=removed))
            self._reasoning.append(text)
        else:
            self.add_reasoning(text)
        self._entries = []
        self._lead = ""
        self.has_content = bool(self._content)
        self.removed = True

    def add_calls(self, found: CallBlock, text: str, base: int) -> None:
        """Add the calls of a block of `text`, whose first character has the index `base` in the message."""
        self.removed = True
        self._lead = ""
        for item in found.items:
            if isinstance(item, Call):
                self._call(item, found, text, base)
            elif not (item.empty and self._entries):
                self._unusable(item, found, text, base)

    def doubt(self) -> None:
        """Lower the confidence of all calls so far."""
        self._entries = [
            replace(entry, what=replace(entry.what, confidence=Confidence.LOW))
            if isinstance(entry.what, ReadCall)
            else entry
            for entry in self._entries
        ]

    def content_tail(self, length: int) -> str:
        """Return at least the last `length` characters of the content, if there are so many."""
        parts: list[str] = []
        for part in reversed(self._content):
            parts.append(part)
            length -= len(part)
            if length <= 0:
                break
        return "".join(reversed(parts))

    def add_diagnostics(self, found: CallBlock, text: str, base: int) -> None:
        """Add diagnostics about calls that no marker announced; their text stays content."""
        for item in found.items:
            if isinstance(item, UnusableCall):
                self._unusable(item, found, text, base)

    def drain(self) -> list[Segment]:
        """Return the pieces since the last call of this method, with adjacent pieces of one kind joined."""
        joined: list[Segment] = []
        for kind, pieces in groupby(self._made, key=type):
            if kind is ContentSegment:
                joined.append(ContentSegment(text="".join(piece.text for piece in pieces)))
            elif kind is ReasoningSegment:
                joined.append(ReasoningSegment(text="".join(piece.text for piece in pieces)))
            else:
                joined += pieces
        self._made = []
        return joined

    def finish(self) -> None:
        """Add the leading white space that was held back in case something was removed from the text."""
        if self._lead and not self.removed:
            self._content.append(self._lead)
            self._made.append(ContentSegment(text=self._lead))
        self._lead = ""

    def build(self, *, cut: bool) -> Reading:
        """Return the whole reading.

        With `cut`, the server cut the message short, so only calls with their closing mark count.
        """
        calls: list[ReadCall] = []
        diagnostics: list[Diagnostic] = []
        for entry in self._entries:
            if isinstance(entry.what, Diagnostic):
                diagnostics.append(entry.what)
            elif cut and not entry.closed:
                diagnostics.append(_too_long(entry.what))
            else:
                calls.append(entry.what)
        return Reading(
            calls=tuple(calls),
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            format=self._entries[0].what.format if self._entries else "",
            diagnostics=tuple(diagnostics),
        )

    def _call(self, call: Call, found: CallBlock, text: str, base: int) -> None:
        try:
            arguments = json.dumps(call.arguments, ensure_ascii=False, allow_nan=False)
        except ValueError:
            message = "has a number that JSON cannot hold among its arguments"
            unusable = UnusableCall(
                kind=DiagnosticKind.NOT_ARGUMENTS, message=message, start=call.start, name=call.name
            )
            self._unusable(unusable, found, text, base)
            return
        if _HALF.search(arguments):
            arguments = json.dumps(call.arguments)
        read = ReadCall(
            name=call.name,
            arguments=arguments,
            format=found.format,
            repairs=call.repairs,
            confidence=call.confidence,
            start=base + call.start,
            end=base + call.end,
        )
        self._entries.append(_Entry(read, call.closed))

    def _unusable(self, unusable: UnusableCall, found: CallBlock, text: str, base: int) -> None:
        diagnostic = Diagnostic(
            kind=unusable.kind,
            message=unusable.message,
            name=unusable.name,
            format=found.format,
            start=base + unusable.start,
            excerpt=text[unusable.start : min(unusable.start + _EXCERPT, found.end)],
        )
        self._entries.append(_Entry(diagnostic))


def _too_long(call: ReadCall) -> Diagnostic:
    return Diagnostic(
        kind=DiagnosticKind.CUT_OFF,
        message="was cut off because the answer became too long, so nothing of it was run; write a shorter one",
        name=call.name,
        format=call.format,
        start=call.start,
    )


class AnswerMarkup(Enum):
    """Frame that marks text as the answer to the user; only its own marks end it."""

    CHANNEL = auto()
    """A message in a channel: Harmony and Muse."""
    RESPONSE = auto()
    """The response part of Kimi K3."""


class ParserState:
    """State shared by the modes. `text` holds what has arrived and not been passed, and a little before it."""

    __slots__ = (
        "_arrived",
        "_base",
        "_length",
        "_raw",
        "_spent",
        "_waits_for",
        "announced_example",
        "answer_markup",
        "at",
        "at_line_start",
        "backtick_runs",
        "began_with_call",
        "begin",
        "declined",
        "final",
        "hold",
        "mode",
        "offered",
        "plain",
        "result",
        "tags",
        "text",
        "wrapper",
    )

    def __init__(self, offered: OfferedTools, *, begin: Mode, plain: Mode) -> None:
        self.offered = offered
        self.result = ReadingBuilder()
        self.begin = begin
        """The mode for the beginning of the content."""
        self.plain = plain
        """The mode for text."""
        self.mode = begin
        self.text = "\n\n"
        self.at = _LOOK_BEHIND
        """Index in `text` of the first character that has not been passed."""
        self.final = False
        """True once nothing more will come."""
        self.at_line_start = True
        """True if `at` counts as the beginning of a line."""
        self.answer_markup: AnswerMarkup | None = None
        """The frame that marks this text as the answer to the user, so that nothing in it runs."""
        self.began_with_call = False
        """True if a call was the first thing in the text."""
        self.backtick_runs: list[int] = []
        """Lengths of the runs of backticks that may have opened a code span, in order."""
        self.tags = OpenTags()
        """The tags of no known format that are open at `at`."""
        self.declined = -1
        """Index in the content of the last call marker that no call followed; -1 if there is none."""
        self.announced_example = False
        """True once a call was announced as an example; the user then decides on it and all later calls."""
        self.wrapper = ""
        self.hold = -1
        """Index in `text` at which an unfinished construct may begin; -1 if not known."""
        self._base = -_LOOK_BEHIND
        self._arrived: list[str] = []
        self._length = 0
        self._waits_for: str | None = ANYTHING
        self._spent = 0
        self._raw: list[str] = []
        """All text passed since the last thought, as it was written, for `reclassify`."""

    @property
    def base(self) -> int:
        """Index in the message of the first character of `text`."""
        return self._base

    def arrive(self, chunk: str) -> bool:
        """Store a chunk; return True if the mode can make progress with it."""
        self._arrived.append(chunk)
        self._length += len(chunk)
        wanted = self._waits_for
        if wanted is ANYTHING:
            ready = True
        else:
            ready = any(each in chunk for each in wanted)
        waiting = len(self.text) - self.at + self._length
        if ready and self._spent > _PATIENCE * waiting + _FREE:
            # The waiting text was read too often for its length: wait until it has grown, so that time stays linear.
            return False
        return ready

    def run(self) -> None:
        """Read as far as possible."""
        if self._arrived:
            kept = max(self.at - _LOOK_BEHIND, 0)
            self._base += kept
            self.at -= kept
            self.text = self.text[kept:] + "".join(self._arrived)
            self._arrived = []
            self._length = 0
            self.hold = -1
        while self.mode(self):
            pass

    def pause(self, wanted: str | None) -> bool:
        """Wait for one of the characters of `wanted`. Always return False."""
        self._waits_for = wanted
        self._spent += len(self.text) - self.at
        return False

    def pass_content(self, end: int) -> None:
        """Move to `end`; the text passed is content."""
        if end > self.at:
            self.result.add_content(self._advance(end))

    def pass_thought(self, end: int) -> None:
        """Move to `end`; the text passed is thought."""
        if end > self.at:
            self.result.add_reasoning(self._advance(end))

    def skip(self, end: int) -> None:
        """Move to `end` and drop the text before it."""
        self._advance(end)
        self.result.removed = True

    def reclassify(self) -> None:
        """Turn everything since the last thought into thought."""
        self.declined = -1
        self.result.reclassify("".join(self._raw))
        self.forget()

    def forget(self) -> None:
        """Fix all text passed so far: it can no longer turn out to be thought."""
        self._raw = []
        self.result.fix_content()

    def _advance(self, end: int) -> str:
        passed = self.text[self.at : end]
        if end > self.at:
            self.at = end
            self._spent = 0
            self.at_line_start = False
        self._raw.append(passed)
        return passed

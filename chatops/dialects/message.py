"""The state of the parser: the text not passed yet, the position of the scan, the result; and what a call does to it.

A mode is a function that reads on from `at`. It returns True if it made progress, and otherwise pauses for the text
that it needs. A mode is called about the same text only a bounded number of times (`_PATIENCE`), so time stays linear
even when text arrives one character at a time.

`apply_outcome` acts on what the reader of a format has found: it takes calls, passes text, or waits for more. After a
call, the modes at the end of the file read what still belongs to it.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from itertools import groupby

from chatops.dialects.formats.base import (
    CLOSER,
    CLOSER_BEGINS,
    END_OF_TEXT,
    MAX_CALL,
    Call,
    CallBlock,
    Early,
    NoCall,
    OfferedTools,
    ParseOutcome,
    UnusableCall,
    only_closers_follow,
    skip_space,
    with_low_confidence,
)
from chatops.dialects.masks import (
    CUE_REACH,
    Enclosure,
    OpenTags,
    introduces_an_example,
    paragraph_end,
    quotation_around,
    quotation_end,
    span_end,
)
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
from chatops.domain.frozen_dataclass import frozen_dataclass

_MAX_EXCERPT = 200
_HALF = re.compile("[\ud800-\udfff]")
Mode = Callable[["ParserState"], bool]
ANYTHING = None
NEVER = ""
"""Argument of `pause`: any text, nothing before the end of the message, or else a string of awaited characters."""
_LOOK_BEHIND = 2
_PATIENCE = 8
_FREE = 8192
_ENDS_CALL = ">]})`"
_ENDS_SPAN = "`\n"


@frozen_dataclass(kw_only=False)
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
            excerpt=text[unusable.start : min(unusable.start + _MAX_EXCERPT, found.end)],
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
            ready = any(mark in chunk for mark in wanted)
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


class ScanProgress(Enum):
    """Result of one pass of the text mode."""

    ADVANCED = auto()
    """It passed something or changed the mode."""
    PAUSED = auto()
    """It needs more text, or the message has ended."""


Continuation = int | ScanProgress
"""Result for one position: the index from which to continue because this is text, or the result of the mode."""


def wait(state: ParserState, start: int, wanted: str | None = ANYTHING) -> ScanProgress:
    """Pass the text before `start` and wait for `wanted`, as `ParserState.pause` does."""
    state.pass_content(start)
    state.pause(wanted)
    return ScanProgress.PAUSED


def in_code_span(state: ParserState, start: int) -> Continuation | None:
    """Return the continuation if `start` is in a code span or that is still unknown; None if it is not."""
    if not state.backtick_runs:
        return None
    end = span_end(state.text, start, state.backtick_runs, final=state.final)
    if isinstance(end, Early):
        return wait(state, start, _ENDS_SPAN)
    state.backtick_runs.clear()
    return end


def in_quotation(state: ParserState, start: int, end: int, *, opens: bool = False) -> Continuation | None:
    """Return the continuation if a quotation opens right before `text[start:end]`; None if none does.

    With `opens`, that text opens something, so more of it follows in the quotation: up to the last closing sign in the
    paragraph, or all of the paragraph.
    """
    closing = quotation_around(state.text, start)
    if not closing:
        return None
    after = quotation_end(state.text, end, closing, far=opens, final=state.final)
    if isinstance(after, Early):
        return wait(state, start)
    if after is None:
        return paragraph_end(state.text, end) if opens else end
    return after


def skip_mention(state: ParserState, start: int, end: int) -> Continuation | None:
    """Return the continuation if the mark at `text[start:end]` is only mentioned, in closed quotes; None otherwise."""
    closing = quotation_around(state.text, start)
    if not closing:
        return None
    after = quotation_end(state.text, end, closing, far=True, final=state.final)
    return wait(state, start) if isinstance(after, Early) else after


def apply_outcome(state: ParserState, start: int, after: int, outcome: ParseOutcome) -> Continuation:
    """Act on `outcome`, read from `start`. `after` is the index from which to continue if it is text."""
    if not state.offered.are_read:
        return after
    if not outcome.sure and not state.final:
        cut = isinstance(outcome, CallBlock) and any(
            isinstance(item, UnusableCall) and item.kind is DiagnosticKind.CUT_OFF for item in outcome.items
        )
        return wait(state, start, _ENDS_CALL if cut else ANYTHING)
    if isinstance(outcome, NoCall) or outcome.end <= start:
        if state.final and state.result.removed and only_closers_follow(state.text, start):
            state.pass_content(start)
            state.skip(len(state.text))
            return ScanProgress.PAUSED
        decline(state, start)
        return after
    quoted = in_quotation(state, start, outcome.end, opens=outcome.wraps)
    if quoted is not None:
        return quoted
    enclosure = Enclosure.FREE
    if state.tags:
        enclosed = state.tags.around(state.text, after, base=state.base, final=state.final)
        if isinstance(enclosed, Early):
            return wait(state, start, ">")
        if enclosed is Enclosure.QUOTED:
            # A sure outcome was read as a unit; one that is not sure may reach beyond the closing tag.
            return outcome.end if outcome.sure else after
        enclosure = enclosed
    state.pass_content(start)
    state.announced_example = state.announced_example or introduces_an_example(state.result.content_tail(CUE_REACH))
    if enclosure is Enclosure.DOUBTFUL or state.announced_example:
        outcome = replace(outcome, items=tuple(with_low_confidence(item) for item in outcome.items))
    take_calls(state, outcome)
    return ScanProgress.ADVANCED


def decline(state: ParserState, start: int) -> None:
    """Note that the call marker at `start` is text, unless it is only mentioned."""
    if not quotation_around(state.text, start):
        state.pass_content(start)
        state.declined = state.result.length


def take_calls(state: ParserState, found: CallBlock) -> None:
    """Take a block that begins at `at`, and move past it."""
    if not state.result.has_content:
        state.began_with_call = True
    if found.end - state.at > MAX_CALL:
        message_to_model = f"is longer than {MAX_CALL} characters"
        unusable = UnusableCall(kind=DiagnosticKind.UNREADABLE, message=message_to_model, start=state.at)
        found = CallBlock(end=found.end, format=found.format, items=(unusable,))
    state.result.add_calls(found, state.text, state.base)
    state.skip(found.end)
    state.backtick_runs.clear()
    if found.wraps:
        state.wrapper = found.format
    else:
        state.mode = remove_invented_results if found.rest_is_invented else after_call


def after_call(state: ParserState) -> bool:
    """Remove closing tags and ends of messages after a call; anything else is text again."""
    text = state.text
    end = at = state.at
    while True:
        at = skip_space(text, end)
        closing = CLOSER.match(text, at) or END_OF_TEXT.match(text, at)
        if closing is None:
            break
        end = closing.end()
    state.skip(end)
    if at == len(text):
        if state.final:
            state.skip(at)
            return False
        return state.pause(ANYTHING)
    if not state.final and CLOSER_BEGINS.match(text, at):
        return state.pause(ANYTHING)
    if text[at] not in "<]":
        state.wrapper = ""
    state.at_line_start = end == at
    state.mode = state.plain
    return True


def remove_invented_results(state: ParserState) -> bool:
    """Remove the results that the model made up after its call: they are neither run nor shown."""
    state.skip(len(state.text))
    return False if state.final else state.pause(ANYTHING)

"""Builder of a `Reading` while its text arrives: content, reasoning, calls and diagnostics in the order of the text.

Reasoning here is what the parser's modules call thought: the text that a model writes before its answer.
"""

import json
import re
from dataclasses import replace
from itertools import groupby

from chatops.dialects.formats.base import Call, CallBlock, UnusableCall
from chatops.dialects.literal_text import CUE_REACH
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
"""Characters of a written call that a diagnostic quotes to the model: enough to recognise it."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which UTF-8 cannot hold."""


@frozen_dataclass
class _CallEntry:
    """A call that was read."""

    call: ReadCall
    closed: bool
    """True if the closing mark of the call was there."""


class ReadingBuilder:
    """Content and reasoning so far, and the calls and diagnostics in the order of the text."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._fixed_parts = 0
        """Number of parts of the content that can no longer turn out to be reasoning."""
        self._reasoning: list[str] = []
        self._new_segments: list[Segment] = []
        """Segments since the last call of `drain`."""
        self._entries: list[_CallEntry | Diagnostic] = []
        self._leading_space = ""
        """White space before all content, held back in case something is removed from the text."""
        self.length = 0
        """Number of characters of content so far, without white space that is held back."""
        self.has_content = False
        """True if there is content other than white space."""
        self.has_removed_text = False
        """True if part of the text was a call, reasoning or a header."""

    @property
    def has_entries(self) -> bool:
        """True if a call, or a diagnostic about one, was found."""
        return bool(self._entries)

    def add_content(self, text: str) -> None:
        """Add text for the user.

        White space at the beginning is dropped if something was removed from the text.
        """
        if not self.has_content:
            text = self._leading_space + text
            self._leading_space = ""
            bare = text.lstrip()
            if not bare:
                self._leading_space = "" if self.has_removed_text else text
                return
            if self.has_removed_text:
                text = bare
            self.has_content = True
        if text:
            self._content.append(text)
            self.length += len(text)
            self._new_segments.append(ContentSegment(text=text))

    def add_reasoning(self, text: str) -> None:
        """Add reasoning."""
        if text:
            self._reasoning.append(text)
            self._new_segments.append(ReasoningSegment(text=text))

    def fix_content(self) -> None:
        """Keep the content so far as content, whatever `reclassify` turns into reasoning."""
        self._fixed_parts = len(self._content)

    def reclassify(self, text: str) -> None:
        """Turn the content that is not fixed, and all calls, into reasoning; `text` is the text as it was written."""
        removed_length = sum(map(len, self._content[self._fixed_parts :]))
        if removed_length:
            del self._content[self._fixed_parts :]
            self.length -= removed_length
            self._new_segments.append(ReclassifiedSegment(text=text, removed=removed_length))
            self._reasoning.append(text)
        else:
            self.add_reasoning(text)
        self._entries = []
        self._leading_space = ""
        self.has_content = bool(self._content)
        self.has_removed_text = True

    def add_calls(self, block: CallBlock, text: str, base: int) -> None:
        """Add the calls of a block of `text`, whose first character has the index `base` in the message."""
        self.has_removed_text = True
        self._leading_space = ""
        for item in block.items:
            if isinstance(item, Call):
                self._add_call(item, block, text, base)
            elif not (item.empty and self._entries):
                # A lone opening tag after other calls is not reported: nothing shows that one more call was meant.
                self._add_unusable(item, block, text, base)

    def lower_confidence(self) -> None:
        """Lower the confidence of all calls so far."""
        self._entries = [
            entry
            if isinstance(entry, Diagnostic)
            else replace(entry, call=replace(entry.call, confidence=Confidence.LOW))
            for entry in self._entries
        ]

    def content_tail(self) -> str:
        """Return at least the last `CUE_REACH` characters of the content, if there are so many."""
        parts, length = list[str](), CUE_REACH
        for part in reversed(self._content):
            parts.append(part)
            length -= len(part)
            if length <= 0:
                break
        return "".join(reversed(parts))

    def add_diagnostics(self, block: CallBlock, text: str, base: int) -> None:
        """Add diagnostics about calls that no marker announced; their text stays content."""
        for item in block.items:
            if isinstance(item, UnusableCall):
                self._add_unusable(item, block, text, base)

    def drain(self) -> list[Segment]:
        """Return the segments since the last call of this method, with adjacent ones of one kind joined."""
        joined: list[Segment] = []
        for kind, segments in groupby(self._new_segments, key=type):
            if kind is ContentSegment:
                joined.append(ContentSegment(text="".join(segment.text for segment in segments)))
            elif kind is ReasoningSegment:
                joined.append(ReasoningSegment(text="".join(segment.text for segment in segments)))
            else:
                joined += segments
        self._new_segments = []
        return joined

    def finish(self) -> None:
        """Add the leading white space that was held back in case something was removed from the text."""
        if self._leading_space and not self.has_removed_text:
            self._content.append(self._leading_space)
            self.length += len(self._leading_space)
            self._new_segments.append(ContentSegment(text=self._leading_space))
        self._leading_space = ""

    def build(self, *, cut: bool) -> Reading:
        """Return the whole reading.

        With `cut`, the server cut the message short, so only calls with their closing mark count.
        """
        calls: list[ReadCall] = []
        diagnostics: list[Diagnostic] = []
        for entry in self._entries:
            if isinstance(entry, Diagnostic):
                diagnostics.append(entry)
            elif cut and not entry.closed:
                diagnostics.append(_cut_by_limit(entry.call))
            else:
                calls.append(entry.call)
        formats = [entry.format if isinstance(entry, Diagnostic) else entry.call.format for entry in self._entries]
        return Reading(
            calls=tuple(calls),
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            format=formats[0] if formats else "",
            diagnostics=tuple(diagnostics),
        )

    def _add_call(self, call: Call, block: CallBlock, text: str, base: int) -> None:
        try:
            arguments = json.dumps(call.arguments, ensure_ascii=False, allow_nan=False)
        except ValueError:
            message = "has a number that JSON cannot hold among its arguments"
            unusable = UnusableCall(
                kind=DiagnosticKind.NOT_ARGUMENTS, message=message, start=call.start, name=call.name
            )
            self._add_unusable(unusable, block, text, base)
            return
        if _LONE_SURROGATE.search(arguments):
            # Arguments are stored and sent as UTF-8. With escapes, JSON text is plain ASCII.
            arguments = json.dumps(call.arguments)
        read = ReadCall(
            name=call.name,
            arguments=arguments,
            format=block.format,
            repairs=call.repairs,
            confidence=call.confidence,
            start=base + call.start,
            end=base + call.end,
        )
        self._entries.append(_CallEntry(call=read, closed=call.closed))

    def _add_unusable(self, unusable: UnusableCall, block: CallBlock, text: str, base: int) -> None:
        diagnostic = Diagnostic(
            kind=unusable.kind,
            message=unusable.message,
            name=unusable.name,
            format=block.format,
            start=base + unusable.start,
            excerpt=text[unusable.start : min(unusable.start + _MAX_EXCERPT, block.end)],
        )
        self._entries.append(diagnostic)


def _cut_by_limit(call: ReadCall) -> Diagnostic:
    return Diagnostic(
        kind=DiagnosticKind.CUT_OFF,
        message="was cut off because the answer became too long, so nothing of it was run; write a shorter one",
        name=call.name,
        format=call.format,
        start=call.start,
    )

"""The result of a reading so far: pieces for the UI, calls and diagnostics for the end."""

import json
import re
from dataclasses import dataclass, replace
from itertools import groupby

from chatops.dialects.formats.base import Call, Found, Trouble
from chatops.dialects.reading import (
    Confidence,
    ContentPiece,
    Diagnostic,
    DiagnosticKind,
    Piece,
    ReadCall,
    Reading,
    ReasoningPiece,
    ReclassifiedPiece,
)

_EXCERPT = 200
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A call, or a diagnostic about one."""

    what: ReadCall | Diagnostic
    closed: bool = True
    """True if the whole call was there."""


class Ledger:
    """Content and thought so far, and the calls and diagnostics in the order of the text."""

    __slots__ = ("_content", "_entries", "_lead", "_made", "_reasoning", "has_content", "length", "removed")

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._made: list[Piece] = []
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

    def content(self, text: str) -> None:
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
            self._made.append(ContentPiece(text=text))

    def reasoning(self, text: str) -> None:
        """Add thought."""
        if text:
            self._reasoning.append(text)
            self._made.append(ReasoningPiece(text=text))

    def reclassify(self, text: str) -> None:
        """Turn everything so far into thought; `text` is the text as it was written."""
        if self._content:
            self._made.append(ReclassifiedPiece(text=text))
            self._reasoning.append(text)
        else:
            self.reasoning(text)
        self._content = []
        self.length = 0
        self._entries = []
        self._lead = ""
        self.has_content = False
        self.removed = True

    def take(self, found: Found, text: str, base: int) -> None:
        """Add the calls of a block of `text`, whose first character has the index `base` in the message."""
        self.removed = True
        self._lead = ""
        for item in found.items:
            if isinstance(item, Call):
                self._call(item, found, text, base)
            elif not (item.empty and self._entries):
                self._trouble(item, found, text, base)

    def doubt(self) -> None:
        """Lower the confidence of all calls so far."""
        self._entries = [
            replace(entry, what=replace(entry.what, confidence=Confidence.LOW))
            if isinstance(entry.what, ReadCall)
            else entry
            for entry in self._entries
        ]

    def recent(self, length: int) -> str:
        """Return at least the last `length` characters of the content, if there are so many."""
        parts: list[str] = []
        for part in reversed(self._content):
            parts.append(part)
            length -= len(part)
            if length <= 0:
                break
        return "".join(reversed(parts))

    def note(self, found: Found, text: str, base: int) -> None:
        """Add diagnostics about calls that no marker announced; their text stays content."""
        for item in found.items:
            if isinstance(item, Trouble):
                self._trouble(item, found, text, base)

    def drain(self) -> list[Piece]:
        """Return the pieces since the last call of this method, with adjacent pieces of one kind joined."""
        joined: list[Piece] = []
        for kind, pieces in groupby(self._made, key=type):
            if kind is ContentPiece:
                joined.append(ContentPiece(text="".join(piece.text for piece in pieces)))
            elif kind is ReasoningPiece:
                joined.append(ReasoningPiece(text="".join(piece.text for piece in pieces)))
            else:
                joined += pieces
        self._made = []
        return joined

    def finish(self) -> None:
        """Add the leading white space that was held back in case something was removed from the text."""
        if self._lead and not self.removed:
            self._content.append(self._lead)
            self._made.append(ContentPiece(text=self._lead))
        self._lead = ""

    def reading(self, *, cut: bool) -> Reading:
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

    def _call(self, call: Call, found: Found, text: str, base: int) -> None:
        try:
            arguments = json.dumps(call.arguments, ensure_ascii=False, allow_nan=False)
        except ValueError:
            message = "has a number that JSON cannot hold among its arguments"
            trouble = Trouble(kind=DiagnosticKind.NOT_ARGUMENTS, message=message, start=call.start, name=call.name)
            self._trouble(trouble, found, text, base)
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

    def _trouble(self, trouble: Trouble, found: Found, text: str, base: int) -> None:
        diagnostic = Diagnostic(
            kind=trouble.kind,
            message=trouble.message,
            name=trouble.name,
            format=found.format,
            start=base + trouble.start,
            excerpt=text[trouble.start : min(trouble.start + _EXCERPT, found.end)],
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

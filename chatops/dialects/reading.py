"""What a reading of a model's text gives: the vocabulary of readers, writers and whoever uses them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from chatops.domain.canonical import JsonValue

Schema = Mapping[str, JsonValue]
"""A JSON Schema, parsed."""
Tools = Mapping[str, Schema]
"""The tools on offer: name → the schema of its arguments."""


class Confidence(StrEnum):
    """How sure it is that the model meant a call. A call with anything below HIGH always asks a person."""

    HIGH = "high"
    LOW = "low"
    """It could also have been an example (a fence at the end of the message, code after a marker)."""


class DiagnosticKind(StrEnum):
    """Why something that looked like a call gave none."""

    UNKNOWN_TOOL = "unknown_tool"
    UNREADABLE = "unreadable"
    CUT_OFF = "cut_off"
    NOT_ARGUMENTS = "not_arguments"
    """Readable, but no object of arguments."""
    MISSED = "missed"
    """It names a tool where no format reads a call; it may be text about a call, and is still part of the content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCall:
    """One call in a text. `arguments` is JSON text of one object; `name` is that of a tool on offer."""

    name: str
    arguments: str
    format: str
    repairs: tuple[str, ...] = ()
    """What had to be assumed, each in words for the person who is asked."""
    confidence: Confidence = Confidence.HIGH
    start: int = 0
    """Where it begins in the text, in characters."""
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """A call that was recognised and gives nothing to run: what to tell the model."""

    kind: DiagnosticKind
    message: str
    """One sentence, to follow the name of the tool."""
    name: str = ""
    """As far as it could be read."""
    format: str = ""
    start: int = 0
    excerpt: str = ""
    """The beginning of what was written, at most 200 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All there is in a text. `content` is what is left for the person; reasoning is never in it."""

    calls: tuple[ReadCall, ...] = ()
    content: str = ""
    reasoning: str = ""
    format: str = ""
    """Of the first call or diagnostic; empty if there is neither."""
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPiece:
    """Text for the person, certain by now."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningPiece:
    """Text that the model thought, certain by now."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclassifiedPiece:
    """Every `ContentPiece` so far was thought: a closing tag came whose opening one stood in the prompt."""

    text: str
    """The thought as it was written, to take the place of that content."""


Piece = ContentPiece | ReasoningPiece | ReclassifiedPiece
"""What a reader gives while a text arrives. Put together, they are the content and the reasoning of the `Reading`."""

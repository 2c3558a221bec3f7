"""The result of reading a model's text, whole or in segments as it arrives, and the repairs made to read values."""

from collections.abc import Mapping
from enum import StrEnum

from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass

Schema = Mapping[str, JsonValue]
"""A JSON Schema, parsed."""
Tools = Mapping[str, Schema]
"""The tools on offer: name → the schema of its arguments."""


class Confidence(StrEnum):
    """Certainty that the model meant a call. A call below HIGH always asks the user."""

    HIGH = "high"
    LOW = "low"
    """It may also be an example (a fence at the end of the message, code after a marker)."""


class DiagnosticKind(StrEnum):
    """Reason why something that looked like a call gave none."""

    UNKNOWN_TOOL = "unknown_tool"
    UNREADABLE = "unreadable"
    CUT_OFF = "cut_off"
    NOT_ARGUMENTS = "not_arguments"
    """Readable, but not an object of arguments."""
    MISSED = "missed"
    """A tool is named where no format reads a call. It may be text about a call, and is still part of the content."""


@frozen_dataclass
class ReadCall:
    """One call in a text. `arguments` is JSON text of one object; `name` is the name of a tool on offer."""

    name: str
    arguments: str
    format: str
    repairs: tuple[str, ...] = ()
    """Assumptions made to read it: sentences for the user who decides."""
    confidence: Confidence = Confidence.HIGH
    start: int = 0
    """Index of its first character in the text."""
    end: int = 0
    """Index after its last character."""


@frozen_dataclass
class Diagnostic:
    """A call that was recognised but cannot be run, with a message for the model."""

    kind: DiagnosticKind
    message: str
    """A clause to put after the tool's name."""
    name: str = ""
    """The written name, as far as it could be read."""
    format: str = ""
    start: int = 0
    excerpt: str = ""
    """The first characters of the written call, at most 200."""


@frozen_dataclass
class Reading:
    """Everything found in a text. `content` is the text for the user; it never contains reasoning."""

    calls: tuple[ReadCall, ...] = ()
    content: str = ""
    reasoning: str = ""
    format: str = ""
    """Format of the first call or diagnostic; empty if there is neither."""
    diagnostics: tuple[Diagnostic, ...] = ()


@frozen_dataclass
class ContentSegment:
    """Further text for the user. It stays content, unless a `ReclassifiedSegment` takes it back."""

    text: str


@frozen_dataclass
class ReasoningSegment:
    """Further thought. It stays thought."""

    text: str


@frozen_dataclass
class ReclassifiedSegment:
    """The end of the content so far was thought, because a closing tag came whose opening tag was in the prompt.

    A reader of segments removes so many characters from the end of the content and adds `text` to the thought.
    """

    text: str
    """The thought as it was written."""
    removed: int
    """Number of characters to remove. Content before an earlier thought stays."""


Segment = ContentSegment | ReasoningSegment | ReclassifiedSegment
"""A part of the reading while text arrives. All segments together are the content and reasoning of the `Reading`."""


class Repair(StrEnum):
    """Assumption made to read a value, as a sentence for the user who decides."""

    TRAILING_COMMA = "a comma before a closing bracket was dropped"
    MISSING_COMMA = "a missing comma was added"
    SINGLE_QUOTES = "single quotes were read as double quotes"
    SMART_QUOTES = "typographic quotes were read as quotes"
    TRIPLE_QUOTES = "triple quotes were read as double quotes"
    INNER_QUOTES = "unescaped quotes inside a string were kept as part of it"
    RAW_CONTROL = "line breaks or control characters inside a string were kept"
    BAD_ESCAPE = "a backslash that escapes nothing was kept"
    ESCAPED_APOSTROPHE = "an escaped apostrophe was read as an apostrophe"
    ADJACENT_TEXTS = "adjacent strings were joined"
    PYTHON_WORDS = "True, False or None was read as true, false or null"
    NUMBER_SPELLING = "a number in an unusual spelling was read"
    UNQUOTED_KEY = "a key without quotes was read as a key"
    REPEATED_KEY = "a repeated key with the same value was read once"
    COMMENT = "comments were skipped"
    DOUBLED_BRACES = "doubled braces were read as single ones"
    EXTRA_BRACE = "an extra closing brace was dropped"
    UNCLOSED = "missing closing brackets were added"
    TRIMMED = "white space or quotes around a value were dropped"
    CONVERTED = "a value was written differently from its declared type"
    QUOTED_ARGUMENTS = "the arguments were given as a JSON string and were decoded"


class UnreadableValueError(ValueError):
    """No usable value is at this position."""

    def __init__(self, message: str, position: int, *, cut: bool = False) -> None:
        """Set the fields: `message` is a clause without a full stop, `position` an index into the text read.

        `cut` is True if the text ended inside the value, so that the rest of it is unknown.
        """
        super().__init__(message)
        self.message = message
        self.position = position
        self.cut = cut

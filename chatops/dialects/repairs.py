"""Assumptions that readers of written values may make, and the error for values that cannot be read."""

from enum import StrEnum


class Repair(StrEnum):
    """Assumption made to read a value, as a sentence for the user who decides."""

    TRAILING_COMMA = "a comma before a closing bracket was dropped"
    MISSING_COMMA = "a missing comma was added"
    SINGLE_QUOTES = "text in single quotes was read as text"
    SMART_QUOTES = "typographic quotes were read as quotes"
    TRIPLE_QUOTES = "text in triple quotes was read as text"
    INNER_QUOTES = "quotes inside a text were taken as part of it"
    RAW_CONTROL = "line breaks or control characters inside a text were kept"
    BAD_ESCAPE = "a backslash that escapes nothing was kept"
    ESCAPED_APOSTROPHE = "an escaped apostrophe was read as an apostrophe"
    ADJACENT_TEXTS = "texts that stood side by side were joined"
    PYTHON_WORDS = "True, False or None was read as true, false or null"
    NUMBER_SPELLING = "a number in an unusual spelling was read"
    UNQUOTED_KEY = "a key without quotes was read as a key"
    REPEATED_KEY = "a key that stood there twice with one value was read once"
    COMMENT = "comments were skipped"
    DOUBLED_BRACES = "doubled braces were read as single ones"
    EXTRA_BRACE = "a closing brace too many was dropped"
    UNCLOSED = "missing closing brackets were added"
    TRIMMED = "white space or quotes around a value were dropped"
    CONVERTED = "a value was written differently from its declared type"
    QUOTED_ARGUMENTS = "the arguments were written as a text and were read from it"


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

"""Reader of quoted strings as models write them: wrong quotes, raw line breaks, bad escapes, unescaped inner quotes.

The first unescaped quote ends a string if it is followed by what may follow a string. Otherwise it belongs to the
string, but only if the inner quotes pair up, and if the last one can only be followed by the next member or the end.
"""

import re
from collections.abc import Callable

from chatops.dialects.reading import Repair, UnreadableValueError
from chatops.domain.frozen_dataclass import frozen_dataclass


def possessive(body: str, times: str = "*") -> str:
    """Return the pattern `(?:body)*+`; `times` may be another quantifier.

    Before 3.11.5, Python counts what a last, failed repetition has passed as matched: `(?:<.*>)*+` matches the first
    character of `<a`, see CPython's issue 106052. An alternative that never matches takes it back to where that
    repetition began.
    """
    return rf"(?:{body}|(?!)){times}+"


QUOTES = "\"'“”„‘’"
"""The signs that may begin a string."""
_SINGLE = "'‘’"
_ENDS = {'"': '"', "'": "'", "“": "“”", "”": "”", "„": "“”", "‘": "’", "’": "’"}
"""By opening quote: the characters that may end the string."""
_BODY = {
    quote: re.compile(rf"[^{ends}\\]*+" + possessive(rf"\\.[^{ends}\\]*+"), re.DOTALL) for quote, ends in _ENDS.items()
}
_CONTROL = re.compile(r"[\x00-\x1f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_KEY_ENDS = re.compile(r"\s*+:")
_MAX_INNER_QUOTES = 256
"""Quotes inside one string that are looked at, so that a long text full of quotes does not take quadratic time."""
_JSON_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL
)
_JSON_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PYTHON_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL)
_PYTHON_ESCAPES = {
    "\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}

Note = Callable[[Repair], None]


@frozen_dataclass
class StringContext:
    """Text that may follow a string, by its container. Both patterns are matched right after a closing quote."""

    may_follow: re.Pattern[str]
    """Text after a string in valid input."""
    proves_end: re.Pattern[str]
    """Text that proves that the string is over, after earlier quotes that did not end it."""


def read_quoted(text: str, start: int, context: StringContext | None, note: Note) -> tuple[str, int]:
    """Return the text between the quote at `start` and its end, escapes untouched, and the index after it.

    Without a `context`, the first quote ends it.

    Raises UnreadableValueError if the text ends first.
    """
    quote = text[start]
    if quote not in "\"'":
        note(Repair.SMART_QUOTES)
    if text.startswith(quote * 3, start) and quote in "\"'":
        return _read_triple_quoted(text, start)
    end = _end_of_string(text, start + 1, quote, start)
    if context and not context.may_follow.match(text, end + 1):
        real_end = _end_after_inner_quotes(text, start, end, context)
        if real_end is not None:
            note(Repair.INNER_QUOTES)
            end = real_end
    return text[start + 1 : end], end + 1


def _end_of_string(text: str, begin: int, quote: str, start: int) -> int:
    """Return the index of the next quote that ends a string begun with `quote`."""
    body = _BODY[quote].match(text, begin)
    end = body.end() if body else begin
    if end >= len(text) or text[end] == "\\":
        raise UnreadableValueError("the text ends before its closing quote", start, cut=True)
    return end


def _read_triple_quoted(text: str, start: int) -> tuple[str, int]:
    quotes = text[start] * 3
    end = start + 3
    while True:
        end = text.find(quotes, end)
        if end < 0:
            raise UnreadableValueError("the text ends before its closing quotes", start, cut=True)
        backslashes = end
        while text[backslashes - 1] == "\\" and backslashes > start + 3:
            backslashes -= 1
        # Pairs of backslashes escape each other; one more escapes the quote.
        if (end - backslashes) % 2 == 0:
            return text[start + 3 : end], end + 3
        end += 1


def _end_after_inner_quotes(text: str, start: int, end: int, context: StringContext) -> int | None:
    """Return the index of the quote that really ends the string, if the one at `end` can only be part of it; else None.

    Inner quotes alternately open before a word and close after it. A single quote may also be an apostrophe.
    """
    quote = text[start]
    paired = True
    for _ in range(_MAX_INNER_QUOTES):
        before, after = text[end - 1], text[end + 1 : end + 2]
        if paired and before.isalnum():
            if quote not in _SINGLE:
                return None
        elif (paired and after.isspace()) or (not paired and (before.isspace() or after.isalnum())):
            return None
        else:
            paired = not paired
        try:
            end = _end_of_string(text, end + 1, quote, start)
        except UnreadableValueError:
            return None
        if context.proves_end.match(text, end + 1):
            return end if paired else None
        if _KEY_ENDS.match(text, end + 1):
            return None
    return None


def from_json_escapes(raw: str, start: int, note: Note) -> str:
    """Undo the escapes of JSON in `raw`; `start` is its index in the text.

    Raises UnreadableValueError for a lone surrogate.
    """
    if _CONTROL.search(raw):
        note(Repair.RAW_CONTROL)

    def unescape(found: re.Match[str]) -> str:
        high, low, code, char = found.groups()
        if high:
            return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
        if code:
            return chr(int(code, 16))
        if char in _JSON_ESCAPES:
            return _JSON_ESCAPES[char]
        if char in "'‘’“”":
            note(Repair.ESCAPED_APOSTROPHE)
            return str(char)
        note(Repair.BAD_ESCAPE)
        return found[0]

    return _require_no_surrogate(_JSON_ESCAPE.sub(unescape, raw) if "\\" in raw else raw, start)


def from_python_escapes(raw: str, start: int, note: Note) -> str:
    """Undo the escapes of Python in `raw`, like `from_json_escapes`; `\\N{...}` is kept as it is."""

    def unescape(found: re.Match[str]) -> str:
        two, four, eight, octal, char = found.groups()
        if code := two or four or eight:
            if int(code, 16) > 0x10FFFF:
                raise UnreadableValueError("an escape sequence is not a valid character", start)
            return chr(int(code, 16))
        if octal:
            return chr(int(octal, 8))
        if char in _PYTHON_ESCAPES:
            return _PYTHON_ESCAPES[char]
        note(Repair.BAD_ESCAPE)
        return found[0]

    return _require_no_surrogate(_PYTHON_ESCAPE.sub(unescape, raw) if "\\" in raw else raw, start)


def _require_no_surrogate(value: str, start: int) -> str:
    if not value.isascii() and _SURROGATE.search(value):
        raise UnreadableValueError("the text holds half a character (a lone surrogate)", start)
    return value

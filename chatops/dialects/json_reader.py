"""Reader of the JSON that models write: strictly first, then with named repairs. It never completes a cut-off value.

A repair is allowed where only one meaning is possible (a trailing comma, single quotes, a raw line break).
`UnreadableValueError` is raised if the text ends inside a value, repeats a key with another value or is not JSON even
with repairs. Time is linear in the length read and depth is limited. Nothing here recurses along the text.
"""

import json
import re
from dataclasses import replace

from chatops.dialects.literals import JSON, MAX_DEPTH, LiteralReader
from chatops.dialects.reading import Repair, UnreadableValueError
from chatops.dialects.strings import possessive
from chatops.domain.canonical import STRICT_DECODER, JsonValue, is_deeper
from chatops.domain.frozen_dataclass import frozen_dataclass

__all__ = ["JsonRead", "Repair", "UnreadableValueError", "read_value", "read_whole", "unwrap"]

_WINDOW = 4096
"""Characters that the strict reader gets first; most values are shorter."""
_WINDOW_GROWTH = 16
"""Factor of each next window. The characters of the smaller windows, read in vain, are a small part of the whole."""
_NEAR_END = 32
"""Characters before the end of a window in which an error may come from the cut, and not from the text."""
_SPACE = re.compile(r"[ \t\n\r]*+")
_EXTRA_BRACES = re.compile(possessive(r"[ \t\n\r]*+}", "{1,2}"))


def after_match(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the index after what `pattern` matches at `at`; `at` if it matches nothing there."""
    match = pattern.match(text, at)
    return match.end() if match else at


@frozen_dataclass
class JsonRead:
    """One value, and the assumptions made to read it."""

    value: JsonValue
    end: int
    """Index in the text of the first character after the value."""
    repairs: tuple[str, ...] = ()
    """Sentences shown to the user who decides; empty if the text was valid JSON."""
    unclosed: tuple[JsonValue, ...] = ()
    """The objects and arrays whose closing bracket was assumed. Compare by identity, not by equality."""

    def closed(self, value: JsonValue) -> bool:
        """Return True if the model itself closed `value`, which is a part of what was read."""
        return all(part is not value for part in self.unclosed)


def read_value(text: str, start: int = 0, *, close_open: bool = False) -> JsonRead:
    """Read the value at `start`, after any white space. Any text may follow it.

    With `close_open`, brackets may be missing after a value that was closed; `unclosed` then lists the containers that
    lacked them. Up to two surplus closing braces after an object are skipped.

    Raises UnreadableValueError if no value can be read.
    """
    begin = start if text.startswith("{", start) else after_match(_SPACE, text, start)
    read = _read_strictly(text, begin) or _read_tolerantly(text, begin, close_open=close_open)
    if read.end == len(text) or not isinstance(read.value, dict):
        return read
    extra = _EXTRA_BRACES.match(text, read.end)
    if extra is None:
        return read
    return replace(read, end=extra.end(), repairs=(*read.repairs, Repair.EXTRA_BRACE))


def read_whole(text: str, *, close_open: bool = False) -> JsonRead:
    """Read the value that is all of `text`: only white space may follow. Otherwise like `read_value`."""
    read = read_value(text, close_open=close_open)
    if read.end < len(text) and after_match(_SPACE, text, read.end) < len(text):
        raise UnreadableValueError("something follows the end of it", read.end)
    return read


def _read_strictly(text: str, start: int) -> JsonRead | None:
    """Read the value at `start` if it is valid JSON; return None otherwise.

    On failure the reader of the standard library counts the lines of all its input. So it gets no more than a window of
    the text, which grows only if the error was at the end of it.
    """
    size = _WINDOW
    while True:
        rest = len(text) - start
        part = text[start : start + size]
        try:
            value, end = STRICT_DECODER.raw_decode(part)
        except json.JSONDecodeError as error:
            if size >= rest or (error.pos < len(part) - _NEAR_END and not error.msg.startswith("Unterminated")):
                return None
            size *= _WINDOW_GROWTH
            continue
        except (ValueError, RecursionError):
            return None
        if end == len(part) and size < rest and not isinstance(value, dict | list | str):
            # The window may have cut a number.
            return None
        brackets = part.count("[", 0, end) + part.count("{", 0, end)  # Far quicker than a look at the values.
        if (brackets > MAX_DEPTH and is_deeper(value, MAX_DEPTH)) or _has_lone_surrogate(part, end, value):
            return None
        return JsonRead(value=value, end=start + end)


def _has_lone_surrogate(text: str, end: int, value: JsonValue) -> bool:
    """Return True if a string in `value`, read from `text[:end]`, has a lone surrogate, which UTF-8 cannot hold."""
    escaped = text.find("\\u", 0, end) >= 0
    if not escaped and text.isascii():
        return False
    try:
        (json.dumps(value, ensure_ascii=False) if escaped else text[:end]).encode()
    except UnicodeEncodeError:
        return True
    return False


def _read_tolerantly(text: str, start: int, *, close_open: bool) -> JsonRead:
    reader = LiteralReader(text, start, JSON, close_open=close_open)
    value = reader.read()
    return JsonRead(value=value, end=reader.at, repairs=tuple(reader.repairs), unclosed=tuple(reader.unclosed))


def unwrap(value: JsonValue) -> tuple[JsonValue, tuple[str, ...]]:
    """Return `value`, or the object that it holds as JSON if it is a string; also return the repairs.

    The string may be encoded once or twice.

    Raises UnreadableValueError for a string that holds no object.
    """
    if not isinstance(value, str):
        return value, ()
    read = read_whole(value)
    repairs = read.repairs
    if isinstance(read.value, str):
        read = read_whole(read.value)
        repairs += read.repairs
    if not isinstance(read.value, dict):
        raise UnreadableValueError("the text does not hold an object", 0)
    return read.value, tuple(dict.fromkeys((Repair.QUOTED_ARGUMENTS, *repairs)))

"""One reader for literals as models write them, in the spelling of JSON or of Python: a loop with its own stack.

Why it is ours. `json.loads` and `pydantic_core` accept nothing but JSON, which models often fail to write.
`ast.literal_eval` reads only Python and overflows the stack on deep input. Libraries that repair JSON do too much: the
best of them (json_repair) completes a value that was cut off, so `rm -rf /tmp/build` cut after `/tmp` would run, says
only in a log what it changed, and takes more than linear time on long broken strings. Partial parsers (jiter) accept
truncated values by design. This reader repairs a value only where one meaning is left, names each repair for the user
who decides, and raises `UnreadableValueError` for anything that was cut off inside a value.

Every character is looked at a bounded number of times, so time is linear in the length read. Open containers are kept
in a list instead of nested function calls, so deep input cannot overflow the stack.
"""

import math
import re
from dataclasses import dataclass, field
from enum import Enum, auto

from chatops.dialects.reading import Repair, UnreadableValueError
from chatops.dialects.strings import (
    QUOTES,
    StringContext,
    from_json_escapes,
    from_python_escapes,
    possessive,
    read_quoted,
)
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass

MAX_DEPTH = 200
"""Maximum nesting of containers. More would be safe here, but not in code that recurses over the value."""
_JSON_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None}
_PYTHON_WORDS: dict[str, JsonValue] = {"True": True, "False": False, "None": None}
_KEY = r"""(?:"[^"\\\n]{1,128}+"|'[^'\\\n]{1,128}+'|[“”][^“”\\\n]{1,128}+[“”])\s*+:"""
"""`"name":`, the key of an object."""
_NAMED = r"[^\W\d][\w-]{0,128}+\s*+=(?!=)"
"""`name=`, the name of a keyword argument."""
_VALUE_BEGINS = r"""(?:["'“‘{\[(\d-]|true|false|null|True|False|None)"""
_STRING_JOINS = r"""[rRuU]?["'“‘]"""
"""The beginning of another string, which Python joins to the one before it."""
_AFTER_CLOSER = r"""(?:[,}\])]|\s*+(?:[^\w"'\s]|\Z))"""
"""Text that follows a bracket which closes a container. After a bracket inside a string, a word would follow."""
_MORE_DIGITS = possessive(r"_\d++")
_WORD = re.compile(r"[^\W\d]\w*+")
_NUMBER_BEGUN = re.compile(r"[-+.eE0-9]++")
_BARE_KEY = re.compile(r"[^\W\d][\w$-]*+|\$[\w$-]*+")
_AFTER_VALUE = ("", "<", "[", "`", "|", ";", ">")
"""Beginnings of marks that formats put after a value. Other text may mean that the end of a string was missed."""
_NEXT_KEY = re.compile(_KEY)
_EXTRA_BRACE = re.compile(r"}\s*+(?=[,\]])")
_RAW_NEWLINE = re.compile(r"(?:[^\\]|^)" + possessive(r"\\\\") + r"\n")
_STRING_BEGINS = re.compile(r"""(?P<prefix>[a-zA-Z]{0,2})(?=["'“”„‘’])""")


class Container(Enum):
    """Kind of container that a bracket opens."""

    OBJECT = auto()
    ARRAY = auto()
    TUPLE = auto()
    ARGUMENTS = auto()
    """The arguments of a call in Python: `key=value` in parentheses."""


CLOSERS = {Container.OBJECT: "}", Container.ARRAY: "]", Container.TUPLE: ")", Container.ARGUMENTS: ")"}


@frozen_dataclass(kw_only=False)
class Spelling:
    """The way in which one language writes literals."""

    openers: dict[str, Container]
    words: dict[str, JsonValue]
    foreign_words: dict[str, JsonValue]
    """Words of the other language that are accepted as a repair."""
    gap: re.Pattern[str]
    """White space and comments."""
    number: re.Pattern[str]
    """Pattern with the groups `sign`, `whole` and `rest`."""
    contexts: dict[Container, StringContext]
    """Patterns that recognise the end of a string, by kind of container."""
    is_python: bool


JSON = Spelling(
    openers={"{": Container.OBJECT, "[": Container.ARRAY},
    words=_JSON_WORDS,
    foreign_words=_PYTHON_WORDS,
    gap=re.compile(possessive(r"\s++|//[^\n]*+|#[^\n]*+|/\*(?s:.*?)\*/")),
    number=re.compile(
        r"(?P<sign>[-+]?)(?P<whole>0|[1-9]\d*+)?(?P<rest>(?:\.\d*+)?(?:[eE][-+]?\d++)?)(?![\w.])", re.ASCII
    ),
    contexts={
        Container.OBJECT: StringContext(
            may_follow=re.compile(rf"\s*+(?:[,}}\]#]|/[/*]|\Z|{_KEY})"),
            proves_end=re.compile(rf"\s*+(?:,\s*+(?:{_KEY}|}})|[}}\]]{_AFTER_CLOSER})"),
        ),
        Container.ARRAY: StringContext(
            may_follow=re.compile(r"""\s*+(?:[,}\]#"'“‘{\[]|/[/*]|\Z)"""),
            proves_end=re.compile(rf"\s*+(?:,\s*+(?:{_VALUE_BEGINS}|\])|[}}\]]{_AFTER_CLOSER})"),
        ),
    },
    is_python=False,
)
PYTHON = Spelling(
    openers={"{": Container.OBJECT, "[": Container.ARRAY, "(": Container.TUPLE},
    words=_PYTHON_WORDS | _JSON_WORDS,
    foreign_words={},
    gap=re.compile(possessive(r"\s++|#[^\n]*+")),
    number=re.compile(
        rf"(?P<sign>[-+]?)(?P<whole>\d++{_MORE_DIGITS})?(?P<rest>(?:\.\d*+)?(?:[eE][-+]?\d++)?)(?![\w.])",
        re.ASCII,
    ),
    contexts={
        Container.OBJECT: StringContext(
            may_follow=re.compile(rf"\s*+(?:[,}}#]|\Z|{_STRING_JOINS})"),
            proves_end=re.compile(rf"\s*+(?:,\s*+(?:{_KEY}|}})|}}{_AFTER_CLOSER})"),
        ),
        Container.ARRAY: StringContext(
            may_follow=re.compile(rf"\s*+(?:[,\]#]|\Z|{_STRING_JOINS})"),
            proves_end=re.compile(rf"\s*+(?:,\s*+(?:{_VALUE_BEGINS}|\])|\]{_AFTER_CLOSER})"),
        ),
        Container.TUPLE: StringContext(
            may_follow=re.compile(rf"\s*+(?:[,)#]|\Z|{_STRING_JOINS})"),
            proves_end=re.compile(rf"\s*+(?:,\s*+(?:{_VALUE_BEGINS}|\))|\){_AFTER_CLOSER})"),
        ),
        Container.ARGUMENTS: StringContext(
            may_follow=re.compile(rf"\s*+(?:[,)#]|\Z|{_STRING_JOINS})"),
            proves_end=re.compile(
                rf"\s*+(?:,\s*+(?:{_NAMED}|\))|\)[ \t]*+(?:[\],;<|]|\Z|\n\s*+(?:[\]<]|\Z|[^\W\d][\w.-]{{0,128}}+\()))"
            ),
        ),
    },
    is_python=True,
)


@dataclass(slots=True)
class _Open:
    """A container that is open."""

    kind: Container
    value: dict[str, JsonValue] | list[JsonValue]
    key: str = ""
    doubled: bool = False
    """True if its opening brace was written twice."""
    commas: int = 0


@dataclass(slots=True)
class LiteralReader:
    """Reader of one value in `text`, beginning at `at`. Afterwards `at` is the index after the value.

    Its loop, `read`, alternates between a value and the place of the next one: into a container, past a comma and a
    key, or out of a container that ends.
    """

    text: str
    at: int
    spelling: Spelling
    close_open: bool = False
    """True if brackets that are missing after a closed value may be assumed."""
    repairs: dict[Repair, None] = field(default_factory=dict)
    unclosed: list[JsonValue] = field(default_factory=list)
    _stack: list[_Open] = field(default_factory=list)
    _open_ended: bool = False
    """True if the last value was a number or a word, which more text could extend."""

    def read(self, first: Container | None = None) -> JsonValue:
        """Read the value. `first` is the kind that its bracket opens, where the bracket alone does not tell.

        Raises UnreadableValueError if no value can be read.
        """
        while True:
            self._skip_gap()
            opened = self.spelling.openers.get(self.text[self.at : self.at + 1])
            value: JsonValue
            if opened is None:
                value = self._read_scalar()
            else:
                self._push(first or opened)
                first = None
                if self._move_to_first():
                    continue
                value = self._pop()
            while self._stack:
                self._add_value(value)
                if self._move_to_next():
                    break
                value = self._pop()
            else:
                return value

    def _note(self, repair: Repair) -> None:
        self.repairs[repair] = None

    def _skip_gap(self) -> None:
        gap = self.spelling.gap.match(self.text, self.at)
        if gap and gap.end() > self.at:
            if not gap[0].isspace():
                self._note(Repair.COMMENT)
            self.at = gap.end()

    def _error(self, message: str) -> UnreadableValueError:
        """Return the error for the text at this position. At the end of the text, it says that the text was cut."""
        if self.at >= len(self.text):
            return UnreadableValueError("the text ends in the middle of it", self.at, cut=True)
        return UnreadableValueError(message, self.at)

    # Containers

    def _push(self, kind: Container) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise UnreadableValueError(f"it is nested more than {MAX_DEPTH} deep", self.at)
        keyed = kind in (Container.OBJECT, Container.ARGUMENTS)
        self._stack.append(_Open(kind, {} if keyed else []))
        self.at += 1
        self._skip_gap()

    def _pop(self) -> JsonValue:
        """Remove the innermost container, which has been closed, and return its value."""
        top = self._stack.pop()
        self._open_ended = False
        if top.kind is Container.TUPLE and isinstance(top.value, list) and len(top.value) == 1 and not top.commas:
            return top.value[0]
        return top.value

    def _move_to_first(self) -> bool:
        """Move to the first value of the container just opened; return False if it is empty."""
        top = self._stack[-1]
        if top.kind is Container.OBJECT and not self.spelling.is_python and self.text.startswith("{", self.at):
            self._note(Repair.DOUBLED_BRACES)
            top.doubled = True
            self.at += 1
            self._skip_gap()
        if self._skip_closer(top):
            return False
        self._read_key(top)
        return True

    def _move_to_next(self) -> bool:
        """Move to the next value of the innermost container; return False if it ends here."""
        top = self._stack[-1]
        # `12` at the end of the text may be the beginning of `123`, so it counts as cut off.
        if self._open_ended and self.at >= len(self.text):
            raise self._error("a value is missing")
        value_end = self.at
        self._skip_gap()
        if self._skip_closer(top):
            return False
        if not self.text.startswith(",", self.at):
            return self._continue_without_comma(top, value_end)
        comma = self.at
        self.at += 1
        top.commas += 1
        self._skip_gap()
        if self._skip_closer(top):
            if not self.spelling.is_python:
                self._note(Repair.TRAILING_COMMA)
            return False
        if self.close_open and self._is_next_item(top):
            self.at = comma
            return self._assume_closed(top)
        self._read_key(top)
        return True

    def _skip_closer(self, top: _Open) -> bool:
        """Move past the closing bracket of `top`; return False if it is not here."""
        if not self.text.startswith(CLOSERS[top.kind], self.at):
            return False
        self.at += 1
        if top.doubled:
            gap = self.spelling.gap.match(self.text, self.at)
            end = gap.end() if gap else self.at
            if self.text.startswith("}", end):
                self.at = end + 1
            elif not self.close_open:
                raise UnreadableValueError("a doubled brace is closed only once", self.at, cut=end >= len(self.text))
            else:
                self._note(Repair.UNCLOSED)
        return True

    def _continue_without_comma(self, top: _Open, value_end: int) -> bool:
        """Move to the next value where the last, up to `value_end`, has no comma; return False if `top` ends here."""
        char = self.text[self.at : self.at + 1]
        if not self.spelling.is_python and char:
            if top.kind is Container.OBJECT and _NEXT_KEY.match(self.text, self.at):
                self._note(Repair.MISSING_COMMA)
                self._read_key(top)
                return True
            if top.kind is Container.ARRAY and (char in "{[" or (char in QUOTES and not self._open_ended)):
                self._note(Repair.MISSING_COMMA)
                return True
            if self._skip_extra_brace(top):
                return self._move_to_next()
        if self.close_open and self._may_end_here(char, value_end):
            return self._assume_closed(top)
        raise self._error("a comma or a closing bracket is missing")

    def _skip_extra_brace(self, top: _Open) -> bool:
        """Skip a surplus brace after an object in a list; return False if there is none."""
        if top.kind is not Container.ARRAY or not isinstance(top.value, list) or not isinstance(top.value[-1], dict):
            return False
        extra = _EXTRA_BRACE.match(self.text, self.at)
        if extra is None:
            return False
        self._note(Repair.EXTRA_BRACE)
        self.at = extra.end()
        return True

    def _may_end_here(self, char: str, value_end: int) -> bool:
        """Return True if all open containers can end here, or all inside one that is closed next."""
        if char in CLOSERS.values():
            return any(CLOSERS[frame.kind] == char for frame in self._stack)
        return char in _AFTER_VALUE or "\n" in self.text[value_end : self.at]

    def _is_next_item(self, top: _Open) -> bool:
        """Return True if the next item of a list is here, so that `top`, the object before it, was never closed."""
        if top.kind is not Container.OBJECT or len(self._stack) < 2 or self._stack[-2].kind is not Container.ARRAY:
            return False
        return self.text.startswith("{", self.at)

    def _assume_closed(self, top: _Open) -> bool:
        """End `top` without its closing bracket. Always return False: it has no further value."""
        self._note(Repair.UNCLOSED)
        self.unclosed.append(top.value)
        return False

    def _add_value(self, value: JsonValue) -> None:
        top = self._stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
            return
        if top.key not in top.value:
            top.value[top.key] = value
            return
        if top.kind is Container.ARGUMENTS or not same_json(top.value[top.key], value):
            raise UnreadableValueError(f"{top.key!r:.80} is given twice", self.at)
        self._note(Repair.REPEATED_KEY)

    # Keys

    def _read_key(self, top: _Open) -> None:
        """Move to the next value in `top`, past its key if it has one."""
        if top.kind is Container.ARGUMENTS:
            top.key = self._read_keyword()
        elif top.kind is Container.OBJECT:
            top.key = self._read_object_key()
            self._skip_gap()
            if not self.text.startswith(":", self.at):
                raise self._error("a colon is missing after a key")
            self.at += 1

    def _read_object_key(self) -> str:
        char = self.text[self.at : self.at + 1]
        if char and char in QUOTES:
            return self._read_string(None)
        bare = _BARE_KEY.match(self.text, self.at)
        if bare is None or self.spelling.is_python:
            raise self._error("a key is missing")
        self.at = bare.end()
        self._note(Repair.UNQUOTED_KEY)
        return bare[0]

    def _read_keyword(self) -> str:
        name = _BARE_KEY.match(self.text, self.at)
        if name is None:
            raise self._error("an argument has no name: every argument is written as name=value")
        self.at = name.end()
        self._skip_gap()
        if not self.text.startswith("=", self.at):
            raise self._error("an argument has no name: every argument is written as name=value")
        self.at += 1
        return name[0]

    # Scalar values

    def _read_scalar(self) -> JsonValue:
        char = self.text[self.at : self.at + 1]
        self._open_ended = False
        if not char:
            raise self._error("a value is missing")
        if char in QUOTES or (self.spelling.is_python and _STRING_BEGINS.match(self.text, self.at)):
            context = self.spelling.contexts[self._stack[-1].kind] if self._stack else None
            return self._read_joined_strings(context) if self.spelling.is_python else self._read_string(context)
        self._open_ended = True
        return self._read_number() if char in "+-.0123456789" else self._read_word()

    def _read_string(self, context: StringContext | None) -> str:
        start = self.at
        if self.spelling.is_python:
            return self._read_python_string(context)
        if self.text[start] == "'":
            self._note(Repair.SINGLE_QUOTES)
        if self.text.startswith(self.text[start] * 3, start):
            self._note(Repair.TRIPLE_QUOTES)
        raw, self.at = read_quoted(self.text, start, context, self._note)
        return from_json_escapes(raw, start, self._note)

    def _read_python_string(self, context: StringContext | None) -> str:
        start = self.at
        found = _STRING_BEGINS.match(self.text, start)
        prefix = found["prefix"].lower() if found else ""
        if prefix not in ("", "r", "u"):
            raise UnreadableValueError(f"text that begins with {prefix} is not plain text", start)
        quote = start + len(prefix)
        raw, self.at = read_quoted(self.text, quote, context, self._note)
        if _RAW_NEWLINE.search(raw) and not self.text.startswith(self.text[quote] * 3, quote):
            self._note(Repair.RAW_CONTROL)
        return raw if prefix == "r" else from_python_escapes(raw, start, self._note)

    def _read_joined_strings(self, context: StringContext | None) -> str:
        """Read a string and the strings that follow it without a comma."""
        parts = [self._read_python_string(context)]
        while True:
            end = self.at
            self._skip_gap()
            if not _STRING_BEGINS.match(self.text, self.at):
                self.at = end
                break
            self._note(Repair.ADJACENT_TEXTS)
            parts.append(self._read_python_string(context))
        return "".join(parts)

    def _read_number(self) -> JsonValue:
        start = self.at
        found = self.spelling.number.match(self.text, start)
        if found is None or not (found["whole"] or found["rest"][1:2].isdigit()):
            # Text that ends inside a number (`1e`) may have been cut off. `_error` says so if `at` is at its end.
            begun = _NUMBER_BEGUN.match(self.text, start)
            self.at = begun.end() if begun and begun.end() == len(self.text) else start
            raise self._error("a number is not written as one")
        self.at = found.end()
        whole, rest = (found["whole"] or "").replace("_", ""), found["rest"]
        if self.spelling.is_python:
            usual = whole == whole.lstrip("0") or not whole.strip("0") or rest[:1] == "."
        else:
            usual = whole != "" and rest[:2] not in (".", ".e", ".E") and found["sign"] != "+"
        if not usual:
            self._note(Repair.NUMBER_SPELLING)
        try:
            number = float(f"{found['sign']}{whole}{rest}") if rest else int(f"{found['sign']}{whole}")
        except ValueError:
            raise UnreadableValueError("a number is too long", start) from None
        if isinstance(number, float) and not math.isfinite(number):
            raise UnreadableValueError("a number is out of range", start)
        return number

    def _read_word(self) -> JsonValue:
        found = _WORD.match(self.text, self.at)
        if found is None:
            raise self._error("a value is missing")
        word = found[0]
        if word in self.spelling.words:
            self.at = found.end()
            return self.spelling.words[word]
        if word in self.spelling.foreign_words:
            self.at = found.end()
            self._note(Repair.PYTHON_WORDS)
            return self.spelling.foreign_words[word]
        known = (*self.spelling.words, *self.spelling.foreign_words)
        if found.end() == len(self.text) and any(name.startswith(word) for name in known):
            # The same for a word (`tru`).
            self.at = found.end()
        raise self._error(f"{word:.80} is not a value")


def same_json(one: JsonValue, other: JsonValue) -> bool:
    """Return True if two values are the same JSON. Unlike with `==`, `True` and `1` differ."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return one == other

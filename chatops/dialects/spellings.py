"""The literals of JSON and Python, as far as the reader of literals needs them."""

import re
from dataclasses import dataclass
from enum import Enum, auto

from chatops.dialects.strings import Place
from chatops.domain.canonical import JsonValue


class Kind(Enum):
    """Kind of container that a bracket opens."""

    OBJECT = auto()
    ARRAY = auto()
    TUPLE = auto()
    ARGUMENTS = auto()
    """The arguments of a call in Python: `key=value` in parentheses."""


CLOSERS = {Kind.OBJECT: "}", Kind.ARRAY: "]", Kind.TUPLE: ")", Kind.ARGUMENTS: ")"}


@dataclass(frozen=True, slots=True)
class Spelling:
    """The way in which one language writes literals."""

    openers: dict[str, Kind]
    words: dict[str, JsonValue]
    foreign_words: dict[str, JsonValue]
    """Words of the other language that are accepted as a repair."""
    gap: re.Pattern[str]
    """White space and comments."""
    number: re.Pattern[str]
    """Pattern with the groups `sign`, `whole` and `rest`."""
    places: dict[Kind, Place]
    """Patterns that recognise the end of a string, by kind of container."""
    is_python: bool


_JSON_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None}
_PYTHON_WORDS: dict[str, JsonValue] = {"True": True, "False": False, "None": None}
KEY = r"""(?:"[^"\\\n]{1,128}+"|'[^'\\\n]{1,128}+'|[“”][^“”\\\n]{1,128}+[“”])\s*+:"""
_OVER = r"""(?:[,}\])]|\s*+(?:[^\w"'\s]|\Z))"""
_VALUE = r"""(?:["'“‘{\[(\d-]|true|false|null|True|False|None)"""
_NAMED = r"[^\W\d][\w-]{0,128}+\s*+=(?!=)"

JSON = Spelling(
    openers={"{": Kind.OBJECT, "[": Kind.ARRAY},
    words=_JSON_WORDS,
    foreign_words=_PYTHON_WORDS,
    gap=re.compile(r"(?:\s++|//[^\n]*+|#[^\n]*+|/\*(?s:.*?)\*/)*+"),
    number=re.compile(
        r"(?P<sign>[-+]?)(?P<whole>0|[1-9]\d*+)?(?P<rest>(?:\.\d*+)?(?:[eE][-+]?\d++)?)(?![\w.])", re.ASCII
    ),
    places={
        Kind.OBJECT: Place(
            re.compile(rf"\s*+(?:[,}}\]#]|/[/*]|\Z|{KEY})"),
            re.compile(rf"\s*+(?:,\s*+(?:{KEY}|}})|[}}\]]{_OVER})"),
        ),
        Kind.ARRAY: Place(
            re.compile(r"""\s*+(?:[,}\]#"'“‘{\[]|/[/*]|\Z)"""),
            re.compile(rf"\s*+(?:,\s*+(?:{_VALUE}|\])|[}}\]]{_OVER})"),
        ),
    },
    is_python=False,
)
_MORE_TEXT = r"""[rRuU]?["'“‘]"""
PYTHON = Spelling(
    openers={"{": Kind.OBJECT, "[": Kind.ARRAY, "(": Kind.TUPLE},
    words=_PYTHON_WORDS | _JSON_WORDS,
    foreign_words={},
    gap=re.compile(r"(?:\s++|#[^\n]*+)*+"),
    number=re.compile(
        r"(?P<sign>[-+]?)(?P<whole>\d++(?:_\d++)*+)?(?P<rest>(?:\.\d*+)?(?:[eE][-+]?\d++)?)(?![\w.])", re.ASCII
    ),
    places={
        Kind.OBJECT: Place(
            re.compile(rf"\s*+(?:[,}}#]|\Z|{_MORE_TEXT})"), re.compile(rf"\s*+(?:,\s*+(?:{KEY}|}})|}}{_OVER})")
        ),
        Kind.ARRAY: Place(
            re.compile(rf"\s*+(?:[,\]#]|\Z|{_MORE_TEXT})"), re.compile(rf"\s*+(?:,\s*+(?:{_VALUE}|\])|\]{_OVER})")
        ),
        Kind.TUPLE: Place(
            re.compile(rf"\s*+(?:[,)#]|\Z|{_MORE_TEXT})"), re.compile(rf"\s*+(?:,\s*+(?:{_VALUE}|\))|\){_OVER})")
        ),
        Kind.ARGUMENTS: Place(
            re.compile(rf"\s*+(?:[,)#]|\Z|{_MORE_TEXT})"),
            re.compile(
                rf"\s*+(?:,\s*+(?:{_NAMED}|\))|\)[ \t]*+(?:[\],;<|]|\Z|\n\s*+(?:[\]<]|\Z|[^\W\d][\w.-]{{0,128}}+\()))"
            ),
        ),
    },
    is_python=True,
)

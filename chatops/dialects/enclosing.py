"""Open tags of no known format: a call between `<analysis>` and `</analysis>` was thought or quoted, not made.

The reader cannot list every word that models put around what they think or quote. So it decides by the pair: a call
that stands in a pair of tags is text, unless the tag announces calls or wraps the answer. A tag without its closing tag
encloses nothing for certain (`List<T>`, `<name>` as a placeholder), so most of these change nothing.
"""

import re
from enum import Enum, auto

from chatops.dialects.formats.closing import CLOSER
from chatops.dialects.masks import QUOTES
from chatops.dialects.scanner import TOO_EARLY, Early

_LONGEST_NAME = 128
_NAME = rf"(?P<name>[^\W\d][\w:.-]{{0,{_LONGEST_NAME - 1}}})"
_OPENS = re.compile(rf"<[ ]?{_NAME}")
_CLOSES = re.compile(rf"<\s?/\s?{_NAME}[^<>\n]{{0,16}}>")
_CLOSING_BEGINS = re.compile(rf"<\s?/\s?(?:{_NAME}[^<>\n]{{0,16}})?\Z")
_MOST = 1000
"""Tags that are counted; where more are open, every call is doubtful."""
_VOID = frozenset("area base br col embed hr img input link meta track wbr".split())
"""Tags of HTML that are never closed."""
_ANSWERS = frozenset({"answer", "response", "output"})
_ANNOUNCING = frozenset(
    "tool tools call calls function functions action actions act command commands execute exec invoke invocation"
    " use run request requests next step block list".split()
)
"""Parts of a word that announces calls, such as `next_action` or `tool_use`, and so may be a misspelled format."""
_PARTS = re.compile(r"[_:.-]")


class Enclosure(Enum):
    """How a call stands to the open tags around it."""

    FREE = auto()
    DOUBTFUL = auto()
    """It may have been thought, quoted or meant, so the user decides."""
    QUOTED = auto()
    """It stands in a pair of tags, so it is text."""


class OpenTags:
    """The tags that are open at one place of a message, outermost first."""

    __slots__ = ("_closings", "_counts", "_names", "_own_line", "_searched", "_too_many")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._counts: dict[str, int] = {}
        self._own_line: list[bool] = []
        self._too_many = False
        self._closings: dict[str, int] = {}
        self._searched = (0, 0, False)

    def __bool__(self) -> bool:
        return bool(self._names)

    def open(self, name: str, *, begins_line: bool) -> None:
        """Add a tag, unless calls in it count as calls."""
        if _is_harmless(name):
            return
        if len(self._names) == _MOST:
            self._too_many = True
            return
        self._names.append(name)
        self._own_line.append(begins_line)
        self._counts[name] = self._counts.get(name, 0) + 1

    def close(self, name: str) -> bool:
        """Drop the innermost tag `name` and all that were opened in it.

        Return False if it was never opened although calls could have stood in it.
        """
        if name not in self._counts:
            return _is_harmless(name)
        while True:
            dropped = self._names.pop()
            self._own_line.pop()
            self._counts[dropped] -= 1
            if not self._counts[dropped]:
                del self._counts[dropped]
            if dropped == name:
                return True

    def around(self, text: str, at: int, *, base: int, final: bool) -> Enclosure | Early:
        """Return how a call whose opening tag ends at `at` is enclosed.

        `base` is the index of `text` in the message. Without a closing tag only the end of the message can tell.
        """
        self._search(text, at, base, final)
        closed = [name for name in self._counts if self._closings.get(name, -1) >= base + at]
        if not all(map(_announces, closed)):
            return Enclosure.QUOTED
        if not final:
            return TOO_EARLY
        return Enclosure.DOUBTFUL if closed or self._too_many or any(self._own_line) else Enclosure.FREE

    def _search(self, text: str, at: int, base: int, final: bool) -> None:
        """Note the last closing tag of each name behind `at`, unless that was done for this text."""
        start, end, to_the_end = self._searched
        if start <= base + at and end == base + len(text) and to_the_end == final:
            return
        self._searched = (base + at, base + len(text), final)
        self._closings = {
            tag["name"].lower(): base + tag.start()
            for tag in _CLOSES.finditer(text, at)
            if not is_spoken_of(text, tag, final=final)
        }


def opening_tag(text: str, start: int, *, final: bool) -> str | Early | None:
    """Return the name of the tag of no known format that opens at `start`, in small letters."""
    tag = _OPENS.match(text, start)
    if tag is None:
        return None
    if tag.end() == len(text) and not final and len(tag["name"]) < _LONGEST_NAME:
        return TOO_EARLY
    return tag["name"].lower()


def closing_tag(text: str, start: int, *, final: bool) -> str | Early | None:
    """Return the name of the tag that closes at `start`, in small letters; None if it is only spoken of."""
    tag = _CLOSES.match(text, start)
    if tag is None:
        return TOO_EARLY if not final and _CLOSING_BEGINS.match(text, start) else None
    spoken_of = is_spoken_of(text, tag, final=final)
    return spoken_of if isinstance(spoken_of, Early) else None if spoken_of else tag["name"].lower()


def is_spoken_of(text: str, tag: re.Match[str], *, final: bool) -> bool | Early:
    """Return True if a tag stands alone in inline code or in quotes."""
    closing = "`" if text[tag.start() - 1] == "`" else QUOTES.get(text[tag.start() - 1], "")
    if closing and tag.end() == len(text) and not final:
        return TOO_EARLY
    return bool(closing) and text.startswith(closing, tag.end())


def _is_harmless(name: str) -> bool:
    """Return True for tags in which a call is a call."""
    return name in _VOID or name in _ANSWERS or CLOSER.fullmatch(f"</{name}>") is not None


def _announces(name: str) -> bool:
    return all(part in _ANNOUNCING for part in _PARTS.split(name))

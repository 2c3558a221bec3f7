"""Tags of no known format. A call between a pair of them is text.

Models wrap what they think or quote in tags of their own choice, so the reader cannot list every word that they use. It
decides by the pair instead: a call inside a pair of tags is text, unless the tag announces calls (`<next_action>`) or
wraps the answer (`<answer>`). Tags are written `<x>`, `[x]` and, as tokens, `<|x|>`.

States of a call, see `Enclosure`:

- FREE: no tag that matters is open, or an open one begins within a line and is never closed. Such a tag is often no tag
  at all (`List<T>`, `<name>` as a placeholder), so it changes nothing.
- DOUBTFUL: a tag on a line of its own is open to the end of the message, the enclosing pair announces calls, or more
  than 1000 tags are open. The call is kept with low confidence, so the user decides.
- QUOTED: a pair of tags that does not announce calls encloses it. The call is text.

Rules:

- While the message still arrives, only a closing tag that has been seen proves QUOTED. Otherwise the answer is
  TOO_EARLY and the reader waits: without a closing tag, only the end of the message can tell.
- A closing tag also closes all tags that were opened after its opening tag.
- Tags are not counted if calls in them count as calls: tags of known call formats, answer wrappers, void HTML elements,
  and tokens around all that a model says (`<|assistant|>`).
- A closing tag that is alone in inline code or in quotes does not close anything.
- The opening tag may have been in the prompt. A closing tag without one therefore lowers the confidence of the calls
  before it (see `note_unknown_tag` in `quoting.py`).

The key of a pair is what both of its tags share: `x` for `<x>`, `[x` for `[x]`, `|x` for `<|x_start|>`. The closing
tags after a call are searched once per state of the text and kept as the last index per key (`_find_closings`), so that
many calls in a row take linear time.
"""

import re
from enum import Enum, auto

from chatops.dialects.formats.base import CLOSER, TOO_EARLY, Early
from chatops.dialects.literal_text import QUOTES
from chatops.domain.frozen_dataclass import frozen_dataclass

_MAX_NAME = 128
"""Characters of a tag's name; a longer one is no tag."""
_NAME = rf"[^\s<>/|｜\"'`=!?]{{1,{_MAX_NAME}}}"
_TAG_OPENS = re.compile(
    rf"<[ ]?(?P<name>{_NAME})|\[(?P<bracket>[^\W\d][\w-]{{0,40}})\]|<[|｜](?P<token>[\w▁]{{1,80}})[|｜]>"
)
_TAG_CLOSES = re.compile(
    rf"<\s?/\s?(?P<name>{_NAME})[^<>]{{0,16}}>|\[/(?P<bracket>[^\W\d][\w-]{{0,40}})\]|<[|｜](?P<token>/?[\w▁]{{1,80}})[|｜]>"
)
_TAG_MAY_BEGIN = re.compile(rf"<[ ]?(?:{_NAME})?\Z|<\s?/\s?(?:{_NAME}[^<>]{{0,16}})?\Z|<[|｜]/?[\w▁]{{0,80}}[|｜]?\Z")
_SIDES = frozenset({"begin", "start", "end", "of", ""})
"""Parts of a token's name that say which end it is: `<|begin_of_x|>`, `<|x_start|>`, `<|end_x|>`."""
_MAX_OPEN = 1000
"""Open tags that are counted. Each call looks at all their names, so a larger number would take more time per call."""
_VOID_ELEMENTS = frozenset("br hr img s wbr".split())
"""HTML tags in prose that are never closed, and `<s>`, which begins a text in the way that `</s>` ends it.

Others, such as `<input>` and `<meta>`, are words that models put around what they quote.
"""
_MESSAGE_TOKENS = frozenset({"text", "sentence", "turn", "message", "msg", "assistant", ""})
"""Names of tokens that wrap everything a model says."""
_ANSWER_WRAPPERS = frozenset({"answer", "response", "output"})
_ANNOUNCING_PARTS = frozenset(
    "tool tools call calls function functions action actions act command commands execute exec invoke invocation"
    " use run request requests next step block list".split()
)
"""Parts of names that announce calls, such as `next_action` or `tool_use`: these may be a misspelled format."""
_PART_SEPARATOR = re.compile(r"[_:.▁-]")


@frozen_dataclass
class Tag:
    """A tag of no known format. Both tags of a pair have the same `key`."""

    key: str
    closes: bool


class Enclosure(Enum):
    """Relation of a call to the open tags around it."""

    FREE = auto()
    DOUBTFUL = auto()
    """It may have been thought or quoted, so the user decides."""
    QUOTED = auto()
    """It is between a pair of tags, so it is text."""


@frozen_dataclass
class _OpenTag:
    key: str
    begins_line: bool


@frozen_dataclass
class _Search:
    """The part of the message that was searched for closing tags."""

    start: int
    end: int
    is_final: bool
    """True if no more text will come after `end`."""


class OpenTags:
    """The tags that are open at one position of a message, outermost first."""

    __slots__ = ("_counts", "_last_closings", "_open", "_searched", "_too_many")

    def __init__(self) -> None:
        self._open: list[_OpenTag] = []
        self._counts: dict[str, int] = {}
        """Number of open tags by key."""
        self._too_many = False
        """True once a tag was not counted because `_MAX_OPEN` were open."""
        self._last_closings: dict[str, int] = {}
        """By key: the index in the message of the last closing tag that was found."""
        self._searched = _Search(start=0, end=0, is_final=False)
        """The search that found them."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def open(self, key: str, *, begins_line: bool) -> None:
        """Add a tag, unless calls inside it count as calls."""
        if _is_harmless(key):
            return
        if len(self._open) == _MAX_OPEN:
            self._too_many = True
            return
        self._open.append(_OpenTag(key=key, begins_line=begins_line))
        self._counts[key] = self._counts.get(key, 0) + 1

    def close(self, key: str) -> bool:
        """Drop the innermost tag `key` and all tags opened inside it.

        Return False if it was never opened, unless calls inside such a tag count anyway.
        """
        if key not in self._counts:
            return _is_harmless(key)
        while True:
            dropped = self._open.pop().key
            self._counts[dropped] -= 1
            if not self._counts[dropped]:
                del self._counts[dropped]
            if dropped == key:
                return True

    def enclosure_at(self, text: str, at: int, *, base: int, final: bool) -> Enclosure | Early:
        """Return the enclosure of a call whose opening tag ends at `at`.

        `base` is the index of `text` in the message. Return TOO_EARLY if only the end of the message can tell.
        """
        self._find_closings(text, at, base, final=final)
        found = self._counts.keys() & self._last_closings.keys()
        closed = [key for key in found if self._last_closings[key] >= base + at]
        if not all(map(_announces_calls, closed)):
            return Enclosure.QUOTED
        if not final:
            return TOO_EARLY
        doubtful = closed or self._too_many or any(tag.begins_line for tag in self._open)
        return Enclosure.DOUBTFUL if doubtful else Enclosure.FREE

    def _find_closings(self, text: str, at: int, base: int, *, final: bool) -> None:
        """Record the last closing tag of each key after `at`, unless that was done for this text."""
        search, done = _Search(start=base + at, end=base + len(text), is_final=final), self._searched
        if done.start <= search.start and (done.end, done.is_final) == (search.end, search.is_final):
            return
        self._searched = search
        self._last_closings = {
            key: base + tag.start()
            for tag in _TAG_CLOSES.finditer(text, at)
            # One of which it is too early to say if it is mentioned does not count yet either.
            if (key := _closing_key(tag)) and _is_mentioned(text, tag, final=final) is False
        }


def read_tag(text: str, start: int, *, final: bool) -> Tag | Early | None:
    """Return the tag of no known format at `start`; None if there is none, or a closing one that is only mentioned."""
    if (closing := _TAG_CLOSES.match(text, start)) and (key := _closing_key(closing)):
        mentioned = _is_mentioned(text, closing, final=final)
        if isinstance(mentioned, Early):
            return mentioned
        return None if mentioned else Tag(key=key, closes=True)
    opening = _TAG_OPENS.match(text, start)
    may_grow = opening is None or (opening["name"] and opening.end() == len(text) and len(opening["name"]) < _MAX_NAME)
    if may_grow and not final and _TAG_MAY_BEGIN.match(text, start):
        return TOO_EARLY
    if opening is None:
        return None
    if opening["token"]:
        return Tag(key=_token_key(opening["token"]), closes=False)
    return Tag(key=(opening["name"] or f"[{opening['bracket']}").lower(), closes=False)


def _closing_key(tag: re.Match[str]) -> str:
    """Return the key of the pair that `tag` closes, or "" if it is a token that closes nothing."""
    if tag["token"]:
        parts = _PART_SEPARATOR.split(tag["token"].lower())
        return _token_key(tag["token"]) if tag["token"].startswith("/") or "end" in parts else ""
    return (tag["name"] or f"[{tag['bracket']}").lower()


def _token_key(name: str) -> str:
    return "|" + "_".join(part for part in _PART_SEPARATOR.split(name.lower().lstrip("/")) if part not in _SIDES)


def _is_mentioned(text: str, tag: re.Match[str], *, final: bool) -> bool | Early:
    """Return True if a tag is alone in inline code or in quotes."""
    # There is a character before: `ParserState` puts line breaks before a message.
    before = text[tag.start() - 1]
    closing_sign = "`" if before == "`" else QUOTES.get(before)
    if closing_sign is None:
        return False
    if tag.end() == len(text) and not final:
        return TOO_EARLY
    return text.startswith(closing_sign, tag.end())


def _is_harmless(key: str) -> bool:
    """Return True for tags inside which a call counts as a call."""
    bare = key.lstrip("[|")
    return (
        bare in _ANSWER_WRAPPERS
        or key in _VOID_ELEMENTS
        or (key[0] == "|" and bare in _MESSAGE_TOKENS)
        or CLOSER.fullmatch(f"</{bare}>") is not None
    )


def _announces_calls(key: str) -> bool:
    return all(part in _ANNOUNCING_PARTS for part in _PART_SEPARATOR.split(key.lstrip("[|")))

"""The marks at which the scan of the reader stops: their patterns, the role of each tag, and incomplete marks."""

import re
from collections.abc import Mapping
from enum import Enum, auto

from chatops.dialects.chat_template import TURN_TAGS
from chatops.dialects.formats.base import TAG_WORD
from chatops.dialects.formats.channels import CHANNEL_ENDS
from chatops.dialects.formats.marked import MARK_READERS, TAG_READERS
from chatops.dialects.literal_text import QUOTING_ENDS, SQUARE_QUOTING_ENDS
from chatops.dialects.thought import CLOSING_WORDS, OPENING_WORDS


class TagKind(Enum):
    """Role of a tag in a reply."""

    CALL = auto()
    THOUGHT = auto()
    THOUGHT_ENDS = auto()
    QUOTED = auto()
    """Tool output, declarations and comments: shown, never run."""
    CHANNEL_HEADER = auto()
    """The header of a message in a channel."""
    CHANNEL_ENDS = auto()
    END_OF_TEXT = auto()
    PART = auto()
    """The mark of a part in a message of Kimi K3."""
    TURN = auto()
    """The header of a turn, which may name a role."""


_ENDS_OF_TEXT = (
    *("|im_end|", "|eot_id|", "|eom_id|", "|endoftext|", "|end_of_text|", "|end_of_turn|", "|role_end|", "/s"),
    *("end_of_turn", "｜end▁of▁sentence｜", "|end_message|", "|content_model_end_sampling|", "|end_of_msg|"),
    *("|end_response|", "seed:eos", "turn|"),
)
KINDS: Mapping[str, TagKind] = {
    **dict.fromkeys(_ENDS_OF_TEXT, TagKind.END_OF_TEXT),
    **dict.fromkeys(TURN_TAGS, TagKind.TURN),
    **dict.fromkeys(CHANNEL_ENDS, TagKind.CHANNEL_ENDS),
    "|open|": TagKind.PART,
    "|close|": TagKind.PART,
    "|start|": TagKind.CHANNEL_HEADER,
    "|channel|": TagKind.CHANNEL_HEADER,
    **dict.fromkeys(QUOTING_ENDS, TagKind.QUOTED),
    **dict.fromkeys(CLOSING_WORDS, TagKind.THOUGHT_ENDS),
    **dict.fromkeys(OPENING_WORDS, TagKind.THOUGHT),
    **dict.fromkeys(TAG_READERS, TagKind.CALL),
}
"""The role of each known tag, by its word in lower case."""
_PREFIXES = frozenset(
    word[:end]
    for word in (*KINDS, "!--", *(f"{word}:opensource" for word in ("tool_call", "tool_calls", "think", "/think")))
    for end in range(1, len(word) + 1)
)
"""All beginnings of known words, the words included."""
_SPACES = r"[ \t\r]{0,16}"
_MARKS = (*MARK_READERS, "[THINK]", "[/THINK]", "◁think▷", "◁/think▷", *SQUARE_QUOTING_ENDS)


def _mark_pattern(mark: str) -> str:
    """Return the pattern of a mark. One that begins with a letter must begin a word."""
    return rf"\b{re.escape(mark)}" if mark[0].isalpha() else re.escape(mark)


_TAGS = (
    rf"(?:{'|'.join(map(_mark_pattern, _MARKS))}|\[result [0-9a-f]{{16}} of )|<[ ]?(?P<word>{TAG_WORD})|<!--"
    r"|(?P<run>`+)|(?P<other>\[/?[^\W\d][\w-]{0,40}(?=\])|<[ ]?/?(?=[^\s<>!?=/\[\](){}]))"
)
_LINES = (
    rf"(?P<indented>{_SPACES}\n(?: {{4}}|\t))"
    rf"|{_SPACES}(?:(?P<fence>`{{3,40}}(?!`)|~{{3,40}}(?!~))|(?P<prompt>>>>)|(?P<quote>>)|(?P<action>Action ?:))"
)
SCAN = re.compile(rf"{_TAGS}|\n(?:{_LINES})")
"""All marks. Groups: `word` of a tag, `run` of backticks, `other` for a tag of no known format, and those of a line."""
SCAN_IN_SPAN = re.compile(rf"{_TAGS}|\n(?:{_LINES}|(?P<blank>{_SPACES}\n))")
"""The same and blank lines, which end a code span."""
LINE_START = re.compile(rf"(?:{_LINES})")
"""Constructs that begin a line, matched right at its beginning."""
_MAX_MARK = 120
"""Characters of the longest mark: only so many at the end of a text can be an incomplete one."""


def _prefix_pattern(mark: str) -> str:
    """Return the pattern of the non-empty beginnings of `mark`."""
    pattern = ""
    for char in reversed(mark):
        pattern = f"{re.escape(char)}(?:{pattern})?" if pattern else re.escape(char)
    return rf"\b{pattern}" if mark[0].isalpha() else pattern


_INCOMPLETE = re.compile(
    rf"(?:(?P<tag><[ ]?(?P<word>[/!]?(?:[A-Za-z|｜][\w:|｜▁/-]{{0,63}})?-{{0,2}})?)"
    rf"|{'|'.join(map(_prefix_pattern, (*_MARKS, '[result ')))}|\[result [0-9a-f]{{1,16}}(?: (?:of?)?)?|`+"
    rf"|\[/?(?:[^\W\d][\w-]{{0,40}})?|\n{_SPACES}(?:\n {{0,3}}|[`~>]{{1,2}}|{_prefix_pattern('Action :')})?)\Z"
)


def incomplete_from(text: str, start: int) -> int:
    """Return the index, at least `start`, from which the end of `text` may be an incomplete mark."""
    for mark in _INCOMPLETE.finditer(text, max(start, len(text) - _MAX_MARK)):
        word = mark["word"]
        if mark["tag"] is None or not word or word.lower() in _PREFIXES:
            return mark.start()
    return len(text)

"""Find where something may begin: one pattern over the text, the words of tags, and the tail to hold back.

The pattern finds tags, runs of backticks and the beginnings of lines that matter; everything between is text. The word
of a tag says what it is (`tool_call`, `/think`, `|channel|`). Tags with an unknown word are text.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum, auto

from chatops.dialects.chat_template import TURNS
from chatops.dialects.formats.channels import CHANNEL_ENDS
from chatops.dialects.formats.marked import OPENS
from chatops.dialects.masks import QUOTING
from chatops.dialects.thought import CLOSING, OPENING

_WORD = r"[/!]?(?:[^\W\d]|[|｜])[\w:|｜▁/-]{0,63}"
_SPACES = r"[ \t\r]{0,16}"
_TAGS = (
    rf"(?P<spaced><[|｜]tool calls? begin[|｜]>)|<[ ]?(?P<word>{_WORD})|<!--"
    r"|(?P<square>\[(?:TOOL_CALLS|/?THINK|TOOL_RESULTS|AVAILABLE_TOOLS|INST)\]"
    r"|\[result [0-9a-f]{16} of )|(?P<functools>\bfunctools\[)|(?P<minimax>\]<\]minimax\[>\[)|(?P<thought>◁/?think▷)"
    r"|(?P<run>`+)|(?P<other>\[/?[^\W\d][\w-]{0,40}(?=\])|<[ ]?/?(?=[^\s<>!?=/\[\](){}]))"
)
_LINES = (
    rf"(?P<indented>{_SPACES}\n(?: {{4}}|\t))"
    rf"|{_SPACES}(?:(?P<fence>`{{3,40}}(?!`)|~{{3,40}}(?!~))|(?P<prompt>>>>)|(?P<quote>>)|(?P<action>Action ?:))"
)
SCAN = re.compile(rf"{_TAGS}|\n(?:{_LINES})")
"""Pattern of everything that may begin something."""
SCAN_IN_SPAN = re.compile(rf"{_TAGS}|\n(?:{_LINES}|(?P<blank>{_SPACES}\n))")
"""The same, plus blank lines, which end a code span."""
LINE_START = re.compile(rf"(?:{_LINES})")
"""Constructs that begin a line, matched right at its beginning."""
_SPACED = tuple(f"<{bar}tool {word} begin{bar}>" for bar in "|｜" for word in ("call", "calls"))
_SQUARES = ("[TOOL_CALLS]", "[THINK]", "[/THINK]", "[TOOL_RESULTS]", "[AVAILABLE_TOOLS]", "[INST]")
_LONGEST = 120
_ENDS_OF_TEXT = (
    "|im_end|",
    "|eot_id|",
    "|eom_id|",
    "|endoftext|",
    "|end_of_text|",
    "|end_of_turn|",
    "|role_end|",
    "/s",
    "end_of_turn",
    "｜end▁of▁sentence｜",
    "|end_message|",
    "|content_model_end_sampling|",
    "|end_of_msg|",
    "|end_response|",
    "seed:eos",
    "turn|",
)


def _partial(literal: str) -> str:
    """Return a pattern for the non-empty beginnings of `literal` at the end of a text."""
    pattern = ""
    for char in reversed(literal):
        pattern = f"{re.escape(char)}(?:{pattern})?" if pattern else re.escape(char)
    return pattern


_HELD = re.compile(
    rf"(?P<tag><[ ]?(?P<word>[/!]?(?:[A-Za-z|｜][\w:|｜▁/-]{{0,63}})?-{{0,2}})?)\Z"
    rf"|(?:{'|'.join(map(_partial, (*_SPACED, *_SQUARES)))}|{_partial('[result ')}"
    r"|\[result [0-9a-f]{1,16}(?: (?:of?)?)?)\Z"
    rf"|\b{_partial('functools[')}\Z|{_partial(']<]minimax[>[')}\Z|{_partial('◁/think▷')}\Z|{_partial('◁think▷')}\Z|`+\Z"
    r"|\[/?(?:[^\W\d][\w-]{0,40})?\Z"
    rf"|\n{_SPACES}(?:\n {{0,3}}|[`~>]{{1,2}}|{_partial('Action :')})?\Z"
)


def hold_from(text: str, start: int, words: frozenset[str]) -> int:
    """Return the index, at least `start`, from which the end of `text` may be an incomplete construct."""
    begin = max(start, len(text) - _LONGEST)
    for found in _HELD.finditer(text, begin):
        word = found["word"]
        if found["tag"] is None or not word or word.lower() in words:
            return found.start()
    return len(text)


def beginnings(words: Iterable[str]) -> frozenset[str]:
    """Return all non-empty prefixes of the `words`, the words included."""
    return frozenset(word[:end] for word in words for end in range(1, len(word) + 1))


class TagKind(Enum):
    """Role of a tag, by its word."""

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


KINDS: Mapping[str, TagKind] = {
    **dict.fromkeys(_ENDS_OF_TEXT, TagKind.END_OF_TEXT),
    **dict.fromkeys(TURNS, TagKind.TURN),
    **dict.fromkeys(CHANNEL_ENDS, TagKind.CHANNEL_ENDS),
    "|open|": TagKind.PART,
    "|close|": TagKind.PART,
    "|start|": TagKind.CHANNEL_HEADER,
    "|channel|": TagKind.CHANNEL_HEADER,
    **dict.fromkeys(QUOTING, TagKind.QUOTED),
    **dict.fromkeys(CLOSING, TagKind.THOUGHT_ENDS),
    **dict.fromkeys(OPENING, TagKind.THOUGHT),
    **dict.fromkeys(OPENS, TagKind.CALL),
}
"""The role of a tag, by its word."""


BEGINNINGS = beginnings(
    [*KINDS, "!--", *(f"{word}:opensource" for word in ("tool_call", "tool_calls", "think", "/think"))]
)
"""All prefixes of known words."""

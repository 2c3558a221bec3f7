"""Titles of sessions: made from the first exchange, without a model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from chatops.domain.messages import AssistantMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chatops.domain.messages import Message

TITLE_LENGTH = 60
"""Maximum characters of a title."""
_TITLE_SOURCE_CHARACTERS = 2_000
"""Characters of a message from which its title is made."""
_GREETING = re.compile(
    r"(?:hi|hiya|hello|hey|hallo|moin|servus|good (?:morning|afternoon|evening|day)|greetings|thanks|thank you|ok|okay)"
    r"(?: (?:there|all|everyone|again|team|claude|chatops))?(?=[\s,.!?:;-]|$)[\s,.!?:;-]*",
    re.IGNORECASE,
)
_POLITE_WORDS = re.compile(
    r"(?:please|kindly|(?:can|could|would|will) you(?: please)?|help me(?: to| with)?"
    r"|i(?:'d| would) like (?:you )?to(?: know)?|i (?:want|need) (?:you )?to(?: know)?)\s+",
    re.IGNORECASE,
)
_LIST_SIGN = re.compile(r"(?:[#>*+-]|\d+[.)])\s+")
_SENTENCE = re.compile(r"(?<=[^\s./][.!?])\s")
_FULL_STOP = re.compile(r"(?<![\s./])\.$")
"""The end of a sentence, and not the last part of a path such as ``.`` or ``src/.``."""
_YOU = re.compile(r"\byou\b", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://([^\s/]+)(?:/[^\s]*)?")
_PATH = re.compile(r"@?(?:~|\.{1,2})?(?:/?[\w.@+-]+/){2,}([\w.@+-]+)/?|@([\w.@+-]+(?:/[\w.@+-]+)?)")
_MIN_SENTENCE = 12
"""Characters of a sentence that can be a title. A shorter one is kept together with the next."""
_SOURCE_TITLE = 28
"""Characters of the title of a session in those of its copies."""
_JOIN, _BEFORE = " · ", "before: "


def title_from(messages: Iterable[Message]) -> str:
    """Return a title from the first message that says something; empty if none does.

    That is a message of the user, or an answer to a greeting, unless the answer is a question.
    """
    for message in messages:
        if isinstance(message, UserMessage):
            title = _title(message.text)
        elif isinstance(message, AssistantMessage):
            title = _title(message.text)
            title = "" if title.endswith("?") else title
        else:
            continue
        if title:
            return title
    return ""


def copy_title(left_out: Iterable[Message], *, source: str, is_copy: bool, said: Iterable[Message]) -> str:
    """Return the title of a copy that ends before the first of the messages `left_out`.

    It begins with the title of its source, in which `said` was said, without what a copy adds to it. One that was made
    from a message is shortened, so that a list shows something of both.
    """
    if is_copy:
        source = f"{_JOIN}{source}".partition(_JOIN + _BEFORE)[0].removeprefix(_JOIN)
    if len(source) > _SOURCE_TITLE and source == title_from(said):
        source = _cut(source, _SOURCE_TITLE)
    left = title_from(left_out)
    return _JOIN.join(filter(None, (source, f"{_BEFORE}{left}" if left else "")))


def _title(text: str) -> str:
    """Return the first sentence without greeting, list signs and long paths, cut between words."""
    lines = [" ".join(line.split()) for line in _prose_first(text[:_TITLE_SOURCE_CHARACTERS].splitlines())]
    line, said = next(((line, rest) for line in lines if (rest := _without_greeting(line))), ("", ""))
    # "Could you fix it?" asks for something to be done: "Fix it".
    is_request = _YOU.search(line[: -len(said)] if said else "") is not None
    said = _PATH.sub(lambda found: found[1] or found[2], _ADDRESS.sub(lambda found: found[1], said))
    said = _first_sentence(said)
    said = said.removesuffix("?") if is_request else said
    return said if len(said) <= TITLE_LENGTH else _cut(said, TITLE_LENGTH)


def _cut(text: str, most: int) -> str:
    """Return the beginning of a longer text, cut between words."""
    head, _, _ = text[:most].rpartition(" ")
    return f"{(head or text)[: most - 1].rstrip(' ,;:-')}…"


def _prose_first(lines: Sequence[str]) -> list[str]:
    """Return the lines outside of fenced code, then those of the code."""
    prose: list[str] = []
    code: list[str] = []
    fenced = False
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        else:
            (code if fenced else prose).append(line)
    return prose + code


def _without_greeting(line: str) -> str:
    """Return a line without what stands before its subject."""
    rest = line
    for before in (_LIST_SIGN, _GREETING, _GREETING, _POLITE_WORDS, _POLITE_WORDS):
        found = before.match(rest)
        rest = rest[found.end() :] if found is not None else rest
    cut = rest != line and rest[:1].islower() and rest.partition(" ")[0].isalpha()
    return rest[:1].upper() + rest[1:] if cut else rest


def _first_sentence(text: str) -> str:
    for end in _SENTENCE.finditer(text):
        if end.start() >= _MIN_SENTENCE:
            return _FULL_STOP.sub("", text[: end.start()])
    return _FULL_STOP.sub("", text)

"""Steps for tags that are not calls: thought and quotations; and the table of all kinds of tags."""

import re
from collections.abc import Callable, Mapping

from chatops.dialects.enclosing import read_tag
from chatops.dialects.formats.closing import CLOSER, only_closers_follow, text_follows
from chatops.dialects.frames import end_of_text, frame, frame_ends, part, turn
from chatops.dialects.masks import QUOTING
from chatops.dialects.message import Message
from chatops.dialects.reasoning import opened_by
from chatops.dialects.scanner import Early, Kind, word_of
from chatops.dialects.settle import Step, Went, decline, masked, wait
from chatops.dialects.thoughts import quoted, think, thought_ended


def _thought(message: Message, found: re.Match[str]) -> Step:
    opened = opened_by(word_of(found), message.text, found.end())
    if isinstance(opened, Early):
        return found.end() if message.final else wait(message, found.start())
    return found.end() if opened is None else think(message, found, opened[0], opened[1])


def _thought_tag_ended(message: Message, found: re.Match[str]) -> Step:
    tag = _TAG_ENDS.match(message.text, found.end())
    if tag is None:
        short = len(message.text) - found.end() < _LONGEST_TAG_END and not message.final
        return wait(message, found.start()) if short else found.end()
    return thought_ended(message, found, tag.end())


_LONGEST_TAG_END = 4
_TAG_ENDS = re.compile(r"\s{0,3}>")


_LIST_OF_TOOLS = "tools"


def _tag_quotes(message: Message, found: re.Match[str]) -> Step:
    text = message.text
    after = text[found.end() : found.end() + 1]
    if after not in (">", " ", "\n", ""):
        return found.end()
    if after == ">" and message.ledger.removed and not text_follows(text, found.end() + 1):
        # Servers stop where results would follow.
        if not message.final:
            return wait(message, found.start())
        if only_closers_follow(text, found.end() + 1):
            message.pass_content(found.start())
            message.skip(len(text))
            return Went.NOWHERE
    word = word_of(found)
    if word == _LIST_OF_TOOLS and masked(message, found.start()) is None:
        decline(message, found.start())
    return quoted(message, found, QUOTING[word])


def unknown_tag(message: Message, found: re.Match[str]) -> Step:
    """Note a tag of no known format. The tag stays text, and so does a call between it and its closing tag."""
    text, start = message.text, found.start()
    tag = read_tag(text, start, final=message.final)
    if isinstance(tag, Early):
        return wait(message, start)
    if tag is None:
        return found.end()
    name, closes = tag
    if closes:
        if not message.tags.close(name) and name[0] not in "[|" and not message.led_by_call:
            # The opening tag may have been in the prompt. What came before was thought in that case.
            message.ledger.doubt()
        return found.end()
    if CLOSER.fullmatch(f"</{name}>") and masked(message, start) is None:
        decline(message, start)
    message.tags.open(name, begins_line=text[start - 1] == "\n")
    return found.end()


BY_KIND: Mapping[Kind, Callable[[Message, re.Match[str]], Step]] = {
    Kind.THOUGHT: _thought,
    Kind.THOUGHT_ENDS: _thought_tag_ended,
    Kind.QUOTED: _tag_quotes,
    Kind.FRAME: frame,
    Kind.FRAME_ENDS: frame_ends,
    Kind.END_OF_TEXT: end_of_text,
    Kind.TURN: turn,
    Kind.PART: part,
}
"""The function that handles a tag, by kind."""

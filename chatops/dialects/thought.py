"""Modes for thought."""

import re

from chatops.dialects.message import ANYTHING, Message, Mode
from chatops.dialects.reasoning import Thought


def thinking(thought: Thought, then: Mode) -> Mode:
    """Return the mode inside `thought`; `then` is the mode after it."""
    return _Thinking(thought, then)


class _Thinking:
    """Mode that passes thought until its closing tag, counting nested opening tags."""

    __slots__ = ("_depth", "_then", "_thought")

    def __init__(self, thought: Thought, then: Mode) -> None:
        self._thought = thought
        self._then = then
        self._depth = 1

    def __call__(self, message: Message) -> bool:
        text = message.text
        hold = len(text) if message.final else _tag_begun(text, message.at, self._thought.longest)
        scan = message.at
        while (tag := self._thought.ends.search(text, scan)) and tag.start() < hold:
            if text[tag.start() - 1] == "`":
                if tag.end() == len(text) and not message.final:
                    hold = tag.start()
                    break
                if text.startswith("`", tag.end()):
                    scan = tag.end()
                    continue
            scan = tag.end()
            if tag["opens"]:
                self._depth += 1
                continue
            self._depth -= 1
            if not self._depth:
                message.pass_thought(tag.start())
                message.skip(tag.end())
                message.forget()
                message.mode = self._then
                return True
        # Pass the tags that were counted, so that they are not counted again.
        message.pass_thought(max(hold, scan))
        return False if message.final else message.pause(ANYTHING)


_TAG_OPENS = re.compile(r"<(?=[\s/]?[A-Za-z|]|/?\Z)|[\[◁]")
_CLOSINGS = {"<": ">", "[": "]", "◁": "▷"}
_PARTS = ("<|open|>", "<|close|>")
_LAST_PART = "<|sep|>"


def _tag_begun(text: str, start: int, longest: int) -> int:
    """Return the index from which the end of `text` may be an incomplete tag."""
    begin = max(start, len(text) - longest)
    for found in _TAG_OPENS.finditer(text, begin):
        at = found.start()
        closing = _LAST_PART if text.startswith(_PARTS, at) else _CLOSINGS[text[at]]
        if text.find(closing, at) < 0:
            return at
    return len(text)

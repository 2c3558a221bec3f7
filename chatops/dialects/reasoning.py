"""Marks of thought: paired tags, nested ones counted. Thought that is never closed goes on to the end."""

import re
from dataclasses import dataclass

from chatops.dialects.scanner import TOO_EARLY, Early

_TAGS = (
    "think",
    "thinking",
    "thought",
    "reasoning",
    "seed:think",
    "mm:think",
    "ifm|think",
    "ifm|think_fast",
    "ifm|think_faster",
    "longcat_think",
    "antml:thinking",
    "atem:think",
)
_TOKENS = {
    "|start_thinking|": r"<\|END_THINKING\|>",
    "|plamo:begin_think:plamo|": r"<\|plamo:end_think:plamo\|>",
    "|content_thinking|": r"<\|(?:end_message|content_model_end_sampling)\|>",
    "|inner_prefix|": r"<\|inner_suffix\|>",
    "|begin_of_thought|": r"<\|end_of_thought\|>",
    "|channel": r"<channel\|>",
}
_LONGEST_TAG = 200
_TAG_ENDS = re.compile(r"(?:\s[^<>]{0,160})?>")
_GEMMA_BEGINS = re.compile(r">?\s{0,8}[a-z]{0,8}\Z")
_GEMMA_THINKS = re.compile(r">\s{0,8}(?:thought|think|thinking|analysis)\b[^\S\n]*\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """One way to mark thought."""

    ends: re.Pattern[str]
    """Its closing tag. Group `opens` matches another opening tag instead."""
    longest: int = 48
    """Maximum length of the tags in characters: no more than that is held back."""


def _paired(opening: str, closing: str) -> Thought:
    return Thought(ends=re.compile(rf"(?P<opens>{opening})|{closing}", re.IGNORECASE))


_OF_TAGS = {
    tag: _paired(
        rf"<{re.escape(tag)}(?::opensource)?(?:\s[^<>]{{0,20}})?>", rf"<\s?/\s?{re.escape(tag)}(?::opensource)?\s*>"
    )
    for tag in _TAGS
}
_OF_TOKENS = {word: _paired(re.escape(f"<{word}>"), closing) for word, closing in _TOKENS.items()}
SQUARE = _paired(r"\[THINK\]", r"\[/THINK\]")
"""`[THINK]`, Mistral."""
ARROWS = _paired("◁think▷", "◁/think▷")
"""`◁think▷`, Kimi-VL."""
XTML = _paired(r"<\|open\|>\s?think\s?<\|sep\|>", r"<\|close\|>\s?think\s?<\|sep\|>")
"""`<|open|>think<|sep|>`, Kimi K3."""
CHANNEL = Thought(ends=re.compile(r"(?P<opens>(?!))|<\|(?:end|return|call|eom|eot)\|>|(?=<\|start\|>)"))
"""A message in a channel that is meant only for the model itself."""

OPENING = frozenset({*_OF_TAGS, *_OF_TOKENS})
"""Words of tags that open thought."""
CLOSING = frozenset(
    {
        *(f"/{tag}" for tag in _TAGS),
        "|end_thinking|",
        "|plamo:end_think:plamo|",
        "|inner_suffix|",
        "|end_of_thought|",
        "channel|",
    }
)
"""Words of tags that close thought. The opening tag may be in the prompt."""


def opened_by(word: str, text: str, after: int) -> tuple[Thought, int] | Early | None:
    """Return the thought that the tag with `word` opens, and the index where it begins.

    `after` is the end of the word. Return None if the tag opens no thought.
    """
    thought = _OF_TAGS.get(word) or _OF_TOKENS[word]
    if word == "|channel":
        begun = _GEMMA_THINKS.match(text, after)
        if begun is None:
            return TOO_EARLY if _GEMMA_BEGINS.match(text, after) else None
        return (thought, begun.end()) if begun.end() < len(text) else TOO_EARLY
    tag = _TAG_ENDS.match(text, after)
    if tag is None:
        rest = text[after : after + _LONGEST_TAG]
        may_end = len(rest) < _LONGEST_TAG and (not rest or rest[0].isspace()) and "<" not in rest
        return TOO_EARLY if may_end else None
    return thought, tag.end()

"""The model's thought: its marks, the mode that passes it, and what happens at its beginning and end.

Paired tags are counted where they are nested. Thought that is never closed continues to the end. A closing tag without
an opening one ends thought that began in the prompt: all content before it becomes thought.
"""

import re

from chatops.dialects.formats.base import TOO_EARLY, Early
from chatops.dialects.literal_text import closing_sign_for
from chatops.dialects.parser_state import ANYTHING, Continuation, ParserState, Progress, skip_code_span, wait

_TAGS = (
    *("think", "thinking", "thought", "reasoning", "seed:think", "mm:think", "longcat_think", "antml:thinking"),
    *("atem:think", "ifm|think", "ifm|think_fast", "ifm|think_faster"),
)
"""Words of tags that are closed by the same word after a slash."""
_TOKENS = {
    "|start_thinking|": r"<\|END_THINKING\|>",
    "|plamo:begin_think:plamo|": r"<\|plamo:end_think:plamo\|>",
    "|content_thinking|": r"<\|(?:end_message|content_model_end_sampling)\|>",
    "|inner_prefix|": r"<\|inner_suffix\|>",
    "|begin_of_thought|": r"<\|end_of_thought\|>",
    "|channel": r"<channel\|>",
}
_MAX_TAG = 200
"""Characters of an opening tag with its attributes that may still be incomplete."""
_MAX_CLOSING = 48
"""Characters of a closing tag: no more than that is held back."""
_TAG_ENDS = re.compile(r"(?:\s[^<>]{0,160})?>")
_GEMMA_MAY_BEGIN = re.compile(r">?\s{0,8}[a-z]{0,8}\Z")
_GEMMA_THOUGHT = re.compile(r">\s{0,8}(?:thought|think|thinking|analysis)\b[^\S\n]*\n?")
CLOSING_WORDS = frozenset(f"/{tag}" for tag in _TAGS) | {
    *("|end_thinking|", "|plamo:end_think:plamo|", "|inner_suffix|", "|end_of_thought|", "channel|"),
}
"""Words of tags that close thought. The opening tag may be in the prompt."""
_TAG_BEGINS = re.compile(r"<(?=[\s/]?[A-Za-z|]|/?\Z)|[\[◁]")
_TAG_ENDS_BY_BEGIN = {"<": ">", "[": "]", "◁": "▷"}
_KIMI_TAGS = ("<|open|>", "<|close|>")
_KIMI_TAG_ENDS = "<|sep|>"
_MAX_TAG_END = 4
"""Characters that `_CLOSING_TAG_ENDS` matches at most."""
_CLOSING_TAG_ENDS = re.compile(r"\s{0,3}>")


def _closing_pattern(opening: str, closing: str) -> re.Pattern[str]:
    """Return the pattern of the closing tag of a thought. Group `opens` matches a nested opening tag instead."""
    return re.compile(rf"(?P<opens>{opening})|{closing}", re.IGNORECASE)


_ENDS_OF_TAGS = {
    tag: _closing_pattern(
        rf"<{re.escape(tag)}(?::opensource)?(?:\s[^<>]{{0,20}})?>", rf"<\s?/\s?{re.escape(tag)}(?::opensource)?\s*>"
    )
    for tag in _TAGS
}
_ENDS_OF_TOKENS = {word: _closing_pattern(re.escape(f"<{word}>"), closing) for word, closing in _TOKENS.items()}
SQUARE_ENDS = _closing_pattern(r"\[THINK\]", r"\[/THINK\]")
"""The end of thought in `[THINK]`, Mistral."""
ARROW_ENDS = _closing_pattern("◁think▷", "◁/think▷")
"""The same for `◁think▷`, Kimi-VL."""
KIMI_ENDS = _closing_pattern(r"<\|open\|>\s?think\s?<\|sep\|>", r"<\|close\|>\s?think\s?<\|sep\|>")
"""The same for `<|open|>think<|sep|>`, Kimi K3."""
CHANNEL_ENDS_THOUGHT = re.compile(r"(?P<opens>(?!))|<\|(?:end|return|call|eom|eot)\|>|(?=<\|start\|>)")
"""The same for a message in a channel that is meant only for the model itself."""

OPENING_WORDS = frozenset({*_ENDS_OF_TAGS, *_ENDS_OF_TOKENS})
"""Words of tags that open thought."""


def _begin_of_thought(word: str, text: str, after: int) -> int | Early | None:
    """Return the index where the thought begins that the tag with `word` opens; None if it opens none.

    `after` is the end of the word.
    """
    if word == "|channel":
        begun = _GEMMA_THOUGHT.match(text, after)
        if begun is None:
            return TOO_EARLY if _GEMMA_MAY_BEGIN.match(text, after) else None
        return begun.end() if begun.end() < len(text) else TOO_EARLY
    tag = _TAG_ENDS.match(text, after)
    if tag is None:
        rest = text[after : after + _MAX_TAG]
        may_end = len(rest) < _MAX_TAG and (not rest or rest[0].isspace()) and "<" not in rest
        return TOO_EARLY if may_end else None
    return tag.end()


class InThought:
    """Mode inside a thought: text is passed on as reasoning until the matching closing tag."""

    __slots__ = ("_depth", "_ends")

    def __init__(self, ends: re.Pattern[str]) -> None:
        """Set what ends the thought whose opening tag was passed."""
        self._ends = ends
        self._depth = 1
        """Number of tags that are open: the one that began the thought, and those inside it."""

    def __call__(self, state: ParserState) -> Progress:
        """Pass thought up to its closing tag."""
        text = state.text
        # From here on there may be an incomplete tag, or one of which it is too early to tell.
        hold = len(text) if state.final else _incomplete_tag(text, state.at)
        while (tag := self._ends.search(text, state.at)) and tag.start() < hold:
            may_be_code = text[tag.start() - 1] == "`"
            if may_be_code and tag.end() == len(text) and not state.final:
                hold = tag.start()
                break
            # A tag in inline code is only mentioned.
            if not (may_be_code and text.startswith("`", tag.end())):
                self._depth += 1 if tag["opens"] else -1
            if not self._depth:
                state.pass_thought(tag.start())
                state.skip(tag.end())
                state.fix_passed_text()
                state.mode = after_thought
                return Progress.ADVANCED
            # Passed at once, so that it is not counted again.
            state.pass_thought(tag.end())
        state.pass_thought(hold)
        return state.pause(ANYTHING)


def _incomplete_tag(text: str, start: int) -> int:
    """Return the index from which the end of `text` may be an incomplete tag."""
    begin = max(start, len(text) - _MAX_CLOSING)
    for tag in _TAG_BEGINS.finditer(text, begin):
        at = tag.start()
        end = _KIMI_TAG_ENDS if text.startswith(_KIMI_TAGS, at) else _TAG_ENDS_BY_BEGIN[text[at]]
        if text.find(end, at) < 0:
            return at
    return len(text)


def begin_thought(state: ParserState, mark: re.Match[str], ends: re.Pattern[str], begin: int) -> Continuation:
    """Begin thought at `begin`, after the tag that was found."""
    hidden = skip_code_span(state, mark.start())
    if hidden is not None:
        return hidden
    closing_sign = closing_sign_for(state.text, mark.start())
    if closing_sign:
        # A tag in closed quotes is only mentioned. A tag after a stray quote is not.
        if begin == len(state.text) and not state.final:
            return wait(state, mark.start())
        if state.text.startswith(closing_sign, begin):
            return begin
    state.pass_content(mark.start())
    state.skip(begin)
    state.backtick_runs.clear()
    state.mode = InThought(ends)
    return Progress.ADVANCED


def after_thought(state: ParserState) -> Progress:
    """Return to the beginning of the message if no content was shown yet, else to text."""
    state.mode = state.text_mode if state.result.has_content else state.start_mode
    state.at_line_start = True
    return Progress.ADVANCED


def end_unopened_thought(state: ParserState, mark: re.Match[str], end: int) -> Continuation:
    """Handle a closing tag of thought that was not opened in the text: it was opened in the prompt."""
    hidden = skip_code_span(state, mark.start())
    if hidden is not None:
        return hidden
    if closing_sign_for(state.text, mark.start()):
        return mark.end()
    state.pass_content(mark.start())
    if state.began_with_call:  # What stands before it is no thought: a call came first.
        state.skip(end)
        return Progress.ADVANCED
    state.reclassify()
    state.skip(end)
    state.fix_passed_text()
    return after_thought(state)


def read_thought_tag(state: ParserState, mark: re.Match[str], word: str) -> Continuation:
    """Handle a tag that may open thought."""
    begin = _begin_of_thought(word, state.text, mark.end())
    if isinstance(begin, Early):
        return mark.end() if state.final else wait(state, mark.start())
    if begin is None:
        return mark.end()
    return begin_thought(state, mark, _ENDS_OF_TAGS.get(word) or _ENDS_OF_TOKENS[word], begin)


def read_closing_thought_tag(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle a tag that closes thought."""
    tag = _CLOSING_TAG_ENDS.match(state.text, mark.end())
    if tag is None:
        short = len(state.text) - mark.end() < _MAX_TAG_END and not state.final
        return wait(state, mark.start()) if short else mark.end()
    return end_unopened_thought(state, mark, tag.end())

"""Marks of chat templates: headers of turns, messages in channels, parts of Kimi K3, and tokens that end messages.

Each `read_…` handles one mark that the scanner has found, and returns a `Continuation`: the index from which to
continue if the mark is text, or the result of the mode. ADVANCED means that it has moved `state` past the mark, PAUSED
that it needs more text (`wait`). `state.pass_content` keeps text as the answer's, `state.skip` drops markup.

A mark in a code span or in quotes is only mentioned. Within `state.answer_markup` that does not count: an unclosed
quote in the answer must not hide the mark that ends it.
"""

import re
from functools import cache

from chatops.dialects.formats.base import CLOSER, END_OF_TEXT, Early, Opening, only_closers_follow, text_follows
from chatops.dialects.formats.channels import ChannelPurpose, read_channel_call, read_header, read_part, read_part_call
from chatops.dialects.parser_state import (
    AnswerMarkup,
    Continuation,
    ParserState,
    Progress,
    apply_outcome,
    skip_code_span,
    skip_mention,
    wait,
)
from chatops.dialects.quoting import InQuotation
from chatops.dialects.thought import (
    CHANNEL_ENDS_THOUGHT,
    KIMI_ENDS,
    InThought,
    after_thought,
    begin_thought,
    end_unopened_thought,
)

_TURN_HEADER = re.compile(
    r"<(?:\|im_start\||start_of_turn|seed:bos|\|turn)>\s?(?P<role1>\w{0,24})[ \t]*\n?"
    r"|<\|(?:start_header_id|header_start|start_of_role)\|>\s?(?P<role2>\w{0,24})[^<\n]{0,60}"
    r"(?:<\|(?:end_header_id|header_end|end_of_role)\|>\s*)?"
    r"|<[|｜](?P<role3>user|assistant|system|observation|tool|ipython|developer)[|｜]>\s?"
    r"|<\|im_(?P<role4>user|assistant|system)\|>[\w ]{0,40}(?:<\|im_middle\|>)?"
    r"|<\|START_OF_TURN_TOKEN\|>(?:<\|(?P<role5>USER|CHATBOT|SYSTEM)_TOKEN\|>)?"
    r"|<\|message_(?P<role6>user|tool|system)\|>"
    r"|<\|message_model\|>[\w.-]{0,80}|<\|(?:content_text|start_response|assistant_start)\|>",
    re.IGNORECASE,
)
"""The header of a turn. A group `role…` matches the role if it names one."""
_MAX_HEADER_CHARS = 120
"""Maximum length of a turn's header in characters. A shorter text that does not match yet may still become one."""
_ROLE_NAMES = ("user", "assistant", "system", "observation", "tool", "ipython", "developer")
TURN_TAGS = frozenset(
    {
        *("|im_start|", "start_of_turn", "seed:bos", "|turn", "|start_header_id|", "|header_start|", "|start_of_role|"),
        *(f"|{role}|" for role in _ROLE_NAMES),
        *("｜user｜", "｜assistant｜", "｜system｜", "｜tool｜"),
        *("|im_user|", "|im_assistant|", "|im_system|", "|start_of_turn_token|"),
        *("|message_user|", "|message_tool|", "|message_system|", "|message_model|", "|content_text|"),
        *("|start_response|", "|assistant_start|"),
    }
)
"""Tags at which the scanner calls `read_turn_header`, lower case, without angle brackets: those of `_TURN_HEADER`."""
_OWN_ROLES = frozenset({"assistant", "model", "gpt", "chatbot", ""})
"""Names of the model's own role; empty where the header names none."""
_CHANNEL_START = "<|start|>"
"""Token that begins a message in a channel."""
_OWN_HEADERS = {
    "<｜user｜>": "<｜assistant｜>",
    "<|im_user|>": "<|im_assistant|>",
    "<|im_system|>": "<|im_assistant|>",
    "<|start_of_turn_token|>": "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
}
"""The model's own header by that of another role, where it is neither the same tag nor ``<|assistant|>``."""
_END_RUN = re.compile(rf"(?:\s*(?:{END_OF_TEXT.pattern}|{CLOSER.pattern}))+", re.IGNORECASE)
"""Tokens in a row that end messages or calls."""


@cache
def _before_own_turn(token: str) -> re.Pattern[str]:
    """Return a pattern that matches right before the model's next turn, in the chat template to which `token` belongs.

    `token` is the tag that began a turn of another role, such as ``<|user|>``.
    """
    token = token.lower()
    if token.startswith("<|message_"):
        own = re.escape("<|message_model|>")
    elif token in _OWN_HEADERS:
        own = re.escape(_OWN_HEADERS[token])
    elif token[1:-1] in TURN_TAGS and token.strip("<>|") in _ROLE_NAMES:
        own = re.escape("<|assistant|>")
    else:
        own = rf"{re.escape(token)}\s?(?:assistant|model)"
    return re.compile(rf"(?={own})", re.IGNORECASE)


def read_channel_header(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle the header of a message in a channel."""
    after_span = None if state.answer_markup else skip_code_span(state, mark.start())
    if after_span is not None:
        return after_span
    return enter_channel(state, mark.start(), mark.end())


def enter_channel(state: ParserState, start: int, after: int) -> Continuation:
    """Enter the message whose header begins at `start`.

    `after` is the index from which to continue if there is no header.
    """
    text = state.text
    header = read_header(text, start)
    if isinstance(header, Early):
        return after if state.final else wait(state, start)
    if header is None:
        return after
    if header.purpose is ChannelPurpose.CALL:
        outcome = read_channel_call(state.text, start, header, state.offered)
        # The header of a call ends the answer before it, once it is sure that this is one.
        if outcome.sure or state.final:
            state.answer_markup = None
        return apply_outcome(state, start, after, outcome)
    after_mention = None if state.answer_markup else skip_mention(state, start, header.end)
    if after_mention is not None:
        return after_mention
    state.pass_content(start)
    state.skip(header.end)
    state.answer_markup = AnswerMarkup.CHANNEL if header.purpose is ChannelPurpose.ANSWER else None
    if header.purpose is ChannelPurpose.OTHER_ROLE:
        state.mode = InQuotation(_before_own_turn(_CHANNEL_START), state.text_mode)
    elif header.purpose is ChannelPurpose.THOUGHT:
        state.mode = InThought(CHANNEL_ENDS_THOUGHT)
    else:
        state.mode = state.text_mode
    return Progress.ADVANCED


def read_kimi_part(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle a mark of Kimi K3: response, thought or a call; other marks are removed."""
    text, start = state.text, mark.start()
    part = read_part(text, start)
    if isinstance(part, Early):
        return mark.end() if state.final else wait(state, start)
    # Within a response only its own end is markup; a call written there is part of the answer.
    if part is None or (state.answer_markup and (part.opens or part.name != "response")):
        return mark.end()
    after_span = None if state.answer_markup else skip_code_span(state, start)
    if after_span is not None:
        return after_span
    if part.name == "call" and part.opens:
        opening = Opening(text=text, start=start, after=mark.end(), offered=state.offered)
        return apply_outcome(state, start, mark.end(), read_part_call(opening, part))
    if part.name == "think":
        if part.opens:
            return begin_thought(state, mark, KIMI_ENDS, part.end)
        return end_unopened_thought(state, mark, part.end)
    after_mention = None if state.answer_markup else skip_mention(state, start, part.end)
    if after_mention is not None:
        return after_mention
    state.pass_content(start)
    state.skip(part.end)
    state.answer_markup = AnswerMarkup.RESPONSE if part.name == "response" and part.opens else None
    return Progress.ADVANCED


def read_end_of_text(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Remove a token that ends messages if it is at the end and something else was removed; else keep it as text."""
    text, start = state.text, mark.start()
    run = _END_RUN.match(text, start) if state.result.has_removed_text else None
    if run is None:
        return mark.end()
    # Text after the tokens means that they do not end the message, so all of them are text.
    if text_follows(text, start) or (state.final and not only_closers_follow(text, start)):
        return run.end()
    if not state.final:
        return wait(state, start)
    state.pass_content(start)
    state.skip(len(text))
    return Progress.PAUSED


def read_turn_header(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle the header of a turn: remove it if it is the model's own.

    The model invented any other turn, so nothing in it runs.
    """
    text, start = state.text, mark.start()
    after_span = skip_code_span(state, start)
    if after_span is not None:
        return after_span
    header = _TURN_HEADER.match(text, start)
    if header is None:
        short = len(text) - start < _MAX_HEADER_CHARS and not state.final
        return wait(state, start) if short else mark.end()
    if header.end() == len(text) and not state.final:
        return wait(state, start)
    state.pass_content(start)
    role = next((group for group in header.groups() if group), "").lower()
    if role in _OWN_ROLES:
        state.skip(header.end())
        return after_thought(state)
    # If markup was removed before, a header at the end is markup too. Otherwise the text may be about it.
    if state.result.has_removed_text and not text_follows(text, header.end()):
        if not state.final:
            return wait(state, start)
        if only_closers_follow(text, header.end()):
            state.skip(len(text))
            return Progress.PAUSED
    state.pass_content(header.end())
    token = text[start : text.index(">", start) + 1]
    state.mode = InQuotation(_before_own_turn(token), state.text_mode)
    return Progress.ADVANCED


def read_channel_end(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle a token that ends a message in a channel."""
    # The mark ends before the token's own `>`. Where nothing else was markup, the text may be about the token.
    if state.text[mark.end() : mark.end() + 1] != ">" or not (state.answer_markup or state.result.has_removed_text):
        return mark.end()
    state.pass_content(mark.start())
    state.skip(mark.end() + 1)
    state.answer_markup = None
    return Progress.ADVANCED

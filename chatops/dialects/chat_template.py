"""Marks of chat templates: headers of turns, headers of messages in channels, and tokens that end messages."""

import re
from functools import cache

from chatops.dialects.formats.base import CLOSER, END_OF_TEXT, Early, Opening, only_closers_follow, text_follows
from chatops.dialects.formats.channels import (
    ChannelPurpose,
    read_channel_call,
    read_header,
    read_part,
    read_part_call,
)
from chatops.dialects.parser_state import (
    AnswerMarkup,
    Continuation,
    ParserState,
    ScanProgress,
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
    continue_after_thought,
    end_unopened_thought,
)

TURN = re.compile(
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
MAX_TURN = 120
"""Maximum length of a turn's header in characters. A shorter text that does not match yet may still become one."""
_ROLES = ("user", "assistant", "system", "observation", "tool", "ipython", "developer")
TURNS = frozenset(
    {
        *("|im_start|", "start_of_turn", "seed:bos", "|turn", "|start_header_id|", "|header_start|", "|start_of_role|"),
        *(f"|{role}|" for role in _ROLES),
        *("｜user｜", "｜assistant｜", "｜system｜", "｜tool｜"),
        *("|im_user|", "|im_assistant|", "|im_system|", "|start_of_turn_token|"),
        *("|message_user|", "|message_tool|", "|message_system|", "|message_model|", "|content_text|"),
        *("|start_response|", "|assistant_start|"),
    }
)
"""Tags at which the scanner calls `read_turn_header`, in lower case and without angle brackets: those of `TURN`."""
OWN_ROLES = frozenset({"assistant", "model", "gpt", "chatbot", ""})
"""Names of the model's own role; empty where the header names none."""
CHANNEL_START = "<|start|>"
"""Token that begins a message in a channel."""
_OWN_TURNS = {
    "<|user|>": "<|assistant|>",
    "<｜user｜>": "<｜assistant｜>",
    "<|im_user|>": "<|im_assistant|>",
    "<|im_system|>": "<|im_assistant|>",
    "<|start_of_turn_token|>": "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
}
_END_RUN = re.compile(rf"(?:\s*(?:{END_OF_TEXT.pattern}|{CLOSER.pattern}))+", re.IGNORECASE)


@cache
def own_turn(token: str) -> re.Pattern[str]:
    """Return a pattern that matches right before the model's next turn, in the chat template to which `token` belongs.

    `token` is the tag that began a turn of another role, such as ``<|user|>``.
    """
    token = token.lower()
    if token.startswith("<|message_"):
        own = re.escape("<|message_model|>")
    elif token in _OWN_TURNS:
        own = re.escape(_OWN_TURNS[token])
    elif token[1:-1] in TURNS and token.strip("<>|") in _ROLES:
        own = re.escape("<|assistant|>")
    else:
        own = rf"{re.escape(token)}\s?(?:assistant|model)"
    return re.compile(rf"(?={own})", re.IGNORECASE)


def read_channel_header(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle the header of a message in a channel."""
    hidden = None if state.answer_markup else skip_code_span(state, mark.start())
    if hidden is not None:
        return hidden
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
        state.mode = InQuotation(own_turn(CHANNEL_START), state.text_mode)
    elif header.purpose is ChannelPurpose.THOUGHT:
        state.mode = InThought(CHANNEL_ENDS_THOUGHT, after_thought)
    else:
        state.mode = state.text_mode
    return ScanProgress.ADVANCED


def read_kimi_part(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle a mark of Kimi K3: response, thought or a call; other marks are removed."""
    text, start = state.text, mark.start()
    part = read_part(text, start)
    if isinstance(part, Early):
        return mark.end() if state.final else wait(state, start)
    if part is None or (state.answer_markup and (part.opens or part.name != "response")):
        return mark.end()
    hidden = None if state.answer_markup else skip_code_span(state, start)
    if hidden is not None:
        return hidden
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
    return ScanProgress.ADVANCED


def read_end_of_text(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Remove a token that ends messages if it is at the end and something else was removed; else keep it as text."""
    text, start = state.text, mark.start()
    run = _END_RUN.match(text, start) if state.result.has_removed_text else None
    if run is None:
        return mark.end()
    if text_follows(text, start) or (state.final and not only_closers_follow(text, start)):
        return run.end()
    if not state.final:
        return wait(state, start)
    state.pass_content(start)
    state.skip(len(text))
    return ScanProgress.PAUSED


def read_turn_header(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle the header of a turn: remove it if it is the model's own.

    The model invented any other turn, so nothing in it runs.
    """
    text, start = state.text, mark.start()
    hidden = skip_code_span(state, start)
    if hidden is not None:
        return hidden
    header = TURN.match(text, start)
    if header is None:
        short = len(text) - start < MAX_TURN and not state.final
        return wait(state, start) if short else mark.end()
    if header.end() == len(text) and not state.final:
        return wait(state, start)
    state.pass_content(start)
    role = next((group for group in header.groups() if group), "").lower()
    if role in OWN_ROLES:
        state.skip(header.end())
        return continue_after_thought(state)
    # If markup was removed before, a header at the end is markup too. Otherwise the text may be about it.
    if state.result.has_removed_text and not text_follows(text, header.end()):
        if not state.final:
            return wait(state, start)
        if only_closers_follow(text, header.end()):
            state.skip(len(text))
            return ScanProgress.PAUSED
    state.pass_content(header.end())
    token = text[start : text.index(">", start) + 1]
    state.mode = InQuotation(own_turn(token), state.text_mode)
    return ScanProgress.ADVANCED


def read_channel_end(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle a token that ends a message in a channel."""
    after = state.text[mark.end() : mark.end() + 1]
    if after != ">" or not (state.answer_markup or state.result.has_removed_text):
        return mark.end()
    state.pass_content(mark.start())
    state.skip(mark.end() + 1)
    state.answer_markup = None
    return ScanProgress.ADVANCED

"""The mode for the beginning of the content: only there can a message without any marker be a call."""

import re

from chatops.dialects.formats.base import Call, Found, skip_space
from chatops.dialects.formats.objects import read_objects
from chatops.dialects.formats.whole import begins, read_whole_message
from chatops.dialects.frames import read_frame
from chatops.dialects.message import ANYTHING, NEVER, Message
from chatops.dialects.settle import Step, Went, settle, take

_HEADERS = (
    "to=",
    "assistant to=",
    "assistant<|channel|>",
    "assistant<|message|>",
    "analysis<|message|>",
    "commentary<|message|>",
    "final<|message|>",
    "commentary to=",
    "analysis to=",
)
_BLANKS = re.compile(r"[\s\ufeff\u200b]*+")
"""White space, and the invisible characters that editors put at the beginning of files."""
_FUNCTION_CALL = "function call<|role_sep|>"
_LONGEST = max(map(len, (*_HEADERS, _FUNCTION_CALL)))


def at_start(message: Message) -> bool:
    """Decide whether the whole message may be a call. Until then, nothing of it is given out."""
    text = message.text
    at = _after_blanks(text, message.at)
    if at == len(text):
        if message.final:
            message.pass_content(at)
            return False
        return message.pause(ANYTHING)
    beginning = text[at : at + _LONGEST]
    if beginning.startswith((*_HEADERS, _FUNCTION_CALL)):
        return _header(message, at, beginning)
    if not message.final and any(each.startswith(beginning) for each in (*_HEADERS, _FUNCTION_CALL)):
        return message.pause(ANYTHING)
    whole = begins(text, at, message.offers) if message.offers.are_read else False
    if whole is None and not message.final:
        return message.pause(ANYTHING)
    message.mode = _held if whole and not message.ledger.has_calls else message.plain
    message.pass_content(at)
    message.fresh = True
    return True


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _header(message: Message, at: int, beginning: str) -> bool:
    """Handle a header whose first part was in the prompt."""
    text = message.text
    message.pass_content(at)
    if beginning.startswith(_FUNCTION_CALL):
        begin = skip_space(text, at + len(_FUNCTION_CALL))
        if begin == len(text) and not message.final:
            return message.pause(ANYTHING)
        if text.startswith(("{", "["), begin):
            found = read_objects(text, at, begin, message.offers, format="gigachat3")
            return settle(message, at, at, found) is Went.ON
        step: Step = at
    else:
        step = read_frame(message, at, at)
    if isinstance(step, Went):
        return step is Went.ON
    message.fresh = True
    message.mode = message.plain
    return True


def _held(message: Message) -> bool:
    """Hold everything back until the message ends."""
    if not message.final:
        return message.pause(NEVER)
    found = read_whole_message(message.text, message.at, message.offers)
    if isinstance(found, Found):
        if any(isinstance(each, Call) for each in found.items):
            take(message, found)
            return False
        message.ledger.note(found, message.text, message.base)
        found = len(message.text)
    message.fresh = found == message.at
    message.pass_content(found)
    message.mode = message.plain
    return True

"""Steps for the beginning and the end of thought and of quotations."""

import re

from chatops.dialects.masks import quotation_around
from chatops.dialects.message import Message
from chatops.dialects.quoting import Quoting
from chatops.dialects.reasoning import Thought
from chatops.dialects.settle import Step, Went, masked, wait
from chatops.dialects.thought import thinking


def quoted(message: Message, found: re.Match[str], ends: re.Pattern[str]) -> Step:
    """Begin a quotation: nothing up to `ends` is a call."""
    hidden = masked(message, found.start())
    if hidden is not None:
        return hidden
    message.pass_content(found.end())
    message.mode = Quoting(ends, message.plain)
    return Went.ON


def think(message: Message, found: re.Match[str], thought: Thought, begin: int) -> Step:
    """Begin thought at `begin`, after the tag that was found."""
    hidden = masked(message, found.start())
    if hidden is not None:
        return hidden
    closing = quotation_around(message.text, found.start())
    if closing:
        # A tag in closed quotes is only mentioned. A tag after a stray quote is not.
        if begin == len(message.text) and not message.final:
            return wait(message, found.start())
        if message.text.startswith(closing, begin):
            return begin
    message.pass_content(found.start())
    message.skip(begin)
    message.runs.clear()
    message.mode = thinking(thought, behind_thought)
    return Went.ON


def behind_thought(message: Message) -> bool:
    """Return to the beginning of the message if no content was shown yet, else to text."""
    message.mode = message.plain if message.ledger.has_content else message.begin
    message.fresh = True
    return True


def begin_anew(message: Message) -> Went:
    """Return the step that continues as after thought."""
    behind_thought(message)
    return Went.ON


def thought_ended(message: Message, found: re.Match[str], end: int) -> Step:
    """Handle a closing tag of thought that was not opened in the text: it was opened in the prompt."""
    hidden = masked(message, found.start())
    if hidden is not None:
        return hidden
    if quotation_around(message.text, found.start()):
        return found.end()
    message.pass_content(found.start())
    if message.led_by_call:
        message.skip(end)
        return Went.ON
    message.reclassify()
    message.skip(end)
    message.forget()
    return begin_anew(message)

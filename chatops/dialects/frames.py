"""Steps for the headers and marks around messages and turns, and for the tokens that end them."""

import re

from chatops.dialects.formats.base import Opening
from chatops.dialects.formats.channels import Header, Purpose, read_channel_call, read_header
from chatops.dialects.formats.closing import CLOSER, END_OF_TEXT, only_closers_follow, text_follows
from chatops.dialects.formats.kimi_k3 import read_part, read_part_call
from chatops.dialects.message import Message, Saying
from chatops.dialects.quoting import Quoting
from chatops.dialects.reasoning import CHANNEL, XTML
from chatops.dialects.scanner import Early
from chatops.dialects.settle import Step, Went, cited, masked, settle, wait
from chatops.dialects.thought import thinking
from chatops.dialects.thoughts import begin_anew, behind_thought, think, thought_ended
from chatops.dialects.turns import CHANNELS, LONGEST_TURN, OWN_ROLES, TURN, own_turn

_END_RUN = re.compile(rf"(?:\s*(?:{END_OF_TEXT.pattern}|{CLOSER.pattern}))+", re.IGNORECASE)


def frame(message: Message, found: re.Match[str]) -> Step:
    """Handle the header of a message in a channel."""
    hidden = None if message.said else masked(message, found.start())
    if hidden is not None:
        return hidden
    return read_frame(message, found.start(), found.end())


def read_frame(message: Message, start: int, after: int) -> Step:
    """Enter the message whose header begins at `start`.

    `after` is the index from which to continue if there is no header.
    """
    text = message.text
    header = read_header(text, start)
    if isinstance(header, Early):
        return after if message.final else wait(message, start)
    if header is None:
        return after
    if header.purpose is Purpose.CALL:
        return _channel_call(message, start, after, header)
    spoken_of = None if message.said else cited(message, start, header.end)
    if spoken_of is not None:
        return spoken_of
    message.pass_content(start)
    message.skip(header.end)
    message.said = Saying.CHANNEL if header.purpose is Purpose.SAID else None
    if header.purpose is Purpose.FOREIGN:
        message.mode = Quoting(own_turn(CHANNELS), message.plain)
    elif header.purpose is Purpose.THOUGHT:
        message.mode = thinking(CHANNEL, behind_thought)
    else:
        message.mode = message.plain
    return Went.ON


def _channel_call(message: Message, start: int, after: int, header: Header) -> Step:
    found = read_channel_call(message.text, start, header, message.offers)
    if found.sure or message.final:
        message.said = None
    return settle(message, start, after, found)


def part(message: Message, found: re.Match[str]) -> Step:
    """Handle a mark of Kimi K3: response, thought or a call; other marks are removed."""
    text, start = message.text, found.start()
    mark = read_part(text, start)
    if isinstance(mark, Early):
        return found.end() if message.final else wait(message, start)
    if mark is None or (message.said and (mark.opens or mark.name != "response")):
        return found.end()
    hidden = None if message.said else masked(message, start)
    if hidden is not None:
        return hidden
    if mark.name == "call" and mark.opens:
        opening = Opening(text=text, start=start, after=found.end(), offers=message.offers)
        return settle(message, start, found.end(), read_part_call(opening, mark))
    if mark.name == "think":
        return think(message, found, XTML, mark.end) if mark.opens else thought_ended(message, found, mark.end)
    spoken_of = None if message.said else cited(message, start, mark.end)
    if spoken_of is not None:
        return spoken_of
    message.pass_content(start)
    message.skip(mark.end)
    message.said = Saying.RESPONSE if mark.name == "response" and mark.opens else None
    return Went.ON


def end_of_text(message: Message, found: re.Match[str]) -> Step:
    """Remove a token that ends messages if it is at the end and something else was removed; else keep it as text."""
    text, start = message.text, found.start()
    run = _END_RUN.match(text, start) if message.ledger.removed else None
    if run is None:
        return found.end()
    if text_follows(text, start) or (message.final and not only_closers_follow(text, start)):
        return run.end()
    if not message.final:
        return wait(message, start)
    message.pass_content(start)
    message.skip(len(text))
    return Went.NOWHERE


def turn(message: Message, found: re.Match[str]) -> Step:
    """Handle the header of a turn: remove it if it is the model's own.

    The model made up any other turn, so nothing in that runs.
    """
    text, start = message.text, found.start()
    hidden = masked(message, start)
    if hidden is not None:
        return hidden
    header = TURN.match(text, start)
    if header is None:
        short = len(text) - start < LONGEST_TURN and not message.final
        return wait(message, start) if short else found.end()
    if header.end() == len(text) and not message.final:
        return wait(message, start)
    message.pass_content(start)
    role = next((each for each in header.groups() if each), "").lower()
    if role in OWN_ROLES:
        message.skip(header.end())
        return begin_anew(message)
    if message.ledger.removed and not text_follows(text, header.end()):
        if not message.final:
            return wait(message, start)
        if only_closers_follow(text, header.end()):
            message.skip(len(text))
            return Went.NOWHERE
    message.pass_content(header.end())
    token = text[start : text.index(">", start) + 1]
    message.mode = Quoting(own_turn(token), message.plain)
    return Went.ON


def frame_ends(message: Message, found: re.Match[str]) -> Step:
    """Handle a token that ends a message in a channel."""
    after = message.text[found.end() : found.end() + 1]
    if after != ">" or not (message.said or message.ledger.removed):
        return found.end()
    message.pass_content(found.start())
    message.skip(found.end() + 1)
    message.said = None
    return Went.ON

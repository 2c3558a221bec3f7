"""What comes of a block that was read: it is taken, it is text, or more has to come; and the mode behind it."""

from dataclasses import replace
from enum import Enum, auto

from chatops.dialects.enclosing import Enclosure
from chatops.dialects.formats.base import MAX_CALL, Found, Nothing, Outcome, Trouble, doubtful, skip_space
from chatops.dialects.formats.closing import CLOSER, CLOSER_BEGINS, END_OF_TEXT, only_closers_follow
from chatops.dialects.masks import (
    CUE_REACH,
    introduces_an_example,
    paragraph_end,
    quotation_around,
    quotation_end,
    span_end,
)
from chatops.dialects.message import ANYTHING, Message
from chatops.dialects.reading import DiagnosticKind
from chatops.dialects.scanner import Early


class Went(Enum):
    """What the mode for text came to."""

    ON = auto()
    """It passed something or is another mode now."""
    NOWHERE = auto()
    """More text has to come, or none will."""


Step = int | Went
"""What comes of a place: the index to look on from, as it is text; or that the mode is done for now."""

_ENDS_CALL = ">]})`"
_ENDS_SPAN = "`\n"


def wait(message: Message, start: int, wanted: str | None = ANYTHING) -> Went:
    """Gives out the text before `start` and waits for what `wanted` says."""
    message.pass_content(start)
    message.pause(wanted)
    return Went.NOWHERE


def masked(message: Message, start: int) -> Step | None:
    """The step if `start` lies in a code span, or that is not known yet; None if it does not."""
    if not message.runs:
        return None
    end = span_end(message.text, start, message.runs, final=message.final)
    if isinstance(end, Early):
        return wait(message, start, _ENDS_SPAN)
    message.runs.clear()
    return end


def in_quotation(message: Message, start: int, end: int, *, opens: bool = False) -> Step | None:
    """The step if a quotation opens right before what goes from `start` to `end`; None if none does.

    `opens`: what goes there opens something, so that more of it follows in the quotation: up to its last closing sign
    in the paragraph, or all of that.
    """
    closing = quotation_around(message.text, start)
    if not closing:
        return None
    after = quotation_end(message.text, end, closing, far=opens, final=message.final)
    if isinstance(after, Early):
        return wait(message, start)
    if after is None:
        return paragraph_end(message.text, end) if opens else end
    return after


def cited(message: Message, start: int, end: int) -> Step | None:
    """The step if a mark from `start` to `end` is only spoken of: it stands in quotes that are closed."""
    closing = quotation_around(message.text, start)
    if not closing:
        return None
    after = quotation_end(message.text, end, closing, far=True, final=message.final)
    return wait(message, start) if isinstance(after, Early) else after


def settle(message: Message, start: int, after: int, outcome: Outcome) -> Step:
    """What `outcome`, read from `start` on, comes to; `after` is where to look on if it is text."""
    if not message.offers.are_read:
        return after
    if not outcome.sure and not message.final:
        cut = isinstance(outcome, Found) and any(
            isinstance(each, Trouble) and each.kind is DiagnosticKind.CUT_OFF for each in outcome.items
        )
        return wait(message, start, _ENDS_CALL if cut else ANYTHING)
    if isinstance(outcome, Nothing) or outcome.end <= start:
        if message.final and message.ledger.removed and only_closers_follow(message.text, start):
            message.pass_content(start)
            message.skip(len(message.text))
            return Went.NOWHERE
        decline(message, start)
        return after
    said = in_quotation(message, start, outcome.end, opens=outcome.wraps)
    if said is not None:
        return said
    enclosure = Enclosure.FREE
    if message.tags:
        enclosed = message.tags.around(message.text, after, base=message.base, final=message.final)
        if isinstance(enclosed, Early):
            return wait(message, start, ">")
        if enclosed is Enclosure.QUOTED:
            # What was sure was read as a unit; anything else may reach beyond the closing tag.
            return outcome.end if outcome.sure else after
        enclosure = enclosed
    message.pass_content(start)
    message.documents = message.documents or introduces_an_example(message.ledger.recent(CUE_REACH))
    if enclosure is Enclosure.DOUBTFUL or message.documents:
        outcome = replace(outcome, items=tuple(doubtful(each) for each in outcome.items))
    take(message, outcome)
    return Went.ON


def decline(message: Message, start: int) -> None:
    """Note that the marker of a call at `start` is text, unless it is only spoken of."""
    if not quotation_around(message.text, start):
        message.pass_content(start)
        message.declined = message.ledger.length


def take(message: Message, found: Found) -> None:
    """Takes a block that begins at `at`, and goes on behind it."""
    if not message.ledger.has_content:
        message.led_by_call = True
    if found.end - message.at > MAX_CALL:
        message_to_model = f"is longer than {MAX_CALL} characters"
        trouble = Trouble(kind=DiagnosticKind.UNREADABLE, message=message_to_model, start=message.at)
        found = Found(end=found.end, format=found.format, items=(trouble,))
    message.ledger.take(found, message.text, message.base)
    message.skip(found.end)
    message.runs.clear()
    if found.wraps:
        message.wrapper = found.format
    else:
        message.mode = invented if found.rest_is_invented else after_call


def after_call(message: Message) -> bool:
    """Behind a call: closing tags and ends of messages mean nothing; what is none of these is text again."""
    text = message.text
    end = at = message.at
    while True:
        at = skip_space(text, end)
        closing = CLOSER.match(text, at) or END_OF_TEXT.match(text, at)
        if closing is None:
            break
        end = closing.end()
    message.skip(end)
    if at == len(text):
        if message.final:
            message.skip(at)
            return False
        return message.pause(ANYTHING)
    if not message.final and CLOSER_BEGINS.match(text, at):
        return message.pause(ANYTHING)
    if text[at] not in "<]":
        message.wrapper = ""
    message.fresh = end == at
    message.mode = message.plain
    return True


def invented(message: Message) -> bool:
    """Behind what the model made up as the result of its call: neither run nor shown."""
    message.skip(len(message.text))
    return False if message.final else message.pause(ANYTHING)

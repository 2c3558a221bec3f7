"""Act on the outcome of a format's reader: take calls, pass text, or wait for more; and the modes after a call."""

from dataclasses import replace
from enum import Enum, auto

from chatops.dialects.formats.base import (
    CLOSER,
    CLOSER_BEGINS,
    END_OF_TEXT,
    MAX_CALL,
    Early,
    Found,
    Nothing,
    ParseOutcome,
    UnusableCall,
    only_closers_follow,
    skip_space,
    with_low_confidence,
)
from chatops.dialects.masks import (
    CUE_REACH,
    Enclosure,
    introduces_an_example,
    paragraph_end,
    quotation_around,
    quotation_end,
    span_end,
)
from chatops.dialects.message import ANYTHING, Message
from chatops.dialects.reading import DiagnosticKind


class Progress(Enum):
    """Result of one pass of the text mode."""

    ADVANCED = auto()
    """It passed something or changed the mode."""
    PAUSED = auto()
    """It needs more text, or the message has ended."""


Continuation = int | Progress
"""Result for one position: the index from which to continue because this is text, or the result of the mode."""

_ENDS_CALL = ">]})`"
_ENDS_SPAN = "`\n"


def wait(message: Message, start: int, wanted: str | None = ANYTHING) -> Progress:
    """Pass the text before `start` and wait for `wanted`, as `Message.pause` does."""
    message.pass_content(start)
    message.pause(wanted)
    return Progress.PAUSED


def in_code_span(message: Message, start: int) -> Continuation | None:
    """Return the continuation if `start` is in a code span or that is still unknown; None if it is not."""
    if not message.backtick_runs:
        return None
    end = span_end(message.text, start, message.backtick_runs, final=message.final)
    if isinstance(end, Early):
        return wait(message, start, _ENDS_SPAN)
    message.backtick_runs.clear()
    return end


def in_quotation(message: Message, start: int, end: int, *, opens: bool = False) -> Continuation | None:
    """Return the continuation if a quotation opens right before `text[start:end]`; None if none does.

    With `opens`, that text opens something, so more of it follows in the quotation: up to the last closing sign in the
    paragraph, or all of the paragraph.
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


def mentioned(message: Message, start: int, end: int) -> Continuation | None:
    """Return the continuation if the mark at `text[start:end]` is only mentioned, in closed quotes; None otherwise."""
    closing = quotation_around(message.text, start)
    if not closing:
        return None
    after = quotation_end(message.text, end, closing, far=True, final=message.final)
    return wait(message, start) if isinstance(after, Early) else after


def apply_outcome(message: Message, start: int, after: int, outcome: ParseOutcome) -> Continuation:
    """Act on `outcome`, read from `start`. `after` is the index from which to continue if it is text."""
    if not message.offered.are_read:
        return after
    if not outcome.sure and not message.final:
        cut = isinstance(outcome, Found) and any(
            isinstance(each, UnusableCall) and each.kind is DiagnosticKind.CUT_OFF for each in outcome.items
        )
        return wait(message, start, _ENDS_CALL if cut else ANYTHING)
    if isinstance(outcome, Nothing) or outcome.end <= start:
        if message.final and message.result.removed and only_closers_follow(message.text, start):
            message.pass_content(start)
            message.skip(len(message.text))
            return Progress.PAUSED
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
            # A sure outcome was read as a unit; one that is not sure may reach beyond the closing tag.
            return outcome.end if outcome.sure else after
        enclosure = enclosed
    message.pass_content(start)
    message.announced_example = message.announced_example or introduces_an_example(
        message.result.content_tail(CUE_REACH)
    )
    if enclosure is Enclosure.DOUBTFUL or message.announced_example:
        outcome = replace(outcome, items=tuple(with_low_confidence(each) for each in outcome.items))
    take_calls(message, outcome)
    return Progress.ADVANCED


def decline(message: Message, start: int) -> None:
    """Note that the call marker at `start` is text, unless it is only mentioned."""
    if not quotation_around(message.text, start):
        message.pass_content(start)
        message.declined = message.result.length


def take_calls(message: Message, found: Found) -> None:
    """Take a block that begins at `at`, and move past it."""
    if not message.result.has_content:
        message.began_with_call = True
    if found.end - message.at > MAX_CALL:
        message_to_model = f"is longer than {MAX_CALL} characters"
        trouble = UnusableCall(kind=DiagnosticKind.UNREADABLE, message=message_to_model, start=message.at)
        found = Found(end=found.end, format=found.format, items=(trouble,))
    message.result.add_calls(found, message.text, message.base)
    message.skip(found.end)
    message.backtick_runs.clear()
    if found.wraps:
        message.wrapper = found.format
    else:
        message.mode = invented if found.rest_is_invented else after_call


def after_call(message: Message) -> bool:
    """Remove closing tags and ends of messages after a call; anything else is text again."""
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
    message.at_line_start = end == at
    message.mode = message.plain
    return True


def invented(message: Message) -> bool:
    """Remove the results that the model made up after its call: they are neither run nor shown."""
    message.skip(len(message.text))
    return False if message.final else message.pause(ANYTHING)

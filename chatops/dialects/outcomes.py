"""Act on the outcome of a format's reader: take calls, pass text, or wait for more; and the modes after a call."""

from dataclasses import replace
from enum import Enum, auto

from chatops.dialects.formats.base import (
    CLOSER,
    CLOSER_BEGINS,
    END_OF_TEXT,
    MAX_CALL,
    CallBlock,
    Early,
    NoCall,
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
from chatops.dialects.message import ANYTHING, ParserState
from chatops.dialects.reading import DiagnosticKind

_ENDS_CALL = ">]})`"
_ENDS_SPAN = "`\n"


class ScanProgress(Enum):
    """Result of one pass of the text mode."""

    ADVANCED = auto()
    """It passed something or changed the mode."""
    PAUSED = auto()
    """It needs more text, or the message has ended."""


Continuation = int | ScanProgress
"""Result for one position: the index from which to continue because this is text, or the result of the mode."""


def wait(state: ParserState, start: int, wanted: str | None = ANYTHING) -> ScanProgress:
    """Pass the text before `start` and wait for `wanted`, as `ParserState.pause` does."""
    state.pass_content(start)
    state.pause(wanted)
    return ScanProgress.PAUSED


def in_code_span(state: ParserState, start: int) -> Continuation | None:
    """Return the continuation if `start` is in a code span or that is still unknown; None if it is not."""
    if not state.backtick_runs:
        return None
    end = span_end(state.text, start, state.backtick_runs, final=state.final)
    if isinstance(end, Early):
        return wait(state, start, _ENDS_SPAN)
    state.backtick_runs.clear()
    return end


def in_quotation(state: ParserState, start: int, end: int, *, opens: bool = False) -> Continuation | None:
    """Return the continuation if a quotation opens right before `text[start:end]`; None if none does.

    With `opens`, that text opens something, so more of it follows in the quotation: up to the last closing sign in the
    paragraph, or all of the paragraph.
    """
    closing = quotation_around(state.text, start)
    if not closing:
        return None
    after = quotation_end(state.text, end, closing, far=opens, final=state.final)
    if isinstance(after, Early):
        return wait(state, start)
    if after is None:
        return paragraph_end(state.text, end) if opens else end
    return after


def mentioned(state: ParserState, start: int, end: int) -> Continuation | None:
    """Return the continuation if the mark at `text[start:end]` is only mentioned, in closed quotes; None otherwise."""
    closing = quotation_around(state.text, start)
    if not closing:
        return None
    after = quotation_end(state.text, end, closing, far=True, final=state.final)
    return wait(state, start) if isinstance(after, Early) else after


def apply_outcome(state: ParserState, start: int, after: int, outcome: ParseOutcome) -> Continuation:
    """Act on `outcome`, read from `start`. `after` is the index from which to continue if it is text."""
    if not state.offered.are_read:
        return after
    if not outcome.sure and not state.final:
        cut = isinstance(outcome, CallBlock) and any(
            isinstance(each, UnusableCall) and each.kind is DiagnosticKind.CUT_OFF for each in outcome.items
        )
        return wait(state, start, _ENDS_CALL if cut else ANYTHING)
    if isinstance(outcome, NoCall) or outcome.end <= start:
        if state.final and state.result.removed and only_closers_follow(state.text, start):
            state.pass_content(start)
            state.skip(len(state.text))
            return ScanProgress.PAUSED
        decline(state, start)
        return after
    quoted = in_quotation(state, start, outcome.end, opens=outcome.wraps)
    if quoted is not None:
        return quoted
    enclosure = Enclosure.FREE
    if state.tags:
        enclosed = state.tags.around(state.text, after, base=state.base, final=state.final)
        if isinstance(enclosed, Early):
            return wait(state, start, ">")
        if enclosed is Enclosure.QUOTED:
            # A sure outcome was read as a unit; one that is not sure may reach beyond the closing tag.
            return outcome.end if outcome.sure else after
        enclosure = enclosed
    state.pass_content(start)
    state.announced_example = state.announced_example or introduces_an_example(state.result.content_tail(CUE_REACH))
    if enclosure is Enclosure.DOUBTFUL or state.announced_example:
        outcome = replace(outcome, items=tuple(with_low_confidence(each) for each in outcome.items))
    take_calls(state, outcome)
    return ScanProgress.ADVANCED


def decline(state: ParserState, start: int) -> None:
    """Note that the call marker at `start` is text, unless it is only mentioned."""
    if not quotation_around(state.text, start):
        state.pass_content(start)
        state.declined = state.result.length


def take_calls(state: ParserState, found: CallBlock) -> None:
    """Take a block that begins at `at`, and move past it."""
    if not state.result.has_content:
        state.began_with_call = True
    if found.end - state.at > MAX_CALL:
        message_to_model = f"is longer than {MAX_CALL} characters"
        unusable = UnusableCall(kind=DiagnosticKind.UNREADABLE, message=message_to_model, start=state.at)
        found = CallBlock(end=found.end, format=found.format, items=(unusable,))
    state.result.add_calls(found, state.text, state.base)
    state.skip(found.end)
    state.backtick_runs.clear()
    if found.wraps:
        state.wrapper = found.format
    else:
        state.mode = invented if found.rest_is_invented else after_call


def after_call(state: ParserState) -> bool:
    """Remove closing tags and ends of messages after a call; anything else is text again."""
    text = state.text
    end = at = state.at
    while True:
        at = skip_space(text, end)
        closing = CLOSER.match(text, at) or END_OF_TEXT.match(text, at)
        if closing is None:
            break
        end = closing.end()
    state.skip(end)
    if at == len(text):
        if state.final:
            state.skip(at)
            return False
        return state.pause(ANYTHING)
    if not state.final and CLOSER_BEGINS.match(text, at):
        return state.pause(ANYTHING)
    if text[at] not in "<]":
        state.wrapper = ""
    state.at_line_start = end == at
    state.mode = state.plain
    return True


def invented(state: ParserState) -> bool:
    """Remove the results that the model made up after its call: they are neither run nor shown."""
    state.skip(len(state.text))
    return False if state.final else state.pause(ANYTHING)

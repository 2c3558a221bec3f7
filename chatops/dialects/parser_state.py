"""The state that all modes of the reader share, and what an outcome of a format's reader does to it.

A mode is a function that reads on from `at`. It has ADVANCED if it passed something or set another mode, and then the
mode of the state is called again; it has PAUSED if it needs more text, or if the message has ended. Text is passed as
content or thought, or skipped, which removes it.

`apply_outcome` acts on what the reader of a format has found at a mark. An outcome is `sure` if no further text could
change it. One that is not sure is dropped until more text or the end of the message has come: the mode pauses at the
mark, and the format's reader is called again. After a call, the modes at the end of the file read what belongs to it.
"""

import re
from collections.abc import Callable
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
    OfferedTools,
    ParseOutcome,
    UnusableCall,
    only_closers_follow,
    skip_space,
    with_low_confidence,
)
from chatops.dialects.literal_text import (
    closing_sign_for,
    introduces_an_example,
    paragraph_end,
    quotation_end,
    span_end,
)
from chatops.dialects.reading import DiagnosticKind
from chatops.dialects.reading_builder import ReadingBuilder
from chatops.dialects.unknown_tags import Enclosure, OpenTags


class Progress(Enum):
    """Result of one step of a mode."""

    ADVANCED = auto()
    PAUSED = auto()


Mode = Callable[["ParserState"], Progress]
Continuation = int | Progress
"""Result for one place in text: the index from which the mode continues, because the place is text, or its result."""
ANYTHING = None
"""Argument of `pause`: any further text ends the pause."""
END_OF_MESSAGE = ""
"""Argument of `pause`: only the end of the message ends the pause. Any other string lists the characters that do."""
_MAY_END_CALL = ">]})`"
"""The characters that the end of a call may have: of a tag, a list, an object, an argument list, a fence."""
_MAY_END_SPAN = "`\n"
"""The characters that decide on a code span: of its closing run, and of the blank line that ends its paragraph."""
_LOOK_BEHIND = 2
"""Characters before `at` that stay in `text`: patterns look at them, such as at the quote before a tag."""
_REREADS = 8
"""Times that waiting text is read again. More show a call sooner where chunks are small, and take that much longer."""
_FREE_REREAD = 8192
"""Characters that are read again in any case, so that a short message is never late."""
_CLOSING_MARK = re.compile(rf"\s*+(?:{CLOSER.pattern}|{END_OF_TEXT.pattern})", re.IGNORECASE)
"""A mark that means nothing after a call: it ends the call, or the message."""


class AnswerMarkup(Enum):
    """Markup that says that its text is the answer to the user. Only its own marks end it."""

    CHANNEL = auto()
    """A message in a channel: Harmony and Muse."""
    RESPONSE = auto()
    """The response part of Kimi K3."""


class _Arrivals:
    """The chunks that are not in the text of the state yet, and whether to read on with them.

    Text that waits is read again from its beginning each time. It is read at most `_REREADS` times, so time stays
    linear even when text arrives one character at a time: text that was read more often than that for its length waits
    until it has grown.
    """

    def __init__(self) -> None:
        self._chunks: list[str] = []
        self._length = 0
        self._wanted: str | None = ANYTHING
        """The last argument of `pause`."""
        self._read_in_vain = 0
        """Characters that were read, each time, since text was last passed."""

    def add(self, chunk: str, waiting: int) -> bool:
        """Store a chunk, before which `waiting` characters wait; return True if it is time to read on."""
        self._chunks.append(chunk)
        self._length += len(chunk)
        is_wanted = self._wanted is ANYTHING or any(mark in chunk for mark in self._wanted)
        return is_wanted and self._read_in_vain <= _REREADS * (waiting + self._length) + _FREE_REREAD

    def take(self) -> str:
        """Return the chunks as one text, and drop them."""
        text = "".join(self._chunks)
        self._chunks = []
        self._length = 0
        return text

    def wait(self, wanted: str | None, waiting: int) -> None:
        """Note that `waiting` characters were read in vain, and that `wanted` would change that."""
        self._wanted = wanted
        self._read_in_vain += waiting

    def note_passed(self) -> None:
        """Note that text was passed."""
        self._read_in_vain = 0


class ParserState:
    """State shared by the modes. `text` holds what has arrived and not been passed, and a little before it."""

    def __init__(self, offered: OfferedTools, *, start_mode: Mode, text_mode: Mode) -> None:
        self.offered = offered
        self.result = ReadingBuilder()
        self.start_mode = start_mode
        """The mode for the beginning of the content."""
        self.text_mode = text_mode
        """The mode for text."""
        self.mode = start_mode

        self.text = "\n" * _LOOK_BEHIND
        self.at = _LOOK_BEHIND
        """Index in `text` of the first character that has not been passed."""
        self.base = -_LOOK_BEHIND
        """Index in the message of the first character of `text`."""
        self.final = False
        """True once nothing more will come."""
        self.hold: int | None = None
        """Index from which the end of `text` may be an incomplete mark; None while `in_text` has not looked for it."""
        self._arrivals = _Arrivals()
        self._passed: list[str] = []
        """The text passed, as written, that may still turn out to be thought; see `reclassify`, `fix_passed_text`."""

        self.at_line_start = True
        """True if `at` counts as the beginning of a line."""
        self.answer_markup: AnswerMarkup | None = None
        """The markup around an answer to the user, in which nothing runs; None outside of one."""
        self.backtick_runs: list[int] = []
        """Lengths of the runs of backticks that may have opened a code span, in order."""
        self.tags = OpenTags()
        """The tags of no known format that are open at `at`."""
        self.wrapper = ""
        """The format of the opening wrapper around the next calls; empty outside of one."""
        self.began_with_call = False
        """True if a call was the first thing in the text."""
        self.declined: int | None = None
        """Index in the content of the last call marker that no call followed; None if there is none."""
        self.announced_example = False
        """True once a call was announced as an example; the user then decides on it and all later calls."""

    def arrive(self, chunk: str) -> bool:
        """Store a chunk; return True if it is time to `run`."""
        return self._arrivals.add(chunk, len(self.text) - self.at)

    def run(self) -> None:
        """Read as far as possible."""
        if arrived := self._arrivals.take():
            dropped = max(self.at - _LOOK_BEHIND, 0)
            self.base += dropped
            self.at -= dropped
            self.text = self.text[dropped:] + arrived
            self.hold = None
        while self.mode(self) is Progress.ADVANCED:
            pass

    def pause(self, wanted: str | None) -> Progress:
        """Wait for one of the characters of `wanted`. Return PAUSED, the result of a mode that pauses."""
        self._arrivals.wait(wanted, len(self.text) - self.at)
        return Progress.PAUSED

    def pass_content(self, end: int) -> None:
        """Move to `end`; the text passed is content."""
        if end > self.at:
            self.result.add_content(self._advance(end))

    def pass_thought(self, end: int) -> None:
        """Move to `end`; the text passed is thought."""
        if end > self.at:
            self.result.add_reasoning(self._advance(end))

    def skip(self, end: int) -> None:
        """Move to `end` and drop the text before it."""
        self._advance(end)
        self.result.has_removed_text = True

    def reclassify(self) -> None:
        """Turn all passed text that is not fixed into thought."""
        self.declined = None
        self.result.reclassify("".join(self._passed))
        self.fix_passed_text()

    def fix_passed_text(self) -> None:
        """Fix all text passed so far: it can no longer turn out to be thought."""
        self._passed = []
        self.result.fix_content()

    def _advance(self, end: int) -> str:
        passed = self.text[self.at : end]
        if end > self.at:
            self.at = end
            self._arrivals.note_passed()
            self.at_line_start = False
        self._passed.append(passed)
        return passed


def wait(state: ParserState, start: int, wanted: str | None = ANYTHING) -> Progress:
    """Pass the text before `start` and wait for `wanted`, as `ParserState.pause` does."""
    state.pass_content(start)
    return state.pause(wanted)


def skip_code_span(state: ParserState, start: int) -> Continuation | None:
    """Return the continuation if `start` is in a code span or may be in one; None if it is not.

    Once that is decided, no run of backticks before `start` can open another span, so all of them are dropped.
    """
    if not state.backtick_runs:
        return None
    end = span_end(state.text, start, state.backtick_runs, final=state.final)
    if isinstance(end, Early):
        return wait(state, start, _MAY_END_SPAN)
    state.backtick_runs.clear()
    return end


def skip_mention(state: ParserState, start: int, end: int) -> Continuation | None:
    """Return the continuation if the mark at `text[start:end]` is only mentioned, in closed quotes; None otherwise.

    The quotation ends at the last closing sign of the paragraph.
    """
    return _skip_to_closing_sign(state, start, end, last=True)


def _skip_to_closing_sign(state: ParserState, start: int, end: int, *, last: bool) -> Continuation | None:
    """Return the continuation after the next or `last` sign that closes the quotation right before `start`.

    The sign is looked for from `end` on, in its paragraph. None if no quotation begins there, or none closes it.
    """
    closing_sign = closing_sign_for(state.text, start)
    if not closing_sign:
        return None
    after = quotation_end(state.text, end, closing_sign, last=last, final=state.final)
    return wait(state, start) if isinstance(after, Early) else after


def _skip_quoted_block(state: ParserState, start: int, block: CallBlock) -> Continuation | None:
    """Return the continuation if a quotation begins right before the `block` at `start`; None if none does.

    A block of calls is quoted with or without a closing sign. After the opening tag of a wrapper, its calls are quoted
    too: up to the last closing sign in the paragraph, or all of the paragraph.
    """
    if not closing_sign_for(state.text, start):
        return None
    after_sign = _skip_to_closing_sign(state, start, block.end, last=block.wraps)
    if after_sign is not None:
        return after_sign
    return paragraph_end(state.text, block.end) if block.wraps else block.end


def apply_outcome(state: ParserState, start: int, after: int, outcome: ParseOutcome) -> Continuation:
    """Act on `outcome`, read at the mark that begins at `start`.

    `after` is the end of the mark, from which to continue if the mark is text.
    """
    if not state.offered.are_read:
        return after
    if not outcome.sure and not state.final:
        # Only characters of a closing mark can complete a call that is cut off so far.
        is_cut = isinstance(outcome, CallBlock) and outcome.is_cut
        return wait(state, start, _MAY_END_CALL if is_cut else ANYTHING)
    # A block without text would be found again and again.
    if isinstance(outcome, NoCall) or outcome.end <= start:
        return _decline(state, start, after)
    after_quotation = _skip_quoted_block(state, start, outcome)
    if after_quotation is not None:
        return after_quotation
    enclosure: Enclosure | Early = Enclosure.FREE
    if state.tags:
        enclosure = state.tags.enclosure_at(state.text, after, base=state.base, final=state.final)
    match enclosure:
        case Early():
            return wait(state, start, ">")  # Only a closing tag can tell if it is in a pair of tags.
        case Enclosure.QUOTED:
            # A sure outcome was read as a unit; one that is not sure may reach beyond the closing tag.
            return outcome.end if outcome.sure else after
        case _:
            state.pass_content(start)
            state.announced_example = state.announced_example or introduces_an_example(state.result.content_tail())
            if enclosure is Enclosure.DOUBTFUL or state.announced_example:
                outcome = replace(outcome, items=tuple(map(with_low_confidence, outcome.items)))
            take_calls(state, outcome)
            return Progress.ADVANCED


def _decline(state: ParserState, start: int, after: int) -> Continuation:
    """Handle a mark without a call: it is text, unless it is a closing mark after calls, at the end of the message."""
    if state.final and state.result.has_removed_text and only_closers_follow(state.text, start):
        state.pass_content(start)
        state.skip(len(state.text))
        return Progress.PAUSED
    note_declined(state, start)
    return after


def note_declined(state: ParserState, start: int) -> None:
    """Note that the call marker at `start` is text, unless it is only mentioned."""
    if not closing_sign_for(state.text, start):
        state.pass_content(start)
        state.declined = state.result.length


def take_calls(state: ParserState, block: CallBlock) -> None:
    """Take a block that begins at `at`, and move past it."""
    if not state.result.has_content:
        state.began_with_call = True
    if block.end - state.at > MAX_CALL:
        message_to_model = f"is longer than {MAX_CALL} characters"
        unusable = UnusableCall(kind=DiagnosticKind.UNREADABLE, message=message_to_model, start=state.at)
        block = CallBlock(end=block.end, format=block.format, items=(unusable,))
    state.result.add_calls(block, state.text, state.base)
    state.skip(block.end)
    state.backtick_runs.clear()
    if block.wraps:
        state.wrapper = block.format  # The text mode goes on and finds the calls in it by their own marks.
    else:
        state.mode = remove_invented_results if block.rest_is_invented else after_call


def after_call(state: ParserState) -> Progress:
    """Remove closing marks after a call; anything else is text again."""
    text = state.text
    end = state.at
    while closing := _CLOSING_MARK.match(text, end):
        end = closing.end()
    state.skip(end)
    following = skip_space(text, end)
    if following == len(text):
        if state.final:
            state.skip(following)
        return state.pause(ANYTHING)
    if not state.final and CLOSER_BEGINS.match(text, following):
        return state.pause(ANYTHING)
    if text[following] not in "<]":
        state.wrapper = ""  # The next call of a wrapper would begin with a tag or with `]<]minimax[>[`.
    # Right after a call, `>>>NAME` begins the next one as on a line of its own. White space is text like any other.
    state.at_line_start = following == end
    state.mode = state.text_mode
    return Progress.ADVANCED


def remove_invented_results(state: ParserState) -> Progress:
    """Remove the results that the model made up after its call: they are neither run nor shown."""
    state.skip(len(state.text))
    return state.pause(ANYTHING)

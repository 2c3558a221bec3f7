"""The state that all modes of the reader share, and what an outcome of a format's reader does to it.

A mode is a function that reads on from `at`. It returns True if it made progress, and otherwise pauses for the text
that it needs. Text that waits is read again with each chunk, but no more than `_REREADS` times, so time stays linear
even when text arrives one character at a time.

`apply_outcome` acts on what the reader of a format has found: it takes calls, passes text, or waits for more. After a
call, the modes at the end of the file read what still belongs to it.
"""

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

Mode = Callable[["ParserState"], bool]
ANYTHING = None
"""Argument of `pause`: any further text ends the pause."""
END_OF_MESSAGE = ""
"""Argument of `pause`: only the end of the message ends the pause. Any other string lists the characters that do."""
_LOOK_BEHIND = 2
"""Characters before `at` that stay in `text`: patterns look at them, such as at the quote before a tag."""
_REREADS = 8
"""Times that waiting text is read again. More show a call sooner where chunks are small, and take that much longer."""
_FREE_REREAD = 8192
"""Characters that are read again in any case, so that a short message is never late."""
_MAY_END_CALL = ">]})`"
_MAY_END_SPAN = "`\n"


class AnswerMarkup(Enum):
    """Markup that says that its text is the answer to the user. Only its own marks end it."""

    CHANNEL = auto()
    """A message in a channel: Harmony and Muse."""
    RESPONSE = auto()
    """The response part of Kimi K3."""


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
        self.text = "\n\n"
        self.at = _LOOK_BEHIND
        """Index in `text` of the first character that has not been passed."""
        self.final = False
        """True once nothing more will come."""
        self.at_line_start = True
        """True if `at` counts as the beginning of a line."""
        self.answer_markup: AnswerMarkup | None = None
        """The markup around an answer to the user, in which nothing runs; None outside of one."""
        self.began_with_call = False
        """True if a call was the first thing in the text."""
        self.backtick_runs: list[int] = []
        """Lengths of the runs of backticks that may have opened a code span, in order."""
        self.tags = OpenTags()
        """The tags of no known format that are open at `at`."""
        self.declined: int | None = None
        """Index in the content of the last call marker that no call followed; None if there is none."""
        self.announced_example = False
        """True once a call was announced as an example; the user then decides on it and all later calls."""
        self.wrapper = ""
        """The format of the opening wrapper around the next calls; empty outside of one."""
        self.hold: int | None = None
        """Index in `text` from which its end may be an incomplete mark; None until it is looked for."""
        self.base = -_LOOK_BEHIND
        """Index in the message of the first character of `text`."""
        self._arrived: list[str] = []
        """Chunks that are not in `text` yet."""
        self._arrived_length = 0
        self._waits_for: str | None = ANYTHING
        """The last argument of `pause`."""
        self._reread = 0
        """Characters that were read in vain since text was last passed."""
        self._passed: list[str] = []
        """All text passed since the last thought, as it was written, for `reclassify`."""

    def arrive(self, chunk: str) -> bool:
        """Store a chunk; return True if the mode can make progress with it."""
        self._arrived.append(chunk)
        self._arrived_length += len(chunk)
        wanted = self._waits_for
        ready = wanted is ANYTHING or any(mark in chunk for mark in wanted)
        waiting = len(self.text) - self.at + self._arrived_length
        # Text that was read too often for its length waits until it has grown.
        return ready and self._reread <= _REREADS * waiting + _FREE_REREAD

    def run(self) -> None:
        """Read as far as possible."""
        if self._arrived:
            dropped = max(self.at - _LOOK_BEHIND, 0)
            self.base += dropped
            self.at -= dropped
            self.text = self.text[dropped:] + "".join(self._arrived)
            self._arrived = []
            self._arrived_length = 0
            self.hold = None
        while self.mode(self):
            pass

    def pause(self, wanted: str | None) -> bool:
        """Wait for one of the characters of `wanted`. Always return False, the result of a mode that pauses."""
        self._waits_for = wanted
        self._reread += len(self.text) - self.at
        return False

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
        """Turn everything since the last thought into thought."""
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
            self._reread = 0
            self.at_line_start = False
        self._passed.append(passed)
        return passed


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


def skip_code_span(state: ParserState, start: int) -> Continuation | None:
    """Return the continuation if `start` is in a code span or may be in one; None if it is not."""
    if not state.backtick_runs:
        return None
    end = span_end(state.text, start, state.backtick_runs, final=state.final)
    if isinstance(end, Early):
        return wait(state, start, _MAY_END_SPAN)
    state.backtick_runs.clear()
    return end


def skip_quotation(state: ParserState, start: int, end: int, *, opens: bool) -> Continuation | None:
    """Return the continuation if a quotation opens right before `text[start:end]`; None if none does.

    With `opens`, that text opens something, so more of it follows in the quotation: up to the last closing sign in the
    paragraph, or all of the paragraph.
    """
    if not closing_sign_for(state.text, start):
        return None
    after = skip_mention(state, start, end, to_last_sign=opens)
    if after is None:
        return paragraph_end(state.text, end) if opens else end
    return after


def skip_mention(state: ParserState, start: int, end: int, *, to_last_sign: bool = True) -> Continuation | None:
    """Return the continuation if the mark at `text[start:end]` is only mentioned, in closed quotes; None otherwise."""
    closing_sign = closing_sign_for(state.text, start)
    if not closing_sign:
        return None
    after = quotation_end(state.text, end, closing_sign, last=to_last_sign, final=state.final)
    return wait(state, start) if isinstance(after, Early) else after


def apply_outcome(state: ParserState, start: int, after: int, outcome: ParseOutcome) -> Continuation:
    """Act on `outcome`, read from `start`. `after` is the index from which to continue if it is text."""
    if not state.offered.are_read:
        return after
    if not outcome.sure and not state.final:
        # Only characters of a closing mark can complete a call that is cut off so far.
        is_cut = isinstance(outcome, CallBlock) and any(
            isinstance(item, UnusableCall) and item.kind is DiagnosticKind.CUT_OFF for item in outcome.items
        )
        return wait(state, start, _MAY_END_CALL if is_cut else ANYTHING)
    if isinstance(outcome, NoCall) or outcome.end <= start:
        # Marks that are left over after a call, at the end of the message, are not shown.
        if state.final and state.result.has_removed_text and only_closers_follow(state.text, start):
            state.pass_content(start)
            state.skip(len(state.text))
            return ScanProgress.PAUSED
        note_declined(state, start)
        return after
    after_quotation = skip_quotation(state, start, outcome.end, opens=outcome.wraps)
    if after_quotation is not None:
        return after_quotation
    enclosure: Enclosure | Early = Enclosure.FREE
    if state.tags:
        enclosure = state.tags.enclosure_at(state.text, after, base=state.base, final=state.final)
    if isinstance(enclosure, Early):
        return wait(state, start, ">")
    if enclosure is Enclosure.QUOTED:
        # A sure outcome was read as a unit; one that is not sure may reach beyond the closing tag.
        return outcome.end if outcome.sure else after
    state.pass_content(start)
    state.announced_example = state.announced_example or introduces_an_example(state.result.content_tail())
    if enclosure is Enclosure.DOUBTFUL or state.announced_example:
        outcome = replace(outcome, items=tuple(with_low_confidence(item) for item in outcome.items))
    take_calls(state, outcome)
    return ScanProgress.ADVANCED


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
        state.wrapper = block.format
    else:
        state.mode = remove_invented_results if block.rest_is_invented else after_call


def after_call(state: ParserState) -> bool:
    """Remove closing tags and ends of messages after a call; anything else is text again."""
    text = state.text
    end = state.at
    while closing := CLOSER.match(text, at := skip_space(text, end)) or END_OF_TEXT.match(text, at):
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
    state.mode = state.text_mode
    return True


def remove_invented_results(state: ParserState) -> bool:
    """Remove the results that the model made up after its call: they are neither run nor shown."""
    state.skip(len(state.text))
    return False if state.final else state.pause(ANYTHING)

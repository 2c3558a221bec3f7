"""Modes for text in which nothing is a call: code, quoted lines, fences, and text between tags that quote.

A mode passes text on up to its end. It pauses where the text so far ends in what could be the beginning of that end:
each `…_MAY_…` pattern matches such a beginning. The functions after the modes begin them, from text.

A fence that may hold calls is held back by `HeldFence`, because only what follows tells a call from an example:

    open ── its first character fits no call ──> released: passed as code, by `InFence`
     ├─ the message ends ──> as if it were closed
     └─ closed ── the message ends ──> its calls are taken, and those of the fences right before it
           ├─ another such fence, after a few words ──> open
           └─ other text ──> passed as code
"""

import re
from dataclasses import dataclass

from chatops.dialects.formats.base import CLOSER, CallBlock, Early, only_closers_follow, skip_space, text_follows
from chatops.dialects.formats.unmarked import begins_like_a_call, read_fenced
from chatops.dialects.literal_text import MAX_END, QUOTING_ENDS, Fence, may_hold_a_call, open_fence, result_ends
from chatops.dialects.parser_state import (
    ANYTHING,
    Continuation,
    Mode,
    ParserState,
    Progress,
    note_declined,
    skip_code_span,
    wait,
)
from chatops.dialects.unknown_tags import read_tag

_END_MAY_BEGIN = re.compile(r"[<\[-]")
_FENCE_END_MAY_BEGIN = re.compile(r"\n[ \t]{0,16}[`~]{0,60}[ \t\r]{0,16}\Z")
_MAX_FENCE_END = 96
"""Characters that `_FENCE_END_MAY_BEGIN` matches at most: so many at the end of the text are searched again."""
_MAX_TOKEN = 40
"""Characters of a closing token after a fence, such as ``</tool_call>``."""
_WORDS = r"[^<\[\]`~>◁|]{0,200}"
_NEXT_FENCE = re.compile(rf"{_WORDS}?\n[ \t\r]{{0,16}}(?P<fence>`{{3,40}}|~{{3,40}})[^`\n]*(?=\n)")
"""Another fence after a closed one, with only words between them."""
_NEXT_FENCE_MAY_COME = re.compile(rf"{_WORDS}(?:\n[ \t\r]{{0,16}}(?:`{{1,40}}|~{{1,40}})[^`\n]*)?\Z")
_LINE_MAY_BEGIN = re.compile(
    r"[ \t\r]{0,16}(?:`{1,40}|~{1,40}|>{1,3}|A(?:c(?:t(?:i(?:o(?:n ?)?)?)?)?)?)?\Z|[ \t\r]{0,16}\n {0,3}\Z"
)
"""The beginning of a construct that begins a line: a fence, a quotation, `Action :`, indented code."""
_LINE_ENDS = re.compile(r"(?=\n)")
_CODE_CONTINUES = re.compile(r"\n(?:[ \t\r]{0,64}\n)?(?: {4}|\t)")
_CODE_MAY_CONTINUE = re.compile(r"\n[ \t\r]{0,64}(?:\n {0,3})?\Z")
_LIST_OF_TOOLS = "tools"


class InQuotation:
    """Mode that passes text unchanged up to the end of a quotation.

    `ends` matches that end. Two groups, if it has them, match something else: `opens` a tag that quotes,
    `number` the fence of one of our results. `next_mode` follows the quotation.
    """

    __slots__ = ("_depth", "_ends", "_next_mode")

    def __init__(self, ends: re.Pattern[str], next_mode: Mode) -> None:
        self._ends = ends
        self._next_mode = next_mode
        self._depth = 1
        """Number of tags that are open: the one that began the quotation, and those inside it."""

    def __call__(self, state: ParserState) -> Progress:
        """Pass text up to the end of the quotation."""
        text = state.text
        end = self._ends.search(text, state.at)
        if end:
            state.pass_content(end.end())
            groups = end.groupdict()
            if groups.get("opens"):
                self._depth += 1
            elif number := groups.get("number"):
                # The closing tag counts only after the result, whose text may contain it.
                state.mode = InQuotation(result_ends(number), self)
            else:
                self._depth -= 1
                if not self._depth:
                    state.mode = self._next_mode
            return Progress.ADVANCED
        begun = None if state.final else _END_MAY_BEGIN.search(text, max(state.at, len(text) - MAX_END))
        state.pass_content(begun.start() if begun else len(text))
        return state.pause(ANYTHING)


class InFence:
    """Mode for a fenced block, up to its closing line. `at` is at the line break before its first line."""

    __slots__ = ("_ends",)

    def __init__(self, ends: re.Pattern[str]) -> None:
        self._ends = ends

    def __call__(self, state: ParserState) -> Progress:
        """Pass text up to the end of the block."""
        text = state.text
        end = self._ends.search(text, state.at)
        if end and (state.final or end.end() < len(text)):
            state.pass_content(end.end())
            state.mode = state.text_mode
            return Progress.ADVANCED
        begun = None if state.final else _FENCE_END_MAY_BEGIN.search(text, max(state.at, len(text) - _MAX_FENCE_END))
        state.pass_content(begun.start() if begun else len(text))
        return state.pause(ANYTHING)


@dataclass(slots=True)
class _HeldBlock:
    """One fenced block that is held back. Offsets count from `state.at`, which does not move until all are let go."""

    start: int
    """Offset of the run of backticks or tildes that opens it."""
    length: int
    """Length of that run."""
    searched: int = 0
    """Offset up to which its end was searched in vain."""
    end: int | None = None
    """Offset of its end; None while it is open."""

    def fence(self, state: ParserState) -> Fence:
        """Return the block as a fence in `state.text`."""
        run = state.at + self.start
        fence = open_fence(state.text, run, run + self.length)
        assert fence is not None, "it was one when it was held back"
        return fence

    def find_end(self, state: ParserState) -> int | None:
        """Return the index in `state.text` of the end of the block; None while it is open."""
        text, at = state.text, state.at
        if self.end is None:
            fence = self.fence(state)
            found = fence.ends.search(text, max(fence.body, at + self.searched))
            if found and (state.final or found.end() < len(text)):
                self.end = found.end() - at
            else:
                self.searched = max(len(text) - _MAX_FENCE_END - at, 0)
        return None if self.end is None else at + self.end


class HeldFence:
    """Mode that holds back fenced blocks that may be calls, until other text follows them or the message ends."""

    __slots__ = ("_blocks",)

    def __init__(self, start: int, length: int) -> None:
        """Start with the block whose run of backticks is `length` long and begins at `state.at + start`."""
        self._blocks = [_HeldBlock(start, length)]

    def __call__(self, state: ParserState) -> Progress:
        """Wait for the end of the last block, then for what follows it."""
        last = self._blocks[-1]
        end = last.find_end(state)
        if end is not None:
            return self._follow(state, end)
        if state.final:
            return self._take_calls(state)
        begins = begins_like_a_call(state.text, last.fence(state))
        if begins is False:
            return self._release(state)
        # What begins like a call is looked at again once its fence may end, an empty fence at each new piece.
        return state.pause("`~" if begins is True else ANYTHING)

    def _follow(self, state: ParserState, end: int) -> Progress:
        """Wait for what follows the last block, which ends at `end`: the end of the message, or a fence after words."""
        text = state.text
        if only_closers_follow(text, end):
            return self._take_calls(state) if state.final else state.pause(ANYTHING)
        after = skip_space(text, end)
        if not state.final and text[after] in "<[" and len(text) - after < _MAX_TOKEN:
            return state.pause(ANYTHING)
        following = _NEXT_FENCE.match(text, end)
        if following is None and not state.final and _NEXT_FENCE_MAY_COME.match(text, end):
            return state.pause(ANYTHING)
        run, after_run = following.span("fence") if following else (end, end)
        fence = open_fence(text, run, after_run) if following else None
        if fence and may_hold_a_call(fence, text[end:run]):
            self._blocks.append(_HeldBlock(run - state.at, after_run - run))
            return Progress.ADVANCED
        state.pass_content(end)
        state.mode = state.text_mode
        return Progress.ADVANCED

    def _release(self, state: ParserState) -> Progress:
        """Pass everything before the last block as text, and that block as code."""
        fence = self._blocks[-1].fence(state)
        state.pass_content(fence.body)
        state.mode = InFence(fence.ends)
        return Progress.ADVANCED

    def _take_calls(self, state: ParserState) -> Progress:
        """Take the calls of the blocks at the end of the message, or release all blocks if the last one holds none.

        Text between the blocks, and a block without a call with all before it, are content.
        """
        text, at = state.text, state.at
        alone = len(self._blocks) == 1 and not state.result.has_content
        found: list[CallBlock] = []
        for held in reversed(self._blocks):
            calls = read_fenced(text, held.fence(state), state.offered, alone=alone)
            if calls is None:
                break
            found.insert(0, calls)
        if not found:
            return self._release(state)
        for held, calls in zip(self._blocks[-len(found) :], found, strict=True):
            # All before the first block was passed when it was held back.
            if held is not self._blocks[0]:
                state.pass_content(at + held.start)
            state.result.add_calls(calls, text, state.base)
            state.skip(calls.end)
        state.skip(len(text))
        return Progress.PAUSED


def in_indented_code(state: ParserState) -> Progress:
    """Pass the lines of indented code as content, until its block ends."""
    text = state.text
    end = text.find("\n", state.at)
    if end < 0:
        state.pass_content(len(text))
        return state.pause(ANYTHING)
    state.pass_content(end)
    if more := _CODE_CONTINUES.match(text, end):
        state.pass_content(more.end())
        return Progress.ADVANCED
    if not state.final and _CODE_MAY_CONTINUE.match(text, end):
        return state.pause(ANYTHING)
    state.mode = state.text_mode
    return Progress.ADVANCED


def line_may_begin(text: str, at: int) -> bool:
    """Return True if all text from `at` on could still become a construct that begins a line."""
    return at < len(text) and _LINE_MAY_BEGIN.match(text, at) is not None


def begin_literal_line(state: ParserState, mark: re.Match[str]) -> Progress:
    """Begin indented code, or else a quoted line."""
    state.backtick_runs.clear()
    state.pass_content(mark.end())
    is_code = mark["indented"] is not None
    state.mode = in_indented_code if is_code else InQuotation(_LINE_ENDS, state.text_mode)
    return Progress.ADVANCED


def begin_fence(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Begin a fenced block, which may hold a call, or inline code."""
    text = state.text
    run, after = mark.span("fence")
    if text.find("\n", after) < 0 and not state.final:
        return wait(state, mark.start(), "\n")
    fence = open_fence(text, run, after)
    if fence is None:
        state.backtick_runs.append(after - run)
        return after
    state.backtick_runs.clear()
    state.pass_content(mark.start())
    before = state.result.content_tail()
    # Where no calls are read from text, a fence is only code.
    if state.offered.are_read and not state.result.has_entries and may_hold_a_call(fence, before):
        state.mode = HeldFence(run - state.at, after - run)
    else:
        state.pass_content(fence.body)
        state.mode = InFence(fence.ends)
    return Progress.ADVANCED


def read_quoting_tag(state: ParserState, mark: re.Match[str], word: str) -> Continuation:
    """Handle a tag around tool output, declarations or code, unless its name continues (`<code-x>`)."""
    text = state.text
    after = text[mark.end() : mark.end() + 1]
    if after not in (">", " ", "\n", ""):
        return mark.end()
    if after == ">" and state.result.has_removed_text and not text_follows(text, mark.end() + 1):
        # A call came before, and servers stop where its result would follow: the tag is markup, not text.
        if not state.final:
            return wait(state, mark.start())
        if only_closers_follow(text, mark.end() + 1):
            state.pass_content(mark.start())
            state.skip(len(text))
            return Progress.PAUSED
    if word == _LIST_OF_TOOLS and skip_code_span(state, mark.start()) is None:
        note_declined(state, mark.start())
    return begin_quotation(state, mark, QUOTING_ENDS[word])


def note_unknown_tag(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Note a tag of no known format. The tag stays text, and so does a call between it and its closing tag."""
    text, start = state.text, mark.start()
    tag = read_tag(text, start, final=state.final)
    if isinstance(tag, Early):
        return wait(state, start)
    if tag is None:
        return mark.end()
    key = tag.key
    if tag.closes:
        if not state.tags.close(key) and key[0] not in "[|" and not state.began_with_call:
            # The opening tag may have been in the prompt. Everything before was thought in that case.
            state.result.lower_confidence()
        return mark.end()
    # It has the form of a call in a format that we do not read: the user learns that nothing was run.
    if CLOSER.fullmatch(f"</{key}>") and skip_code_span(state, start) is None:
        note_declined(state, start)
    # `start` is not 0: the text begins with characters before the message.
    state.tags.open(key, begins_line=text[start - 1] == "\n")
    return mark.end()


def begin_quotation(state: ParserState, mark: re.Match[str], ends: re.Pattern[str]) -> Continuation:
    """Begin a quotation: nothing up to `ends` is a call."""
    hidden = skip_code_span(state, mark.start())
    if hidden is not None:
        return hidden
    state.pass_content(mark.end())
    state.mode = InQuotation(ends, state.text_mode)
    return Progress.ADVANCED

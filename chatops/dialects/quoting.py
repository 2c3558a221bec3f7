"""Modes for text in which nothing is a call: code, quoted lines, fences, and text between tags that quote.

A mode passes text on and pauses where the text so far ends in what could be the beginning of its end. Each `_MAY_…`
pattern matches such a beginning; its numbers bound how far back it is searched.
"""

import re

from chatops.dialects.formats.base import (
    CLOSER,
    CallBlock,
    Early,
    only_closers_follow,
    skip_space,
    text_follows,
)
from chatops.dialects.formats.unmarked import begins_like_a_call, read_fenced
from chatops.dialects.masks import (
    CUE_REACH,
    LONGEST_END,
    QUOTING_ENDS,
    Fence,
    fence_ends,
    may_hold_a_call,
    open_fence,
    read_tag,
)
from chatops.dialects.message import (
    ANYTHING,
    Continuation,
    Mode,
    ParserState,
    ScanProgress,
    decline,
    in_code_span,
    wait,
)

_END_MAY_BEGIN = re.compile(r"[<\[-]")
_FENCE_END_MAY_BEGIN = re.compile(r"\n[ \t]{0,16}[`~]{0,60}[ \t\r]{0,16}\Z")
_LONGEST_FENCE_END = 96
"""Characters that `_FENCE_END_MAY_BEGIN` matches at most."""
_LONGEST_TOKEN = 40
"""Characters of a closing token after a fence, such as ``</tool_call>``."""
_PROSE = r"[^<\[\]`~>◁|]{0,200}"
_NEXT_FENCE = re.compile(rf"{_PROSE}?\n[ \t\r]{{0,16}}(?P<fence>`{{3,40}}|~{{3,40}})[^`\n]*(?=\n)")
"""Another fence after a closed one, with only words between them."""
_MAY_BE_NEXT_FENCE = re.compile(rf"{_PROSE}(?:\n[ \t\r]{{0,16}}(?:`{{1,40}}|~{{1,40}})[^`\n]*)?\Z")
_MAY_BEGIN_LINE = re.compile(
    r"[ \t\r]{0,16}(?:`{1,40}|~{1,40}|>{1,3}|A(?:c(?:t(?:i(?:o(?:n ?)?)?)?)?)?)?\Z|[ \t\r]{0,16}\n {0,3}\Z"
)
_LINE_ENDS = re.compile(r"(?=\n)")
_CONTINUES = re.compile(r"\n(?:[ \t\r]{0,64}\n)?(?: {4}|\t)")
_MAY_CONTINUE = re.compile(r"\n[ \t\r]{0,64}(?:\n {0,3})?\Z")
_LIST_OF_TOOLS = "tools"


class InQuotation:
    """Mode that passes text unchanged until something ends the quotation."""

    __slots__ = ("_depth", "_ends", "_then")

    def __init__(self, ends: re.Pattern[str], then: Mode) -> None:
        self._ends = ends
        self._then = then
        self._depth = 1

    def __call__(self, state: ParserState) -> bool:
        """Pass text up to the end of the quotation, which may hold others of its kind and results of ours."""
        text = state.text
        end = self._ends.search(text, state.at)
        if end:
            state.pass_content(end.end())
            groups = end.groupdict()
            if groups.get("opens"):
                self._depth += 1
            elif number := groups.get("number"):
                # The fence of a result: the closing tag counts only after it.
                state.mode = InQuotation(fence_ends(number), self)
            else:
                self._depth -= 1
                if not self._depth:
                    state.mode = self._then
            return True
        if state.final:
            state.pass_content(len(text))
            return False
        begun = _END_MAY_BEGIN.search(text, max(state.at, len(text) - LONGEST_END))
        state.pass_content(begun.start() if begun else len(text))
        return state.pause(ANYTHING)


class InFence:
    """Mode for a fenced block, up to its closing line. `at` is at the line break before its first line."""

    __slots__ = ("_ends", "_then")

    def __init__(self, ends: re.Pattern[str], then: Mode) -> None:
        self._ends = ends
        self._then = then

    def __call__(self, state: ParserState) -> bool:
        """Pass text up to the end of the block."""
        text = state.text
        end = self._ends.search(text, state.at)
        if end and (state.final or end.end() < len(text)):
            state.pass_content(end.end())
            state.mode = self._then
            return True
        if state.final:
            state.pass_content(len(text))
            return False
        begun = _FENCE_END_MAY_BEGIN.search(text, max(state.at, len(text) - _LONGEST_FENCE_END))
        state.pass_content(begun.start() if begun else len(text))
        return state.pause(ANYTHING)


class HeldFence:
    """Mode that holds back fenced blocks that may be calls, until other text follows them or the message ends."""

    __slots__ = ("_closed", "_fences", "_searched", "_then")

    def __init__(self, offset: int, length: int, then: Mode) -> None:
        """Start with the fence whose backticks are `length` long and begin `offset` characters after the parser."""
        self._fences = [(offset, length)]
        self._then = then
        self._searched = 0
        """Number of characters from the parser's position that were searched for the end of the last fence, in vain."""
        self._closed = -1
        """Offset of the end of the last fence, in characters from the parser's position; -1 while the fence is open."""

    def __call__(self, state: ParserState) -> bool:
        """Wait for the end of the last fence, then for what follows it."""
        text, start = state.text, state.at
        fence = self._fence(text, start, -1)
        if self._closed < 0 and not self._find_end(state, fence):
            if state.final:
                return self._decide(state)
            begins = begins_like_a_call(text, fence)
            if begins is False:
                return self._release(state, fence)
            return state.pause("`~" if begins else ANYTHING)
        return self._after_the_fence(state)

    def _fence(self, text: str, start: int, number: int) -> Fence:
        offset, length = self._fences[number]
        fence = open_fence(text, start + offset, start + offset + length)
        assert fence is not None, "it was one when it was kept back"
        return fence

    def _find_end(self, state: ParserState, fence: Fence) -> bool:
        text, start = state.text, state.at
        end = fence.ends.search(text, max(fence.body, start + self._searched))
        if end and (state.final or end.end() < len(text)):
            self._closed = end.end() - start
            return True
        self._searched = max(len(text) - _LONGEST_FENCE_END - start, 0)
        return False

    def _after_the_fence(self, state: ParserState) -> bool:
        """Wait for what follows a closed fence: the end of the message, or another fence after a few words."""
        text, start = state.text, state.at
        closed = start + self._closed
        if only_closers_follow(text, closed):
            return self._decide(state) if state.final else state.pause(ANYTHING)
        after = skip_space(text, closed)
        if not state.final and text[after] in "<[" and len(text) - after < _LONGEST_TOKEN:
            return state.pause(ANYTHING)
        following = _NEXT_FENCE.match(text, closed)
        if following is None and not state.final and _MAY_BE_NEXT_FENCE.match(text, closed):
            return state.pause(ANYTHING)
        fence = open_fence(text, *following.span("fence")) if following else None
        if following and fence and may_hold_a_call(fence, text[closed : following.start("fence")]):
            self._fences.append((following.start("fence") - start, len(following["fence"])))
            self._searched = 0
            self._closed = -1
            return True
        state.pass_content(closed)
        state.mode = self._then
        return True

    def _release(self, state: ParserState, fence: Fence) -> bool:
        """Pass everything up to the last fence, because only prose stands between the others."""
        state.pass_content(fence.body)
        state.mode = InFence(fence.ends, self._then)
        return True

    def _decide(self, state: ParserState) -> bool:
        """Take the trailing fences that hold calls, at the end of the message."""
        text, start = state.text, state.at
        fences = [self._fence(text, start, number) for number in range(len(self._fences))]
        alone = len(fences) == 1 and not state.result.has_content
        calls: list[tuple[int, CallBlock]] = []
        for (offset, _), fence in zip(reversed(self._fences), reversed(fences), strict=True):
            found = read_fenced(text, fence, state.offered, alone=alone)
            if found is None:
                break
            calls.append((start + offset, found))
        if not calls:
            return self._release(state, fences[-1])
        for number, (run, found) in enumerate(reversed(calls), len(fences) - len(calls)):
            if number:
                state.pass_content(run)
            state.result.add_calls(found, text, state.base)
            state.skip(found.end)
        state.skip(len(text))
        return False


class InIndentedCode:
    """Mode for indented code: its lines are content."""

    __slots__ = ("_then",)

    def __init__(self, then: Mode) -> None:
        self._then = then

    def __call__(self, state: ParserState) -> bool:
        """Pass lines until the indented block ends."""
        text = state.text
        end = text.find("\n", state.at)
        if end < 0:
            state.pass_content(len(text))
            return False if state.final else state.pause(ANYTHING)
        state.pass_content(end)
        if more := _CONTINUES.match(text, end):
            state.pass_content(more.end())
            return True
        if not state.final and _MAY_CONTINUE.match(text, end):
            return state.pause(ANYTHING)
        state.mode = self._then
        return True


def line_may_begin(text: str, at: int) -> bool:
    """Return True if all text from `at` on could still become a construct that begins a line."""
    return at < len(text) and _MAY_BEGIN_LINE.match(text, at) is not None


def begin_indented_code(state: ParserState, found: re.Match[str]) -> ScanProgress:
    """Begin indented code."""
    state.backtick_runs.clear()
    state.pass_content(found.end())
    state.mode = InIndentedCode(state.plain)
    return ScanProgress.ADVANCED


def begin_quoted_line(state: ParserState, found: re.Match[str]) -> ScanProgress:
    """Begin a quoted line."""
    state.backtick_runs.clear()
    state.pass_content(found.end())
    state.mode = InQuotation(_LINE_ENDS, state.plain)
    return ScanProgress.ADVANCED


def begin_fence(state: ParserState, found: re.Match[str]) -> Continuation:
    """Begin a fenced block, which may hold a call, or inline code."""
    text = state.text
    run, after = found.span("fence")
    if text.find("\n", after) < 0 and not state.final:
        return wait(state, found.start(), "\n")
    fence = open_fence(text, run, after)
    if fence is None:
        state.backtick_runs.append(after - run)
        return after
    state.backtick_runs.clear()
    state.pass_content(found.start())
    before = state.result.content_tail(CUE_REACH)
    if state.offered.are_read and not state.result.has_calls and may_hold_a_call(fence, before):
        state.mode = HeldFence(run - state.at, after - run, state.plain)
    else:
        state.pass_content(fence.body)
        state.mode = InFence(fence.ends, state.plain)
    return ScanProgress.ADVANCED


def read_quoting_tag(state: ParserState, found: re.Match[str], word: str) -> Continuation:
    """Handle a tag around tool output, declarations or code."""
    text = state.text
    after = text[found.end() : found.end() + 1]
    if after not in (">", " ", "\n", ""):
        return found.end()
    if after == ">" and state.result.removed and not text_follows(text, found.end() + 1):
        # Servers stop where results would follow.
        if not state.final:
            return wait(state, found.start())
        if only_closers_follow(text, found.end() + 1):
            state.pass_content(found.start())
            state.skip(len(text))
            return ScanProgress.PAUSED
    if word == _LIST_OF_TOOLS and in_code_span(state, found.start()) is None:
        decline(state, found.start())
    return begin_quotation(state, found, QUOTING_ENDS[word])


def note_unknown_tag(state: ParserState, found: re.Match[str]) -> Continuation:
    """Note a tag of no known format. The tag stays text, and so does a call between it and its closing tag."""
    text, start = state.text, found.start()
    tag = read_tag(text, start, final=state.final)
    if isinstance(tag, Early):
        return wait(state, start)
    if tag is None:
        return found.end()
    name, closes = tag
    if closes:
        if not state.tags.close(name) and name[0] not in "[|" and not state.began_with_call:
            # The opening tag may have been in the prompt. What came before was thought in that case.
            state.result.doubt()
        return found.end()
    if CLOSER.fullmatch(f"</{name}>") and in_code_span(state, start) is None:
        decline(state, start)
    state.tags.open(name, begins_line=text[start - 1] == "\n")
    return found.end()


def begin_quotation(state: ParserState, found: re.Match[str], ends: re.Pattern[str]) -> Continuation:
    """Begin a quotation: nothing up to `ends` is a call."""
    hidden = in_code_span(state, found.start())
    if hidden is not None:
        return hidden
    state.pass_content(found.end())
    state.mode = InQuotation(ends, state.plain)
    return ScanProgress.ADVANCED

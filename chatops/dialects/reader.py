"""Read a model's reply as it arrives: one scan from left to right that separates calls and thought from text.

Theory of operation

The idea. A call that is written as text is not marked reliably: models wrap it in the tags of another family, quote one
to explain it, or stop in the middle. So the reader does not search for calls. It reads the whole reply once, as a
parser reads a program, and knows at each position if it is in text, thought, code or a quotation. A call counts only in
text.

Modes. `ParserState` holds the text and the position `at`. Its `mode` is a function that reads from there: `at_start`
at the beginning of the content, `in_text` in text, and others in thought, quotations, fences and after a call. A mode
passes text as content or thought, removes it, changes the mode, or pauses for more text.

One scan. In text, a pattern (`SCAN`) finds the next place where something may begin: a tag, a run of backticks, the
beginning of a line that matters. Everything between is text. The word of a tag (`tool_call`, `/think`, `|channel|`)
says what it is (`KINDS` in `scanner.py`), and a tag with an unknown word is text. The first of these decides: thought,
a call marker, code, a quotation. A call is read as a unit by the reader of its grammar (`formats/marked.py` has the
table), so its arguments are data and nothing in them is interpreted.

Outcome. The reader of a format returns `CallBlock` or `NoCall`, each with `sure`: True if no further text could change
it. An outcome that is not sure is discarded until more text or the end of the message has come (`parser_state.py`).

Hold-back. Text is given out as soon as it is certain:

- The end of the text is held back while it may be the beginning of a marker (`incomplete_from`).
- A message that begins like a call without a marker is held back until its end: a single word of prose before or after
  makes it text. So is a fence that may be a call, until other text follows.
- Calls and diagnostics are given out only by `close`.
- One segment takes back earlier content: a closing tag of thought whose opening tag was in the prompt
  (`ReclassifiedSegment`).

What is text, whatever it looks like: calls in code spans, fences that are followed by other text, indented code,
quotations, comments, echoes of tool output, invented turns of other roles, the answer to the user in its own block, and
pairs of unknown tags (`unknown_tags.py`).

Confidence. A call is HIGH unless it may have been an example: it is in a fence that is not the whole message, was
introduced as an example, is in an unclosed unknown tag, or is code after a marker that named no tool. A LOW call is
still a call, but always asks the user.

Repairs. A value is repaired only where one meaning is left, and each repair is listed with the call. A value that was
cut off is never completed. A call that was recognised but cannot be used becomes a `Diagnostic`, so that the model
learns that nothing ran. If a finished message has neither, `missed_call` looks for a call that was clearly meant, at
the end of the message only: a call ends the reply, but an explanation of a format continues. What it finds becomes a
diagnostic too, and is neither run nor hidden.

Invariants:

- The result does not depend on how the text is split into chunks (`tests/dialects/test_incremental.py`).
- All segments together are the content and reasoning of the `Reading`.
- Time is linear in the length of the text (`ParserState.arrive`); nesting is limited.
- Only tools on offer are called, by their exact name or an alias that the caller gave.

Tried and rejected:

- One parser per format, tried in turn (as inference servers do). Each searches the whole text for its own marker, so
  markup inside an argument of another format becomes a call, and examples in prose run: 38 such parsers in a row made
  calls of half of the texts that hold none. Text that never closes its tags takes quadratic time.
- Removing thought and code before parsing. A call whose argument holds `</think>` or a fence loses its end.
- Accepting names that are nearly right. A model that writes `Bash` may not mean `shell_exec`. The diagnostic lists the
  tools, and the model calls again.
- Completing truncated calls. `rm -rf /tmp/build` cut after `/tmp` deletes something else.
- A list of all tags that quote. Models invent them; an unknown pair of tags quotes unless its name announces calls.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from chatops.dialects.chat_template import (
    enter_channel,
    read_channel_end,
    read_channel_header,
    read_end_of_text,
    read_kimi_part,
    read_turn_header,
)
from chatops.dialects.formats.base import (
    TOO_EARLY,
    Call,
    NoCall,
    OfferedTools,
    Opening,
    ReadCalls,
    skip_space,
)
from chatops.dialects.formats.json_objects import read_objects
from chatops.dialects.formats.marked import MARK_READERS, TAG_READERS, read_action, read_prompt
from chatops.dialects.formats.unmarked import TextUpTo, may_be_call, read_whole_message
from chatops.dialects.json_reader import after_match
from chatops.dialects.literal_text import COMMENT_ENDS, SQUARE_QUOTING_ENDS, result_ends
from chatops.dialects.missed_calls import missed_call, thought_call
from chatops.dialects.parser_state import (
    ANYTHING,
    END_OF_MESSAGE,
    AnswerMarkup,
    Continuation,
    ParserState,
    Progress,
    apply_outcome,
    skip_code_span,
    take_calls,
)
from chatops.dialects.quoting import (
    begin_fence,
    begin_literal_line,
    begin_quotation,
    line_may_begin,
    note_unknown_tag,
    read_quoting_tag,
)
from chatops.dialects.reading import Diagnostic, Reading, Segment, Tools
from chatops.dialects.scanner import KINDS, LINE_START, SCAN, SCAN_IN_SPAN, TagKind, incomplete_from
from chatops.dialects.thought import (
    ARROW_ENDS,
    SQUARE_ENDS,
    begin_thought,
    end_unopened_thought,
    read_closing_thought_tag,
    read_thought_tag,
)

_GIGACHAT_HEADER = "function call<|role_sep|>"
_BEGUN_HEADERS = (
    *("to=", "assistant to=", "assistant<|channel|>", "assistant<|message|>", "analysis<|message|>"),
    *("commentary<|message|>", "final<|message|>", "commentary to=", "analysis to=", _GIGACHAT_HEADER),
)
"""Beginnings of a message whose header was begun in the prompt."""
_MAX_HEADER = max(map(len, _BEGUN_HEADERS))
_BLANKS = re.compile(r"[\s\ufeff\u200b]*+")
"""White space, and the invisible characters that editors put at the beginning of files."""
_CHANNEL_START = "|start|"
_HANDLERS: Mapping[TagKind, Callable[[ParserState, re.Match[str]], Continuation]] = {
    TagKind.THOUGHT_ENDS: read_closing_thought_tag,
    TagKind.CHANNEL_HEADER: read_channel_header,
    TagKind.CHANNEL_ENDS: read_channel_end,
    TagKind.END_OF_TEXT: read_end_of_text,
    TagKind.TURN: read_turn_header,
    TagKind.PART: read_kimi_part,
}
"""The functions that handle the tags whose word alone says what they are."""
_CUT_BY_LIMIT = "length"
"""The finish reason of a message that the server cut at a limit."""


def read_calls(
    text: str, tools: Tools, *, finish_reason: str = "stop", aliases: Mapping[str, str] | None = None
) -> Reading:
    """Read a complete message. See `CallReader`."""
    reader = CallReader(tools, aliases=aliases)
    reader._state.arrive(text)
    return reader.close(finish_reason)[1]


class CallReader:
    """Reader of one message that arrives in chunks.

    `tools` are the tools on offer, name → schema; a call of any other becomes a diagnostic. With None, nothing is read
    as a call, and only thought is separated from text. `aliases` maps names that models were trained with to tools
    (`brave_search` → `web_search`).
    """

    def __init__(self, tools: Tools | None, *, aliases: Mapping[str, str] | None = None) -> None:
        self._state = ParserState(OfferedTools(tools, aliases or {}), start_mode=at_start, text_mode=in_text)

    def feed(self, chunk: str) -> list[Segment]:
        """Read the next chunk; return the content and reasoning that are certain by now."""
        if chunk and self._state.arrive(chunk):
            self._state.run()
        return self._state.result.drain()

    def close(self, finish_reason: str = "stop") -> tuple[list[Segment], Reading]:
        """End the message; return the last segments and the whole reading.

        After `finish_reason` "length", only calls with their closing mark count: the arguments of the others may be cut
        off.
        """
        state = self._state
        state.final = True
        state.hold = None
        state.run()
        state.result.finish()
        segments = state.result.drain()
        cut = finish_reason == _CUT_BY_LIMIT
        reading = state.result.build(cut=cut)
        if state.offered.are_read and not cut and not state.result.has_entries:
            missed = self._missed_call(reading)
            if missed is not None:
                reading = replace(reading, diagnostics=(missed,), format=missed.format)
        return segments, reading

    def _missed_call(self, reading: Reading) -> Diagnostic | None:
        """Return a call that was clearly meant, in the content, or if that is empty in the thought."""
        if reading.content.strip():
            return missed_call(reading.content, self._state.declined, self._state.offered)
        thought = ParserState(self._state.offered, start_mode=at_start, text_mode=in_text)
        thought.arrive(reading.reasoning)
        thought.final = True
        thought.run()
        return thought_call(reading.reasoning, thought.result.build(cut=False))


def at_start(state: ParserState) -> Progress:
    """Decide whether the whole message may be a call. Until then, nothing of it is given out."""
    text = state.text
    at = after_match(_BLANKS, text, state.at)
    if at == len(text):
        if state.final:
            state.pass_content(at)
        return state.pause(ANYTHING)
    beginning = text[at : at + _MAX_HEADER]
    if beginning.startswith(_BEGUN_HEADERS):
        return _enter_header(state, at, beginning)
    if not state.final and any(header.startswith(beginning) for header in _BEGUN_HEADERS):
        return state.pause(ANYTHING)
    # A tag announces a call itself, so a message that begins with one need not be held back as a whole.
    can_be_call = may_be_call(text, at, state.offered) if state.offered.are_read and text[at] != "<" else False
    if can_be_call is TOO_EARLY and not state.final:
        return state.pause(ANYTHING)
    state.mode = hold_message if can_be_call is True and not state.result.has_entries else state.text_mode
    state.pass_content(at)
    state.at_line_start = True
    return Progress.ADVANCED


def _enter_header(state: ParserState, at: int, beginning: str) -> Progress:
    """Handle a header whose first part was in the prompt."""
    text = state.text
    state.pass_content(at)
    continuation: Continuation = at
    if not beginning.startswith(_GIGACHAT_HEADER):
        continuation = enter_channel(state, at, at)
    else:
        begin = skip_space(text, at + len(_GIGACHAT_HEADER))
        if begin == len(text) and not state.final:
            return state.pause(ANYTHING)
        if text.startswith(("{", "["), begin):
            outcome = read_objects(text, begin, state.offered, format="gigachat3")
            continuation = apply_outcome(state, at, at, outcome)
    if isinstance(continuation, Progress):
        return continuation
    state.at_line_start = True
    state.mode = state.text_mode
    return Progress.ADVANCED


def hold_message(state: ParserState) -> Progress:
    """Hold everything back until the message ends, then read all of it as calls if it is nothing else."""
    if not state.final:
        return state.pause(END_OF_MESSAGE)
    outcome = read_whole_message(state.text, state.at, state.offered)
    if isinstance(outcome, TextUpTo):
        text_end = outcome.end
    elif any(isinstance(item, Call) for item in outcome.items):
        take_calls(state, outcome)
        return Progress.PAUSED
    else:
        state.result.add_diagnostics(outcome, state.text, state.base)
        text_end = len(state.text)
    state.at_line_start = text_end == state.at
    state.pass_content(text_end)
    state.mode = state.text_mode
    return Progress.ADVANCED


def in_text(state: ParserState) -> Progress:
    """Pass text as content up to the next mark, and handle that."""
    text = state.text
    if state.hold is None:
        state.hold = len(text) + 1 if state.final else incomplete_from(text, state.at)
    hold = state.hold
    continuation: Continuation = state.at
    if state.at_line_start:
        if not state.final and line_may_begin(text, state.at):
            return state.pause(ANYTHING)
        line = LINE_START.match(text, state.at)
        if line and not state.answer_markup:
            continuation = _handle_line(state, line)
    while isinstance(continuation, int):
        mark = (SCAN_IN_SPAN if state.backtick_runs else SCAN).search(text, continuation)
        if mark is None or mark.start() >= hold:
            state.pass_content(min(hold, len(text)))
            return state.pause(ANYTHING)
        continuation = _handle_match(state, mark)
    return continuation


def _handle_match(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle a match of `SCAN` or `SCAN_IN_SPAN`."""
    if mark["word"]:
        return _handle_tag(state, mark)
    if mark["run"]:
        if not state.answer_markup:
            _count_backticks(state, len(mark["run"]))
        return mark.end()
    if mark[0][0] == "\n":
        if mark.re is SCAN_IN_SPAN and mark["blank"] is not None:
            state.backtick_runs.clear()
            return mark.end() - 1
        return mark.end() if state.answer_markup else _handle_line(state, mark)
    if state.answer_markup:
        return mark.end()
    if mark["other"]:
        return note_unknown_tag(state, mark)
    if mark[0] == "<!--":
        return begin_quotation(state, mark, COMMENT_ENDS)
    return _handle_mark(state, mark)


def _count_backticks(state: ParserState, length: int) -> None:
    """Close the code span that a run of the same length opened, or note that this run may open one."""
    if length in state.backtick_runs:
        del state.backtick_runs[state.backtick_runs.index(length) :]
    else:
        state.backtick_runs.append(length)


def _handle_mark(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle marks that are not tags."""
    text = mark[0]
    if text in ("[THINK]", "◁think▷"):
        return begin_thought(state, mark, SQUARE_ENDS if text == "[THINK]" else ARROW_ENDS, mark.end())
    if text in ("[/THINK]", "◁/think▷"):
        return end_unopened_thought(state, mark, mark.end())
    if text in SQUARE_QUOTING_ENDS:
        return begin_quotation(state, mark, SQUARE_QUOTING_ENDS[text])
    if text.startswith("[result "):
        return begin_quotation(state, mark, result_ends(text.split()[1]))
    return _read_call(state, mark.start(), mark.end(), MARK_READERS[text])


def _handle_tag(state: ParserState, mark: re.Match[str]) -> Continuation:
    word = mark["word"].lower().removesuffix(":opensource")
    kind = KINDS.get(word)
    if kind is None:
        return mark.end() if state.answer_markup else note_unknown_tag(state, mark)
    if state.answer_markup and not _may_end_answer(state.answer_markup, kind, word):
        return mark.end()
    match kind:
        case TagKind.CALL:
            return _read_call(state, mark.start(), mark.end(), TAG_READERS[word])
        case TagKind.THOUGHT:
            return read_thought_tag(state, mark, word)
        case TagKind.QUOTED:
            return read_quoting_tag(state, mark, word)
        case _:
            return _HANDLERS[kind](state, mark)


def _may_end_answer(markup: AnswerMarkup, kind: TagKind, word: str) -> bool:
    """Return True if a tag may end the answer to the user."""
    if markup is AnswerMarkup.RESPONSE:
        return kind is TagKind.PART
    return kind is TagKind.CHANNEL_ENDS or word == _CHANNEL_START


def _read_call(state: ParserState, start: int, after: int, read: ReadCalls) -> Continuation:
    """Read the call whose mark is at `start` and ends at `after`, unless the mark is in a code span."""
    if not state.offered.are_read:
        return after
    hidden = skip_code_span(state, start)
    if hidden is not None:
        return hidden
    opening = Opening(text=state.text, start=start, after=after, offered=state.offered, wrapper=state.wrapper)
    return apply_outcome(state, start, after, read(opening))


def _handle_line(state: ParserState, mark: re.Match[str]) -> Continuation:
    """Handle the beginning of a line that `LINE_START` or `SCAN` found."""
    if mark["fence"]:
        return begin_fence(state, mark)
    if mark["quote"] or mark["indented"] is not None:
        return begin_literal_line(state, mark)
    start = mark.start("prompt") if mark["prompt"] else mark.start("action")
    opening = Opening(text=state.text, start=start, after=mark.end(), offered=state.offered)
    outcome = read_action(opening) if mark["action"] else read_prompt(opening)
    if mark["prompt"] and isinstance(outcome, NoCall) and (outcome.sure or state.final):
        # `>>>` without a call is a quotation of a quotation.
        return begin_literal_line(state, mark)
    hidden = skip_code_span(state, start)
    continuation = apply_outcome(state, start, mark.end(), outcome) if hidden is None else hidden
    if continuation is Progress.PAUSED and state.at == start:
        state.at_line_start = True
    return continuation

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
says what it is (`KINDS`), and a tag with an unknown word is text. The first of these decides: thought, a call marker,
code, a quotation. A call is read as a unit by the reader of its grammar (`formats/marked.py` has the table), so its
arguments are data and nothing in them is interpreted.

Outcome. The reader of a format returns `CallBlock` or `NoCall`, each with `sure`: True if no further text could change
it. An outcome that is not sure is discarded until more text or the end of the message has come (`parser_state.py`).

Hold-back. Text is given out as soon as it is certain:

- The end of the text is held back while it may be the beginning of a marker (`hold_from`).
- A message that begins like a call without a marker is held back until its end: a single word of prose before or after
  makes it text. So is a fence that may be a call, until other text follows.
- Calls and diagnostics are given out only by `close`.
- One segment takes back earlier content: a closing tag of thought whose opening tag was in the prompt
  (`ReclassifiedSegment`).

What is text, whatever it looks like: calls in code spans, fences that are followed by other text, indented code,
quotations, comments, echoes of tool output, invented turns of other roles, the answer to the user in its own block, and
pairs of unknown tags (`literal_text.py`, `open_tags.py`).

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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum, auto

from chatops.dialects.chat_template import (
    TURNS,
    channel_ends,
    channel_header,
    end_of_text,
    enter_channel,
    kimi_part,
    turn_header,
)
from chatops.dialects.formats.base import (
    CLOSER,
    END_OF_TEXT,
    TAG_WORD,
    Call,
    CallBlock,
    NoCall,
    OfferedTools,
    Opening,
    ReadCalls,
    only_closers_follow,
    skip_space,
)
from chatops.dialects.formats.channels import CHANNEL_ENDS
from chatops.dialects.formats.json_objects import CallBuilder, read_objects
from chatops.dialects.formats.marked import OPENS, READ_MARK, read_action, read_prompt
from chatops.dialects.formats.unmarked import begins, read_whole_message
from chatops.dialects.json_reader import read_value
from chatops.dialects.literal_text import COMMENT_ENDS, QUOTING_ENDS, SQUARE_QUOTING_ENDS, result_ends
from chatops.dialects.parser_state import (
    ANYTHING,
    END_OF_MESSAGE,
    AnswerMarkup,
    Continuation,
    ParserState,
    ScanProgress,
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
from chatops.dialects.reading import (
    Confidence,
    Diagnostic,
    DiagnosticKind,
    Reading,
    Segment,
    Tools,
    UnreadableValueError,
)
from chatops.dialects.thought import (
    ARROWS,
    CLOSING,
    OPENING,
    SQUARE,
    closing_thought_tag,
    think,
    thought_ended,
    thought_tag,
)


class TagKind(Enum):
    """Role of a tag, by its word."""

    CALL = auto()
    THOUGHT = auto()
    THOUGHT_ENDS = auto()
    QUOTED = auto()
    """Tool output, declarations and comments: shown, never run."""
    CHANNEL_HEADER = auto()
    """The header of a message in a channel."""
    CHANNEL_ENDS = auto()
    END_OF_TEXT = auto()
    PART = auto()
    """The mark of a part in a message of Kimi K3."""
    TURN = auto()
    """The header of a turn, which may name a role."""


_HEADERS = (
    "to=",
    "assistant to=",
    "assistant<|channel|>",
    "assistant<|message|>",
    "analysis<|message|>",
    "commentary<|message|>",
    "final<|message|>",
    "commentary to=",
    "analysis to=",
)
_BLANKS = re.compile(r"[\s\ufeff\u200b]*+")
"""White space, and the invisible characters that editors put at the beginning of files."""
_FUNCTION_CALL = "function call<|role_sep|>"
_LONGEST_HEADER = max(map(len, (*_HEADERS, _FUNCTION_CALL)))
_CHANNEL_STARTS = "|start|"
_CUT_BY_THE_SERVER = "length"
_STEPS: Mapping[TagKind, Callable[[ParserState, re.Match[str]], Continuation]] = {
    TagKind.THOUGHT_ENDS: closing_thought_tag,
    TagKind.CHANNEL_HEADER: channel_header,
    TagKind.CHANNEL_ENDS: channel_ends,
    TagKind.END_OF_TEXT: end_of_text,
    TagKind.TURN: turn_header,
    TagKind.PART: kimi_part,
}
"""The function that handles a tag, by kind."""
_LONGEST_TAIL = 300
_REACH = 400
_MAX_EXCERPT = 200
_TAIL = re.compile(rf"(?:\s|{CLOSER.pattern}|{END_OF_TEXT.pattern})*\Z", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d][\w.-]{0,255}")
_LISTS_TOOLS = re.compile(r"<\s?tools\s*>\s*(?=[\[{])", re.IGNORECASE)
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?(?P<name>[\w-]{1,256})[^{\n]{0,80}(?=\{)")
_GLUED = re.compile(r"(?<![\w.-])(?P<name>[^\W\d][\w-]{0,255})\s*(?=\{)")
_UNREAD = "is in a format that cannot be read; nothing was run"
_IN_A_LIST = "is inside <tools>, which lists tools and calls none; nothing was run"
_THOUGHT = "is inside your reasoning, where nothing is run; make the call after the reasoning has ended"
_SPACES = r"[ \t\r]{0,16}"
_MARKS = (*READ_MARK, "[THINK]", "[/THINK]", "◁think▷", "◁/think▷", *SQUARE_QUOTING_ENDS)


def _literal(mark: str) -> str:
    """Return the pattern of a mark, which is a word of its own where it begins like one."""
    return rf"\b{re.escape(mark)}" if mark[0].isalpha() else re.escape(mark)


_TAGS = (
    rf"(?:{'|'.join(map(_literal, _MARKS))}|\[result [0-9a-f]{{16}} of )|<[ ]?(?P<word>{TAG_WORD})|<!--|(?P<run>`+)"
    r"|(?P<other>\[/?[^\W\d][\w-]{0,40}(?=\])|<[ ]?/?(?=[^\s<>!?=/\[\](){}]))"
)
_LINES = (
    rf"(?P<indented>{_SPACES}\n(?: {{4}}|\t))"
    rf"|{_SPACES}(?:(?P<fence>`{{3,40}}(?!`)|~{{3,40}}(?!~))|(?P<prompt>>>>)|(?P<quote>>)|(?P<action>Action ?:))"
)
SCAN = re.compile(rf"{_TAGS}|\n(?:{_LINES})")
"""Pattern of everything that may begin something."""
SCAN_IN_SPAN = re.compile(rf"{_TAGS}|\n(?:{_LINES}|(?P<blank>{_SPACES}\n))")
"""The same, plus blank lines, which end a code span."""
LINE_START = re.compile(rf"(?:{_LINES})")
"""Constructs that begin a line, matched right at its beginning."""
_LONGEST_OPENING = 120
_ENDS_OF_TEXT = (
    "|im_end|",
    "|eot_id|",
    "|eom_id|",
    "|endoftext|",
    "|end_of_text|",
    "|end_of_turn|",
    "|role_end|",
    "/s",
    "end_of_turn",
    "｜end▁of▁sentence｜",
    "|end_message|",
    "|content_model_end_sampling|",
    "|end_of_msg|",
    "|end_response|",
    "seed:eos",
    "turn|",
)


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
        """End the message; return the last pieces and the whole reading.

        After `finish_reason` "length", only calls with their closing mark count: the arguments of the others may be cut
        off.
        """
        state = self._state
        state.final = True
        state.hold = -1
        state.run()
        state.result.finish()
        pieces = state.result.drain()
        cut = finish_reason == _CUT_BY_THE_SERVER
        reading = state.result.build(cut=cut)
        if state.offered.are_read and not cut and not state.result.has_calls:
            missed = self._missed(reading)
            if missed is not None:
                reading = replace(reading, diagnostics=(missed,), format=missed.format)
        return pieces, reading

    def _missed(self, reading: Reading) -> Diagnostic | None:
        if reading.content.strip():
            return missed_call(reading.content, self._state.declined, self._state.offered)
        thought = ParserState(self._state.offered, start_mode=at_start, text_mode=in_text)
        thought.arrive(reading.reasoning)
        thought.final = True
        thought.run()
        return thought_call(reading.reasoning, thought.result.build(cut=False))


def at_start(state: ParserState) -> bool:
    """Decide whether the whole message may be a call. Until then, nothing of it is given out."""
    text = state.text
    at = _after_blanks(text, state.at)
    if at == len(text):
        if state.final:
            state.pass_content(at)
            return False
        return state.pause(ANYTHING)
    beginning = text[at : at + _LONGEST_HEADER]
    if beginning.startswith((*_HEADERS, _FUNCTION_CALL)):
        return _header(state, at, beginning)
    if not state.final and any(header.startswith(beginning) for header in (*_HEADERS, _FUNCTION_CALL)):
        return state.pause(ANYTHING)
    # A tag announces a call itself, so a message that begins with one need not be held back as a whole.
    whole = begins(text, at, state.offered) if state.offered.are_read and text[at] != "<" else False
    if whole is None and not state.final:
        return state.pause(ANYTHING)
    state.mode = _held if whole and not state.result.has_calls else state.text_mode
    state.pass_content(at)
    state.at_line_start = True
    return True


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _header(state: ParserState, at: int, beginning: str) -> bool:
    """Handle a header whose first part was in the prompt."""
    text = state.text
    state.pass_content(at)
    if beginning.startswith(_FUNCTION_CALL):
        begin = skip_space(text, at + len(_FUNCTION_CALL))
        if begin == len(text) and not state.final:
            return state.pause(ANYTHING)
        if text.startswith(("{", "["), begin):
            found = read_objects(text, begin, state.offered, format="gigachat3")
            return apply_outcome(state, at, at, found) is ScanProgress.ADVANCED
        step: Continuation = at
    else:
        step = enter_channel(state, at, at)
    if isinstance(step, ScanProgress):
        return step is ScanProgress.ADVANCED
    state.at_line_start = True
    state.mode = state.text_mode
    return True


def _held(state: ParserState) -> bool:
    """Hold everything back until the message ends."""
    if not state.final:
        return state.pause(END_OF_MESSAGE)
    found = read_whole_message(state.text, state.at, state.offered)
    if isinstance(found, CallBlock):
        if any(isinstance(item, Call) for item in found.items):
            take_calls(state, found)
            return False
        state.result.add_diagnostics(found, state.text, state.base)
        found = len(state.text)
    state.at_line_start = found == state.at
    state.pass_content(found)
    state.mode = state.text_mode
    return True


def in_text(state: ParserState) -> bool:
    """Pass text as content up to the next construct, and handle that."""
    text = state.text
    if state.hold < 0:
        state.hold = len(text) + 1 if state.final else hold_from(text, state.at, BEGINNINGS)
    step: Continuation = state.at
    if state.at_line_start:
        if not state.final and line_may_begin(text, state.at):
            return state.pause(ANYTHING)
        line = LINE_START.match(text, state.at)
        if line and not state.answer_markup:
            step = _line(state, line)
    while isinstance(step, int):
        found = (SCAN_IN_SPAN if state.backtick_runs else SCAN).search(text, step)
        if found is None or found.start() >= state.hold:
            state.pass_content(min(state.hold, len(text)))
            return False if state.final else state.pause(ANYTHING)
        step = _at(state, found)
    return step is ScanProgress.ADVANCED


def _at(state: ParserState, found: re.Match[str]) -> Continuation:
    """Handle a match of `SCAN`."""
    if found["word"]:
        return _tag(state, found)
    if found["run"]:
        if not state.answer_markup:
            _count_run(state, len(found["run"]))
        return found.end()
    if found[0][0] == "\n":
        if found.re is SCAN_IN_SPAN and found["blank"] is not None:
            state.backtick_runs.clear()
            return found.end() - 1
        return found.end() if state.answer_markup else _line(state, found)
    if state.answer_markup:
        return found.end()
    if found["other"]:
        return note_unknown_tag(state, found)
    if found[0] == "<!--":
        return begin_quotation(state, found, COMMENT_ENDS)
    return _mark(state, found)


def _count_run(state: ParserState, length: int) -> None:
    """Close the code span that a run of the same length opened, or note that this run may open one."""
    if length in state.backtick_runs:
        del state.backtick_runs[state.backtick_runs.index(length) :]
    else:
        state.backtick_runs.append(length)


def _mark(state: ParserState, found: re.Match[str]) -> Continuation:
    """Handle marks that are not tags."""
    mark = found[0]
    if mark in ("[THINK]", "◁think▷"):
        return think(state, found, SQUARE if mark == "[THINK]" else ARROWS, found.end())
    if mark in ("[/THINK]", "◁/think▷"):
        return thought_ended(state, found, found.end())
    if mark in SQUARE_QUOTING_ENDS:
        return begin_quotation(state, found, SQUARE_QUOTING_ENDS[mark])
    if mark.startswith("[result "):
        return begin_quotation(state, found, result_ends(mark.split()[1]))
    return _call(state, found.start(), found.end(), READ_MARK[mark])


def _tag(state: ParserState, found: re.Match[str]) -> Continuation:
    word = found["word"].lower().removesuffix(":opensource")
    kind = KINDS.get(word)
    if kind is None:
        return found.end() if state.answer_markup else note_unknown_tag(state, found)
    if state.answer_markup and not _may_leave(state.answer_markup, kind, word):
        return found.end()
    match kind:
        case TagKind.CALL:
            return _call(state, found.start(), found.end(), OPENS[word])
        case TagKind.THOUGHT:
            return thought_tag(state, found, word)
        case TagKind.QUOTED:
            return read_quoting_tag(state, found, word)
        case _:
            return _STEPS[kind](state, found)


def _may_leave(block: AnswerMarkup, kind: TagKind, word: str) -> bool:
    """Return True if a tag may end the answer to the user."""
    if block is AnswerMarkup.RESPONSE:
        return kind is TagKind.PART
    return kind is TagKind.CHANNEL_ENDS or word == _CHANNEL_STARTS


def _call(state: ParserState, start: int, after: int, read: ReadCalls) -> Continuation:
    if not state.offered.are_read:
        return after
    hidden = skip_code_span(state, start)
    if hidden is not None:
        return hidden
    opening = Opening(text=state.text, start=start, after=after, offered=state.offered, wrapper=state.wrapper)
    return apply_outcome(state, start, after, read(opening))


def _line(state: ParserState, found: re.Match[str]) -> Continuation:
    """Handle the beginning of a line that `LINE_START` or `SCAN` found."""
    if found["indented"] is not None:
        return begin_literal_line(state, found)
    if found["fence"]:
        return begin_fence(state, found)
    if found["quote"]:
        return begin_literal_line(state, found)
    start = found.start("prompt") if found["prompt"] else found.start("action")
    opening = Opening(text=state.text, start=start, after=found.end(), offered=state.offered)
    outcome = read_action(opening) if found["action"] else read_prompt(opening)
    if found["prompt"] and isinstance(outcome, NoCall) and (outcome.sure or state.final):
        return begin_literal_line(state, found)
    hidden = skip_code_span(state, start)
    step = apply_outcome(state, start, found.end(), outcome) if hidden is None else hidden
    if step is ScanProgress.PAUSED and state.at == start:
        state.at_line_start = True
    return step


def missed_call(content: str, declined: int, offered: OfferedTools) -> Diagnostic | None:
    """Return the diagnostic for a call at the end of `content` that no format reads; None without one.

    `declined` is the index of the last call marker that no call followed, -1 without any.
    """
    tail = _TAIL.search(content, max(len(content) - _LONGEST_TAIL, 0))
    end = tail.start() if tail else len(content)
    closes_a_call = CLOSER.search(content, end) is not None
    if not closes_a_call and not content.endswith(("}", ")", "]"), 0, end):
        return None
    if declined >= 0 and (listed := _LISTS_TOOLS.match(content, declined)):
        name = _called_tool(content, listed.end(), offered)
        return _diagnostic(name, _IN_A_LIST, content, declined) if name else None
    if declined >= 0:
        named = next(
            (
                name
                for word in _WORD.finditer(content, declined, min(declined + _REACH, end))
                if (name := offered.named(word[0]))
            ),
            None,
        )
        return _diagnostic(named, _UNREAD, content, declined) if named else None
    begin = max(end - _REACH, 0)
    for found in (
        *_RECIPIENT.finditer(content, begin, end),
        *(_GLUED.finditer(content, begin, end) if closes_a_call else ()),
    ):
        if name := offered.named(found["name"]):
            return _diagnostic(name, _UNREAD, content, found.start())
    return None


def thought_call(thought: str, inside: Reading) -> Diagnostic | None:
    """Return the diagnostic for a reply that is only `thought` and ends with a call; `inside` is its reading."""
    if not inside.calls:
        return None
    call = inside.calls[-1]
    if call.confidence is not Confidence.HIGH or not only_closers_follow(thought, call.end):
        return None
    return Diagnostic(
        kind=DiagnosticKind.MISSED,
        message=_THOUGHT,
        name=call.name,
        format=call.format,
        excerpt=call.arguments[:_MAX_EXCERPT],
    )


def _called_tool(text: str, at: int, offered: OfferedTools) -> str | None:
    """Return the tool that the JSON at `at` calls; None if it only describes one."""
    try:
        read = read_value(text, at, close_open=True)
    except UnreadableValueError:
        return None
    items = CallBuilder(offered, at, read.end, read.repairs, read.closed).unmarked(read.value) or []
    return next((item.name for item in items if offered.named(item.name)), None)


def _diagnostic(name: str, message: str, text: str, start: int) -> Diagnostic:
    return Diagnostic(
        kind=DiagnosticKind.MISSED, message=message, name=name, excerpt=text[start : start + _MAX_EXCERPT]
    )


def _partial(literal: str) -> str:
    """Return a pattern for the non-empty beginnings of `literal`."""
    pattern = ""
    for char in reversed(literal):
        pattern = f"{re.escape(char)}(?:{pattern})?" if pattern else re.escape(char)
    return rf"\b{pattern}" if literal[0].isalpha() else pattern


_HELD = re.compile(
    rf"(?:(?P<tag><[ ]?(?P<word>[/!]?(?:[A-Za-z|｜][\w:|｜▁/-]{{0,63}})?-{{0,2}})?)"
    rf"|{'|'.join(map(_partial, (*_MARKS, '[result ')))}|\[result [0-9a-f]{{1,16}}(?: (?:of?)?)?|`+"
    rf"|\[/?(?:[^\W\d][\w-]{{0,40}})?|\n{_SPACES}(?:\n {{0,3}}|[`~>]{{1,2}}|{_partial('Action :')})?)\Z"
)


def hold_from(text: str, start: int, words: frozenset[str]) -> int:
    """Return the index, at least `start`, from which the end of `text` may be an incomplete construct."""
    begin = max(start, len(text) - _LONGEST_OPENING)
    for found in _HELD.finditer(text, begin):
        word = found["word"]
        if found["tag"] is None or not word or word.lower() in words:
            return found.start()
    return len(text)


def beginnings(words: Iterable[str]) -> frozenset[str]:
    """Return all non-empty prefixes of the `words`, the words included."""
    return frozenset(word[:end] for word in words for end in range(1, len(word) + 1))


KINDS: Mapping[str, TagKind] = {
    **dict.fromkeys(_ENDS_OF_TEXT, TagKind.END_OF_TEXT),
    **dict.fromkeys(TURNS, TagKind.TURN),
    **dict.fromkeys(CHANNEL_ENDS, TagKind.CHANNEL_ENDS),
    "|open|": TagKind.PART,
    "|close|": TagKind.PART,
    "|start|": TagKind.CHANNEL_HEADER,
    "|channel|": TagKind.CHANNEL_HEADER,
    **dict.fromkeys(QUOTING_ENDS, TagKind.QUOTED),
    **dict.fromkeys(CLOSING, TagKind.THOUGHT_ENDS),
    **dict.fromkeys(OPENING, TagKind.THOUGHT),
    **dict.fromkeys(OPENS, TagKind.CALL),
}
"""The role of a tag, by its word."""


BEGINNINGS = beginnings(
    [*KINDS, "!--", *(f"{word}:opensource" for word in ("tool_call", "tool_calls", "think", "/think"))]
)
"""All prefixes of known words."""

"""Read a model's reply as it arrives: one scan from left to right that separates calls and thought from text.

Theory of operation

Modes. `Message` holds the text and the position `at`. Its `mode` is a function that reads on from there: `at_start` at
the beginning of the content, `in_text` in text, and others in thought, quotations, fences and after a call. A mode
passes text as content or thought, removes it, changes the mode, or pauses for more text.

One scan. In text, a pattern (`scanner.SCAN`) finds the next place where something may begin. The first of these
decides: thought, a call marker, code, a quotation. A call is read as a unit, so its arguments are data and nothing in
them is interpreted.

Outcome. The reader of a format returns `Found` or `Nothing`, each with `sure`: True if no further text could change it.
An outcome that is not sure is discarded until more text or the end of the message has come.

Hold-back. Text is given out as soon as it is certain:

- The end of the text is held back while it may be the beginning of a marker (`hold_from`).
- A message that begins like a call without a marker is held back until its end: a single word of prose before or after
  makes it text. So is a fence that may be a call, until other text follows.
- Calls and diagnostics are given out only by `close`.
- One piece takes back earlier content: a closing tag of thought whose opening tag was in the prompt
  (`ReclassifiedPiece`).

What is text, whatever it looks like: calls in code spans, fences that are followed by other text, indented code,
quotations, comments, echoes of tool output, invented turns of other roles, the framed answer to the user, and pairs of
unknown tags (`masks.py`).

Confidence. A call is HIGH unless it may have been an example: it is in a fence that is not the whole message, was
introduced as an example, is in an unclosed unknown tag, or is code after a marker that named no tool. A LOW call is
still a call, but always asks the user.

Repairs. A value is repaired only where one meaning is left, and each repair is listed with the call. A value that was
cut off is never completed. A call that was recognised but cannot be used becomes a `Diagnostic`, so that the model
learns that nothing ran. If a finished message has neither, `missed.py` looks for a call that was meant.

Invariants: the result does not depend on how the text is split into chunks (`tests/dialects/test_incremental.py`), all
pieces together are the content and reasoning of the `Reading`, and time is linear in the length of the text
(`Message.arrive`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from chatops.dialects.chat_template import end_of_text, frame, frame_ends, part, read_frame, turn
from chatops.dialects.formats.base import Call, Found, Nothing, Offers, Opening, ReadCalls, skip_space
from chatops.dialects.formats.json_objects import read_objects
from chatops.dialects.formats.marked import MARKS, OPENS
from chatops.dialects.formats.named import read_action, read_prompt
from chatops.dialects.formats.unmarked import begins, read_whole_message
from chatops.dialects.masks import COMMENT_ENDS, SQUARE_QUOTING, fence_ends
from chatops.dialects.message import ANYTHING, NEVER, Message, Saying
from chatops.dialects.missed import missed_call, thought_call
from chatops.dialects.quoting import fence, indented_code, line_may_begin, quote, quoted, quoting_tag, unknown_tag
from chatops.dialects.reading import Diagnostic, Piece, Reading, Tools
from chatops.dialects.scanner import BEGINNINGS, KINDS, LINE_START, SCAN, SCAN_IN_SPAN, Kind, hold_from
from chatops.dialects.settle import Step, Went, masked, settle, take
from chatops.dialects.thought import ARROWS, SQUARE, closing_thought_tag, think, thought_ended, thought_tag

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
_LONGEST = max(map(len, (*_HEADERS, _FUNCTION_CALL)))
_CHANNEL_STARTS = "|start|"
_CUT_BY_THE_SERVER = "length"


def read_calls(
    text: str, tools: Tools, *, finish_reason: str = "stop", aliases: Mapping[str, str] | None = None
) -> Reading:
    """Read a complete message. See `CallReader`."""
    reader = CallReader(tools, aliases=aliases)
    reader._message.arrive(text)
    return reader.close(finish_reason)[1]


class CallReader:
    """Reader of one message that arrives in chunks.

    `tools` are the tools on offer, name → schema; a call of any other becomes a diagnostic. With None, nothing is read
    as a call, and only thought is separated from text. `aliases` maps names that models were trained with to tools
    (`brave_search` → `web_search`).
    """

    def __init__(self, tools: Tools | None, *, aliases: Mapping[str, str] | None = None) -> None:
        self._message = Message(Offers(tools, aliases or {}), begin=at_start, plain=in_text)

    def feed(self, chunk: str) -> list[Piece]:
        """Read the next chunk; return the content and reasoning that are certain by now."""
        if chunk and self._message.arrive(chunk):
            self._message.go_on()
        return self._message.ledger.drain()

    def close(self, finish_reason: str = "stop") -> tuple[list[Piece], Reading]:
        """End the message; return the last pieces and the whole reading.

        After `finish_reason` "length", only calls with their closing mark count: the arguments of the others may be cut
        off.
        """
        message = self._message
        message.final = True
        message.hold = -1
        message.go_on()
        message.ledger.finish()
        pieces = message.ledger.drain()
        cut = finish_reason == _CUT_BY_THE_SERVER
        reading = message.ledger.reading(cut=cut)
        if message.offers.are_read and not cut and not message.ledger.has_calls:
            missed = self._missed(reading)
            if missed is not None:
                reading = replace(reading, diagnostics=(missed,), format=missed.format)
        return pieces, reading

    def _missed(self, reading: Reading) -> Diagnostic | None:
        if reading.content.strip():
            return missed_call(reading.content, self._message.declined, self._message.offers)
        thought = Message(self._message.offers, begin=at_start, plain=in_text)
        thought.arrive(reading.reasoning)
        thought.final = True
        thought.go_on()
        return thought_call(reading.reasoning, thought.ledger.reading(cut=False))


def at_start(message: Message) -> bool:
    """Decide whether the whole message may be a call. Until then, nothing of it is given out."""
    text = message.text
    at = _after_blanks(text, message.at)
    if at == len(text):
        if message.final:
            message.pass_content(at)
            return False
        return message.pause(ANYTHING)
    beginning = text[at : at + _LONGEST]
    if beginning.startswith((*_HEADERS, _FUNCTION_CALL)):
        return _header(message, at, beginning)
    if not message.final and any(each.startswith(beginning) for each in (*_HEADERS, _FUNCTION_CALL)):
        return message.pause(ANYTHING)
    # A tag announces a call itself, so a message that begins with one need not be held back as a whole.
    whole = begins(text, at, message.offers) if message.offers.are_read and text[at] != "<" else False
    if whole is None and not message.final:
        return message.pause(ANYTHING)
    message.mode = _held if whole and not message.ledger.has_calls else message.plain
    message.pass_content(at)
    message.fresh = True
    return True


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _header(message: Message, at: int, beginning: str) -> bool:
    """Handle a header whose first part was in the prompt."""
    text = message.text
    message.pass_content(at)
    if beginning.startswith(_FUNCTION_CALL):
        begin = skip_space(text, at + len(_FUNCTION_CALL))
        if begin == len(text) and not message.final:
            return message.pause(ANYTHING)
        if text.startswith(("{", "["), begin):
            found = read_objects(text, at, begin, message.offers, format="gigachat3")
            return settle(message, at, at, found) is Went.ON
        step: Step = at
    else:
        step = read_frame(message, at, at)
    if isinstance(step, Went):
        return step is Went.ON
    message.fresh = True
    message.mode = message.plain
    return True


def _held(message: Message) -> bool:
    """Hold everything back until the message ends."""
    if not message.final:
        return message.pause(NEVER)
    found = read_whole_message(message.text, message.at, message.offers)
    if isinstance(found, Found):
        if any(isinstance(each, Call) for each in found.items):
            take(message, found)
            return False
        message.ledger.note(found, message.text, message.base)
        found = len(message.text)
    message.fresh = found == message.at
    message.pass_content(found)
    message.mode = message.plain
    return True


def in_text(message: Message) -> bool:
    """Pass text as content up to the next construct, and handle that."""
    text = message.text
    if message.hold < 0:
        message.hold = len(text) + 1 if message.final else hold_from(text, message.at, BEGINNINGS)
    step: Step = message.at
    if message.fresh:
        if not message.final and line_may_begin(text, message.at):
            return message.pause(ANYTHING)
        line = LINE_START.match(text, message.at)
        if line and not message.said:
            step = _line(message, line)
    while isinstance(step, int):
        found = (SCAN_IN_SPAN if message.runs else SCAN).search(text, step)
        if found is None or found.start() >= message.hold:
            message.pass_content(min(message.hold, len(text)))
            return False if message.final else message.pause(ANYTHING)
        step = _at(message, found)
    return step is Went.ON


def _at(message: Message, found: re.Match[str]) -> Step:
    """Handle a match of `SCAN`."""
    if found["word"]:
        return _tag(message, found)
    if found["run"]:
        if not message.said:
            _count_run(message, len(found["run"]))
        return found.end()
    if found[0][0] == "\n":
        if found.re is SCAN_IN_SPAN and found["blank"] is not None:
            message.runs.clear()
            return found.end() - 1
        return found.end() if message.said else _line(message, found)
    if message.said:
        return found.end()
    if found["other"]:
        return unknown_tag(message, found)
    if found[0] == "<!--":
        return quoted(message, found, COMMENT_ENDS)
    return _mark(message, found)


def _count_run(message: Message, length: int) -> None:
    """Close the code span that a run of the same length opened, or note that this run may open one."""
    if length in message.runs:
        del message.runs[message.runs.index(length) :]
    else:
        message.runs.append(length)


def _mark(message: Message, found: re.Match[str]) -> Step:
    """Handle marks that are not tags."""
    mark = found[0]
    if mark in ("[THINK]", "◁think▷"):
        return think(message, found, SQUARE if mark == "[THINK]" else ARROWS, found.end())
    if mark in ("[/THINK]", "◁/think▷"):
        return thought_ended(message, found, found.end())
    if mark in SQUARE_QUOTING:
        return quoted(message, found, SQUARE_QUOTING[mark])
    if mark.startswith("[result "):
        return quoted(message, found, fence_ends(mark.split()[1]))
    return _call(message, found.start(), found.end(), MARKS[mark])


def _tag(message: Message, found: re.Match[str]) -> Step:
    word = found["word"].lower().removesuffix(":opensource")
    kind = KINDS.get(word)
    if kind is None:
        return found.end() if message.said else unknown_tag(message, found)
    if message.said and not _may_leave(message.said, kind, word):
        return found.end()
    match kind:
        case Kind.CALL:
            return _call(message, found.start(), found.end(), OPENS[word])
        case Kind.THOUGHT:
            return thought_tag(message, found, word)
        case Kind.QUOTED:
            return quoting_tag(message, found, word)
        case _:
            return _STEPS[kind](message, found)


def _may_leave(said: Saying, kind: Kind, word: str) -> bool:
    """Return True if a tag may end the answer to the user."""
    if said is Saying.RESPONSE:
        return kind is Kind.PART
    return kind is Kind.FRAME_ENDS or word == _CHANNEL_STARTS


def _call(message: Message, start: int, after: int, read: ReadCalls) -> Step:
    if not message.offers.are_read:
        return after
    hidden = masked(message, start)
    if hidden is not None:
        return hidden
    opening = Opening(text=message.text, start=start, after=after, offers=message.offers, wrapper=message.wrapper)
    return settle(message, start, after, read(opening))


def _line(message: Message, found: re.Match[str]) -> Step:
    """Handle the beginning of a line that `LINE_START` or `SCAN` found."""
    if found["indented"] is not None:
        return indented_code(message, found)
    if found["fence"]:
        return fence(message, found)
    if found["quote"]:
        return quote(message, found)
    start = found.start("prompt") if found["prompt"] else found.start("action")
    opening = Opening(text=message.text, start=start, after=found.end(), offers=message.offers)
    outcome = read_action(opening) if found["action"] else read_prompt(opening)
    if found["prompt"] and isinstance(outcome, Nothing) and (outcome.sure or message.final):
        return quote(message, found)
    hidden = masked(message, start)
    step = settle(message, start, found.end(), outcome) if hidden is None else hidden
    if step is Went.NOWHERE and message.at == start:
        message.fresh = True
    return step


_STEPS: Mapping[Kind, Callable[[Message, re.Match[str]], Step]] = {
    Kind.THOUGHT_ENDS: closing_thought_tag,
    Kind.FRAME: frame,
    Kind.FRAME_ENDS: frame_ends,
    Kind.END_OF_TEXT: end_of_text,
    Kind.TURN: turn,
    Kind.PART: part,
}
"""The function that handles a tag, by kind."""

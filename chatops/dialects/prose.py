"""The mode for text: finds what in it begins a call, thought, code or a quotation."""

import re

from chatops.dialects.formats.base import Opening, ReadCalls
from chatops.dialects.lines import line_may_begin, read_line
from chatops.dialects.markers import BEGINNINGS, KINDS, MARKS, OPENS
from chatops.dialects.masks import COMMENT_ENDS, SQUARE_QUOTING, fence_ends
from chatops.dialects.message import ANYTHING, Message, Saying
from chatops.dialects.reasoning import ARROWS, SQUARE
from chatops.dialects.scanner import LINE_START, SCAN, SCAN_IN_SPAN, Kind, hold_from, word_of
from chatops.dialects.settle import Step, Went, masked, settle
from chatops.dialects.tags import BY_KIND, unknown_tag
from chatops.dialects.thoughts import quoted, think, thought_ended

_CHANNEL_STARTS = "|start|"


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
    word = word_of(found)
    kind = KINDS.get(word)
    if kind is None:
        return found.end() if message.said else unknown_tag(message, found)
    if message.said and not _may_leave(message.said, kind, word):
        return found.end()
    if kind is Kind.CALL:
        return _call(message, found.start(), found.end(), OPENS[word])
    return BY_KIND[kind](message, found)


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
    """Handle the beginning of a line."""
    line = read_line(message, found)
    if not isinstance(line, tuple):
        return line
    start, after, outcome = line
    hidden = masked(message, start)
    went = settle(message, start, after, outcome) if hidden is None else hidden
    if went is Went.NOWHERE and message.at == start:
        message.fresh = True
    return went

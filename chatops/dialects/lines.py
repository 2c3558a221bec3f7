"""Constructs that begin a line: code, a quotation, `Action:`, `>>>NAME`."""

import re

from chatops.dialects.formats.base import Nothing, Opening, Outcome
from chatops.dialects.formats.lines import read_action, read_prompt
from chatops.dialects.masks import CUE_REACH, may_hold_a_call, open_fence
from chatops.dialects.message import ANYTHING, Message, Mode
from chatops.dialects.quoting import HeldFence, InFence, Quoting
from chatops.dialects.settle import Step, Went, wait

_MAY_BEGIN = re.compile(
    r"[ \t\r]{0,16}(?:`{1,40}|~{1,40}|>{1,3}|A(?:c(?:t(?:i(?:o(?:n ?)?)?)?)?)?)?\Z|[ \t\r]{0,16}\n {0,3}\Z"
)
_LINE_ENDS = re.compile(r"(?=\n)")
_GOES_ON = re.compile(r"\n(?:[ \t\r]{0,64}\n)?(?: {4}|\t)")
_MAY_GO_ON = re.compile(r"\n[ \t\r]{0,64}(?:\n {0,3})?\Z")


def line_may_begin(text: str, at: int) -> bool:
    """Return True if all text from `at` on could still become a construct that begins a line."""
    return at < len(text) and _MAY_BEGIN.match(text, at) is not None


class Indented:
    """Mode for indented code: its lines are content."""

    __slots__ = ("_then",)

    def __init__(self, then: Mode) -> None:
        self._then = then

    def __call__(self, message: Message) -> bool:
        """Pass lines until the indented block ends."""
        text = message.text
        end = text.find("\n", message.at)
        if end < 0:
            message.pass_content(len(text))
            return False if message.final else message.pause(ANYTHING)
        message.pass_content(end)
        if more := _GOES_ON.match(text, end):
            message.pass_content(more.end())
            return True
        if not message.final and _MAY_GO_ON.match(text, end):
            return message.pause(ANYTHING)
        message.mode = self._then
        return True


def read_line(message: Message, found: re.Match[str]) -> Step | tuple[int, int, Outcome]:
    """Handle the beginning of a line that `LINE_START` or `SCAN` found.

    Return a step or, for a possible call, its start, the index from which to continue if it is none, and the outcome.
    """
    if found["indented"] is not None:
        message.runs.clear()
        message.pass_content(found.end())
        message.mode = Indented(message.plain)
        return Went.ON
    if found["fence"]:
        return _fence(message, found)
    if found["quote"]:
        return _quote(message, found)
    start = found.start("prompt") if found["prompt"] else found.start("action")
    opening = Opening(text=message.text, start=start, after=found.end(), offers=message.offers)
    if found["action"]:
        return start, found.end(), read_action(opening)
    outcome = read_prompt(opening)
    if isinstance(outcome, Nothing) and (outcome.sure or message.final):
        return _quote(message, found)
    return start, found.end(), outcome


def _quote(message: Message, found: re.Match[str]) -> Went:
    message.runs.clear()
    message.pass_content(found.end())
    message.mode = Quoting(_LINE_ENDS, message.plain)
    return Went.ON


def _fence(message: Message, found: re.Match[str]) -> Step:
    text = message.text
    run, after = found.span("fence")
    if text.find("\n", after) < 0 and not message.final:
        return wait(message, found.start(), "\n")
    fence = open_fence(text, run, after)
    if fence is None:
        message.runs.append(after - run)
        return after
    message.runs.clear()
    message.pass_content(found.start())
    before = message.ledger.recent(CUE_REACH)
    if message.offers.are_read and not message.ledger.has_calls and may_hold_a_call(fence, before):
        message.mode = HeldFence(run - message.at, after - run, message.plain)
    else:
        message.pass_content(fence.body)
        message.mode = InFence(fence.ends, message.plain)
    return Went.ON

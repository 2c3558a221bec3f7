"""Calls at the beginning of a line: ReAct, Command R+ and functionary.

ReAct writes `Action: NAME` and `Action Input: {...}`, Command R+ writes `Action:` and a fence of JSON, functionary
writes `>>>NAME` with the arguments on the next line.
"""

import re

from chatops.dialects.formats.base import (
    NOT_HERE,
    NOT_YET,
    Found,
    Opening,
    Outcome,
    unreadable,
)
from chatops.dialects.formats.closing import closer_may_come
from chatops.dialects.formats.objects import read_arguments, read_objects, skip_fence
from chatops.dialects.formats.shapes import Shape
from chatops.dialects.json_reader import UnreadableValueError

_REACT = re.compile(r"[ \t]*(?P<name>[^\s`][^\n]{0,160}?)[ \t]*\r?\n\s{0,16}Action[ _]Input ?:[ \t]*")
_REACT_BEGINS = re.compile(r"[ \t]*[^\s`][^\n]{0,160}(?:\n\s{0,16}(?P<input>[ActionIput _:]{0,14}[ \t]*))?\Z")
_INPUT = "Action Input :"
_FENCED = re.compile(r"[ \t]*\r?\n?\s{0,8}```[ \t]*(?:json)?\s*(?=[\[{])", re.IGNORECASE)
_FENCED_BEGINS = re.compile(r"[ \t]*\r?\n?\s{0,8}`{0,3}[ \t]*j?s?o?n?\s*\Z", re.IGNORECASE)
_OBSERVATION = re.compile(r"\s*Observation ?:")
_OBSERVATION_BEGINS = re.compile(r"\s*[Observation: ]{0,12}\Z")
_PROMPT = re.compile(r"(?P<name>[^\W\d][\w.:/-]{0,255})[ \t]*\r?\n\s*")
_PROMPT_BEGINS = re.compile(r"(?:[^\W\d][\w.:/-]{0,255}[ \t]*\r?(?:\n\s*)?)?\Z")
_FENCE_BEGINS = re.compile(r"[ \t]*`{0,3}\w{0,8}\s*\Z")
_FENCE_ENDS = re.compile(r"\s*`{3,}")
_TO_EVERYONE = "all"


def read_action(opening: Opening) -> Outcome:
    """Read the call after `Action:` at the beginning of a line."""
    text = opening.text
    if fenced := _FENCED.match(text, opening.after):
        return _command_r(opening, fenced.end())
    named = _REACT.match(text, opening.after)
    if named is None:
        begun = _REACT_BEGINS.match(text, opening.after)
        may = begun and (not begun["input"] or _INPUT.replace(" :", ":").startswith(begun["input"].rstrip()))
        return NOT_YET if may or _FENCED_BEGINS.match(text, opening.after) else NOT_HERE
    written = named["name"]
    if opening.offers.named(written) is None and not text.startswith("{", skip_fence(text, named.end())):
        return NOT_YET if _FENCE_BEGINS.match(text, named.end()) else NOT_HERE
    if written.lower() in ("none", "n/a", "finish", "final answer"):
        return NOT_HERE
    return _react(opening, written, named.end())


def _react(opening: Opening, written: str, at: int) -> Found:
    text, start = opening.text, opening.start
    try:
        arguments, end, repairs, sure = read_arguments(text, at)
    except UnreadableValueError as error:
        return Found(end=len(text), format="react", items=(unreadable(error, written, start),), sure=False)
    item = Shape(opening.offers, start, end, repairs).call(written, arguments)
    invented = _OBSERVATION.match(text, end)
    if invented is None and _OBSERVATION_BEGINS.match(text, end):
        sure = False
    return Found(end=end, format="react", items=(item,), sure=sure, rest_is_invented=invented is not None)


def _command_r(opening: Opening, at: int) -> Outcome:
    text = opening.text
    found = read_objects(text, opening.start, at, opening.offers, format="commandr_action")
    end = _FENCE_ENDS.match(text, found.end)
    sure = found.sure and (end is not None or not closer_may_come(text, found.end))
    return Found(end=end.end() if end else found.end, format=found.format, items=found.items, sure=sure)


def read_prompt(opening: Opening) -> Outcome:
    """Read the call after `>>>` at the beginning of a line, or right after a call."""
    text, start = opening.text, opening.start
    named = _PROMPT.match(text, opening.after)
    if named is None or named.end() == len(text):
        return NOT_YET if _PROMPT_BEGINS.match(text, opening.after) else NOT_HERE
    if named["name"] == _TO_EVERYONE:
        return Found(end=named.end(), format="functionary_v32", wraps=True)
    if text[named.end()] != "{":
        return NOT_HERE
    try:
        arguments, end, repairs, sure = read_arguments(text, named.end())
    except UnreadableValueError as error:
        trouble = unreadable(error, named["name"], start)
        return Found(end=len(text), format="functionary_v32", items=(trouble,), sure=False)
    item = Shape(opening.offers, start, end, repairs).call(named["name"], arguments)
    return Found(end=end, format="functionary_v32", items=(item,), sure=sure)

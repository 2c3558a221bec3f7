"""Calls whose name is apart from their arguments: between tokens, and at the beginning of a line.

Tokens are used by DeepSeek V3 and V3.1, Kimi K2, Step-3, PLaMo 3 and Mistral. DeepSeek writes its tokens with wide bars
and `▁`; servers that print tokens in their own way use `|` and `_`. On lines, ReAct writes `Action: NAME` and
`Action Input: {...}`, Command R+ writes `Action:` and a fence of JSON, functionary writes `>>>NAME` with the arguments
on the next line.
"""

import re

from chatops.dialects.formats.base import (
    NAME,
    NOT_HERE,
    NOT_YET,
    CallBlock,
    Opening,
    ParseOutcome,
    closer_may_come,
    cut_off,
    empty_call,
    skip_space,
    unreadable,
)
from chatops.dialects.formats.json_objects import CallBuilder, read_arguments, read_named, read_objects, skip_fence
from chatops.dialects.formats.tagged import read_tagged
from chatops.dialects.reading import UnreadableValueError

_SEPARATOR = re.compile(
    r"(?P<name>[^<>{}]{0,300}?)\s*"
    r"(?:<[|｜]tool[▁_ ]sep[|｜]>|(?P<kimi><\|tool_call_argument_begin\|>))",
    re.IGNORECASE,
)
_BEGINS = re.compile(r"[^<>{}]{0,300}(?:<[|｜]?[\w▁ ]{0,30}[|｜]?)?\Z")
_NAME_LINE = re.compile(rf"\s*(?P<name>{NAME})\s*(?=[`~{{\"])")
_KIMI_ID = re.compile(r"(?:functions\.)?(?P<name>.*?)(?::\d{1,6})?", re.DOTALL)
_MISTRAL = re.compile(rf"\s*(?P<name>{NAME})\s*(?:\[CALL_ID\][^\[\]{{}}]{{0,64}})?\s*(?:\[ARGS\])?\s*(?=[{{\"])")
_MISTRAL_BEGINS = re.compile(
    rf"\s*(?:{NAME})?\s*(?:\[(?:CALL_ID\][^\[\]{{}}]{{0,64}}|[CALL_ID]{{0,7}}))?\s*(?:\[[ARGS]{{0,4}}\]?)?\s*\Z"
)
_PLAMO = re.compile(
    r"(?:\s*<\|plamo:begin_tool_(?:requests|request):plamo\|>){0,4}\s*<\|plamo:begin_tool_name:plamo\|>"
    rf"\s*(?P<name>{NAME})\s*<\|plamo:end_tool_name:plamo\|>\s*<\|plamo:begin_tool_arguments:plamo\|>\s*"
    r"(?:<\|plamo:constrain\|>\s*\w{0,16}\s*)?(?:<\|plamo:msg\|>)?\s*"
)
_PLAMO_LONGEST = 600
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


def read_token_call(opening: Opening) -> ParseOutcome:
    """Return the call after `<｜tool▁call▁begin｜>` or `<|tool_call_begin|>`; its separator tells the family."""
    return _read_call(opening, opening.after + 1)


def read_token_calls(opening: Opening) -> ParseOutcome:
    """Read the wrapper `<｜tool▁calls▁begin｜>` or `<|tool_calls_section_begin|>`, and a call without its own token."""
    text = opening.text
    at = skip_space(text, opening.after + 1)
    rest = text[at : at + 1]
    if rest == "<":
        return CallBlock(end=at, format="", wraps=True) if len(text) > at + 1 else NOT_YET
    if not rest:
        return CallBlock(end=len(text), format="", items=(empty_call(opening.start),), sure=False)
    return _read_call(opening, at)


def _read_call(opening: Opening, at: int) -> ParseOutcome:
    text, start = opening.text, opening.start
    found = _SEPARATOR.match(text, at)
    if found is None:
        if not _BEGINS.match(text, at):
            return NOT_HERE
        return CallBlock(end=len(text), format="", items=(cut_off(text[at : at + 80].strip(), start),), sure=False)
    before, at = found["name"].strip(), found.end()
    if found["kimi"]:
        name = _KIMI_ID.fullmatch(before)
        return read_named(opening, name["name"] if name else before, at, format="kimi_k2")
    inner = skip_space(text, at)
    if text.startswith("<steptml:", inner):
        return _step(opening, inner)
    if before != "function" and text.startswith(("{", '"'), skip_fence(text, at)):
        return read_named(opening, before, at, format="deepseek_v31")
    line = _NAME_LINE.match(text, at)
    if line is None:
        return CallBlock(
            end=len(text), format="deepseek_v3", items=(cut_off(text[at : at + 80].strip(), start),), sure=False
        )
    return read_named(opening, line["name"], line.end(), format="deepseek_v3")


def _step(opening: Opening, at: int) -> ParseOutcome:
    inner = Opening(text=opening.text, start=at, after=at, offered=opening.offered)
    found = read_tagged(inner, format="step3")
    if isinstance(found, CallBlock):
        return found
    return NOT_HERE if found.sure else NOT_YET


def read_mistral(opening: Opening) -> ParseOutcome:
    """Read the text after `[TOOL_CALLS]`: a list of objects, or a name and `[ARGS]`."""
    text, start = opening.text, opening.start
    at = skip_space(text, opening.after)
    if at == len(text):
        return NOT_YET
    if text[at] == "{" or (text[at] == "[" and not text.startswith(("[CALL_ID]", "[ARGS]"), at)):
        return read_objects(text, start, at, opening.offered, format="mistral_json")
    named = _MISTRAL.match(text, at)
    if named:
        return read_named(opening, named["name"], named.end(), format="mistral_v11")
    if not _MISTRAL_BEGINS.match(text, at):
        return NOT_HERE
    if "[" in text[at:] or opening.offered.begins_a_name(text[at:].strip()):
        return CallBlock(end=len(text), format="mistral_v11", items=(cut_off("", start),), sure=False)
    return NOT_YET


def read_plamo(opening: Opening) -> ParseOutcome:
    """Read `<|plamo:begin_tool_name:plamo|>NAME<..>` and its arguments, each between tokens, or their outer tokens."""
    text = opening.text
    named = _PLAMO.match(text, opening.start)
    if named:
        return read_named(opening, named["name"], named.end(), format="plamo3")
    if len(text) - opening.start < _PLAMO_LONGEST:
        return CallBlock(end=len(text), format="plamo3", items=(cut_off("", opening.start),), sure=False)
    return NOT_HERE


def read_action(opening: Opening) -> ParseOutcome:
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
    if opening.offered.named(written) is None and not text.startswith("{", skip_fence(text, named.end())):
        return NOT_YET if _FENCE_BEGINS.match(text, named.end()) else NOT_HERE
    if written.lower() in ("none", "n/a", "finish", "final answer"):
        return NOT_HERE
    return _react(opening, written, named.end())


def _react(opening: Opening, written: str, at: int) -> CallBlock:
    text, start = opening.text, opening.start
    try:
        arguments, end, repairs, sure = read_arguments(text, at)
    except UnreadableValueError as error:
        return CallBlock(end=len(text), format="react", items=(unreadable(error, written, start),), sure=False)
    item = CallBuilder(opening.offered, start, end, repairs).call(written, arguments)
    invented = _OBSERVATION.match(text, end)
    if invented is None and _OBSERVATION_BEGINS.match(text, end):
        sure = False
    return CallBlock(end=end, format="react", items=(item,), sure=sure, rest_is_invented=invented is not None)


def _command_r(opening: Opening, at: int) -> ParseOutcome:
    text = opening.text
    found = read_objects(text, opening.start, at, opening.offered, format="commandr_action")
    end = _FENCE_ENDS.match(text, found.end)
    sure = found.sure and (end is not None or not closer_may_come(text, found.end))
    return CallBlock(end=end.end() if end else found.end, format=found.format, items=found.items, sure=sure)


def read_prompt(opening: Opening) -> ParseOutcome:
    """Read the call after `>>>` at the beginning of a line, or right after a call."""
    text, start = opening.text, opening.start
    named = _PROMPT.match(text, opening.after)
    if named is None or named.end() == len(text):
        return NOT_YET if _PROMPT_BEGINS.match(text, opening.after) else NOT_HERE
    if named["name"] == _TO_EVERYONE:
        return CallBlock(end=named.end(), format="functionary_v32", wraps=True)
    if text[named.end()] != "{":
        return NOT_HERE
    try:
        arguments, end, repairs, sure = read_arguments(text, named.end())
    except UnreadableValueError as error:
        unusable = unreadable(error, named["name"], start)
        return CallBlock(end=len(text), format="functionary_v32", items=(unusable,), sure=False)
    item = CallBuilder(opening.offered, start, end, repairs).call(named["name"], arguments)
    return CallBlock(end=end, format="functionary_v32", items=(item,), sure=sure)

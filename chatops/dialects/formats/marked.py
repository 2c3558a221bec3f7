"""Content of tags that announce calls: objects, tagged parameters, pairs of keys and values, Python.

Models put the grammar of one family between the tags of another. So every opening tag of this kind accepts all
grammars, and the name of the format says which it was.
"""

import re

from chatops.dialects.formats.argkey import read_argkey
from chatops.dialects.formats.base import (
    NOT_HERE,
    NOT_YET,
    Found,
    Opening,
    Outcome,
    Trouble,
    begun,
    cut_off,
    skip_space,
)
from chatops.dialects.formats.objects import name_in, read_objects, skip_fence
from chatops.dialects.formats.python_calls import read_python
from chatops.dialects.formats.shapes import NO_CALL
from chatops.dialects.formats.tagged import read_tagged
from chatops.dialects.reading import DiagnosticKind

_OPENS = re.compile(
    r"<\s?(?:(?:[a-z_]+:)?(?:invoke|function)(?:[\sĠ=]|name=)|[|｜]DSML[|｜]|(?:ifm\||longcat_)?tool_call(?::\w+)?\s*>"
    r"|[|｜]tool[▁_ ]call[▁_ ]begin[|｜]>|\|tool_call_begin\|>|\|plamo:begin_tool)"
    r"|\]<\]minimax\[>\[<",
    re.IGNORECASE,
)
"""Opening tags that may follow a wrapper."""
_TAGGED = re.compile(r"<\s?(?:[a-z_]+:)?(?:invoke|function)(?:[\sĠ=]|name=)", re.IGNORECASE)
_TAG_ENDS = re.compile(r"(?::\w{1,20})?\s{0,4}>")
_PYTHON = re.compile(r"[^\W\d][\w.-]{0,255}\s*\(")
_PYTHON_LIST = re.compile(r"\[\s*(?:\]|[^\W\d][\w.-]{0,255}\s*\()")
_WORD = re.compile(r"[^\s{}<>\[\]]{1,16}\s*(?=\{)")
_TAG_BEGINS = re.compile(r"(?:<\s?[\w:|｜▁]+(?:[\s=][^<>]*)?|\]<?[\]minax\[>]*<?)\Z")
_BEGINS = re.compile(r"[\w.:/-]+\s*\Z")
_PROSE = 240
_LONGEST_NAME = 300


def read_marked(opening: Opening, *, format: str, word: str) -> Outcome:
    """Return the block after the tag `<word>`. `format` is its format if it holds objects."""
    text = opening.text
    tag = _TAG_ENDS.match(text, opening.after)
    if tag is None:
        return NOT_YET if len(text) - opening.after < _LONGEST_TAG_END else NOT_HERE
    again = re.compile(rf"(?:\s*<\s?{re.escape(word)}(?::\w{{1,20}})?\s{{0,4}}>){{{_DOUBLED}}}", re.IGNORECASE)
    doubled = again.match(text, tag.end())
    at = skip_space(text, doubled.end() if doubled else tag.end())
    if at == len(text):
        return Found(end=len(text), format=format, items=(begun(opening.start),), sure=False)
    return read_body(opening, at, format=format, word=word)


_LONGEST_TAG_END = 26
_DOUBLED = "0,3"
"""How often an opening tag may be repeated, at most: a row of them is read again from each of its tags."""


def read_body(opening: Opening, at: int, *, format: str, word: str = "") -> Outcome:
    """Return the calls at `at`, in any grammar."""
    text = opening.text
    inner = skip_fence(text, at)
    char = text[inner : inner + 1]
    if char == "{":
        return read_objects(text, opening.start, inner, opening.offers, format=format)
    if char == "[":
        if _PYTHON_LIST.match(text, inner):
            return read_python(opening, inner, format=_PYTHON_FORMATS.get(word, format))
        return read_objects(text, opening.start, inner, opening.offers, format=format)
    if _OPENS.match(text, at):
        return _inner(opening, at, format, word)
    if char in "<]" and len(text) - at < _LONGEST_TAG_END and _TAG_BEGINS.match(text, at):
        return Found(end=len(text), format=format, items=(cut_off("", opening.start),), sure=False)
    return _named(opening, at, format, word)


def _named(opening: Opening, at: int, format: str, word: str) -> Outcome:
    """Return a call that begins with its name, or nothing for prose."""
    text = opening.text
    if found := _behind_a_word(opening, at, format) or read_argkey(opening, at, format=_PAIRS.get(word, "glm_argkey")):
        return found
    if _PYTHON.match(text, at):
        return read_python(opening, at, format=_PYTHON_FORMATS.get(word, format))
    if begun := _BEGINS.match(text, at):
        if opening.offers.begins_a_name(begun[0].rstrip()):
            return Found(end=len(text), format=format, items=(cut_off(begun[0].strip(), opening.start),), sure=False)
        if len(begun[0]) < _LONGEST_NAME:
            return NOT_YET
    return _prose(opening, at, format, word)


_PYTHON_FORMATS = {"function_calls": "olmo3", "|tool_call_start|": "lfm2", "|python_start|": "llama4_pythonic"}
_PAIRS = {"ifm|tool_call": "k2_horizon", "ifm|tool_calls": "k2_horizon"}


def _behind_a_word(opening: Opening, at: int, format: str) -> Found | None:
    """Return an object that names a tool, after a word that is not a tool's name, such as `json`."""
    word = _WORD.match(opening.text, at)
    if word is None or opening.offers.named(word[0]) is not None or not name_in(opening.text, word.end()):
        return None
    return read_objects(opening.text, opening.start, word.end(), opening.offers, format=format)


def _inner(opening: Opening, at: int, format: str, word: str) -> Outcome:
    """Read tags of another kind after the opening tag: of one call in `<tool_call>`, of calls in wrappers."""
    text = opening.text
    if word == "tool_call" and _TAGGED.match(text, at):
        inner = Opening(text=text, start=at, after=at, offers=opening.offers)
        found = read_tagged(inner, format="qwen3_xml")
        if isinstance(found, Found):
            return Found(end=found.end, format=found.format, items=found.items, sure=found.sure)
        return _prose(opening, at, "qwen3_xml", word) if found.sure else NOT_YET
    return Found(end=at, format=format, wraps=True)


def _prose(opening: Opening, at: int, format: str, word: str) -> Outcome:
    """Handle content that is not a call: trouble if its tags are closed, otherwise text about a tag."""
    text = opening.text
    closer = _closing(word).search(text, at, at + _PROSE)
    if closer is None:
        return NOT_HERE if len(text) - at >= _PROSE else NOT_YET
    trouble = Trouble(
        kind=DiagnosticKind.UNREADABLE,
        message=NO_CALL,
        start=opening.start,
    )
    return Found(end=closer.end(), format=format, items=(trouble,))


def _closing(word: str) -> re.Pattern[str]:
    return re.compile(rf"<\s?/\s?{re.escape(word)}(?::\w{{1,20}})?\s*>", re.IGNORECASE)

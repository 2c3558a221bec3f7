"""Text in which nothing is a call, whatever it looks like: code, fences, quotations, echoes of tool output.

A code span follows CommonMark: a run of backticks opens it if a run of the same length follows in the same paragraph.
Otherwise the run is text.

The `text` of each function has at least two characters before `at`, because `ParserState` puts line breaks before a
message. The limits below are lengths in characters. They keep the search linear: text beyond them does not count as
code or as quoted, so a call in it runs or asks the user. A larger limit costs time at every backtick or quote.

Tags of no known format. A call between a pair of them is text.

Models wrap what they think or quote in tags of their own choice, so the reader cannot list every word that they use. It
decides by the pair instead: a call inside a pair of tags is text, unless the tag announces calls (`<next_action>`) or
wraps the answer (`<answer>`). Tags are written `<x>`, `[x]` and, as tokens, `<|x|>`.

States of a call, see `Enclosure`:

- FREE: no tag that matters is open, or an open one begins within a line and is never closed. Such a tag is often no tag
  at all (`List<T>`, `<name>` as a placeholder), so it changes nothing.
- DOUBTFUL: a tag on a line of its own is open to the end of the message, the enclosing pair announces calls, or more
  than 1000 tags are open. The call is kept with low confidence, so the user decides.
- QUOTED: a pair of tags that does not announce calls encloses it. The call is text.

Rules:

- While the message still arrives, only a closing tag that has been seen proves QUOTED. Otherwise the answer is
  TOO_EARLY and the reader waits: without a closing tag, only the end of the message can tell.
- A closing tag also closes all tags that were opened after its opening tag.
- Tags are not counted if calls in them count as calls: tags of known call formats, answer wrappers, void HTML elements,
  and tokens around all that a model says (`<|assistant|>`).
- A closing tag that is alone in inline code or in quotes does not close anything.
- The opening tag may have been in the prompt. A closing tag without one therefore lowers the confidence of the calls
  before it (see `note_unknown_tag` in `quoting.py`).

The key of a pair is what both of its tags share: `x` for `<x>`, `[x` for `[x]`, `|x` for `<|x_start|>`. The closing
tags after a call are searched once per state of the text and kept as the last index per key (`_find_closings`), so that
many calls in a row take linear time.
"""

import re
from enum import Enum, auto

from chatops.dialects.formats.base import CLOSER, TOO_EARLY, Early
from chatops.domain.frozen_dataclass import frozen_dataclass

_BLANK_LINE = re.compile(r"\n[ \t\r]{0,16}\n")
_BACKTICKS = re.compile(r"`+")
_MAX_SPAN = 8000
_MAX_QUOTATION = 4000

QUOTES = {'"': '"', "'": "'", "“": "”", "«": "»", "‘": "’", "„": "“", "「": "」"}
"""Signs that open a quotation in prose, each with the sign that ends it."""
_BEFORE_A_QUOTE = frozenset(" \t\r\n([{=:,;>—–-")
"""Characters before the opening sign of a quotation; after any other, such as in `don't`, the sign opens none."""
_QUOTING_TAGS = (
    *("tool_response", "tool_responses", "tool_result", "tool_results", "tool_output", "tool_outputs", "tool_declare"),
    *("function_results", "function_response", "function_result", "observation", "tools", "available_tools"),
    *("documents", "code", "pre", "blockquote"),
)
_QUOTING_TOKENS = {
    "|start_tool_result|": "<|END_TOOL_RESULT|>",
    "|tool_response": "<tool_response|>",
    "｜tool▁outputs▁begin｜": "<｜tool▁outputs▁end｜>",
    "｜tool▁output▁begin｜": "<｜tool▁output▁end｜>",
    "|tool_response_start|": "<|tool_response_end|>",
    "|tool_list_start|": "<|tool_list_end|>",
    "start_function_response": "<end_function_response>",
    "start_function_declaration": "<end_function_declaration>",
}
_RESULT_FENCE = r"\[result (?P<number>[0-9a-f]{16}) of "
QUOTING_ENDS = {
    word: re.compile(rf"(?P<opens><{re.escape(word)}\b[^<>]{{0,24}}>)|{end}|{_RESULT_FENCE}", re.IGNORECASE)
    for word, end in (
        *((tag, rf"<\s?/\s?{tag}\s*>") for tag in _QUOTING_TAGS),
        *((word, re.escape(end)) for word, end in _QUOTING_TOKENS.items()),
    )
}
"""Words of tags around tool output, declarations and code, each with the pattern of their end.

Group `opens` matches another such tag inside. Group `number` matches the fence of one of our results (see
`writing.py`), because the result may contain the closing tag.
"""
COMMENT_ENDS = re.compile(r"-->")
SQUARE_QUOTING_ENDS = {
    "[TOOL_RESULTS]": re.compile(rf"\[/TOOL_RESULTS\]|{_RESULT_FENCE}"),
    "[AVAILABLE_TOOLS]": re.compile(r"\[/AVAILABLE_TOOLS\]"),
    "[INST]": re.compile(r"\[/INST\]"),
}
MAX_END = 48
"""Characters of the longest end of a quotation: so many at the end of the text may be the beginning of one."""
PYTHON_LANGUAGES = frozenset({"tool_call", "tool_calls", "tool_code", "function_call"})
"""Languages of fences that may hold calls written as Python."""
_CALL_LANGUAGES = PYTHON_LANGUAGES | {"", "json", "xml"}
_INFO_STRING = re.compile(r"[ \t]*(?P<language>[^\s`{]*)[^\n`]*(?=\n|\Z)")
_DOCUMENTATION_CUE = re.compile(
    r"\b(?:examples?|e\.g|for instance|such as|would|could|should|might|format|formatted|syntax|template|schema"
    r"|illustrat\w*|demonstrat\w*|looks? like|do(?:es)? not (?:run|execute|call)|don't (?:run|execute|call)"
    r"|never (?:run|execute|call)|documentation|hypothetical\w*|sample|placeholder|not (?:run|executed|real)|beispiel"
    r"|ejemplo|exemple)\b|例如|例え?ば|示例",
    re.IGNORECASE,
)
"""Words before a fence that announce documentation. One anywhere is enough: a fence is a weak sign of a call."""
_INTRODUCES = re.compile(
    r"\b(?:would|could|might|should) (?:then )?(?:be|have been|look|read|appear)(?: \w+){0,2}\s*:?$"
    r"|\bwould (?:\w+ )?(?:run|call|execute|write|emit|send|use|make|issue)\b"
    r"|\b(?:looks?|reads?) like\b|\bfor (?:example|instance)\b|\be\.g\.|\bi\.e\.|\bsuch as$"
    r"|\b(?:examples?|samples?)(?:\s*:?$| (?:of|for|calls?|output|usage|requests?|reply|response|format)\b)"
    r"|\b(?:format|syntax|template|markup)(?: is| was)?\s*:?$"
    r"|\b(?:raw|literal|verbatim) (?:output|text|calls?|reply|response|request|message|tokens)\b"
    r"|\bhypothetical|\billustrat|\bplaceholder|\b(?:not|never|n['’]t) (?:run|execute|call)\b"
    r"|\b(?:says?|said|contains?|contained|reads|returned|printed|wrote|writes|typed|quot\w*|states?)(?: \w+){0,2}\s*:$"
    r"|\b(?:zum|ein|als) beispiel\b|\bpor ejemplo\b|\bpar exemple\b|例如|例え?ば|示例",
    re.IGNORECASE,
)
"""Words of an unfinished sentence before a call that announce an example.

They are narrower than `_DOCUMENTATION_CUE`: "I should run" before a call with its marker announces the call itself.
"""
_SENTENCE_ENDS = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?。！？][\"'”’)*_]*(?:\s|\Z)")
_MAX_EXTRA_TICKS = 16
"""A closing fence may have more backticks than the opening one: so many more are read."""
CUE_REACH = 400
"""Characters before a fence or call, a few sentences, that are searched for words that announce an example."""
_MAX_NAME = 128
"""Characters of a tag's name; a longer one is no tag."""
_NAME = rf"[^\s<>/|｜\"'`=!?]{{1,{_MAX_NAME}}}"
_TAG_OPENS = re.compile(
    rf"<[ ]?(?P<name>{_NAME})|\[(?P<bracket>[^\W\d][\w-]{{0,40}})\]|<[|｜](?P<token>[\w▁]{{1,80}})[|｜]>"
)
_TAG_CLOSES = re.compile(
    rf"<\s?/\s?(?P<name>{_NAME})[^<>]{{0,16}}>|\[/(?P<bracket>[^\W\d][\w-]{{0,40}})\]|<[|｜](?P<token>/?[\w▁]{{1,80}})[|｜]>"
)
_TAG_MAY_BEGIN = re.compile(rf"<[ ]?(?:{_NAME})?\Z|<\s?/\s?(?:{_NAME}[^<>]{{0,16}})?\Z|<[|｜]/?[\w▁]{{0,80}}[|｜]?\Z")
_SIDES = frozenset({"begin", "start", "end", "of", ""})
"""Parts of a token's name that say which end it is: `<|begin_of_x|>`, `<|x_start|>`, `<|end_x|>`."""
_MAX_OPEN = 1000
"""Open tags that are counted. Each call looks at all their names, so a larger number would take more time per call."""
_VOID_ELEMENTS = frozenset("br hr img s wbr".split())
"""HTML tags in prose that are never closed, and `<s>`, which begins a text in the way that `</s>` ends it.

Others, such as `<input>` and `<meta>`, are words that models put around what they quote.
"""
_MESSAGE_TOKENS = frozenset({"text", "sentence", "turn", "message", "msg", "assistant", ""})
"""Names of tokens that wrap everything a model says."""
_ANSWER_WRAPPERS = frozenset({"answer", "response", "output"})
_ANNOUNCING_PARTS = frozenset(
    "tool tools call calls function functions action actions act command commands execute exec invoke invocation"
    " use run request requests next step block list".split()
)
"""Parts of names that announce calls, such as `next_action` or `tool_use`: these may be a misspelled format."""
_PART_SEPARATOR = re.compile(r"[_:.▁-]")


def result_ends(number: str) -> re.Pattern[str]:
    """Return the pattern of the end of the fence of a result, see `writing.py`."""
    return re.compile(re.escape(f"[end of result {number}]"))


@frozen_dataclass
class Fence:
    """A fenced block that is open."""

    language: str
    body: int
    """Index of the line break before its first line."""
    ends: re.Pattern[str]


def open_fence(text: str, run: int, after: int) -> Fence | None:
    """Return the fence whose run of backticks or tildes is `text[run:after]`; None if it is inline code.

    Its first line must be complete.
    """
    info = _INFO_STRING.match(text, after)
    if info is None or (text[run] == "`" and text.startswith("`", info.end())):
        return None
    length = after - run
    ends = re.compile(rf"\n[ \t]{{0,16}}{text[run]}{{{length},{length + _MAX_EXTRA_TICKS}}}[ \t\r]{{0,16}}(?=\n|\Z)")
    return Fence(language=info["language"].lower(), body=info.end(), ends=ends)


def may_hold_a_call(fence: Fence, before: str) -> bool:
    """Return True if a fence may hold a call, judged by its language and by the text before it."""
    return fence.language in _CALL_LANGUAGES and _DOCUMENTATION_CUE.search(before[-CUE_REACH:]) is None


def introduces_an_example(before: str) -> bool:
    """Return True if the last sentence of `before` is unfinished and announces a quotation or an example."""
    line = before[-CUE_REACH:].rstrip().rpartition("\n")[2]
    return _INTRODUCES.search(_SENTENCE_ENDS.split(line)[-1]) is not None


def span_end(text: str, at: int, runs: list[int], *, final: bool) -> int | Early | None:
    """Return the end of the code span around `at`, if one of the `runs` of backticks before it opened one.

    `runs` are their lengths. Return None if none did.
    """
    end, is_certain = _rest_of_paragraph(text, at, _MAX_SPAN, final=final)
    closing: dict[int, int] = {}
    for run in _BACKTICKS.finditer(text, at, end):
        # More text could lengthen a run at the end.
        if is_certain or run.end() < len(text):
            closing.setdefault(run.end() - run.start(), run.end())
        if runs[0] in closing:  # The first run that can be closed decides.
            break
    for length in runs:
        if length in closing:
            return closing[length]
        if not is_certain:
            return TOO_EARLY
    return None


def closing_sign_for(text: str, at: int) -> str:
    """Return the sign that ends the quotation which opens right before `at`; empty if none does."""
    closing_sign = QUOTES.get(text[at - 1], "")
    return closing_sign if closing_sign and text[at - 2] in _BEFORE_A_QUOTE else ""


def quotation_end(text: str, at: int, closing_sign: str, *, last: bool, final: bool) -> int | Early | None:
    """Return the index after the next `closing_sign` in the paragraph from `at` on; None if it has none.

    With `last`, use the last such sign.
    """
    end, is_certain = _rest_of_paragraph(text, at, _MAX_QUOTATION, final=final)
    sign = text.rfind(closing_sign, at, end) if last else text.find(closing_sign, at, end)
    if not is_certain and (last or sign < 0):
        return TOO_EARLY
    return None if sign < 0 else sign + len(closing_sign)


def paragraph_end(text: str, at: int) -> int:
    """Return the end of the paragraph around `at`, which is also the latest end of a quotation in it."""
    return _rest_of_paragraph(text, at, _MAX_QUOTATION, final=True)[0]


def _rest_of_paragraph(text: str, at: int, limit: int, *, final: bool) -> tuple[int, bool]:
    """Return the end of the paragraph around `at`, at most `limit` characters on, and True if that is certain."""
    blank = _BLANK_LINE.search(text, at, at + limit)
    end = blank.start() if blank else min(len(text), at + limit)
    return end, final or blank is not None or len(text) > at + limit


class Enclosure(Enum):
    """Relation of a call to the open tags around it."""

    FREE = auto()
    DOUBTFUL = auto()
    """It may have been thought or quoted, so the user decides."""
    QUOTED = auto()
    """It is between a pair of tags, so it is text."""


class OpenTags:
    """The tags that are open at one position of a message, outermost first."""

    __slots__ = ("_counts", "_last_closings", "_open", "_searched", "_too_many")

    def __init__(self) -> None:
        self._open: list[tuple[str, bool]] = []
        """The key of each tag, and True if the tag begins a line."""
        self._counts: dict[str, int] = {}
        """Number of open tags by key."""
        self._too_many = False
        """True once a tag was not counted because `_MAX_OPEN` were open."""
        self._last_closings: dict[str, int] = {}
        """By key: the index in the message of the last closing tag that was found."""
        self._searched = (0, 0, False)
        """The part of the message that was searched for closing tags: its start, its end, and if that end is final."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def open(self, key: str, *, begins_line: bool) -> None:
        """Add a tag, unless calls inside it count as calls."""
        if _is_harmless(key):
            return
        if len(self._open) == _MAX_OPEN:
            self._too_many = True
            return
        self._open.append((key, begins_line))
        self._counts[key] = self._counts.get(key, 0) + 1

    def close(self, key: str) -> bool:
        """Drop the innermost tag `key` and all tags opened inside it.

        Return False if it was never opened, unless calls inside such a tag count anyway.
        """
        if key not in self._counts:
            return _is_harmless(key)
        while True:
            dropped, _ = self._open.pop()
            self._counts[dropped] -= 1
            if not self._counts[dropped]:
                del self._counts[dropped]
            if dropped == key:
                return True

    def enclosure_at(self, text: str, at: int, *, base: int, final: bool) -> Enclosure | Early:
        """Return the enclosure of a call whose opening tag ends at `at`.

        `base` is the index of `text` in the message. Return TOO_EARLY if only the end of the message can tell.
        """
        self._find_closings(text, at, base, final=final)
        closed = [key for key in self._counts if self._last_closings.get(key, -1) >= base + at]
        if not all(map(_announces_calls, closed)):
            return Enclosure.QUOTED
        if not final:
            return TOO_EARLY
        begins_line = any(begins_line for _, begins_line in self._open)
        return Enclosure.DOUBTFUL if closed or self._too_many or begins_line else Enclosure.FREE

    def _find_closings(self, text: str, at: int, base: int, *, final: bool) -> None:
        """Record the last closing tag of each key after `at`, unless that was done for this text."""
        start, end, was_final = self._searched
        if start <= base + at and end == base + len(text) and was_final == final:
            return
        self._searched = (base + at, base + len(text), final)
        self._last_closings = {
            key: base + tag.start()
            for tag in _TAG_CLOSES.finditer(text, at)
            if (key := _closing_key(tag)) and not _is_mentioned(text, tag, final=final)
        }


def read_tag(text: str, start: int, *, final: bool) -> tuple[str, bool] | Early | None:
    """Return the key of the tag of no known format at `start`, and True if it is a closing tag.

    Both tags of a pair have the same key. Return None if there is no tag, or a closing one that is only mentioned.
    """
    if (closing := _TAG_CLOSES.match(text, start)) and (key := _closing_key(closing)):
        mentioned = _is_mentioned(text, closing, final=final)
        if isinstance(mentioned, Early):
            return mentioned
        return None if mentioned else (key, True)
    opening = _TAG_OPENS.match(text, start)
    may_grow = opening is None or (opening["name"] and opening.end() == len(text) and len(opening["name"]) < _MAX_NAME)
    if may_grow and not final and _TAG_MAY_BEGIN.match(text, start):
        return TOO_EARLY
    if opening is None:
        return None
    if opening["token"]:
        return _token_key(opening["token"]), False
    return (opening["name"] or f"[{opening['bracket']}").lower(), False


def _closing_key(tag: re.Match[str]) -> str:
    """Return the key of the pair that `tag` closes, or "" if it is a token that closes nothing."""
    if tag["token"]:
        parts = _PART_SEPARATOR.split(tag["token"].lower())
        return _token_key(tag["token"]) if tag["token"].startswith("/") or "end" in parts else ""
    return (tag["name"] or f"[{tag['bracket']}").lower()


def _token_key(name: str) -> str:
    return "|" + "_".join(part for part in _PART_SEPARATOR.split(name.lower().lstrip("/")) if part not in _SIDES)


def _is_mentioned(text: str, tag: re.Match[str], *, final: bool) -> bool | Early:
    """Return True if a tag is alone in inline code or in quotes."""
    before = text[tag.start() - 1]
    closing_sign = "`" if before == "`" else QUOTES.get(before)
    if closing_sign is None:
        return False
    if tag.end() == len(text) and not final:
        return TOO_EARLY
    return text.startswith(closing_sign, tag.end())


def _is_harmless(key: str) -> bool:
    """Return True for tags inside which a call counts as a call."""
    bare = key.lstrip("[|")
    return (
        bare in _ANSWER_WRAPPERS
        or key in _VOID_ELEMENTS
        or (key[0] == "|" and bare in _MESSAGE_TOKENS)
        or CLOSER.fullmatch(f"</{bare}>") is not None
    )


def _announces_calls(key: str) -> bool:
    return all(part in _ANNOUNCING_PARTS for part in _PART_SEPARATOR.split(key.lstrip("[|")))

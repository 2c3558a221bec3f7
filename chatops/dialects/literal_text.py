"""Text in which nothing is a call, whatever it looks like: code, fences, quotations, echoes of tool output.

A code span follows CommonMark: a run of backticks opens it if a run of the same length follows in the same paragraph.
Otherwise the run is text.

The `text` of each function has at least two characters before `at`, because `ParserState` puts line breaks before a
message. The limits below are lengths in characters. They keep the search linear: text beyond them does not count as
code or as quoted, so a call in it runs or asks the user. A larger limit costs time at every backtick or quote.
"""

import re

from chatops.dialects.formats.base import TOO_EARLY, Early
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
    rest = _rest_of_paragraph(text, at, _MAX_SPAN, final=final)
    closing: dict[int, int] = {}
    for run in _BACKTICKS.finditer(text, at, rest.end):
        # More text could lengthen a run at the end.
        if rest.is_certain or run.end() < len(text):
            closing.setdefault(run.end() - run.start(), run.end())
        if runs[0] in closing:  # The first run that can be closed decides.
            break
    for length in runs:
        if length in closing:
            return closing[length]
        if not rest.is_certain:
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
    rest = _rest_of_paragraph(text, at, _MAX_QUOTATION, final=final)
    before, sign, _ = (str.rpartition if last else str.partition)(text[at : rest.end], closing_sign)
    if not rest.is_certain and (last or not sign):
        return TOO_EARLY
    return at + len(before) + len(sign) if sign else None


def paragraph_end(text: str, at: int) -> int:
    """Return the end of the paragraph around `at`, which is also the latest end of a quotation in it."""
    return _rest_of_paragraph(text, at, _MAX_QUOTATION, final=True).end


@frozen_dataclass(kw_only=False)
class _RestOfParagraph:
    end: int
    is_certain: bool
    """False if text that arrives later could move the end."""


def _rest_of_paragraph(text: str, at: int, limit: int, *, final: bool) -> _RestOfParagraph:
    """Return the part of the paragraph around `at` that follows, at most `limit` characters."""
    blank = _BLANK_LINE.search(text, at, at + limit)
    end = blank.start() if blank else min(len(text), at + limit)
    return _RestOfParagraph(end, final or blank is not None or len(text) > at + limit)

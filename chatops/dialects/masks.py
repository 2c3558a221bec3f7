"""Text in which nothing is a call, whatever it looks like: code, quotations, comments, and echoes of tool output.

Inline code follows CommonMark: a run of backticks opens a span if a run of the same length follows in the same
paragraph. Otherwise it is text.
"""

import re
from dataclasses import dataclass

from chatops.dialects.scanner import TOO_EARLY, Early

_BLANK = re.compile(r"\n[ \t\r]{0,16}\n")
_RUN = re.compile(r"`+")
LONGEST_SPAN = 8000
"""Number of characters that are searched for the end of a code span."""

QUOTES = {'"': '"', "'": "'", "“": "”", "«": "»", "‘": "’", "„": "“", "「": "」"}
"""Signs that open a quotation in prose, each with the sign that ends it."""
_BEFORE_A_QUOTE = frozenset(" \t\r\n([{=:,;>—–-")
_LONGEST_QUOTE = 4000

_TO_THE_END = {
    "tool_response": r"<\s?/\s?tool_response\s*>",
    "tool_responses": r"<\s?/\s?tool_responses\s*>",
    "tool_result": r"<\s?/\s?tool_result\s*>",
    "tool_results": r"<\s?/\s?tool_results\s*>",
    "tool_output": r"<\s?/\s?tool_output\s*>",
    "tool_outputs": r"<\s?/\s?tool_outputs\s*>",
    "tool_declare": r"<\s?/\s?tool_declare\s*>",
    "function_results": r"<\s?/\s?function_results\s*>",
    "function_response": r"<\s?/\s?function_response\s*>",
    "function_result": r"<\s?/\s?function_result\s*>",
    "observation": r"<\s?/\s?observation\s*>",
    "tools": r"<\s?/\s?tools\s*>",
    "available_tools": r"<\s?/\s?available_tools\s*>",
    "documents": r"<\s?/\s?documents\s*>",
    "code": r"<\s?/\s?code\s*>",
    "pre": r"<\s?/\s?pre\s*>",
    "blockquote": r"<\s?/\s?blockquote\s*>",
    "|start_tool_result|": r"<\|END_TOOL_RESULT\|>",
    "|tool_response": r"<tool_response\|>",
    "｜tool▁outputs▁begin｜": r"<｜tool▁outputs▁end｜>",
    "｜tool▁output▁begin｜": r"<｜tool▁output▁end｜>",
    "|tool_response_start|": r"<\|tool_response_end\|>",
    "|tool_list_start|": r"<\|tool_list_end\|>",
    "start_function_response": r"<end_function_response>",
    "start_function_declaration": r"<end_function_declaration>",
}
_RESULT = r"\[result (?P<number>[0-9a-f]{16}) of "
QUOTING = {
    word: re.compile(rf"(?P<opens><{re.escape(word)}\b[^<>]{{0,24}}>)|{end}|{_RESULT}", re.IGNORECASE)
    for word, end in _TO_THE_END.items()
}
"""Words of tags around tool output, declarations and code, each with the pattern of their end.

The pattern also matches the fence of one of our results: the result may contain the closing tag.
"""
COMMENT_ENDS = re.compile(r"-->")
SQUARE_QUOTING = {
    "[TOOL_RESULTS]": re.compile(rf"\[/TOOL_RESULTS\]|{_RESULT}"),
    "[AVAILABLE_TOOLS]": re.compile(r"\[/AVAILABLE_TOOLS\]"),
    "[INST]": re.compile(r"\[/INST\]"),
}


def fence_ends(number: str) -> re.Pattern[str]:
    """Return the pattern of the end of a result's fence, see `chatops.dialects.fence`."""
    return re.compile(re.escape(f"[end of result {number}]"))


LONGEST_END = 48

_CALL_LANGUAGES = frozenset({"", "json", "xml", "tool_call", "tool_calls", "tool_code", "function_call"})
PYTHON_LANGUAGES = frozenset({"tool_call", "tool_calls", "tool_code", "function_call"})
_INFO = re.compile(r"[ \t]*(?P<language>[^\s`{]*)[^\n`]*(?=\n|\Z)")
_CUE = re.compile(
    r"\b(?:examples?|e\.g|for instance|such as|would|could|should|might|format|formatted|syntax|template|schema"
    r"|illustrat\w*|demonstrat\w*|looks? like|do(?:es)? not (?:run|execute|call)|don't (?:run|execute|call)"
    r"|never (?:run|execute|call)|documentation|hypothetical\w*|sample|placeholder|not (?:run|executed|real)|beispiel"
    r"|ejemplo|exemple)\b|例如|例え?ば|示例",
    re.IGNORECASE,
)
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
_SENTENCE_ENDS = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?。！？][\"'”’)*_]*(?:\s|\Z)")
_LONGER = 16
CUE_REACH = 400
"""Number of characters before a fence that are searched for words that announce documentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    info = _INFO.match(text, after)
    if info is None or (text[run] == "`" and text.startswith("`", info.end())):
        return None
    length = after - run
    ends = re.compile(rf"\n[ \t]{{0,16}}{text[run]}{{{length},{length + _LONGER}}}[ \t\r]{{0,16}}(?=\n|\Z)")
    return Fence(language=info["language"].lower(), body=info.end(), ends=ends)


def may_hold_a_call(fence: Fence, before: str) -> bool:
    """Return True if a fence may hold a call, judged by its language and by the text before it."""
    return fence.language in _CALL_LANGUAGES and _CUE.search(before[-CUE_REACH:]) is None


def introduces_an_example(before: str) -> bool:
    """Return True if the last sentence of `before` is unfinished and announces a quotation or an example."""
    line = before[-CUE_REACH:].rstrip().rpartition("\n")[2]
    return _INTRODUCES.search(_SENTENCE_ENDS.split(line)[-1]) is not None


def span_end(text: str, at: int, runs: list[int], *, final: bool) -> int | Early | None:
    """Return the end of the code span around `at`, if one of the `runs` of backticks before it opened one.

    Return None if none did.
    """
    reach = at + LONGEST_SPAN
    blank = _BLANK.search(text, at, reach)
    end = blank.start() if blank else min(len(text), reach)
    complete = final or blank is not None or len(text) > reach
    closing: dict[int, int] = {}
    for run in _RUN.finditer(text, at, end):
        if complete or run.end() < len(text):
            closing.setdefault(run.end() - run.start(), run.end())
        if runs[0] in closing:
            break
    for length in runs:
        if length in closing:
            return closing[length]
        if not complete:
            return TOO_EARLY
    return None


def quotation_around(text: str, at: int) -> str:
    """Return the sign that ends the quotation which opens right before `at`; empty if none does."""
    closing = QUOTES.get(text[at - 1], "")
    return closing if closing and text[at - 2] in _BEFORE_A_QUOTE else ""


def quotation_end(text: str, at: int, closing: str, *, far: bool, final: bool) -> int | Early | None:
    """Return the end of a quotation that continues after `at`: after its next closing sign in the paragraph.

    With `far`, use the last such sign. Return None if the paragraph has none.
    """
    reach = at + _LONGEST_QUOTE
    blank = _BLANK.search(text, at, reach)
    end = blank.start() if blank else min(len(text), reach)
    found = text.rfind(closing, at, end) if far else text.find(closing, at, end)
    complete = final or blank is not None or len(text) > reach
    if not complete and (far or found < 0):
        return TOO_EARLY
    return None if found < 0 else found + len(closing)


def paragraph_end(text: str, at: int) -> int:
    """Return the end of the paragraph around `at`, which is also the latest end of a quotation in it."""
    reach = at + _LONGEST_QUOTE
    blank = _BLANK.search(text, at, reach)
    return blank.start() if blank else min(len(text), reach)

"""Text in which nothing is a call, whatever it looks like: code, quotations, echoes of tool output, unknown tags.

Inline code follows CommonMark: a run of backticks opens a span if a run of the same length follows in the same
paragraph. Otherwise it is text.

Theory of open tags

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

The closing tags after a call are searched once per state of the text (`_searched`) and kept as the last index per name,
so that many calls in a row take linear time.
"""

import re
from enum import Enum, auto

from chatops.dialects.formats.base import CLOSER, TOO_EARLY, Early
from chatops.domain.frozen_dataclass import frozen_dataclass

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
QUOTING_ENDS = {
    word: re.compile(rf"(?P<opens><{re.escape(word)}\b[^<>]{{0,24}}>)|{end}|{_RESULT}", re.IGNORECASE)
    for word, end in _TO_THE_END.items()
}
"""Words of tags around tool output, declarations and code, each with the pattern of their end.

The pattern also matches the fence of one of our results: the result may contain the closing tag.
"""
COMMENT_ENDS = re.compile(r"-->")
SQUARE_QUOTING_ENDS = {
    "[TOOL_RESULTS]": re.compile(rf"\[/TOOL_RESULTS\]|{_RESULT}"),
    "[AVAILABLE_TOOLS]": re.compile(r"\[/AVAILABLE_TOOLS\]"),
    "[INST]": re.compile(r"\[/INST\]"),
}
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
_LONGEST_NAME = 128
_NAME = rf"[^\s<>/|｜\"'`=!?]{{1,{_LONGEST_NAME}}}"
_OPENS = re.compile(
    rf"<[ ]?(?P<name>{_NAME})|\[(?P<bracket>[^\W\d][\w-]{{0,40}})\]|<[|｜](?P<token>[\w▁]{{1,80}})[|｜]>"
)
_CLOSES = re.compile(
    rf"<\s?/\s?(?P<name>{_NAME})[^<>]{{0,16}}>|\[/(?P<bracket>[^\W\d][\w-]{{0,40}})\]|<[|｜](?P<token>/?[\w▁]{{1,80}})[|｜]>"
)
_TAG_BEGINS = re.compile(rf"<[ ]?(?:{_NAME})?\Z|<\s?/\s?(?:{_NAME}[^<>]{{0,16}})?\Z|<[|｜]/?[\w▁]{{0,80}}[|｜]?\Z")
_BOUNDARIES = frozenset({"begin", "start", "end", "of", ""})
"""Parts of a token's name that say which end it is: `<|begin_of_x|>`, `<|x_start|>`, `<|end_x|>`."""
_MOST = 1000
"""Number of tags that are counted. With more of them open, every call is read with low confidence."""
_VOID = frozenset("br hr img s wbr".split())
"""HTML tags in prose that are never closed, and `<s>`, which begins a text in the way that `</s>` ends it.

Others, such as `<input>` and `<meta>`, are words that models put around what they quote.
"""
_WHOLE_MESSAGES = frozenset({"text", "sentence", "turn", "message", "msg", "assistant", ""})
"""Names of tokens that wrap everything a model says."""
_ANSWERS = frozenset({"answer", "response", "output"})
_ANNOUNCING = frozenset(
    "tool tools call calls function functions action actions act command commands execute exec invoke invocation"
    " use run request requests next step block list".split()
)
"""Parts of names that announce calls, such as `next_action` or `tool_use`: these may be a misspelled format."""
_PARTS = re.compile(r"[_:.▁-]")


def fence_ends(number: str) -> re.Pattern[str]:
    """Return the pattern of the end of a result's fence, see `chatops.dialects.writing`."""
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


class Enclosure(Enum):
    """Relation of a call to the open tags around it."""

    FREE = auto()
    DOUBTFUL = auto()
    """It may have been thought or quoted, so the user decides."""
    QUOTED = auto()
    """It is between a pair of tags, so it is text."""


class OpenTags:
    """The tags that are open at one position of a message, outermost first."""

    __slots__ = ("_closings", "_counts", "_names", "_own_line", "_searched", "_too_many")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._counts: dict[str, int] = {}
        self._own_line: list[bool] = []
        self._too_many = False
        self._closings: dict[str, int] = {}
        self._searched = (0, 0, False)

    def __bool__(self) -> bool:
        return bool(self._names)

    def open(self, name: str, *, begins_line: bool) -> None:
        """Add a tag, unless calls inside it count as calls."""
        if _is_harmless(name):
            return
        if len(self._names) == _MOST:
            self._too_many = True
            return
        self._names.append(name)
        self._own_line.append(begins_line)
        self._counts[name] = self._counts.get(name, 0) + 1

    def close(self, name: str) -> bool:
        """Drop the innermost tag `name` and all tags opened inside it.

        Return False if it was never opened, unless calls inside such a tag count anyway.
        """
        if name not in self._counts:
            return _is_harmless(name)
        while True:
            dropped = self._names.pop()
            self._own_line.pop()
            self._counts[dropped] -= 1
            if not self._counts[dropped]:
                del self._counts[dropped]
            if dropped == name:
                return True

    def around(self, text: str, at: int, *, base: int, final: bool) -> Enclosure | Early:
        """Return the enclosure of a call whose opening tag ends at `at`.

        `base` is the index of `text` in the message. Return TOO_EARLY if only the end of the message can tell.
        """
        self._search(text, at, base, final)
        closed = [name for name in self._counts if self._closings.get(name, -1) >= base + at]
        if not all(map(_announces, closed)):
            return Enclosure.QUOTED
        if not final:
            return TOO_EARLY
        return Enclosure.DOUBTFUL if closed or self._too_many or any(self._own_line) else Enclosure.FREE

    def _search(self, text: str, at: int, base: int, final: bool) -> None:
        """Record the last closing tag of each name after `at`, unless that was done for this text."""
        start, end, to_the_end = self._searched
        if start <= base + at and end == base + len(text) and to_the_end == final:
            return
        self._searched = (base + at, base + len(text), final)
        self._closings = {
            key: base + tag.start()
            for tag in _CLOSES.finditer(text, at)
            if (key := _closing_key(tag)) and not is_spoken_of(text, tag, final=final)
        }


def read_tag(text: str, start: int, *, final: bool) -> tuple[str, bool] | Early | None:
    """Return the key of the tag of no known format at `start`, and True if it is a closing tag.

    Both tags of a pair have the same key. Return None if there is no tag, or a closing one that is only mentioned.
    """
    if (closing := _CLOSES.match(text, start)) and (key := _closing_key(closing)):
        spoken_of = is_spoken_of(text, closing, final=final)
        return spoken_of if isinstance(spoken_of, Early) else None if spoken_of else (key, True)
    opening = _OPENS.match(text, start)
    if opening is None or (opening["name"] and opening.end() == len(text) and len(opening["name"]) < _LONGEST_NAME):
        if not final and _TAG_BEGINS.match(text, start):
            return TOO_EARLY
    if opening is None:
        return None
    if opening["token"]:
        return _token_key(opening["token"]), False
    return (opening["name"] or f"[{opening['bracket']}").lower(), False


def _closing_key(tag: re.Match[str]) -> str:
    """Return the key of the pair that `tag` closes, or "" if it is a token that closes nothing."""
    if tag["token"]:
        parts = _PARTS.split(tag["token"].lower())
        return _token_key(tag["token"]) if tag["token"].startswith("/") or "end" in parts else ""
    return (tag["name"] or f"[{tag['bracket']}").lower()


def _token_key(name: str) -> str:
    return "|" + "_".join(part for part in _PARTS.split(name.lower().lstrip("/")) if part not in _BOUNDARIES)


def is_spoken_of(text: str, tag: re.Match[str], *, final: bool) -> bool | Early:
    """Return True if a tag is alone in inline code or in quotes."""
    closing = "`" if text[tag.start() - 1] == "`" else QUOTES.get(text[tag.start() - 1], "")
    if closing and tag.end() == len(text) and not final:
        return TOO_EARLY
    return bool(closing) and text.startswith(closing, tag.end())


def _is_harmless(name: str) -> bool:
    """Return True for tags inside which a call counts as a call."""
    bare = name.lstrip("[|")
    return (
        bare in _ANSWERS
        or name in _VOID
        or (name[0] == "|" and bare in _WHOLE_MESSAGES)
        or CLOSER.fullmatch(f"</{bare}>") is not None
    )


def _announces(name: str) -> bool:
    return all(part in _ANNOUNCING for part in _PARTS.split(name.lstrip("[|")))

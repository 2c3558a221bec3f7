"""Parts shared by the readers of all formats: the tools on offer, the outcomes, and the marks that begin and end calls.

A reader gets an `Opening`, a place in the text so far at which an opening mark was found. It returns a `CallBlock` with
the calls that it read there, or `NoCall` if the place is text. Some words mean the same in all readers:

- sure: no further text could change the outcome. One that is not sure is dropped, and the place is read again when more
  text has come, or is taken as it is at the end of the message.
- cut: the text ends inside a call or value. Its rest is unknown, so it becomes an `UnusableCall`.
- whole: the model wrote all brackets of a call itself. A call is `closed` if it is whole and its closing mark was
  there, where its format has one. If the server cut the message at its limit of length, only closed calls count.
- mark: a tag (`<tool_call>`), a token (`<|im_end|>`) or another fixed text (`[TOOL_CALLS]`) that means something.
- closing mark: one that ends a call in any format, or a message. Right after a call it means nothing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto

from chatops.dialects.json_reader import after_match
from chatops.dialects.reading import Confidence, DiagnosticKind, Schema, Tools, UnreadableValueError
from chatops.dialects.strings import possessive
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import ALIASES, BUILT_IN_TOOLS

_MAX_LISTED = 12
"""Tools that a message to the model lists; it has seen all of them in the request."""
MAX_CALL = 8_000_000
"""Characters of one call, more than any tool takes. A larger call would only take memory."""
MAX_DEPTH = 100
"""Maximum nesting depth for recursive readers: each level takes several frames of the stack left to them."""
_CODE = {name: known.code for name, known in BUILT_IN_TOOLS.items() if known.code}
BUILT_IN_CODE_TOOL = next(iter(_CODE))
"""The tool to name to the model where it wrote code, and no tool that runs code is on offer."""
_CODE_ARGUMENTS = _CODE | {alias: _CODE[name] for alias, name in ALIASES.items() if name in _CODE}
"""By name of each built-in tool that runs code, and then of its aliases: the argument with the code."""


class Early(Enum):
    """Answer for a position that cannot be decided before more text has come.

    An enum of one member, because type checkers tell that from an index, a boolean and None.
    """

    TOO_EARLY = auto()


TOO_EARLY = Early.TOO_EARLY


@frozen_dataclass
class CodeTool:
    """A tool on offer that runs code."""

    name: str
    code_argument: str


class OfferedTools:
    """The tools on offer, and aliases that mean one of them (`brave_search` → `web_search`)."""

    __slots__ = ("aliases", "are_read", "tools")

    def __init__(self, tools: Tools | None, aliases: Mapping[str, str]) -> None:
        self.tools: Tools = {} if tools is None else tools
        self.aliases = aliases
        self.are_read = tools is not None
        """True if calls are read; otherwise everything that looks like one is text."""

    def named(self, written: str) -> str | None:
        """Return the tool that `written` names, exactly or as an alias; surrounding white space is ignored."""
        name = written.strip()
        if name in self.tools:
            return name
        tool = self.aliases.get(name)
        return tool if tool in self.tools else None

    def code_tool(self) -> CodeTool | None:
        """Return the tool on offer that runs code, under its own name or an alias; None if there is none."""
        for name, argument in _CODE_ARGUMENTS.items():
            if tool := self.named(name):
                return CodeTool(name=tool, code_argument=argument)
        return None

    def schema(self, name: str) -> Schema:
        """Return the schema of a tool on offer."""
        return self.tools[name]

    def begins_a_name(self, text: str) -> bool:
        """Return True if a name that a model may write begins with `text`."""
        return any(name.startswith(text) for names in (self.tools, self.aliases) for name in names)

    def required(self, name: str) -> Sequence[str]:
        """Return the required arguments of a tool on offer."""
        required = self.tools[name].get("required")
        if not isinstance(required, Sequence) or isinstance(required, str):
            return ()
        return [name for name in required if isinstance(name, str)]

    def listed(self) -> str:
        """Return a clause that lists the first tools on offer, for a message to the model."""
        if not self.tools:
            return "no tool is on offer"
        names = list(self.tools)
        shown = ", ".join(names[:_MAX_LISTED])
        more = len(names) - _MAX_LISTED
        return f"on offer are {shown}" + (f" and {more} more" if more > 0 else "")


@frozen_dataclass
class Call:
    """A call of a tool on offer that was read. Indices are into the text that was read."""

    name: str
    arguments: dict[str, JsonValue]
    start: int
    end: int
    repairs: tuple[str, ...] = ()
    closed: bool = True
    """True if the whole call was there, the closing tag of its format included."""
    confidence: Confidence = Confidence.HIGH


@frozen_dataclass
class UnusableCall:
    """A recognised call that cannot be used, and why."""

    kind: DiagnosticKind
    message: str
    start: int
    name: str = ""
    empty: bool = False
    """True if only an opening tag was written, at the end of the text."""


FoundCall = Call | UnusableCall


@frozen_dataclass
class CallBlock:
    """A block of calls, or a wrapper around them. Its text is not shown to the user."""

    end: int
    """Index after the block."""
    format: str
    items: tuple[FoundCall, ...] = ()
    sure: bool = True
    wraps: bool = False
    """True for an opening tag around calls, which follow it."""
    rest_is_invented: bool = False
    """True if the model made up the results that follow: they are neither run nor shown."""

    @property
    def is_cut(self) -> bool:
        """True if the text ends inside one of its calls."""
        return any(isinstance(item, UnusableCall) and item.kind is DiagnosticKind.CUT_OFF for item in self.items)


@frozen_dataclass
class NoCall:
    """No call is here; the text is text."""

    sure: bool = True


ParseOutcome = CallBlock | NoCall
NOT_HERE = NoCall()
"""This is text, whatever follows."""
NOT_YET = NoCall(sure=False)
"""More text may make it a call."""


@frozen_dataclass
class Opening:
    """A place where a call may begin, for the reader of its format."""

    text: str
    """All text so far; more may come."""
    start: int
    """Index of the opening tag."""
    after: int
    """Index after the word of the opening tag: at `>`, `=` or white space."""
    offered: OfferedTools
    wrapper: str = ""
    """The format of the surrounding wrapper, if the wrapper determines the format."""


ReadCalls = Callable[[Opening], ParseOutcome]


def unknown_tool_call(name: str, offered: OfferedTools, start: int) -> UnusableCall:
    """Return the unusable call of a name that is not on offer."""
    return UnusableCall(
        kind=DiagnosticKind.UNKNOWN_TOOL,
        message=f"is not a tool here; {offered.listed()}" if name.strip() else f"has no name; {offered.listed()}",
        start=start,
        name=name.strip(),
    )


def unreadable_call(error: UnreadableValueError, name: str, start: int) -> UnusableCall:
    """Return the unusable call for arguments that could not be read because of `error`."""
    if error.cut:
        return cut_off_call(name, start)
    where = max(error.position - start, 0)
    return UnusableCall(
        kind=DiagnosticKind.UNREADABLE,
        message=f"could not be read: {error.message}, {where} characters into the call",
        start=start,
        name=name,
    )


def cut_off_call(name: str, start: int) -> UnusableCall:
    """Return the unusable call whose end is missing."""
    return UnusableCall(
        kind=DiagnosticKind.CUT_OFF,
        message="was cut off before its end, so nothing of it was run; write the whole call again",
        start=start,
        name=name,
    )


def block_to(closer: re.Match[str] | None, text: str, item: FoundCall, *, format: str) -> CallBlock:
    """Return the block of `item` up to its closing mark; without one, all the text so far, of which more may come."""
    end = closer.end() if closer else len(text)
    return CallBlock(end=end, format=format, items=(item,), sure=closer is not None)


def cut_off_block(text: str, name: str, start: int, *, format: str) -> CallBlock:
    """Return the block of a call at the end of the text so far, whose own end is missing."""
    return block_to(None, text, cut_off_call(name, start), format=format)


def empty_call(start: int) -> UnusableCall:
    """Return the unusable call of an opening tag that nothing follows."""
    return UnusableCall(
        kind=DiagnosticKind.CUT_OFF,
        message="was started but not written; write the whole call",
        start=start,
        empty=True,
    )


def with_repair(item: FoundCall, repair: str) -> FoundCall:
    """Return `item` with one more repair, if it is a call."""
    if isinstance(item, UnusableCall) or repair in item.repairs:
        return item
    return replace(item, repairs=(*item.repairs, repair))


def as_unclosed(item: FoundCall) -> FoundCall:
    """Return `item` with `closed` False: its closing tag is missing. An unusable call is returned unchanged."""
    return item if isinstance(item, UnusableCall) else replace(item, closed=False)


def with_low_confidence(item: FoundCall) -> FoundCall:
    """Return `item` with low confidence, as it may be an example, if it is a call."""
    return item if isinstance(item, UnusableCall) else replace(item, confidence=Confidence.LOW)


NAME = r"[^\s<>{}()\[\]\"'`|｜,;=]{1,256}"
"""A name as models write it without quotes: anything but characters that could end it."""


def _any_of(*patterns: str) -> str:
    """Return the pattern of a text that one of `patterns` matches."""
    return f"(?:{'|'.join(patterns)})"


_TAG_NAMES = _any_of(
    r"tool_?calls?|tool-calls?|function_?calls?|functions?|invoke|tools?|tool_code|arguments",  # Of many models.
    r"longcat_tool_call|minimax:tool_call|seed:tool_call|dots_function_call|ifm\|tool_calls?",  # Of one family each.
    r"(?:atem|antml|steptml):(?:function_calls|invoke)",
    r"｜DSML｜\s?(?:function_calls|tool_calls|calls|invoke)",  # `</｜DSML｜invoke>` of DeepSeek V3.2.
)
"""Names of the tags around calls, which end one as `</tool_call>`."""
_TOKENS = _any_of(
    r"\|(?:tool_call_end|tool_calls_section_end|end_action|tools_suffix|python_end|action_end|end_message)\|",
    r"\|(?:content_model_end_sampling|/tool_call|tool_calls_end|end_tool_calls)\|",
    r"[|｜]tool[▁_ ]calls?[▁_ ]end[|｜]",  # DeepSeek's, in its own spelling and in that of some servers.
    r"tool_call\||end_function_call|end_of_tool_call",  # `<tool_call|>` and `<end_function_call>` of Gemma.
    r"\|plamo:end_tool_(?:requests?|arguments|name):plamo\||\|plamo:tag\|",
)
"""Tokens that end calls, without `<` and `>`: `<|tool_call_end|>`."""
CLOSER = re.compile(
    _any_of(
        rf"<\s?/\s?{_TAG_NAMES}(?::\w{{1,20}})?\s*>",  # `</tool_call>`, `</tool_call:opensource>`
        rf"<{_TOKENS}>",  # `<|tool_call_end|>`
        r"<\|close\|>\s?\w{1,20}\s?<\|sep\|>",  # `<|close|>call<|sep|>`
        r"\]<\]minimax\[>\[</\w{1,40}>",  # `]<]minimax[>[</invoke>`
        r"\[/TOOL_CALLS\]",
    ),
    re.IGNORECASE,
)
"""Any tag or token that ends a call or a list of calls, in any format."""
_CLOSER_CHARS = "<]["
"""The characters with which a closing mark begins."""
CLOSER_BEGINS = re.compile(
    _any_of(
        r"<[/|｜ ]?[^<>]{0,40}",  # `</tool_ca`, `<|tool_call_e`
        r"<\|close\|>[^<>]{0,24}(?:<[^<>]{0,8})?",  # `<|close|>call<|se`
        r"\][<\]minax\[>]{0,12}(?:<(?:/\w{0,40})?)?",  # `]<]mini`, `]<]minimax[>[</invo`
        r"\[[^\]\s]{0,16}",  # `[/TOOL_CA`
        r">{1,2}",  # `>>>`, with which functionary begins the next call.
    )
    + r"\Z"
)
"""The beginning of a possible closing mark, at the end of a text. Each limit is about that of the longest mark."""
_MAX_CLOSER = 80
"""Characters of text, at most, that may still become a closing mark: more than the longest has without white space."""
END_OF_TEXT = re.compile(
    r"<\|(?:im_end|eot_id|eom_id|end|endoftext|end_of_text|eot|eom|return|call|end_of_turn|role_end|endofturn|end_of_msg"
    r"|END_OF_TURN_TOKEN|END_RESPONSE|assistant_end|ifm\|im_end|turn_end|endofprompt)\|>"
    r"|</s>|<end_of_turn>|<turn\|>|<eos>|<[|｜]end[▁_]of[▁_]sentence[|｜]>|<\[e~\[>|\[e~\[|\[EOS\]|<seed:eos>",
    re.IGNORECASE,
)
"""Tokens that end a message or a turn, each in the chat template of some family."""
_NEXT_TURN = r"<\|(?:message_sep|user|observation|tool_response)\|?>|<start_function_response>"
"""Tokens at which servers stop as well: another role would write what follows."""
# `possessive` repeats a pattern as often as it matches, and never tries fewer times.
_TAIL = re.compile(possessive(rf"\s++|{_NEXT_TURN}|{END_OF_TEXT.pattern}|{CLOSER.pattern}"), re.IGNORECASE)
"""All that may follow the last call of a message."""
_CLOSER_RUN = re.compile(possessive(rf"\s*+(?:{CLOSER.pattern}|{END_OF_TEXT.pattern})", "+") + r"\s*+", re.IGNORECASE)
"""Closing marks in a row: `</function></tool_call><|im_end|>`."""
JUNK = re.compile(r"(?:\s|\\[nrt]|[}\]);,`]){0,64}")
"""Text allowed between the end of a value and the closing tag: surplus brackets, the end of a fence."""
QUOTED_CALL = (
    r"<\s?(?:function|invoke)\s*>|<\s?[\w:|]{0,20}(?:tool_calls?|function_calls?)\b[^<>]{0,20}>|\]<\]minimax\[>\[<[^/]"
)
"""Pattern of an opening tag of calls: in a value that holds one, closing tags may belong to it."""
_BARS, _JOINTS = "|｜", "▁_"
"""The bar and the joint in DeepSeek's tokens, each in its own spelling (`｜`, `▁`) and in that of some servers."""
TAGS: Mapping[str, Sequence[str]] = {
    "hermes": ("tool_call", "tool-call"),
    "granite3": ("|tool_call|",),
    "granite20b_fc": ("function_call",),
    "tool_calls_array": ("tool_calls",),
    "nemotron_toolcall": ("toolcall",),
    "longcat": ("longcat_tool_call",),
    "lfm2": ("|tool_call_start|",),
    "llama4_pythonic": ("|python_start|",),
    "cohere_action": ("|start_action|",),
    "apertus": ("|tools_prefix|",),
    "gigachat31": ("|function_call|",),
    "gigachat3": ("|message_sep|",),
    "internlm2": ("|action_start|",),
    "inkling": ("|content_invoke_tool_json|",),
    "minimax_m2": ("minimax:tool_call",),
    "seed_oss": ("seed:tool_call",),
    "dots": ("dots_function_call",),
    "k2_horizon": ("ifm|tool_call", "ifm|tool_calls"),
    "qwen3_xml": ("function",),
    # For `<function name=`: the space is lost, or printed as the `Ġ` that represents it in the model's vocabulary.
    "minicpm5": ("functionname", "functionġname"),
    "step3": ("steptml:invoke",),
    "anthropic_invoke": ("function_calls", "antml:function_calls", "invoke", "antml:invoke"),
    "atem": ("atem:function_calls", "atem:invoke"),
    # Of `<｜DSML｜invoke`, or of `<｜DSML｜ invoke`, in which the word ends at the space.
    "dsml_v32": [
        f"{bar}dsml{bar}{word}" for bar in _BARS for word in ("", "function_calls", "tool_calls", "calls", "invoke")
    ],
    "deepseek_v3": [
        f"{bar}tool{joint}{word}{joint}begin{bar}" for bar in _BARS for joint in _JOINTS for word in ("call", "calls")
    ],
    "kimi_k2": ("|tool_calls_section_begin|",),
    "plamo3": [f"|plamo:begin_tool_{part}:plamo|" for part in ("requests", "request", "name")],
    "llama3_python_tag": ("|python_tag|",),
    "gemma4": ("|tool_call",),
    "functiongemma": ("start_function_call",),
}
"""By format: the words of its opening tags, in lower case without `<` and `>`."""
MARKS: Mapping[str, Sequence[str]] = {
    "mistral_json": ("[TOOL_CALLS]",),
    "functools": ("functools[",),
    "minimax_m3": ("]<]minimax[>[",),
    # Some servers print the `▁` in DeepSeek's tokens as the space that it represents.
    "deepseek_v3": [f"<{bar}tool {word} begin{bar}>" for bar in _BARS for word in ("call", "calls")],
}
"""By format: its opening marks that are not tags."""
TAG_WORD = r"[/!]?(?:[^\W\d]|[|｜])[\w:|｜▁/-]{0,63}"
"""Pattern of the first word of a tag, without `<`: its name, or all of a token such as `|im_end|`."""
_WHOLE_WORD = re.compile(rf"<[ ]?(?P<word>{TAG_WORD})(?=.)", re.DOTALL)
"""The word of a tag. Some character has to follow it: at the end of the text, the word may be longer."""
_TAG_WORDS = frozenset(word for words in TAGS.values() for word in words)
_ALL_MARKS = tuple(mark for marks in MARKS.values() for mark in marks)
_SPACE = re.compile(r"\s*+")


def skip_space(text: str, at: int) -> int:
    """Return the index of the first character at or after `at` that is not white space."""
    return after_match(_SPACE, text, at)


@frozen_dataclass(kw_only=False)
class Closers:
    """Closing marks in a row, up to `end`."""

    end: int
    end_call: bool
    """True if they end a call, and are not text about one."""


def read_closers(text: str, at: int, *, min_tags: int) -> Closers:
    """Return the closing marks from that at `at` on.

    They end a call if another call follows, or if the text ends after at least `min_tags` closing tags. A tag at `at`
    that is no closing mark counts as one character, so that a search for the next one can go on behind it.
    """
    run = _CLOSER_RUN.match(text, at)
    end = run.end() if run else at + 1
    if end < len(text):
        return Closers(end, _call_opens(text, end))
    return Closers(end, run is not None and len(CLOSER.findall(run[0])) >= min_tags)


def _call_opens(text: str, at: int) -> bool:
    """Return True if an opening mark of calls is at `at`."""
    tag = _WHOLE_WORD.match(text, at)
    if tag and tag["word"].lower().removesuffix(":opensource") in _TAG_WORDS:
        return True
    # At the end of the text, `]<]minimax[>[` opens a call or begins the closing mark `]<]minimax[>[</invoke>`.
    return text.startswith(_ALL_MARKS, at) and not CLOSER_BEGINS.match(text, at)


def only_closers_follow(text: str, at: int) -> bool:
    """Return True if only white space, closing marks and the tokens of a next turn follow `at`."""
    return after_match(_TAIL, text, at) == len(text)


def text_follows(text: str, at: int) -> bool:
    """Return True if something other than closing marks follows `at`, whatever text is still to come."""
    end = after_match(_TAIL, text, at)
    return end < len(text) and CLOSER_BEGINS.match(text, end) is None


def closer_after(text: str, at: int) -> int | None:
    """Return the index after the closing tag that follows `at` and any surplus brackets; None if there is none."""
    closer = CLOSER.match(text, after_match(JUNK, text, at))
    return closer.end() if closer else None


def closer_may_come(text: str, at: int) -> bool:
    """Return True if more text could add a closing tag after `at`, where none is yet."""
    at = after_match(JUNK, text, at)
    if at == len(text) or (text[at] == "\\" and at + 1 == len(text)):
        return True  # A backslash at the end may begin an escape among the surplus brackets.
    return text[at] in _CLOSER_CHARS and len(text) - at < _MAX_CLOSER

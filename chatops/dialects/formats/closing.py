"""Closing marks of calls, and marks that servers leave after a message: they mean nothing after a call."""

import re

_TAG_NAMES = (
    r"tool_?calls?|tool-calls?|function_?calls?|functions?|invoke|tools?|tool_code|longcat_tool_call|minimax:tool_call"
    r"|seed:tool_call|dots_function_call|ifm\|tool_calls?|(?:atem|antml|steptml):(?:function_calls|invoke)"
    r"|｜DSML｜\s?(?:function_calls|tool_calls|calls|invoke)|arguments"
)
_TOKENS = (
    r"\|(?:tool_call_end|tool_calls_section_end|end_action|tools_suffix|python_end|action_end|end_message"
    r"|content_model_end_sampling|/tool_call|tool_calls_end|end_tool_calls)\|"
    r"|[|｜]tool[▁_ ]calls?[▁_ ]end[|｜]|tool_call\||end_function_call|end_of_tool_call"
    r"|\|plamo:end_tool_(?:requests?|arguments|name):plamo\||\|plamo:tag\|"
)
CLOSER = re.compile(
    rf"<\s?/\s?(?:{_TAG_NAMES})(?::\w{{1,20}})?\s*>|<(?:{_TOKENS})>|<\|close\|>\s?\w{{1,20}}\s?<\|sep\|>"
    r"|\]<\]minimax\[>\[</\w{1,40}>|\[/TOOL_CALLS\]",
    re.IGNORECASE,
)
"""Any tag or token that ends a call or a list of calls, in any format."""

END_OF_TEXT = re.compile(
    r"<\|(?:im_end|eot_id|eom_id|end|endoftext|end_of_text|eot|eom|return|call|end_of_turn|role_end|endofturn|end_of_msg"
    r"|END_OF_TURN_TOKEN|END_RESPONSE|assistant_end|ifm\|im_end|turn_end|endofprompt)\|>"
    r"|</s>|<end_of_turn>|<turn\|>|<eos>|<[|｜]end[▁_]of[▁_]sentence[|｜]>|<\[e~\[>|\[e~\[|\[EOS\]|<seed:eos>",
    re.IGNORECASE,
)
"""Tokens that end a message or a turn."""

_LONGEST = 80
JUNK = re.compile(r"(?:\s|\\[nrt]|[}\]);,`]){0,64}")
"""Text allowed between the end of a value and the closing tag: surplus brackets, the end of a fence."""
_NEXT_TURN = r"<\|(?:message_sep|user|observation|tool_response)\|?>|<start_function_response>"
"""Tokens at which servers stop as well: another role would write what follows."""
CLOSER_BEGINS = re.compile(
    r"(?:<[/|｜ ]?[^<>]{0,40}|<\|close\|>[^<>]{0,24}(?:<[^<>]{0,8})?|\][<\]minax\[>]{0,12}(?:<(?:/\w{0,40})?)?"
    r"|\[[^\]\s]{0,16}|>{1,2})\Z"
)
"""The beginning of a possible closing tag, at the end of a text."""
_TAIL = re.compile(rf"(?:\s++|{_NEXT_TURN}|(?:{END_OF_TEXT.pattern})|(?:{CLOSER.pattern}))*+", re.IGNORECASE)


QUOTED_CALL = (
    r"<\s?(?:function|invoke)\s*>|<\s?[\w:|]{0,20}(?:tool_calls?|function_calls?)\b[^<>]{0,20}>|\]<\]minimax\[>\[<[^/]"
)
"""Pattern of an opening tag of calls: in a value that holds one, closing tags may belong to it."""
_RUN = re.compile(rf"(?:\s*+(?:{CLOSER.pattern}|{END_OF_TEXT.pattern}))++\s*+", re.IGNORECASE)
_NEXT = re.compile(
    r"<\s?(?:[\w:|]{0,20}tool_calls?\b|(?:\w+:)?(?:function|invoke)[\s=])|<[|｜]DSML[|｜]|\]<\]minimax\[>\[<[^/]",
    re.IGNORECASE,
)


def call_ends_at(text: str, at: int, *, least: int) -> tuple[bool, int]:
    """Return True if the closing tag at `at` ends a call and is not text about one, and the index after it.

    Only closing tags may follow, then another call or the end of the text. Before the end of the text, at least `least`
    of these tags are required.
    """
    run = _RUN.match(text, at)
    end = run.end() if run else at + 1
    if end < len(text):
        return _NEXT.match(text, end) is not None, end
    return run is not None and len(CLOSER.findall(run[0])) >= least, end


def only_closers_follow(text: str, at: int) -> bool:
    """Return True if only white space and closing tags and tokens follow `at`."""
    return _after_tail(text, at) == len(text)


def text_follows(text: str, at: int) -> bool:
    """Return True if something other than closing marks follows `at`, whatever text is still to come."""
    end = _after_tail(text, at)
    return end < len(text) and CLOSER_BEGINS.match(text, end) is None


def _after_tail(text: str, at: int) -> int:
    tail = _TAIL.match(text, at)
    return tail.end() if tail else at


def closer_after(text: str, at: int) -> int | None:
    """Return the index after the closing tag that follows `at` and any surplus brackets; None if there is none."""
    found = CLOSER.match(text, _after_junk(text, at))
    return found.end() if found else None


def closer_may_come(text: str, at: int) -> bool:
    """Return True if more text could add a closing tag after `at`, where none is yet."""
    at = _after_junk(text, at)
    if len(text) - at < 2:
        return at == len(text) or text[at] in "<[]\\"
    return text[at] in "<[]" and len(text) - at < _LONGEST


def _after_junk(text: str, at: int) -> int:
    junk = JUNK.match(text, at)
    return junk.end() if junk else at

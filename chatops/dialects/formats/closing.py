"""What closes calls, and what servers leave behind a message: tags and tokens that mean nothing after a call."""

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
"""Any tag or token that ends a call or a list of calls, of whatever format."""

END_OF_TEXT = re.compile(
    r"<\|(?:im_end|eot_id|eom_id|end|endoftext|end_of_text|eot|eom|return|call|end_of_turn|role_end|endofturn|end_of_msg"
    r"|END_OF_TURN_TOKEN|END_RESPONSE|assistant_end|ifm\|im_end|turn_end|endofprompt)\|>"
    r"|</s>|<end_of_turn>|<turn\|>|<eos>|<[|｜]end[▁_]of[▁_]sentence[|｜]>|<\[e~\[>|\[e~\[|\[EOS\]|<seed:eos>",
    re.IGNORECASE,
)
"""Tokens that end a message or a turn."""

_LONGEST = 80
JUNK = re.compile(r"(?:\s|\\[nrt]|[}\]);,`]){0,64}")
"""What may stand between the end of a value and the closing tag: brackets too many, the end of a fence."""
_NEXT_TURN = r"<\|(?:message_sep|user|observation|tool_response)\|?>|<start_function_response>"
"""Tokens at which servers stop as well: what would follow is for somebody else to write."""
CLOSER_BEGINS = re.compile(
    r"(?:<[/|｜ ]?[^<>]{0,40}|<\|close\|>[^<>]{0,24}(?:<[^<>]{0,8})?|\][<\]minax\[>]{0,12}(?:<(?:/\w{0,40})?)?"
    r"|\[[^\]\s]{0,16}|>{1,2})\Z"
)
"""What may be the beginning of a closing tag, at the end of a text."""
_TAIL = re.compile(rf"(?:\s++|{_NEXT_TURN}|(?:{END_OF_TEXT.pattern})|(?:{CLOSER.pattern}))*+", re.IGNORECASE)


QUOTED_CALL = (
    r"<\s?(?:function|invoke)\s*>|<\s?[\w:|]{0,20}(?:tool_calls?|function_calls?)\b[^<>]{0,20}>|\]<\]minimax\[>\[<[^/]"
)
"""An opening tag of calls, as a pattern: in a value that holds one, closing tags may belong to it."""
_RUN = re.compile(rf"(?:\s*+(?:{CLOSER.pattern}|{END_OF_TEXT.pattern}))++\s*+", re.IGNORECASE)
_NEXT = re.compile(
    r"<\s?(?:[\w:|]{0,20}tool_calls?\b|(?:\w+:)?(?:function|invoke)[\s=])|<[|｜]DSML[|｜]|\]<\]minimax\[>\[<[^/]",
    re.IGNORECASE,
)


def call_ends_at(text: str, at: int, *, least: int) -> tuple[bool, int]:
    """Whether the closing tag at `at` is the end of a call and no text about one. With it, the index behind it.

    Only such tags may follow, and then another call or the end of the text, before which there are at `least` so many.
    """
    run = _RUN.match(text, at)
    end = run.end() if run else at + 1
    if end < len(text):
        return _NEXT.match(text, end) is not None, end
    return run is not None and len(CLOSER.findall(run[0])) >= least, end


def only_closers_follow(text: str, at: int) -> bool:
    """Whether nothing follows `at` but white space and tags and tokens that end things."""
    return _after_tail(text, at) == len(text)


def text_follows(text: str, at: int) -> bool:
    """Whether something else follows for sure, whatever may still come."""
    end = _after_tail(text, at)
    return end < len(text) and CLOSER_BEGINS.match(text, end) is None


def _after_tail(text: str, at: int) -> int:
    tail = _TAIL.match(text, at)
    return tail.end() if tail else at


def closer_after(text: str, at: int) -> int | None:
    """Index after the closing tag that follows `at`, surplus brackets before it skipped; None if none does."""
    found = CLOSER.match(text, _after_junk(text, at))
    return found.end() if found else None


def closer_may_come(text: str, at: int) -> bool:
    """Whether more text could put a closing tag behind `at`, where none is yet."""
    at = _after_junk(text, at)
    if len(text) - at < 2:
        return at == len(text) or text[at] in "<[]\\"
    return text[at] in "<[]" and len(text) - at < _LONGEST


def _after_junk(text: str, at: int) -> int:
    junk = JUNK.match(text, at)
    return junk.end() if junk else at

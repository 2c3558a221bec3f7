"""The table of formats, and the role of each tag by its word.

A new format with its own tags and a known grammar is one line here.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from chatops.dialects.formats.base import (
    NOT_HERE,
    NOT_YET,
    Found,
    Opening,
    Outcome,
    ReadCalls,
    skip_space,
)
from chatops.dialects.formats.channels import FRAME_ENDS
from chatops.dialects.formats.gemma import read_gemma
from chatops.dialects.formats.marked import read_body, read_marked
from chatops.dialects.formats.minimax_m3 import read_minimax
from chatops.dialects.formats.objects import read_objects
from chatops.dialects.formats.python_calls import code_call, read_python_tag
from chatops.dialects.formats.tagged import read_tagged
from chatops.dialects.formats.tokens import read_mistral, read_plamo, read_token_call, read_token_calls
from chatops.dialects.masks import QUOTING
from chatops.dialects.reasoning import CLOSING, OPENING
from chatops.dialects.scanner import Kind, beginnings
from chatops.dialects.turns import TURNS


def _between(name: str, *words: str) -> dict[str, ReadCalls]:
    """Return readers for calls in any grammar after a tag with one of `words`."""
    return {word: partial(read_marked, format=name, word=word) for word in words}


def _tagged(name: str, *words: str) -> dict[str, ReadCalls]:
    """Return readers for calls that are a tag with one of `words` and a name, around tags of parameters."""
    return dict.fromkeys(words, partial(_read_function, format=name))


def _read_function(opening: Opening, *, format: str) -> Outcome:
    return read_tagged(opening, format=opening.wrapper or format)


def _behind(name: str, word: str, rest: str) -> dict[str, ReadCalls]:
    """Return a reader for calls after a tag with `word` that is followed by the pattern `rest`."""
    return {word: partial(_read_behind, format=name, rest=re.compile(rf">\s*{rest}\s*"))}


_LONGEST_REST = 64


def _read_behind(opening: Opening, *, format: str, rest: re.Pattern[str]) -> Outcome:
    found = rest.match(opening.text, opening.after)
    if found is None:
        return NOT_YET if len(opening.text) - opening.after < _LONGEST_REST else NOT_HERE
    if found.end() == len(opening.text):
        return NOT_YET
    return read_body(opening, found.end(), format=format)


_DSML = re.compile(r"<[|｜]DSML[|｜](\s?)(function_calls|tool_calls|calls|invoke)\b", re.IGNORECASE)
_DSML_WRAPPER = re.compile(r"\s*>\s*(?=<)")
_DSML_FORMATS = {"function_calls": "dsml_v32", "tool_calls": "dsml_v4", "calls": "dsml_v41"}


def _read_dsml(opening: Opening) -> Outcome:
    """Read tags with `｜DSML｜` before their word: a wrapper or a call."""
    text, start = opening.text, opening.start
    tag = _DSML.match(text, start)
    if tag is None:
        return NOT_YET if len(text) - start < _LONGEST_REST and ">" not in text[start:] else NOT_HERE
    kind = tag[2].lower()
    if kind == "invoke":
        return read_tagged(opening, format=opening.wrapper or ("dsml_v41" if tag[1] else "dsml_v32"))
    inner = _DSML_WRAPPER.match(text, tag.end())
    if inner is None:
        return NOT_YET if skip_space(text, tag.end() + 1) == len(text) else NOT_HERE
    return Found(end=inner.end(), format=_DSML_FORMATS[kind], wraps=True)


_CODE_ENDS = re.compile(r"<\|action_end\|>|<\|im_end\|>")
_PLUGIN = re.compile(r">\s*<\|(plugin|interpreter)\|>\s*", re.IGNORECASE)


def _read_action(opening: Opening) -> Outcome:
    """Read `<|action_start|>` of InternLM: a call of a plugin, or code for its interpreter."""
    text = opening.text
    found = _PLUGIN.match(text, opening.after)
    if found is None:
        return NOT_YET if len(text) - opening.after < _LONGEST_REST else NOT_HERE
    if found.end() == len(text):
        return NOT_YET
    if found[1].lower() == "plugin":
        return read_body(opening, found.end(), format="internlm2")
    end = _CODE_ENDS.search(text, found.end())
    code = text[found.end() : end.start() if end else len(text)].strip()
    item = code_call(code, opening.offers, opening.start, len(text))
    return Found(end=end.end() if end else len(text), format="internlm2", items=(item,), sure=end is not None)


_BARS = ("｜", "|")
_JOINTS = ("▁", "_")
_DSML_WORDS = ("", "function_calls", "tool_calls", "calls", "invoke")

_ROWS: Mapping[str, Mapping[str, ReadCalls]] = {
    "hermes": _between("hermes", "tool_call", "tool-call"),
    "granite3": _between("granite3", "|tool_call|"),
    "granite20b_fc": _between("granite20b_fc", "function_call"),
    "tool_calls_array": _between("tool_calls_array", "tool_calls"),
    "nemotron_toolcall": _between("nemotron_toolcall", "toolcall"),
    "longcat": _between("longcat", "longcat_tool_call"),
    "lfm2": _between("lfm2", "|tool_call_start|"),
    "llama4_pythonic": _between("llama4_pythonic", "|python_start|"),
    "cohere_action": _between("cohere_action", "|start_action|"),
    "apertus": _between("apertus", "|tools_prefix|"),
    "gigachat31": _between("gigachat31", "|function_call|"),
    "gigachat3": _behind("gigachat3", "|message_sep|", r"function call<\|role_sep\|>"),
    "internlm2": {"|action_start|": _read_action},
    "inkling": _between("inkling", "|content_invoke_tool_json|"),
    "minimax_m2": _between("minimax_m2", "minimax:tool_call"),
    "seed_oss": _between("seed_oss", "seed:tool_call"),
    "dots": _between("dots", "dots_function_call"),
    "k2_horizon": _between("k2_horizon", "ifm|tool_call", "ifm|tool_calls"),
    "qwen3_xml": _tagged("qwen3_xml", "function"),
    "minicpm5": _tagged("minicpm5", "functionname", "functionġname"),
    "step3": _tagged("step3", "steptml:invoke"),
    "anthropic_invoke": _between("anthropic_invoke", "function_calls", "antml:function_calls")
    | _tagged("anthropic_invoke", "invoke", "antml:invoke"),
    "atem": _between("atem", "atem:function_calls") | _tagged("atem", "atem:invoke"),
    "dsml_v32": {f"{bar}dsml{bar}{word}": _read_dsml for bar in _BARS for word in _DSML_WORDS},
    "deepseek_v3": {f"{bar}tool{joint}call{joint}begin{bar}": read_token_call for bar in _BARS for joint in _JOINTS}
    | {f"{bar}tool{joint}calls{joint}begin{bar}": read_token_calls for bar in _BARS for joint in _JOINTS},
    "kimi_k2": {"|tool_calls_section_begin|": read_token_calls},
    "plamo3": {f"|plamo:begin_tool_{part}:plamo|": read_plamo for part in ("requests", "request", "name")},
    "llama3_python_tag": {"|python_tag|": read_python_tag},
    "gemma4": {"|tool_call": partial(read_gemma, format="gemma4")},
    "functiongemma": {"start_function_call": partial(read_gemma, format="functiongemma")},
}
"""By format: the words of its opening tags, in lower case without `<` and `>`, each with the reader of what follows."""
_SHARED = (
    "deepseek_v31",
    "dsml_v4",
    "dsml_v41",
    "glm_argkey",
    "hy_v3",
    "llama3_builtin",
    "llama3_function_tag",
    "olmo3",
)
"""Formats that open in the same way as another one; the text after the tag tells them apart."""
_OF_LINES = ("commandr_action", "functionary_v32", "react")
_OF_MARKS = ("functools", "minimax_m3", "mistral_json", "mistral_v11")
_OF_HEADERS = ("harmony", "kimi_k3")
_UNMARKED = ("bare_json_alt", "json_array", "json_fenced", "llama3_json", "openai_tool_calls_obj", "pythonic")
FORMATS = frozenset({*_ROWS, *_SHARED, *_OF_LINES, *_OF_MARKS, *_OF_HEADERS, *_UNMARKED})
"""The names of the formats that can be read."""
OPENS: Mapping[str, ReadCalls] = {word: read for row in _ROWS.values() for word, read in row.items()}
"""The words of all opening tags, each with its reader."""

_ENDS_OF_TEXT = (
    "|im_end|",
    "|eot_id|",
    "|eom_id|",
    "|endoftext|",
    "|end_of_text|",
    "|end_of_turn|",
    "|role_end|",
    "/s",
    "end_of_turn",
    "｜end▁of▁sentence｜",
    "|end_message|",
    "|content_model_end_sampling|",
    "|end_of_msg|",
    "|end_response|",
    "seed:eos",
    "turn|",
)
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(_ENDS_OF_TEXT, Kind.END_OF_TEXT),
    **dict.fromkeys(TURNS, Kind.TURN),
    **dict.fromkeys(FRAME_ENDS, Kind.FRAME_ENDS),
    "|open|": Kind.PART,
    "|close|": Kind.PART,
    "|start|": Kind.FRAME,
    "|channel|": Kind.FRAME,
    **dict.fromkeys(QUOTING, Kind.QUOTED),
    **dict.fromkeys(CLOSING, Kind.THOUGHT_ENDS),
    **dict.fromkeys(OPENING, Kind.THOUGHT),
    **dict.fromkeys(OPENS, Kind.CALL),
}
"""The role of a tag, by its word."""
BEGINNINGS = beginnings(
    [*KINDS, "!--", *(f"{word}:opensource" for word in ("tool_call", "tool_calls", "think", "/think"))]
)
"""All prefixes of known words."""


def _read_functools(opening: Opening) -> Outcome:
    """Read `functools[{...}]`; anything else in the brackets is Python."""
    text, bracket = opening.text, opening.after - 1
    at = skip_space(text, opening.after)
    if at == len(text):
        return NOT_YET
    if text[at] != "{":
        return NOT_HERE
    return read_objects(text, opening.start, bracket, opening.offers, format="functools")


def _spaced(opening: Opening, *, read: ReadCalls) -> Outcome:
    return read(replace(opening, after=opening.after - 1))


MARKS: Mapping[str, ReadCalls] = {
    "[TOOL_CALLS]": read_mistral,
    "functools[": _read_functools,
    "]<]minimax[>[": read_minimax,
    # Some servers print the `▁` in DeepSeek's tokens as the space that it represents.
    **{f"<{bar}tool call begin{bar}>": partial(_spaced, read=read_token_call) for bar in _BARS},
    **{f"<{bar}tool calls begin{bar}>": partial(_spaced, read=read_token_calls) for bar in _BARS},
}
"""Opening marks that are not tags, each with its reader."""

"""Formats with opening marks: the table of all formats, and the readers of what follows a mark.

Tags. Models put the grammar of one family between the tags of another. So every opening tag of this kind accepts all
grammars (`read_body`), and the name of the format says which it was. A new format with its own tags and a known grammar
is one line in `TAGS`.

Tokens. DeepSeek V3 and V3.1, Kimi K2, Step-3, PLaMo 3 and Mistral write the name of a call apart from its arguments,
between tokens. DeepSeek writes its tokens with wide bars and `▁`; servers that print tokens in their own way use `|`
and `_`.

Lines. ReAct writes `Action: NAME` and `Action Input: {...}`, Command R+ writes `Action:` and a fence of JSON,
functionary writes `>>>NAME` with the arguments on the next line.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from chatops.dialects.formats.argkey import read_argkey
from chatops.dialects.formats.base import (
    MARKS,
    NAME,
    NOT_HERE,
    NOT_YET,
    TAGS,
    CallBlock,
    NoCall,
    Opening,
    ParseOutcome,
    ReadCalls,
    UnusableCall,
    block_to,
    closer_may_come,
    cut_off_block,
    empty_call,
    skip_space,
    unreadable_call,
)
from chatops.dialects.formats.gemma import read_gemma
from chatops.dialects.formats.json_objects import NO_CALL, name_in, read_arguments, read_named, read_objects, skip_fence
from chatops.dialects.formats.minimax import read_minimax
from chatops.dialects.formats.pythonic import code_call, read_python, read_python_tag
from chatops.dialects.formats.tagged import read_tagged
from chatops.dialects.reading import DiagnosticKind, UnreadableValueError

_INNER_TAG_OPENS = re.compile(
    r"<\s?(?:(?:[a-z_]+:)?(?:invoke|function)(?:[\sĠ=]|name=)|[|｜]DSML[|｜]|(?:ifm\||longcat_)?tool_call(?::\w+)?\s*>"
    r"|[|｜]tool[▁_ ]call[▁_ ]begin[|｜]>|\|tool_call_begin\|>|\|plamo:begin_tool)"
    r"|\]<\]minimax\[>\[<",
    re.IGNORECASE,
)
"""Opening tags that may follow a wrapper."""
_CALL_TAG = re.compile(r"<\s?(?:[a-z_]+:)?(?:invoke|function)(?:[\sĠ=]|name=)", re.IGNORECASE)
_TAG_ENDS = re.compile(r"(?::\w{1,20})?\s{0,4}>")
_PYTHON = re.compile(r"[^\W\d][\w.-]{0,255}\s*\(")
_PYTHON_LIST = re.compile(r"\[\s*(?:\]|[^\W\d][\w.-]{0,255}\s*\()")
_WORD_BEFORE_OBJECT = re.compile(r"[^\s{}<>\[\]]{1,16}\s*(?=\{)")
_TAG_MAY_BEGIN = re.compile(r"(?:<\s?[\w:|｜▁]+(?:[\s=][^<>]*)?|\]<?[\]minax\[>]*<?)\Z")
_NAME_MAY_BEGIN = re.compile(r"[\w.:/-]+\s*\Z")
_MAX_PROSE = 240
"""Characters between a tag and its closing tag that show the model what was no call; longer text is about the tag."""
_MAX_NAME = 300
"""Characters of a name that may still be written."""
_MAX_TAG_END = 26
"""Characters from the word of a tag to its `>`."""
_REPEATED_TAGS = "0,3"
"""Maximum number of repetitions of an opening tag: a row of them is read again from each of its tags."""
_PYTHON_FORMATS = {"function_calls": "olmo3", "|tool_call_start|": "lfm2", "|python_start|": "llama4_pythonic"}
_ARGKEY_FORMATS = {"ifm|tool_call": "k2_horizon", "ifm|tool_calls": "k2_horizon"}
_MAX_REST = 64
"""Characters of a mark whose end is still to come."""
_DSML = re.compile(r"<[|｜]DSML[|｜](\s?)(function_calls|tool_calls|calls|invoke)\b", re.IGNORECASE)
_DSML_WRAPPER = re.compile(r"\s*>\s*(?=<)")
_DSML_FORMATS = {"function_calls": "dsml_v32", "tool_calls": "dsml_v4", "calls": "dsml_v41"}
_CODE_ENDS = re.compile(r"<\|action_end\|>|<\|im_end\|>")
_PLUGIN = re.compile(r">\s*<\|(plugin|interpreter)\|>\s*", re.IGNORECASE)
_GIGACHAT_ROLE = re.compile(r">\s*function call<\|role_sep\|>\s*")
_NAMES_THE_TOOL = ("function", "functionname", "functionġname", "invoke")
"""Words of tags that name the tool, around tags of parameters."""
_SHARED = (
    *("deepseek_v31", "dsml_v4", "dsml_v41", "glm_argkey", "hy_v3", "llama3_builtin", "llama3_function_tag"),
    *("mistral_v11", "olmo3"),
)
"""Formats that open in the same way as another one; the text after the tag or mark tells them apart."""
_OF_LINES = ("commandr_action", "functionary_v32", "react")
_OF_HEADERS = ("harmony", "kimi_k3")
_UNMARKED = ("bare_json_alt", "json_array", "json_fenced", "llama3_json", "openai_tool_calls_obj", "pythonic")
_SEPARATOR = re.compile(
    r"(?P<name>[^<>{}]{0,300}?)\s*"
    r"(?:<[|｜]tool[▁_ ]sep[|｜]>|(?P<kimi><\|tool_call_argument_begin\|>))",
    re.IGNORECASE,
)
_TOKEN_MAY_BEGIN = re.compile(r"[^<>{}]{0,300}(?:<[|｜]?[\w▁ ]{0,30}[|｜]?)?\Z")
_NAME_LINE = re.compile(rf"\s*(?P<name>{NAME})\s*(?=[`~{{\"])")
_KIMI_ID = re.compile(r"(?:functions\.)?(?P<name>.*?)(?::\d{1,6})?", re.DOTALL)
_MISTRAL_NAME = re.compile(rf"\s*(?P<name>{NAME})\s*(?:\[CALL_ID\][^\[\]{{}}]{{0,64}})?\s*(?:\[ARGS\])?\s*(?=[{{\"])")
_MISTRAL_MAY_BEGIN = re.compile(
    rf"\s*(?:{NAME})?\s*(?:\[(?:CALL_ID\][^\[\]{{}}]{{0,64}}|[CALL_ID]{{0,7}}))?\s*(?:\[[ARGS]{{0,4}}\]?)?\s*\Z"
)
_PLAMO_NAME = re.compile(
    r"(?:\s*<\|plamo:begin_tool_(?:requests|request):plamo\|>){0,4}\s*<\|plamo:begin_tool_name:plamo\|>"
    rf"\s*(?P<name>{NAME})\s*<\|plamo:end_tool_name:plamo\|>\s*<\|plamo:begin_tool_arguments:plamo\|>\s*"
    r"(?:<\|plamo:constrain\|>\s*\w{0,16}\s*)?(?:<\|plamo:msg\|>)?\s*"
)
_MAX_PLAMO_OPENING = 600
"""Characters, at most, before the arguments of a call of PLaMo."""
_REACT_NAME = re.compile(r"[ \t]*(?P<name>[^\s`][^\n]{0,160}?)[ \t]*\r?\n\s{0,16}Action[ _]Input ?:[ \t]*")
_REACT_MAY_BEGIN = re.compile(r"[ \t]*[^\s`][^\n]{0,160}(?:\n\s{0,16}(?P<input>[ActionIput _:]{0,14}[ \t]*))?\Z")
_REACT_INPUT = "Action Input:"
_COMMAND_R_FENCE = re.compile(r"[ \t]*\r?\n?\s{0,8}```[ \t]*(?:json)?\s*(?=[\[{])", re.IGNORECASE)
_COMMAND_R_FENCE_MAY_BEGIN = re.compile(r"[ \t]*\r?\n?\s{0,8}`{0,3}[ \t]*j?s?o?n?\s*\Z", re.IGNORECASE)
_OBSERVATION = re.compile(r"\s*Observation ?:")
_OBSERVATION_MAY_BEGIN = re.compile(r"\s*[Observation: ]{0,12}\Z")
_PROMPT_NAME = re.compile(r"(?P<name>[^\W\d][\w.:/-]{0,255})[ \t]*\r?\n\s*")
_PROMPT_MAY_BEGIN = re.compile(r"(?:[^\W\d][\w.:/-]{0,255}[ \t]*\r?(?:\n\s*)?)?\Z")
_FENCE_MAY_BEGIN = re.compile(r"[ \t]*`{0,3}\w{0,8}\s*\Z")
_FENCE_ENDS = re.compile(r"\s*`{3,}")
_FUNCTIONARY_TEXT = "all"
"""The recipient after `>>>` to which functionary writes text for the user."""


def read_marked(opening: Opening, *, format: str, word: str) -> ParseOutcome:
    """Return the block after the tag `<word>`. `format` is its format if it holds objects."""
    text = opening.text
    tag = _TAG_ENDS.match(text, opening.after)
    if tag is None:
        return NOT_YET if len(text) - opening.after < _MAX_TAG_END else NOT_HERE
    again = re.compile(rf"(?:\s*<\s?{re.escape(word)}(?::\w{{1,20}})?\s{{0,4}}>){{{_REPEATED_TAGS}}}", re.IGNORECASE)
    doubled = again.match(text, tag.end())
    at = skip_space(text, doubled.end() if doubled else tag.end())
    if at == len(text):
        return block_to(None, text, empty_call(opening.start), format=format)
    return read_body(opening, at, format=format, word=word)


def read_body(opening: Opening, at: int, *, format: str, word: str = "") -> ParseOutcome:
    """Return the calls at `at`, in any grammar."""
    text = opening.text
    inner = skip_fence(text, at)
    char = text[inner : inner + 1]
    if char == "{":
        return read_objects(text, inner, opening.offered, format=format)
    if char == "[":
        if _PYTHON_LIST.match(text, inner):
            return read_python(opening, inner, format=_PYTHON_FORMATS.get(word, format))
        return read_objects(text, inner, opening.offered, format=format)
    if _INNER_TAG_OPENS.match(text, at):
        return _read_inner_tag(opening, at, format, word)
    if char in "<]" and len(text) - at < _MAX_TAG_END and _TAG_MAY_BEGIN.match(text, at):
        return cut_off_block(text, "", opening.start, format=format)
    return _read_named_call(opening, at, format, word)


def _read_named_call(opening: Opening, at: int, format: str, word: str) -> ParseOutcome:
    """Return a call that begins with its name; for prose, what `_read_prose` returns."""
    text = opening.text
    if block := _read_after_word(opening, at, format) or read_argkey(
        opening, at, format=_ARGKEY_FORMATS.get(word, "glm_argkey")
    ):
        return block
    if _PYTHON.match(text, at):
        return read_python(opening, at, format=_PYTHON_FORMATS.get(word, format))
    if begun := _NAME_MAY_BEGIN.match(text, at):
        if opening.offered.begins_a_name(begun[0].rstrip()):
            return cut_off_block(text, begun[0].strip(), opening.start, format=format)
        if len(begun[0]) < _MAX_NAME:
            return NOT_YET
    return _read_prose(opening, at, format, word)


def _read_after_word(opening: Opening, at: int, format: str) -> CallBlock | None:
    """Return an object that names a tool, after a word that is not a tool's name, such as `json`."""
    word = _WORD_BEFORE_OBJECT.match(opening.text, at)
    if word is None or opening.offered.named(word[0]) is not None or not name_in(opening.text, word.end()):
        return None
    return read_objects(opening.text, word.end(), opening.offered, format=format)


def _read_inner_tag(opening: Opening, at: int, format: str, word: str) -> ParseOutcome:
    """Read tags of another kind after the opening tag: of one call in `<tool_call>`, of calls in wrappers."""
    text = opening.text
    if word == "tool_call" and _CALL_TAG.match(text, at):
        inner = Opening(text=text, start=at, after=at, offered=opening.offered)
        outcome = read_tagged(inner, format="qwen3_xml")
        if isinstance(outcome, NoCall) and outcome.sure:
            return _read_prose(opening, at, "qwen3_xml", word)
        return outcome
    return CallBlock(end=at, format=format, wraps=True)


def _read_prose(opening: Opening, at: int, format: str, word: str) -> ParseOutcome:
    """Return an unusable call for prose between `<word>` and its closing tag; without that, it is text about a tag."""
    text = opening.text
    closing_tag = re.compile(rf"<\s?/\s?{re.escape(word)}(?::\w{{1,20}})?\s*>", re.IGNORECASE)
    closer = closing_tag.search(text, at, at + _MAX_PROSE)
    if closer is None:
        return NOT_HERE if len(text) - at >= _MAX_PROSE else NOT_YET
    unusable = UnusableCall(kind=DiagnosticKind.UNREADABLE, message=NO_CALL, start=opening.start)
    return block_to(closer, text, unusable, format=format)


def _read_function(opening: Opening, *, format: str) -> ParseOutcome:
    return read_tagged(opening, format=opening.wrapper or format)


def _read_after_role(opening: Opening) -> ParseOutcome:
    """Read the calls after `<|message_sep|>` and the role that GigaChat writes them in."""
    role = _GIGACHAT_ROLE.match(opening.text, opening.after)
    if role is None:
        return NOT_YET if len(opening.text) - opening.after < _MAX_REST else NOT_HERE
    if role.end() == len(opening.text):
        return NOT_YET
    return read_body(opening, role.end(), format="gigachat3")


def _read_dsml(opening: Opening) -> ParseOutcome:
    """Read tags with `｜DSML｜` before their word: a wrapper or a call."""
    text, start = opening.text, opening.start
    tag = _DSML.match(text, start)
    if tag is None:
        return NOT_YET if len(text) - start < _MAX_REST and ">" not in text[start:] else NOT_HERE
    kind = tag[2].lower()
    if kind == "invoke":
        return read_tagged(opening, format=opening.wrapper or ("dsml_v41" if tag[1] else "dsml_v32"))
    inner = _DSML_WRAPPER.match(text, tag.end())
    if inner is None:
        return NOT_YET if skip_space(text, tag.end() + 1) == len(text) else NOT_HERE
    return CallBlock(end=inner.end(), format=_DSML_FORMATS[kind], wraps=True)


def _read_action(opening: Opening) -> ParseOutcome:
    """Read `<|action_start|>` of InternLM: a call of a plugin, or code for its interpreter."""
    text = opening.text
    plugin = _PLUGIN.match(text, opening.after)
    if plugin is None:
        return NOT_YET if len(text) - opening.after < _MAX_REST else NOT_HERE
    if plugin.end() == len(text):
        return NOT_YET
    if plugin[1].lower() == "plugin":
        return read_body(opening, plugin.end(), format="internlm2")
    end = _CODE_ENDS.search(text, plugin.end())
    code = text[plugin.end() : end.start() if end else len(text)].strip()
    return block_to(end, text, code_call(code, opening.offered, opening.start, len(text)), format="internlm2")


def read_tokens(opening: Opening) -> ParseOutcome:
    """Read a call after its token, or the wrapper of calls, and a call in it without its own token.

    The tokens are `<｜tool▁call▁begin｜>`, `<｜tool▁calls▁begin｜>` and `<|tool_calls_section_begin|>`. The separator
    tells the family.
    """
    text = opening.text
    if "calls" not in text[opening.start : opening.after].lower():
        return _read_token_call(opening, opening.after + 1)
    at = skip_space(text, opening.after + 1)
    rest = text[at : at + 1]
    if rest == "<":
        return CallBlock(end=at, format="", wraps=True) if len(text) > at + 1 else NOT_YET
    if not rest:
        return block_to(None, text, empty_call(opening.start), format="")
    return _read_token_call(opening, at)


def _read_token_call(opening: Opening, at: int) -> ParseOutcome:
    """Return the call whose name begins at `at` and ends at a separator."""
    text, start = opening.text, opening.start
    separator = _SEPARATOR.match(text, at)
    if separator is None:
        if not _TOKEN_MAY_BEGIN.match(text, at):
            return NOT_HERE
        return cut_off_block(text, text[at : at + 80].strip(), start, format="")
    before, at = separator["name"].strip(), separator.end()
    if separator["kimi"]:
        name = _KIMI_ID.fullmatch(before)
        return read_named(opening, name["name"] if name else before, at, format="kimi_k2")
    inner = skip_space(text, at)
    if text.startswith("<steptml:", inner):
        tag = Opening(text=text, start=inner, after=inner, offered=opening.offered)
        return read_tagged(tag, format="step3")
    if before != "function" and text.startswith(("{", '"'), skip_fence(text, at)):
        return read_named(opening, before, at, format="deepseek_v31")
    line = _NAME_LINE.match(text, at)
    if line is None:
        return cut_off_block(text, text[at : at + 80].strip(), start, format="deepseek_v3")
    return read_named(opening, line["name"], line.end(), format="deepseek_v3")


def read_mistral(opening: Opening) -> ParseOutcome:
    """Read the text after `[TOOL_CALLS]`: a list of objects, or a name and `[ARGS]`."""
    text, start = opening.text, opening.start
    at = skip_space(text, opening.after)
    if at == len(text):
        return NOT_YET
    if text[at] == "{" or (text[at] == "[" and not text.startswith(("[CALL_ID]", "[ARGS]"), at)):
        return read_objects(text, at, opening.offered, format="mistral_json")
    named = _MISTRAL_NAME.match(text, at)
    if named:
        return read_named(opening, named["name"], named.end(), format="mistral_v11")
    if not _MISTRAL_MAY_BEGIN.match(text, at):
        return NOT_HERE
    if "[" in text[at:] or opening.offered.begins_a_name(text[at:].strip()):
        return cut_off_block(text, "", start, format="mistral_v11")
    return NOT_YET


def read_plamo(opening: Opening) -> ParseOutcome:
    """Read `<|plamo:begin_tool_name:plamo|>NAME<..>` and its arguments, each between tokens, or their outer tokens."""
    text = opening.text
    named = _PLAMO_NAME.match(text, opening.start)
    if named:
        return read_named(opening, named["name"], named.end(), format="plamo3")
    if len(text) - opening.start < _MAX_PLAMO_OPENING:
        return cut_off_block(text, "", opening.start, format="plamo3")
    return NOT_HERE


def read_action(opening: Opening) -> ParseOutcome:
    """Read the call after `Action:` at the beginning of a line."""
    text = opening.text
    if fenced := _COMMAND_R_FENCE.match(text, opening.after):
        return _read_command_r(opening, fenced.end())
    named = _REACT_NAME.match(text, opening.after)
    if named is None:
        begun = _REACT_MAY_BEGIN.match(text, opening.after)
        may = begun and (not begun["input"] or _REACT_INPUT.startswith(begun["input"].rstrip().replace("_", " ")))
        return NOT_YET if may or _COMMAND_R_FENCE_MAY_BEGIN.match(text, opening.after) else NOT_HERE
    written = named["name"]
    if opening.offered.named(written) is None and not text.startswith("{", skip_fence(text, named.end())):
        return NOT_YET if _FENCE_MAY_BEGIN.match(text, named.end()) else NOT_HERE
    if written.lower() in ("none", "n/a", "finish", "final answer"):
        return NOT_HERE
    return _read_react(opening, written, named.end())


def _read_react(opening: Opening, written: str, at: int) -> CallBlock:
    """Read the arguments at `at`. A model that goes on with `Observation:` makes up the result of its call."""
    block = _read_without_closer(opening, written, at, format="react")
    if _OBSERVATION.match(opening.text, block.end):
        return replace(block, rest_is_invented=True)
    return replace(block, sure=block.sure and not _OBSERVATION_MAY_BEGIN.match(opening.text, block.end))


def _read_without_closer(opening: Opening, written: str, at: int, *, format: str) -> CallBlock:
    """Read the arguments at `at` of a call that no mark closes; unreadable ones take the rest of the text."""
    text, start = opening.text, opening.start
    try:
        arguments = read_arguments(text, at)
    except UnreadableValueError as error:
        return block_to(None, text, unreadable_call(error, written, start), format=format)
    item = arguments.call_of(written, opening.offered, start)
    return CallBlock(end=arguments.end, format=format, items=(item,), sure=arguments.sure)


def _read_command_r(opening: Opening, at: int) -> ParseOutcome:
    """Read the calls at `at`, inside a fence of JSON."""
    text = opening.text
    block = read_objects(text, at, opening.offered, format="commandr_action")
    if end := _FENCE_ENDS.match(text, block.end):
        return replace(block, end=end.end())
    return replace(block, sure=block.sure and not closer_may_come(text, block.end))


def read_prompt(opening: Opening) -> ParseOutcome:
    """Read the call after `>>>` at the beginning of a line, or right after a call."""
    text = opening.text
    named = _PROMPT_NAME.match(text, opening.after)
    if named is None or named.end() == len(text):
        return NOT_YET if _PROMPT_MAY_BEGIN.match(text, opening.after) else NOT_HERE
    if named["name"] == _FUNCTIONARY_TEXT:
        return CallBlock(end=named.end(), format="functionary_v32", wraps=True)
    if text[named.end()] != "{":
        return NOT_HERE
    return _read_without_closer(opening, named["name"], named.end(), format="functionary_v32")


_OWN_READERS: Mapping[str, ReadCalls] = {
    "gigachat3": _read_after_role,
    "internlm2": _read_action,
    "dsml_v32": _read_dsml,
    "deepseek_v3": read_tokens,
    "kimi_k2": read_tokens,
    "plamo3": read_plamo,
    "llama3_python_tag": read_python_tag,
    "gemma4": partial(read_gemma, format="gemma4"),
    "functiongemma": partial(read_gemma, format="functiongemma"),
}
"""The readers of formats whose opening tags have a grammar of their own."""


def _reader_of(format: str, word: str) -> ReadCalls:
    """Return the reader of what follows the opening tag `<word>`: calls in any grammar, unless it has its own."""
    if word.rpartition(":")[2] in _NAMES_THE_TOOL:
        return partial(_read_function, format=format)
    return _OWN_READERS.get(format) or partial(read_marked, format=format, word=word)


TAG_READERS: Mapping[str, ReadCalls] = {
    word: _reader_of(format, word) for format, words in TAGS.items() for word in words
}
"""The words of all opening tags, each with its reader."""
FORMATS = frozenset({*TAGS, *MARKS, *_SHARED, *_OF_LINES, *_OF_HEADERS, *_UNMARKED})
"""The names of the formats that can be read."""


def _read_functools(opening: Opening) -> ParseOutcome:
    """Read `functools[{...}]`; anything else in the brackets is Python."""
    text, bracket = opening.text, opening.after - 1
    at = skip_space(text, opening.after)
    if at == len(text):
        return NOT_YET
    if text[at] != "{":
        return NOT_HERE
    return read_objects(text, bracket, opening.offered, format="functools")


def _read_spaced(opening: Opening) -> ParseOutcome:
    """Read a DeepSeek token in which `▁` is a space. Unlike the word of a tag, the mark includes its `>`."""
    return read_tokens(replace(opening, after=opening.after - 1))


_READERS_AFTER_MARKS: Mapping[str, ReadCalls] = {
    "mistral_json": read_mistral,
    "functools": _read_functools,
    "minimax_m3": read_minimax,
    "deepseek_v3": _read_spaced,
}
"""The readers of what follows the `MARKS` of each format."""
MARK_READERS: Mapping[str, ReadCalls] = {
    mark: _READERS_AFTER_MARKS[format] for format, marks in MARKS.items() for mark in marks
}
"""All opening marks that are not tags, each with its reader."""

"""Spellings of calls: JSON objects, Python, tags.

A string among the arguments may hold markup: of the surrounding format, of another one, or the model's own control
tokens, which many servers interpret wherever they are. JSON can spell any character as an escape, so a call can say the
same without the markup. Only text that could be mistaken is escaped, because models imitate their history.
"""

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Protocol

from chatops.domain.canonical import JsonValue, is_deeper
from chatops.domain.frozen_dataclass import frozen_dataclass

_MARKUP = re.compile(
    r"""
      <(?=/?[|｜])                                          # <|im_end|>, <｜DSML｜…, </｜DSML｜…
    | <(?=/?(?:s|bos|eos|pad|unk|escape)>)                  # </s>
    | <(?=/?(?:start|end)_)                                 # <start_of_turn>, <end_function_call>
    | <(?=/?\w*:?(?:tools?|function(?i:ġ?name)?|parameter|param|invoke|arg|think|thinking|reasoning)\b)
    | <(?=/?\w*:?(?:tool|function|parameter|arg|longcat|dots)_)  # <tool_call>, </arg_value>
    | <(?=/?(?:(?i:toolcall)|ifm\|))
    | \[(?=/?(?:TOOL_|ARGS\]|CALL_ID\]|INST\]|THINK\]|SYSTEM_|AVAILABLE_|result\b|end\ of\ result\b))
    | \](?=<\])                                             # ]<]minimax[>[
    | [\ud800-\udfff]                                       # half a pair: not to be had in UTF-8
    """,
    re.VERBOSE,
)
MAX_DEPTH = 100
"""Maximum nesting depth of arguments and schemas, so that no code after this runs out of stack."""
_PLACE = re.compile(r"%([a-z])")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@frozen_dataclass
class ToolDescription:
    """A tool as described to the model. `schema` is the JSON Schema of its arguments, as JSON text."""

    name: str
    description: str
    schema: str


@frozen_dataclass
class WrittenCall:
    """A call of the history. `arguments` is text as the model wrote it, usually a JSON object."""

    name: str
    arguments: str


@frozen_dataclass
class WrittenResult:
    """The result of a call. `outcome` is one word, `content` is untrusted text."""

    name: str
    content: str
    outcome: str


class CallSpelling(Protocol):
    """The spelling of the calls of one message in one format."""

    def calls(self, calls: Sequence[WrittenCall]) -> str:
        """Return the calls, in order, as the model would write them. Never raises, whatever their arguments are."""


def inert(value: JsonValue) -> str:
    """Return `value` as JSON on one line, without anything that looks like markup.

    Raises ValueError for NaN and infinities.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _MARKUP.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def has_markup(text: str) -> bool:
    """Return True if anything in `text` could be taken for markup where it cannot be escaped."""
    return _MARKUP.search(text) is not None


def fill(template: str, **values: str) -> str:
    """Return `template` with each `%x` replaced by the value of that letter; the values are not scanned."""
    return _PLACE.sub(lambda place: values[place[1]], template)


def object_of(text: str) -> dict[str, JsonValue] | None:
    """Return the object that `text` holds as strict JSON, an empty one for empty text.

    Return None if it holds none, is nested too deeply, or has a number that JSON cannot represent.
    """
    try:
        value = json.loads(text.strip() or "{}")
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and not is_deeper(value, MAX_DEPTH) else None


def is_plain(name: str) -> bool:
    """Return True if `name` can be used in markup as it is."""
    return _PLAIN.fullmatch(name) is not None


def plain_name(name: str) -> str:
    """Return `name` if it is plain, else as a JSON string of at most 128 characters.

    The name may be anything, because a model can make it up.
    """
    return name if is_plain(name) else inert(name[:128])


@frozen_dataclass
class JsonItems:
    """One `item` per call: `%s` is the name as JSON, `%n` the bare name, `%i` the index, `%a` the arguments.

    Arguments that are not a JSON object are written as a JSON string: it says what was written, and is not read as a
    call. A format with a bare name cannot express that, nor a name that cannot be bare. All calls are then spelled by
    `otherwise`.
    """

    item: str
    before: str = ""
    between: str = "\n"
    after: str = ""
    otherwise: "JsonItems | None" = None

    def calls(self, calls: Sequence[WrittenCall]) -> str:
        """Return the calls, see `CallSpelling.calls`."""
        if self.otherwise is not None and not all(_is_regular(call) for call in calls):
            return self.otherwise.calls(calls)
        return self.before + self.between.join(self._item(call, index) for index, call in enumerate(calls)) + self.after

    def _item(self, call: WrittenCall, index: int) -> str:
        arguments = object_of(call.arguments)
        spelled = inert(call.arguments if arguments is None else arguments)
        return fill(self.item, s=inert(call.name), n=call.name, i=str(index), a=spelled)


def _is_regular(call: WrittenCall) -> bool:
    return is_plain(call.name) and object_of(call.arguments) is not None


HERMES = JsonItems(item='<tool_call>\n{"name": %s, "arguments": %a}\n</tool_call>')
"""Fallback of every format: models know it, and it works beside calls with their own tags."""

LLAMA_TAGGED = JsonItems(item='{"name": %s, "parameters": %a}', before="<|python_tag|>", between="; ")
"""Fallback of the Llama formats."""


@frozen_dataclass
class PythonCalls:
    """Spelling of all calls in `before` and `after`, with `between` between them.

    If one of them cannot be Python (its name is not an identifier, its arguments are not a JSON object), all are
    spelled by `otherwise`: two such lists in one message are not read.
    """

    before: str = "["
    between: str = ", "
    after: str = "]"
    otherwise: CallSpelling = HERMES

    def calls(self, calls: Sequence[WrittenCall]) -> str:
        """Return the calls, see `CallSpelling.calls`."""
        spelled: list[str] = []
        for call in calls:
            arguments = object_of(call.arguments)
            if arguments is None or not _are_words(call.name, arguments):
                return self.otherwise.calls(calls)
            spelled.append(f"{call.name}({', '.join(f'{key}={literal(arguments[key])}' for key in arguments)})")
        return self.before + self.between.join(spelled) + self.after


def _are_words(name: str, arguments: Mapping[str, JsonValue]) -> bool:
    words = [*name.split("."), *arguments]
    return all(_WORD.fullmatch(word) and not keyword.iskeyword(word) for word in words)


def literal(value: JsonValue) -> str:
    """Return `value` as a Python literal.

    A JSON string is also a Python string: each escape of JSON means the same there.
    """
    match value:
        case None | bool():
            return str(value)
        case str() | int() | float():
            return inert(value)
        case Mapping():
            return "{" + ", ".join(f"{inert(key)}: {literal(item)}" for key, item in value.items()) + "}"
        case _:
            return "[" + ", ".join(literal(item) for item in value) + "]"


@frozen_dataclass
class TaggedArguments:
    """A call is `opening`, an `argument` each, and `closing`; `before` and `after` enclose adjacent calls.

    `%n` is the name of the tool, `%k` the name of the argument, `%v` its value, `%t` whether it is a string. On
    reading, the schema says what type a value has. Tags have no escapes. So a call is spelled by `otherwise`, between
    the others, if a value could be taken for markup, a name cannot be bare, or the arguments are not a JSON object. One
    case does not round-trip, as with any model's calls: where the schema allows a string or another type, a string that
    looks like the other type reads as that.
    """

    opening: str
    argument: str
    closing: str
    before: str = ""
    between: str = "\n"
    after: str = ""
    otherwise: CallSpelling = HERMES

    def calls(self, calls: Sequence[WrittenCall]) -> str:
        """Return the calls, see `CallSpelling.calls`."""
        blocks: list[str] = []
        for own, row in groupby(calls, key=_is_expressible):
            if own:
                blocks.append(self.before + self.between.join(self._call(call) for call in row) + self.after)
            else:
                blocks.append(self.otherwise.calls(list(row)))
        return "\n".join(blocks)

    def _call(self, call: WrittenCall) -> str:
        arguments = object_of(call.arguments) or {}
        parts = [self._argument(name, value) for name, value in arguments.items()]
        return fill(self.opening, n=call.name) + "".join(parts) + self.closing

    def _argument(self, name: str, value: JsonValue) -> str:
        text = value if isinstance(value, str) else inert(value)
        # A reader removes one line break at the start, and one at the end if there was one at the start, but not where
        # the tag says that a string is written as it is.
        if text.startswith("\n") and "\n%v" not in self.argument and "%t" not in self.argument:
            text = f"\n{text}\n"
        return fill(self.argument, k=name, t="true" if isinstance(value, str) else "false", v=text)


def _is_expressible(call: WrittenCall) -> bool:
    arguments: Mapping[str, JsonValue] | None = object_of(call.arguments)
    if arguments is None or not is_plain(call.name):
        return False
    return all(is_plain(name) and _stands_bare(value) for name, value in arguments.items())


def _stands_bare(value: JsonValue) -> bool:
    """Return True if a string reads back as itself: not `null`, and without line breaks at its ends."""
    return not isinstance(value, str) or not (
        has_markup(value) or value.strip() in ("null", "None") or value.startswith("\r") or value.endswith("\r")
    )

"""JSON inside a message: on one line, and inert.

A string among the arguments may hold markup: of the surrounding format, of another one, or the model's own control
tokens, which many servers interpret wherever they are. JSON can spell any character as an escape, so a call can say the
same without the markup. Only text that could be mistaken is escaped, because models imitate their history.
"""

import json
import re
from collections.abc import Mapping

from chatops.domain.canonical import JsonValue

_MARKUP = re.compile(
    r"""
      <(?=[|｜])                                            # <|im_end|>, <｜DSML｜…
    | <(?=/?(?:s|bos|eos|pad|unk)>)                         # </s>
    | <(?=/?(?:start|end)_)                                 # <start_of_turn>, <end_function_call>
    | <(?=/?\w*:?(?:tools?|function|parameter|param|invoke|arg|think|thinking|reasoning)\b)
    | <(?=/?\w*:?(?:tool|function|parameter|arg|longcat|dots)_)  # <tool_call>, </arg_value>
    | <(?=/?(?:TOOLCALL|ifm\|))
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
    return value if isinstance(value, dict) and _is_shallow(value) else None


def _is_shallow(value: JsonValue) -> bool:
    level: list[JsonValue] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[JsonValue] = []
        for item in level:
            if isinstance(item, Mapping):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not inner:
            return True
        level = inner
    return False


def is_plain(name: str) -> bool:
    """Return True if `name` can be used in markup as it is."""
    return _PLAIN.fullmatch(name) is not None


def plain_name(name: str) -> str:
    """Return `name` if it is plain, else as a JSON string of at most 128 characters.

    The name may be anything, because a model can make it up.
    """
    return name if is_plain(name) else inert(name[:128])

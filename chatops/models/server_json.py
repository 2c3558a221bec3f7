"""Lenient reading of servers' JSON: a value that is missing, null or of another type counts as absent."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, cast

from pydantic_core import from_json

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import Usage

JsonObject = Mapping[str, object]
NOTHING: JsonObject = {}
_MAX_DIGITS = 4_000
"""Digits of an integer that Python converts: its own limit is 4,300 by default."""
_MAX_TOKENS = 1e15
"""A larger count is a mistake of the server."""
_MAX_INDEX_DIGITS = 8
"""Digits of an index that came as text, at most: no reply has that many calls."""
EXTRA_LIMIT = 256 * 1024
"""Maximum length in characters of what a server may attach to a call for itself."""


class BadDataError(Exception):
    """The server sent something that is not JSON, or not text. The message says which, for the user."""


def parse(data: bytes) -> object:
    """Return the JSON value in `data`. Lone surrogates are accepted, invalid bytes are not.

    Raises BadDataError.
    """
    try:
        return cast(object, from_json(data))
    except ValueError:
        pass
    # `json` is slower and accepts what `from_json` refuses: lone surrogates, control characters, long integers.
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadDataError("invalid bytes (not UTF-8)") from None
    try:
        return cast(object, json.loads(text, strict=False, parse_int=_integer))
    except (ValueError, RecursionError):
        raise BadDataError("broken data (not JSON)") from None


def _integer(digits: str) -> int | float:
    """Return an integer, or infinity if it has more digits than Python converts.

    One odd number must not break the whole reply.
    """
    if len(digits) < _MAX_DIGITS:
        return int(digits)
    return -math.inf if digits.startswith("-") else math.inf


def as_object(value: object) -> JsonObject:
    """Return `value` if it is an object, else an empty one."""
    return cast(JsonObject, value) if isinstance(value, dict) else NOTHING


def as_list(value: object) -> list[object]:
    """Return `value` if it is a list, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return `value` if it is text, else an empty string."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return `value` if it is a number of tokens, else 0."""
    return int(value) if isinstance(value, int | float) and 0 <= value < _MAX_TOKENS else 0


def first_choice(chunk: JsonObject) -> JsonObject:
    """Return choice 0 of a chunk; other choices are ignored."""
    for place, item in enumerate(as_list(chunk.get("choices"))):
        choice = as_object(item)
        index = choice.get("index")
        if (place if index is None else index) == 0:
            return choice
    return NOTHING


def usage_of(chunk: JsonObject) -> Usage | None:
    """Return the token counts that a chunk reports; all zeros count as no report.

    The last report of a stream counts, not the sum.
    """
    usage = as_object(chunk.get("usage"))
    sent, written = as_count(usage.get("prompt_tokens")), as_count(usage.get("completion_tokens"))
    if not sent and not written:
        return None
    thought = as_count(as_object(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    cached = as_count(as_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    return Usage(input_tokens=sent, output_tokens=written, reasoning_tokens=thought, cached_tokens=min(cached, sent))


class TextPart(NamedTuple):
    """A piece of a message's text; `field` is where it was."""

    kind: Literal["text", "reasoning", "refusal"]
    text: str
    field: str = "content"


def text_parts(message: JsonObject) -> Iterator[TextPart]:
    """Yield the text of a delta or message, in reading order."""
    # Servers that use both names send the same text twice.
    for field in ("reasoning_content", "reasoning", "thinking"):
        if thought := _join_parts(message.get(field)):
            yield TextPart(kind="reasoning", text=thought, field=field)
            break
    content = message.get("content")
    if isinstance(content, str):
        if content:
            yield TextPart(kind="text", text=content)
    elif isinstance(content, list):
        for part in content:
            yield from _content_part(part)
    if refusal := as_text(message.get("refusal")):
        yield TextPart(kind="refusal", text=refusal)


def _content_part(part: object) -> Iterator[TextPart]:
    if isinstance(part, str):
        yield TextPart(kind="text", text=part)
        return
    item = as_object(part)
    if "thinking" in item or item.get("type") in {"thinking", "reasoning"}:
        yield TextPart(kind="reasoning", text=_join_parts(item.get("thinking")) or _join_parts(item.get("text")))
    elif refusal := as_text(item.get("refusal")):
        yield TextPart(kind="refusal", text=refusal)
    else:
        yield TextPart(kind="text", text=_join_parts(item.get("text")))


def _join_parts(value: object) -> str:
    """Return text as it is, or the joined texts of a list of parts."""
    if isinstance(value, list):
        return "".join(item if isinstance(item, str) else as_text(as_object(item).get("text")) for item in value)
    return as_text(value)


@frozen_dataclass
class CallDelta:
    """A fragment of a call, from any of the supported fields."""

    index: int | None
    id: str
    name: str
    arguments: str
    """Raw text; arguments that came as an object are serialised."""
    extra_content: str = ""
    """The object `extra_content` as JSON text; empty if it is missing or larger than `EXTRA_LIMIT`."""


def call_deltas(message: JsonObject) -> Iterator[CallDelta]:
    """Yield the fragments of calls in a delta or message: function calls, custom calls and the single legacy call."""
    for item in as_list(message.get("tool_calls")):
        call = as_object(item)
        custom = as_object(call.get("custom"))
        function = custom or as_object(call.get("function")) or (call if "name" in call else NOTHING)
        yield CallDelta(
            index=_read_index(call.get("index")),
            id=as_text(call.get("id")),
            name=as_text(function.get("name")),
            arguments=_arguments_text(function.get("input") if custom else function.get("arguments")),
            extra_content=_extra_text(call.get("extra_content")),
        )
    if legacy := as_object(message.get("function_call")):
        # The legacy format has only one call, so its index is one that no call of the list has.
        name, arguments = as_text(legacy.get("name")), _arguments_text(legacy.get("arguments"))
        yield CallDelta(index=-1, id="", name=name, arguments=arguments)


def _extra_text(value: object) -> str:
    if not isinstance(value, dict) or not value:
        return ""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return ""
    return text if len(text) <= EXTRA_LIMIT else ""


def _read_index(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MAX_INDEX_DIGITS:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _arguments_text(arguments: object) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)

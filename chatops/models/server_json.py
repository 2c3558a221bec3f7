"""Lenient reading of servers' JSON: a value that is missing, null or of another type counts as absent.

Errors are read here too: servers, proxies and web pages in their place all spell them in another way.
"""

import html
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from pydantic_core import from_json

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import Usage
from chatops.domain.wording import cut
from chatops.models.wire import scrub

JsonObject = Mapping[str, object]
NOTHING: JsonObject = {}
_MAX_DIGITS = 4_000
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
    return int(digits) if len(digits) < _MAX_DIGITS else math.copysign(math.inf, float(digits[:2]))


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
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0


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
    """A piece of a message's text; `kind` is text, reasoning or refusal, `field` is where it was."""

    kind: str
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
            yield from _part(part)
    if refusal := as_text(message.get("refusal")):
        yield TextPart(kind="refusal", text=refusal)


def _part(part: object) -> Iterator[TextPart]:
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
            index=_index(call.get("index")),
            id=as_text(call.get("id")),
            name=as_text(function.get("name")),
            arguments=_arguments_text(function.get("input") if custom else function.get("arguments")),
            extra_content=_extra(call.get("extra_content")),
        )
    if legacy := as_object(message.get("function_call")):
        # The legacy format has only one call.
        name, arguments = as_text(legacy.get("name")), _arguments_text(legacy.get("arguments"))
        yield CallDelta(index=-1, id="", name=name, arguments=arguments)


def _extra(value: object) -> str:
    if not isinstance(value, dict) or not value:
        return ""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return ""
    return text if len(text) <= EXTRA_LIMIT else ""


def _index(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _arguments_text(arguments: object) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


LINE_LIMIT = 300
_HIDDEN_BEGINS = re.compile(r"<(script|style|head)\b", re.IGNORECASE)
_HIDDEN_ENDS = {name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in ("script", "style", "head")}
_TITLE_BEGINS = re.compile(r"<title\b", re.IGNORECASE)
_TITLE_ENDS = re.compile(r"</title", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")


@frozen_dataclass
class ServerError:
    """An error as the server describes it; `code` and `param` as OpenAI names them, in lower case."""

    message: str = ""
    code: str = ""
    param: str = ""
    context_limit: int = 0
    """Context limit in tokens, if the server has a field for it (llama.cpp); otherwise 0."""

    @property
    def all(self) -> str:
        """All fields, in lower case, to match known errors."""
        return f"{self.message} {self.code} {self.param}".lower()


def plain_line(text: str, *, limit: int = LINE_LIMIT) -> str:
    """Return the first meaningful line of `text`: no markup, no control characters, cut to `limit`."""
    text = scrub(text[:200_000])
    if looks_like_html(text):
        text = html.unescape(_title(text) or _TAG.sub("\n", _without_hidden(text)))
    for line in text.splitlines():
        visible = " ".join("".join(char if char.isprintable() else " " for char in line).split())
        if visible:
            return cut(visible, most=limit)
    return ""


def _title(text: str) -> str:
    """Return the content of the first ``title`` element that is closed; empty if there is none."""
    if (begin := _TITLE_BEGINS.search(text)) is None:
        return ""
    start = text.find(">", begin.end()) + 1
    end = _TITLE_ENDS.search(text, start) if start else None
    return text[start : end.start()].strip() if end else ""


def _without_hidden(text: str) -> str:
    """Return `text` without invisible elements.

    This works step by step, not with one regular expression: a missing end is searched for only once per element, so
    the time is linear whatever a server sends.
    """
    kept: list[str] = []
    endless: set[str] = set()
    shown = position = 0
    while begin := _HIDDEN_BEGINS.search(text, position):
        position = begin.end()
        name = begin[1].lower()
        end = None if name in endless else _HIDDEN_ENDS[name].search(text, position)
        if end is None:
            endless.add(name)
            continue
        kept.append(text[shown : begin.start()])
        shown = position = end.end()
    return "".join([*kept, text[shown:]])


def sentence(text: str) -> str:
    """Return `text` with a full stop, unless it already ends like a sentence: more text of ours follows."""
    return text if not text or text[-1] in ".!?…" else f"{text}."


def looks_like_html(text: str) -> bool:
    """Return True if `text` begins like a web page."""
    return re.match(r"\s*<(!doctype|html|head|body|h1|title|center|!--|\?xml)", text, re.IGNORECASE) is not None


def error_of_body(body: bytes) -> ServerError:
    """Return the error in the body of a response."""
    text = body.decode("utf-8", "replace")
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return ServerError(message=plain_line(text))
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        return error_of_object(value) or ServerError(message=plain_line(text))
    return ServerError(message=plain_line(text))


def error_of_object(body: JsonObject) -> ServerError | None:
    """Return the error in a JSON object, as OpenAI, FastAPI, vLLM or Ollama write it; None if it has none."""
    error = body.get("error")
    detail = body.get("detail")
    if isinstance(error, str) and error:
        return ServerError(message=plain_line(error), code=_code(body))
    if isinstance(error, dict) and error:
        inner = as_object(error)
        message = as_text(inner.get("message")) or as_text(inner.get("detail")) or json.dumps(error)
        return ServerError(
            message=plain_line(message),
            code=_code(inner),
            param=as_text(inner.get("param")).lower(),
            context_limit=as_count(inner.get("n_ctx")),
        )
    if isinstance(detail, str) and detail:
        return ServerError(message=plain_line(detail))
    if isinstance(detail, list) and detail:
        return _validation(detail)
    if body.get("object") == "error" or ("message" in body and "choices" not in body):
        return ServerError(
            message=plain_line(as_text(body.get("message")) or json.dumps(dict(body))),
            code=_code(body),
            param=as_text(body.get("param")).lower(),
        )
    return None


def _validation(detail: list[object]) -> ServerError:
    """Return an error from a list of problems with locations, as FastAPI writes it."""
    first = next((as_object(item) for item in detail if isinstance(item, dict)), NOTHING)
    places = [str(index) for index in as_list(first.get("loc")) if index != "body"]
    message = as_text(first.get("msg")) or json.dumps(detail)
    return ServerError(
        message=plain_line(f"{'.'.join(places)}: {message}" if places else message),
        code=as_text(first.get("type")).lower(),
        param=places[0].lower() if places else "",
    )


def _code(error: JsonObject) -> str:
    code = error.get("code")
    words = [str(code)] if isinstance(code, str | int) and not isinstance(code, bool) else []
    return " ".join([*words, as_text(error.get("type"))]).lower().strip()

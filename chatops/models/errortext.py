"""The words of a server's error body, made presentable: one plain line, whatever was sent."""

import html
import json
import re
from dataclasses import dataclass

from chatops.models.deltas import NOTHING, JsonObject, as_list, as_object, as_text
from chatops.models.wire import scrub

LINE_LIMIT = 300
_HIDDEN_ELEMENTS = re.compile(r"<(script|style|head)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError:
    """What a server says went wrong; `code` and `param` as OpenAI names them, in lower case."""

    message: str = ""
    code: str = ""
    param: str = ""

    @property
    def all(self) -> str:
        """Everything, in lower case, for recognising known complaints."""
        return f"{self.message} {self.code} {self.param}".lower()


def plain_line(text: str, *, limit: int = LINE_LIMIT) -> str:
    """The first line of `text` that says something: no markup, no control characters, cut to `limit`."""
    text = scrub(text[:200_000])
    if looks_like_html(text):
        title = _TITLE.search(text)
        text = title.group(1) if title and title.group(1).strip() else _TAG.sub("\n", _HIDDEN_ELEMENTS.sub("", text))
        text = html.unescape(text)
    for line in text.splitlines():
        visible = " ".join("".join(char if char.isprintable() else " " for char in line).split())
        if visible:
            return visible if len(visible) <= limit else f"{visible[:limit]}…"
    return ""


def sentence(text: str) -> str:
    """`text` with a full stop, unless it ends like a sentence: what we say stands behind it."""
    return text if not text or text[-1] in ".!?…" else f"{text}."


def looks_like_html(text: str) -> bool:
    """Whether `text` begins as a web page does."""
    return re.match(r"\s*<(!doctype|html|head|body|h1|title|center|!--|\?xml)", text, re.IGNORECASE) is not None


def error_of_body(body: bytes) -> ServerError:
    """The error in the body of a response."""
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
    """The error that a JSON object reports, as OpenAI, FastAPI, vLLM or Ollama spell it; None if it reports none."""
    error = body.get("error")
    detail = body.get("detail")
    if isinstance(error, str) and error:
        return ServerError(message=plain_line(error), code=_code(body))
    if isinstance(error, dict) and error:
        inner = as_object(error)
        message = as_text(inner.get("message")) or as_text(inner.get("detail")) or json.dumps(error)
        return ServerError(message=plain_line(message), code=_code(inner), param=as_text(inner.get("param")).lower())
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
    """A list of problems with places, as FastAPI gives it."""
    first = next((as_object(item) for item in detail if isinstance(item, dict)), NOTHING)
    places = [str(place) for place in as_list(first.get("loc")) if place != "body"]
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

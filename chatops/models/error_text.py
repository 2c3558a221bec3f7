"""Errors as servers describe them, read into one line of plain text.

Servers, proxies and web pages in their place all spell them in another way.
"""

import html
import json
import re

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import cut
from chatops.models.server_json import NOTHING, JsonObject, as_count, as_list, as_object, as_text
from chatops.models.wire import scrub

LINE_LIMIT = 300
"""Characters of an error that are shown: one or two lines of a terminal."""
_READ_CHARACTERS = 200_000
"""Characters of a text in which a line is looked for."""
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
    text = scrub(text[:_READ_CHARACTERS])
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
        value = None
    if isinstance(value, list) and value:
        value = value[0]
    found = error_of_object(value) if isinstance(value, dict) else None
    return found or ServerError(message=plain_line(text))


def error_of_object(body: JsonObject) -> ServerError | None:
    """Return the error in a JSON object, as OpenAI, FastAPI, vLLM or Ollama write it; None if it has none."""
    error = body.get("error")
    detail = body.get("detail")
    if isinstance(error, str) and error:
        return ServerError(message=plain_line(error), code=_error_code(body))
    if isinstance(error, dict) and error:
        inner = as_object(error)
        message = as_text(inner.get("message")) or as_text(inner.get("detail")) or json.dumps(error)
        return ServerError(
            message=plain_line(message),
            code=_error_code(inner),
            param=as_text(inner.get("param")).lower(),
            context_limit=as_count(inner.get("n_ctx")),
        )
    if isinstance(detail, str) and detail:
        return ServerError(message=plain_line(detail))
    if isinstance(detail, list) and detail:
        return _validation_error(detail)
    if body.get("object") == "error" or ("message" in body and "choices" not in body):
        return ServerError(
            message=plain_line(as_text(body.get("message")) or json.dumps(dict(body))),
            code=_error_code(body),
            param=as_text(body.get("param")).lower(),
        )
    return None


def _validation_error(detail: list[object]) -> ServerError:
    """Return an error from a list of problems with locations, as FastAPI writes it."""
    first = next((as_object(item) for item in detail if isinstance(item, dict)), NOTHING)
    places = [str(index) for index in as_list(first.get("loc")) if index != "body"]
    message = as_text(first.get("msg")) or json.dumps(detail)
    return ServerError(
        message=plain_line(f"{'.'.join(places)}: {message}" if places else message),
        code=as_text(first.get("type")).lower(),
        param=places[0].lower() if places else "",
    )


def _error_code(error: JsonObject) -> str:
    code = error.get("code")
    words = [str(code)] if isinstance(code, str | int) and not isinstance(code, bool) else []
    return " ".join([*words, as_text(error.get("type"))]).lower().strip()

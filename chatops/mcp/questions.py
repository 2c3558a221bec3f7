"""Questions of a server to the user (elicitation). Imports the SDK: import this module after `connection`.

The two generations of the protocol ask in different ways. Up to 2025-11-25 the server sends a request of its own, which
names no call: it is passed to the one call that runs on the connection, and declined if there are several, because the
dialog has to say which call asks. From 2026-07-28 on it returns the questions as the result of a call, which is then
continued with the answers.

A form is rebuilt from what is understood: named texts, numbers, booleans and choices. A question with a field of
another kind, or with a name or text too long to show, is declined, because a form that cannot be shown in full cannot
be answered. Keywords that are not understood, such as `pattern`, are left out, and so are a long default and the end of
a long title of a choice.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from mcp import types
from mcp.client import ClientRequestContext

from chatops.domain.canonical import canonical, json_or_text
from chatops.domain.decisions import ServerQuestion
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.names import looks_secret
from chatops.domain.sanitize import reveal
from chatops.toolkit.base import Ask
from chatops.toolkit.output import without_surrogates
from chatops.tools.schema import FORMATS

MAX_FIELDS = 20
MAX_CHOICES = 50
# Characters: what is longer cannot be shown in full in the dialog.
_MAX_MESSAGE = 2_000
_MAX_NAME = 60
_MAX_TEXT = 300
_MAX_URL = 2_000
_LIMITS: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
    "array": ("minItems", "maxItems"),
}
"""Schema keywords kept for each field type; all take a number."""

_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
"""A host and a port that lead where they seem to. In any other host a browser may see more than the user: a backslash
ends it, and an escape such as `%2e` stands for a character.
"""


class UnclearQuestionError(Exception):
    """Raised if a question cannot be shown in full. Its text is a clause."""


@frozen_dataclass
class _Call:
    """A call that runs: who answers, and who is told why a question was declined."""

    ask: Ask
    on_decline: Callable[[str], None]


class Questions:
    """Passes the questions of a connection to the call that runs on it."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._calls: list[_Call] = []
        self._asking = asyncio.Lock()

    @contextmanager
    def of_call(self, ask: Ask, on_decline: Callable[[str], None]) -> Iterator[None]:
        """Let `ask` answer while the block runs. `on_decline` gets why a question was declined without asking."""
        call = _Call(ask=ask, on_decline=on_decline)
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    async def requested(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answer a request of the server."""
        if len(self._calls) == 1:
            return await self.answer(params, self._calls[0].ask, self._calls[0].on_decline)
        for call in self._calls:
            call.on_decline("several calls run at its server, and it does not say which one asks")
        return types.ElicitResult(action="decline")

    async def answer(
        self, params: types.ElicitRequestParams, ask: Ask, on_decline: Callable[[str], None]
    ) -> types.ElicitResult:
        """Ask the user, one question after the other."""
        try:
            question = question_of(self._server, params)
        except UnclearQuestionError as error:
            on_decline(str(error))
            return types.ElicitResult(action="decline")
        async with self._asking:
            answer = await ask(question)
        content: Any = json_or_text(answer.content) if answer.content else None
        return types.ElicitResult(action=answer.action.value, content=content)


def question_of(server: str, params: types.ElicitRequestParams) -> ServerQuestion:
    """Return the question of a server. Raises UnclearQuestionError."""
    message = without_surrogates(params.message)
    if len(message) > _MAX_MESSAGE:
        raise UnclearQuestionError(f"its message has {len(message):,} characters")
    if isinstance(params, types.ElicitRequestURLParams):
        return ServerQuestion(server=server, message=message, url=_checked_address(params.url))
    try:
        form = _rebuild_form(params.requested_schema)
        secrets = _secret_fields(form["properties"], message)
        return ServerQuestion(server=server, message=message, schema=canonical(form), secrets=secrets)
    except (ValueError, RecursionError):
        raise UnclearQuestionError("its form holds what is no JSON") from None


def _checked_address(url: str) -> str:
    """Return a URL that can be shown as it is. Raises UnclearQuestionError."""
    try:
        parts = urlsplit(url)
        plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= _MAX_URL
        if plain and parts.scheme in ("https", "http") and _HOST.fullmatch(parts.netloc):
            return url
    except ValueError:
        pass
    raise UnclearQuestionError("it names an address that cannot be opened or shown safely")


def _rebuild_form(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the understood part of the schema."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("type", "object") != "object" or not isinstance(properties, dict) or not isinstance(required, list):
        raise UnclearQuestionError("it does not ask for named values")
    if len(properties) > MAX_FIELDS:
        raise UnclearQuestionError(f"it has {len(properties)} fields, more than {MAX_FIELDS}")
    if not all(isinstance(name, str) and name in properties for name in required):
        raise UnclearQuestionError("it needs a value that it does not describe")
    fields = {_checked_text(name): _rebuild_field(name, field) for name, field in properties.items()}
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _secret_fields(fields: Mapping[str, Mapping[str, Any]], message: str) -> tuple[str, ...]:
    """Return the fields that look like secrets by their own words; all, if those of the question do."""
    if looks_secret(message):
        return tuple(fields)
    return tuple(name for name, field in fields.items() if looks_secret(name, str(field.get("description", ""))))


def _rebuild_field(name: str, schema: object) -> dict[str, Any]:
    """Return one field; `name` was checked. Titles become part of the description, so that the form shows them."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(kind, str) or kind not in _LIMITS:
        raise UnclearQuestionError(f"its field {name} is not text, number, boolean or choice")
    limits = {key: schema[key] for key in _LIMITS[kind] if isinstance(schema.get(key), int | float)}
    field: dict[str, Any] = {"type": kind, **limits}
    if kind == "string" and schema.get("format") in FORMATS:
        field["format"] = schema["format"]
    sentences, limits_note = _describe_field(name, schema), _describe_limits(limits)
    if sum(map(len, (*sentences, limits_note))) > _MAX_TEXT:
        raise UnclearQuestionError(f"its field {name} has a description of more than {_MAX_TEXT} characters")
    if kind == "array":
        choice = _read_choice(name, schema.get("items"))
        if choice is None:
            raise UnclearQuestionError(f"its field {name} is a list of anything")
        field |= {"items": {"type": "string", "enum": choice.values}, "uniqueItems": True}
        sentences.append(f"A JSON list of: {choice.titled}")
    elif kind == "string" and (choice := _read_choice(name, schema)) is not None:
        field["enum"] = choice.values
        # The form lists the values, so only titles have to be added.
        if choice.titled != ", ".join(choice.values):
            sentences.append(choice.titled)
    if description := f"{'. '.join(text.rstrip('.') for text in sentences)} {limits_note}".strip():
        field["description"] = description
    default = schema.get("default")
    if isinstance(default, str | int | float | list) and len(canonical(default)) <= _MAX_TEXT:
        field["default"] = default
    return field


def _describe_field(name: str, schema: Mapping[str, Any]) -> list[str]:
    """Return title, description and format of a field, without a title that only repeats the name."""
    values = [schema.get(key) for key in ("title", "description", "format")]
    texts = [without_surrogates(value) for value in values if isinstance(value, str) and value]
    return [text for text in texts if text.casefold() != name.replace("_", " ").casefold()]


def _describe_limits(limits: Mapping[str, float]) -> str:
    """Return the limits of a field in brackets: ``(at least 1, at most 9 characters)``; empty if it has none."""
    units = {"Length": " characters", "Items": " values"}
    unit = next((unit for ending, unit in units.items() if any(key.endswith(ending) for key in limits)), "")
    parts = [f"at {'least' if key.startswith('min') else 'most'} {value}" for key, value in limits.items()]
    return f"({', '.join(parts)}{unit})" if parts else ""


@frozen_dataclass
class _Choice:
    """The values that a text may have."""

    values: list[str]
    titled: str
    """The values in words, each with its title in brackets if it has one."""


def _read_choice(name: str, schema: object) -> _Choice | None:
    """Return the values that a text may have; None if it may be any text."""
    source = schema if isinstance(schema, dict) else {}
    options = source.get("oneOf", source.get("anyOf"))
    if isinstance(options, list):
        values = [option.get("const") if isinstance(option, dict) else None for option in options]
        titles = [str(option.get("title", "")) if isinstance(option, dict) else "" for option in options]
    elif isinstance(source.get("enum"), list):
        values = source["enum"]
        named = source.get("enumNames")
        titles = [str(title) for title in named] if isinstance(named, list) else []
    else:
        return None
    if not 0 < len(values) <= MAX_CHOICES:
        raise UnclearQuestionError(f"its field {name} has {len(values)} choices")
    checked = [_checked_text(value) for value in values]
    titles += [""] * (len(checked) - len(titles))
    titled = ", ".join(
        f"{value} ({title[:_MAX_NAME]})" if title not in ("", value) else value
        for value, title in zip(checked, titles, strict=False)
    )
    return _Choice(values=checked, titled=titled)


def _checked_text(text: object) -> str:
    """Return a text that is sent back as it is shown. Raises UnclearQuestionError for one with hidden characters."""
    if not isinstance(text, str) or not text.strip() or len(text) > _MAX_NAME or reveal(text, newlines=False) != text:
        raise UnclearQuestionError("a name or choice in it is empty, too long, or has characters that cannot be seen")
    return text

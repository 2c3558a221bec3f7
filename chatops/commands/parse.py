"""``chatops parse``: read tool calls out of text, to write or test parsers. JSON lines in, JSON lines out.

One object per line on stdin::

    {"text": "...", "tools": {"NAME": {JSON Schema}}, "finish_reason": "stop"}

`tools` may also be an array as in the chat API, and comes from ``--tools FILE`` if the line has none. `finish_reason`
may be left out. For each line one object on stdout, in order, flushed, in ASCII::

    {"calls": [{"name": "...", "arguments": {}}], "content": "...", "reasoning": "...", "format": "...",
     "repairs": ["..."], "confidence": "high",
     "diagnostics": [{"kind": "...", "name": "...", "message": "...", "format": "..."}]}

`repairs` and `confidence` are those of all calls together. A line that cannot be used gives ``{"error": "..."}``, and
the next one is read. Nothing is run, and no configuration is read.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from chatops.dialects import read_calls
from chatops.dialects.reading import Confidence, Reading, Tools
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError
from chatops.headless.json_values import arguments_value, dumps, fields_json
from chatops.headless.screen import screen


def run(arguments: Namespace) -> int:
    """Answer lines until the input ends."""
    default_tools = _read_tools(arguments.tools) if arguments.tools else {}
    view = screen()
    if sys.stdin.isatty():
        view.say('One JSON object per line, such as {"text": "...", "tools": {}}. Ctrl+D ends.')
    try:
        for line in sys.stdin.buffer:
            view.line(_answer(line, default_tools))
            if view.closed:
                break
    except OSError as error:
        raise ConfigError(f"Standard input cannot be read: {error.strerror or error}.") from error
    return 0


def _answer(line: bytes, default_tools: Tools) -> str:
    try:
        answer = _read_line(_parse_line(line), default_tools)
    except ValueError as error:
        answer = {"error": str(error)}
    except Exception as error:  # A bug in chatops; the other texts must still be answered.
        answer = {"error": f"this should not have happened: {type(error).__name__}: {error}"}
    return dumps(answer)


def _parse_line(line: bytes) -> Mapping[str, Any]:
    """Return the object on a line. Raises ValueError with a sentence."""
    try:
        value = from_json(line.rstrip(b"\r\n"))
    except ValueError as error:
        try:  # The fast parser refuses lone surrogates, which texts of models do contain.
            value = json.loads(line.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            hint = "; an object has to be whole on its line" if "EOF" in str(error) else ""
            raise ValueError(f"the line is not JSON: {error}{hint}") from None
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise ValueError('the line is not an object with a string "text"')
    return value


def _read_line(value: Mapping[str, Any], default_tools: Tools) -> dict[str, JsonValue]:
    tools = value.get("tools")
    reason = value.get("finish_reason") or "stop"
    if not isinstance(reason, str):
        raise ValueError('"finish_reason" is not a string')
    return _reading_json(
        read_calls(value["text"], default_tools if tools is None else _parse_tools(tools), finish_reason=reason)
    )


def _reading_json(reading: Reading) -> dict[str, JsonValue]:
    sure = all(call.confidence is Confidence.HIGH for call in reading.calls)
    return {
        "calls": [{"name": call.name, "arguments": arguments_value(call.arguments)} for call in reading.calls],
        "content": reading.content,
        "reasoning": reading.reasoning,
        "format": reading.format,
        "repairs": list(dict.fromkeys(repair for call in reading.calls for repair in call.repairs)),
        "confidence": Confidence.HIGH if sure else Confidence.LOW,
        "diagnostics": [fields_json(found, "kind", "name", "message", "format") for found in reading.diagnostics],
    }


def _parse_tools(value: Any) -> Tools:
    """Return tools as name → schema, converting an array as in the chat API. Raises ValueError with a sentence."""
    if isinstance(value, list):
        value = dict(map(_parse_tool, value))
    if not isinstance(value, dict) or not all(isinstance(schema, dict) for schema in value.values()):
        raise ValueError('"tools" is neither an object of name: JSON Schema nor an array of tools')
    return value


def _parse_tool(item: Any) -> tuple[str, JsonValue]:
    function = item.get("function", item) if isinstance(item, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError('a tool in "tools" has no name')
    return function["name"], function.get("parameters") or function.get("input_schema") or {}


def _read_tools(path: str) -> Tools:
    """Return the tools of ``--tools FILE``. Raises ConfigError."""
    try:
        return _parse_tools(from_json(Path(path).expanduser().read_bytes()))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        advice = 'It holds an object {"NAME": {JSON Schema}}, or an array of tools as the chat API takes it.'
        raise ConfigError(f"{path} holds no tools: {error}", advice=advice) from None

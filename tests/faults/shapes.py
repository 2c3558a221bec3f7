"""Replies in the shapes that servers give them, as chunks of a stream: odd ones, broken ones, and hostile ones."""

import json
from collections.abc import Mapping
from typing import Any

from tests.support.fake_openai import Raw, delta, stream

FINISH = delta(finish="tool_calls")
STOP = delta(finish="stop")


def piece(**call: Any) -> dict[str, Any]:
    """A chunk with one fragment of a call."""
    return delta(tool_calls=[call])


def fn(name: str | None = None, arguments: Any = None, **call: Any) -> dict[str, Any]:
    """A fragment of a call: what is None is not there."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**call, "function": function}


def whole(message: Mapping[str, Any], *, finish: str | None = "stop") -> Raw:
    """A reply in one piece, whatever was asked for."""
    body = {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    return Raw(content_type="application/json", steps=(json.dumps(body).encode(),))


def two_calls(name: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Raw]:
    """Two calls of one tool, in every shape that is to come to exactly these two; by fault and shape."""
    a, b = json.dumps(first), json.dumps(second)
    a1, a2, b1, b2 = a[:4], a[4:], b[:5], b[5:]
    shapes: dict[str, list[object]] = {
        "C10-interleaved": [
            piece(**fn(name, "", index=0, id="1")),
            piece(**fn(name, "", index=1, id="2")),
            piece(**fn(None, a1, index=0)),
            piece(**fn(None, b1, index=1)),
            piece(**fn(None, b2, index=1)),
            piece(**fn(None, a2, index=0)),
        ],
        "C11-no-index": [piece(**fn(name, a)), piece(**fn(name, b))],
        "C11-null-index": [
            delta(tool_calls=[fn(name, a, index=None, id="1"), fn(name, b, index=None, id="2")]),
        ],
        "C11-no-index-in-pieces": [
            piece(**fn(name, a1, id="1")),
            piece(**fn(None, a2)),
            piece(**fn(name, b1, id="2")),
            piece(**fn(None, b2)),
        ],
        "C12-both-at-index-0": [piece(**fn(name, a, index=0, id="1")), piece(**fn(name, b, index=0, id="2"))],
        "C12-both-at-index-0-in-pieces": [
            piece(**fn(name, "", index=0, id="1")),
            piece(**fn(name, "", index=0, id="2")),
            piece(**fn(None, a, index=0, id="1")),
            piece(**fn(None, b, index=0, id="2")),
        ],
        "C13-no-id": [piece(**fn(name, a, index=0)), piece(**fn(name, b, index=1, id=None))],
        "C13-empty-id": [piece(**fn(name, a, index=0, id="")), piece(**fn(name, b, index=1, id=""))],
        "C14-one-id": [piece(**fn(name, a, index=0, id="s")), piece(**fn(name, b, index=1, id="s"))],
        "C14-one-id-no-index": [piece(**fn(name, a, id="s")), piece(**fn(name, b, id="s"))],
    }
    streams = {shape: stream(*chunks, FINISH) for shape, chunks in shapes.items()}
    message = {"content": None, "tool_calls": [fn(name, first, id="s"), fn(name, second, id="s")]}
    return {**streams, "C14-one-id-whole": whole(message, finish="tool_calls")}


def one_call(name: str, wanted: Mapping[str, Any]) -> dict[str, Raw]:
    """One call, in every shape that is to come to exactly this one; by fault and shape."""
    a = json.dumps(wanted)
    a1, a2 = a[:4], a[4:]
    half = len(name) // 2
    shapes: dict[str, list[object]] = {
        "C01-no-choices": [{"choices": []}, piece(**fn(name, a, index=0, id="1")), {"id": "x"}, FINISH],
        "C02-null-choices": [{"choices": None}, piece(**fn(name, a, index=0, id="1")), {"choices": None}, FINISH],
        "C03-null-delta": [{"choices": [{"index": 0, "delta": None}]}, piece(**fn(name, a, index=0, id="1")), FINISH],
        "C04-finish-stop": [piece(**fn(name, a, index=0, id="1")), STOP],
        "C09-legacy": [
            delta(function_call={"name": name, "arguments": a1}),
            delta(function_call={"arguments": a2}),
            delta(finish="function_call"),
        ],
        "C15-late-id": [piece(**fn(name, a1, index=0)), piece(**fn(None, a2, index=0, id="late")), FINISH],
        "C15-id-changes": [piece(**fn(name, a1, index=0, id="1")), piece(**fn(None, a2, index=0, id="2")), FINISH],
        "C15-id-changes-and-name-repeats": [
            piece(**fn(name, a1, index=0, id="1")),
            piece(**fn(name, a2, index=0, id="2")),
            FINISH,
        ],
        "C16-object": [piece(**fn(name, wanted, index=0, id="1")), FINISH],
        "C20-name-in-pieces": [
            piece(**fn(name[:half], "", index=0, id="1")),
            piece(**fn(name[half:], a, index=0)),
            FINISH,
        ],
    }
    legacy = {"content": None, "function_call": {"name": name, "arguments": a}}
    streams = {shape: stream(*chunks) for shape, chunks in shapes.items()}
    return {**streams, "C09-legacy-whole": whole(legacy, finish="function_call")}


def no_calls(name: str, wanted: Mapping[str, Any]) -> dict[str, Raw]:
    """Calls of which none may run, by fault and shape: cut off, broken, of no tool, or not meant as calls."""
    a = json.dumps(wanted)
    tagged = f'<tool_call>{{"name":"{name}","arguments":{a}}}</tool_call>'
    shapes: dict[str, list[object]] = {
        "C05-no-finish": [piece(**fn(name, a, index=0, id="1"))],
        "C06-length": [piece(**fn(name, a, index=0, id="1")), delta(finish="length")],
        "C06-length-in-pieces": [piece(**fn(name, a[:-3], index=0, id="1")), delta(finish="length")],
        "C07-filter": [piece(**fn(name, a[:-3], index=0, id="1")), delta(finish="content_filter")],
        "C18-two-objects": [piece(**fn(name, a + a, index=0, id="1")), FINISH],
        "C20-unknown": [piece(**fn(f"functions.{name} now", a, index=0, id="1")), FINISH],
        "C20-no-name": [piece(**fn("", a, index=0, id="1")), FINISH],
        "C20-null-name": [
            delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": None, "arguments": a}}]),
            FINISH,
        ],
        "C23-in-reasoning": [delta(reasoning_content=tagged), delta("no."), STOP],
        "C23-in-other-reasoning": [delta(reasoning=tagged), delta("no."), STOP],
        "C23-in-think-tags": [delta(f"<think>{tagged}</think>"), delta("no."), STOP],
        "C25-in-code": [delta(f"Like this:\n```\n{tagged}\n```\nno."), STOP],
        "C25-in-a-quotation": [delta(f"> {tagged}\n\nno."), STOP],
    }
    return {shape: stream(*chunks) for shape, chunks in shapes.items()}


def words(text: str) -> dict[str, Raw]:
    """Replies that say `text`, and nothing else, in odd ways; by fault and shape."""
    half = len(text) // 2
    first, rest = text[:half], text[half:]
    shapes: dict[str, list[object]] = {
        "C01-no-choices": [{"choices": []}, delta(first), {"choices": []}, {"id": "x"}, delta(rest), STOP],
        "C02-null-choices": [{"choices": None}, delta(first), {"choices": None}, delta(rest), STOP],
        "C03-null-delta": [{"choices": [{"index": 0, "delta": None}]}, delta(text), STOP],
        "C08-refusal": [delta(refusal=first), delta(refusal=rest), STOP],
        "C21-role-tool": [delta(role="tool"), delta(first, role="user"), delta(rest, role="system"), STOP],
        "C22-parts": [delta(content=[{"type": "text", "text": first}, {"type": "output_text", "text": rest}]), STOP],
    }
    return {shape: stream(*chunks) for shape, chunks in shapes.items()}

"""One-line signatures of tools: enough for a model to correct a call, without the whole schema."""

import json
from collections.abc import Mapping, Sequence

from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import ToolSpec

MAX_SIGNATURE_CHARS = 400
"""Characters of a signature. A longer one loses its types first, then its last names."""
_MAX_NAME_CHARS = 60
_MAX_TYPE_CHARS = 60


@frozen_dataclass
class Parameter:
    """One argument of a tool."""

    name: str
    type: str
    required: bool
    about: str


def parameters(spec: ToolSpec) -> tuple[Parameter, ...]:
    """Return the arguments that a tool's schema describes, the required ones first."""
    try:
        schema: JsonValue = json.loads(spec.schema)
    except (ValueError, RecursionError):
        schema = {}
    properties = _mapping(_mapping(schema).get("properties"))
    wanted = _mapping(schema).get("required")
    required = [name for name in wanted if name in properties] if isinstance(wanted, list) else []
    return tuple(
        Parameter(
            name=name,
            type=_type(properties[name]),
            required=name in required,
            about=str(_mapping(properties[name]).get("description", "")),
        )
        for name in map(str, dict.fromkeys([*required, *properties]))
    )


def signature(spec: ToolSpec) -> str:
    """Return ``file_edit(path: string, old: string, new: string, all?: boolean)``; a ``?`` marks optional arguments."""
    found = parameters(spec)
    marked = [parameter.name[:_MAX_NAME_CHARS] + ("" if parameter.required else "?") for parameter in found]
    typed = [f"{mark}: {parameter.type}" for mark, parameter in zip(marked, found, strict=True)]
    for parts in (typed, marked):
        text = f"{spec.name}({', '.join(parts)})"
        if len(text) <= MAX_SIGNATURE_CHARS:
            return text
    return _cut_signature(spec.name, marked)


def _cut_signature(name: str, parts: Sequence[str]) -> str:
    kept: list[str] = []
    for part in parts:
        if len(name) + sum(len(text) + 2 for text in [*kept, part]) > MAX_SIGNATURE_CHARS:
            break
        kept.append(part)
    return f"{name}({', '.join([*kept, f'… {len(parts) - len(kept)} more'])})"


def _type(schema: JsonValue) -> str:
    """Return a type in a few words: ``string``, ``integer|null``, ``list of string``, ``fast|slow``."""
    text = _type_text(schema, depth=0)
    return text if len(text) <= _MAX_TYPE_CHARS else "any"


def _type_text(schema: JsonValue, *, depth: int) -> str:
    node = _mapping(schema)
    allowed = node.get("enum", [node["const"]] if "const" in node else None)
    if isinstance(allowed, list):
        return "|".join(json.dumps(value, ensure_ascii=False) for value in allowed)
    options = node.get("anyOf", node.get("oneOf"))
    if isinstance(options, list) and depth < 2:
        return "|".join(dict.fromkeys(_type_text(option, depth=depth + 1) for option in options))
    match node.get("type"):
        case "array":
            items = _type_text(node["items"], depth=depth + 1) if "items" in node and depth < 2 else "any"
            return "list" if items == "any" else f"list of {items}"
        case str(word):
            return word
        case list(words):
            return "|".join(str(word) for word in words)
        case _:
            return "any"


def _mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, Mapping) else {}

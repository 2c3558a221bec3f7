"""What a server answered to a call, as the result of a tool: text and files within the limits of the call."""

import base64
import binascii
import json
from collections.abc import Callable

from mcp import types

from chatops.domain.canonical import JsonValue, canonical, json_or_text
from chatops.domain.files import FileRef
from chatops.domain.tools import Outcome, ResultFacts, ToolResult
from chatops.toolkit.base import ToolContext
from chatops.toolkit.output import cap, visible, without_surrogates
from chatops.toolkit.threads import in_thread
from chatops.tools.schema import schema_problems

_MAX_LABEL = 200
"""Characters of the name of a file or resource."""
_MAX_FILES = 20
"""Files of one result."""
Keep = Callable[[str, bytes], FileRef]
"""Stores the bytes of a file under a name."""


async def as_result(result: types.CallToolResult, *, output_schema: str, context: ToolContext) -> ToolResult:
    """Return what a server answered, with text and files within the limits of `context`.

    Structured content is checked against `output_schema` (JSON; empty: the tool declares none). A result that does not
    fit counts as a failure, and the model gets it all the same: the call has run.
    """
    return await in_thread(_read_result, result, output_schema, context)


def _read_result(result: types.CallToolResult, output_schema: str, context: ToolContext) -> ToolResult:
    files: list[FileRef] = []
    parts = [_block_text(block, keep=context.keep_file, files=files) for block in result.content]
    structured = result.structured_content
    if structured is not None and not any(_repeats(part, structured) for part in parts):
        parts.append(json.dumps(structured, ensure_ascii=False))
    failed = bool(result.is_error)
    problems = _schema_problem(structured, output_schema) if output_schema and not failed else ""
    limit = context.max_output_chars
    capped = cap("\n".join(part for part in parts if part), limit=max(limit - len(problems), limit // 2))
    text = f"{problems}\n{capped.text}" if problems else capped.text
    return ToolResult(
        outcome=Outcome.FAILED if failed or problems else Outcome.SUCCESS,
        content=without_surrogates(text),
        truncated=capped.truncated,
        facts=ResultFacts(files=tuple(file for file in files if not file.problem)),
    )


def _schema_problem(structured: JsonValue, schema: str) -> str:
    """Return why a structured result does not fit its schema, as a line for the model; empty if it fits."""
    if structured is None:
        return "[The tool ran, but its result lacks the structured part that it declares.]"
    found = schema_problems(structured, schema=schema, noun="part of the declared result")
    if not found:
        return ""
    named = "; ".join(
        f"{problem.path}: {problem.message}" if problem.path else problem.message for problem in found[:3]
    )
    return f"[The tool ran, but its result does not fit its declared schema: {named}]"


def _repeats(part: str, structured: dict[str, JsonValue]) -> bool:
    """Return True if `part` is the structured content as text, or all the text in it: older clients get that."""
    if list(structured.values()) == [part]:
        return True
    value = json_or_text(part)
    try:
        return isinstance(value, dict) and canonical(value) == canonical(structured)
    except ValueError:
        return False


def _block_text(block: types.ContentBlock, *, keep: Keep, files: list[FileRef]) -> str:
    """Return a block as text. Its bytes, if it has any, are kept and added to `files`."""
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            return _keep_block("image", block.data, keep=keep, files=files)
        case types.AudioContent():
            return _keep_block("audio", block.data, keep=keep, files=files)
        case types.ResourceLink():
            name = visible(block.title or block.name, limit=_MAX_LABEL)
            return f"[resource {name}: {visible(str(block.uri), limit=_MAX_LABEL)}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[resource {visible(str(resource.uri), limit=_MAX_LABEL)}]\n{resource.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            return _keep_block(str(resource.uri), resource.blob, keep=keep, files=files)
        case _:
            return "[content of a kind that is not known here]"


def _keep_block(name: str, encoded: str, *, keep: Keep, files: list[FileRef]) -> str:
    shown = visible(name, limit=_MAX_LABEL)
    if len(files) >= _MAX_FILES:
        return f"[file {shown}: not kept, a result has at most {_MAX_FILES} files]"
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return f"[file {shown}: it cannot be decoded]"
    file = keep(name, data)
    files.append(file)
    return f"[file: {file}]"

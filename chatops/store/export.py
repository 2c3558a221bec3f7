"""Export of a session for readers (Markdown, HTML) or programs (JSON lines, OpenAI messages).

Pure functions over a history. Everything in it may be hostile. In the formats for readers, control and direction
characters are made visible. The HTML page has no script, loads nothing and escapes all text.
"""

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import count
from typing import assert_never

from chatops.domain.canonical import json_or_text
from chatops.domain.files import FileRef
from chatops.domain.messages import (
    AssistantMessage,
    Message,
    NoticeMessage,
    RoleSwitchMessage,
    Speaker,
    SummaryMessage,
    ToolMessage,
    UserMessage,
)
from chatops.domain.tools import NOT_RUN_HERE, Outcome, ResultSource, ToolCall
from chatops.engine.pairing import LOST_RESULT, missing_replies, results_of
from chatops.engine.transcript import without_private
from chatops.store.base import SessionInfo
from chatops.store.codec import encode_message

JSONL_FORMAT, JSONL_VERSION = "chatops-session", 1
"""Version of the JSON lines format: a header line, then one message per line as the store keeps it, then the files."""
FILE_KIND = "file"
"""Kind of a line that holds a file of the messages before it, in Base64."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_TO_ESCAPE = re.compile("[\ud800-\udfff\x7f-\x9f]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NO_TEXT = "(empty message)"


class ExportFormat(StrEnum):
    """Formats of ``chatops sessions export --format``."""

    MARKDOWN = "md"
    HTML = "html"
    JSONL = "jsonl"
    OPENAI = "openai"


def export(
    history: Sequence[Message],
    session: SessionInfo,
    *,
    to: ExportFormat,
    read_file: Callable[[FileRef], bytes | None] = lambda file: None,
) -> str:
    """Return the whole session in the format `to`; always encodable as UTF-8. JSON lines hold kept files too."""
    match to:
        case ExportFormat.MARKDOWN:
            return to_markdown(history, title=session.title)
        case ExportFormat.HTML:
            return to_html(history, title=session.title)
        case ExportFormat.JSONL:
            return to_jsonl(history, session, read_file=read_file)
        case ExportFormat.OPENAI:
            return to_openai(history)
        case _:
            assert_never(to)


def to_markdown(history: Iterable[Message], *, title: str = "") -> str:
    """Return Markdown with a heading per speaker. Code fences are longer than any fence inside."""
    parts = [f"# {_one_line(title) or 'Session'}"]
    for message in history:
        heading, text, blocks = _describe_message(message)
        parts.append(f"## {_one_line(heading)}")
        if text.strip():
            parts.append(_make_visible(text).strip("\n"))
        parts.extend(f"{_one_line(label)}:\n\n{_fence_block(_make_visible(block))}" for label, block in blocks)
    return "\n\n".join(parts) + "\n"


def to_html(history: Iterable[Message], *, title: str = "") -> str:
    """Return one self-contained page (HTML 5). Its content policy forbids scripts and loading anything."""
    name = html.escape(_one_line(title) or "Session")
    sections: list[str] = []
    for message in history:
        heading, text, blocks = _describe_message(message)
        body = f"<div class=text>{html.escape(_make_visible(text))}</div>" if text.strip() else ""
        for label, block in blocks:
            body += (
                f"<details><summary>{html.escape(_one_line(label))}</summary>"
                f"<pre>{html.escape(_make_visible(block))}</pre></details>"
            )
        sections.append(f'<section class="{message.kind}"><h2>{html.escape(_one_line(heading))}</h2>{body}</section>')
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n"
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )


def to_jsonl(
    history: Sequence[Message],
    session: SessionInfo,
    *,
    read_file: Callable[[FileRef], bytes | None] = lambda file: None,
) -> str:
    """Return every message in full, one JSON object per line. Nothing is lost, not even a lone surrogate."""
    header = json.dumps(
        {
            "format": JSONL_FORMAT,
            "version": JSONL_VERSION,
            "id": session.id,
            "title": session.title,
            "workspace": session.workspace,
            "role": session.role,
            "persona": session.persona,
            "created_at": session.created_at,
        },
        ensure_ascii=False,
    )
    lines = [header, *map(encode_message, history), *_file_lines(history, read_file)]
    return "".join(f"{_escape_json(line)}\n" for line in lines)


def kept_files(history: Iterable[Message]) -> tuple[FileRef, ...]:
    """Return the files of messages and results whose bytes are kept beside the session, each content once."""
    found: dict[str, FileRef] = {}
    for message in history:
        attached = [file.ref for file in message.files] if isinstance(message, UserMessage) else []
        returned = message.facts.files if isinstance(message, ToolMessage) else ()
        for file in (*attached, *returned):
            if file.type and not file.problem:
                found.setdefault(file.digest, file)
    return tuple(found.values())


def _file_lines(history: Iterable[Message], read_file: Callable[[FileRef], bytes | None]) -> Iterator[str]:
    for file in kept_files(history):
        if (data := read_file(file)) is not None:
            yield json.dumps({"kind": FILE_KIND, "path": file.path, "data": base64.b64encode(data).decode()})


def to_openai(history: Sequence[Message]) -> str:
    """Return a JSON array of Chat Completions messages that a strict server accepts.

    Ids are unique. Each call has exactly one result right after its message. Arguments are JSON objects. Between two
    user messages there is one of the model. Dividers, notices and private commands are left out.
    """
    history = without_private(tuple(history))
    results, unanswered = results_of(history), missing_replies(history)
    ids = (f"call_{number}" for number in count(1))
    out: list[Mapping[str, object]] = []
    for place, message in enumerate(history):
        match message:
            case UserMessage():
                if place in unanswered:
                    out.append({"role": "assistant", "content": unanswered[place]})
                out.append({"role": "user", "content": message.content if message.content.strip() else _NO_TEXT})
            case AssistantMessage() if message.text.strip() or message.calls:
                # The calls come first: zip takes from its first argument before it stops, so no id is lost.
                calls = list(zip(message.calls, ids, strict=False))
                out.append(_openai_assistant(message.text, calls))
                answers = zip(calls, results.get(place, ()), strict=True)
                for (_, id_), result in answers:
                    content = LOST_RESULT if result is None else result.content
                    # Strict servers refuse a result without text.
                    content = content if content.strip() or result is None else f"({result.outcome.value})"
                    out.append({"role": "tool", "tool_call_id": id_, "content": content})
            case AssistantMessage() | ToolMessage() | RoleSwitchMessage() | NoticeMessage() | SummaryMessage():
                pass
            case _:
                assert_never(message)
    return _escape_json(_replace_surrogates(json.dumps(out, ensure_ascii=False, indent=2))) + "\n"


def _openai_assistant(text: str, calls: Sequence[tuple[ToolCall, str]]) -> Mapping[str, object]:
    if not calls:
        return {"role": "assistant", "content": text}
    written = [
        {"id": id_, "type": "function", "function": {"name": _function_name(call), "arguments": _json_arguments(call)}}
        for call, id_ in calls
    ]
    return {"role": "assistant", "content": text or None, "tool_calls": written}


def _function_name(call: ToolCall) -> str:
    """Return a name that the API allows: letters, digits, ``_`` and ``-``, at most 64."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call.name)[:64] or "unknown"


def _json_arguments(call: ToolCall) -> str:
    """Return the arguments if they are a JSON object, else an object that holds the model's text."""
    is_object = isinstance(json_or_text(call.arguments), dict)
    return call.arguments if is_object else json.dumps({"unreadable": call.arguments})


def _describe_message(message: Message) -> tuple[str, str, list[tuple[str, str]]]:
    """Return the speaker, the text, and the blocks to fold as label and content."""
    match message:
        case UserMessage():
            given = [file for file in message.files if not file.ref.problem]
            attached = [(f"Attached: {file.ref if file.ref.type else file.ref.path}", file.text) for file in given]
            return "chatops" if message.by is Speaker.MACHINE else "You", message.text, attached
        case AssistantMessage():
            who = ", ".join(part for part in (message.role, message.model) if part)
            cut_off = ", cut off" if message.incomplete else ""
            blocks = [("Reasoning", message.reasoning)] if message.reasoning else []
            blocks += [(f"Call of {call.name}", call.arguments) for call in message.calls]
            return f"Assistant{f' ({who})' if who else ''}{cut_off}", message.text, blocks
        case ToolMessage():
            imported = message.facts.source is ResultSource.IMPORTED
            by = f", {NOT_RUN_HERE if imported else message.decided_by}".rstrip(", ")
            mark = "" if message.outcome is Outcome.SUCCESS else f" — {message.outcome.value}"
            return (
                f"Tool {message.tool}{mark}{by}",
                "",
                [
                    ("Arguments", message.arguments),
                    ("Output (cut)" if message.truncated else "Output", message.content),
                ],
            )
        case RoleSwitchMessage():
            changes = [f"+ {name}" for name in message.added] + [f"− {name}" for name in message.removed]
            changes += [f"{message.suspended} grants suspended"] if message.suspended else []
            if message.before != message.after:
                return f"Role: {message.before} → {message.after}", ", ".join(changes), []
            return f"Model of {message.after}: {message.model}", ", ".join(changes), []
        case SummaryMessage():
            return "chatops", message.notice, [("Summary", message.text)] if message.text else []
        case NoticeMessage():
            return f"Notice ({message.level})", "\n".join(part for part in (message.text, message.advice) if part), []
        case _:
            assert_never(message)


def _make_visible(text: str) -> str:
    """Return `text` with control and direction characters made visible; line ends and tabs stay."""
    text = text.replace("\r\n", "\n")
    shown = "".join(_show_character(character) if not character.isprintable() else character for character in text)
    return _DIRECTION.sub(lambda found: f"<U+{ord(found[0]):04X}>", _replace_surrogates(shown))


def _show_character(character: str) -> str:
    code = ord(character)
    if character in "\n\t":
        return character
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"<U+{code:04X}>" if code < 0xA0 else character


def _one_line(text: str) -> str:
    return " ".join(_make_visible(text).split())


def _fence_block(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _replace_surrogates(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def _escape_json(line: str) -> str:
    """Return JSON text without lone surrogates and without control characters that a terminal obeys.

    Such a character can only occur inside a string, where its escape means the same.
    """
    return _TO_ESCAPE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "h2{font-size:1rem;margin:1.5rem 0 .25rem}.text{white-space:pre-wrap;overflow-wrap:anywhere}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;border-left:3px solid;padding-left:.75rem}"
    ".user h2{text-decoration:underline}"
)

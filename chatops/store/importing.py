"""Import of conversations: our own export, OpenAI messages, and the export of Open WebUI.

Pure functions from text to messages. Everything in a file is a claim of whoever wrote it. So a message gets a new id,
no result keeps a verdict, an author of its decision or a file that it wrote. Each result is marked as imported and
counts as data of a workspace. What chatops itself said (notices, dividers) is left out: a file must not speak in its
name.

Formats: `store.export` for our own; https://platform.openai.com/docs/api-reference/chat/create for OpenAI messages, as
an array, as one message per line, or as one ``{"messages": [...]}`` per line; Open WebUI 0.6 to 0.12 for its own.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import count

from chatops.domain.canonical import JsonValue, canonical, parse_json
from chatops.domain.errors import ConfigError, UnreadableError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, MessageId
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
from chatops.domain.tools import Outcome, ResultFacts, ResultSource, ToolCall
from chatops.domain.wording import one_line
from chatops.engine.pairing import results_of
from chatops.store.codec import decode_message, encode_message
from chatops.store.export import FILE_KIND, JSONL_FORMAT, JSONL_VERSION

MAX_BYTES = 256 * 1024 * 1024
"""Bytes of a file that is read: all of it is in memory several times."""
TITLE_LENGTH = 200
"""Characters of a title, or of a model's name."""
_ADVICE = "Name a file that chatops sessions export --format jsonl wrote, OpenAI messages, or an Open WebUI export."
_REASONING = '<details type="reasoning"'
_REASONING_END = "</details>"

_Object = dict[str, JsonValue]
_Values = Sequence[tuple[int, _Object]]
"""Objects of a file, each with its line number."""


class ImportFormat(StrEnum):
    """Formats of ``chatops sessions import --format``."""

    OPENAI = "openai"
    JSONL = "jsonl"
    OPENWEBUI = "openwebui"


@frozen_dataclass
class Imported:
    """One conversation of a file."""

    title: str
    """Empty if the file gives none."""
    messages: tuple[Message, ...]
    skipped: int
    """Entries that were left out: system prompts, notices, dividers."""
    files: tuple[tuple[str, bytes], ...] = ()
    """Names and bytes of the files of its messages."""


def read_file(data: bytes, *, format: ImportFormat | None, source: str, workspace: str) -> tuple[Imported, ...]:
    """Return the conversations in a file, oldest first; one without messages is left out.

    `format` None: told from the content. The ids of a conversation's messages are made from it and from `workspace`, so
    that a second import into the same workspace is recognised.

    Raises ConfigError naming `source` and the line.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _line_error(source, 1 + data[: error.start].count(b"\n"), "is not UTF-8 text") from None
    values = _read_objects(text, source=source)
    kept = [session for session in _READERS[format or _format_of(values)](values, source) if session.messages]
    return tuple(
        replace(session, messages=tuple(_with_new_ids(session.messages, _id_prefix(session, workspace))))
        for session in kept
    )


def _id_prefix(conversation: Imported, workspace: str) -> str:
    content = canonical([workspace, conversation.title, *map(encode_message, conversation.messages)])
    return f"import-{hashlib.sha256(content.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def _read_objects(text: str, *, source: str) -> list[tuple[int, _Object]]:
    """Return the objects of a file with their lines. A file holds an array, one object, or one object per line."""
    try:
        whole = parse_json(text)
    except ValueError:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        return [(number, _parse_line(line, source, number)) for number, line in lines]
    return [(1, _require_object(value, source, 1)) for value in (whole if isinstance(whole, list) else [whole])]


def _parse_line(line: str, source: str, number: int) -> _Object:
    try:
        return _require_object(parse_json(line), source, number)
    except ValueError:
        raise _line_error(source, number, "is not JSON") from None


def _require_object(value: JsonValue, source: str, line: int) -> _Object:
    if not isinstance(value, dict):
        raise _line_error(source, line, "is not a JSON object")
    return value


def _line_error(source: str, line: int, why: str) -> ConfigError:
    return ConfigError(f"{source}, line {line}, {why}.", advice=_ADVICE)


def _format_of(values: _Values) -> ImportFormat:
    first = values[0][1] if values else {}
    if first.get("format") == JSONL_FORMAT:
        return ImportFormat.JSONL
    return ImportFormat.OPENWEBUI if isinstance(first.get("chat", first.get("history")), dict) else ImportFormat.OPENAI


def _from_export(values: _Values, source: str) -> list[Imported]:
    """Read `store.export.to_jsonl`. Raises ConfigError for a line that is not a message or is of a newer version."""
    header = values[0][1] if values else {}
    if header.get("format") != JSONL_FORMAT or header.get("version") != JSONL_VERSION:
        raise _line_error(source, 1, "is not the first line of a chatops export, version 1")
    messages: list[Message] = []
    skipped = 0
    files = []
    for line, body in values[1:]:
        if body.get("kind") == FILE_KIND:
            files.append((str(body.get("path")), _decode_base64(body.get("data"), source, line)))
            continue
        try:
            message = decode_message(json.dumps(body), message_id=MessageId(str(body.get("id", ""))))
        except UnreadableError:
            raise _line_error(source, line, "is not a message of a chatops export") from None
        match message:
            case UserMessage():
                messages.append(replace(message, by=Speaker.USER))
            case ToolMessage():
                facts = replace(message.facts, source=ResultSource.IMPORTED, reads_workspace=True, wrote="")
                messages.append(replace(message, verdict=None, decided_by="", facts=facts))
            case AssistantMessage() | SummaryMessage():
                messages.append(message)
            case NoticeMessage() | RoleSwitchMessage():
                skipped += 1
    title = _one_line_title(header.get("title"))
    return [Imported(title=title, messages=tuple(messages), skipped=skipped, files=tuple(files))]


def _decode_base64(value: JsonValue, source: str, line: int) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "", validate=True)
    except ValueError:
        raise _line_error(source, line, "is not a file of a chatops export") from None


def _from_openai(values: _Values, source: str) -> list[Imported]:
    """Read Chat Completions messages: all of one conversation, or one conversation per object with ``messages``."""
    if not any("messages" in value for _, value in values):
        return [_read_messages(values, source=source)]
    found = []
    for line, value in values:
        messages = value.get("messages")
        if not isinstance(messages, list):
            raise _line_error(source, line, "has no list of messages")
        entries = [(line, _require_object(entry, source, line)) for entry in messages]
        found.append(replace(_read_messages(entries, source=source), title=_one_line_title(value.get("title"))))
    return found


def _read_messages(entries: Iterable[tuple[int, _Object]], *, source: str) -> Imported:
    messages: list[Message] = []
    asked: dict[str, ToolCall] = {}
    skipped = 0
    for line, entry in entries:
        match entry.get("role"):
            case "user":
                messages.append(UserMessage(id=_NO_ID, text=_content_text(entry.get("content"))))
            case "assistant":
                calls = tuple(_read_calls(entry))
                asked |= {call.provider_id: call for call in calls}
                reasoning = entry.get("reasoning_content", entry.get("reasoning"))
                messages.append(
                    AssistantMessage(
                        id=_NO_ID,
                        text=_content_text(entry.get("content")),
                        calls=calls,
                        reasoning=_content_text(reasoning),
                        model=_one_line_title(entry.get("model")),
                    )
                )
            case "tool" | "function":
                call = asked.get(str(entry.get("tool_call_id", entry.get("name"))))
                if call is None:
                    skipped += 1
                    continue
                messages.append(_tool_message(call, _content_text(entry.get("content"))))
            case "system" | "developer":
                skipped += 1
            case _:
                raise _line_error(source, line, "has no message: its role is none of user, assistant, tool, system")
    return Imported(title="", messages=tuple(messages), skipped=skipped)


def _tool_message(call: ToolCall, content: str) -> ToolMessage:
    """Return a result. The format does not say whether the call succeeded."""
    return ToolMessage(
        id=_NO_ID,
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        outcome=Outcome.SUCCESS,
        content=content,
        facts=ResultFacts(source=ResultSource.IMPORTED, reads_workspace=True),
    )


def _read_calls(entry: _Object) -> Iterator[ToolCall]:
    """Yield the calls of a message, also of the older ``function_call``, which has no id."""
    given = entry.get("tool_calls")
    functions: list[tuple[JsonValue, JsonValue]] = []
    if isinstance(given, list):
        functions = [(call.get("id"), call.get("function")) for call in given if isinstance(call, dict)]
    elif isinstance(old := entry.get("function_call"), dict):
        functions = [(old.get("name"), old)]
    for id_, function in functions:
        if isinstance(function, dict):
            arguments = function.get("arguments")
            yield ToolCall(
                id=CallId(str(id_)),
                name=str(function.get("name", "")),
                arguments=arguments if isinstance(arguments, str) else canonical(arguments),
                provider_id=str(id_),
            )


def _content_text(content: JsonValue) -> str:
    """Return content as text: a string, or the parts of a list, of which those without text are only named."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = []
    for part in content:
        if isinstance(part, dict):
            text = part.get("text")
            parts.append(text if isinstance(text, str) else f"[{part.get('type', 'part')}, not imported]")
    return "\n\n".join(parts)


def _from_webui(values: _Values, source: str) -> list[Imported]:
    """Read chats. Of the branches of each, the one that was shown last is taken."""
    return [_read_chat(value, source) for _, value in values]


def _read_chat(value: _Object, source: str) -> Imported:
    chat = value.get("chat", value)
    if not isinstance(chat, dict):
        raise _line_error(source, 1, "is not an export of Open WebUI")
    entries = [_with_file_names(entry) for entry in _current_branch(chat)]
    known = [entry for entry in entries if entry.get("role") in ("user", "assistant", "system")]
    found = _read_messages(((1, entry) for entry in known), source=source)
    title = _one_line_title(value.get("title")) or _one_line_title(chat.get("title"))
    messages = tuple(_with_reasoning(message) for message in found.messages)
    return Imported(title=title, messages=messages, skipped=found.skipped + len(entries) - len(known))


def _current_branch(chat: _Object) -> list[_Object]:
    """Return the messages from the first to the current one; without a tree, the flat list."""
    history = chat.get("history")
    tree = history.get("messages") if isinstance(history, dict) else None
    at = history.get("currentId") if isinstance(history, dict) else None
    branch: list[_Object] = []
    if isinstance(tree, dict):
        seen: set[str] = set()
        while isinstance(at, str) and at not in seen:
            seen.add(at)
            entry = tree.get(at)
            if not isinstance(entry, dict):
                break
            branch.append(entry)
            at = entry.get("parentId")
    flat = chat.get("messages")
    if not branch and isinstance(flat, list):
        return [entry for entry in flat if isinstance(entry, dict)]
    return branch[::-1]


def _with_file_names(entry: _Object) -> _Object:
    """Return the message with the names of its files in the text, which is all that the export has of them."""
    files = entry.get("files")
    names = [file.get("name") for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    named = "".join(f"\n\n[{name}, not imported]" for name in names if isinstance(name, str))
    return {**entry, "content": _content_text(entry.get("content")) + named}


def _with_reasoning(message: Message) -> Message:
    """Move the reasoning, which Open WebUI folds into the text as HTML, to its own field."""
    if not isinstance(message, AssistantMessage):
        return message
    text, found = _without_reasoning(message.text)
    thoughts = [re.sub(r"^(?:&gt;|>) ?", "", thought, flags=re.MULTILINE).strip() for thought in found]
    return replace(message, text=text, reasoning="\n\n".join((message.reasoning, *thoughts)).strip())


def _without_reasoning(text: str) -> tuple[str, list[str]]:
    """Return a text without its reasoning, and that reasoning. A regex would need time in the cube of the length."""
    rest, found, at = "", list[str](), 0
    while (begin := text.find(_REASONING, at)) >= 0:
        end = text.find(_REASONING_END, begin)
        if end < 0:
            break
        _, _, inside = text[begin + len(_REASONING) : end].partition(">")
        inside = inside.lstrip()
        if inside.startswith("<summary>") and "</summary>" in inside:
            _, _, inside = inside.partition("</summary>")
        found.append(inside)
        rest += text[at:begin]
        at = end + len(_REASONING_END)
        while text[at : at + 1].isspace():
            at += 1
    return rest + text[at:], found


def _one_line_title(value: JsonValue) -> str:
    return one_line(value, most=TITLE_LENGTH) if isinstance(value, str) else ""


def _with_new_ids(messages: Sequence[Message], prefix: str) -> Iterator[Message]:
    """Give each message and call a new id, so that nothing stored for another one is taken for its own.

    Ids are as those of turns, each of which begins with a message of the user.
    """
    # By identity, because equal results may answer different calls.
    asked: dict[int, CallId] = {}
    for place, row in results_of(messages).items():
        for index, result in enumerate(row, 1):
            if result is not None:
                asked[id(result)] = _call_id(prefix, place, index)
    turn, numbers = 0, count(1)
    for place, message in enumerate(messages):
        turn += isinstance(message, UserMessage)
        new = MessageId(f"{prefix}.{turn}.m{next(numbers)}")
        match message:
            case AssistantMessage(calls=calls):
                own = tuple(replace(call, id=_call_id(prefix, place, index)) for index, call in enumerate(calls, 1))
                yield replace(message, id=new, calls=own)
            case ToolMessage() if id(message) in asked:
                yield replace(message, id=new, call_id=asked[id(message)])
            case ToolMessage():
                pass  # It answers no call.
            case _:
                yield replace(message, id=new)


def _call_id(prefix: str, place: int, index: int) -> CallId:
    return CallId(f"{prefix}.0.{place}.{index}")


_READERS = {ImportFormat.JSONL: _from_export, ImportFormat.OPENWEBUI: _from_webui, ImportFormat.OPENAI: _from_openai}
_NO_ID = MessageId("")
"""Id of a message until `_with_new_ids` gives it one."""

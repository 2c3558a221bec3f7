"""Our messages in the format of chat completions, as bytes.

The demands of strict servers are met whatever the history looks like: the system prompt comes first, call ids are
unique, every call is followed by exactly one tool message, names consist of letters and digits, arguments are a JSON
object, no message lacks content, and two messages of the user have a reply between them. Role switches and notices are
never sent.

Requests of a session begin alike. What will not change any more, all that comes before the user's last message, is kept
as bytes, and so is each message after it: a round of a long session costs little more than one of a short session.

Reasoning. Most servers drop or refuse reasoning in the history, so it is not sent. The exceptions think between their
calls, and lose track or answer 400 without it. DeepSeek from V3.2 on and Kimi want it with every message that has
calls. MiniMax, GLM, gpt-oss, MiMo and others, whose templates keep it until the next message of the user, want it
within the turn. Reasoning is sent back in the field that it came in, and only to the model that wrote it.

An image is never decoded here. Its header tells type and size, and one that no server would take is only named.
"""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from functools import lru_cache
from typing import assert_never

from chatops.domain.canonical import JsonValue
from chatops.domain.files import IMAGE_TYPES, FileRef, image_size, media_type
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import (
    AssistantMessage,
    Message,
    NoticeMessage,
    RoleSwitchMessage,
    SummaryMessage,
    ToolMessage,
    UserMessage,
)
from chatops.domain.tools import Outcome, ToolCall, ToolSpec
from chatops.engine.pairing import LOST_RESULT, RESULTS_RECEIVED, missing_replies, results_of

IN_CONTENT = "content"
"""Value for `field`: the model writes its thought in tags at the beginning of its text."""
REASONING = ("reasoning_content", "reasoning")
"""Fields in which servers send reasoning and accept it, the most common one first."""
_NOTHING_THOUGHT = " "
"""Content of a field that must be present: some servers treat an empty one as missing."""
DONE_WITHOUT_OUTPUT = "Tool executed successfully"
CUT_OFF = "[This reply was cut off here.]"
NOT_SHOWN = "[The image is not shown to you.]"
EMPTY_MESSAGE = "(empty message)"
UNREADABLE = "arguments_that_were_not_a_json_object"
"""Key under which a model sees its unreadable arguments."""
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
"""Characters; OpenAI refuses more."""
_PLAIN_ID = re.compile(r"[A-Za-z0-9.\-]{1,40}")
"""Ids that stay readable on the wire: only their dots are replaced."""
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ReadFile = Callable[[FileRef], bytes | None]
"""Returns the bytes of a kept file; None if they are gone."""
IMAGES = "images"
"""Name of the images of a request among the fields that a server may refuse."""
MAX_IMAGE_BYTES = 5_000_000
"""Largest image that all common servers accept."""
MAX_IMAGE_SIDE = 8_000
"""Longest side that all common servers accept."""


def data_url(data: bytes | None) -> str:
    """Return the image as a data URL; empty if the bytes are gone or no image that a server would take."""
    if data is None or len(data) > MAX_IMAGE_BYTES or (type_ := media_type(data[:64])) not in IMAGE_TYPES:
        return ""
    size = image_size(data)
    if size is None or max(size) > MAX_IMAGE_SIDE:
        return ""
    return f"data:{type_};base64,{base64.b64encode(data).decode()}"


class ReplayScope(StrEnum):
    """Messages with which reasoning is sent back."""

    NOWHERE = "nowhere"
    THIS_TURN = "this_turn"
    """All messages of the model after the user's last one."""
    EVERY_CALL = "every_call"
    """Also each older message with calls; the field is always present there."""


_REPLAY_SCOPES: tuple[tuple[str, ReplayScope], ...] = (
    (r"deepseek-(v3\.2|v[4-9]|reasoner|chat$)", ReplayScope.EVERY_CALL),
    (r"kimi-(k2-thinking|k2\.[5-9]|k[3-9])", ReplayScope.EVERY_CALL),
    (r"minimax-m\d|glm-(4\.[5-9]|[5-9])|gpt-oss|mimo-v\d|nemotron-3|step-3\.[5-9]|qwen3\.[5-9]", ReplayScope.THIS_TURN),
)


def scope_of(model_name: str) -> ReplayScope:
    """Return which messages' reasoning is sent back to `model_name`."""
    name = re.sub(r"[^a-z0-9.]+", "-", model_name.lower())
    return next((scope for pattern, scope in _REPLAY_SCOPES if re.search(pattern, name)), ReplayScope.NOWHERE)


@frozen_dataclass
class ReasoningReplay:
    """The way in which reasoning is sent back in one request."""

    scope: ReplayScope = ReplayScope.NOWHERE
    field: str = REASONING[0]
    """A field of the message, or IN_CONTENT."""
    to: str = ""
    """The registry's name of the model that is asked. Reasoning of other models is not sent to it."""

    def of(self, message: AssistantMessage, *, this_turn: bool) -> str:
        """Return the reasoning to send with `message`; empty means that the field is left out."""
        if self.scope is ReplayScope.NOWHERE:
            return ""
        own = message.reasoning if message.model == self.to else ""
        if self.scope is ReplayScope.EVERY_CALL and message.calls:
            return own or ("" if self.field == IN_CONTENT else _NOTHING_THOUGHT)
        return own if this_turn else ""


NO_REPLAY = ReasoningReplay()


def scrub(text: str) -> str:
    """Return `text` with surrogate pairs joined and lone halves replaced."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encode(value: JsonValue) -> bytes:
    """Return `value` as JSON in UTF-8. Never raises, whatever text it holds."""
    return scrub(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode("utf-8")


def wire_arguments(arguments: str) -> str:
    """Return the arguments of a call of the history as the model wrote them, or inside an object if they are not one.

    llama.cpp and vLLM parse the whole history with each request: one malformed call would make all later ones fail.
    """
    if not arguments.strip():
        return "{}"
    try:
        if isinstance(json.loads(arguments, parse_constant=_refuse_constant), dict):
            return arguments
    except (ValueError, RecursionError):
        pass
    return encode({UNREADABLE: arguments}).decode("utf-8")


def _refuse_constant(constant: str) -> None:
    raise ValueError(constant)


def result_content(message: ToolMessage) -> str:
    """Return the text of a result for the model; never empty."""
    empty = DONE_WITHOUT_OUTPUT if message.outcome is Outcome.SUCCESS else f"({message.outcome.value})"
    return message.content if message.content.strip() else empty


def with_image_note(text: str, files: Iterable[FileRef]) -> str:
    """Return `text`, which names these files, with a note if an image among them is not sent."""
    return f"{text}\n{NOT_SHOWN}" if any(file.is_image for file in files) else text


def user_content(message: UserMessage) -> str:
    """Return the user's text; never empty."""
    return message.content if message.content.strip() else EMPTY_MESSAGE


def is_empty(message: AssistantMessage) -> bool:
    """Return True if nothing of the message can be sent: servers refuse a message with neither text nor calls."""
    return not message.calls and not message.text.strip()


def assistant_text(message: AssistantMessage) -> str:
    """Return the model's text, with a mark where it was cut off."""
    if not message.text.strip():
        return ""
    return f"{message.text}\n{CUT_OFF}" if message.incomplete else message.text


def wire_name(name: str) -> str:
    """Return the name of a call of the history as servers accept it: a model may have written anything."""
    return _NOT_IN_A_NAME.sub("_", name)[:_LONGEST_NAME] or "unnamed"


def wire_id(call_id: CallId, *, short: bool) -> str:
    """Return the id of a call as servers accept it, from our id: the provider's may repeat, be missing or change."""
    if not short and _PLAIN_ID.fullmatch(call_id):
        return call_id.replace(".", "_")
    number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).digest())
    letters = []
    for _ in range(9 if short else 32):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "".join(letters)


@frozen_dataclass
class _Fragment:
    """A message as it was sent. It is sent so again while all but the bytes is the same."""

    message: Message
    ids: tuple[str, ...]
    """Ids of its calls, or of the call that it answers."""
    reasoning: str
    """The field and the text; empty if none is sent."""
    data: bytes


@frozen_dataclass
class _Beginning:
    """Messages at the start of an array, as they were sent.

    They end with results for all calls, so that what follows can change nothing of them, and is encoded without looking
    at them. Only the reasoning that is sent with them depends on whether a message of the user follows.
    """

    messages: tuple[Message, ...] = ()
    replay: ReasoningReplay = NO_REPLAY
    data: bytes = b""
    id_counts: Mapping[CallId, int] = field(default_factory=dict)
    """Number of calls per id in these messages."""

    def starts(self, messages: tuple[Message, ...], replay: ReasoningReplay, *, before_prompt: bool) -> bool:
        """Return True if a request with these messages begins with this.

        `before_prompt` is True if these were sent before a message of the user, and False if none followed.
        """
        count = len(self.messages)
        if replay != self.replay or messages[:count] != self.messages:
            return False
        return any(isinstance(message, UserMessage) for message in messages[count:]) is before_prompt


class MessageEncoder:
    """Encoder of the `messages` array. It keeps the last one, because the next one continues it."""

    def __init__(
        self, *, short_ids: bool = False, model: str = "", absent_signature: str = "", read_file: ReadFile | None = None
    ) -> None:
        """Create the encoder for requests to `model`, which gets back what its server attached to its own calls.

        With `absent_signature`, that text is sent as `extra_content` of calls that have none of this model. With
        `read_file`, images are sent; without it they are only named.
        """
        self._model = model
        self._absent_signature = absent_signature
        self._short = short_ids
        self._read_file = read_file
        self._earlier_turns = _Beginning()
        """All before the last message of the user."""
        self._so_far = _Beginning()
        """The last array that ends with results, which the next round of its turn continues."""
        self._fragments: dict[MessageId, _Fragment] = {}
        """Encoded messages after `_earlier_turns`, and the images of results."""

    def array(self, messages: Iterable[Message], *, system: str, replay: ReasoningReplay = NO_REPLAY) -> bytes:
        """Return the whole array as JSON bytes."""
        messages = tuple(messages)
        beginning = self._find_beginning(messages, replay)
        rest = messages[len(beginning.messages) :]
        # By the index of a message in `rest`: the results of its calls, None for a lost one, and the text of the reply
        # that is missing before it.
        results, unanswered = results_of(rest), missing_replies(rest)
        id_counts = Counter(beginning.id_counts)
        # Without a message of the user, all of `rest` is of this turn.
        turn_start = max((index for index, message in enumerate(rest) if isinstance(message, UserMessage)), default=0)
        fragments = [beginning.data] if beginning.data else []
        for index, message in enumerate(rest):
            match message:
                case UserMessage():
                    if index in unanswered:
                        fragments.append(encode({"role": "assistant", "content": unanswered[index]}))
                    elif index == turn_start:  # An inserted reply belongs to no message: nothing is kept then.
                        self._keep_earlier_turns(beginning, rest[:index], fragments, id_counts)
                    fragments.append(self._encode_once(message))
                case AssistantMessage() if is_empty(message):
                    pass
                case AssistantMessage():
                    ids = tuple(self._unique_id(call.id, id_counts) for call in message.calls)
                    reasoning = replay.of(message, this_turn=index >= turn_start)
                    fragments.append(self._encode_once(message, ids=ids, reasoning=reasoning, field=replay.field))
                    answers = results.get(index, ())
                    fragments += [self._result_message(*pair) for pair in zip(ids, answers, strict=True)]
                    fragments += filter(None, map(self._images_of, answers))
                case ToolMessage() | RoleSwitchMessage() | NoticeMessage() | SummaryMessage():
                    pass  # Results are written after their calls; the other messages are only for the user.
                case _:
                    assert_never(message)
        if results and all(None not in found for found in results.values()):
            data = b",".join(fragments)
            self._so_far = _Beginning(messages=messages, replay=replay, data=data, id_counts=dict(id_counts))
            fragments = [data]
        first = [encode({"role": "system", "content": system})] if system.strip() else []
        # Joined in one go, because each addition would copy the whole history. The first comma is left out.
        parts = [part for fragment in first + fragments for part in (b",", fragment)]
        return b"".join((b"[", *parts[1:], b"]"))

    def _find_beginning(self, messages: tuple[Message, ...], replay: ReasoningReplay) -> _Beginning:
        """Return the longest beginning of the array that was sent before and is the same now."""
        if self._so_far.starts(messages, replay, before_prompt=False):
            return self._so_far
        if not self._earlier_turns.starts(messages, replay, before_prompt=True):
            self._earlier_turns = _Beginning(replay=replay)
        return self._earlier_turns

    def _keep_earlier_turns(
        self, before: _Beginning, more: tuple[Message, ...], fragments: list[bytes], id_counts: Mapping[CallId, int]
    ) -> None:
        """Keep the fragments so far as the beginning of the next requests, if nothing later can change them."""
        if more and all(None not in found for found in results_of(more).values()):
            messages, data = (*before.messages, *more), b",".join(fragments)
            self._earlier_turns = replace(before, messages=messages, data=data, id_counts=dict(id_counts))
            self._so_far = _Beginning()
            self._fragments.clear()

    def _unique_id(self, call_id: CallId, id_counts: Counter[CallId]) -> str:
        """Return an id that no other call of the array has: stored ids repeat only in a damaged store."""
        id_counts[call_id] += 1
        count = id_counts[call_id]
        return wire_id(call_id if count == 1 else CallId(f"{call_id}#{count}"), short=self._short)

    def _result_message(self, id_: str, result: ToolMessage | None) -> bytes:
        if result is not None:
            return self._encode_once(result, ids=(id_,))
        return encode({"role": "tool", "tool_call_id": id_, "content": LOST_RESULT})

    def _images_of(self, result: ToolMessage | None) -> bytes:
        """Return messages with the images of a result, which its own cannot hold; empty if none is sent."""
        if result is None or not result.facts.files:
            return b""
        key = MessageId(f"{result.id}.images")
        known = self._fragments.get(key)
        if known is not None and known.message == result:
            return known.data
        if not (images := self._images(result.facts.files)):
            return b""
        text: JsonValue = {"type": "text", "text": f"[chatops] Images that {wire_name(result.tool)} returned:"}
        before = encode({"role": "assistant", "content": RESULTS_RECEIVED})
        data = before + b"," + encode({"role": "user", "content": [text, *images]})
        self._fragments[key] = _Fragment(message=result, ids=(), reasoning="", data=data)
        return data

    def _images(self, files: Iterable[FileRef]) -> list[JsonValue]:
        """Return the images among `files` as parts of a message."""
        if self._read_file is None:
            return []
        urls = (data_url(self._read_file(file)) for file in files if file.is_image)
        return [{"type": "image_url", "image_url": {"url": url}} for url in urls if url]

    def _encode_once(
        self,
        message: UserMessage | AssistantMessage | ToolMessage,
        *,
        ids: tuple[str, ...] = (),
        reasoning: str = "",
        field: str = "",
    ) -> bytes:
        known = self._fragments.get(message.id)
        field_and_reasoning = f"{field}:{reasoning}" if reasoning else ""
        if known is not None and (known.ids, known.reasoning) == (ids, field_and_reasoning):
            # Identity first: comparing long messages takes time, and most are the very same.
            if known.message is message or known.message == message:
                return known.data
        data = encode(self._message_json(message, ids=ids, reasoning=reasoning, field=field))
        self._fragments[message.id] = _Fragment(message=message, ids=ids, reasoning=field_and_reasoning, data=data)
        return data

    def _message_json(
        self, message: UserMessage | AssistantMessage | ToolMessage, *, ids: tuple[str, ...], reasoning: str, field: str
    ) -> JsonValue:
        match message:
            case UserMessage():
                files = [file.ref for file in message.files]
                images = self._images(files)
                if not images:
                    return {"role": "user", "content": with_image_note(user_content(message), files)}
                return {"role": "user", "content": [{"type": "text", "text": user_content(message)}, *images]}
            case AssistantMessage():
                return self._reply_json(message, ids=ids, reasoning=reasoning, field=field)
            case ToolMessage():
                return {"role": "tool", "tool_call_id": ids[0], "content": self._result_text(message)}
            case _:
                assert_never(message)

    def _result_text(self, message: ToolMessage) -> str:
        text = result_content(message)
        return text if self._images_of(message) else with_image_note(text, message.facts.files)

    def _reply_json(self, message: AssistantMessage, *, ids: tuple[str, ...], reasoning: str, field: str) -> JsonValue:
        text = assistant_text(message)
        if reasoning and field == IN_CONTENT:
            text = f"<think>\n{reasoning}\n</think>\n\n{text}"
        # Never null and never absent beside calls: llama.cpp's Python server answers 500 to either.
        body: dict[str, JsonValue] = {"role": "assistant", "content": text}
        if reasoning and field != IN_CONTENT:
            body[field] = reasoning
        if message.calls:
            own = message.model == self._model
            body["tool_calls"] = [
                self._call_json(call, id_=id_, own=own) for id_, call in zip(ids, message.calls, strict=True)
            ]
        return body

    def _call_json(self, call: ToolCall, *, id_: str, own: bool) -> JsonValue:
        function: JsonValue = {"name": wire_name(call.name), "arguments": wire_arguments(call.arguments)}
        extra = (call.extra_content if own else "") or self._absent_signature
        value: dict[str, JsonValue] = {"id": id_, "type": "function", "function": function}
        return value | {"extra_content": json.loads(extra)} if extra else value


@lru_cache(maxsize=8)
def encode_tools(tools: tuple[ToolSpec, ...]) -> bytes:
    """Return the `tools` array as JSON bytes, cached for the last few sets. The schema is copied as text."""
    return b"[" + b",".join(map(_encode_tool, tools)) + b"]"


def _encode_tool(tool: ToolSpec) -> bytes:
    name, description = encode(tool.name), encode(tool.description)
    parameters = scrub(tool.schema or '{"type":"object","properties":{}}').encode("utf-8")
    return b'{"type":"function","function":{"name":%s,"description":%s,"parameters":%s}}' % (
        name,
        description,
        parameters,
    )


def join_body(fields: Mapping[str, bytes]) -> bytes:
    """Return a JSON object made of values that are already JSON, in the given order."""
    # Without the first comma.
    parts = [part for name, value in fields.items() for part in (b",", encode(name), b":", value)]
    return b"".join((b"{", *parts[1:], b"}"))

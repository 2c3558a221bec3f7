"""The body of one request: the content of the request and the registry's settings of the model.

If the tools are described in the prompt, everything is text (`PromptedEncoder`). The tools are in the system prompt,
before the role context. Calls are in the model's own messages as it would have written them, and their results, fenced,
in the next message. Adjacent messages of one role are joined, because strict chat templates require alternating roles.
"""

import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import assert_never

from chatops.dialects.families import Family, family_of
from chatops.dialects.writing import WRITABLE, ToolDescription, WrittenCall, WrittenResult
from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import (
    AssistantMessage,
    Message,
    NoticeMessage,
    RoleSwitchMessage,
    SummaryMessage,
    ToolMessage,
    UserMessage,
)
from chatops.domain.model import ModelRequest, Sampling, ToolChoice
from chatops.domain.tools import Outcome, ToolCall, ToolSpec
from chatops.engine.pairing import LOST_RESULT, results_of
from chatops.models.hosts import HostProfile
from chatops.models.tool_delivery import InField, InPrompt, ToolDelivery
from chatops.models.wire import (
    IMAGES,
    NO_REPLAY,
    MessageEncoder,
    ReadFile,
    ReasoningReplay,
    assistant_text,
    encode,
    encode_tools,
    is_empty,
    join_body,
    result_content,
    user_content,
    with_image_note,
)
from chatops.policy.prompt import with_section
from chatops.policy.registry import ModelSpec

_SECRET = secrets.token_hex(16)
"""Secret for the fences of results. It lasts as long as the process, so that a server's prompt cache stays valid."""
RESERVED = frozenset(
    {"model", "messages", "tools", "tool_choice", "functions", "function_call", "stream", "stream_options", "n"}
)
"""Fields that `extra_body` cannot set: they decide the request, the tools on offer and how the answer is read."""
# The two names of the limit of a reply. A server that refuses one of them may take the other.
_OTHER_LIMIT_FIELD = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class PromptedEncoder:
    """Encoder of messages in one format."""

    def __init__(self, format_: str, *, family: Family) -> None:
        """Set the format, one of `WRITABLE`; `family` has its own names for some tools."""
        self._writer = WRITABLE[format_]
        self._family = family

    def array(
        self, messages: Sequence[Message], *, system: str, tools: tuple[ToolSpec, ...], choice: ToolChoice
    ) -> bytes:
        """Return the `messages` of a request as JSON bytes."""
        offered = frozenset(tool.name for tool in tools)
        system = with_section(system, self._describe_tools(tools, offered, choice=choice))
        texts = [("system", system)] if system else []
        texts += self._role_texts(messages, offered=offered)
        return encode(
            [
                {"role": role, "content": "\n\n".join(text for _, text in adjacent)}
                for role, adjacent in groupby(texts, key=itemgetter(0))
            ]
        )

    def _describe_tools(self, tools: tuple[ToolSpec, ...], offered: frozenset[str], *, choice: ToolChoice) -> str:
        described = [
            ToolDescription(
                name=self._family.their_name(tool.name, offered), description=tool.description, schema=tool.schema
            )
            for tool in tools
        ]
        return self._writer.system_prompt(described, choice=choice)

    def _role_texts(self, messages: Sequence[Message], *, offered: frozenset[str]) -> Iterator[tuple[str, str]]:
        """Yield role, ``user`` or ``assistant``, and text of each message."""
        results = results_of(messages)
        for index, message in enumerate(messages):
            match message:
                case UserMessage():
                    yield "user", with_image_note(user_content(message), [file.ref for file in message.files])
                case AssistantMessage() if is_empty(message):
                    pass
                case AssistantMessage():
                    calls = [self._written_call(call, offered=offered) for call in message.calls]
                    yield "assistant", self._writer.message(assistant_text(message), calls)
                    if message.calls:
                        pairs = zip(message.calls, results[index], strict=True)
                        answers = [self._written_result(call, result, offered=offered) for call, result in pairs]
                        yield "user", self._writer.results(answers, secret=_SECRET)
                case ToolMessage() | RoleSwitchMessage() | NoticeMessage() | SummaryMessage():
                    pass  # Results are written after their calls; the other messages are only for the user.
                case _:
                    assert_never(message)

    def _written_call(self, call: ToolCall, *, offered: frozenset[str]) -> WrittenCall:
        name = self._family.their_name(call.name, offered) or "unnamed"
        return WrittenCall(name=name, arguments=call.arguments.strip() or "{}")

    def _written_result(self, call: ToolCall, result: ToolMessage | None, *, offered: frozenset[str]) -> WrittenResult:
        name = self._family.their_name(call.name, offered) or "unnamed"
        if result is None:
            return WrittenResult(name=name, content=LOST_RESULT, outcome=Outcome.UNKNOWN.value)
        content = with_image_note(result_content(result), result.facts.files)
        return WrittenResult(name=name, content=content, outcome=result.outcome.value)


def _extra_body(spec: ModelSpec) -> dict[str, JsonValue]:
    """Return `extra_body` of a model. Raises ConfigError if it is not an object."""
    try:
        extra = json.loads(spec.extra_body or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise ConfigError(
            f"extra_body of model {spec.name!r} is not a JSON object.", advice="Correct it: chatops registry check"
        )
    return extra


@frozen_dataclass
class Body:
    """A request body as JSON bytes, with the sizes of two of its fields in bytes."""

    data: bytes
    messages: int
    tools: int
    """0 if the tools are not in their own field."""


class BodyBuilder:
    """Builder of request bodies for one model. It caches encoded messages."""

    def __init__(self, spec: ModelSpec, *, host: HostProfile, read_file: ReadFile | None = None) -> None:
        self._spec = spec
        self._host = host
        self._family: Family = family_of(spec.model_name)
        make_encoder = partial(
            MessageEncoder, short_ids=host.short_ids, model=spec.name, absent_signature=host.absent_signature
        )
        self._without_images = self._with_images = make_encoder()
        if spec.takes_images and read_file is not None:
            self._with_images = make_encoder(read_file=read_file)
        extra = _extra_body(spec)
        self._extra = {name: value for name, value in extra.items() if name not in RESERVED}
        self.refused = tuple(sorted(RESERVED & extra.keys()))
        """The names in `extra_body` that it may not set."""

    def sends_images(self, delivery: ToolDelivery, *, without: Collection[str]) -> bool:
        """Return True if images are sent, and not only named."""
        shown = self._with_images is not self._without_images and IMAGES not in without
        return shown and not isinstance(delivery, InPrompt)

    def build(
        self,
        request: ModelRequest,
        *,
        delivery: ToolDelivery,
        replay: ReasoningReplay = NO_REPLAY,
        without: Collection[str] = (),
    ) -> Body:
        """Return the body, without the fields that this server has refused before (`without`)."""
        if replay.field in without:
            replay = NO_REPLAY
        images = self.sends_images(delivery, without=without)
        messages = self._message_array(request, delivery=delivery, replay=replay, images=images)
        fields = {"model": encode(self._spec.model_name), "messages": messages}
        if isinstance(delivery, InField):
            fields |= self._tool_fields(request, without=without)
        tools = len(fields.get("tools", b""))
        fields["stream"] = encode(self._spec.stream)
        if self._spec.stream:
            fields["stream_options"] = b'{"include_usage":true}'
        fields |= {name: encode(value) for name, value in self._parameters(request.sampling, without).items()}
        fields |= {name: encode(value) for name, value in self._extra.items()}
        data = join_body({name: value for name, value in fields.items() if name not in without})
        return Body(data=data, messages=len(messages), tools=tools)

    def _message_array(
        self, request: ModelRequest, *, delivery: ToolDelivery, replay: ReasoningReplay, images: bool
    ) -> bytes:
        if not isinstance(delivery, InPrompt):
            encoder = self._with_images if images else self._without_images
            return encoder.array(request.messages, system=request.system, replay=replay)
        prompted = PromptedEncoder(delivery.format, family=self._family)
        return prompted.array(request.messages, system=request.system, tools=request.tools, choice=request.tool_choice)

    def _tool_fields(self, request: ModelRequest, *, without: Collection[str]) -> dict[str, bytes]:
        """Return the tool fields only if there are tools: an empty list is an error for strict servers."""
        if not request.tools:
            return {}
        if request.tool_choice is ToolChoice.AUTO:
            return {"tools": encode_tools(request.tools)}
        if not self._host.tool_choice_none or "tool_choice" in without:
            return {}
        return {"tools": encode_tools(request.tools), "tool_choice": b'"none"'}

    def _parameters(self, sampling: Sampling, without: Collection[str]) -> Mapping[str, JsonValue]:
        spec = self._spec
        limit = self._host.max_tokens_field
        if limit in without and _OTHER_LIMIT_FIELD[limit] not in without:
            limit = _OTHER_LIMIT_FIELD[limit]
        candidates: dict[str, JsonValue] = {
            limit: spec.max_output_tokens if sampling.max_output_tokens is None else sampling.max_output_tokens,
            "temperature": spec.temperature if sampling.temperature is None else sampling.temperature,
            "top_p": spec.top_p,
            "stop": list(spec.stop) or None,
            "reasoning_effort": spec.reasoning_effort or None,
            "user": spec.user or None,
        }
        return {name: value for name, value in candidates.items() if value is not None}

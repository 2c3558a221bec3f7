"""A session for a model whose tools are described in the prompt: everything is text.

The tools are in the system prompt, before the role context. Calls are in the model's own messages as it would have
written them, and their results, fenced, in the next message. Adjacent messages of one role are joined, because strict
chat templates require alternating roles.
"""

import secrets
from collections.abc import Iterator, Sequence
from typing import assert_never

from chatops.dialects.families import Family
from chatops.dialects.writing import WRITABLE, ToolDescription, WrittenCall, WrittenResult
from chatops.domain.messages import (
    AssistantMessage,
    Message,
    NoticeMessage,
    RoleSwitchMessage,
    ToolMessage,
    UserMessage,
)
from chatops.domain.model import ToolChoice
from chatops.domain.tools import Outcome, ToolCall, ToolSpec
from chatops.engine.pairing import LOST, results_of
from chatops.models.wire import content_of, content_said, encode, said_text, says_nothing
from chatops.policy.prompt import with_section

_SECRET = secrets.token_hex(16)
"""Secret for the fences of results. It lasts as long as the process, so that a server's prompt cache stays valid."""


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
        section = self._section(tools, choice=choice)
        said: list[tuple[str, list[str]]] = []
        for role, text in self._said(messages, offered=offered):
            if said and said[-1][0] == role:
                said[-1][1].append(text)
            else:
                said.append((role, [text]))
        whole = with_section(system, section)
        first = [("system", [whole])] if whole else []
        return encode([{"role": role, "content": "\n\n".join(texts)} for role, texts in [*first, *said]])

    def _section(self, tools: tuple[ToolSpec, ...], *, choice: ToolChoice) -> str:
        offered = frozenset(tool.name for tool in tools)
        described = [
            ToolDescription(
                name=self._family.their_name(tool.name, offered), description=tool.description, schema=tool.schema
            )
            for tool in tools
        ]
        return self._writer.system_prompt(described, choice=choice)

    def _said(self, messages: Sequence[Message], *, offered: frozenset[str]) -> Iterator[tuple[str, str]]:
        """Yield role, ``user`` or ``assistant``, and text of each message."""
        results = results_of(messages)
        for place, message in enumerate(messages):
            match message:
                case UserMessage():
                    yield "user", content_said(message)
                case AssistantMessage() if says_nothing(message):
                    pass
                case AssistantMessage():
                    calls = [self._written(call, offered=offered) for call in message.calls]
                    yield "assistant", self._writer.message(said_text(message), calls)
                    if message.calls:
                        pairs = zip(message.calls, results[place], strict=True)
                        told = [self._result(call, result, offered=offered) for call, result in pairs]
                        yield "user", self._writer.results(told, secret=_SECRET)
                case ToolMessage() | RoleSwitchMessage() | NoticeMessage():
                    pass  # Results are written after their calls; the other messages are only for the user.
                case _:
                    assert_never(message)

    def _written(self, call: ToolCall, *, offered: frozenset[str]) -> WrittenCall:
        name = self._family.their_name(call.name, offered) or "unnamed"
        return WrittenCall(name=name, arguments=call.arguments.strip() or "{}")

    def _result(self, call: ToolCall, result: ToolMessage | None, *, offered: frozenset[str]) -> WrittenResult:
        name = self._family.their_name(call.name, offered) or "unnamed"
        if result is None:
            return WrittenResult(name=name, content=LOST, outcome=Outcome.UNKNOWN.value)
        return WrittenResult(name=name, content=content_of(result), outcome=result.outcome.value)

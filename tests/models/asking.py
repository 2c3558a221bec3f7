"""Helpers of the model tests: send one request and look at the events."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from chatops.demo.model import demo_chat
from chatops.domain.ids import MessageId
from chatops.domain.messages import Message, UserMessage
from chatops.domain.model import ModelFailure, ModelReply, ModelRequest, ToolChoice
from chatops.domain.tools import BUILT_IN_TOOLS, NO_CAPABILITIES, ToolSpec
from chatops.models.base import Failed, ModelEvent, ModelNotice, ReasoningChunk, Replied, Retrying, TextChunk
from chatops.models.client import RegistryClient
from chatops.models.response import Pace
from chatops.policy.registry import ModelSpec, Timeouts
from tests.support.fake_openai import FakeOpenAI

KEY = "sk-test-7f3a9c21d4e8"
FAST = Pace(retry_base_s=0.001)
IMPATIENT = Pace(waiting_s=0.02, retry_base_s=0.001)
"""Says often that it waits: only for tests of that, since a busy machine makes every answer late."""


def tool(name: str) -> ToolSpec:
    return ToolSpec(
        name=name,
        capabilities=BUILT_IN_TOOLS.get(name, NO_CAPABILITIES),
        description=f"Does {name}.",
        schema='{"type":"object","properties":{}}',
    )


READ = tool("file_read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """All events of one request."""

    events: tuple[ModelEvent, ...]

    @property
    def reply(self) -> ModelReply:
        last = self.events[-1]
        assert isinstance(last, Replied), last
        return last.reply

    @property
    def failure(self) -> ModelFailure:
        last = self.events[-1]
        assert isinstance(last, Failed), last
        return last.failure

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextChunk))

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ReasoningChunk))

    @property
    def retries(self) -> list[Retrying]:
        return [event for event in self.events if isinstance(event, Retrying)]

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, ModelNotice)]


def spec_for(server: FakeOpenAI, **changes: object) -> ModelSpec:
    spec = ModelSpec(
        name="test",
        api_url=server.url,
        model_name="fake-model",
        timeout_s=Timeouts(connect=5.0, first_token=60.0, idle=60.0),
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


def client_for(spec: ModelSpec, *, environ: Mapping[str, str] | None = None, pace: Pace = FAST) -> RegistryClient:
    return RegistryClient({spec.name: spec}.get, environ=environ or {}, pace=pace, demo=demo_chat)


def question(*messages: Message, **changes: object) -> ModelRequest:
    asked = messages or (UserMessage(id=MessageId("m1"), text="hello"),)
    request = ModelRequest(model="test", system="Be brief.", messages=asked, tools=(READ,), tool_choice=ToolChoice.AUTO)
    return replace(request, **changes)  # type: ignore[arg-type]


async def send(client: RegistryClient, request: ModelRequest | None = None) -> Events:
    return Events(events=tuple([event async for event in client.stream(request or question())]))


async def ask(
    server: FakeOpenAI, *, request: ModelRequest | None = None, pace: Pace = FAST, **changes: object
) -> Events:
    """One question over a client of its own."""
    client = client_for(spec_for(server, **changes), pace=pace)
    try:
        return await send(client, request)
    finally:
        await client.aclose()

"""Against a server that we did not write: aimock (npm @copilotkit/aimock), over HTTP on this machine.

``CHATOPS_AIMOCK`` names its ``dist/cli.js``; without it, or without node, these tests skip and say so.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from chatops.domain.model import FailureKind
from chatops.domain.tools import Outcome, ToolCall
from chatops.models.discover import probe
from chatops.policy.registry import ModelSpec
from tests.models.asking import READ, client_for, question, send, tool

CLI = os.environ.get("CHATOPS_AIMOCK", "")
NODE = shutil.which("node")
pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed, so aimock cannot run"),
    pytest.mark.skipif(not Path(CLI).is_file(), reason="CHATOPS_AIMOCK does not name aimock's dist/cli.js"),
]

READING = {"type": "toolCall", "name": "file_read", "arguments": '{"path":"a.txt"}'}
LISTING = {"type": "toolCall", "name": "file_list", "arguments": '{"path":"."}'}
FIXTURES: list[dict[str, Any]] = [
    {"match": {"userMessage": "files", "hasToolResult": True}, "response": {"content": "Two files."}},
    {
        "match": {"userMessage": "files"},
        "response": {"blocks": [{"type": "text", "text": "Let me look."}, READING, LISTING]},
    },
    {"match": {"userMessage": "broken"}, "response": {"toolCalls": [{"name": "file_read", "arguments": '{"path": '}]}},
    {
        "match": {"userMessage": "stops"},
        "response": {"toolCalls": [{"name": "file_read", "arguments": "{}"}], "finishReason": "stop"},
    },
    {
        "match": {"userMessage": "cut"},
        "response": {"content": "one two three four five six seven eight"},
        "truncateAfterChunks": 2,
    },
    {"match": {"userMessage": "hello"}, "response": {"content": "Hello from aimock."}},
]


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """The base URL of a running aimock."""
    (tmp_path / "fixtures.json").write_text(json.dumps({"fixtures": FIXTURES}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        str(NODE),
        CLI,
        *("-p", str(port), "-h", "127.0.0.1", "-f", str(tmp_path), "--strict", "-c", "8"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _listening(port)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _listening(port: int) -> None:
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        await writer.wait_closed()
        return
    raise AssertionError("aimock did not start")


def spec(url: str) -> ModelSpec:
    return ModelSpec(name="test", api_url=url, model_name="gpt-4o")


def user(text: str) -> UserMessage:
    return UserMessage(id=MessageId("m1"), text=text)


async def test_text_calls_and_results(url: str) -> None:
    client = client_for(spec(url))
    tools = (READ, tool("file_list"))
    first = (await send(client, question(user("which files?"), tools=tools))).reply
    assert first.text == "Let me look."
    assert [(call.name, call.arguments) for call in first.calls] == [
        ("file_read", '{"path":"a.txt"}'),
        ("file_list", '{"path":"."}'),
    ]
    calls = tuple(
        ToolCall(id=CallId(f"s.1.1.{number}"), name=raw.name, arguments=raw.arguments, provider_id=raw.provider_id)
        for number, raw in enumerate(first.calls, start=1)
    )
    results = [
        ToolMessage(
            id=MessageId(f"t{call.id}"),
            call_id=call.id,
            tool=call.name,
            arguments=call.arguments,
            outcome=Outcome.SUCCESS,
            content="ok",
        )
        for call in calls
    ]
    said = AssistantMessage(id=MessageId("m2"), text=first.text, calls=calls)
    second = await send(client, question(user("which files?"), said, *results, tools=tools))
    assert second.reply.text == "Two files."
    await client.aclose()


async def test_streamed_text_and_what_it_saw_of_us(url: str) -> None:
    client = client_for(spec(url))
    events = await send(client, question(user("hello")))
    await client.aclose()
    assert events.text == events.reply.text == "Hello from aimock."
    async with httpx2.AsyncClient(trust_env=False) as http:
        journal = (await http.get(url.removesuffix("/v1") + "/__aimock/journal")).text
    assert "Be brief." in journal
    assert "stainless" not in journal


async def test_a_call_counts_although_the_finish_reason_says_stop(url: str) -> None:
    client = client_for(spec(url))
    events = await send(client, question(user("stops")))
    await client.aclose()
    assert [call.name for call in events.reply.calls] == ["file_read"]


async def test_broken_arguments_come_as_written(url: str) -> None:
    client = client_for(spec(url))
    (call,) = (await send(client, question(user("broken")))).reply.calls
    await client.aclose()
    assert call.arguments == '{"path": '


async def test_a_stream_that_breaks_off(url: str) -> None:
    client = client_for(spec(url))
    events = await send(client, question(user("cut")))
    await client.aclose()
    assert events.failure.kind is FailureKind.BROKEN_STREAM


async def test_tools_stay_in_their_field_although_it_never_counts_them(url: str) -> None:
    client = client_for(spec(url))
    tools = (replace(READ, description="Reads a file of the workspace. " * 20),)
    said: list[Message] = []
    for number in range(3):
        said.append(UserMessage(id=MessageId(f"u{number}"), text="hello " * 10))
        await send(client, question(*said, tools=tools))
        said.append(AssistantMessage(id=MessageId(f"a{number}"), text="Hello from aimock."))
    asked = UserMessage(id=MessageId("last"), text="what stops")
    first = await send(client, question(*said, asked, tools=tools))
    again = await send(client, question(*said, asked, tools=tools))
    await client.aclose()
    assert [call.name for call in first.reply.calls] == ["file_read"]
    assert again.notices == []
    async with httpx2.AsyncClient(trust_env=False) as http:
        journal = (await http.get(url.removesuffix("/v1") + "/__aimock/journal")).json()
    assert "tools" in (journal[-1].get("body") or journal[-1]["request"]["body"])


async def test_connecting(url: str) -> None:
    found = await probe(url.removesuffix("/v1"))
    assert found.base_url == url
    assert found.models

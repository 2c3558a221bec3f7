"""Frames and lists of tools of a hostile server: each call ends, nothing else happens, and the next one is answered.

Those of editors are in ``tests/acp/test_hostile.py``.
"""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from chatops.mcp.servers import Servers
from tests.fuzz.bounded import altered, hold
from tests.mcp.conftest import World, entry, tool
from tests.mcp.test_servers import RAW

EVIL = "\x1b]0;EVIL\x07\x9b2J\u202e"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "title": EVIL, "enum": [EVIL, "b"]}}, "required": []}
CONTENT = [
    {"type": "text", "text": EVIL},
    {"type": "image", "data": "iVBORw0KGgo=", "mimeType": EVIL},
    {"type": "resource_link", "uri": "a:b", "name": EVIL, "title": EVIL},
    {"type": "resource", "resource": {"uri": "a:b", "text": EVIL, "mimeType": EVIL}},
]
MESSAGE = {"role": "user", "content": {"type": "text", "text": EVIL}}
FRAMES: list[dict[str, Any]] = [
    {"id": "$ID", "result": {"content": CONTENT, "structuredContent": {"a": EVIL}, "isError": True}},
    {"id": "$ID", "error": {"code": -32000, "message": EVIL, "data": EVIL}},
    {"id": "x", "method": "elicitation/create", "params": {"message": EVIL, "requestedSchema": SCHEMA}},
    {"id": 1, "method": "elicitation/create", "params": {"mode": "url", "message": EVIL, "url": "https://x.test/"}},
    {"id": 2, "method": "sampling/createMessage", "params": {"messages": [MESSAGE], "maxTokens": 5}},
    {"id": 3, "method": "roots/list", "params": {}},
    {"id": "$ID", "method": "ping"},
    {"id": 4, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "y"}}},
    {"method": "notifications/progress", "params": {"progressToken": "$TOKEN", "progress": 1, "message": EVIL}},
    {"method": "notifications/message", "params": {"level": "info", "data": EVIL, "logger": EVIL}},
    {"method": "notifications/cancelled", "params": {"requestId": "$ID", "reason": EVIL}},
    {"method": "notifications/resources/updated", "params": {"uri": EVIL}},
    {"method": "notifications/tools/list_changed"},
]
ABOUT = {"title": EVIL, "description": EVIL, "outputSchema": SCHEMA, "annotations": {"title": EVIL}}
TOOL = {**tool("a", text={"type": "string"}), **ABOUT}
LEAVES = st.sampled_from(
    [
        *(None, True, 0, 1, -1, 2**63, 10**400, 1.5, float("nan"), "", "x", EVIL, "\x00", "\ud800", "..", "x" * 20_000),
        *("$ID", "$TOKEN", "echo", "h__echo", "#/$defs/a", "(a*)*b", "2.0", "text", [], {}, [None], CONTENT, SCHEMA),
    ]
)
CHANGES = st.lists(st.tuples(st.integers(0, 40), LEAVES), max_size=2)


def changed(value: Any, changes: list[tuple[int, Any]]) -> Any:
    for at, leaf in changes:
        value = altered(value, at, leaf)
    return value


def one_of(frame: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Return lines with this frame, changed in up to two places."""
    whole = {"jsonrpc": "2.0", **frame}
    return CHANGES.map(lambda changes: json.dumps(changed(whole, changes)).encode())


GOOD = st.sampled_from(FRAMES).flatmap(one_of)
ODD = [
    b"",
    b"{",
    b"[" * 5000,
    b'{"a":' * 3000,
    b"nan",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"{}\r",
    b"\x00",
    b"x" * 100_000,
]
LINES = (
    GOOD
    | st.sampled_from(ODD)
    | st.binary(max_size=40).map(lambda data: data.replace(b"\n", b""))
    | st.lists(GOOD, max_size=3).map(lambda lines: b"[" + b",".join(lines) + b"]")
    | st.tuples(GOOD, st.integers(1, 60)).map(lambda pair: pair[0][: -pair[1]])
)
TOOLS = st.lists(CHANGES.map(lambda changes: changed(TOOL, changes)), max_size=4)


async def is_well(world: World, servers: Servers) -> None:
    """See that a call is answered. An answer to the next request, sent too early, may cost the first one."""
    result = None
    for _ in range(4):
        if servers.get("h__echo") is None or (await world.inspect(servers, "h__echo", text="x")).problems:
            await servers.connect(["h"])
        elif (result := await world.run(servers, "h__echo", text="x")).content == "echo: x":
            return
    raise AssertionError((result, servers.statuses()))


@pytest.mark.parametrize("kind", ["messages", "tools"])
async def test_nothing_that_a_server_sends_breaks_the_next_call(tmp_path: Path, kind: str) -> None:
    (tmp_path / "project").mkdir()
    world = World(tmp_path / "project")
    good = (tool("raw", lines={"type": "array"}), tool("echo"), tool("exit"))
    world.lists(*good)
    async with world.servers(h=entry()) as servers:
        loop = asyncio.get_running_loop()

        async def messages(lines: list[bytes]) -> None:
            result = await world.run(servers, "h__raw", lines=[base64.b64encode(line).decode() for line in lines])
            # The text of a result stays as it is, as that of a file.
            said = "".join(world.shown)
            world.shown.clear()
            assert len(result.content) <= 16_000 and not any(sign in said for sign in RAW), (result, said)

        async def tools(listed: list[Any]) -> None:
            await world.run(servers, "h__exit")
            world.lists(*listed, *good)
            # The first time it may only be found that the server has gone.
            for _ in range(2):
                await servers.connect(["h"])
            (status,) = servers.statuses()
            specs = [known.spec for known in servers.tools()]
            shown = [f"{spec.name}{spec.capabilities.verb}" for spec in specs]
            said = "".join([*shown, *status.warnings, status.reason])
            assert not any(sign in said for sign in RAW), said
            assert len(specs) >= len(good) or status.reason
            world.lists(*good)
            servers.reconnect("h")

        async def one(example: Any) -> None:
            (world.workspace / "calls.log").unlink(missing_ok=True)
            await (messages if kind == "messages" else tools)(example)
            await is_well(world, servers)
            assert world.calls.count("raw" if kind == "messages" else "exit") == 1
            assert set(world.calls) <= {"raw", "echo", "exit"}

        def check(example: Any) -> None:
            asyncio.run_coroutine_threadsafe(one(example), loop).result()

        among = st.lists(LINES, min_size=1, max_size=6) if kind == "messages" else TOOLS
        frames = [[json.dumps({"jsonrpc": "2.0", **frame}).encode()] for frame in FRAMES]
        # Each list of tools is one of a server that has just been started.
        kept, few = (frames, 15) if kind == "messages" else ([[TOOL]], 5)
        await asyncio.to_thread(hold, check, among, kept=kept, few=few)

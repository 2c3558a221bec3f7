"""The least that a script has to do to ask a model: ``post.py URL PROMPT [ROUNDS]``.

It imports the SDK, posts and streams. With ROUNDS it then answers the tool calls, each with what a durable round needs:
three commits of a kilobyte. It prints the CPU seconds after the first reply.
"""

import asyncio
import json
import sqlite3
import sys
import tempfile
import time

import httpx2
from openai import AsyncOpenAI

TOOL = {
    "type": "function",
    "function": {
        "name": "file_read",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


async def streamed(client: AsyncOpenAI, messages: list[dict[str, object]]) -> dict[str, object]:
    body = json.dumps({"model": "bench", "stream": True, "messages": messages, "tools": [TOOL]}).encode()
    response = await client.post(
        "/chat/completions",
        cast_to=httpx2.Response,
        content=body,
        options={"headers": {"Content-Type": "application/json"}},
        stream=True,
        stream_cls=None,
    )
    assert isinstance(response, httpx2.Response)
    text, calls, rest = "", list[dict[str, object]](), b""
    async for part in response.aiter_bytes():
        *events, rest = (rest + part).split(b"\n\n")
        for event in events:
            if event.startswith(b"data: {"):
                delta = json.loads(event[6:])["choices"][0]["delta"]
                text += delta.get("content") or ""
                calls += delta.get("tool_calls") or []
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


async def main(url: str, prompt: str, durable: bool) -> None:
    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    messages: list[dict[str, object]] = [{"role": "user", "content": prompt}]
    with tempfile.TemporaryDirectory() as folder:
        store = sqlite3.connect(f"{folder}/store.db", isolation_level=None)
        store.execute("PRAGMA journal_mode = WAL")
        store.execute("PRAGMA synchronous = FULL")
        store.execute("CREATE TABLE steps (body TEXT)")
        used = None
        while True:
            message = await streamed(client, messages)
            messages.append(message)
            # Without imports and the first connection, which would hide a round of two milliseconds.
            used = used or time.process_time()
            calls = message.get("tool_calls")
            if not isinstance(calls, list):
                break
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "text"} for call in calls]
            for _ in range(3 * durable):
                store.execute("BEGIN IMMEDIATE")
                store.execute("INSERT INTO steps VALUES (?)", ("x" * 1_000,))
                store.execute("COMMIT")
    print(time.process_time() - used)


asyncio.run(main(sys.argv[1], sys.argv[2], len(sys.argv) > 3))

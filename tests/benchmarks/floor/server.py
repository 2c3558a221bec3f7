"""A scripted model server in a process of its own, so that its work is not counted: ``server.py LOG``.

The last user message says what to answer: ``stream:TOKENS:RATE:ID`` streams that many tokens of Markdown at RATE a
second (0: at once), the first one ``BEGID`` and the last one ``ENDID``; ``rounds:K`` calls file_read K times. It prints
its port and logs one JSON line for each request and each last token, with monotonic times.
"""

import asyncio
import json
import re
import sys
import time
from typing import Any, TextIO

PLAN = re.compile(rb"stream:(\d+):(\d+):(\w+)|rounds:(\d+)")
TEXT = """## How the parts fit

The model reads every role from a small file and then sends the text to a server that returns tokens one by one, with
**bold text**, *italic text* and `inline_code(1)`.

- an item of a list with a [link](http://127.0.0.1/1)
- another item of it

```python
def step(value: int) -> str:
    # a comment
    return f"result {value + 1}"
```

| name | state |
| --- | --- |
| row | ready |

"""
WORDS = re.findall(r"\s*\S{1,5}|\s+", TEXT)


def tokens(count: int, ident: str) -> list[str]:
    """Return the text of a reply: whole copies of TEXT, then plain words."""
    whole, rest = divmod(max(0, count - 2), len(WORDS))
    return [f"BEG{ident}\n\n", *WORDS * whole, *["word "] * rest, f"\n\nEND{ident}\n"]


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": [choice], **more}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


async def answer(body: bytes, writer: asyncio.StreamWriter, log: Any) -> None:
    def send(data: bytes) -> None:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    plan = [*PLAN.finditer(body)][-1:]
    at = time.monotonic()
    ident = plan[0][3].decode() if plan and plan[0][3] else "none"
    log(event="request", id=ident, at=at)
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    if plan and plan[0][4]:
        since = body[plan[0].start() :]
        if (number := since.count(b'"role":"tool"') + since.count(b'"role": "tool"')) < int(plan[0][4]):
            function = {"name": "file_read", "arguments": json.dumps({"path": f"f{number}.txt"})}
            call = {"index": 0, "id": f"call{number}", "type": "function", "function": function}
            send(chunk({"tool_calls": [call]}) + chunk({}, "tool_calls", usage=usage) + b"data: [DONE]\n\n")
            return
    count, rate = (int(plan[0][1]), int(plan[0][2])) if plan and plan[0][1] else (2, 0)
    sent, words = 0, tokens(count, ident)
    while sent < len(words):
        due = len(words) if not rate else min(len(words), 1 + int((time.monotonic() - at) * rate))
        send(b"".join(chunk({"content": word}) for word in words[sent:due]))
        await writer.drain()
        sent = max(sent, due)
        if sent < len(words):
            await asyncio.sleep(1 / rate)
    log(event="last", id=ident, at=time.monotonic())
    send(chunk({}, "stop", usage=usage) + b"data: [DONE]\n\n")


async def main(file: TextIO) -> None:
    def log(**fields: Any) -> None:
        file.write(json.dumps(fields) + "\n")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"(?i)content-length: (\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
                writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
                await answer(body, writer, log)
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with open(sys.argv[1], "a", buffering=1) as file:
        asyncio.run(main(file))

"""A loopback HTTP server that answers as a test says and keeps what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: str = ""


@dataclass
class Server:
    """Its address, the requests it got, and its answers: raw bytes by path."""

    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    answers: dict[str, bytes | Callable[[asyncio.StreamWriter], object]] = field(default_factory=dict)


def answer(
    body: bytes | str, *, status: str = "200 OK", kind: str = "text/html; charset=utf-8", more: str = ""
) -> bytes:
    """A whole HTTP answer."""
    data = body.encode() if isinstance(body, str) else body
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode() + data


def redirect(location: str) -> bytes:
    """An answer that leads elsewhere."""
    return answer("", status="302 Found", more=f"Location: {location}\r\n")


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """A running server."""
    server = Server()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = (await reader.readexactly(int(headers.get("content-length", 0)))).decode()
            server.asked.append(Asked(method=method, path=path, headers=headers, body=body))
            reply = server.answers.get(path.partition("?")[0], answer("gone", status="404 Not Found"))
            if isinstance(reply, bytes):
                writer.write(reply)
                await writer.drain()
            else:
                await _endlessly(reply, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server


async def _endlessly(reply: Callable[[asyncio.StreamWriter], object], writer: asyncio.StreamWriter) -> None:
    for _ in range(10_000):
        reply(writer)
        await writer.drain()
        await asyncio.sleep(0)

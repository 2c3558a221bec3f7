"""Messages of a server over its standard streams.

The SDK's own transport starts the process itself, without a sandbox and a limit on the length of a message.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from mcp import types
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from chatops.mcp.process import MAX_LINE

MOST_UNREADABLE = 100
"""Maximum number of lines that are no messages. A server that writes more of them ends."""
UNREADABLE = -32_099
"""Code of the error that stands for an answer that is not JSON by the standard."""


class Lost(asyncio.Event):
    """Set once a connection is lost."""

    reason = ""
    """Why it was given up, as a clause; empty if the server ended it."""


@asynccontextmanager
async def stdio_transport(process: asyncio.subprocess.Process, *, lost: Lost) -> AsyncIterator[TransportStreams]:
    """Yield the streams of a started server. `lost` is set when it will send nothing more."""
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    reading, writing = process.stdout, process.stdin
    assert reading is not None and writing is not None

    async def read() -> None:
        unreadable = 0
        async with received:
            while unreadable <= MOST_UNREADABLE:
                if not (line := await _line(reading, lost)):
                    break
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    unreadable += bool(line.strip())
                    if (answer := _unreadable_answer(line)) is None:
                        continue
                    message = answer
                try:
                    await received.send(SessionMessage(message))
                except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                    break
            if unreadable > MOST_UNREADABLE:
                lost.reason = f"it sent more than {MOST_UNREADABLE} lines that are no messages"
            lost.set()
        # A server that cannot write would not notice that its input was closed.
        await _drain(reading)

    async def write() -> None:
        async with to_send:
            try:
                async for message in to_send:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    writing.write(text.encode("utf-8", "replace") + b"\n")
                    await writing.drain()
            except OSError:
                lost.set()
                await received.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield incoming, outgoing
        finally:
            lost.set()
            incoming.close()
            outgoing.close()
            tasks.cancel_scope.cancel()


async def _line(stream: asyncio.StreamReader, lost: Lost) -> bytes:
    """Return the next line; empty at the end, and if it cannot be read."""
    try:
        return await stream.readline()
    except ValueError:
        lost.reason = f"it sent a message of more than {MAX_LINE >> 20} MiB"
    except OSError as error:
        lost.reason = f"its messages cannot be read ({error.strerror})"
    return b""


def _unreadable_answer(line: bytes) -> types.JSONRPCError | None:
    """Return an error to stand for an unreadable answer, so that its request ends; None: it names no request."""
    try:
        answer = json.loads(line)  # It takes lone surrogates, too.
    except (ValueError, RecursionError):
        return None
    request = answer.get("id") if isinstance(answer, dict) and "method" not in answer else None
    if isinstance(request, bool) or not isinstance(request, int | str):
        return None
    error = types.ErrorData(code=UNREADABLE, message="its answer is not valid JSON")
    return types.JSONRPCError(jsonrpc="2.0", id=request, error=error)


async def _drain(stream: asyncio.StreamReader) -> None:
    try:
        while await stream.read(65_536):
            pass
    except (ValueError, OSError):
        pass

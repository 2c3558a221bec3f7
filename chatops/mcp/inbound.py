"""Messages of a server on their way to the SDK: tools that break the protocol are taken out, floods are thinned.

The SDK refuses a whole list for one bad tool, and makes a task of each notification. Beyond `MAX_PER_S` in a second,
notifications are dropped. Announcements of another list of tools are passed on as one, and what the server asks or
takes back is read later, so that it has to wait.

Messages over standard streams are read here too: the SDK's own transport starts the process itself, without a sandbox
and a limit on the length of a message.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp import types
from mcp.client._transport import TransportStreams
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.message import SessionMessage
from mcp.types.methods import validate_server_result
from pydantic import ValidationError

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.mcp.process import MAX_LINE
from chatops.toolkit.output import visible

MAX_PER_S = 100
"""Requests and notifications of a server that are handled in a second."""
MAX_TOOLS = 500
"""Tools of a server that are used. Checking one takes time, and a message has room for millions."""
_LIST_CHANGED = "notifications/tools/list_changed"
_NEVER_DROPPED = ("notifications/cancelled", "notifications/subscriptions/acknowledged")
_UNNAMED = "a tool without a name"
MAX_UNREADABLE = 100
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
    # The SDK reads from `incoming` what is put into `received`, and puts into `outgoing` what `to_send` gives.
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    reading, writing = process.stdout, process.stdin
    assert reading is not None and writing is not None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, reading, received, lost)
        tasks.start_soon(_send, to_send, writing, received, lost)
        try:
            yield incoming, outgoing
        finally:
            lost.set()
            incoming.close()
            outgoing.close()
            tasks.cancel_scope.cancel()


async def _receive(
    reading: asyncio.StreamReader, received: ObjectSendStream[SessionMessage | Exception], lost: Lost
) -> None:
    """Pass the server's messages on until it ends, or sends what cannot be read."""
    unreadable = 0
    async with received:
        while unreadable <= MAX_UNREADABLE:
            if not (line := await _read_line(reading, lost)):
                break
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                unreadable += 1 if line.strip() else 0
                if (answer := _unreadable_answer(line)) is None:
                    continue
                message = answer
            try:
                await received.send(SessionMessage(message))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                break
        if unreadable > MAX_UNREADABLE:
            lost.reason = f"it sent more than {MAX_UNREADABLE} lines that are no messages"
        lost.set()
    # A server that cannot write would not notice that its input was closed.
    await _drain(reading)


async def _send(
    to_send: ObjectReceiveStream[SessionMessage],
    writing: asyncio.StreamWriter,
    received: ObjectSendStream[SessionMessage | Exception],
    lost: Lost,
) -> None:
    """Write messages to the server. If it takes none any more, `received` is closed too."""
    async with to_send:
        try:
            async for message in to_send:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                writing.write(text.encode("utf-8", "replace") + b"\n")
                await writing.drain()
        except OSError:
            lost.set()
            await received.aclose()


async def _read_line(stream: asyncio.StreamReader, lost: Lost) -> bytes:
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


class Inbound:
    """The messages of one connection."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """Start with nothing seen. `on_change` is called for announcements that are not passed on."""
        self.version = ""
        """Version of the protocol, once it is known."""
        self.broken: dict[str, str] = {}
        """Tools that were taken out of lists, each with why; untrusted text, made visible."""
        self.dropped = 0
        """Number of notifications that were dropped."""
        self._on_change = on_change
        self._second = time.monotonic()
        """Beginning of the current second."""
        self._seen = 0
        """Messages in it."""

    async def pass_on(self, message: types.JSONRPCMessage) -> types.JSONRPCMessage | None:
        """Return what the SDK gets of a message; None: nothing."""
        if isinstance(message, types.JSONRPCResponse):
            return self._with_valid_tools(message)
        # An answer does not count: there is one for each request of chatops.
        if isinstance(message, types.JSONRPCError) or self._admits():
            return message
        if isinstance(message, types.JSONRPCRequest) or message.method in _NEVER_DROPPED:
            await asyncio.sleep(max(0.0, self._second + 1 - time.monotonic()))
            return message
        self.dropped += 1
        if message.method == _LIST_CHANGED:
            self._on_change()
        if not self.dropped % MAX_PER_S:
            await asyncio.sleep(0)  # A full buffer is read without waiting, and others need the event loop too.
        return None

    def _admits(self) -> bool:
        """Count a message. Return True if it is within the limit of its second."""
        now = time.monotonic()
        if now >= self._second + 1:
            self._second, self._seen = now, 0
        self._seen += 1
        return self._seen <= MAX_PER_S

    def _with_valid_tools(self, message: types.JSONRPCResponse) -> types.JSONRPCResponse:
        tools = message.result.get("tools")
        if isinstance(tools, list) and len(tools) > MAX_TOOLS:
            tools = tools[:MAX_TOOLS]
            message = message.model_copy(update={"result": {**message.result, "tools": tools}})
        if not isinstance(tools, list) or not self._page_fault({**message.result}):
            return message
        valid = []
        for tool in tools:
            # The page without tools is valid, or else nothing of it is.
            if fault := self._page_fault({**message.result, "tools": [tool]}):
                name = tool.get("name") if isinstance(tool, Mapping) else None
                self.broken[visible(name) if isinstance(name, str) and name else _UNNAMED] = fault
            else:
                valid.append(tool)
        return message.model_copy(update={"result": {**message.result, "tools": valid}})

    def _page_fault(self, page: dict[str, Any]) -> str:
        """Return why a page of tools breaks the protocol, as a clause; empty if it does not."""
        try:
            if self.version:
                validate_server_result("tools/list", self.version, page)
            types.ListToolsResult.model_validate(page, by_name=False)
        except (KeyError, ValueError) as error:
            if not isinstance(error, ValidationError):
                return ""  # Not a version with tools: the SDK says what is wrong.
            detail = error.errors(include_url=False, include_input=False)[0]
            # The first two parts are "tools" and the number of the tool.
            place = ".".join(str(part) for part in detail["loc"][2:]) or "entry"
            kind = "is missing" if detail["type"] == "missing" else "is not what the protocol wants"
            return visible(f"its {place} {kind}", limit=200)
        return ""


@asynccontextmanager
async def filter_received(
    transport: AbstractAsyncContextManager[TransportStreams], inbound: Inbound
) -> AsyncIterator[TransportStreams]:
    """Yield the streams of a transport, with what is received filtered by `inbound`."""
    async with transport as (received, to_send):
        yield _FilteredStream(received, inbound), to_send


@frozen_dataclass(kw_only=False)
class _FilteredStream:
    stream: ReadStream[SessionMessage | Exception]
    inbound: Inbound

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item = await self.stream.receive()
            if isinstance(item, Exception):
                return item
            if (message := await self.inbound.pass_on(item.message)) is not None:
                return replace(item, message=message)

    async def aclose(self) -> None:
        await self.stream.aclose()

    def __aiter__(self) -> "_FilteredStream":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "_FilteredStream":
        await self.stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self.stream.__aexit__(kind, error, trace)

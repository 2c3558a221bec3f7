"""A real loopback HTTP server that speaks chat completions, for everybody's tests.

Inside a test's event loop, or in a thread of its own for tests with a pty or a subprocess:

    async with FakeOpenAI([says("Hello"), calls(call("file_read", path="a.txt")), says("Done")]) as server: ...
    with FakeOpenAI(lambda request: says(request.last_user)) as server: ...

`server.url` is the base URL with ``/v1`` (``server.root`` without; ``/api`` and ``/api/v1`` answer too). Each chat
request consumes the next reply of the script; a script that is over answers 500. A reply is a `Completion`
(rendered as a stream or as one object, as the request asks) or a `Raw` (bytes and faults of any kind).
`server.requests` has every chat request (body, headers, path); `request.gone` is set when the client hung up before the
reply was over. Unless ``strict=False`` a request whose history is not valid (a call without exactly one tool
message, ids that repeat, a message without content, ``tools: []`` …) gets a 400 and is noted in `server.violations`.
"""

import asyncio
import contextlib
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.waiting import PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call as the fake model writes it."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A well-formed reply; `pieces` is into how many chunks the text is cut, `wait` comes before the finish."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    finish_reason: str = ""
    usage: Mapping[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 11, "completion_tokens": 7})
    model: str = ""
    pieces: int = 3
    wait: "Wait | Hang | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Send nothing for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Send nothing until the test sets `event` (or the client hangs up)."""

    event: threading.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Send nothing until the client hangs up or the server is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Break the connection with a TCP reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Close the connection at once, without the end of the body."""


Step = bytes | Pause | Wait | Hang | Reset | Close


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """Any bytes under any status. `bare`: the steps are the whole answer, status line and headers included."""

    steps: tuple[Step, ...] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    headers: tuple[tuple[str, str], ...] = ()
    bare: bool = False


Reply = Completion | Raw


@dataclass(slots=True, kw_only=True)
class SeenRequest:
    """A request as it arrived; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object of the body; empty if there is none."""
        return dict(json.loads(self.raw)) if self.raw else {}

    async def left(self) -> bool:
        """Wait up to five seconds for the client to hang up; for tests that share the server's event loop."""
        return await asyncio.to_thread(self.gone.wait, 5)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The chat messages."""
        return list(self.body.get("messages", []))

    @property
    def system(self) -> str:
        """The system prompt."""
        return "".join(str(message["content"]) for message in self.messages if message["role"] == "system")

    @property
    def last_user(self) -> str:
        """The last thing the user said."""
        return next((str(m["content"]) for m in reversed(self.messages) if m["role"] == "user"), "")

    @property
    def tool_names(self) -> list[str]:
        """The tools on offer."""
        return [str(tool["function"]["name"]) for tool in self.body.get("tools", [])]

    @property
    def tool_results(self) -> list[str]:
        """The contents of all tool messages, in order."""
        return [str(message["content"]) for message in self.messages if message["role"] == "tool"]


def says(text: str, **options: Any) -> Completion:
    """A reply of text."""
    return Completion(text=text, **options)


def call(name: str, *, id: str = "", **arguments: Any) -> Call:
    """A call of `name` with these arguments. (`Call` takes any text as arguments.)"""
    return Call(name=name, arguments=json.dumps(arguments), id=id)


def calls(*wanted: Call, text: str = "", **options: Any) -> Completion:
    """A reply that asks for these calls, side by side."""
    return Completion(text=text, calls=wanted, **options)


def error(status: int, message: str, *, code: str = "", headers: tuple[tuple[str, str], ...] = ()) -> Raw:
    """An error as OpenAI spells it."""
    body = {"error": {"message": message, "type": "error", "code": code or None, "param": None}}
    return Raw(status=status, content_type="application/json", steps=(json.dumps(body).encode(),), headers=headers)


def sse(*chunks: object, done: bool = True) -> bytes:
    """`data:` events: strings as they are, everything else as JSON."""
    lines = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    return "".join(f"data: {line}\n\n" for line in [*lines, *(["[DONE]"] if done else [])]).encode()


def stream(*chunks: object, done: bool = True) -> Raw:
    """A stream of exactly these chunks."""
    return Raw(steps=(sse(*chunks, done=done),))


def delta(content: str | list[Any] | None = None, *, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One chunk with one choice; `fields` go into its delta."""
    piece = dict(fields) if content is None else {"content": content, **fields}
    return {
        "id": "chunk",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "fake-model",
        "choices": [{"index": 0, "delta": piece, "finish_reason": finish}],
    }


def _cut(text: str, pieces: int) -> Iterator[str]:
    size = max(1, -(-len(text) // max(1, pieces)))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _tool_calls(completion: Completion, *, number: int) -> list[dict[str, Any]]:
    return [
        {
            "id": wanted.id or f"call_{number}_{index}",
            "type": "function",
            "function": {"name": wanted.name, "arguments": wanted.arguments},
        }
        for index, wanted in enumerate(completion.calls)
    ]


def _finish(completion: Completion) -> str:
    return completion.finish_reason or ("tool_calls" if completion.calls else "stop")


def _chunks(completion: Completion, *, number: int, model: str) -> Iterator[Step]:
    def chunk(**piece: Any) -> bytes:
        return sse({**delta(**piece), "model": completion.model or model}, done=False)

    yield chunk(content="", role="assistant")
    for piece in _cut(completion.reasoning, completion.pieces):
        yield chunk(reasoning_content=piece)
    for piece in _cut(completion.text, completion.pieces):
        yield chunk(content=piece)
    for index, wanted in enumerate(_tool_calls(completion, number=number)):
        whole = wanted["function"]["arguments"]
        wanted["function"]["arguments"] = ""
        yield chunk(tool_calls=[{"index": index, **wanted}])
        for piece in _cut(whole, 2):
            yield chunk(tool_calls=[{"index": index, "function": {"arguments": piece}}])
    if completion.wait is not None:
        yield completion.wait
    yield chunk(finish=_finish(completion))
    if completion.usage is not None:
        yield sse({"id": "chunk", "model": completion.model or model, "choices": [], "usage": dict(completion.usage)})
    else:
        yield b"data: [DONE]\n\n"


def _whole(completion: Completion, *, number: int, model: str) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": completion.text or None}
    if completion.calls:
        message["tool_calls"] = _tool_calls(completion, number=number)
    if completion.reasoning:
        message["reasoning_content"] = completion.reasoning
    body: dict[str, Any] = {
        "id": "whole",
        "object": "chat.completion",
        "created": 0,
        "model": completion.model or model,
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(completion)}],
    }
    if completion.usage is not None:
        body["usage"] = dict(completion.usage)
    return json.dumps(body).encode()


def violations_of(body: Mapping[str, Any]) -> list[str]:
    """Return what strict servers would reject in a chat request: the demands of several, combined."""
    found = []
    if body.get("tools") == []:
        found.append("tools is empty")
    if "tool_choice" in body and "tools" not in body:
        found.append("tool_choice without tools")
    seen: set[str] = set()
    open_calls: list[str] = []
    waiting = False
    for message in body.get("messages", []):
        role = message.get("role")
        if role == "user" and waiting:
            found.append(f"two user messages without a reply between them: {message.get('content')!r}")
        if role == "user" or (role == "assistant" and not message.get("tool_calls")):
            waiting = role == "user"
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                found.append(f"tool message for no open call: {message.get('tool_call_id')!r}")
            else:
                open_calls.remove(message["tool_call_id"])
        elif open_calls:
            found.append(f"calls without a tool message: {open_calls}")
            open_calls = []
        if role not in {"system", "developer", "user", "assistant", "tool"}:
            found.append(f"role {role!r}")
        if "content" not in message:
            found.append(f"{role} message without content")
        elif not message.get("tool_calls") and _is_empty(message["content"], role=role):
            found.append(f"{role} message with nothing in it: {message['content']!r}")
        for wanted in message.get("tool_calls", []):
            found += _faults_of_call(wanted)
            if wanted["id"] in seen:
                found.append(f"id repeats: {wanted['id']!r}")
            seen.add(wanted["id"])
            open_calls.append(wanted["id"])
    if open_calls:
        found.append(f"calls without a tool message: {open_calls}")
    return found


def _is_empty(content: Any, *, role: Any) -> bool:
    if isinstance(content, str):
        return not content.strip()
    listed = content if isinstance(content, list) else []
    parts = {part.get("type") if isinstance(part, dict) else None for part in listed}
    return role != "user" or not parts or not parts <= {"text", "image_url"}


def _faults_of_call(wanted: Mapping[str, Any]) -> list[str]:
    found = []
    id_, function = wanted.get("id"), wanted.get("function", {})
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(id_, str) or not 0 < len(id_) <= 40:
        found.append(f"id of a call: {id_!r}")
    if not isinstance(name, str) or re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) is None:
        found.append(f"name of a call: {name!r}")
    try:
        value = json.loads(arguments, parse_constant=lambda name: name)
    except (ValueError, TypeError):
        value = None
    if not isinstance(value, dict):
        found.append(f"arguments that are no JSON object: {arguments!r}")
    return found


class FakeOpenAI:
    """The server; see the module. Enter it with ``async with`` (this loop) or ``with`` (a thread)."""

    def __init__(
        self,
        replies: Iterable[Reply] | Callable[[SeenRequest], Reply] = (),
        *,
        models: tuple[str, ...] = ("fake-model",),
        prefixes: tuple[str, ...] = ("/v1", "/api", "/api/v1"),
        api_key: str = "",
        strict: bool = True,
        pages: Mapping[str, Reply] | None = None,
        models_reply: Reply | None = None,
        tls: ssl.SSLContext | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        self._script = replies if callable(replies) else iter(replies)
        self._models = models
        self._prefixes = prefixes
        self._api_key = api_key
        self._strict = strict
        self._pages = dict(pages or {})
        self._models_reply = models_reply
        self._tls, self._address = tls, address
        self.requests: list[SeenRequest] = []
        """Chat requests, in order of arrival."""
        self.others: list[SeenRequest] = []
        """Everything else that was asked."""
        self.violations: list[str] = []
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def root(self) -> str:
        """``http://127.0.0.1:PORT``, or another `address`; with `tls` ``https://…``."""
        return f"http{'' if self._tls is None else 's'}://{self._address}:{self.port}"

    @property
    def url(self) -> str:
        """The base URL, with ``/v1``."""
        return f"{self.root}/v1"

    async def arrived(self, count: int = 1) -> None:
        """Wait until that many chat requests have come."""
        for _ in range(2000):
            if len(self.requests) >= count:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"{len(self.requests)} of {count} requests came within ten seconds")

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._shut()

    def __enter__(self) -> Self:
        ready = threading.Event()

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._open()
            stop = self._closing
            assert stop is not None
            ready.set()
            await stop.wait()
            await self._shut()

        self._thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True, name="fake-openai")
        self._thread.start()
        assert ready.wait(PATIENCE), "the fake server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None and self._closing is not None and self._thread is not None
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(10)

    async def _open(self) -> None:
        self._closing = asyncio.Event()
        self._server = await asyncio.start_server(self._serve, self._address, 0, limit=64 * 1024 * 1024, ssl=self._tls)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _shut(self) -> None:
        assert self._server is not None and self._closing is not None
        self._closing.set()
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (request := await _read(reader)) is not None:
                if not await self._answer(request, reader=reader, writer=writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    def _reply(self, request: SeenRequest) -> Reply:
        path = request.path.partition("?")[0]
        if path in self._pages:
            self.others.append(request)
            return self._pages[path]
        known = {prefix + suffix for prefix in self._prefixes for suffix in ("/chat/completions", "/models")}
        if path not in known:
            self.others.append(request)
            return error(404, f"no such path: {path}")
        if self._api_key and request.headers.get("authorization") != f"Bearer {self._api_key}":
            (self.requests if request.method == "POST" else self.others).append(request)
            return error(401, "Incorrect API key provided: sk-****. Find yours at the shop.", code="invalid_api_key")
        if path.endswith("/models"):
            self.others.append(request)
            listing = {"object": "list", "data": [{"id": name, "object": "model"} for name in self._models]}
            whole = Raw(content_type="application/json", steps=(json.dumps(listing).encode(),))
            return self._models_reply or whole
        self.requests.append(request)
        if self._strict and (found := violations_of(request.body)):
            self.violations += found
            return error(400, f"invalid request: {'; '.join(found)}", code="invalid_request_error")
        if callable(self._script):
            return self._script(request)
        return next(self._script, None) or error(500, "the script of the fake server is over")

    async def _answer(
        self, request: SeenRequest, *, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Send one reply; whether the connection can be used again."""
        reply = self._reply(request)
        if isinstance(reply, Completion):
            number = len(self.requests)
            asked = str(request.body.get("model", self._models[0]))
            if request.body.get("stream"):
                reply = Raw(steps=tuple(_chunks(reply, number=number, model=asked)))
            else:
                body = _whole(reply, number=number, model=asked)
                waits = () if reply.wait is None else (reply.wait,)
                reply = Raw(content_type="application/json", steps=(*waits, body))
        if not reply.bare:
            extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers)
            head = f"HTTP/1.1 {reply.status} x\r\ncontent-type: {reply.content_type}\r\n{extra}"
            writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        try:
            async for piece in self._pieces(reply, request=request, reader=reader, writer=writer):
                writer.write(piece if reply.bare else b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
            if reply.bare:
                return False
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        except _StopError:
            return False
        except ConnectionError:
            request.gone.set()
            return False
        return True

    async def _pieces(
        self, reply: Raw, *, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> AsyncIterator[bytes]:
        for step in reply.steps:
            match step:
                case bytes():
                    if step:
                        yield step
                case Pause(seconds=seconds):
                    await asyncio.sleep(seconds)
                case Wait(event=event):
                    await self._hold(event, request=request, reader=reader)
                case Hang():
                    await self._hold(threading.Event(), request=request, reader=reader)
                case Close():
                    raise _StopError
                case Reset():
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                    raise _StopError

    async def _hold(self, event: threading.Event, *, request: SeenRequest, reader: asyncio.StreamReader) -> None:
        while not event.is_set():
            if reader.at_eof() or reader.exception() is not None:
                request.gone.set()
                raise _StopError
            # A threading.Event may be set from any thread, so it is looked at, not awaited.
            await asyncio.sleep(0.005)


class _StopError(Exception):
    """The connection is not to be used again."""


async def _read(reader: asyncio.StreamReader) -> SeenRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return SeenRequest(method=method, path=path, headers=headers, raw=body)

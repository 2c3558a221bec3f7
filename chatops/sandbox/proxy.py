"""The filtering proxy: the only way out of a sandbox whose limits name hosts.

Theory of operation

A command with `hosts` runs in a network of its own (`supervisor`). The proxy accepts its connections and opens
others to the named hosts. It speaks CONNECT (for TLS) and plain HTTP in absolute form, which is what the usual
variables make pip, git, npm, cargo, go and curl do.

Each request is decided on its own (`Proxy.checked_address`):

- The host and port have to be covered by an entry of `hosts`. An entry without a port covers 80 and 443 only.
- A name is resolved once, here. Every one of its addresses has to be public, and one that was checked is the one
  that is dialled. So a name that leads to an inner address, now or later, is refused.
- An inner address is reached only if an entry is that address with that port, in its usual spelling.

One request per connection. A request is parsed strictly and written again from what was parsed: a header cannot mean
one thing here and another thing there, and nothing can follow the body. Redirects are not followed here, so their
target is a request like any other.

Requests to the rewritten address of a credential leave over TLS, with the value in them; see `credentials`.

What the proxy cannot see: the content of TLS, and so whether the server behind a permitted name passes a request on
to another name that it serves too.
"""

import asyncio
import ipaddress
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.policy.sandbox import covers_host
from chatops.sandbox.credentials import HEADER, PIECE, BadReplyError, CallCredential, Scrubber, send_reply
from chatops.toolkit.addresses import (
    BadUrlError,
    Resolver,
    Target,
    literal_address,
    public_address,
    read_url,
    system_resolver,
    why_inner,
)
from chatops.toolkit.output import visible

log = logging.getLogger(__name__)

PORT = 3128
"""Port of the proxy in the command's own network."""
_MAX_HEAD = 32_768
"""Bytes of a request's first line and headers."""
_HEAD_S = 30.0
"""Seconds for a request's first line and headers."""
_CONNECT_S = 20.0
"""Seconds for resolving a name and connecting."""
_MAX_RECORDED = 100
"""Maximum length of `unreached`."""
_MAX_CONNECTIONS = 64
"""At a time; further ones wait. Each takes two descriptors of the app, which a command could use up otherwise."""
_ACCEPT_RETRY_S = 0.2
"""Seconds until a connection that was not accepted is tried again."""
_REQUEST = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]{1,8000}) HTTP/1\.[01]")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\x20-\x7e]*)?\r\n")
_NOT_PASSED_ON = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"),
        *(b"te", b"trailer", b"upgrade", b"host", b"expect", b"http2-settings"),
    }
)
"""Headers for the proxy itself, or that it writes anew (host)."""


class RefusedError(Exception):
    """A request that is not passed on; the text says why, as a clause."""


@frozen_dataclass
class Head:
    """A parsed request. `length` is None for a chunked body."""

    method: str
    target: Target
    headers: tuple[tuple[bytes, bytes], ...] = ()
    length: int | None = 0


def proxy_environment(hosts: tuple[str, ...]) -> Mapping[str, str]:
    """Return the variables that make programs use the proxy, in both spellings."""
    url = f"http://127.0.0.1:{PORT}"
    # A server that the command starts itself is reached directly, unless the limits name addresses of this machine.
    direct = "localhost" if any(literal_address(host.rpartition(":")[0]) for host in hosts) else "localhost,127.0.0.1"
    given = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": direct}
    return {**given, **{name.lower(): value for name, value in given.items()}, "CARGO_HTTP_PROXY": url}


@dataclass(slots=True, kw_only=True)
class Proxy:
    """The proxy of one command. `unreached` lists what it did not let through, and what did not answer."""

    hosts: tuple[str, ...]
    credentials: tuple[CallCredential, ...] = ()
    resolver: Resolver = system_resolver
    unreached: list[str] = field(default_factory=list)
    """``HOST:PORT``, each once, in the order of the requests; untrusted text, made visible."""

    @asynccontextmanager
    async def serving(self, channel: socket.socket) -> AsyncIterator[None]:
        """Serve on the listening socket that comes over `channel`, until the end of the block."""
        task = asyncio.create_task(self._serve(channel))
        try:
            yield
        finally:
            task.cancel()
            try:
                await task
            except (asyncio.CancelledError, OSError) as error:
                # The command has run, so its result stays; only its network had failed.
                log.debug("the proxy ended: %s", type(error).__name__)

    async def _serve(self, channel: socket.socket) -> None:
        listener = await _receive_listener(channel)
        if listener is None:
            return
        connections: set[asyncio.Task[None]] = set()
        free = asyncio.Semaphore(_MAX_CONNECTIONS)

        def ended(task: asyncio.Task[None]) -> None:
            connections.discard(task)
            free.release()

        with listener:
            listener.setblocking(False)
            try:
                while True:
                    await free.acquire()
                    accepted = await _accept_connection(listener)
                    task = asyncio.create_task(self._serve_connection(accepted))
                    connections.add(task)
                    task.add_done_callback(ended)
            finally:
                for task in connections:
                    task.cancel()
                await asyncio.gather(*connections, return_exceptions=True)

    async def _serve_connection(self, accepted: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=accepted, limit=_MAX_HEAD)
        except BaseException:
            accepted.close()
            raise
        try:
            await self.handle(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError) as error:
            log.debug("a connection through the proxy ended: %s", type(error).__name__)
        finally:
            writer.close()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            async with asyncio.timeout(_HEAD_S):
                head = read_head(await reader.readuntil(b"\r\n\r\n"))
        except (RefusedError, asyncio.LimitOverrunError) as error:
            await _send_answer(writer, 400, f"chatops refuses the request: {error}")
            return
        for credential in self.credentials if head.method != "CONNECT" else ():
            if target := credential.https_target(head.target):
                await self._pass_on(replace(head, target=target), reader, writer, credential)
                return
        await self._pass_on(head, reader, writer)

    async def _pass_on(
        self,
        head: Head,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        credential: CallCredential | None = None,
    ) -> None:
        """Send a request to its server and the reply back; with `credential`, put that in."""
        name = _host_and_port(head.target)
        try:
            async with asyncio.timeout(_CONNECT_S):
                from_server, to_server = await self._connect(head, credential)
        except RefusedError as error:
            self._record(head.target)
            await _send_answer(writer, 403, f"chatops refuses {name}: {error}")
            return
        except (OSError, TimeoutError) as error:
            self._record(head.target)
            await _send_answer(writer, 502, f"{name} could not be reached: {type(error).__name__}")
            return
        try:
            if head.method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                async with asyncio.TaskGroup() as group:
                    group.create_task(_ignore_disconnects(_copy(reader, to_server)))
                    group.create_task(_ignore_disconnects(_copy(from_server, writer)))
                return
            headers = head.headers if credential is None else credential.headers_to_send(head.headers)
            to_server.write(_request_bytes(replace(head, headers=headers)))
            if (b"expect", b"100-continue") in head.headers:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if credential is None:
                reply = _copy(from_server, writer)
            else:
                scrubber, origin = Scrubber(self.credentials), head.target.origin
                reply = send_reply(from_server, writer, method=head.method, origin=origin, scrubber=scrubber)
            await _run_until_second(_copy_body(reader, to_server, head), reply)
        except BadReplyError as error:
            await _send_answer(writer, 502, f"chatops does not pass on what {name} answered: {error}")
        finally:
            to_server.close()

    async def _connect(
        self, head: Head, credential: CallCredential | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server of a request, for a credential over TLS. Raises RefusedError, OSError."""
        target = head.target
        if credential is None:
            return await asyncio.open_connection(await self.checked_address(target), target.port)
        if refusal := credential.refusal(head.method, target.path):
            raise RefusedError(refusal)
        # A credential names its own server, so that need not be among the hosts of the sandbox.
        address = await self.checked_address(target, (_host_and_port(target),))
        return await asyncio.open_connection(
            address, target.port, ssl=_tls_context(), server_hostname=target.host, limit=_MAX_HEAD
        )

    async def checked_address(self, target: Target, hosts: tuple[str, ...] = ()) -> str:
        """Return the checked address to dial, by `hosts` or those of the sandbox. Raises RefusedError."""
        name, hosts = _host_and_port(target), hosts or self.hosts
        entry = next((entry for entry in hosts if covers_host(entry, name)), None)
        if entry is None:
            raise RefusedError("it is not among the hosts of the sandbox (sandbox.hosts)")
        if why_inner(target):
            # Only in its usual spelling: in another one, an address can pass for a name or for another address.
            try:
                spelled = str(ipaddress.ip_address(target.host))
            except ValueError:
                spelled = ""
            if spelled != target.host or name not in {host.lower() for host in hosts}:
                raise RefusedError(f"{why_inner(target)} It has to be named literally, with its port.")
            return spelled
        try:
            return await public_address(target, resolver=self.resolver)
        except BadUrlError as error:
            raise RefusedError(str(error)) from error

    def _record(self, target: Target) -> None:
        name = visible(_host_and_port(target), limit=200)
        if name not in self.unreached and len(self.unreached) < _MAX_RECORDED:
            self.unreached.append(name)


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def read_head(data: bytes) -> Head:
    """Parse a request strictly. Raises RefusedError."""
    lines = data.removesuffix(b"\r\n\r\n").split(b"\r\n")
    request = _REQUEST.fullmatch(lines[0])
    if request is None:
        raise RefusedError("its first line is malformed")
    method, address = request[1].decode(), request[2].decode()
    headers = []
    for line in lines[1:]:
        header = HEADER.fullmatch(line)
        if header is None:
            raise RefusedError("a header is malformed")
        headers.append((header[1].lower(), header[2].strip()))
    try:
        if method == "CONNECT":
            authority = _AUTHORITY.fullmatch(address)
            if authority is None:
                raise RefusedError("CONNECT needs HOST:PORT")
            target = read_url(f"https://{address}/")
        else:
            target = read_url(address)
            if target.scheme != "http":
                raise RefusedError("only http:// is proxied; https needs CONNECT")
    except BadUrlError as error:
        raise RefusedError(f"its URL {error}") from error
    return Head(method=method, target=target, headers=tuple(headers), length=_body_length(headers))


def _body_length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """Return the length of the body, None if it is chunked. Raises RefusedError if that is not certain."""
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1 or any(coding != b"chunked" for coding in codings):
        raise RefusedError("the length of its body is ambiguous")
    if codings:
        return None
    if lengths and not re.fullmatch(rb"[0-9]{1,15}", lengths[0]):
        raise RefusedError("the length of its body is malformed")
    return int(lengths[0]) if lengths else 0


def _request_bytes(head: Head) -> bytes:
    """Return the request as the server gets it, made from what was parsed."""
    named = {
        value.strip().lower() for name, values in head.headers if name == b"connection" for value in values.split(b",")
    }
    # Never the headers that say where the body ends.
    dropped = _NOT_PASSED_ON | (named - {b"content-length", b"transfer-encoding"})
    lines = [f"{head.method} {head.target.path} HTTP/1.1".encode(), b"Host: " + head.target.origin.encode()]
    lines += [name + b": " + value for name, value in head.headers if name not in dropped]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


async def _copy_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: Head) -> None:
    """Send exactly the body of the request. What follows it is not read."""
    if head.length is not None:
        await _copy_exactly(reader, writer, head.length)
        return
    while True:
        line = await reader.readuntil(b"\r\n")
        chunk = _CHUNK.fullmatch(line)
        if chunk is None:
            raise ConnectionAbortedError("a malformed chunk")
        size = int(chunk[1], 16)
        writer.write(b"%x\r\n" % size)
        await _copy_exactly(reader, writer, size)
        if await reader.readexactly(2) != b"\r\n":
            raise ConnectionAbortedError("a malformed chunk, or a trailer")
        writer.write(b"\r\n")
        if not size:
            await writer.drain()
            return


async def _copy_exactly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    while size:
        data = await reader.read(min(size, PIECE))
        if not data:
            raise ConnectionAbortedError("the body ended early")
        size -= len(data)
        writer.write(data)
        await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(PIECE):
        writer.write(data)
        await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.write_eof()


async def _run_until_second(first: Awaitable[None], second: Awaitable[None]) -> None:
    """Run both until the second has ended."""
    sending = asyncio.ensure_future(_ignore_disconnects(first))
    try:
        await second
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending


async def _receive_listener(channel: socket.socket) -> socket.socket | None:
    """Return the listening socket that comes over `channel`; None if the other end closes without one."""
    loop = asyncio.get_running_loop()
    channel.setblocking(False)
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(channel, _set_ready, ready)
    try:
        await ready
    finally:
        loop.remove_reader(channel)
    try:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    except OSError:
        return None
    return socket.socket(fileno=descriptors[0]) if descriptors else None


async def _accept_connection(listener: socket.socket) -> socket.socket:
    """Accept the next connection, later if this process has no descriptor left for it."""
    while True:
        try:
            return (await asyncio.get_running_loop().sock_accept(listener))[0]
        except OSError as error:
            log.debug("a connection through the proxy was not accepted: %s", type(error).__name__)
            await asyncio.sleep(_ACCEPT_RETRY_S)


def _set_ready(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


async def _ignore_disconnects(direction: Awaitable[None]) -> None:
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        await direction


async def _send_answer(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    reasons = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}
    body = f"{text}\n".encode()
    writer.write(
        f"HTTP/1.1 {status} {reasons[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()


def _host_and_port(target: Target) -> str:
    """Return ``host:port`` with brackets around an IPv6 address."""
    return f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"

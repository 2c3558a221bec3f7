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

One request per connection. A request is parsed strictly and written again from what was parsed. So a header cannot mean
one thing to the proxy and another to the server, and nothing can follow the body. The proxy follows no redirect: the
client's request for the new address is decided like any other.

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
from chatops.sandbox import http_framing
from chatops.sandbox.credentials import CallCredential, Scrubber, send_reply
from chatops.sandbox.http_framing import PIECE_BYTES, BadMessageError
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
_MAX_HEAD_BYTES = 32_768
"""Maximum length of the first line and the headers, so that no connection takes much memory."""
_HEAD_S = 30.0
"""Seconds for a request's first line and headers. A client that stays silent keeps its connection so long."""
_CONNECT_S = 20.0
"""Seconds for resolving a name and connecting. With less, slow networks fail; with more, a command hangs longer."""
_MAX_UNREACHED = 100
"""Maximum number of servers in `unreached`: what the model reads, and no more of what a command makes up."""
_MAX_NAME = 200
"""Maximum number of characters of one entry of `unreached`."""
_MAX_CONNECTIONS = 64
"""At a time; further ones wait. Each takes two descriptors of the app, which a command could use up otherwise."""
_ACCEPT_RETRY_S = 0.2
"""Seconds until a connection that was not accepted is tried again, so that the loop does not spin."""
_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]{1,8000}) HTTP/1\.[01]")
_CONNECT_TARGET = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_NOT_PASSED_ON = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"),
        *(b"te", b"trailer", b"upgrade", b"host", b"expect", b"http2-settings"),
    }
)
"""Headers that are meant for the proxy, or that it writes itself (host)."""


_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""Both directions of a connection."""


class RefusedError(Exception):
    """A request that is not passed on; the text says why, as a clause."""


@frozen_dataclass
class Head:
    """A parsed request, without its body."""

    method: str
    target: Target
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Names in lower case, and values."""
    length: int | None = 0
    """Bytes of the body; None if it is chunked."""


def proxy_environment(hosts: tuple[str, ...]) -> Mapping[str, str]:
    """Return the variables that make programs use the proxy, in both spellings."""
    url = f"http://127.0.0.1:{PORT}"
    # A server that the command starts itself is reached directly, unless the limits name addresses of this machine.
    direct = "localhost" if any(literal_address(host.rpartition(":")[0]) for host in hosts) else "localhost,127.0.0.1"
    variables = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": direct}
    return {**variables, **{name.lower(): value for name, value in variables.items()}, "CARGO_HTTP_PROXY": url}


@dataclass(slots=True, kw_only=True)
class Proxy:
    """The proxy of one command."""

    hosts: tuple[str, ...]
    credentials: tuple[CallCredential, ...] = ()
    resolver: Resolver = system_resolver
    unreached: list[str] = field(default_factory=list)
    """``HOST:PORT`` of the servers that were refused or did not answer, each once, in the order of the requests.

    Untrusted text, made visible.
    """

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
        free_places = asyncio.Semaphore(_MAX_CONNECTIONS)

        def forget_connection(task: asyncio.Task[None]) -> None:
            connections.discard(task)
            free_places.release()

        with listener:
            listener.setblocking(False)
            try:
                while True:
                    await free_places.acquire()
                    accepted = await _accept_connection(listener)
                    task = asyncio.create_task(self._serve_connection(accepted))
                    connections.add(task)
                    task.add_done_callback(forget_connection)
            finally:
                for task in connections:
                    task.cancel()
                await asyncio.gather(*connections, return_exceptions=True)

    async def _serve_connection(self, accepted: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=accepted, limit=_MAX_HEAD_BYTES)
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
        # What CONNECT opens is encrypted by the client, so nothing can be put into it.
        for credential in self.credentials if head.method != "CONNECT" else ():
            if target := credential.https_target(head.target):
                await self._pass_on(replace(head, target=target), (reader, writer), credential)
                return
        await self._pass_on(head, (reader, writer))

    async def _pass_on(self, head: Head, client: _Ends, credential: CallCredential | None = None) -> None:
        """Connect to the server of a request, and pass on what both send. `credential`: its value is in the request."""
        name, (_, writer) = _host_and_port(head.target), client
        try:
            async with asyncio.timeout(_CONNECT_S):
                server = await self._connect(head, credential)
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
                await _tunnel(client, server)
            else:
                await self._exchange(head, client, server, credential)
        except BadMessageError as error:
            await _send_answer(writer, 502, f"chatops does not pass on what {name} answered: {error}")
        finally:
            server[1].close()

    async def _exchange(self, head: Head, client: _Ends, server: _Ends, credential: CallCredential | None) -> None:
        """Send one request to the server, and its reply back. Raises BadMessageError."""
        (reader, writer), (from_server, to_server) = client, server
        headers = head.headers if credential is None else credential.headers_to_send(head.headers)
        to_server.write(_request_bytes(replace(head, headers=headers)))
        # The server is not asked, because `expect` is not passed on. A client would wait for this with its body.
        if (b"expect", b"100-continue") in head.headers:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if credential is None:
            reply = _copy(from_server, writer)
        else:
            # The server may repeat the value, which the command must not see.
            scrubber, origin = Scrubber(self.credentials), head.target.origin
            reply = send_reply(from_server, writer, method=head.method, origin=origin, scrubber=scrubber)
        await _run_until_reply_ends(_copy_body(reader, to_server, head), reply)

    async def _connect(self, head: Head, credential: CallCredential | None) -> _Ends:
        """Connect to the server of a request, for a credential over TLS. Raises RefusedError, OSError."""
        target = head.target
        if credential is None:
            return await asyncio.open_connection(await self.checked_address(target, self.hosts), target.port)
        if refusal := credential.refusal(head.method, target.path):
            raise RefusedError(refusal)
        # A credential names its own server, so that need not be among the hosts of the sandbox.
        address = await self.checked_address(target, (_host_and_port(target),))
        return await asyncio.open_connection(
            address, target.port, ssl=_tls_context(), server_hostname=target.host, limit=_MAX_HEAD_BYTES
        )

    async def checked_address(self, target: Target, hosts: tuple[str, ...]) -> str:
        """Return the address to dial if `hosts` permit the target. Raises RefusedError."""
        name = _host_and_port(target)
        if not any(covers_host(entry, name) for entry in hosts):
            raise RefusedError("it is not among the hosts of the sandbox (sandbox.hosts)")
        if reason := why_inner(target):
            # Only in its usual spelling: in another one, an address can pass for a name or for another address.
            try:
                usual_spelling = str(ipaddress.ip_address(target.host))
            except ValueError:
                usual_spelling = ""
            if usual_spelling != target.host or name not in {host.lower() for host in hosts}:
                raise RefusedError(f"{reason} It has to be named literally, with its port.")
            return usual_spelling
        try:
            return await public_address(target, resolver=self.resolver)
        except BadUrlError as error:
            raise RefusedError(str(error)) from error

    def _record(self, target: Target) -> None:
        name = visible(_host_and_port(target), limit=_MAX_NAME)
        if name not in self.unreached and len(self.unreached) < _MAX_UNREACHED:
            self.unreached.append(name)


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def read_head(data: bytes) -> Head:
    """Parse a request strictly. Raises RefusedError."""
    lines = data.removesuffix(b"\r\n\r\n").split(b"\r\n")
    request_line = _REQUEST_LINE.fullmatch(lines[0])
    if request_line is None:
        raise RefusedError("its first line is malformed")
    method, address = request_line[1].decode(), request_line[2].decode()
    headers = []
    for line in lines[1:]:
        header = http_framing.HEADER.fullmatch(line)
        if header is None:
            raise RefusedError("a header is malformed")
        headers.append((header[1].lower(), header[2].strip()))
    try:
        if method == "CONNECT":
            if _CONNECT_TARGET.fullmatch(address) is None:
                raise RefusedError("CONNECT needs HOST:PORT")
            target = read_url(f"https://{address}/")
        else:
            target = read_url(address)
            if target.scheme != "http":
                raise RefusedError("only http:// is proxied; https needs CONNECT")
    except BadUrlError as error:
        raise RefusedError(f"its URL {error}") from error
    if fault := http_framing.framing_fault(headers):
        raise RefusedError(fault)
    by_name = dict(headers)
    length = None if b"transfer-encoding" in by_name else int(by_name.get(b"content-length", b"0"))
    return Head(method=method, target=target, headers=tuple(headers), length=length)


def _request_bytes(head: Head) -> bytes:
    """Return the request as the server gets it, made from what was parsed."""
    # The header `connection` names further headers that are meant for the proxy.
    named = {
        value.strip().lower() for name, values in head.headers if name == b"connection" for value in values.split(b",")
    }
    # Those that say where the body ends are passed on even if they are named.
    dropped = _NOT_PASSED_ON | (named - {b"content-length", b"transfer-encoding"})
    lines = [f"{head.method} {head.target.path} HTTP/1.1".encode(), b"Host: " + head.target.origin.encode()]
    lines += [name + b": " + value for name, value in head.headers if name not in dropped]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


async def _tunnel(client: _Ends, server: _Ends) -> None:
    """Tell the client that it is connected, and copy in both directions until both have ended."""
    client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    async with asyncio.TaskGroup() as group:
        group.create_task(_ignore_disconnects(_copy(client[0], server[1])))
        group.create_task(_ignore_disconnects(_copy(server[0], client[1])))


async def _copy_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: Head) -> None:
    """Send exactly the body of the request. What follows it is not read."""
    if head.length is None:
        async for piece in http_framing.read_chunks(reader):
            await http_framing.send_chunk(writer, piece)
        await http_framing.end_chunks(writer)
        return
    async for piece in http_framing.read_exactly(reader, head.length):
        writer.write(piece)
        await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(PIECE_BYTES):
        writer.write(data)
        await writer.drain()
    # The other end may be closed already.
    with suppress(OSError, RuntimeError):
        writer.write_eof()


async def _run_until_reply_ends(request: Awaitable[None], reply: Awaitable[None]) -> None:
    """Send the request's body and the reply at once: a server may answer before it has read the body."""
    sending = asyncio.ensure_future(_ignore_disconnects(request))
    try:
        await reply
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending


async def _receive_listener(channel: socket.socket) -> socket.socket | None:
    """Return the listening socket that comes over `channel`; None if the other end closes without one."""
    loop = asyncio.get_running_loop()
    channel.setblocking(False)
    ready = asyncio.Event()
    loop.add_reader(channel, ready.set)
    try:
        await ready.wait()
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


async def _ignore_disconnects(copying: Awaitable[None]) -> None:
    """Copy in one direction until an end disconnects or the body is malformed; the other direction goes on."""
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        await copying


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

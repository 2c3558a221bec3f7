"""What holds for every request and response: the one name of the page, headers, and how long a connection may wait.

The other end of a connection over the loopback interface has to be of the same user. The link is no secret from other
users of the machine: it stands in the list of processes while a browser starts with it, and the name in it is all that
keeps the cookie from a server of theirs.
"""

import asyncio
import logging
import os
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar

from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from chatops.domain.frozen_dataclass import frozen_dataclass

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # A form that is sent under no-referrer has no Origin. Where a page has one, it tells its address to itself only.
    "referrer-policy": "same-origin",
}
"""Headers of every response, unless it has its own."""


@frozen_dataclass(kw_only=False)
class Address:
    """The one address that the page has."""

    origin: str
    """As browsers write it: ``https://desk.example.org``."""

    @property
    def secure(self) -> bool:
        """True if browsers reach it by TLS."""
        return self.origin.startswith("https:")

    @property
    def host(self) -> str:
        """The value of the header Host."""
        return self.origin.partition("://")[2]

    @property
    def short(self) -> str:
        """The host in logs, without the name of our own on the loopback interface, which is long and random."""
        return self.host if self.secure else f"localhost{self.host.partition('.localhost')[2]}"

    @property
    def cookie(self) -> str:
        """Name of the cookie. Browsers keep one with this prefix to this host, and to TLS."""
        return "__Host-chatops" if self.secure else "chatops"

    def is_named_by(self, host: str) -> bool:
        """Return True if a header Host names this address, and not another name of this machine."""
        port = ":443" if self.secure else ":80"
        return host.lower().removesuffix(port) == self.host


class Guard:
    """ASGI application around another one."""

    def __init__(self, app: Asgi, address: Address) -> None:
        self._app = app
        self._address = address

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request. One for another name is refused, so that no foreign name can be made to lead here."""
        if scope["type"] != "http":
            return
        started = False

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                own = {name.lower() for name, _ in message["headers"]}
                missing = [
                    (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in own
                ]
                message["headers"] = [*message["headers"], *missing]
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._address.is_named_by(hosts[0]):
            await _send_text(with_headers, 421, "This address does not lead to chatops.\n")
            return
        if not self._address.secure and not is_of_this_user(*scope["client"], *scope["server"]):
            await _send_text(with_headers, 403, "This page is for another user of this machine.\n")
            return
        try:
            await self._app(scope, receive, with_headers)
        except ClientDisconnect:
            # Nobody is left to answer, and a line for each would push others out of the log.
            return
        except Exception:
            log.exception("a request failed")
            if not started:
                await _send_text(with_headers, 500, "chatops could not answer. The reason is in its log.\n")


async def _send_text(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


class LimitedSocket(socket.socket):
    """A listening socket that closes the oldest connection of too many that have not got through their handshake."""

    handshakes: ClassVar[dict[int, socket.socket]] = {}
    """Connections whose handshake is not over, the oldest first, by file descriptor."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        connection, address = super().accept()
        # The number may be that of a connection that has been closed. The new one goes to the end.
        self.handshakes.pop(connection.fileno(), None)
        self.handshakes[connection.fileno()] = connection
        if len(self.handshakes) > LimitedConnection.MOST:
            # One that was closed stays here until its turn comes.
            with suppress(OSError):
                self.handshakes.pop(next(iter(self.handshakes))).shutdown(socket.SHUT_RDWR)
        return connection, address


class LimitedConnection(H11Protocol):
    """A connection that may not wait without end: for its request, for its client to read, or among too many others."""

    MOST: ClassVar[int] = 200
    """Connections at a time. The one that has waited longest for its request is closed for another."""
    REQUEST_S: ClassVar[float] = 10.0
    """Seconds in which a request has to come whole, and a client has to read on."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close another one if there are too many."""
        super().connection_made(transport)
        LimitedSocket.handshakes.pop(transport.get_extra_info("socket").fileno(), None)
        self._start_waiting()
        if len(self.connections) > self.MOST:
            idle = [
                connection
                for connection in self.connections
                if isinstance(connection, LimitedConnection) and connection is not self and connection.is_idle
            ]
            if idle:
                min(idle, key=lambda connection: connection.closes_at).transport.abort()
            else:
                transport.abort()

    @property
    def is_idle(self) -> bool:
        """True while there is no whole request to answer, or while its client does not read the answer."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused

    @property
    def closes_at(self) -> float:
        """When it will be closed if its client does nothing until then, in seconds of the event loop."""
        return self._timer.when() if self._timer is not None else 0.0

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._start_waiting()

    def on_response_complete(self) -> None:
        """Wait for another request. One that was sent before this answer is not read: no browser or proxy does that."""
        if self.conn.trailing_data[0]:
            self.transport.close()
        super().on_response_complete()
        self._start_waiting()

    def _start_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(self.REQUEST_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.is_idle:
            self.transport.abort()


_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _ANY_STATE = 4, 20, 0xFFFFFFFF


def is_of_this_user(host: str, port: int, own_host: str, own_port: int) -> bool:
    """Return True if this user, or root, has made a connection. Only Linux tells; elsewhere True."""
    if not sys.platform.startswith("linux"):
        return True
    ends = [(ip_address(host).packed, port), (ip_address(own_host).packed, own_port)]
    try:
        uid, inode = ask_kernel(ends)
    except OSError:
        # This kernel answers no such question. Its table takes it a hundred times as long.
        uid, inode = search_table(ends)
    # A socket that its process has closed seems to be root's, and has no inode any more.
    return inode != 0 and uid in (0, os.geteuid())


def ask_kernel(ends: Sequence[tuple[bytes, int]]) -> tuple[int, int]:
    """Return user and inode of the socket between these two addresses, see sock_diag(7). Raises OSError."""
    addresses = b"".join(packed.ljust(16, b"\0") for packed, _ in ends)
    ports = b"".join(port.to_bytes(2, "big") for _, port in ends)
    family = socket.AF_INET6 if len(ends[0][0]) == 16 else socket.AF_INET
    # The request is inet_diag_req_v2 after a header of 16 bytes (nlmsghdr). The answer is inet_diag_msg after the same.
    asked = struct.pack("=BBxxI", family, socket.IPPROTO_TCP, _ANY_STATE) + ports + addresses + bytes(4) + b"\xff" * 8
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.sendto(struct.pack("=IHHII", 16 + len(asked), _SOCK_DIAG_BY_FAMILY, 1, 0, 0) + asked, (0, 0))
        answer = kernel.recv(4_096)
    kind, between = struct.unpack_from("=H", answer, 4)[0], answer[20 : 20 + len(ports + addresses)]
    if kind != _SOCK_DIAG_BY_FAMILY or between != ports + addresses:
        raise OSError("the kernel knows no such socket")
    uid, inode = struct.unpack_from("=II", answer, 80)
    return uid, inode


def search_table(ends: Sequence[tuple[bytes, int]]) -> tuple[int, int]:
    """Return user and inode of the socket between these two addresses; no inode if there is none."""
    # Its addresses are words of 4 bytes in the byte order of the machine, in hexadecimal digits.
    table = Path("/proc/net/tcp6" if len(ends[0][0]) == 16 else "/proc/net/tcp")
    step = -1 if sys.byteorder == "little" else 1
    words = (b"".join(packed[at : at + 4][::step] for at in range(0, len(packed), 4)) for packed, _ in ends)
    wanted = [f"{word.hex()}:{port:04x}".upper() for word, (_, port) in zip(words, ends, strict=True)]
    rows = (line.split() for line in table.read_text("ascii").splitlines())
    return next(((int(row[7]), int(row[9])) for row in rows if row[1:3] == wanted), (-1, 0))

"""Ends of connections that behave badly below HTTP: nobody there, no answer at all, bad certificates."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CERTIFICATES = Path(__file__).resolve().parents[1] / "data" / "tls"
"""``ca.pem`` has signed all but the self-signed one; the others hold key and certificate.

They say 127.0.0.1 (but for ``elsewhere``) and 2020 to 2120 (but for ``expired``).
"""
_QUEUED = 6


def server_tls(name: str) -> ssl.SSLContext:
    """Protocol of a server with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / f"{name}.pem")
    return context


@contextmanager
def black_hole() -> Iterator[int]:
    """A port that never answers: its queue is full, so that the system drops whoever else asks for a connection."""
    with socket.socket() as listener, contextlib.ExitStack() as queue:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [queue.enter_context(socket.socket()) for _ in range(_QUEUED)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@contextmanager
def plain_http() -> Iterator[int]:
    """A port where a web server without TLS answers whatever it is sent with what it thinks of it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True, name="plain-http")
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        _shut(listener)
        thread.join(10)


def _shut(listener: socket.socket) -> None:
    # A thread in accept() is not woken by close(), but by this.
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


class TlsListener:
    """Shakes hands with the certificate of that name, and remembers the first byte of each connection."""

    def __init__(self, name: str) -> None:
        self._tls = server_tls(name)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.first_bytes: list[bytes] = []
        """One per connection; 0x16 begins a TLS handshake."""
        self.received = b""
        """Data that came after a handshake."""
        self._thread = threading.Thread(target=self._serve, daemon=True, name="tls-listener")

    @property
    def port(self) -> int:
        """Address at which it listens."""
        return int(self._socket.getsockname()[1])

    def __enter__(self) -> "TlsListener":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        _shut(self._socket)
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                self.first_bytes.append(connection.recv(1, socket.MSG_PEEK))
                with self._tls.wrap_socket(connection, server_side=True) as safe:
                    while data := safe.recv(4096):
                        self.received += data

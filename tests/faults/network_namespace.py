"""A network of its own in which a public address is this machine: web pages with every fault, behind the real program.

`NetworkNamespace` is the test's side: a `ForkServer` whose programs live there. As a program this module
gives the loopback device a public address, hangs a file of names over ``/etc/hosts``, serves pages and a model that
fetches what it is told to (``fetch URL``) and repeats what came of it, and starts the fork server.
"""

import contextlib
import fcntl
import gzip
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, call, calls, says
from tests.support.forking import ForkServer
from tests.support.sockets import server_tls

NAME, ADDRESS = "pages.test", "93.184.216.34"
_UNSHARE = ("unshare", "-rnm")
_SIOCSIFADDR, _SIOCSIFFLAGS, _UP = 0x8916, 0x8914, 0x41
_HOSTS = f"127.0.0.1 localhost\n{ADDRESS} {NAME}\n"
_TRICKLE_S = 0.2
_BIG = 100_000_000


class NetworkNamespace(ForkServer):
    """Starts programs there. `model` is the URL of the model server that they see."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            news = Path(folder) / "news"
            os.mkfifo(news)
            super().__init__(*_UNSHARE, sys.executable, "-m", "tests.faults.network_namespace", str(news))
            self.model = news.read_text()
        assert self.model, "the island did not come up"


@cache
def can_be_had() -> bool:
    """Return True if this machine permits such a network."""
    if shutil.which("unshare") is None:
        return False
    return not subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode


def _page(body: bytes, *, head: str = "Content-Type: text/plain; charset=utf-8") -> bytes:
    return f"HTTP/1.1 200 OK\r\n{head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def _loris() -> Iterator[bytes]:
    """Its head never ends."""
    yield b"HTTP/1.1 200 OK\r\n"
    while True:
        time.sleep(_TRICKLE_S)
        yield b"X-Wait: yes\r\n"


def _big() -> Iterator[bytes]:
    yield f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {_BIG}\r\n\r\n".encode()
    for _ in range(_BIG // 100_000):
        yield b"x" * 100_000


@cache
def _bomb() -> bytes:
    return _page(gzip.compress(b"A" * _BIG), head="Content-Type: text/plain\r\nContent-Encoding: gzip")


PAGES: dict[str, Callable[[], Iterator[bytes]]] = {
    "/plain": lambda: iter([_page(b"all is well here")]),
    "/loop": lambda: iter([b"HTTP/1.1 302 Found\r\nLocation: /loop\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"]),
    "/big": _big,
    "/bomb": lambda: iter([_bomb()]),
    "/loris": _loris,
    "/charset": lambda: iter([_page(b"caf\xe9 au lait", head="Content-Type: text/plain; charset=utf-8")]),
    "/nocharset": lambda: iter([_page("café".encode(), head="Content-Type: text/plain; charset=klingon")]),
    "/empty": lambda: iter([_page(b"")]),
}


def _serve(listener: socket.socket, tls: ssl.SSLContext | None) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection, tls), daemon=True).start()


def _answer(connection: socket.socket, tls: ssl.SSLContext | None) -> None:
    with contextlib.suppress(OSError), connection:
        with tls.wrap_socket(connection, server_side=True) if tls is not None else connection as spoken:
            path = spoken.recv(65_536).split(b" ", 2)[1].decode()
            for piece in PAGES.get(path, PAGES["/empty"])():
                spoken.sendall(piece)


def _model(request: SeenRequest) -> Reply:
    if request.messages[-1]["role"] == "tool":
        return says(f"It gave: {request.messages[-1]['content']}")
    verb, _, url = request.last_user.partition(" ")
    return calls(call("web_fetch", url=url)) if verb == "fetch" else says(f"You said: {request.last_user}")


def _settle() -> None:
    """Give this network its address, and this file system its names."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for device, address in ((b"lo", "127.0.0.1"), (b"lo:1", ADDRESS)):
            where = struct.pack("16sH2x4s8x", device, socket.AF_INET, socket.inet_aton(address))
            fcntl.ioctl(control, _SIOCSIFADDR, where)
            fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh", device, _UP))
    with tempfile.NamedTemporaryFile("w") as names:
        names.write(_HOSTS)
        names.flush()
        Path(names.name).chmod(0o644)
        subprocess.run(["mount", "--bind", names.name, "/etc/hosts"], check=True)


def _main(news: Path, fork_server: Sequence[str]) -> int:
    try:
        _settle()
    except BaseException:
        # Somebody waits for news.
        news.write_text("")
        raise
    for port, tls in ((80, None), (443, server_tls("self-signed"))):
        listener = socket.create_server((ADDRESS, port))
        threading.Thread(target=_serve, args=(listener, tls), daemon=True).start()
    with FakeOpenAI(_model) as server:
        news.write_text(server.url)
        # What the fork server is talked to through stands behind the name of its module.
        control = int(fork_server[fork_server.index("tests.support.forking") + 1])
        return subprocess.run(fork_server, pass_fds=[control], check=False).returncode


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), sys.argv[2:]))

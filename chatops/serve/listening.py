"""Where the desk listens, and what the terminal that runs it shows: the link, its QR code, and a key for another one.

Both loopback addresses are taken, as browsers may try either: if another user had the second one at this port, the
page's cookie would go there.
"""

import asyncio
import contextlib
import errno
import io
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator

import uvicorn

from chatops.domain.errors import ConfigError, StoreError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.headless.screen import Screen
from chatops.sandbox.process import harden_process
from chatops.serve.desk import Desk
from chatops.serve.guard import Address, LimitedConnection, LimitedSocket
from chatops.serve.logins import LINK_S, Logins
from chatops.serve.server import PageServer
from chatops.store.process_identity import this_process
from chatops.wiring.app import App

USUAL_PORT = 8322
"""Tried first, so that a port that is forwarded to here stays the right one."""
_LOOPBACK = ("127.0.0.1", "::1")
_MAX_TRIES = 20
"""Free ports that are tried: one that is free on the first loopback address may be taken on the second."""


@frozen_dataclass
class ListenOptions:
    """Where the server listens, and what the page is called."""

    url: str = ""
    """The address that browsers use, with TLS; empty: a random name on the loopback interface."""
    host: str = ""
    """The interface; empty: loopback."""
    port: int | None = None
    """None: the usual one, or any other if that is taken."""
    tls: tuple[str, str] | None = None
    """Files of certificate and key."""
    behind_proxy: bool = False
    """True if another server does TLS, and says who asks."""


async def serve(app: App, options: ListenOptions, screen: Screen) -> int:
    """Serve the desk until it is stopped. Return the exit code. Raises ConfigError if it cannot listen there."""
    # No other process of this user reads the tokens of logins.
    harden_process()
    _allow_many_files()
    sockets = _open_sockets(options)
    try:
        return await _serve_at(app, options, screen, sockets)
    finally:
        for listening in sockets:
            listening.close()


async def _serve_at(app: App, options: ListenOptions, screen: Screen, sockets: list[socket.socket]) -> int:
    port = sockets[0].getsockname()[1]
    address = Address(options.url or f"http://{secrets.token_hex(10)}.localhost:{port}")
    logins, ending, loop = Logins(), asyncio.Event(), asyncio.get_running_loop()
    proxied = options.behind_proxy
    pages = PageServer(Desk(app), address, logins, behind_proxy=proxied, ending=ending, say=screen.say)
    server = _Server(_server_config(pages, options))

    def stop() -> None:
        server.should_exit = True
        ending.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    for listening in sockets if options.url else ():
        host = listening.getsockname()[0]
        screen.say(f"Listening at {f'[{host}]' if ':' in host else host}:{port}")
    with contextlib.suppress(StoreError):
        # Other surfaces name the page. A store that cannot be written stops no page.
        await asyncio.to_thread(app.store.announce_page, address.origin, this_process())
    _show_link(address, logins, screen)
    starting_jobs = asyncio.create_task(pages.start_jobs_while_open())
    with _print_link_on_enter(loop, lambda: _show_link(address, logins, screen)):
        try:
            await server.serve(sockets=sockets)
        finally:
            stop()
            await asyncio.gather(starting_jobs, return_exceptions=True)
            await pages.aclose()
    return 0


def _server_config(pages: PageServer, options: ListenOptions) -> uvicorn.Config:
    certificate, key = options.tls or (None, None)
    config = uvicorn.Config(
        pages.application(),
        http=LimitedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        # Whatever forwards a request could name any client and any scheme.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=16_384,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The certificate or its key cannot be used: {error}.", advice="Name both: --tls CERT KEY, in PEM."
        ) from None
    return config


class _Server(uvicorn.Server):
    """The server without its own handling of signals, which would end the program before the store is closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def _open_sockets(options: ListenOptions) -> list[socket.socket]:
    """Return the listening sockets. Raises ConfigError."""
    names = (options.host,) if options.host else _LOOPBACK
    if options.port is not None:
        return _bind(names, options.port)
    for port in (USUAL_PORT, *[0] * (_MAX_TRIES - 1)):
        with contextlib.suppress(ConfigError):
            return _bind(names, port)
    return _bind(names, 0)  # The last try may raise.


def _bind(names: tuple[str, ...], port: int) -> list[socket.socket]:
    """Return sockets that listen at all addresses of `names`. Port 0 stands for a free one. Raises ConfigError."""
    opened: list[socket.socket] = []
    name = ""
    try:
        for name in names:
            for family, kind, protocol, _, where in socket.getaddrinfo(
                name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                if opened and not port:
                    # All of them share the port that the first one got.
                    where = (where[0], opened[0].getsockname()[1], *where[2:])
                listening = LimitedSocket(family, kind, protocol)
                opened.append(listening)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(where)
                listening.listen(128)
    except OSError as error:
        if names == _LOOPBACK and len(opened) == 2 and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            # There is no IPv6 here, so nobody else can have that address either.
            opened.pop().close()
            return opened
        for already in opened:
            already.close()
        raise ConfigError(
            f"Port {port} of {name} cannot be listened at: {error.strerror}.",
            advice="Choose another one with --port N.",
        ) from None
    return opened


def _allow_many_files() -> None:
    """Raise the limit of open files, so that many idle connections do not use it up before they are closed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)), hard))


def _show_link(address: Address, logins: Logins, screen: Screen) -> None:
    """Print a new link, as text and as a QR code."""
    link = f"{address.origin}/login/{logins.new_token()}"
    minutes = LINK_S // 60
    enter = " Enter: another link." if _is_terminal() else ""
    screen.answer(f"{qr_code(link)}\n  {link}\n")
    screen.say(f"Open this link to log in, once, within {minutes} minutes.{enter} Ctrl+C: stop.")


def qr_code(text: str) -> str:
    """Return a QR code in block characters; empty without the package that makes them."""
    try:
        import segno  # an extra, and only for this
    except ImportError:
        return ""
    out = io.StringIO()
    segno.make(text, error="l", micro=False).terminal(out, compact=True, border=2)
    return out.getvalue()


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


@contextlib.contextmanager
def _print_link_on_enter(loop: asyncio.AbstractEventLoop, show: Callable[[], None]) -> Iterator[None]:
    if not _is_terminal():
        yield
        return

    def read() -> None:
        if sys.stdin.readline():
            show()
        else:
            loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, read)
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin)

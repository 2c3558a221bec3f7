"""Live updates, and clients that hold connections."""

import asyncio
import contextlib
import http.client
import re
import resource
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from chatops.serve.guard import LimitedConnection
from chatops.serve.live import MAX_STREAMS
from chatops.wiring.stored import open_store
from tests.serve.served import Served
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def many_files() -> None:
    """Let this process hold as many connections as a test opens."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4_096 <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, hard))


@contextlib.contextmanager
def stream(served: Served, cookie: str) -> Iterator[http.client.HTTPResponse]:
    """An open stream of events."""
    with contextlib.closing(served.connection()) as connection:
        connection.request("GET", "/events", headers={"Host": served.host, "Cookie": cookie})
        with connection.getresponse() as response:
            yield response


def next_event(response: http.client.HTTPResponse) -> str:
    """The data of the next event."""
    while line := response.readline().decode():
        if line.startswith("data: "):
            return line.removeprefix("data: ").strip()
    raise AssertionError("the stream ended")


def test_a_change_is_told_without_what_it_is(served: Served) -> None:
    cookie = served.log_in()
    assert served.get("/events").status == 401
    with stream(served, cookie) as response:
        assert response.status == 200 and response.headers["content-type"].startswith("text/event-stream")
        empty = next_event(response)
        assert f'data-version="{empty}"' in served.get("/", cookie=cookie).text
        call = served.paused("run `echo the-secret-command`")
        waiting = next_event(response)
        assert re.fullmatch("[0-9a-f]{16}", waiting) and waiting != empty
        # One that is made here is told too.
        served.decide(call, "deny", cookie)
        assert next_event(response) != waiting


def test_a_stream_ends_with_its_login(served: Served) -> None:
    cookie = served.log_in()
    with stream(served, cookie) as response:
        next_event(response)
        form = {"form_token": served.fields("/", cookie)["form_token"]}
        served.ask("POST", "/logout", cookie=cookie, form=form, origin=served.origin)
        served.paused("run `ls`")
        assert "data:" not in response.read().decode()


@pytest.mark.parametrize("clients", [2 * MAX_STREAMS, pytest.param(1_000, marks=pytest.mark.more)])
def test_streams_beyond_the_limit_are_refused_and_the_page_goes_on(served: Served, clients: int) -> None:
    cookie = served.log_in()
    with contextlib.ExitStack() as held:
        statuses = []
        for _ in range(clients):
            response = held.enter_context(stream(served, cookie))
            statuses.append(response.status)
            if response.status != 200:
                assert response.headers["retry-after"] == "60"
        assert statuses == [200] * MAX_STREAMS + [503] * (clients - MAX_STREAMS)
        assert served.get("/", cookie=cookie).status == 200
    # Once they are gone, others get theirs.
    status = 503
    while status != 200:
        with stream(served, cookie) as response:
            status = response.status


@pytest.mark.parametrize("clients", [LimitedConnection.MOST + 50, pytest.param(1_000, marks=pytest.mark.more)])
def test_clients_that_send_nothing_do_not_keep_others_out(served: Served, clients: int) -> None:
    cookie = served.log_in()
    slow = (
        f"POST /login HTTP/1.1\r\nHost: {served.host}\r\nContent-Length: 99\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken="
    ).encode()
    with contextlib.ExitStack() as held:
        silent = []
        for at in range(clients):
            one = held.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE))
            silent.append(one)
            with contextlib.suppress(ConnectionError):
                one.sendall((b"", b"GET / HTTP/1.1\r\nHost: ", slow)[at % 3])
        assert served.get("/", cookie=cookie).status == 200
        assert is_closed(silent[0]), "the one that has waited longest made room for another"
        assert not is_closed(silent[-1])
    assert served.get("/", cookie=cookie).status == 200
    assert "Traceback" not in "".join(log.read_text() for log in served.home.glob("log/*"))


async def test_a_client_that_does_not_read_its_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitedConnection, "REQUEST_S", 0.05)
    ended = asyncio.Event()

    async def endless(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(2):
            await send({"type": "http.response.body", "body": b"x" * 50_000_000, "more_body": True})
        ended.set()

    config = uvicorn.Config(endless, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    listening = await asyncio.get_running_loop().create_server(
        lambda: LimitedConnection(config, state, {}), "127.0.0.1", 0
    )
    with socket.create_connection(listening.sockets[0].getsockname()) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await ended.wait()
        assert not state.connections
    listening.close()


def is_closed(connection: socket.socket) -> bool:
    """True once the other side has closed it; it has sent nothing."""
    connection.settimeout(0.2)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_other_surfaces_know_the_address_for_as_long_as_the_page_runs(served: Served) -> None:
    with open_store() as store:
        assert store.page_address() == served.origin
        served.process.send_signal(signal.SIGTERM)
        served.process.wait(PATIENCE)
        assert store.page_address() == ""

"""Servers at a URL: both transports, and headers that go to their host only."""

import gzip
import http.server
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from chatops.domain.tools import Outcome
from chatops.mcp.server import ServerState
from tests.mcp.conftest import World
from tests.servers.installed import free_port, running

pytestmark = pytest.mark.more
SERVER = Path(__file__).parents[1] / "support" / "mcp_http_server.py"
KEY = {"X-Key": "${TEST_KEY}"}


@contextmanager
def serving(kind: str, log: Path, *words: str) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, str(SERVER), str(port), kind, *words]
    with running(command, ready=f"http://127.0.0.1:{port}/ready", log=log, env=dict(os.environ)):
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("kind", "path", "transport"), [("streamable-http", "mcp", "http"), ("sse", "sse", "sse"), ("sse", "sse", "http")]
)
async def test_both_transports_and_the_fallback(
    world: World, kind: str, path: str, transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "canary")
    with serving(kind, tmp_path / "log") as url:
        async with world.servers(w={"url": f"{url}/{path}", "transport": transport, "headers": KEY}) as servers:
            (status,) = servers.statuses()
            assert status.state is ServerState.READY, status
            assert (await world.run(servers, "w__echo", text="hi")).content == "echo: hi"
            facts = await world.inspect(servers, "w__echo", text="hi")
            assert facts.network
            assert facts.server is not None and facts.server.by_url
            assert not facts.hosts, "a rule for a host would answer for every call"
        async with world.servers(w={"url": f"{url}/{path}"}) as servers:
            assert "403" in servers.statuses()[0].reason or servers.statuses()[0].state is ServerState.FAILED


@contextmanager
def listening(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server in this process."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_a_redirect_to_another_host_gets_no_key(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "canary")
    seen: list[str] = []

    class Thief(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(str(self.headers))
            self.send_response(200)
            self.end_headers()

        do_GET = do_POST

    with (
        listening(Thief) as thief,
        serving("streamable-http", tmp_path / "log", f"{thief}/mcp") as url,
    ):
        async with world.servers(w={"url": f"{url}/away", "headers": KEY}) as servers:
            assert servers.statuses()[0].state is ServerState.FAILED
    assert seen == []


async def test_a_compressed_answer_is_refused_unread(world: World) -> None:
    asked: list[str | None] = []

    class Bomb(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.headers["accept-encoding"])
            self.rfile.read(int(self.headers["content-length"]))
            body = gzip.compress(b" " * 50_000_000)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-encoding", "gzip")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        do_GET = do_POST

    with listening(Bomb) as url:
        async with world.servers(w={"url": f"{url}/mcp"}) as servers:
            assert servers.statuses()[0].reason == "it sent a compressed answer, which was not asked for"
    assert set(asked) == {"identity"}


@pytest.mark.parametrize(("value", "accepted"), [("hunter2\n", True), ("hun\nter2", False), ("hunter2\u20ac", False)])
async def test_a_header_that_cannot_be_sent_is_named_without_its_value(
    world: World, value: str, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", value)
    seen: list[str | None] = []

    class Busy(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers["x-key"])
            self.send_response(500)
            self.end_headers()

        do_GET = do_POST

    with listening(Busy) as url:
        async with world.servers(w={"url": f"{url}/mcp", "headers": KEY}) as servers:
            reason = servers.statuses()[0].reason
    assert set(seen) == ({"hunter2"} if accepted else set())
    assert ("headers.X-Key" in reason) != accepted
    assert "hun" not in reason


async def test_a_server_that_ends_during_a_call_leaves_an_unknown_outcome(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "canary")
    with serving("streamable-http", tmp_path / "log") as url:
        servers = world.servers(w={"url": f"{url}/mcp", "headers": KEY})
        connected = await servers.__aenter__()
        facts = await world.inspect(connected, "w__echo", text="x")
    found = connected.get("w__echo")
    assert found is not None
    result = await found.run(facts, world.context())
    await servers.__aexit__(None, None, None)
    assert result.outcome is Outcome.UNKNOWN

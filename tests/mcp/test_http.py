"""Servers at a URL: both transports, and headers that go to their host only."""

import http.server
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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

    thief = http.server.HTTPServer(("127.0.0.1", 0), Thief)
    thread = threading.Thread(target=thief.serve_forever)
    thread.start()
    try:
        with serving("streamable-http", tmp_path / "log", f"http://127.0.0.1:{thief.server_port}/mcp") as url:
            async with world.servers(w={"url": f"{url}/away", "headers": KEY}) as servers:
                assert servers.statuses()[0].state is ServerState.FAILED
    finally:
        thief.shutdown()
        thread.join()
        thief.server_close()
    assert seen == []


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

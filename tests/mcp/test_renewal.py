"""Logins at a server made of the SDK's server side: they outlive renewals at the same time, and calls that stop."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from chatops.domain.errors import ChatopsError
from chatops.domain.tools import ToolResult
from chatops.mcp.servers import Servers
from tests.mcp.conftest import World
from tests.mcp.test_login import accounts, browse, log_in, stored
from tests.mcp.test_login import entry as other_entry
from tests.support.oauth_server import Accounts
from tests.support.sdk_oauth_server import Grants, serving
from tests.support.waiting import PATIENCE

__all__ = ["accounts"]
CANARY = "canary0123456789"


@pytest.fixture
def grants() -> Iterator[Grants]:
    with serving() as found:
        yield found


def entry(grants: Grants) -> dict[str, object]:
    return {"url": grants.url, "auth": "oauth"}


def end(login: Path) -> None:
    """Let the stored access token have ended."""
    login.write_text(json.dumps(json.loads(login.read_text()) | {"expires_at": 1.0}))


@contextmanager
def held(grants: Grants) -> Iterator[threading.Event]:
    """Hold the next renewals back at the server, after it has taken their tokens. Yield what says that one is there."""
    there, go = threading.Event(), threading.Event()

    def hold() -> None:
        there.set()
        go.wait(2 * PATIENCE)

    grants.renewing = hold
    try:
        yield there
    finally:
        grants.renewing = lambda: None
        go.set()


@asynccontextmanager
async def renewing(world: World, servers: Servers, grants: Grants) -> AsyncIterator[asyncio.Future[ToolResult]]:
    """Begin a call whose login the server holds back while it renews it."""
    grants.access.clear()
    with held(grants) as there:
        call = asyncio.ensure_future(world.run(servers, "w__whoami"))
        await asyncio.to_thread(there.wait)
        yield call


async def test_a_call_that_stops_while_its_login_is_renewed_does_not_lose_it(world: World, grants: Grants) -> None:
    async with world.servers(w=entry(grants)) as servers:
        await log_in(servers)
        await servers.connect(["w"])
        async with renewing(world, servers, grants) as call:
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
        assert (await world.run(servers, "w__whoami")).content == "you"
        async with renewing(world, servers, grants) as call:
            call.cancel()
            ending = asyncio.ensure_future(servers.aclose())
            await asyncio.wait((call,))
        await ending
    async with world.servers(w=entry(grants)) as servers:
        assert (await world.run(servers, "w__whoami")).content == "you"
    assert not grants.reused


@pytest.mark.more
async def test_a_token_for_another_resource_is_not_stored(world: World, grants: Grants) -> None:
    grants.foreign = True
    async with world.servers(w=entry(grants)) as servers:
        with pytest.raises(ChatopsError, match="does not accept the token that the login gave"):
            await log_in(servers)
    assert not stored(world).exists()


@pytest.mark.more
async def test_a_login_that_is_removed_while_it_is_renewed_stays_removed(world: World, grants: Grants) -> None:
    async with world.servers(w=entry(grants)) as servers:
        await log_in(servers)
        await servers.connect(["w"])
        async with renewing(world, servers, grants) as call:
            stored(world).unlink()
        with suppress(AssertionError):
            await call
        await servers.connect(["w"])
        assert servers.statuses()[0].reason == "it needs a login; run: chatops mcp login w"
    assert not stored(world).exists()


@pytest.mark.more
@pytest.mark.parametrize(("status", "kept"), [(503, True), (429, True), (400, False)])
async def test_a_login_that_cannot_be_renewed_now_is_kept(
    world: World, accounts: Accounts, status: int, kept: bool
) -> None:
    async with world.servers(w=other_entry(accounts)) as servers:
        await log_in(servers)
    end(stored(world))
    accounts.answers["/token"] = (status, "<b>\x1b[2J</b>", {})
    async with world.servers(w=other_entry(accounts)) as servers:
        (shown,) = servers.statuses()
    why = f"its login cannot be renewed now: HTTP status {status}"
    assert shown.reason == (why if kept else "its login was revoked or has ended; run: chatops mcp login w")
    accounts.answers.clear()
    async with world.servers(w=other_entry(accounts)) as servers:
        assert (await world.run(servers, "w__whoami")).content == "you"


@pytest.mark.more
@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"refresh_token": CANARY}),
        json.dumps({"access_token": CANARY, "token_type": "mac"}),
        json.dumps({"access_token": f"{CANARY}\r\nX-Other: y"}),
        json.dumps({"access_token": f"{CANARY}é"}),
        json.dumps({"access_token": CANARY, "expires_in": 10**400}),
        json.dumps([CANARY]),
        CANARY,
    ],
)
async def test_no_error_of_a_login_or_a_renewal_quotes_a_token(
    world: World, accounts: Accounts, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    async with world.servers(w=other_entry(accounts)) as servers:
        await log_in(servers)
        accounts.answers["/token"] = (200, text, {})
        with pytest.raises(ChatopsError) as failed:
            await log_in(servers)
    assert "its answer is not what" in str(failed.value) or "is not valid HTTP" in str(failed.value)
    end(stored(world))
    async with world.servers(w=other_entry(accounts)) as servers:
        assert servers.statuses()[0].reason
        shown = f"{failed.value}{servers.statuses()}{caplog.text}"
    assert CANARY not in shown


@pytest.mark.more
@pytest.mark.parametrize("where", ["http://192.0.2.1/t", "https://192.0.2.1/t"])
async def test_no_token_follows_a_redirection(world: World, accounts: Accounts, where: str) -> None:
    async with world.servers(w=other_entry(accounts)) as servers:
        await log_in(servers)
        accounts.answers["/token"] = (307, "", {"Location": where})
        with pytest.raises(ChatopsError, match="not followed"):
            await log_in(servers)
    end(stored(world))
    async with world.servers(w=other_entry(accounts)) as servers:
        assert servers.statuses()[0].reason == "its login was revoked or has ended; run: chatops mcp login w"


@pytest.mark.more
def test_processes_renew_one_after_the_other_and_a_killed_one_leaves_the_rest_of_the_login(
    world: World, grants: Grants, tmp_path: Path
) -> None:
    registry = tmp_path / "r.json"
    registry.write_text(json.dumps({"roles": {"a": {}}, "mcp_servers": {"w": entry(grants)}}))
    home = tmp_path / "home"

    def start(command: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "chatops", "--registry", str(registry), "mcp", command, "w"]
        environment = {**os.environ, "CHATOPS_HOME": str(home)}
        pipe = subprocess.PIPE
        return subprocess.Popen(words, env=environment, stdout=pipe, stderr=pipe, text=True, cwd=world.workspace)

    def told(process: subprocess.Popen[str]) -> str:
        return "".join(process.communicate())

    def log_in_again() -> None:
        with start("login") as process:
            assert process.stdout is not None
            browse(next(line.strip() for line in process.stdout if line.startswith("http")))
            assert "w: ready" in told(process)

    log_in_again()
    (login,) = home.glob("**/w.login.json")
    end(login)
    with held(grants) as there:
        processes = [start("check") for _ in range(3)]
        assert there.wait(PATIENCE)
    said = [told(process) for process in processes]
    assert all("w: ready" in one for one in said), said
    assert (len(grants.used), grants.reused) == (1, [])

    end(login)
    with held(grants) as there, start("check") as process:
        assert there.wait(PATIENCE)
        process.kill()
    # The server has taken the refresh token, and its answer is lost.
    said.append(told(start("check")))
    assert "its login was revoked or has ended; run: chatops mcp login w" in said[-1]
    log_in_again()

    others = [file for file in home.rglob("*") if file.is_file() and file != login]
    assert not [file for file in others for token in grants.issued if token.encode() in file.read_bytes()]
    assert not [token for token in grants.issued if token in "".join(said)]
    (login.parent / ".w.login.json.killed").write_bytes(login.read_bytes())
    assert told(start("remove")) and not [*home.glob("**/*w.login.json*")]

"""Logins at servers with OAuth: made by the user, stored for one URL, renewed, and never begun by a connection."""

import json
import os
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from chatops.domain import known_keys
from chatops.domain.errors import ChatopsError
from chatops.domain.tools import CallFacts, Outcome, definition_of
from chatops.mcp.server import ServerState
from chatops.mcp.servers import Servers
from tests.mcp.conftest import World
from tests.support.oauth_server import Accounts, serving

KEY = {"X-Key": "canary"}


@pytest.fixture
def accounts() -> Iterator[Accounts]:
    with serving() as found:
        yield found


def browse(url: str) -> None:
    """Open `url` and follow it, as a browser does."""
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            response.read()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        pass


def entry(accounts: Accounts) -> dict[str, object]:
    return {"url": f"{accounts.server}/mcp", "auth": "oauth", "headers": KEY}


def stored(world: World) -> Path:
    return world.workspace.parent / "mcp" / "w.login.json"


async def log_in(servers: Servers) -> None:
    browsers: list[threading.Thread] = []

    def show(url: str) -> None:
        browsers.append(threading.Thread(target=browse, args=(url,)))
        browsers[-1].start()

    try:
        assert await servers.log_in("w", show=show)
    finally:
        for browser in browsers:
            browser.join()


async def test_a_login_is_stored_for_its_server_and_its_token_goes_there_only(world: World, accounts: Accounts) -> None:
    async with world.servers(w=entry(accounts)) as servers:
        (status,) = servers.statuses()
        assert status.reason == "it needs a login; run: chatops mcp login w"
        assert accounts.seen == [], "a connection begins no login"
        await log_in(servers)
        await servers.connect([one.name for one in servers.statuses()])
        assert (await world.run(servers, "w__whoami")).content == "you"
    assert stat.S_IMODE(os.stat(stored(world)).st_mode) == 0o600
    for origin, path, headers in accounts.seen:
        if origin == accounts.issuer:
            assert "x-key" not in headers, path
            assert not headers.get("authorization", "").startswith("Bearer"), path
        elif path == "/mcp":
            assert headers["x-key"] == "canary"


@pytest.mark.more
async def test_a_token_is_renewed_when_it_ends_or_is_refused(world: World, accounts: Accounts) -> None:
    accounts.expires_in = -10
    async with world.servers(w=entry(accounts)) as servers:
        await log_in(servers)
    accounts.expires_in = 3600
    accounts.seen.clear()
    async with world.servers(w=entry(accounts)) as servers:
        assert servers.statuses()[0].state is ServerState.READY, servers.statuses()
        assert accounts.paths(accounts.issuer) == ["/token"]
        accounts.access.clear()
        assert (await world.run(servers, "w__whoami")).content == "you"
        assert accounts.paths(accounts.issuer) == ["/token", "/token"]
    renewed = json.loads(stored(world).read_text())["tokens"]["access_token"]
    assert renewed in accounts.access
    async with world.servers(w=entry(accounts)) as servers:
        accounts.access.clear()
        accounts.refresh.clear()
        found = servers.get("w__whoami")
        assert found is not None
        facts = CallFacts(arguments="{}", definition=definition_of(found.spec))
        ended = "its login was revoked or has ended; run: chatops mcp login w"
        result = await found.run(facts, world.context())
        assert result.outcome is Outcome.UNKNOWN and f"lost during the call: {ended}." in result.content
        await servers.connect([one.name for one in servers.statuses()])
        assert servers.statuses()[0].reason == ended
    accounts.seen.clear()
    async with world.servers(w=entry(accounts)) as servers:
        assert servers.statuses()[0].reason == ended
    assert set(accounts.paths(accounts.issuer)) == {"/token"}, "a connection follows no address that a server names"
    assert set(accounts.paths(accounts.server)) == {"/mcp"}


async def test_a_server_cannot_have_the_words_of_rows_taken_for_its_token(
    world: World, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_keys, "_known", (frozenset(), ()))
    for given in ('"kind":"decision"', "asks_after_reading", "3f9c0a11e2b4c6a8"):
        monkeypatch.setattr("tests.support.oauth_server.secrets.token_hex", lambda size, given=given: given)
        async with world.servers(w=entry(accounts)) as servers:
            await log_in(servers)
    assert known_keys.known_keys() == {"access-3f9c0a11e2b4c6a8", "refresh-3f9c0a11e2b4c6a8"}


@pytest.mark.more
async def test_a_login_is_not_used_at_another_address(world: World, accounts: Accounts) -> None:
    async with world.servers(w=entry(accounts)) as servers:
        await log_in(servers)
    accounts.seen.clear()
    with serving() as other:
        async with world.servers(w=entry(other)) as servers:
            assert "needs a login" in servers.statuses()[0].reason
        assert other.seen == []


@pytest.mark.more
async def test_a_forged_answer_is_not_taken(world: World, accounts: Accounts) -> None:
    def show(url: str) -> None:
        def visit() -> None:
            back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
            browse(f"{back}?code=forged&state=guessed")
            browse(f"{back}?error=forged")
            browse(back.replace("/callback", "/other"))
            browse(url)

        threading.Thread(target=visit).start()

    async with world.servers(w=entry(accounts)) as servers:
        assert await servers.log_in("w", show=show)
        assert stored(world).exists()


@pytest.mark.more
@pytest.mark.parametrize(
    ("metadata", "denies", "said"),
    [
        ({}, True, "the login was refused: access_denied<U+001B>[2J"),
        ({"token_endpoint": "http://192.0.2.1/token"}, False, "192.0.2.1 was refused"),
        ({"authorization_endpoint": "http://192.0.2.1/"}, False, "not at a https address: http://192.0.2.1/"),
        ({"authorization_endpoint": "file:///etc/passwd"}, False, "Registration failed"),
        ({"issuer": "http://127.0.0.1:1"}, False, "issuer"),
    ],
)
async def test_a_login_that_fails_says_why_and_leaves_the_earlier_one(
    world: World, accounts: Accounts, metadata: dict[str, str], denies: bool, said: str
) -> None:
    async with world.servers(w=entry(accounts)) as servers:
        await log_in(servers)
        before = stored(world).read_bytes()
        accounts.metadata, accounts.denies = metadata, denies
        with pytest.raises(ChatopsError) as failed:
            await log_in(servers)
    assert said in str(failed.value)
    assert "\x1b" not in str(failed.value)
    assert stored(world).read_bytes() == before


@pytest.mark.more
def test_the_command_logs_in_and_removing_a_server_removes_its_login(
    world: World, accounts: Accounts, tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    file.write_text('{"roles": {"a": {}}}')
    command = [sys.executable, "-m", "chatops", "--registry", str(file), "mcp"]
    environment = {**os.environ, "CHATOPS_HOME": str(tmp_path / "home")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *words], env=environment, capture_output=True, text=True, cwd=world.workspace)

    added = run("add", "--oauth", "w", f"{accounts.server}/mcp")
    assert "chatops mcp login w" in added.stderr
    with subprocess.Popen(
        [*command, "login", "w"], env=environment, stdout=subprocess.PIPE, text=True, cwd=world.workspace
    ) as login:
        assert login.stdout is not None
        browse(next(line.strip() for line in login.stdout if line.startswith("http")))
        rest = login.stdout.read()
    assert login.returncode == 0
    assert "w: ready" in rest
    assert "tools: w__whoami" in rest
    (kept,) = tmp_path.glob("home/**/w.login.json")
    assert run("remove", "w").returncode == 0
    assert not kept.exists()

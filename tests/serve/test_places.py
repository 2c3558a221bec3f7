"""Where the page may be: loopback under a random name, or one name with TLS."""

import contextlib
import http.client
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from chatops.domain.errors import ChatopsError, ConfigError
from chatops.serve.desk import Desk
from chatops.serve.guard import Address, LimitedConnection
from chatops.serve.listening import ListenOptions, _open_sockets, qr_code
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.serve.served import Served, serving
from tests.serve.test_live import is_closed
from tests.support.cases import for_each
from tests.support.command_line import CommandLine
from tests.support.sockets import CERTIFICATES
from tests.support.waiting import PATIENCE
from tests.wiring.conftest import Bench, bench

__all__ = ["bench"]


@pytest.fixture
def chatops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "without TLS they could read and change it"),
        (["--host", "0.0.0.0", "--url", "https://desk.example"], "without TLS"),
        (["--behind-proxy"], "--url https://NAME and TLS belong together"),
        (["--tls", "c", "k"], "belong together"),
        (["--url", "https://desk.example"], "belong together"),
        (["--tls", "c", "k", "--behind-proxy", "--url", "https://desk.example"], "not allowed with"),
        *(
            (["--behind-proxy", "--url", url], "this is not an address of the form")
            for url in (
                "http://desk.example",
                "https://desk.example/path",
                "https://a@desk.example",
                "https://desk.example?x",
                "https://",
                "https://desk.example:port",
                "https://dés.example",
                "https://a b",
                "https://desk.example\\@evil.example",
                "desk.example",
            )
        ),
        (["--port", "70000"], "a port up to 65535"),
        (["--port", "0"], "whole number above zero"),
        (["--tls", "/nothing.pem", "/nothing.key", "--url", "https://desk.example"], "certificate or its key"),
    ],
)
def test_an_address_that_others_could_read_or_take_is_refused(
    chatops: CommandLine, arguments: list[str], said: str
) -> None:
    try:
        ran = chatops("serve", *arguments)
    except SystemExit as ended:
        assert ended.code == 2
    else:
        assert ran.code == 2 and said in ran.err


def test_a_missing_extra_is_named_with_what_installs_it(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatops.commands.serve.find_spec", lambda name: None)
    ran = chatops("serve")
    assert ran.code == 2 and "the extra serve is not installed; `" in ran.err


def test_a_port_that_is_taken_at_either_loopback_address_is_not_used() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        # Browsers may try ::1 first, so whoever listens there would get the cookie.
        with pytest.raises(ConfigError, match="cannot be listened at"):
            _open_sockets(ListenOptions(port=port))
    free = _open_sockets(ListenOptions())
    assert [one.getsockname()[0] for one in free] == ["127.0.0.1", "::1"]
    assert len({one.getsockname()[1] for one in free}) == 1
    for one in free:
        one.close()


def test_a_host_header_names_the_address_with_or_without_the_usual_port() -> None:
    desk = Address("https://desk.example")
    assert all(desk.is_named_by(host) for host in ("desk.example", "DESK.example:443"))
    assert not any(desk.is_named_by(host) for host in ("desk.example:80", "desk.example:8322", "x.desk.example", ""))
    assert Address("https://desk.example:8443").is_named_by("desk.example:8443")


PROXY = ("--behind-proxy", "--url", "https://desk.example")


def test_behind_a_proxy_the_cookie_is_for_tls_and_the_proxy_says_who_asks(tmp_path: Path, chatops_home: Path) -> None:
    with serving(chatops_home, tmp_path, *PROXY) as served:
        assert served.origin == "https://desk.example"
        port = next(int(line.rpartition(":")[2]) for line in served.said if "Listening at" in line)
        near = Near(served, port)
        token = served.links[0].rpartition("/")[2]
        assert near.ask("GET", "/", host=f"127.0.0.1:{port}").status == 421
        assert near.ask("POST", "/login", form={"token": token}, origin="http://desk.example").status == 403
        # The first header is the client's own. The proxy has added another one.
        said = {"x_forwarded_for": "192.0.2.1", "X_Forwarded_For": "10.0.0.1, 192.0.2.7"}
        answer = near.ask("POST", "/login", form={"token": token}, origin="null", **said)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-chatops=")
        assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
        call = served.paused("run `touch made.txt`")
        assert near.decide(call, "deny", cookie.partition(";")[0]).status == 303
        page = near.get(f"/call/{call}", cookie=cookie.partition(";")[0]).text
        assert "browser page desk.example, login 1 from 192.0.2.7" in page


class Near(Served):
    """The server as the proxy reaches it: at another port than its address says."""

    def __init__(self, served: Served, port: int) -> None:
        super().__init__(served.process, served.keys, served.home, served.workspace, served.links)
        self.at = port

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.at)


def test_without_a_proxy_forwarded_headers_say_nothing(served: Served) -> None:
    forged: Any = {"x_forwarded_for": "192.0.2.7", "x_forwarded_proto": "https", "x_forwarded_host": "evil.example"}
    forged |= {"forwarded": "for=192.0.2.7;host=evil.example;proto=https", "x_real_ip": "192.0.2.7"}
    token = served.links[0].rpartition("/")[2]
    answer = served.ask("POST", "/login", form={"token": token}, origin="null", **forged)
    assert answer.status == 303 and answer.where == "/" and "Secure" not in answer.headers["set-cookie"]
    cookie = answer.headers["set-cookie"].partition(";")[0]
    call = served.paused("run `touch made.txt`")
    form = {**served.fields(f"/call/{call}", cookie), "answer": "deny"}
    path = f"/call/{call}"
    assert served.ask("POST", path, cookie=cookie, form=form, origin="https://evil.example", **forged).status == 403
    assert served.ask("POST", path, cookie=cookie, form=form, origin=served.origin, **forged).status == 303
    assert "login 1 from 127.0.0.1" in served.get(path, cookie=cookie).text


def test_with_a_certificate_it_speaks_tls_and_nothing_else(tmp_path: Path, chatops_home: Path) -> None:
    pem = str(CERTIFICATES / "good.pem")
    place = ("--tls", pem, pem, "--url", "https://127.0.0.1:8443", "--host", "127.0.0.1")
    with serving(chatops_home, tmp_path, *place) as served:
        port = next(int(line.rpartition(":")[2]) for line in served.said if "Listening at" in line)
        trusting = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=trusting)
        connection.request("GET", "/", headers={"Host": "127.0.0.1:8443"})
        answer = connection.getresponse()
        assert answer.status == 401 and "Log in" in answer.read().decode()
        connection.close()
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            Near(served, port).get("/")
        # Clients that begin no handshake make room for others, as those that send no request.
        with contextlib.ExitStack() as held:
            silent = [
                held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
                for _ in range(LimitedConnection.MOST + 1)
            ]
            connection.request("GET", "/style.css", headers={"Host": "127.0.0.1:8443"})
            assert connection.getresponse().status == 200
            connection.close()
            assert silent[0].recv(1) == b"" and not is_closed(silent[-1])


# Registries


async def test_what_a_changed_registry_adds_counts_without_a_restart(bench: Bench) -> None:
    users = {"*": {"access_level": "operator"}}
    bench.write(users=users)
    app = App(Options(workspace=bench.workspace, via="serve"))
    session = await app.open_session(None, attended=True)
    await session.submit("run `touch made.txt`")
    await session.settle()
    (waiting,) = session.pending
    await session.aclose()
    await app.aclose()
    bench.write(users=users, tools={"shell_exec": {"verdict": "deny"}})
    app = App(Options(workspace=bench.workspace, via="serve"))
    desk = Desk(app)
    denied = desk.call(waiting.call.id)
    bench.write(users=users)
    shown = desk.call(waiting.call.id)
    assert denied is not None and denied.page is not None and not any(one.runs for one in denied.page.answers)
    assert shown is not None and shown.page is not None and shown.page.answers[0].runs
    assert desk.overview().notices == ()
    await app.aclose()


# A site that forbids it


async def test_a_site_that_forbids_the_page_leaves_it_to_read(bench: Bench) -> None:
    bench.write(users={"*": {"access_level": "operator"}})
    app = App(Options(workspace=bench.workspace, via="serve"))
    session = await app.open_session(None, attended=True)
    await session.submit("run `touch made.txt`")
    await session.settle()
    desk = Desk(app)
    (call,) = desk.overview().calls
    shown = desk.call(call.id)
    assert shown is not None and shown.page is not None and shown.page.answers[0].runs
    bench.write_site(approvals={"surfaces": ["terminal"]})
    shown = desk.call(call.id)
    assert shown is not None and shown.page is not None and shown.page.answers == []
    assert "on this surface (serve)" in shown.blocked and shown.page.call
    for answer in ("approve", "deny"):
        with pytest.raises(ChatopsError, match="on this surface"):
            desk.decide(call.id, answer, digest=shown.digest, state=shown.state, ticked="", reason="", place="page")
    await session.aclose()
    await app.aclose()


@for_each("text", ["http://x.localhost:1/login/" + "t" * 43, "https://desk.example/login/" + "t" * 43])
def test_the_link_fits_a_terminal_as_a_qr_code(text: str) -> None:
    lines = qr_code(text).splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 60

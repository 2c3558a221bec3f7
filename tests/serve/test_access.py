"""Who gets in: links, cookies, names, origins, forms, paths. Each test attacks the real server over loopback."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from ipaddress import ip_address

import pytest

from chatops.serve.guard import ask_kernel, is_of_this_user, search_table
from chatops.serve.logins import (
    IDLE_S,
    LINK_S,
    MAX_LOGIN_S,
    MAX_LOGINS,
    MAX_WRONG_TOKENS,
    WRONG_TOKENS_S,
    Logins,
    RefusedError,
    TooManyError,
)
from tests.serve.served import Answer, Served, path_of, read

SECRET = "echo the-secret-command"
PAGES = ("/", "/events", "/call/{call}", "/call/20260101-000000-aaaa.1.1.1", "/logout", "/nothing")


@pytest.fixture(scope="module")
def call(shared: Served) -> str:
    """A call that nobody decides."""
    return shared.paused(f"run `{SECRET}`")


def assert_pending(shared: Served, call: str) -> None:
    assert re.search(rf"{call}.* pending ", shared.run("approvals", "list").stdout)


def test_a_link_that_was_only_opened_still_logs_in_and_then_never_again(shared: Served) -> None:
    link = shared.another_link()
    for method in ("GET", "GET", "HEAD", "GET"):
        opened = shared.ask(method, path_of(link))
        assert opened.status == 200 and "set-cookie" not in opened.headers
        # The token is in the address of this page, which it tells nobody.
        assert opened.headers["referrer-policy"] == "no-referrer"
    assert 'action="/login"' in shared.get(path_of(link)).text and "<script" not in shared.get(path_of(link)).text
    cookie = shared.log_in(link)
    assert shared.get("/", cookie=cookie).status == 200
    for origin in ("null", shared.origin):
        again = shared.ask("POST", "/login", form={"token": link.rpartition("/")[2]}, origin=origin)
        assert again.status == 403 and "set-cookie" not in again.headers
        assert "was used" in again.text


def test_a_newer_link_replaces_the_one_before(shared: Served) -> None:
    old, new = shared.another_link(), shared.another_link()
    refused = shared.ask("POST", "/login", form={"token": old.rpartition("/")[2]}, origin="null")
    assert refused.status == 403
    assert shared.log_in(new)


def test_a_form_of_another_site_does_not_log_in(shared: Served) -> None:
    link = shared.another_link()
    token = {"token": link.rpartition("/")[2]}
    for origin in (
        "https://evil.example",
        shared.origin.replace("localhost", "localhost.evil.example"),
        "http://localhost",
    ):
        assert shared.ask("POST", "/login", form=token, origin=origin).status == 403
    assert shared.log_in(link)


def test_the_cookie_is_for_this_name_alone_and_for_no_script(shared: Served) -> None:
    token = shared.another_link().rpartition("/")[2]
    cookie = shared.ask("POST", "/login", form={"token": token}, origin="null").headers["set-cookie"]
    assert re.fullmatch(r"chatops=[\w-]{43}; Path=/; HttpOnly; SameSite=Strict", cookie)


def test_nothing_is_told_without_a_login(shared: Served, call: str) -> None:
    for path in PAGES:
        for cookie in ("", "chatops=", "chatops=" + "A" * 43, "chatops=\xff", "__Host-chatops=x", "x" * 4000):
            method = "POST" if path == "/logout" else "GET"
            answer = shared.ask(method, path.format(call=call), cookie=cookie)
            assert answer.status == (404 if path == "/nothing" else 401), path
            assert "secret" not in answer.text and call not in answer.text.replace(f"/call/{call}", "")
    assert "secret" in shared.get(f"/call/{call}", cookie=shared.log_in()).text


def test_a_link_from_elsewhere_leads_on_from_a_page_of_the_same_site(shared: Served, call: str) -> None:
    for site in ("cross-site", "same-site", ""):
        answer = shared.get(f"/call/{call}", **({"sec_fetch_site": site} if site else {}))
        assert answer.status == 401 and f'<a class="button" href="/call/{call}">Continue</a>' in answer.text
    for site in ("same-origin", "none"):
        assert "Continue" not in shared.get(f"/call/{call}", sec_fetch_site=site).text
    hostile = shared.get("/%22%3E%3Cscript%3E//evil.example", sec_fetch_site="cross-site")
    assert "<script>" not in hostile.text


def test_logging_out_ends_the_login(shared: Served) -> None:
    cookie = shared.log_in()
    form = {"form_token": shared.fields("/", cookie)["form_token"]}
    assert shared.ask("POST", "/logout", cookie=cookie, form=form, origin="https://evil.example").status == 403
    assert shared.get("/", cookie=cookie).status == 200
    out = shared.ask("POST", "/logout", cookie=cookie, form=form, origin=shared.origin)
    assert out.status == 200 and "Max-Age=0" in out.headers["set-cookie"]
    assert shared.get("/", cookie=cookie).status == 401


def test_only_the_one_name_leads_here(shared: Served, call: str) -> None:
    cookie = shared.log_in()
    port = shared.port
    for host in (
        "evil.example",
        f"evil.example:{port}",
        f"127.0.0.1:{port}",
        f"localhost:{port}",
        f"[::1]:{port}",
        f"x.{shared.host}",
        shared.host.replace(":", ".:"),
        shared.host.partition(":")[0],
        f"{shared.host}@evil.example",
        f"evil.example,{shared.host}",
        "",
    ):
        answer = shared.get(f"/call/{call}", cookie=cookie, host=host)
        assert answer.status in (400, 421) and "secret" not in answer.text, host
        forwarded = {"x_forwarded_host": shared.host, "forwarded": f"host={shared.host}"}
        assert shared.get("/", cookie=cookie, host=host, **forwarded).status in (400, 421)
    assert shared.get("/", cookie=cookie, host=shared.host.upper()).status == 200
    assert raw(shared, f"GET / HTTP/1.1\r\nHost: {shared.host}\r\nHost: evil.example\r\n\r\n").startswith(
        "HTTP/1.1 400"
    )
    assert " 421 " in raw(shared, "GET / HTTP/1.0\r\n\r\n").partition("\r\n")[0]


def raw(shared: Served, text: str) -> str:
    """The whole answer to these bytes."""
    with socket.create_connection(("127.0.0.1", shared.port)) as connection:
        connection.sendall(text.encode("latin-1"))
        connection.shutdown(socket.SHUT_WR)
        parts = []
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                parts.append(part)
    return b"".join(parts).decode("latin-1")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells whose a connection is")
@pytest.mark.parametrize("name", ["127.0.0.1", "::1"])
def test_another_user_of_the_machine_gets_nothing_with_the_link(shared: Served, name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    link = shared.another_link()
    form = f"token={link.rpartition('/')[2]}"
    request = (
        f"POST /login HTTP/1.1\r\nHost: {shared.host}\r\nContent-Length: {len(form)}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n\r\n{form}"
    )
    asking = (
        "import socket, sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2])));"
        "c.sendall(sys.argv[3].encode()); print(b''.join(iter(lambda: c.recv(65536), b'')).decode())"
    )
    command = ["/usr/bin/env", "python3", "-c", asking, name, str(shared.port), request]
    nobody = subprocess.run(command, user="nobody", cwd="/", env={}, capture_output=True, text=True, check=True).stdout
    assert nobody.startswith("HTTP/1.1 403 ") and "for another user of this machine" in nobody
    assert "set-cookie" not in nobody
    assert shared.log_in(link), "nor does it use the link up"
    assert "Login " in shared.until_said("If that was not you")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells whose a connection is")
@pytest.mark.parametrize("name", ["127.0.0.1", "::1"])
def test_question_and_table_of_the_kernel_agree_on_whose_a_connection_is(name: str) -> None:
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    with socket.create_server((name, 0), family=family) as listening:
        client = socket.create_connection(listening.getsockname()[:2])
        here, _ = listening.accept()
        ends = [(ip_address(end[0]).packed, end[1]) for end in (here.getpeername(), here.getsockname())]
        inode = os.fstat(client.fileno()).st_ino
        assert ask_kernel(ends) == search_table(ends) == (os.geteuid(), inode)
        client.close()
        assert not is_of_this_user(*here.getpeername()[:2], *here.getsockname()[:2])
        here.close()


def test_a_request_that_did_not_wait_for_the_answer_before_is_not_answered(shared: Served) -> None:
    # Each would keep its connection from being closed for another client.
    request = f"GET /style.css HTTP/1.1\r\nHost: {shared.host}\r\n\r\n"
    assert raw(shared, request * 50).count("HTTP/1.1 200") == 1


def test_every_answer_is_kept_from_frames_caches_and_foreign_code(shared: Served, call: str) -> None:
    cookie = shared.log_in()
    answers = [shared.get(path.format(call=call), cookie=cookie) for path in ("/", "/call/{call}", "/style.css", "/no")]
    answers += [
        shared.get("/"),
        shared.get("/page.js"),
        shared.get("/", host="evil.example"),
        shared.ask("DELETE", "/"),
        shared.get(path_of(shared.another_link())),
    ]
    for answer in answers:
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
        assert policy["base-uri"] == "'none'" and policy["form-action"] == "'self'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] in ("same-origin", "no-referrer")
        assert "server" not in answer.headers and "access-control-allow-origin" not in answer.headers
        if answer.headers["content-type"].startswith("text/html"):
            assert_nothing_from_elsewhere(answer)


def assert_nothing_from_elsewhere(answer: Answer) -> None:
    for tag, attributes in read(answer.text).elements:
        assert tag not in ("iframe", "img", "object", "embed", "base", "style", "svg"), tag
        for name, value in attributes:
            assert not name.startswith("on") and name != "style", (tag, name)
            if name in ("href", "src", "action"):
                assert value is not None and (value == "#main" or re.match(r"/(?!/)", value)), value


def test_a_change_needs_origin_form_token_digest_and_login(shared: Served, call: str) -> None:
    cookie, other = shared.log_in(), shared.log_in()
    fields = shared.fields(f"/call/{call}", cookie)
    assert len(fields["digest"]) == 64
    good = {**fields, "answer": "approve"}
    path, origin = f"/call/{call}", shared.origin

    def refused(status: int, form: dict[str, str] | None = good, **headers: str) -> None:
        sent = {"origin": origin, "cookie": cookie, **headers}
        answer = shared.ask("POST", path, form=form, **{name: value for name, value in sent.items() if value})
        assert answer.status == status, answer.text

    for wrong in ("", "null", "https://evil.example", origin + ".evil.example", origin.replace("http", "https")):
        refused(403, origin=wrong)
    refused(403, {name: value for name, value in good.items() if name != "form_token"})
    refused(403, {**good, "form_token": shared.fields(path, other)["form_token"]})
    refused(403, {**good, "form_token": good["form_token"][:-1]})
    refused(401, cookie="")
    refused(401, cookie="chatops=" + "A" * 43)
    refused(415, content_type="text/plain")
    refused(415, content_type="multipart/form-data; boundary=x")
    refused(413, {**good, "reason": "x" * 100_000})
    refused(409, {name: value for name, value in good.items() if name != "digest"})
    refused(409, {**good, "digest": good["digest"][:63]})
    refused(409, {**good, "digest": "0" * 64})
    refused(409, {**good, "answer": "approve_session"})
    refused(409, {**good, "answer": "done"})
    refused(409, {**good, "answer": "reason", "reason": "  "})
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        assert shared.ask(method, path, cookie=cookie, form=good, origin=origin).status == (
            200 if method == "GET" else 405
        )
    assert_pending(shared, call)


def test_tricks_with_paths_lead_nowhere(shared: Served) -> None:
    cookie = shared.log_in()
    for path in (
        "/../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/style.css/../../server.py",
        "/style.css%00.html",
        "/style.css/",
        "/STYLE.CSS",
        "//style.css",
        "//evil.example/",
        "/call/",
        "/call/../style.css/x",
        "/call/..%2f..%2f..%2fetc%2fpasswd",
        "/call/%00",
        "/call/a/b",
        "/call/<script>",
        "/base.html",
        "/templates/base.html",
        "/login/",
        "/login/a/b",
        "/\\evil.example",
        "/.git/config",
        "/" + "a" * 8000,
    ):
        answer = shared.get(path, cookie=cookie)
        assert answer.status == 404, (path, answer.status)
        assert "root:" not in answer.text and "<script>" not in answer.text
    assert (
        "404" in raw(shared, f"GET http://evil.example/ HTTP/1.1\r\nHost: {shared.host}\r\n\r\n").partition("\r\n")[0]
    )
    assert " 400 " in raw(shared, "GET / HTTP/9\r\n\r\n").partition("\r\n")[0]


# The clock and the chance of guesses


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_link_and_a_login_end_with_time() -> None:
    clock = Clock()
    logins = Logins(clock=clock)
    late = logins.new_token()
    clock.now += LINK_S + 1
    with pytest.raises(RefusedError):
        logins.log_in(late, client="c")
    cookie = logins.log_in(logins.new_token(), client="c")
    clock.now += IDLE_S - 1
    assert logins.find(cookie) is not None
    clock.now += IDLE_S - 1
    assert logins.find(cookie) is not None, "it was used in between"
    clock.now += IDLE_S + 1
    assert logins.find(cookie) is None
    cookie = logins.log_in(logins.new_token(), client="c")
    for _ in range(int(MAX_LOGIN_S / IDLE_S) + 1):
        clock.now += IDLE_S - 1
        logins.find(cookie)
    assert logins.find(cookie) is None, "however often it is used"


def test_guesses_are_few_and_do_not_lock_out_the_right_token() -> None:
    clock = Clock()
    logins = Logins(clock=clock)
    token = logins.new_token()
    for guess in range(MAX_WRONG_TOKENS):
        with pytest.raises(RefusedError):
            logins.log_in(f"{token}{guess:02}", client="c")
    with pytest.raises(TooManyError):
        logins.log_in("another guess", client="c")
    clock.now += WRONG_TOKENS_S + 1
    with pytest.raises(RefusedError) as refused:
        logins.log_in("another guess", client="c")
    assert not isinstance(refused.value, TooManyError)
    for _ in range(MAX_WRONG_TOKENS):
        with contextlib.suppress(RefusedError):
            logins.log_in("another guess", client="c")
    assert logins.log_in(token, client="c")


def test_logins_do_not_grow_without_end() -> None:
    clock = Clock()
    logins = Logins(clock=clock)
    cookies = []
    for _ in range(MAX_LOGINS + 1):
        clock.now += 1
        cookies.append(logins.log_in(logins.new_token(), client="c"))
    assert [logins.find(cookie) is not None for cookie in cookies] == [False] + [True] * MAX_LOGINS


def test_the_server_counts_guesses(served: Served) -> None:
    for guess in range(MAX_WRONG_TOKENS):
        assert served.ask("POST", "/login", form={"token": f"guess{guess}"}, origin="null").status == 403
    answer = served.ask("POST", "/login", form={"token": "one more"}, origin="null")
    assert answer.status == 429 and answer.headers["retry-after"] == "60" and "set-cookie" not in answer.headers

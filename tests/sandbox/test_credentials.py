"""A command uses a secret that it cannot read: real curl and git, over TLS, in the real sandbox."""

import asyncio
import base64
import contextlib
import gzip
import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from chatops.config.registry_read import read_registry
from chatops.domain.decisions import ArgvPattern, RuleScope
from chatops.domain.errors import ConfigError
from chatops.domain.sandbox import Credential, SandboxSpec
from chatops.domain.tools import AccessLevel, Verdict
from chatops.policy.grant import Grant
from chatops.policy.remembered import rule_from, why_not_answered
from chatops.policy.sandbox import beyond, stricter, widened
from chatops.policy.verdicts import ApprovalRule, Layer
from chatops.sandbox import proxy
from chatops.sandbox.credentials import CallCredential, Scrubber
from chatops.toolkit.base import inspect_call
from chatops.tools.shell import shell_tools
from tests.support.waiting import PATIENCE
from tests.tools.running import needs_sandbox
from tests.tools.toolkit import call, context_for, done, inspected

(SHELL,) = shell_tools()
SECRET = "s3cret-Value+/for~tests"


class Server(http.server.BaseHTTPRequestHandler):
    """Notes what it gets, and answers with it in several codings."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str, dict[str, str], bytes]]] = []

    def answer(self) -> None:
        """Answer a request."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        given = self.headers.get("Authorization", "none")
        headers = {name.lower(): text for name, text in self.headers.items()}
        type(self).seen.append((self.command, self.path, headers, body))
        self.send_response(302 if self.path.startswith("/away") else 200)
        self.send_header("X-Echo", given)
        told = f"start {given} end".encode()
        if self.path == "/gzip":
            told = gzip.compress(told)
            self.send_header("Content-Encoding", "gzip")
        if self.path == "/utf16":
            told = told.decode().encode("utf-16-le")
        if self.path == "/br":
            self.send_header("Content-Encoding", "br")
        if self.path == "/base64":
            told = base64.b64encode(b"u:" + SECRET.encode()) + SECRET.encode().hex().upper().encode()
        if self.path.startswith("/away"):
            self.send_header("Location", self.path.partition("=")[2])
        if self.path == "/chunks":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for byte in told:
                self.wfile.write(b"1\r\n%c\r\n" % byte)
            self.wfile.write(b"0\r\n\r\n")
            return
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_POST = do_DELETE = do_MOVE = answer

    def log_message(self, format: str, *args: object) -> None:
        """Keep the output of the tests clean."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    place = tmp_path / "tls"
    place.mkdir()
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test "
        "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem".split(),
        cwd=place,
        check=True,
        capture_output=True,
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(place / "cert.pem"))
    monkeypatch.setenv("API_TOKEN", SECRET)
    proxy._tls_context.cache_clear()
    Server.seen = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(place / "cert.pem", place / "key.pem")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        running.socket = tls.wrap_socket(running.socket, server_side=True)
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running.server_address[1]
        running.shutdown()
    proxy._tls_context.cache_clear()


def credential(port: int, **more: tuple[str, ...]) -> Credential:
    return Credential(name=f"127.0.0.1:{port}", env="API_TOKEN", header="Authorization: Bearer {}", **more)


async def ran(workspace: Path, command: str, *given: Credential, **more: Any) -> str:
    await asyncio.to_thread(workspace.mkdir, exist_ok=True)
    return (
        await done(SHELL, context_for(workspace, sandbox=SandboxSpec(credentials=given, **more)), {"command": command})
    ).content


CURL = 'curl -sS -i -m 20 -H "Authorization: Bearer $API_TOKEN" '


@needs_sandbox
async def test_a_command_uses_a_secret_and_finds_it_nowhere(server: int, tmp_path: Path) -> None:
    """The server gets the value; environment, /proc and every reply, in whatever coding, do not have it."""
    command = "; ".join(
        ["env", "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'"]
        + [f'{CURL} "$API_TOKEN_BASE_URL/{name}"' for name in ("plain", "chunks", "gzip", "base64", "br")]
    )
    told = await ran(tmp_path / "w", command, credential(server))
    given = [headers["authorization"] for _, _, headers, _ in Server.seen]
    assert given == [f"Bearer {SECRET}"] * 5, told
    assert SECRET not in told
    assert SECRET.encode().hex() not in told.lower()
    assert base64.b64encode(b"u:" + SECRET.encode()).decode()[4:20] not in told
    assert told.count(f"start Bearer {'*' * len(SECRET)} end") == 3
    assert "in which the value would not be recognised" in told


@needs_sandbox
async def test_only_the_named_header_of_permitted_requests_gets_it(server: int, tmp_path: Path) -> None:
    """A placeholder elsewhere, another method or path, and a redirect elsewhere get nothing."""
    base = "$API_TOKEN_BASE_URL"
    command = "; ".join(
        (
            f'curl -sS -H "X-Other: $API_TOKEN" -H "X-Same: Bearer $API_TOKEN" -d "$API_TOKEN" "{base}/a/$API_TOKEN"',
            f'{CURL} "{base}/b"',
            f'{CURL} -X DELETE "{base}/a/x"',
            f'{CURL} --path-as-is "{base}/a/../b"',
            f'{CURL} "{base}/a/%2e%2e/b"',
            f'{CURL} -H "X-HTTP-Method-Override: DELETE" -H "Range: bytes=0-3" -H "Request-Range: x" {base}/a/y',
            f'{CURL} -H "Authorization: Basic $API_TOKEN" "{base}/a/z"',
            f'{CURL} --proxytunnel "{base}/a/t"',
            f'{CURL} "https://127.0.0.1:{server}/a/t"',
        )
    )
    told = await ran(tmp_path / "w", command, credential(server, methods=("GET", "POST"), paths=("/a/*",)))
    sent = [(path, SECRET in json.dumps([path, headers, body.decode()])) for _, path, headers, body in Server.seen]
    assert [one for _, one in sent] == [False, True, False], told
    assert sent[1][0] == "/a/y"
    assert not {"range", "request-range", "x-http-method-override"} & set(Server.seen[1][2])
    assert SECRET not in told


@needs_sandbox
async def test_a_redirect_elsewhere_does_not_carry_it(server: int, tmp_path: Path) -> None:
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    port = other.server_address[1]
    command = f'{CURL} -L --location-trusted "$API_TOKEN_BASE_URL/away=http://127.0.0.1:{port}/x"'
    told = await ran(tmp_path / "w", command, credential(server), hosts=(f"127.0.0.1:{port}",))
    other.shutdown()
    other.server_close()
    assert [SECRET in headers["authorization"] for _, _, headers, _ in Server.seen] == [True, False], told
    assert SECRET not in told


@needs_sandbox
async def test_git_uses_it_for_an_https_address(server: int, tmp_path: Path) -> None:
    told = await ran(tmp_path / "w", f"git ls-remote https://127.0.0.1:{server}/team/x.git", credential(server))
    first = [(path, headers.get("authorization")) for _, path, headers, _ in Server.seen[:1]]
    assert first == [("/team/x.git/info/refs?service=git-upload-pack", f"Bearer {SECRET}")], told
    assert SECRET not in told


@needs_sandbox
async def test_it_is_shown_bound_and_covered_by_no_rule_without_it(
    server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that cannot have it says why, and gets neither value nor placeholder."""
    one = credential(server)
    facts = await inspected(SHELL, context_for(tmp_path, sandbox=SandboxSpec(credentials=(one,))), {"command": "env"})
    assert facts.credentials == (str(one),)
    assert f"uses the credential {one}" in facts.sandbox
    told = await ran(tmp_path, "env", one, network=True, env=("API_TOKEN",))
    assert "API_TOKEN" not in told
    facts = await inspected(
        SHELL, context_for(tmp_path, sandbox=SandboxSpec(credentials=(one,), network=True)), {"command": "env"}
    )
    assert not facts.credentials
    assert f"without the credential for {one.name}" in facts.sandbox
    monkeypatch.delenv("API_TOKEN")
    assert "API_TOKEN" not in await ran(tmp_path, "env", one)


@needs_sandbox
async def test_a_rule_that_was_made_without_it_does_not_answer(server: int, tmp_path: Path) -> None:
    """Nor does an allow of a layer or a rule of the registry; a rule that was made with it does."""
    asked, every = call("shell_exec", {"command": "ls -l"}), tuple(RuleScope)
    without = await inspect_call(SHELL, asked, context_for(tmp_path))
    spec = SandboxSpec(credentials=(credential(server),))
    used = await inspect_call(SHELL, asked, context_for(tmp_path, sandbox=spec))
    pattern = ArgvPattern(words=("ls", "-l"))
    for facts, answers in ((without, False), (used, True)):
        rule = rule_from(asked, facts, role="r", pattern=pattern, scope=RuleScope.SESSION)
        assert (why_not_answered(rule, SHELL.spec.capabilities, used, scopes=every) == "") is answers
    layers = (Layer(name="site", rules=()),)
    allowed = Grant(role="r", level=AccessLevel.ADMIN, models=(), prompt="", tools=(SHELL.spec,), layers=layers)
    assert allowed.judge("shell_exec", without).verdict is Verdict.ALLOW
    answer = ApprovalRule(tool="shell_exec", pattern=pattern, source="--approve")
    for grant in (allowed, replace(allowed, answers=(answer,))):
        judged = grant.judge("shell_exec", used)
        assert judged.verdict is Verdict.ASK and "API_TOKEN" in judged.reason


def test_the_registry_names_them_and_refuses_what_cannot_be_one() -> None:
    """A header that says where a request goes or ends, a wildcard and a second place for the value are errors."""

    def read(name: str, **more: object) -> SandboxSpec | None:
        given = {"env": "T", "header": "Authorization: Bearer {}", **more}
        text = json.dumps({"version": 3, "sandbox": {"credentials": {name: given}}})
        return read_registry(text.encode(), source="test").sandbox

    wanted = Credential(name="api.example.org", env="T", header="Authorization: Bearer {}", paths=("/a/*", "/b/**"))
    assert read("API.example.org", paths=["/a/*", "/b/**"]) == SandboxSpec(credentials=(wanted,))
    wrong: tuple[tuple[str, dict[str, object]], ...] = (
        ("*.example.org", {}),
        ("localhost", {}),
        ("a.example", {"header": "Host: {}"}),
        ("a.example", {"header": "X: {}{}"}),
        ("a.example", {"header": "X: a\r\nY: {}"}),
        ("a.example", {"env": "A-B"}),
        ("a.example", {"methods": ["get"]}),
        ("a.example", {"paths": ["a"]}),
        ("a.example", {"value": "x"}),
    )
    for name, more in wrong:
        with pytest.raises(ConfigError):
            read(name, **more)
    one, other = ({"env": name, "header": "X: {}"} for name in "TU")
    for second in ("A.example", "a.example:80"):
        text = json.dumps({"version": 3, "sandbox": {"credentials": {"a.example": one, second: other}}})
        with pytest.raises(ConfigError, match="same address"):
            read_registry(text.encode(), source="test")


def test_no_layer_adds_one() -> None:
    """A ceiling without the credential takes it away; a delegation that adds one says so."""
    spec = SandboxSpec(credentials=(credential(1),))
    assert stricter(SandboxSpec(), spec).credentials == stricter(spec, SandboxSpec()).credentials == ()
    assert stricter(spec, SandboxSpec(credentials=(credential(1, methods=("GET",)),))).credentials == ()
    assert widened(SandboxSpec(), spec) == beyond(spec, SandboxSpec()) == spec


def test_a_path_that_a_command_writes_is_judged_at_once() -> None:
    """No path keeps the expression busy."""
    use = CallCredential(credential=credential(1, paths=("/a/**",)), value=SECRET, placeholder="p")
    assert use.refusal("GET", "/a/" + "b" * 7000 + "/c") == ""
    for path in ("/a/" + "b" * 7000 + "%", "/a/" + "b/" * 3500 + "%", "/a//b", "/a/b%2f..", "/a/..", "/a/./b", "/a;x"):
        assert "several ways" in use.refusal("GET", path)


HEADER = b"Authorization: Bearer placeholder\r\n"
BASE = b"http://127.0.0.1:@PORT@"
SMUGGLED = b"GET " + BASE + b"/b/second HTTP/1.1\r\n" + HEADER + b"\r\n"
ATTACKS = {
    "a second request after the first": b"GET " + BASE + b"/a/x HTTP/1.1\r\n" + HEADER + b"\r\n" + SMUGGLED,
    "kept alive under HTTP/1.0": b"GET " + BASE + b"/a/x HTTP/1.0\r\nConnection: keep-alive\r\n" + HEADER + b"\r\n",
    "a second request as a body": b"GET "
    + BASE
    + b"/a/x HTTP/1.1\r\nContent-Length: 9\r\n"
    + HEADER
    + b"\r\n"
    + SMUGGLED,
    "a line that ends early": b"GET " + BASE + b"/a/x HTTP/1.1\r\nX: y\n" + HEADER + b"\r\n",
    "a bare return": b"GET " + BASE + b"/a/x HTTP/1.1\r\nX: y\r" + HEADER + b"\r\n",
    "a folded header": b"GET " + BASE + b"/a/x HTTP/1.1\r\nX: y\r\n " + HEADER + b"\r\n",
    "two lengths": b"POST " + BASE + b"/a/x HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 9\r\n" + HEADER + b"\r\n",
    "length and chunks": b"POST " + BASE + b"/a/x HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks in disguise": b"POST " + BASE + b"/a/x HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n" + HEADER + b"\r\n",
    "the name of the method elsewhere": b"GET " + BASE + b"/a/x HTTP/1.1\r\nX_HTTP_Method_Override: DELETE\r\n\r\n",
    "another place for a file": b"MOVE " + BASE + b"/a/x HTTP/1.1\r\nDestination: /b/y\r\n" + HEADER + b"\r\n",
    "the path alone": b"GET /b/x HTTP/1.1\r\nHost: 127.0.0.1:@PORT@\r\n" + HEADER + b"\r\n",
    "another host in Host": b"GET " + BASE + b"/a/x HTTP/1.1\r\nHost: evil.example\r\n" + HEADER + b"\r\n",
    "a user name": b"GET http://x@127.0.0.1:@PORT@/b/x HTTP/1.1\r\n" + HEADER + b"\r\n",
    "a number": b"GET http://2130706433:@PORT@/a/x HTTP/1.1\r\n" + HEADER + b"\r\n",
    "IPv6": b"GET http://[::ffff:127.0.0.1]:@PORT@/a/x HTTP/1.1\r\n" + HEADER + b"\r\n",
    "localhost": b"GET http://localhost:@PORT@/a/x HTTP/1.1\r\n" + HEADER + b"\r\n",
    "a port with zeros": b"GET http://127.0.0.1:0@PORT@/b/x HTTP/1.1\r\n" + HEADER + b"\r\n",
    "CONNECT": b"CONNECT 127.0.0.1:@PORT@ HTTP/1.1\r\n" + HEADER + b"\r\n",
    "another coding": b"GET " + BASE + b"/utf16 HTTP/1.1\r\n" + HEADER + b"\r\n",
    "many at once": b"GET " + BASE + b"/a/x HTTP/1.1\r\n" + HEADER * 3 + b"\r\n",
    "a connection that names it": b"GET "
    + BASE
    + b"/a/x HTTP/1.1\r\nConnection: accept-encoding\r\n"
    + HEADER
    + b"\r\n",
}


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def closing_after(handle: Handler, over: asyncio.Event) -> Handler:
    # Before Python 3.12 a server keeps no reference to such a task, so that the collector may destroy it.
    tasks = set()

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await handle(reader, writer)
        finally:
            writer.close()
            over.set()

    return handled


async def test_no_raw_request_gets_more_than_the_one_that_is_permitted(server: int) -> None:
    """Whatever a command writes to the proxy: one request, to that host and path, and a reply without the value."""
    one = credential(server, methods=("GET", "POST", "MOVE"), paths=("/a/*", "/utf16"))
    Server.seen = []
    for name, data in ATTACKS.items():
        over = asyncio.Event()
        through = proxy.Proxy(
            hosts=(), credentials=(CallCredential(credential=one, value=SECRET, placeholder="placeholder"),)
        )
        listening = await asyncio.start_server(closing_after(through.handle, over), "127.0.0.1", 0)
        async with listening:
            reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname()[:2])
            writer.write(data.replace(b"@PORT@", str(server).encode()))
            writer.write_eof()
            told = await reader.read()
            writer.close()
            await asyncio.wait_for(over.wait(), PATIENCE)
        assert SECRET.encode() not in told and SECRET.encode("utf-16-le") not in told, name
    # The host may note a request after the proxy has let go of it, so all are looked at together.
    assert len(Server.seen) <= len(ATTACKS)
    for method, path, headers, body in Server.seen:
        assert path in ("/a/x", "/utf16") and method in ("GET", "POST", "MOVE")
        assert headers["host"] == f"127.0.0.1:{server}"
        assert not {"x_http_method_override", "destination"} & set(headers)
        assert SECRET.encode() not in body


def test_a_value_is_found_over_every_border() -> None:
    use = CallCredential(credential=credential(1), value=SECRET, placeholder="p")
    text = f"a {SECRET} b".encode()
    for cut in range(len(text)):
        scrubber = Scrubber((use,))
        told = scrubber.feed(text[:cut]) + scrubber.feed(text[cut:]) + scrubber.finish()
        assert told == b"a " + b"*" * len(SECRET) + b" b"

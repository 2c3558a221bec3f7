"""A sandboxed command reaches the hosts that its limits name, through the proxy, and nothing else."""

import asyncio
import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from chatops.domain.sandbox import SandboxSpec
from chatops.policy.sandbox import host_problem
from chatops.sandbox.proxy import PORT, Proxy, RefusedError, read_head
from chatops.tools.shell import shell_tools
from tests.support.cases import for_each
from tests.tools.running import needs_sandbox
from tests.tools.toolkit import context_for, done

(SHELL,) = shell_tools()
PUBLIC = "93.184.216.34"


class Server(http.server.BaseHTTPRequestHandler):
    """Notes each request; redirects ``/away``."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Answer a request."""
        type(self).seen.append(f"{self.command} {self.path} {self.headers.get('Host')}")
        body = b"hello"
        self.send_response(302 if self.path == "/away" else 200)
        if self.path == "/away":
            self.send_header("Location", "http://169.254.169.254/latest/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the output of the tests clean."""


@pytest.fixture
def server() -> Iterator[int]:
    Server.seen = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running.server_address[1]
        running.shutdown()


async def asked(request: bytes, *hosts: str, names: dict[str, list[str]] | None = None) -> tuple[str, Proxy]:
    """The answer of a proxy for `hosts` to the bytes of a client. `names`: answers of the name server, one by one."""
    answers = {name: iter(found) for name, found in (names or {}).items()}

    async def resolver(host: str, port: int) -> tuple[str, ...]:
        found = next(answers[host]) if host in answers else ""
        if not found:
            raise OSError("no such name")
        return tuple(found.split())

    proxy = Proxy(hosts=hosts, resolver=resolver)
    handling = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # After the end of input the loop refers to neither connection nor task: both could be collected while waiting.
        handling.append(asyncio.current_task())
        try:
            await proxy.handle(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with listening:
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname()[:2])
        writer.write(request)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
    return answer.decode("utf-8", "replace"), proxy


def get(url: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {url} HTTP/1.1", "Host: ignored.example", *headers, "", ""]).encode()


async def test_a_named_inner_address_is_reached_and_its_requests_are_written_again(server: int) -> None:
    request = get(f"http://127.0.0.1:{server}/a?b", "Proxy-Authorization: secret", "Connection: x-hop", "X-Hop: 1")
    answer, proxy = await asked(request, f"127.0.0.1:{server}")
    assert answer.endswith("hello")
    assert Server.seen == [f"GET /a?b 127.0.0.1:{server}"]
    assert proxy.unreached == []


async def test_a_tunnel_carries_both_directions(server: int) -> None:
    inside = "GET /t HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    request = f"CONNECT 127.0.0.1:{server} HTTP/1.1\r\n\r\n{inside}".encode()
    answer, _ = await asked(request, f"127.0.0.1:{server}")
    assert answer.startswith("HTTP/1.1 200 Connection established")
    assert answer.endswith("hello")


@pytest.mark.some(8)
@pytest.mark.parametrize(
    ("target", "hosts"),
    [
        ("127.0.0.1:{port}", ("127.0.0.1:1", "example.org")),
        ("127.0.0.1:{port}", ("*.0.0.1:{port}",)),
        ("[::ffff:127.0.0.1]:{port}", ("127.0.0.1:{port}",)),
        ("[::ffff:7f00:1]:{port}", ("127.0.0.1:{port}",)),
        ("[::1]:{port}", ("127.0.0.1:{port}",)),
        ("2130706433:{port}", ("127.0.0.1:{port}", "2130706433:{port}")),
        ("0x7f.1:{port}", ("127.0.0.1:{port}", "0x7f.1:{port}")),
        ("0177.0.0.1:{port}", ("0177.0.0.1:{port}",)),
        ("0.0.0.0:{port}", ("127.0.0.1:{port}",)),
        ("127.1:{port}", ("127.0.0.1:{port}", "127.1:{port}")),
        ("localhost:{port}", ("127.0.0.1:{port}", "localhost:{port}")),
        ("inward.example:{port}", ("inward.example:{port}",)),
        ("both.example:{port}", ("both.example:{port}",)),
        ("mapped.example:{port}", ("mapped.example:{port}",)),
        ("169.254.169.254:80", ("example.org",)),
        ("mail.example:25", ("mail.example",)),
        ("other.example:443", ("example", "xother.example", "*.other.example")),
    ],
)
@pytest.mark.parametrize("form", ["CONNECT", "GET"])
async def test_inner_addresses_and_other_ports_are_refused(
    server: int, target: str, hosts: tuple[str, ...], form: str
) -> None:
    target = target.format(port=server)
    names = {
        "inward.example": ["127.0.0.1"],
        "both.example": [f"{PUBLIC} 127.0.0.1"],
        "mapped.example": ["::ffff:127.0.0.1"],
        "mail.example": [PUBLIC],
        "other.example": [PUBLIC],
    }
    request = f"CONNECT {target} HTTP/1.1\r\n\r\n".encode() if form == "CONNECT" else get(f"http://{target}/")
    answer, proxy = await asked(request, *(host.format(port=server) for host in hosts), names=names)
    assert answer.startswith("HTTP/1.1 403")
    assert len(proxy.unreached) == 1
    assert Server.seen == []


async def test_a_name_is_resolved_once_and_the_checked_address_is_dialled(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled: list[tuple[str, int]] = []

    async def connect(host: str, port: int) -> None:
        dialled.append((host, port))
        raise OSError

    proxy_names = {"rebinding.example": [PUBLIC, "127.0.0.1"]}
    opened = asyncio.open_connection
    monkeypatch.setattr(
        "chatops.sandbox.proxy.asyncio.open_connection",
        lambda host=None, port=None, **more: connect(host, port) if host == PUBLIC else opened(host, port, **more),
    )
    request = get("http://rebinding.example/")
    answer, _ = await asked(request, "rebinding.example", names=proxy_names)
    assert answer.startswith("HTTP/1.1 502")
    assert dialled == [(PUBLIC, 80)]


@pytest.mark.some(5)
@pytest.mark.parametrize(
    "request_",
    [
        b"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 30\r\n\r\nabc",
        b"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n",
        b"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nA: b\r\n folded: c\r\n\r\n",
        b"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nA: b\nHost: c\r\n\r\n",
        b"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nA: b\0c\r\n\r\n",
        b"GET http://127.0.0.1:{port}\0.example.org/ HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1:{port}\0.example.org:443 HTTP/1.1\r\n\r\n",
        b"CONNECT user@127.0.0.1:{port} HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
        b"CONNECT [::1%25lo]:{port} HTTP/1.1\r\n\r\n",
        b"GET http://a@127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
        b"GET http://127.0.0.1:{port}\\@x/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        b"GET https://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
        b"GET ftp://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
        b"GET  http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
        b"GET http://127.0.0.1:{port}/ HTTP/2.0\r\n\r\n",
        b"A: " + b"x" * 40_000 + b"\r\n\r\n",
    ],
)
async def test_a_request_that_could_be_read_in_two_ways_is_refused(server: int, request_: bytes) -> None:
    port = str(server).encode()
    answer, _ = await asked(request_.replace(b"{port}", port), f"127.0.0.1:{server}")
    assert answer.startswith("HTTP/1.1 400")
    assert Server.seen == []


async def test_nothing_follows_the_body(server: int) -> None:
    second = get(f"http://127.0.0.1:{server}/second")
    answer, _ = await asked(get(f"http://127.0.0.1:{server}/first") + second, f"127.0.0.1:{server}")
    assert answer.count("HTTP/1.1 200") == 1
    assert [line.split()[1] for line in Server.seen] == ["/first"]


def test_the_connection_header_cannot_drop_the_length() -> None:
    head = read_head(b"POST http://a.example/ HTTP/1.1\r\nContent-Length: 3\r\nConnection: content-length\r\n\r\n")
    assert head.length == 3
    with pytest.raises(RefusedError):
        read_head(b"POST http://a.example/ HTTP/1.1\r\nContent-Length: +3\r\n\r\n")


@for_each(
    ("entry", "fine"),
    [
        ("example.org", True),
        ("*.example.org", True),
        ("example.org:8443", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("127.0.0.1", False),
        ("::1", False),
        ("2130706433:80", False),
        ("0x7f.1:80", False),
        ("0177.0.0.1:80", False),
        ("*", False),
        ("*.org", False),
        ("a.*.org", False),
        ("localhost:80", False),
        ("https://example.org", False),
        ("example.org:0", False),
        ("example.org:99999", False),
        ("example.org:", False),
        ("a b.org", False),
        ("ex\0ample.org", False),
    ],
)
def test_entries_of_hosts_are_checked(entry: str, fine: bool) -> None:
    assert (host_problem(entry) == "") is fine


async def ran(workspace: Path, command: str, *hosts: str) -> str:
    result = await done(SHELL, context_for(workspace, sandbox=SandboxSpec(hosts=hosts)), {"command": command})
    return f"{result.outcome} {result.content} {list(result.facts.refused_hosts)}"


FETCH = (
    'python3 -c "import urllib.request as u, sys; print(u.urlopen(sys.argv[1], timeout=5).read().decode())" '
    "http://127.0.0.1:{port}{path}"
)


@needs_sandbox
async def test_a_command_reaches_the_named_host_only(tmp_path: Path, server: int) -> None:
    named = f"127.0.0.1:{server}"
    assert "success hello" in await ran(tmp_path, FETCH.format(port=server, path="/"), named)
    other = await ran(tmp_path, FETCH.format(port=server + 1, path="/"), named)
    assert "403" in other
    assert f"not reachable from the sandbox: 127.0.0.1:{server + 1}" in other
    assert "169.254.169.254:80" in await ran(tmp_path, FETCH.format(port=server, path="/away"), named)
    direct = f"unset http_proxy HTTP_PROXY; {FETCH.format(port=server, path='/direct')}"
    assert "failed" in await ran(tmp_path, direct, named)
    assert "/direct" not in str(Server.seen)
    assert "failed" in await ran(
        tmp_path, f"exec 3<>/dev/udp/127.0.0.1/{server} && echo x >&3 && sh -c 'exit 3'", named
    )


@needs_sandbox
def test_a_push_to_a_named_remote_succeeds(tmp_path: Path) -> None:
    backend = Path(subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip())
    bare, workspace = tmp_path / "srv" / "r.git", tmp_path / "ws"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(bare)], check=True)
    subprocess.run(["git", "-C", str(bare), "config", "http.receivepack", "true"], check=True)
    script = (
        "import http.server, os, subprocess, sys\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        path, _, query = self.path.partition('?')\n"
        "        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))\n"
        "        env = {**os.environ, 'GIT_PROJECT_ROOT': sys.argv[1], 'GIT_HTTP_EXPORT_ALL': '1', 'PATH_INFO': path,\n"
        "            'QUERY_STRING': query, 'REQUEST_METHOD': self.command, 'REMOTE_USER': 'a', 'REMOTE_ADDR': 'x',\n"
        "            'CONTENT_TYPE': self.headers.get('Content-Type', ''), 'CONTENT_LENGTH': str(len(body)),\n"
        "            'HTTP_CONTENT_ENCODING': self.headers.get('Content-Encoding', '')}\n"
        "        out = subprocess.run([sys.argv[2]], input=body, env=env, capture_output=True).stdout\n"
        "        head, _, rest = out.partition(b'\\r\\n\\r\\n')\n"
        "        self.wfile.write(b'HTTP/1.0 200 OK\\r\\n' + head + b'\\r\\n\\r\\n' + rest)\n"
        "    do_POST = do_GET\n"
        "s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n"
        "print(s.server_address[1], flush=True); s.serve_forever()\n"
    )
    argv = [sys.executable, "-c", script, str(bare.parent), str(backend / "git-http-backend")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        try:
            assert running.stdout is not None
            port = int(running.stdout.readline())
            subprocess.run(["git", "clone", "-q", str(bare), str(workspace)], check=True, capture_output=True)
            who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
            for words in (
                ["remote", "set-url", "origin", f"http://127.0.0.1:{port}/r.git"],
                [*who, "commit", "-qm", "first", "--allow-empty"],
            ):
                subprocess.run(["git", "-C", str(workspace), *words], check=True)
            assert "failed" in asyncio.run(ran(workspace, "git push -q origin HEAD:main"))
            named = f"127.0.0.1:{port}"
            assert "success" in asyncio.run(ran(workspace, "git push -q origin HEAD:main", named))
        finally:
            running.kill()
    log = subprocess.run(["git", "-C", str(bare), "log", "--format=%s", "main"], capture_output=True, text=True)
    assert log.stdout == "first\n"


async def test_more_connections_than_the_proxy_takes_wait_for_one_to_end() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        ours, theirs = socket.socketpair()
        socket.send_fds(theirs, [b"x"], [listener.fileno()])
        async with Proxy(hosts=()).serving(ours):
            address = listener.getsockname()
            clients = [await asyncio.open_connection(*address) for _ in range(65)]
            clients[64][1].write(b"nonsense\r\n\r\n")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await clients[64][0].read()
            clients[0][1].write(b"nonsense\r\n\r\n")
            for number in (0, 64):
                assert b"400" in await clients[number][0].read()
            for _, writer in clients:
                writer.close()
        ours.close()
        theirs.close()


@needs_sandbox
async def test_the_variables_name_the_proxy(tmp_path: Path) -> None:
    seen = await ran(tmp_path, "env", "example.org")
    for name in ("http_proxy", "HTTPS_PROXY"):
        assert f"{name}=http://127.0.0.1:{PORT}" in seen
    assert "PROXY" not in await ran(tmp_path, "env")
    assert not [name for name in os.environ if name.lower() == "http_proxy"]

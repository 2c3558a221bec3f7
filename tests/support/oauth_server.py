"""An MCP server over HTTP that wants a login, and its authorization server at another origin, both on loopback.

The authorization server checks what RFC 6749, 7636, 7591 and 8707 ask of it: the registered redirect address, the
verifier of the code, that a code or refresh token is used once, and the resource. `World.seen` holds every request.
"""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit


@dataclass
class Accounts:
    """State of both servers. Tests change it to make them refuse or lie."""

    server: str = ""
    """Origin of the MCP server."""
    issuer: str = ""
    """Origin of the authorization server."""
    clients: dict[str, list[str]] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    access: set[str] = field(default_factory=set)
    refresh: set[str] = field(default_factory=set)
    expires_in: int = 3600
    denies: bool = False
    """The user refuses at the login page."""
    metadata: dict[str, str] = field(default_factory=dict)
    """Metadata of the authorization server that differ from the usual ones."""
    answers: dict[str, tuple[int, str, dict[str, str]]] = field(default_factory=dict)
    """Status, body and headers with which the authorization server answers at a path instead."""
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Origin, path and headers of each request."""

    def paths(self, origin: str) -> list[str]:
        """Return the paths that were asked for at `origin`."""
        return [path for at, path, _ in self.seen if at == origin]

    def tokens(self) -> dict[str, Any]:
        """Return new tokens."""
        access, refresh = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.access.add(access)
        self.refresh.add(refresh)
        return {
            "access_token": access,
            "refresh_token": refresh,
            "token_type": "Bearer",
            "expires_in": self.expires_in,
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    accounts: Accounts
    origin: str

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""

    def answer(self, status: int, value: object = None, **headers: str) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        if body:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> tuple[str, bytes]:
        """Note the request; return path and body."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = urlsplit(self.path).path
        headers = {name.lower(): text for name, text in self.headers.items()}
        self.accounts.seen.append((self.origin, path, headers))
        return path, body


class _Resource(_Handler):
    """The MCP server (2025-11-25), with one tool."""

    def do_GET(self) -> None:
        path, _ = self.begin()
        if path == "/.well-known/oauth-protected-resource":
            accounts = self.accounts
            self.answer(200, {"resource": f"{self.origin}/mcp", "authorization_servers": [accounts.issuer]})
        else:
            self.answer(405 if path == "/mcp" else 404)

    def do_DELETE(self) -> None:
        self.begin()
        self.answer(200)

    def do_POST(self) -> None:
        _, body = self.begin()
        if self.headers.get("authorization", "").removeprefix("Bearer ") not in self.accounts.access:
            where = f"{self.origin}/.well-known/oauth-protected-resource"
            self.answer(401, {"error": "login"}, WWW_Authenticate=f'Bearer resource_metadata="{where}"')
            return
        message = json.loads(body)
        if "id" not in message:
            self.answer(202)
            return
        result: dict[str, Any] | None = None
        match message["method"]:
            case "initialize":
                info = {"name": "s", "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = {"tools": [{"name": "whoami", "description": "Says it.", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": "you"}]}
        failure = {"error": {"code": -32601, "message": "Method not found"}}
        self.answer(200, {"jsonrpc": "2.0", "id": message["id"], **({"result": result} if result else failure)})


class _Authorization(_Handler):
    def lies(self, path: str) -> bool:
        """Answer as the test has set it; return False if it has set nothing."""
        if path not in self.accounts.answers:
            return False
        status, text, headers = self.accounts.answers[path]
        body = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "text/html", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        return True

    def do_GET(self) -> None:
        path, _ = self.begin()
        if self.lies(path):
            return
        if path == "/.well-known/oauth-authorization-server":
            here = self.origin
            value = {
                "issuer": here,
                "authorization_endpoint": f"{here}/authorize",
                "token_endpoint": f"{here}/token",
                "registration_endpoint": f"{here}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
            self.answer(200, value | self.accounts.metadata)
        elif path == "/authorize":
            self._authorize(dict(parse_qsl(urlsplit(self.path).query)))
        else:
            self.answer(404)

    def _authorize(self, asked: dict[str, str]) -> None:
        redirect = asked["redirect_uri"]
        if redirect not in self.accounts.clients.get(asked["client_id"], ()):
            self.answer(400, {"error": "invalid_redirect_uri"})
            return
        back = {"state": asked["state"], "iss": self.origin}
        if self.accounts.denies:
            back["error"] = "access_denied\x1b[2J"
        else:
            back["code"] = secrets.token_hex(8)
            self.accounts.codes[back["code"]] = asked
        self.answer(302, Location=f"{redirect}?{urlencode(back)}")

    def do_POST(self) -> None:
        path, body = self.begin()
        if self.lies(path):
            return
        if path == "/register":
            asked = json.loads(body)
            client = secrets.token_hex(8)
            self.accounts.clients[client] = asked["redirect_uris"]
            self.answer(201, {**asked, "client_id": client, "token_endpoint_auth_method": "none"})
        elif path == "/token":
            tokens = self._tokens(dict(parse_qsl(body.decode())))
            self.answer(200 if tokens else 400, tokens or {"error": "invalid_grant"})
        else:
            self.answer(404)

    def _tokens(self, form: dict[str, str]) -> dict[str, Any] | None:
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self.accounts.refresh:
                return None
            self.accounts.refresh.remove(form["refresh_token"])
            return self.accounts.tokens()
        asked = self.accounts.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or challenge != asked["code_challenge"] or form["resource"] != f"{self.accounts.server}/mcp":
            return None
        return self.accounts.tokens()


@contextmanager
def serving() -> Iterator[Accounts]:
    """Serve both for as long as the block runs."""
    accounts = Accounts()
    running = []
    for base, name in ((_Resource, "server"), (_Authorization, "issuer")):
        handler = type(name, (base,), {"accounts": accounts})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        origin = f"http://127.0.0.1:{server.server_port}"
        handler.origin = origin  # type: ignore[attr-defined]
        setattr(accounts, name, origin)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        running.append((server, thread))
    try:
        yield accounts
    finally:
        for server, thread in running:
            server.shutdown()
            thread.join()
            server.server_close()

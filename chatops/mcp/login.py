"""OAuth logins at a server: made by `log_in` while the user waits, used and renewed by `StoredAuth`.

Imports the SDK, which has the protocol (PKCE, discovery, registration: MCP authorization, RFC 7591, 8414, 8707, 9207):
import this module in a thread. Discovery follows addresses that a server names, so it happens only in `log_in`, which
the user starts. A connection sends the stored token to the server's own origin, and asks only the stored token endpoint
for a new one, see `origin`.
"""

import asyncio
import fcntl
import math
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import types
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from chatops.config.paths import opened, write_private
from chatops.domain import __version__
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.known_keys import add_known_keys
from chatops.mcp.catalogue import login_file
from chatops.mcp.inbound import Lost
from chatops.mcp.origin import Origin
from chatops.mcp.process import ServerStartError
from chatops.models.hosts import is_loopback
from chatops.policy.servers import McpServerSpec, ServerTransport
from chatops.toolkit.output import visible
from chatops.toolkit.threads import in_thread

LOGIN_S = 600.0
"""Seconds that the user has to log in."""
_RENEW_S = 30.0
"""Seconds for a renewal, with the wait for one in another process."""
_LOCK_S = 0.05
"""Seconds between two tries to get the lock that another process holds."""
_READ_S = 10.0
"""Seconds in which the browser has to send its request."""
_MAX_REQUEST = 16_384
"""Bytes of the browser's request line and headers."""
_MAX_URL = 8_000
"""Characters of the address that the user has to open."""
_NOT_IN_A_TOKEN = re.compile(r'[\s"\\{}\[\],]')
"""Characters that no token has (RFC 6750). A key with one could also be a part of JSON, which hiding it would break."""
_LONG_AGO = 1.0
"""A Unix time at which a token ends, for the SDK to renew it now. It takes 0 for "not known"."""
_Answers = asyncio.Queue[dict[str, str]]
"""The parameters of each answer that the browser has sent."""
_CALLBACK = "/callback"
_VERSION_HEADER = "mcp-protocol-version"
_PAGE = b"<!doctype html><meta charset=utf-8><title>chatops</title><p>Close this page and go back to chatops.</p>"


class LoginError(httpx2.RequestError):
    """Raised for a request that lacks a login which the server accepts, or whose login cannot be renewed now.

    An error of the HTTP client, because it is raised inside of its requests, where the SDK expects no other.
    """


class StoredLogin(BaseModel):
    """A login as it is stored, bound to the URL of its server."""

    url: str
    tokens: OAuthToken
    client: OAuthClientInformationFull
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None
    expires_at: float | None = None
    """Unix time at which the access token ends; None: not known."""


class StoredAuth(httpx2.Auth):
    """Sends the stored access token, and renews it with its refresh token. Never starts a login.

    Many servers take a refresh token once, and end the login if it comes again (RFC 9700, section 4.14.2). So one
    process renews at a time, and the others take what it has stored. A renewal goes on if the call that needs it stops.
    """

    def __init__(self, spec: McpServerSpec, records: Path, lost: Lost) -> None:
        """Read the stored login. Raises LoginError if there is none for the URL of `spec`.

        `lost` gets the reason for which a request was given up.
        """
        self._spec = spec
        self._lost = lost
        command = f"run: chatops mcp login {spec.name}"
        self._needs_login = f"it needs a login; {command}"
        self._has_ended = f"its login was revoked or has ended; {command}"
        self._path = login_file(records, spec.name)
        self._stored = self._read()
        self._renewal: asyncio.Task[None] | None = None

    def _read(self) -> StoredLogin:
        try:
            stored = StoredLogin.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            raise LoginError(self._needs_login) from None
        if stored.url != self._spec.url:
            # It is for a server that had this name before.
            raise LoginError(self._needs_login)
        _hide_keys(stored.tokens, stored.client)
        return stored

    def allows(self, request: httpx2.Request) -> bool:
        """Return True for a request to the token endpoint, which may be at another host than the server."""
        metadata = self._stored.metadata
        return metadata is not None and str(request.url) == str(metadata.token_endpoint)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send `request` with the token, renewed if it has ended, and once more if the server does not accept it.

        Raises LoginError.
        """
        try:
            if self._stored.tokens.refresh_token and time.time() > (self._stored.expires_at or math.inf):
                await self._renew()
            response = yield self._with_token(request)
            if response.status_code == HTTPStatus.UNAUTHORIZED and self._stored.tokens.refresh_token:
                await self._renew()
                response = yield self._with_token(request)
            if response.status_code == HTTPStatus.UNAUTHORIZED:
                raise LoginError(self._has_ended)
            if response.status_code == HTTPStatus.FORBIDDEN:
                raise LoginError(self._needs_login)
        except LoginError as error:
            # The SDK keeps it to itself, and only ends the connection.
            self._lost.reason = str(error)
            raise

    def _with_token(self, request: httpx2.Request) -> httpx2.Request:
        request.headers["authorization"] = f"Bearer {self._stored.tokens.access_token}"
        return request

    async def settle(self) -> None:
        """Wait until no renewal runs: one that is cut off would lose the login."""
        if self._renewal is not None:
            await asyncio.wait((self._renewal,))

    async def _renew(self) -> None:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew_alone(), name=f"login of {self._spec.name}")
            # Asks for an error that no one waits for any more: asyncio would log it.
            self._renewal.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._renewal)

    async def _renew_alone(self) -> None:
        spent = self._stored.tokens
        try:
            async with asyncio.timeout(_RENEW_S), _renewal_lock(self._path):
                login = await in_thread(self._read)
                # If the tokens differ, another process has renewed them.
                if login.tokens == spent:
                    tokens = await self._exchange(login)
                    login = await in_thread(self._read)
                    # The login may have been replaced by another one meanwhile.
                    if login.tokens == spent:
                        _hide_keys(tokens, login.client)
                        login = login.model_copy(update={"tokens": tokens, "expires_at": _expiry(tokens)})
                        await in_thread(_write_login, self._path, login)
        except TimeoutError:
            raise LoginError("its login cannot be renewed now: no answer in time") from None
        self._stored = login

    async def _exchange(self, stored: StoredLogin) -> OAuthToken:
        """Exchange the refresh token. Raises LoginError."""
        # The metadata has to name an address for the browser's answer. A renewal uses none.
        metadata = _client_metadata(redirect_uri=stored.url)
        provider = OAuthClientProvider(stored.url, metadata, storage=_Storage(stored.tokens, stored.client))
        context = provider.context
        # The SDK reads only the tokens and the client from its storage: it would neither renew nor know where.
        context.token_expiry_time = _LONG_AGO
        context.oauth_metadata = stored.metadata
        context.protected_resource_metadata = stored.resource
        request = httpx2.Request("POST", stored.url, headers={_VERSION_HEADER: types.LATEST_PROTOCOL_VERSION})
        async with (
            aclosing(provider.async_auth_flow(request)) as flow,
            Origin(self._spec, allows=self.allows).client() as client,
        ):
            # The flow yields requests of the renewal until it is over, and then `request` itself, which is not sent.
            wanted = await anext(flow)
            while wanted is not request:
                response = await client.send(wanted)
                if response.is_server_error or response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
                    raise LoginError(f"its login cannot be renewed now: HTTP status {response.status_code}")
                wanted = await flow.asend(response)
        if context.current_tokens is None:
            raise LoginError(self._has_ended)
        return context.current_tokens


@asynccontextmanager
async def _renewal_lock(path: Path) -> AsyncIterator[None]:
    """Keep other processes from renewing the login at `path`."""
    with opened(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC) as descriptor:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_S)
        yield


@frozen_dataclass(kw_only=False)
class _Storage:
    """The stored login, for the SDK to read. Nothing is written, because the login can still fail."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None: ...

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None: ...


def _hide_keys(tokens: OAuthToken, client: OAuthClientInformationFull) -> None:
    """Have these keys hidden in all output, unless one could also be a word or JSON syntax."""
    given = (tokens.access_token, tokens.refresh_token or "", client.client_secret or "")
    add_known_keys(
        *(
            key
            for key in given
            if not _NOT_IN_A_TOKEN.search(key) and (key != key.lower() or any(map(str.isdigit, key)))
        )
    )


async def log_in(spec: McpServerSpec, records: Path, *, show: Callable[[str], None]) -> None:
    """Log in at a server: show the address to open, wait for the browser's answer, and store the tokens.

    Each login registers chatops again, because the port of the answer differs. An earlier login stays until this one is
    complete. Raises ServerStartError with the reason, ConfigError, and errors of HTTP and of the SDK.
    """
    async with asyncio.timeout(LOGIN_S), _listen_for_browser() as (address, answers):
        browser = _BrowserLogin(spec, answers, show=show)
        provider = OAuthClientProvider(
            spec.url,
            _client_metadata(address),
            storage=_Storage(),
            redirect_handler=browser.open,
            callback_handler=browser.answer,
        )
        # Discovery asks whatever may be the address of an authorization server.
        origin = Origin(spec, auth=provider, allows=lambda request: _may_be_asked(str(request.url), spec))
        async with origin.client() as client:
            status = await _request_login(client, spec)
        await in_thread(_write_login, login_file(records, spec.name), _new_login(spec, provider.context, status))


class _BrowserLogin:
    """The user's part of a login, which the SDK asks for: an address to open, and the answer that comes back."""

    def __init__(self, spec: McpServerSpec, answers: _Answers, *, show: Callable[[str], None]) -> None:
        self._spec = spec
        self._answers = answers
        self._show = show
        self._state = ""
        """A random value in the address, which the answer to it repeats."""

    async def open(self, url: str) -> None:
        """Show the address. Raises ServerStartError if it is none that a user should open."""
        if not (_may_be_asked(url, self._spec) and len(url) <= _MAX_URL and url.isascii() and url.isprintable()):
            raise ServerStartError(f"its login page is not at a https address: {visible(url)}")
        self._state = next(iter(parse_qs(urlsplit(url).query).get("state", ())), "")
        self._show(url)

    async def answer(self) -> AuthorizationCodeResult:
        """Wait for the answer to the address. Raises ServerStartError if it is a refusal."""
        while True:
            found = await self._answers.get()
            # Any page in the browser can send an answer here.
            if found.get("state") != self._state:
                continue
            if refusal := found.get("error"):
                raise ServerStartError(f"the login was refused: {visible(refusal)}")
            return AuthorizationCodeResult(code=found.get("code", ""), state=self._state, iss=found.get("iss"))


def _new_login(spec: McpServerSpec, context: OAuthContext, status: int) -> StoredLogin:
    """Return what is to be stored. Raises ServerStartError if the first request led to no login that works.

    `status` is the HTTP status of its last answer, after the login if there was one.
    """
    if context.current_tokens is None or context.client_info is None:
        raise ServerStartError(f"it asked for no login (HTTP status {status})")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise ServerStartError(f"it does not accept the token that the login gave (HTTP status {status})")
    _hide_keys(context.current_tokens, context.client_info)
    return StoredLogin(
        url=spec.url,
        tokens=context.current_tokens,
        client=context.client_info,
        metadata=context.oauth_metadata,
        resource=context.protected_resource_metadata,
        expires_at=_expiry(context.current_tokens),
    )


async def _request_login(client: httpx2.AsyncClient, spec: McpServerSpec) -> int:
    """Send the first request of a connection, for which the server demands a login. Return the HTTP status at the end.

    The client makes the login on that demand, and sends the request again.
    """
    if spec.transport is ServerTransport.SSE:
        async with client.stream("GET", spec.url, headers={"accept": "text/event-stream"}) as response:
            return response.status_code
    params = types.InitializeRequestParams(
        protocol_version=types.LATEST_PROTOCOL_VERSION,
        capabilities=types.ClientCapabilities(),
        client_info=types.Implementation(name="chatops", version=__version__),
    )
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": params.model_dump(by_alias=True, mode="json", exclude_none=True),
    }
    headers = {"accept": "application/json, text/event-stream", _VERSION_HEADER: types.LATEST_PROTOCOL_VERSION}
    async with client.stream("POST", spec.url, json=body, headers=headers) as response:
        return response.status_code


@asynccontextmanager
async def _listen_for_browser() -> AsyncIterator[tuple[str, _Answers]]:
    """Yield a loopback address for the browser's answer (RFC 8252, section 7.3), and the answers that come there."""
    answers: _Answers = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, *_ = head.decode("latin-1").split(" ", 2)
                parts = urlsplit(target)
                known = method == "GET" and parts.path == _CALLBACK
                status, page = (b"200 OK", _PAGE) if known else (b"404 Not Found", b"")
                writer.write(
                    b"HTTP/1.1 " + status + b"\r\nContent-Type: text/html\r\nReferrer-Policy: no-referrer\r\n"
                    b"Connection: close\r\nContent-Length: " + str(len(page)).encode() + b"\r\n\r\n" + page
                )
                await writer.drain()
            if known:
                answers.put_nowait({name: values[0] for name, values in parse_qs(parts.query).items()})
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_MAX_REQUEST)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_CALLBACK}", answers
    finally:
        server.close()


def _client_metadata(redirect_uri: str) -> OAuthClientMetadata:
    return OAuthClientMetadata(client_name="chatops", redirect_uris=[AnyUrl(redirect_uri)])


def _may_be_asked(url: str, spec: McpServerSpec) -> bool:
    """Return True for an https address, or one of this machine if the server is on it."""
    try:
        parts = urlsplit(url)
        here = is_loopback(parts.hostname or "") and is_loopback(urlsplit(spec.url).hostname or "")
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and here)


def _expiry(tokens: OAuthToken) -> float | None:
    return None if tokens.expires_in is None else time.time() + tokens.expires_in


def _write_login(path: Path, login: StoredLogin) -> None:
    write_private(path, login.model_dump_json(exclude_none=True).encode())

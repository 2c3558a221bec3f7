"""One server as the SDK connects to it: `AsyncOpenAI` over our own HTTP client.

Requests go through the client's `post()` with bytes that are already JSON. Its `create()` would walk every message of
the history on each call. Only our own headers are sent: the SDK adds headers from OPENAI_* environment variables, which
are meant for another provider, so every header that we did not set is removed right before sending. Redirects are not
followed, and the SDK's own retries are off.

`import openai` loads over 500 modules, and most of them describe requests and responses of single endpoints. Ours are
bytes, and those types took half of the time between the start of `chatops -p` and its first request. So `openai` is
imported here with the packages that collect them empty. Each is executed when a name is taken from it, so that a tool
or a program that uses the SDK itself finds everything in place.

Importing this module imports openai and httpx2 (about half a second), so other modules import it only inside functions.
"""

import ssl
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx2

from chatops.domain.canonical import JsonValue
from chatops.domain.errors import ConfigError
from chatops.models.hosts import is_loopback
from chatops.models.keys import Secret
from chatops.models.wire import encode
from chatops.policy.registry import ModelSpec

ERROR_BODY_LIMIT = 64 * 1024
"""Bytes of a response with an error status that are read."""
LISTING_LIMIT = 8 * 1024 * 1024
"""Bytes of a list of models that are read: no server can fill the memory. A longer list is cut, and is no JSON."""
_KEPT_OF_SDK = frozenset(
    {"host", "accept", "accept-encoding", "connection", "content-type", "content-length", "transfer-encoding"}
)
_NOT_IN_REGISTRY = frozenset({"host", "content-length", "transfer-encoding", "connection"})
"""Headers that a registry cannot set: they decide how the request is read."""
_LATE_PACKAGES = frozenset({"openai.types", "openai.types.chat", "openai.types.responses"})


class _OnDemand(ModuleType):
    """A package that is executed when the first name is taken from it."""

    def __init__(self, name: str, loader: Loader) -> None:
        super().__init__(name)
        self.__dict__["_waiting"] = loader
        self.__dict__["_lock"] = RLock()

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are missing. `__all__` is asked for by `import *`; other dunder names name nothing
        # in these packages.
        if name == "__all__" or not name.startswith("__"):
            with self.__dict__["_lock"]:
                waiting: Loader | None = self.__dict__.pop("_waiting", None)
                if waiting is not None:
                    waiting.exec_module(self)
                if name in self.__dict__:
                    return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _LateLoader(Loader):
    """A loader that makes an `_OnDemand` package and leaves its execution to it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _OnDemand(spec.name, self._loader)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _LateFinder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in _LATE_PACKAGES else None
        if spec is not None and spec.loader is not None:
            spec.loader = _LateLoader(spec.loader)
        return spec


@contextmanager
def _types_on_demand() -> Iterator[None]:
    """Import `_LATE_PACKAGES` without executing them, while the block runs."""
    finder = _LateFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with _types_on_demand():
    import openai as openai


def proxy_for(url: str) -> str:
    """Return the proxy that the environment sets for `url`; empty for addresses of this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return ""
    proxies = urllib.request.getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all") or ""
    return found if "://" in found or not found else f"http://{found}"


class StatusError(Exception):
    """The server answered with an error status; `body` is the beginning of the response."""

    def __init__(self, status: int, *, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers
        self.body = body


class UnknownEncodingError(Exception):
    """The body uses a compression that was not requested and cannot be decoded. The message names it."""


class ServerConnection:
    """A server and its connection pool. `transport` replaces the network."""

    def __init__(
        self, spec: ModelSpec, *, url: str, agent: str, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        # A query (some gateways want a version there) is appended to the path of each request.
        self._url, _, query = url.partition("?")
        self._query = f"?{query}" if query else ""
        self._agent = agent
        self._headers = _own_headers(spec)
        self._timeout = httpx2.Timeout(None, connect=spec.timeout_s.connect)
        try:
            self._http = httpx2.AsyncClient(
                transport=transport,
                verify=_tls_context(url, ca_file=spec.ca_file),
                timeout=self._timeout,
                follow_redirects=False,
                trust_env=not is_loopback(urlsplit(url).hostname or ""),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=30.0),
                event_hooks={"request": [self._send_only_ours], "response": [_raise_for_errors]},
            )
        except (ImportError, ValueError, httpx2.InvalidURL) as error:
            raise ConfigError(
                f"The connection to {urlsplit(url).hostname} cannot be set up: {error}",
                advice="Check api_url in the registry, and HTTPS_PROXY, HTTP_PROXY and ALL_PROXY in the environment.",
            ) from None
        self._clients: dict[str, openai.AsyncOpenAI] = {}

    async def post(self, path: str, *, body: bytes, key: Secret) -> httpx2.Response:
        """Return the response with its headers read and its body not read.

        Raises StatusError and network errors.
        """
        return await self._client(key).post(
            path + self._query,
            cast_to=httpx2.Response,
            content=body,
            options={"headers": {"Content-Type": "application/json"}, "timeout": self._timeout},
            stream=True,
        )

    async def get(self, path: str, *, key: Secret, timeout_s: float) -> bytes:
        """Return the body, up to `LISTING_LIMIT`. `path` is below the base URL, or an address on the same host.

        Raises StatusError and network errors.
        """
        response = await self._client(key).get(
            path + self._query, cast_to=httpx2.Response, options={"timeout": httpx2.Timeout(timeout_s)}, stream=True
        )
        return await _read_listing(response)

    async def ask(self, path: str, value: JsonValue, *, key: Secret) -> bytes:
        """Post `value` as JSON; return the body of the answer, up to `LISTING_LIMIT`. Raises the same as `get`."""
        return await _read_listing(await self.post(path, body=encode(value), key=key))

    async def aclose(self) -> None:
        """Close all connections."""
        self._clients.clear()
        await self._http.aclose()

    def _client(self, key: Secret) -> openai.AsyncOpenAI:
        text = key.reveal()
        if text not in self._clients:
            self._clients.clear()
            self._clients[text] = openai.AsyncOpenAI(
                api_key=text,
                # Empty, not None: with None the SDK reads them from the environment. The same holds for the webhook's
                # secret.
                admin_api_key="",
                organization="",
                project="",
                webhook_secret="",
                base_url=self._url,
                max_retries=0,
                timeout=self._timeout,
                default_headers={"Authorization": f"Bearer {text}"},
                http_client=self._http,
            )
        return self._clients[text]

    async def _send_only_ours(self, request: httpx2.Request) -> None:
        authorization = request.headers.get("authorization", "")
        for name in {name.lower() for name in request.headers} - _KEPT_OF_SDK:
            del request.headers[name]
        request.headers["authorization"] = authorization
        request.headers["user-agent"] = self._agent
        request.headers["accept"] = "text/event-stream, application/json"
        request.headers.update(self._headers)


async def _raise_for_errors(response: httpx2.Response) -> None:
    """Raise UnknownEncodingError or StatusError. An error is read with a size limit: the SDK would read all of it."""
    understood = {*_encodings(response.request.headers.get("accept-encoding", "")), "identity"}
    used = _encodings(response.headers.get("content-encoding", ""))
    if unknown := [encoding for encoding in used if encoding not in understood]:
        raise UnknownEncodingError(", ".join(unknown))
    if response.status_code >= 300:
        headers = {name.lower(): value for name, value in response.headers.items()}
        body = await _read_beginning(response, limit=ERROR_BODY_LIMIT)
        raise StatusError(response.status_code, headers=headers, body=body)


def _encodings(header: str) -> list[str]:
    return [word for part in header.split(",") if (word := part.partition(";")[0].strip().lower())]


async def _read_listing(response: httpx2.Response) -> bytes:
    try:
        return await _read_beginning(response, limit=LISTING_LIMIT)
    finally:
        await response.aclose()


async def _read_beginning(response: httpx2.Response, *, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size >= limit:
            break
    return b"".join(parts)[:limit]


def _own_headers(spec: ModelSpec) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in spec.headers:
        if not (name.isascii() and name.isprintable() and name and value.isascii() and value.isprintable()):
            raise ConfigError(
                f"The header {name!r} of model {spec.name!r} has characters that no header may have.",
                advice="Correct it in the registry; chatops registry check shows its place.",
            )
        if name.lower() not in _NOT_IN_REGISTRY:
            headers[name.lower()] = value
    return headers


def _tls_context(url: str, *, ca_file: str) -> ssl.SSLContext | bool:
    if urlsplit(url).scheme == "http":
        # Never used, because redirects are not followed. Building the usual one would read all certificates.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The certificate file {ca_file} cannot be used: {error.strerror or error}.",
            advice="Check ca_file in the registry: it has to be a PEM file.",
        ) from None

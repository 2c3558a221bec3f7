"""HTTP to one server: requests go to its own origin, with the headers of its entry, and answers are limited in size."""

import os
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2

from chatops.mcp.process import MAX_LINE, ServerStartError, expand_variables
from chatops.models.hosts import is_loopback
from chatops.policy.servers import McpServerSpec

_CONNECT_S = 10.0
"""Seconds for a connection, less than a start may take (`connection.CONNECT_S`), so that the reason is known."""
_SILENCE_S = 300.0
"""Seconds without a byte after which a stream counts as broken. Calls have a limit of their own."""
_EVENT_STREAM = "text/event-stream"
"""Content type of a stream of events. It has no end, so its size is not limited. The SDK limits each event."""


class RefusedAnswerError(httpx2.TransportError):
    """Raised for an answer that is too large, or compressed: its size is counted as it arrives."""


class OriginError(httpx2.RequestError):
    """Raised for a request to another host than that of the server."""


class Origin:
    """Makes HTTP clients for the URL of a server."""

    def __init__(
        self,
        spec: McpServerSpec,
        *,
        auth: httpx2.Auth | None = None,
        allows: Callable[[httpx2.Request], bool] = lambda request: False,
    ) -> None:
        """Read the headers. Raises ServerStartError if a variable in them is not set or no header may hold its value.

        `auth` authenticates the requests. Its own requests may go to other hosts, without the headers, if it `allows`
        them.
        """
        self._auth = auth
        self._allows = allows
        self._origin = _origin(httpx2.URL(spec.url))
        self._local = is_loopback(urlsplit(spec.url).hostname or "")
        self._headers = {name: _header_value(name, text) for name, text in spec.headers}
        self.first_error = 0
        """Status of the first answer that was an error; 0: there was none."""
        self.last_status = 0
        """Status of the last answer; 0: there was none yet."""

    def client(
        self,
        headers: dict[str, Any] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """Return a client. The SDK gives these parameters; `timeout` is not used."""
        return httpx2.AsyncClient(
            headers=headers,
            auth=auth or self._auth,
            timeout=httpx2.Timeout(_SILENCE_S, connect=_CONNECT_S),
            follow_redirects=False,
            trust_env=not self._local,
            event_hooks={"request": [self._check_request], "response": [self._check_response]},
        )

    async def _check_request(self, request: httpx2.Request) -> None:
        request.headers["accept-encoding"] = "identity"
        if _origin(request.url) != self._origin:
            if self._allows(request):
                return
            raise OriginError(f"a request to {request.url.host} was refused: it is not the server's host")
        request.headers.update(self._headers)

    async def _check_response(self, response: httpx2.Response) -> None:
        self.last_status = response.status_code
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise RefusedAnswerError("it sent a compressed answer, which was not asked for")
        if response.status_code >= 400 and not self.first_error:
            self.first_error = response.status_code
        if not response.headers.get("content-type", "").startswith(_EVENT_STREAM):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _LimitedStream(response.stream)


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_LINE:
                raise RefusedAnswerError(f"it sent more than {MAX_LINE:,} bytes in one answer")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _header_value(name: str, text: str) -> str:
    """Return a header's value. Its error names the header only, because the value may be a secret."""
    value = expand_variables(text, environ=os.environ, where=f"headers.{name}").strip()
    if not (value.isascii() and value.isprintable()):
        raise ServerStartError(f"headers.{name} holds a character that no header may hold, such as a line end")
    return value


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))

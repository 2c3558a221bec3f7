"""`web_fetch`: fetch one page of the public web as text.

The name is resolved once, all its addresses have to be public, and the address that was checked is dialled. So a second
answer of the name server cannot change the target. Redirects are followed by hand under the same checks, and only
within the approved host; another host needs a new call. Proxies and netrc of the environment are not used, and no
cookie is kept.
"""

import asyncio
import functools
import zlib
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import urljoin

from pydantic import Field

from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import BUILT_IN_TOOLS, AccessLevel, CallFacts, Outcome, ToolResult, Verdict
from chatops.sandbox.isolated import IsolatedCallError, run_isolated
from chatops.toolkit.addresses import (
    MAX_URL,
    BadUrlError,
    Resolver,
    Target,
    public_address,
    read_url,
    system_resolver,
    why_inner,
)
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import with_problem
from chatops.toolkit.output import cap, is_binary, visible
from chatops.toolkit.threads import in_thread
from chatops.tools.function import FunctionTool, tool
from chatops.tools.page import decode_page, readers

if TYPE_CHECKING:
    import httpx2

MAX_REDIRECTS = 5
"""Redirects that are followed for one page. More are usually a circle."""
MAX_BODY = 2_000_000
"""Bytes after decompression; the rest is not read."""
FETCH_S = 25.0
"""Seconds for the entire call."""
_SHARE_OF_LIMIT = 0.9
WEB_PORTS = frozenset({80, 443})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TEXT_TYPES = (
    "application/json",
    "application/xml",
    "application/javascript",
    "application/x-ndjson",
    "application/yaml",
)
_HEADERS = {
    "User-Agent": "chatops",
    "Accept": "text/html,text/*;q=0.9,application/json;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}


@frozen_dataclass
class WebSettings:
    """Settings for fetching pages. The resolver and the allowed addresses are only for tests."""

    resolver: Resolver = system_resolver
    allowed_addresses: frozenset[str] = frozenset()
    """Addresses that count as public although they are not."""
    max_body: int = MAX_BODY
    timeout_s: float = FETCH_S
    ports: Container[int] = WEB_PORTS
    """Ports that may be dialled: other ports of a public host are other services."""


@frozen_dataclass
class _Page:
    """Response to one request."""

    target: Target
    status: int
    content_type: str
    charset: str
    location: str
    """URL of a redirect, as the server wrote it; empty if there is none."""
    body: bytes
    cut: bool
    """True if the page is longer than `body`."""


def web_tools(settings: WebSettings) -> tuple[FunctionTool, ...]:
    """Return web_fetch, limited to what `settings` permit."""

    def inspect(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
        # Without a name server request, which would already send data out.
        try:
            target = read_url(arguments["url"])
        except BadUrlError as error:
            return with_problem(facts, "url", str(error), given=arguments["url"])
        refusal = why_inner(target, allowed=settings.allowed_addresses) or _port_refusal(target, settings)
        return replace(facts, refusal=refusal, hosts=(host_of(target),), network=True)

    @tool(
        min_access=AccessLevel.USER,
        verdict=Verdict.ASK,
        read_only=True,
        timeout_s=30.0,
        inspect=inspect,
        capabilities=BUILT_IN_TOOLS["web_fetch"],
    )
    async def web_fetch(
        url: Annotated[str, Field(description="Full http or https URL of a public page.")], context: ToolContext
    ) -> ToolResult:
        """Fetch a public web page and return its text."""
        # Before the tool's own limit, so that this says what took too long.
        seconds = min(settings.timeout_s, context.timeout_s * _SHARE_OF_LIMIT)
        try:
            async with asyncio.timeout(seconds):
                return await _fetch(url, settings=settings, limit=context.max_output_chars)
        except TimeoutError as error:
            raise ToolFailedError(f"The page did not arrive within {seconds:g} s.") from error
        except BadUrlError as error:
            raise ToolFailedError(f"Not fetched: {error}") from error

    return (web_fetch,)


def host_of(target: Target) -> str:
    """Return the host as rules name it.

    It includes a port other than the scheme's own: a grant for a host does not cover every service on it.
    """
    return target.host if target.origin.strip("[]") == target.host else target.origin


def _port_refusal(target: Target, settings: WebSettings) -> str:
    if target.port in settings.ports:
        return ""
    key = f'"tools": {{"web_fetch": {{"ports": [{target.port}]}}}}'
    return f"web_fetch does not connect to port {target.port}. The user can allow it in the registry: {key}."


async def _fetch(url: str, *, settings: WebSettings, limit: int) -> ToolResult:
    approved = target = read_url(url)
    for _ in range(MAX_REDIRECTS + 1):
        if refusal := _port_refusal(target, settings):
            raise ToolFailedError(f"Not fetched: {refusal}")
        page = await _request_page(target, settings=settings)
        if page.status not in _REDIRECTS or not page.location:
            return await _page_result(page, limit=limit)
        try:
            target = read_url(urljoin(target.url, page.location))
        except ValueError as error:
            fault = str(error) if isinstance(error, BadUrlError) else "is not a valid URL"
            raise ToolFailedError(f"Not fetched: the URL of a redirect {fault}.") from error
        if not _may_redirect(approved, target):
            text = f"{visible(url, limit=MAX_URL)} redirects to another host: {visible(target.url, limit=MAX_URL)}"
            advice = "The redirect was not followed; fetch that URL if you need it."
            return ToolResult(outcome=Outcome.SUCCESS, content=f"{text}\n{advice}")
    raise ToolFailedError(f"Not fetched: more than {MAX_REDIRECTS} redirects.")


def _may_redirect(approved: Target, other: Target) -> bool:
    """Return True if a redirect from `approved` to `other` may be followed.

    It has to stay on the host (``www.`` aside) and lead to the same port, 80 or 443, never from https to plain http.
    """
    if approved.host.removeprefix("www.") != other.host.removeprefix("www."):
        return False
    return other.port in {approved.port, 80, 443} and (approved.scheme == "http" or other.scheme == "https")


async def _request_page(target: Target, *, settings: WebSettings) -> _Page:
    # Slow to import, and only needed for a fetch.
    import httpx2

    address = await public_address(target, resolver=settings.resolver, allowed=settings.allowed_addresses)
    context = await in_thread(httpx2.create_ssl_context, trust_env=False)
    transport = httpx2.AsyncHTTPTransport(verify=context, trust_env=False)
    name = f"[{address}]" if ":" in address else address
    request = httpx2.Request(
        "GET",
        f"{target.scheme}://{name}:{target.port}{target.path}",
        headers={**_HEADERS, "Host": target.origin},
        extensions={"sni_hostname": target.host, "timeout": httpx2.Timeout(settings.timeout_s).as_dict()},
    )
    try:
        async with transport:
            response = await transport.handle_async_request(request)
            try:
                return await _read_response(response, target=target, limit=settings.max_body)
            finally:
                await response.aclose()
    except httpx2.HTTPError as error:
        raise ToolFailedError(f"{target.origin} could not be fetched: {_describe_failure(error)}.") from error


def _describe_failure(error: Exception) -> str:
    """Return the reason as one clause; for a TLS error use the certificate's own message."""
    import ssl

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate was refused ({visible(cause.verify_message, limit=150)})"
        case ssl.SSLError():
            return f"the secure connection failed ({visible(cause.reason or 'no reason given', limit=150)})"
        case _:
            return visible(str(error), limit=200).rstrip(".") or type(error).__name__


async def _read_response(response: "httpx2.Response", *, target: Target, limit: int) -> _Page:
    unpack = _unpacker(response.headers.get("content-encoding", "").strip().lower())
    body = bytearray()
    cut, received = False, 0
    # Read the raw stream and decompress it here, because the response's own decoding would unpack a bomb completely.
    async for piece in response.stream:  # type: ignore[union-attr]
        body += unpack(piece, limit + 1 - len(body))
        received += len(piece)
        # What unpacks to nothing, or follows the end of what is compressed, may be endless.
        if len(body) > limit or received > 2 * limit:
            cut = True
            break
    return _Page(
        target=target,
        status=response.status_code,
        content_type=response.headers.get("content-type", "").split(";")[0].strip().lower(),
        charset=response.charset_encoding or "",
        location=response.headers.get("location", ""),
        body=bytes(body[:limit]),
        cut=cut,
    )


def _unpacker(encoding: str) -> Callable[[bytes, int], bytes]:
    """Return a function that decompresses the next bytes, and returns at most as many as requested, or one."""
    if encoding in ("", "identity"):
        return lambda data, room: data[: max(room, 1)]
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ToolFailedError(f"The page uses an unsupported compression: {visible(encoding, limit=30)}.")
    # 32: the data say themselves if they are gzip or zlib.
    reader = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def unpack(data: bytes, room: int) -> bytes:
        try:
            # For zlib, 0 would mean any number.
            return reader.decompress(data, max(room, 1))
        except zlib.error as error:
            raise ToolFailedError("The page could not be decompressed.") from error

    return unpack


async def _page_result(page: _Page, *, limit: int) -> ToolResult:
    readable = not page.content_type or page.content_type.startswith("text/") or page.content_type in _TEXT_TYPES
    if not (readable or page.content_type.endswith(("+json", "+xml"))) or is_binary(page.body):
        kind = visible(page.content_type or "unknown type", limit=60)
        raise ToolFailedError(f"{page.target.url} is not text: {kind}, {len(page.body):,} bytes.")
    text = decode_page(page.body, charset=page.charset)
    title = ""
    looks_like_html = text[:200].lstrip().lower().startswith("<!doctype")
    if looks_like_html or page.content_type in {"text/html", "application/xhtml+xml"}:
        title, text = await _read_html(text, target=page.target)
    header = f"URL: {page.target.url}"
    header += f"\nStatus: {page.status}" if page.status != 200 else ""
    header += f"\nTitle: {title}" if title else ""
    tail = f"\n[only the first {len(page.body):,} bytes were read]" if page.cut else ""
    header += "\n\n"
    body = cap(text if text.strip() else "[the page has no text]", limit=limit - len(header) - len(tail))
    outcome = Outcome.SUCCESS if page.status < 400 else Outcome.FAILED
    content = f"{header}{body.text}{tail}"
    return ToolResult(outcome=outcome, content=content, truncated=page.cut or body.truncated)


async def _read_html(html: str, *, target: Target) -> tuple[str, str]:
    """Return the title and text of a page, by the first reader that manages it. Raises ToolFailedError if none does."""
    fault: IsolatedCallError | None = None
    for reader in readers():
        try:
            title, text = cast(
                list[str], await in_thread(functools.partial(run_isolated, reader, html=html, url=target.url))
            )
            return title, text
        except IsolatedCallError as error:
            fault = error
    raise ToolFailedError(f"The page at {target.origin} could not be read as HTML: {fault}.") from fault

"""`web_search` and `wolfram_alpha`: tools that ask a service which the user has set up, if there is one.

A key goes into a header, never into a URL, a message or a log, and only to its own host. Redirects are not followed,
proxies and netrc of the environment are not used, and the size of the answer is limited.

The search is a SearXNG server, Brave or Tavily with a key, or the keyless `ddgs` package. Wolfram|Alpha's wire is that
of https://products.wolframalpha.com/llm-api/documentation (2026-11): ``GET /api/v1/llm-api`` with `input` and
`maxchars`, the AppID as a bearer token, and an answer in plain text. Status 501 means that the question was not
understood; its body may suggest others.
"""

import asyncio
import importlib
import importlib.util
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, Protocol
from urllib.parse import urlsplit

from pydantic import Field

from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import BUILT_IN_TOOLS, AccessLevel, CallFacts, Verdict
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import with_problem
from chatops.toolkit.output import visible
from chatops.toolkit.threads import in_thread
from chatops.tools.function import FunctionTool, Inspector, tool

log = logging.getLogger(__name__)

_MAX_ANSWER_BYTES = 2_000_000
"""Maximum number of bytes of an answer, which is held in memory."""
WOLFRAM_KEY = "WOLFRAM_APP_ID"
"""Environment variable with the AppID."""
NO_WOLFRAM_KEY = f"it needs an AppID of Wolfram|Alpha (developer.wolframalpha.com, LLM API). Set {WOLFRAM_KEY}"
"""Reason why wolfram_alpha is not offered, and the way to enable it."""
_WOLFRAM_URL = "https://www.wolframalpha.com"
MAX_QUERY = 400
"""Maximum number of characters of a question or search."""
_MAX_CHARS = 6_800
"""Characters of an answer that Wolfram|Alpha is asked for, the default of its interface."""
_WOLFRAM_S = 30.0
"""Seconds that Wolfram|Alpha has to compute an answer."""

MAX_HITS = 8
"""Results of one search: the model reads them all."""
NO_BACKEND = "no search service is set up; chatops doctor lists the choices"
"""Reason why web_search is not offered. `ddgs` stays an extra: it adds 28 MB."""
_MAX_SNIPPET = 300
"""Maximum number of characters of a result's excerpt."""
_SEARCH_S = 15.0
"""Seconds that a service has for one search."""
_TOOL_MARGIN_S = 5
"""Seconds that a tool has longer than its service, so that the service's own error is reported."""
_STATUS_ADVICE = {
    401: " The key is wrong or expired.",
    403: " The key is not valid here, or the SearXNG server does not allow the format json.",
    429: " Too many searches; wait a moment.",
}


async def ask_service(
    method: str,
    url: str,
    *,
    who: str,
    headers: Mapping[str, str],
    seconds: float,
    params: Mapping[str, str | int] | None = None,
    body: Mapping[str, object] | None = None,
) -> tuple[int, bytes]:
    """Send a request to a service. Return the status and the body of its answer.

    `who` names the service at the beginning of error messages. Raises ToolFailedError if it cannot be reached, is too
    slow or sends too much.
    """
    # Slow to import, and only needed for a request.
    import httpx2

    try:
        async with (
            asyncio.timeout(seconds),
            httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=seconds) as client,
            client.stream(method, url, params=params, json=body, headers=headers) as response,
        ):
            data = bytearray()
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > _MAX_ANSWER_BYTES:
                    raise ToolFailedError(f"{who} sent too much data.")
            return response.status_code, bytes(data)
    except TimeoutError as error:
        raise ToolFailedError(f"{who} did not answer within {seconds:g} s.") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ToolFailedError(f"{who} could not be reached ({type(error).__name__}).") from error


def _inspector(host: str) -> Inspector:
    """Return the inspector of a tool that sends its query to `host`."""

    def inspect(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
        query = str(arguments["query"])
        if not query.strip() or len(query) > MAX_QUERY:
            message = f"must have 1 to {MAX_QUERY} characters"
            return with_problem(facts, "query", message, given=query)
        return replace(facts, hosts=(host,), network=True)

    return inspect


def wolfram_tools(key: str, *, base: str = _WOLFRAM_URL) -> tuple[FunctionTool, ...]:
    """Return `wolfram_alpha`. `key` is the AppID, which is never shown."""

    @tool(
        min_access=AccessLevel.USER,
        verdict=Verdict.ALLOW,
        read_only=True,
        asks_after_reading=True,
        timeout_s=_WOLFRAM_S + _TOOL_MARGIN_S,
        inspect=_inspector(urlsplit(base).hostname or ""),
    )
    async def wolfram_alpha(
        query: Annotated[str, Field(description="Short question in English: mathematics, units, dates, facts.")],
    ) -> str:
        """Compute or look up a fact with Wolfram|Alpha."""
        status, data = await ask_service(
            "GET",
            f"{base}/api/v1/llm-api",
            who="Wolfram|Alpha",
            params={"input": query, "maxchars": str(_MAX_CHARS)},
            headers={"Authorization": f"Bearer {key}"},
            seconds=_WOLFRAM_S,
        )
        text = data.decode("utf-8", "replace").replace(key, "[key]").strip()
        match status:
            case 200:
                return text or "[no result]"
            case 501:
                raise ToolFailedError(f"Wolfram|Alpha does not understand the question. Ask it more simply.\n{text}")
            case 401 | 403:
                raise ToolFailedError(f"Wolfram|Alpha refuses the key (status {status}). The user sets {WOLFRAM_KEY}.")
            case _:
                raise ToolFailedError(f"Wolfram|Alpha failed with status {status}.")

    return (wolfram_alpha,)


@frozen_dataclass
class Hit:
    """One search result."""

    title: str
    url: str
    text: str


class SearchBackend(Protocol):
    """A web search service."""

    @property
    def host(self) -> str:
        """Host that the query is sent to."""

    async def search(self, query: str) -> Sequence[Hit]:
        """Return at most `MAX_HITS` results. Raises ToolFailedError with a sentence for the model."""


@frozen_dataclass
class HttpBackend:
    """A search service with an API over HTTP, whose answer is JSON with the results at `path`."""

    url: str
    path: tuple[str, ...]
    text_key: str
    """Key of a result's excerpt."""
    query_key: str = "q"
    """Name of the parameter with the words to search for."""
    params: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    method: str = "GET"
    """With POST the parameters are the body, as JSON."""

    @property
    def host(self) -> str:
        """Host of the service."""
        return urlsplit(self.url).hostname or ""

    async def search(self, query: str) -> Sequence[Hit]:
        """Send the query, and read the results."""
        params = {self.query_key: query, **self.params}
        post = self.method == "POST"
        status, data = await ask_service(
            self.method,
            self.url,
            who=f"The search at {self.host}",
            params=None if post else params,
            body=params if post else None,
            headers=self.headers,
            seconds=_SEARCH_S,
        )
        if status != 200:
            advice = _STATUS_ADVICE.get(status, "")
            raise ToolFailedError(f"The search at {self.host} failed with status {status}.{advice}")
        try:
            answer = json.loads(data)
        except ValueError as error:
            # A service that does not allow the format answers with a page.
            fault = f"The search at {self.host} did not answer with JSON.{_STATUS_ADVICE[403]}"
            raise ToolFailedError(fault) from error
        return _read_hits(answer, *self.path, text_key=self.text_key)


def searxng(url: str) -> HttpBackend:
    """Return a SearXNG server, whose settings have to permit the format ``json``."""
    address = f"{url.rstrip('/')}/search"
    return HttpBackend(url=address, path=("results",), text_key="content", params={"format": "json"})


def brave(key: str, *, base: str = "https://api.search.brave.com") -> HttpBackend:
    """Return Brave's search API."""
    headers, path = {"X-Subscription-Token": key}, ("web", "results")
    url = f"{base}/res/v1/web/search"
    return HttpBackend(url=url, path=path, text_key="description", params={"count": MAX_HITS}, headers=headers)


def tavily(key: str, *, base: str = "https://api.tavily.com") -> HttpBackend:
    """Return Tavily's search API."""
    return HttpBackend(
        method="POST",
        url=f"{base}/search",
        query_key="query",
        params={"max_results": MAX_HITS},
        headers={"Authorization": f"Bearer {key}"},
        path=("results",),
        text_key="content",
    )


@frozen_dataclass
class DdgsBackend:
    """The `ddgs` package of the extra ``[web]``: no key, several engines, no guarantee."""

    host: str = "duckduckgo.com"

    async def search(self, query: str) -> Sequence[Hit]:
        """Search in a thread; the package is imported only then."""
        try:
            found = await in_thread(self._raw_hits, query)
        except Exception as error:
            log.info("the search of ddgs failed", exc_info=error)
            raise ToolFailedError(
                "The search failed: no engine that needs no key gave a result. They limit how often they answer: try "
                "other words, or later. The user can set up another service; chatops doctor lists them."
            ) from error
        return _read_hits({"results": found}, "results", text_key="body", url_key="href")

    @staticmethod
    def _raw_hits(query: str) -> object:
        # Optional dependency, so it is imported here.
        module: Any = importlib.import_module("ddgs")
        return module.DDGS(timeout=int(_SEARCH_S)).text(query, max_results=MAX_HITS)


def choose_backend(environ: Mapping[str, str]) -> SearchBackend | None:
    """Return the backend that the environment configures, or None. Makes no request."""
    if url := environ.get("CHATOPS_SEARXNG_URL", ""):
        return searxng(url)
    if key := environ.get("BRAVE_API_KEY", ""):
        return brave(key)
    if key := environ.get("TAVILY_API_KEY", ""):
        return tavily(key)
    if importlib.util.find_spec("ddgs") is not None:
        return DdgsBackend()
    return None


def search_web_tools(backend: SearchBackend) -> tuple[FunctionTool, ...]:
    """Return `web_search`, using `backend`."""

    @tool(
        min_access=AccessLevel.USER,
        verdict=Verdict.ALLOW,
        read_only=True,
        asks_after_reading=True,
        timeout_s=_SEARCH_S + _TOOL_MARGIN_S,
        inspect=_inspector(backend.host),
        capabilities=BUILT_IN_TOOLS["web_search"],
    )
    async def web_search(query: Annotated[str, Field(description="Search query.")]) -> str:
        """Search the web. Returns titles, URLs and short excerpts."""
        hits = await backend.search(query)
        return "\n\n".join(_hit_text(number, hit) for number, hit in enumerate(hits, 1)) or "[no results]"

    return (web_search,)


def _hit_text(number: int, hit: Hit) -> str:
    text = visible(" ".join(hit.text.split()), limit=_MAX_SNIPPET)
    return f"{number}. {visible(hit.title, limit=200)}\n   {visible(hit.url, limit=500)}\n   {text}"


def _read_hits(answer: object, *path: str, text_key: str, url_key: str = "url") -> Sequence[Hit]:
    """Return the entries at `path` as hits; skip entries of another shape."""
    for key in path:
        answer = answer.get(key) if isinstance(answer, Mapping) else None
    entries = answer if isinstance(answer, list) else []
    hits = [
        Hit(title=str(entry.get("title") or ""), url=str(entry[url_key]), text=str(entry.get(text_key) or ""))
        for entry in entries
        if isinstance(entry, Mapping) and str(entry.get(url_key, "")).startswith(("http://", "https://"))
    ]
    return hits[:MAX_HITS]

"""`web_search` and its backends behind one protocol. Without a backend the tool is not offered.

The backend depends on what the user has set up: a SearXNG server, a key for Brave or Tavily, or the keyless `ddgs`
package. A key is sent only to its own host.
"""

import importlib
import importlib.util
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Protocol
from urllib.parse import urlsplit

from pydantic import Field

from chatops.domain.errors import ToolFailedError
from chatops.domain.rights import AccessLevel, Verdict
from chatops.domain.tools import CallFacts, Problem
from chatops.toolkit.base import ToolContext
from chatops.toolkit.output import visible
from chatops.toolkit.threads import in_thread
from chatops.tools.function import FunctionTool, tool
from chatops.tools.service import ask_service

log = logging.getLogger(__name__)

MAX_HITS = 8
MAX_QUERY = 400
"""Characters."""
NO_BACKEND = "no search service is set up; chatops doctor lists the choices"
"""Reason why web_search is not offered."""
_SNIPPET = 300
_SEARCH_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearxngBackend:
    """A SearXNG server whose settings permit the format ``json``."""

    url: str

    @property
    def host(self) -> str:
        """Host of the server."""
        return urlsplit(self.url).hostname or ""

    async def search(self, query: str) -> Sequence[Hit]:
        """Search with ``GET /search?format=json``."""
        params = {"q": query, "format": "json"}
        answer = await _ask("GET", f"{self.url.rstrip('/')}/search", who=self.host, params=params)
        return _hits(answer, "results", text="content")


@dataclass(frozen=True, slots=True, kw_only=True)
class BraveBackend:
    """Brave's search API. `key` is never shown."""

    key: str
    base: str = "https://api.search.brave.com"

    @property
    def host(self) -> str:
        """Host of the API."""
        return urlsplit(self.base).hostname or ""

    async def search(self, query: str) -> Sequence[Hit]:
        """Search with the web search endpoint."""
        headers = {"X-Subscription-Token": self.key}
        params = {"q": query, "count": str(MAX_HITS)}
        url = f"{self.base}/res/v1/web/search"
        answer = await _ask("GET", url, who=self.host, params=params, headers=headers)
        return _hits(answer, "web", "results", text="description")


@dataclass(frozen=True, slots=True, kw_only=True)
class TavilyBackend:
    """Tavily's search API. `key` is never shown."""

    key: str
    base: str = "https://api.tavily.com"

    @property
    def host(self) -> str:
        """Host of the API."""
        return urlsplit(self.base).hostname or ""

    async def search(self, query: str) -> Sequence[Hit]:
        """Search with the search endpoint."""
        headers = {"Authorization": f"Bearer {self.key}"}
        body = {"query": query, "max_results": MAX_HITS}
        answer = await _ask("POST", f"{self.base}/search", who=self.host, body=body, headers=headers)
        return _hits(answer, "results", text="content")


@dataclass(frozen=True, slots=True, kw_only=True)
class DdgsBackend:
    """The `ddgs` package of the extra ``[web]``: no key, several engines, no guarantee."""

    host: str = "duckduckgo.com"

    async def search(self, query: str) -> Sequence[Hit]:
        """Search in a thread; the package is imported only then."""
        try:
            found = await in_thread(self._found, query)
        except Exception as error:
            log.info("the search of ddgs failed", exc_info=error)
            raise ToolFailedError(
                "The search failed: no engine that needs no key gave a result. They limit how often they answer: try "
                "other words, or later. The user can set up another service; chatops doctor lists them."
            ) from error
        return _hits({"results": found}, "results", text="body", url="href")

    @staticmethod
    def _found(query: str) -> object:
        # Optional dependency, so it is imported here.
        module: Any = importlib.import_module("ddgs")
        return module.DDGS(timeout=int(_SEARCH_S)).text(query, max_results=MAX_HITS)


def choose_backend(environ: Mapping[str, str]) -> SearchBackend | None:
    """Return the backend that the environment configures, or None. Makes no request."""
    if url := environ.get("CHATOPS_SEARXNG_URL", ""):
        return SearxngBackend(url=url)
    if key := environ.get("BRAVE_API_KEY", ""):
        return BraveBackend(key=key)
    if key := environ.get("TAVILY_API_KEY", ""):
        return TavilyBackend(key=key)
    if importlib.util.find_spec("ddgs") is not None:
        return DdgsBackend()
    return None


def search_web_tools(backend: SearchBackend) -> tuple[FunctionTool, ...]:
    """Return the tools of this module, using `backend`."""

    def inspect(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
        query = str(arguments["query"])
        if not query.strip() or len(query) > MAX_QUERY:
            message = f"must have 1 to {MAX_QUERY} characters"
            return replace(facts, problems=(Problem(path="query", message=message, given=visible(query)),))
        return replace(facts, hosts=(backend.host,), network=True)

    @tool(
        min_access=AccessLevel.USER,
        verdict=Verdict.ALLOW,
        read_only=True,
        asks_after_reading=True,
        timeout_s=20.0,
        inspect=inspect,
    )
    async def web_search(query: Annotated[str, Field(description="Search query.")]) -> str:
        """Search the web. Returns titles, URLs and short excerpts."""
        hits = await backend.search(query)
        return "\n\n".join(_shown(number, hit) for number, hit in enumerate(hits, 1)) or "[no results]"

    return (web_search,)


def _shown(number: int, hit: Hit) -> str:
    text = visible(" ".join(hit.text.split()), limit=_SNIPPET)
    return f"{number}. {visible(hit.title, limit=200)}\n   {visible(hit.url, limit=500)}\n   {text}"


async def _ask(
    method: str,
    url: str,
    *,
    who: str,
    params: Mapping[str, str] | None = None,
    body: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> object:
    answer = await ask_service(
        method, url, who=f"The search at {who}", params=params, body=body, headers=headers, seconds=_SEARCH_S
    )
    if answer.status != 200:
        raise ToolFailedError(f"The search at {who} failed with status {answer.status}.{_advice(answer.status)}")
    try:
        return json.loads(answer.data)
    except ValueError as error:
        raise ToolFailedError(f"The search at {who} did not answer with JSON.{_advice(403)}") from error


def _advice(status: int) -> str:
    match status:
        case 401:
            return " The key is wrong or expired."
        case 403:
            return " The key is not valid here, or the SearXNG server does not allow the format json."
        case 429:
            return " Too many searches; wait a moment."
        case _:
            return ""


def _hits(answer: object, *path: str, text: str, url: str = "url") -> Sequence[Hit]:
    """Return the entries at `path` as hits; skip entries of another shape."""
    for key in path:
        answer = answer.get(key) if isinstance(answer, Mapping) else None
    entries = answer if isinstance(answer, list) else []
    hits = [
        Hit(title=str(entry.get("title") or ""), url=str(entry[url]), text=str(entry.get(text) or ""))
        for entry in entries
        if isinstance(entry, Mapping) and str(entry.get(url, "")).startswith(("http://", "https://"))
    ]
    return hits[:MAX_HITS]

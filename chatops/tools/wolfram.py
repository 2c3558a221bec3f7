"""`wolfram_alpha`: ask Wolfram|Alpha for a computed answer, by its LLM API. Without a key the tool is not offered.

The wire is that of https://products.wolframalpha.com/llm-api/documentation (2026-11): ``GET /api/v1/llm-api`` with
`input` and `maxchars`, the AppID as a bearer token, and an answer in plain text. Status 501 means that the question was
not understood; its body may suggest others.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from chatops.domain.errors import ToolFailedError
from chatops.domain.rights import AccessLevel, Verdict
from chatops.domain.tools import CallFacts, Problem
from chatops.toolkit.base import ToolContext
from chatops.toolkit.output import visible
from chatops.tools.function import FunctionTool, tool
from chatops.tools.service import ask_service

KEY = "WOLFRAM_APP_ID"
"""Environment variable with the AppID."""
NO_KEY = f"it needs an AppID of Wolfram|Alpha (developer.wolframalpha.com, LLM API). Set {KEY}"
"""Reason why wolfram_alpha is not offered, and the way to enable it."""
BASE = "https://www.wolframalpha.com"
MAX_QUERY = 400
"""Characters."""
_MAX_CHARS = 6_800
_ANSWER_S = 30.0


def wolfram_tools(key: str, *, base: str = BASE) -> tuple[FunctionTool, ...]:
    """Return the tools of this module. `key` is the AppID, which is never shown."""
    host = urlsplit(base).hostname or ""

    def inspect(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
        query = str(arguments["query"])
        if not query.strip() or len(query) > MAX_QUERY:
            message = f"must have 1 to {MAX_QUERY} characters"
            return replace(facts, problems=(Problem(path="query", message=message, given=visible(query)),))
        return replace(facts, hosts=(host,), network=True)

    @tool(
        min_access=AccessLevel.USER,
        verdict=Verdict.ALLOW,
        read_only=True,
        asks_after_reading=True,
        timeout_s=_ANSWER_S + 5,
        inspect=inspect,
    )
    async def wolfram_alpha(
        query: Annotated[str, Field(description="Short question in English: mathematics, units, dates, facts.")],
    ) -> str:
        """Compute or look up a fact with Wolfram|Alpha."""
        answer = await ask_service(
            "GET",
            f"{base}/api/v1/llm-api",
            who="Wolfram|Alpha",
            params={"input": query, "maxchars": str(_MAX_CHARS)},
            headers={"Authorization": f"Bearer {key}"},
            seconds=_ANSWER_S,
        )
        text = answer.data.decode("utf-8", "replace").replace(key, "[key]").strip()
        match answer.status:
            case 200:
                return text or "[no result]"
            case 501:
                raise ToolFailedError(f"Wolfram|Alpha does not understand the question. Ask it more simply.\n{text}")
            case 401 | 403:
                raise ToolFailedError(f"Wolfram|Alpha refuses the key (status {answer.status}). The user sets {KEY}.")
            case status:
                raise ToolFailedError(f"Wolfram|Alpha failed with status {status}.")

    return (wolfram_alpha,)
